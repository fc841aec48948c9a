"""Initialisers: arrays that parameters start from.

All have one signature, `(shape, *, rng, gain, dtype)`, so that one can stand in for another. Draws are made
in float64 and rounded once: the same generator gives the same numbers in every dtype, up to that rounding.

The fans of a weight are the sizes of its last two axes times that of the axes before them: (n_in, n_out)
for a dense layer, (*spatial, n_in, n_out) for a convolution.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Shape = Sequence[int]

_TRUNCATED_STD = 0.87962566103423978  # of a standard normal cut off at -2 and 2


def fans(shape: Shape) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a weight of this shape.

    >>> fans((784, 10)), fans((3, 3, 16, 32))
    ((784, 10), (144, 288))
    """
    if len(shape) < 2:
        raise ValueError(f"a weight needs two axes or more, (..., n_in, n_out), got shape {tuple(shape)}")
    *spatial, n_in, n_out = shape
    field = math.prod(spatial)
    return field * n_in, field * n_out


def _inexact(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the dtype, which needs to be one that parameters can have."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "fc":
        raise TypeError(f"a parameter needs a float or complex dtype, got {dtype}")
    return dtype


def _drawn(draw: NDArray[np.float64], dtype: DTypeLike) -> NDArray[Any]:
    """Return a real draw, rounded to a real dtype, in C order."""
    dtype = np.dtype(dtype)
    if dtype.kind != "f":
        raise TypeError(f"a random initialiser needs a float dtype, got {dtype}")
    return draw.astype(dtype, order="C")


def _uniform(
    shape: Shape, variance: float, rng: np.random.Generator | None, dtype: DTypeLike
) -> NDArray[Any]:
    limit = math.sqrt(3.0 * variance)
    return _drawn(np.random.default_rng(rng).uniform(-limit, limit, shape), dtype)


def _normal(shape: Shape, variance: float, rng: np.random.Generator | None, dtype: DTypeLike) -> NDArray[Any]:
    return _drawn(np.random.default_rng(rng).normal(0.0, math.sqrt(variance), shape), dtype)


def _glorot(shape: Shape, gain: float) -> float:
    return gain**2 * 2.0 / max(sum(fans(shape)), 1)


def _he(shape: Shape, gain: float) -> float:
    return gain**2 * 2.0 / max(fans(shape)[0], 1)


def _lecun(shape: Shape, gain: float) -> float:
    return gain**2 / max(fans(shape)[0], 1)


def glorot_uniform(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw uniformly with variance `gain**2 * 2 / (fan_in + fan_out)` (Glorot & Bengio 2010).

    >>> glorot_uniform((4, 2), rng=np.random.default_rng(0)).shape
    (4, 2)
    """
    return _uniform(shape, _glorot(shape, gain), rng, dtype)


def glorot_normal(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw from a normal with variance `gain**2 * 2 / (fan_in + fan_out)` (Glorot & Bengio 2010)."""
    return _normal(shape, _glorot(shape, gain), rng, dtype)


def he_uniform(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw uniformly with variance `gain**2 * 2 / fan_in`, for relu (He et al. 2015)."""
    return _uniform(shape, _he(shape, gain), rng, dtype)


def he_normal(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw from a normal with variance `gain**2 * 2 / fan_in`, for relu (He et al. 2015)."""
    return _normal(shape, _he(shape, gain), rng, dtype)


def lecun_uniform(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw uniformly with variance `gain**2 / fan_in` (LeCun et al. 1998)."""
    return _uniform(shape, _lecun(shape, gain), rng, dtype)


def lecun_normal(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw from a normal with variance `gain**2 / fan_in`, for selu (LeCun et al. 1998)."""
    return _normal(shape, _lecun(shape, gain), rng, dtype)


def orthogonal(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw a matrix with orthonormal rows or columns, the fewer of them, times `gain` (Saxe et al. 2014).

    The weight is taken as a matrix (fan_in, n_out). Signs follow the diagonal of R: without that the draw
    would not be uniform (Mezzadri 2007).

    >>> weight = orthogonal((4, 2), rng=np.random.default_rng(0), dtype=np.float64)
    >>> np.allclose(weight.T @ weight, np.eye(2))
    True
    """
    rows, columns = fans(shape)[0], shape[-1]
    draw = np.random.default_rng(rng).standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(draw)
    q *= np.where(np.diagonal(r) < 0, -gain, gain)
    matrix = q if rows >= columns else q.T
    return _drawn(matrix.reshape(shape), dtype)


def truncated_normal(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Draw from a normal cut off at two sigma, widened so that its standard deviation is `gain`; any shape.

    >>> truncated_normal((3,), rng=np.random.default_rng(0), gain=0.02).dtype
    dtype('float32')
    """
    rng = np.random.default_rng(rng)
    draw = rng.standard_normal(shape)
    while (outside := np.abs(draw) > 2.0).any():
        draw[outside] = rng.standard_normal(np.count_nonzero(outside))
    return _drawn(draw * (gain / _TRUNCATED_STD), dtype)


def zeros(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Return zeros; `rng` and `gain` change nothing."""
    return np.zeros(shape, _inexact(dtype))


def constant(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Return an array that is `gain` everywhere; `rng` changes nothing.

    >>> constant((2,), gain=0.5)
    array([0.5, 0.5], dtype=float32)
    """
    return np.full(shape, gain, _inexact(dtype))


def identity(
    shape: Shape,
    *,
    rng: np.random.Generator | None = None,
    gain: float = 1.0,
    dtype: DTypeLike = np.float32,
) -> NDArray[Any]:
    """Return the weight that passes its input on, times `gain`; `rng` changes nothing.

    In a kernel (*spatial, n_in, n_out) the identity stands in the middle of the spatial axes, among zeros.

    >>> identity((2, 3))
    array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    fans(shape)
    *spatial, n_in, n_out = shape
    weight = np.zeros(shape, _inexact(dtype))
    middle = tuple(size // 2 for size in spatial)
    weight[middle] = gain * np.eye(n_in, n_out)
    return weight
