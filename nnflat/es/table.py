"""Table: directions are windows of one long vector of noise, which every process makes for itself."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat._noise import add_windows
from nnflat._random import fold_range
from nnflat.es.noise import Noise, drawn_dtype
from nnflat.random import fold, normal

__all__ = ["Table"]

_TABLE_KEY = np.uint64(0x5461626C65)  # one table for all runs, so that a process makes it once


@dataclass(frozen=True)
class Table(Noise):
    """Standard normal noise read from a shared table of `size` float32, from an offset by key.

    Element k of a direction is element (offset + k) % size of the table. Directions may overlap, with a
    probability of 2 * theta.size / size a pair: the table should be many times longer than theta. It is made
    once a process, when first used, and takes 4 * size bytes.

    References
    ----------
    Salimans, Ho, Chen, Sidor, Sutskever, "Evolution strategies as a scalable alternative to reinforcement
    learning", 2017, section 2.1 and its reference code.

    Examples
    --------
    >>> noise, key = Table(1000), np.uint64(1)
    >>> long, short = noise.fill(key, 0, 0, np.empty(20)), noise.fill(key, 0, 0, np.empty(5))
    >>> bool((long[:5] == short).all())
    True
    """

    size: int = 1 << 25

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a table needs a size of at least 1; got {self.size}")

    def fill(self, key: np.uint64, generation: int, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write direction `k` of a generation into `out` and return it."""
        table, (offset,) = self._of(out), self._offsets(key, generation, k, 1).tolist()
        head = table[offset : offset + out.size]
        out[: head.size] = head
        out[head.size :] = table[: out.size - head.size]
        return out

    def read(self, key: np.uint64, generation: int, first: int, out: NDArray[Any]) -> NDArray[Any]:
        """Return directions as rows: a single one that does not wrap around is a view of the table."""
        if len(out) == 1 and out.dtype == np.float32:
            table, (offset,) = self._of(out[0]), self._offsets(key, generation, first, 1).tolist()
            if offset + out.size <= self.size:
                return table[None, offset : offset + out.size]
        return self.rows(key, generation, first, out)

    def combine(
        self, key: np.uint64, generation: int, weights: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Write the sum of the directions 0, 1, ... times `weights` into `out` and return it."""
        total = np.zeros(out.shape, drawn_dtype(out))
        add_windows(self._of(out), self._offsets(key, generation, 0, len(weights)), weights, total)
        out[...] = total
        return out

    def _of(self, out: NDArray[Any]) -> NDArray[np.float32]:
        if out.size > self.size:
            raise ValueError(f"theta has {out.size} elements; the table has only {self.size}")
        return _table(self.size)

    def _offsets(self, key: np.uint64, generation: int, first: int, count: int) -> NDArray[np.int64]:
        return (fold_range(fold(key, generation), first, count) % np.uint64(self.size)).astype(np.int64)


@cache
def _table(size: int) -> NDArray[np.float32]:
    table = normal(_TABLE_KEY, size)
    table.flags.writeable = False
    return table
