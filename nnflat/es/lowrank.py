"""LowRank: each matrix of a layout gets noise of low rank, so that a population shares one product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnflat.es.noise import Gaussian, Noise, drawn_dtype
from nnflat.layout import Layout

__all__ = ["LowRank"]

_GAUSSIAN = Gaussian()

Shape = tuple[int, int]


@dataclass(frozen=True)
class LowRank(Noise):
    """Noise A @ B.T / sqrt(rank) for each matrix of a layout, with A and B standard normal; normal elsewhere.

    A leaf of more than two axes is the matrix of its last axis by all others. A model with a matrix W gives
    x @ W + sigma * (x @ A) @ B.T / sqrt(rank) for a candidate: all candidates share x @ W. Each direction
    draws rank * (rows + columns) numbers a matrix in place of rows * columns.

    References
    ----------
    Sarkar and others, "Evolution strategies at the hyperscale" (EGGROLL), arXiv 2511.16652, 2025.

    Examples
    --------
    >>> layout = Layout.of({"weight": np.zeros((3, 4)), "bias": np.zeros(4)})
    >>> direction = LowRank(layout).fill(np.uint64(1), 0, 0, np.empty(layout.size))
    >>> int(np.linalg.matrix_rank(direction[layout["weight"]].reshape(3, 4)))
    1
    """

    layout: Layout
    rank: int = 1

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1; got {self.rank}")

    def fill(self, key: np.uint64, generation: int, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write direction `k` of a generation into `out` and return it."""
        factors = self.factors(key, generation, range(k, k + 1), drawn_dtype(out))
        return self._sum(factors, np.ones(1, factors.dtype), out)

    def combine(
        self, key: np.uint64, generation: int, weights: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Write the sum of the directions 0, 1, ... times `weights` into `out`: one product a matrix."""
        factors = self.factors(key, generation, range(len(weights)), drawn_dtype(out))
        return self._sum(factors, np.asarray(weights, factors.dtype), out)

    def factors(
        self, key: np.uint64, generation: int, directions: range, dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        """Draw what the directions are made of, a row each; `split` gives its parts."""
        rows = np.empty((len(directions), sum(map(self._drawn, self._slots))), dtype)
        return _GAUSSIAN.rows(key, generation, directions.start, rows)

    def split(self, factors: NDArray[Any]) -> dict[int, tuple[NDArray[Any], ...]]:
        """Return the parts of each leaf by where it starts in theta: (A, B), or the noise itself.

        A has the shape (directions, rows, rank), B (directions, columns, rank).
        """
        parts, start = {}, 0
        for slot in self._slots:
            block = factors[:, start : start + self._drawn(slot)]
            start += self._drawn(slot)
            parts[slot.start] = self._pair(block, slot.matrix) if slot.matrix else (block,)
        return parts

    def _pair(self, block: NDArray[Any], shape: Shape) -> tuple[NDArray[Any], ...]:
        cut = self.rank * shape[0]
        left, right = block[:, :cut], block[:, cut:]
        return left.reshape(-1, shape[0], self.rank), right.reshape(-1, shape[1], self.rank)

    def _sum(self, factors: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """Write the sum of the directions that are made of `factors`, times `weights`."""
        if out.shape != (self.layout.size,):
            raise ValueError(f"noise for a layout of {self.layout.size} elements cannot fill shape {out.shape}")
        parts = self.split(factors)
        for slot in self._slots:
            first, *second = parts[slot.start]
            weighted = first * weights.reshape(-1, *[1] * (first.ndim - 1))
            if second:
                left, right = (np.moveaxis(part, 1, 0).reshape(part.shape[1], -1) for part in (weighted, *second))
                out[slot.start : slot.stop] = (left @ right.T).reshape(-1) / self.rank**0.5
            else:
                out[slot.start : slot.stop] = weighted.sum(axis=0)
        return out

    def _drawn(self, slot: _Slot) -> int:
        return self.rank * sum(slot.matrix) if slot.matrix else slot.stop - slot.start

    @cached_property
    def _slots(self) -> list[_Slot]:
        slots: dict[int, _Slot] = {}
        for path, shape in zip(self.layout.paths, self.layout.shapes, strict=True):
            place = self.layout[path]
            matrix = (prod(shape[:-1]), shape[-1]) if len(shape) > 1 else None
            slots.setdefault(place.start, _Slot(place.start, place.stop, matrix))
        return [slot for slot in slots.values() if slot.stop > slot.start]


class _Slot(NamedTuple):
    """Where a leaf stands in theta, and the shape of the matrix that it is, if it is one."""

    start: int
    stop: int
    matrix: Shape | None
