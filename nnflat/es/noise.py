"""Noise by key: element k of a direction depends on (key, generation, direction, k) and on nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat._noise import add_normals, add_signs, fill_normal_rows, fill_sign_rows
from nnflat._random import fold_range
from nnflat.random import fold

__all__ = ["Gaussian", "Noise", "Rademacher", "drawn_dtype"]

Pair = tuple[NDArray[Any], NDArray[Any]]


class Noise:
    """Base of the kinds of noise, each of mean 0 and standard deviation 1. A new kind adds `fill`."""

    varies_in_size = True  # whether squares of the noise say anything (those of signs do not)
    sums_by_row = False  # whether `combine` adds row after row, as `add_held_rows` does

    def fill(self, key: np.uint64, generation: int, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write direction `k` of a generation into `out`, a vector, and return it."""
        raise NotImplementedError(f"{type(self).__name__} does not define fill(key, generation, k, out)")

    def rows(self, key: np.uint64, generation: int, first: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write directions `first`, `first` + 1, ... into the rows of `out` and return it."""
        for k, row in enumerate(out, start=first):
            self.fill(key, generation, k, row)
        return out

    def read(self, key: np.uint64, generation: int, first: int, out: NDArray[Any]) -> NDArray[Any]:
        """Return directions `first`, `first` + 1, ... as rows: in `out`, or where they are in memory already."""
        return self.rows(key, generation, first, out)

    def combine(
        self, key: np.uint64, generation: int, weights: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Write the sum of the directions 0, 1, ... times `weights` into `out` and return it."""
        total = np.zeros(out.shape, drawn_dtype(out))
        drawn = np.empty_like(total)
        for k in np.flatnonzero(weights).tolist():
            total += np.multiply(self.fill(key, generation, k, drawn), weights[k], out=drawn)
        out[...] = total
        return out

    def moments(
        self, key: np.uint64, generation: int, weights: NDArray[Any], square_weights: NDArray[Any], out: Pair
    ) -> Pair:
        """Write the sum of the directions times `weights`, and that of their squares times the others."""
        total, squares = np.zeros((2, *out[0].shape), drawn_dtype(out[0]))
        drawn = np.empty_like(total)
        for k in range(len(weights)):
            total += self.fill(key, generation, k, drawn) * weights[k]
            squares += np.square(drawn, out=drawn) * square_weights[k]
        out[0][...], out[1][...] = total, squares
        return out


class _Drawn(Noise):
    """Noise whose elements are independent: drawn, and summed, in compiled loops."""

    sums_by_row = True
    _fill_rows: Callable[[NDArray[Any], NDArray[Any]], None]
    _add: Callable[..., None]

    def fill(self, key: np.uint64, generation: int, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write direction `k` of a generation into `out` and return it."""
        self.rows(key, generation, k, out[None])
        return out

    def rows(self, key: np.uint64, generation: int, first: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write directions `first`, `first` + 1, ... into the rows of `out` and return it."""
        keys = fold_range(fold(key, generation), first, len(out))
        drawn = out if out.dtype == drawn_dtype(out) else np.empty(out.shape, drawn_dtype(out))
        type(self)._fill_rows(keys, drawn)
        if drawn is not out:
            out[...] = drawn
        return out

    def combine(
        self, key: np.uint64, generation: int, weights: NDArray[Any], out: NDArray[Any]
    ) -> NDArray[Any]:
        """Write the sum of the directions 0, 1, ... times `weights` into `out` and return it."""
        total = np.zeros(out.shape, drawn_dtype(out))
        type(self)._add(fold_range(fold(key, generation), 0, len(weights)), weights, total)
        out[...] = total
        return out

    def moments(
        self, key: np.uint64, generation: int, weights: NDArray[Any], square_weights: NDArray[Any], out: Pair
    ) -> Pair:
        """Write the sum of the directions times `weights`, and that of their squares times the others."""
        total, squares = np.zeros((2, *out[0].shape), drawn_dtype(out[0]))
        keys = fold_range(fold(key, generation), 0, len(weights))
        type(self)._add(keys, weights, total, square_weights, squares)
        out[0][...], out[1][...] = total, squares
        return out


@dataclass(frozen=True)
class Gaussian(_Drawn):
    """Independent standard normal noise in every element.

    Examples
    --------
    >>> noise, key = Gaussian(), np.uint64(1)
    >>> first, second = noise.fill(key, 0, 0, np.empty(3)), noise.fill(key, 0, 1, np.empty(3))
    >>> total = noise.combine(key, 0, np.array([2.0, -1.0]), np.empty(3))
    >>> np.allclose(total, 2 * first - second)
    True
    """

    _fill_rows = staticmethod(fill_normal_rows)
    _add = staticmethod(add_normals)


@dataclass(frozen=True)
class Rademacher(_Drawn):
    """Independent signs, -1 or 1 with equal probability, in every element: one bit each.

    References
    ----------
    Spall, "Multivariate stochastic approximation using a simultaneous perturbation gradient approximation",
    1992.

    Examples
    --------
    >>> Rademacher().fill(np.uint64(1), 0, 0, np.empty(4))
    array([ 1., -1., -1.,  1.])
    """

    varies_in_size = False
    _fill_rows = staticmethod(fill_sign_rows)
    _add = staticmethod(add_signs)


def drawn_dtype(out: NDArray[Any]) -> np.dtype[Any]:
    """Return the dtype in which noise for `out` is drawn and summed: float16 is rounded from float32."""
    return np.result_type(out.dtype, np.float32)
