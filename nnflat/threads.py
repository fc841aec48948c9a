"""Threads of our own: a pool that is kept, and NumPy's BLAS held to one thread while they run.

Two threads that both call a BLAS of two threads wait for each other most of the time, and the number of its threads
changes the bits of a product: so that `threads=` changes neither, the BLAS has one thread whenever ours are several.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

POOLS: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOLS.clear)     # a child has none of the threads


def share(function: Callable[[Any], None], parts: Sequence[Any]) -> None:
    """Run a function on each part, one in this thread, under the context of the caller (its errstate, say).

    It returns when all have ended, and raises what the first of them raised.
    """
    helpers = len(parts) - 1
    if helpers not in POOLS:
        POOLS[helpers] = ThreadPoolExecutor(helpers, thread_name_prefix="nnflat")
    with one_blas_thread():
        tasks = [POOLS[helpers].submit(copy_context().run, function, part) for part in parts[1:]]
        try:
            function(parts[0])
        finally:
            errors = [task.exception() for task in tasks]
        for error in filter(None, errors):
            raise error


class Blas:
    """The OpenBLAS that came with NumPy, and how many now want it to have one thread."""

    def __init__(self, library: ctypes.CDLL, get: str, put: str) -> None:
        self.get_threads, self.set_threads = library[get], library[put]
        self.lock = threading.Lock()
        self.users = 0
        self.before = 1

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Hold it to one thread: the limit is the process's, so the first sets it and the last takes it back."""
        with self.lock:
            if self.users == 0:
                self.before = self.get_threads()
                self.set_threads(1)
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    self.set_threads(self.before)


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold NumPy's BLAS to one thread, where it is the OpenBLAS of NumPy's wheels."""
    blas = find_blas()
    return nullcontext() if blas is None else blas.limited()


@lru_cache(maxsize=1)
def find_blas() -> Blas | None:
    package = Path(np.__file__).parent
    for path in [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]:
        library = ctypes.CDLL(str(path))
        for prefix, suffix in product(("scipy_", ""), ("64_", "")):
            get, put = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
            if hasattr(library, get):
                return Blas(library, get, put)
    return None
