"""The tape: operations over windows of buffers, in the order in which NumPy did them.

Invariants:

 T1  A buffer is written by one operation only (or is given: an argument, a captured array, a constant).
 T2  A window is what NumPy calls a view: it has the shape, strides and dtype of the array that eager NumPy had.
 T3  Operands hold no array data of the trace: planning works on stand-ins with the same strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from nnflat._loops import address

CELL = np.zeros(256, np.uint8)
ALIGNED = -CELL.ctypes.data % 64


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of one kind: `argument`, `captured`, `constant`, `outer`, `temporary` or `result`."""

    role: str
    nbytes: int
    array: Any = None
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A view by offset: where an operand stands in its buffer."""

    buffer: Buffer
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    aligned: bool = True

    @property
    def size(self) -> int:
        return prod(self.shape)

    def standin(self) -> np.ndarray:
        """Make an array with this shape, strides and alignment over memory that nobody may touch. # T3"""
        return standin(self.shape, self.strides, self.dtype, self.aligned)

    def over(self, array: np.ndarray, base: np.ndarray) -> Window:
        """Return the window that `array`, a view of memory of `base` (which this window is), stands for. # T2"""
        return view_window(self.buffer, self.offset + address(array) - address(base), array)


@lru_cache(maxsize=4096)
def standin(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, aligned: bool) -> np.ndarray:
    cell = np.ndarray((), dtype, CELL, ALIGNED if aligned else ALIGNED + 1)
    return np.lib.stride_tricks.as_strided(cell, shape, strides)


def view_window(buffer: Buffer, offset: int, array: np.ndarray) -> Window:
    return Window(buffer, offset, array.shape, array.strides, array.dtype, array.flags.aligned)


@dataclass(eq=False, slots=True)
class Operation:
    """One entry of the tape. `kind` says how it is planned; `name` is what NumPy calls it in a warning."""

    kind: str
    name: str
    inputs: tuple[Window, ...]
    outputs: tuple[Window, ...]
    errstate: dict[str, str]
    ufunc: Any = None
    signature: str = ""
    axes: tuple[int, ...] = ()
    function: Any = None
    kinds: tuple[str, ...] = ()
    inner: Any = None
    where: str = ""


@dataclass(eq=False, slots=True)
class Tape:
    """A record of operations, and of the buffers that they did not make themselves."""

    operations: list[Operation] = field(default_factory=list)
    arguments: list[tuple[Buffer, Window]] = field(default_factory=list)
    captured: dict[int, Window] = field(default_factory=dict)
    outer: dict[Window, Window] = field(default_factory=dict)

    def argument(self, array: np.ndarray) -> Window:
        window = view_window(Buffer("argument", array.nbytes), 0, array)
        self.arguments.append((window.buffer, window))
        return window

    def capture(self, array: np.ndarray) -> Window:
        """Return the window of an array that lives outside: it is read anew at each call."""
        if id(array) not in self.captured:
            self.captured[id(array)] = view_window(Buffer("captured", array.nbytes, array), 0, array)
        return self.captured[id(array)]

    def constant(self, array: np.ndarray) -> Window:
        return view_window(Buffer("constant", array.nbytes, array), 0, array)

    def enter(self, window: Window) -> Window:
        """Return the window of a value that a tape around this one has."""
        if window not in self.outer:
            self.outer[window] = Window(Buffer("outer", 0, None, window), 0, window.shape, window.strides,
                                        window.dtype, window.aligned)
        return self.outer[window]

    def temporary(self, like: np.ndarray) -> Window:
        """Return the window of a new buffer laid out as the array that eager NumPy made."""
        low, high = extent(like.shape, like.strides, like.dtype.itemsize)
        return Window(Buffer("temporary", high - low), -low, like.shape, like.strides, like.dtype)

    def add(self, kind: str, name: str, inputs: tuple[Window, ...], outputs: tuple[Window, ...],
            **settings: Any) -> None:
        self.operations.append(Operation(kind, name, inputs, outputs, **settings))


@lru_cache(maxsize=4096)
def extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Return the bytes from the first element down to the lowest, and up to the end of the highest."""
    if 0 in shape:
        return 0, 0
    moves = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(move for move in moves if move < 0), sum(move for move in moves if move > 0) + itemsize


def live_operations(operations: list[Operation], wanted: set[Buffer]) -> Iterator[Operation]:
    """Yield, last first, the operations whose results somebody reads; `wanted` grows by what they read."""
    for operation in reversed(operations):
        if any(window.buffer in wanted for window in operation.outputs):
            wanted.update(window.buffer for window in operation.inputs)
            yield operation
