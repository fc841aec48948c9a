"""Block: the arrays of a generation in a memory-mapped file of ours, which workers of this machine read.

B1  The first eight bytes are the version of what follows: 0 while it is being written.
B2  Only the process that made the block writes it. A reader compares the version with the one that it was
    told, before it reads and after.
"""

import mmap
import os
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Place"]

ALIGN = 64
SHARED = "/dev/shm"  # a folder in memory, where there is one

Field = tuple[str, tuple[int, ...], str, int]


@dataclass(frozen=True)
class Place:
    """Where a block is, and what stands where in it: all that a worker needs to be told."""

    path: str
    fields: tuple[Field, ...]

    def read(self) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Return the version (an array of one, which changes with the block) and the arrays, shared."""
        if (self.path, self.fields) not in _OPEN:
            with open(self.path, "rb") as file:
                _OPEN[self.path, self.fields] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            while len(_OPEN) > 4:
                _OPEN.popitem(last=False)
        return _windows(_OPEN[self.path, self.fields], self.fields)


_OPEN: OrderedDict[tuple[str, tuple[Field, ...]], mmap.mmap] = OrderedDict()


class Block:
    """A block for arrays of these shapes and dtypes; `close` removes the file."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        fields, size = [], ALIGN
        for name, array in arrays.items():
            fields.append((name, array.shape, array.dtype.str, size))
            size += -(-array.nbytes // ALIGN) * ALIGN
        handle, path = tempfile.mkstemp(prefix="nnflat-", dir=SHARED if os.access(SHARED, os.W_OK) else None)
        try:
            os.ftruncate(handle, size)
            self._map = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self.place = Place(path, tuple(fields))
        self._version, self._arrays = _windows(self._map, self.place.fields)

    def fits(self, arrays: dict[str, NDArray[Any]]) -> bool:
        """Return whether the block has just these arrays, by name, shape and dtype."""
        given = [(name, array.shape, array.dtype.str) for name, array in arrays.items()]
        return given == [field[:3] for field in self.place.fields]

    def write(self, arrays: dict[str, NDArray[Any]], version: int) -> None:
        """Copy the arrays into the block."""
        self._version[0] = 0
        for name, array in arrays.items():
            np.copyto(self._arrays[name], array)
        self._version[0] = version

    def close(self) -> None:
        """Remove the file; what workers have open stays readable for them."""
        if os.path.exists(self.place.path):
            os.unlink(self.place.path)


def _windows(memory: mmap.mmap, fields: tuple[Field, ...]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    version = np.frombuffer(memory, np.uint64, 1)
    arrays = {name: np.ndarray(shape, dtype, memory, offset) for name, shape, dtype, offset in fields}
    return version, arrays
