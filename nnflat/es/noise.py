"""Noise by key: element k of a direction depends on (key, generation, direction, k) and on nothing else."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnflat._random import fill_normal
from nnflat.random import fold

__all__ = ["Gaussian", "Noise"]

BLOCK = 8192  # elements: a block of the sum and one of noise stay in the first cache


class Noise(Protocol):
    """What every kind of noise offers."""

    def fill(self, key: np.uint64, generation: int, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write direction `k` of a generation into `out` and return it."""
        ...

    def combine(
        self, key: np.uint64, generation: int, weights: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Write the sum of the directions 0, 1, ... times `weights` into `out` and return it."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """Independent standard normal noise in every element.

    Examples
    --------
    >>> noise, key = Gaussian(), np.uint64(1)
    >>> first, second = noise.fill(key, 0, 0, np.empty(3)), noise.fill(key, 0, 1, np.empty(3))
    >>> total = noise.combine(key, 0, np.array([2.0, -1.0]), np.empty(3))
    >>> np.allclose(total, 2 * first - second)
    True
    """

    def fill(self, key: np.uint64, generation: int, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write direction `k` of a generation into `out` and return it."""
        drawn = out if out.dtype == _drawn_dtype(out) else np.empty(out.shape, _drawn_dtype(out))
        fill_normal(fold(key, generation, k), 0, drawn)
        if drawn is not out:
            out[...] = drawn
        return out

    def combine(
        self, key: np.uint64, generation: int, weights: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Write the sum of the directions 0, 1, ... times `weights` into `out` and return it."""
        directions = fold(key, generation, np.arange(weights.size))
        for start in range(0, out.size, BLOCK):
            block = out[start : start + BLOCK]
            total, drawn = np.zeros((2, block.size), _drawn_dtype(out))
            for direction, weight in zip(directions, weights.tolist(), strict=True):
                fill_normal(direction, start, drawn)
                drawn *= weight
                total += drawn
            block[...] = total
        return out


def _drawn_dtype(out: NDArray[Any]) -> np.dtype[Any]:
    """Return the dtype in which noise for `out` is drawn and summed: float16 is rounded from float32."""
    return np.result_type(out.dtype, np.float32)
