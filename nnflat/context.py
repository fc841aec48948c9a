"""What is being traced in this thread, and on which line of the user's."""

from __future__ import annotations

import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nnflat._replay import tracing_depth

STACK = threading.local()
PACKAGE = str(Path(__file__).parent)
NUMPY = str(Path(np.__file__).parent)
LIBRARIES = (os.path.dirname(os.__file__), os.path.dirname(NUMPY))


class TraceError(TypeError):
    """A function cannot be traced: the message names what it did, on which line, and what to write instead."""


def stack() -> list[Any]:
    if not hasattr(STACK, "traces"):
        STACK.traces = []
    return STACK.traces


def current() -> Any:
    """Return the innermost trace that is running: that is where an operation on a traced value is recorded."""
    traces = stack()
    if not traces:
        raise TraceError("a traced value outlived the call that made it: return it from the function instead")
    return traces[-1]


def active() -> Any:
    traces = stack()
    return traces[-1] if traces else None


def differentiated() -> int:
    """Return how many derivatives are being taken of what runs now."""
    return getattr(STACK, "derivatives", 0)


@contextmanager
def tracing(trace: Any) -> Iterator[Any]:
    stack().append(trace)
    tracing_depth(1)
    try:
        with warnings.catch_warnings(), np.errstate(all="call", call=silent):
            warnings.simplefilter("ignore")
            yield trace
    finally:
        tracing_depth(-1)
        stack().pop()


def silent(kind: str, flag: int) -> None:
    """Take floating-point errors during a trace: the replay that follows reports them."""


def entered_errstate() -> dict[str, str]:
    """Return the modes that the function itself has set by `np.errstate`; the rest is the caller's."""
    modes: dict[str, Any] = dict(np.geterr()) if stack() else {}
    return {name: mode for name, mode in modes.items() if mode != "call"}


def user_line() -> str:
    """Return the innermost line that is no library's; failing that, neither ours nor NumPy's."""
    return line_outside(in_library) or line_outside(in_numpy) or "no line of Python"


@lru_cache(maxsize=1024)
def in_numpy(file: str) -> bool:
    return file.startswith((PACKAGE, NUMPY, "<frozen ", "<__array_function__"))


@lru_cache(maxsize=1024)
def in_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or in_numpy(file)


def line_outside(excluded: Callable[[str], bool]) -> str | None:
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not excluded(code.co_filename):
            return place(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


@lru_cache(maxsize=1024)
def place(file: str, line: int, name: str) -> str:
    return f"{os.path.basename(file)}, line {line}, in {name}"
