"""Threads of our own: a pool that is kept, and NumPy's BLAS held to one thread while they run.

Two threads that both call a BLAS of two threads wait for each other most of the time, and the number of its threads
changes the bits of a product: so that `threads=` changes neither, the BLAS has one thread whenever ours are several.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import lru_cache
from typing import Any

POOLS: dict[int, ThreadPoolExecutor] = {}
os.register_at_fork(after_in_child=POOLS.clear)         # a child has none of the threads


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


class Limit:
    """The one limit that all who ask for it share: the first sets it, the last takes it back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limiter: Any = None

    def enter(self, controller: Any) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.limiter = controller.limit(limits=1, user_api="blas")

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.limiter.restore_original_limits()


LIMIT = Limit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold the BLAS to one thread, where threadpoolctl is installed to do it."""
    controller = blas_controller()
    if controller is None:
        yield
        return
    LIMIT.enter(controller)
    try:
        yield
    finally:
        LIMIT.leave()


@lru_cache(maxsize=1)
def blas_controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController().select(user_api="blas")
