"""NumPy functions that have no derivative rule of their own, written in those that have.

Where such a function is differentiated, its result is NumPy's; its derivative is that of the composition here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnflat.views import call


def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Any:
    kept = np.where(where, x, 0)
    count = np.sum(np.broadcast_to(where, x.shape), axis=axis, keepdims=keepdims)
    return np.sum(kept, axis=axis, keepdims=keepdims) / count


def var(x: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: bool = False) -> Any:
    centred = x - np.mean(x, axis=axis, keepdims=True)
    square = np.square(centred.real) + np.square(centred.imag) if np.iscomplexobj(x) else np.square(centred)
    total = np.sum(square, axis=axis, keepdims=keepdims)
    return total / (x.size // max(np.size(total), 1) - ddof)


def masked_sum(x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, where: Any = True,
               initial: Any = 0) -> Any:
    return np.sum(np.where(where, x, 0), axis=axis, keepdims=keepdims) + initial


def masked_prod(x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, where: Any = True,
                initial: Any = 1) -> Any:
    return np.prod(np.where(where, x, 1), axis=axis, keepdims=keepdims) * initial


def masked_extremum(reduce: Callable[..., Any], pick: Callable[..., Any]) -> Callable[..., Any]:
    def extremum(x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False, where: Any = True,
                 initial: Any = 0) -> Any:
        return pick(reduce(np.where(where, x, initial), axis=axis, keepdims=keepdims), initial)

    return extremum


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Vector norms, and the Frobenius norm; 0 has the derivative 0."""
    axes = tuple(range(x.ndim)) if axis is None else axis
    if ord in (None, 2, "fro") and not (ord == 2 and x.ndim == 2 and axis is None):
        total = np.sum(np.square(x.real) + np.square(x.imag) if np.iscomplexobj(x) else np.square(x), axis=axes,
                       keepdims=keepdims)
        zero = total == 0
        return np.where(zero, 0, np.sqrt(np.where(zero, 1, total)))
    if (axis is None and x.ndim != 1) or isinstance(axis, tuple):
        raise ValueError(f"np.linalg.norm with ord={ord} of matrices has no derivative rule")
    size = np.abs(x)
    if ord == np.inf:
        return np.max(size, axis=axes, keepdims=keepdims)
    if ord == -np.inf:
        return np.min(size, axis=axes, keepdims=keepdims)
    if ord == 1:
        return np.sum(size, axis=axes, keepdims=keepdims)
    return np.sum(size ** ord, axis=axes, keepdims=keepdims) ** (1 / ord)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([each] if isinstance(each, int) else list(each) for each in axes)
    left, right = [axis % a.ndim for axis in left], [axis % b.ndim for axis in right]
    mine = [axis for axis in range(a.ndim) if axis not in left]
    its = [axis for axis in range(b.ndim) if axis not in right]
    shape = [a.shape[axis] for axis in mine] + [b.shape[axis] for axis in its]
    inner = int(np.prod([a.shape[axis] for axis in left]))
    rows = a.transpose(mine + left).reshape(-1, inner)
    return np.matmul(rows, b.transpose(right + its).reshape(inner, -1)).reshape(shape)


def dot(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return tensordot(a, b, (a.ndim - 1, max(b.ndim - 2, 0)))


def inner(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return tensordot(a, b, (a.ndim - 1, b.ndim - 1))


def kron(a: Any, b: Any) -> Any:
    ndim = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * (ndim - x.ndim) + x.shape) for x in (a, b))
    left = a.reshape([n for pair in zip(a.shape, (1,) * ndim, strict=True) for n in pair])
    right = b.reshape([n for pair in zip((1,) * ndim, b.shape, strict=True) for n in pair])
    return (left * right).reshape([m * n for m, n in zip(a.shape, b.shape, strict=True)])


def cross(a: Any, b: Any, axis: int = -1) -> Any:
    a, b = np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0)
    if len(a) != 3 or len(b) != 3:
        raise ValueError("np.cross of vectors that have not 3 elements has no derivative rule")
    parts = [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(parts), 0, axis)


def diff(x: Any, n: int = 1, axis: int = -1) -> Any:
    head = (*[slice(None)] * (axis % x.ndim),)
    for _ in range(n):
        x = x[(*head, slice(1, None))] - x[(*head, slice(None, -1))]
    return x


def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return np.sum(np.diagonal(x, offset, axis1, axis2), axis=-1)


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    return np.where(np.isfinite(x), x, 0)


def sinc(x: Any) -> Any:
    angle = np.pi * np.where(x == 0, 1, x)
    return np.where(x == 0, 1 - np.square(np.pi * x) / 6, np.sin(angle) / angle)


def angle(x: Any) -> Any:
    return np.arctan2(x.imag, x.real)


def round_(x: Any, decimals: int = 0) -> Any:
    return np.zeros_like(x)


def matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        return matrix_power(np.linalg.inv(a), -n)
    result = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    for _ in range(n):
        result = np.matmul(result, a)
    return result


def multi_dot(arrays: Any) -> Any:
    result = arrays[0]
    for each in arrays[1:]:
        result = np.matmul(result, each)
    return result


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """Linear between points; constant beyond the ends."""
    right = np.clip(call(np.searchsorted, xp, x, side="right"), 1, np.size(xp) - 1)
    x0, x1 = call(np.take, xp, right - 1), call(np.take, xp, right)
    y0, y1 = call(np.take, fp, right - 1), call(np.take, fp, right)
    share = np.clip((x - x0) / (x1 - x0), 0, 1)
    return y0 + share * (y1 - y0)


COMPOSITIONS: dict[str, Callable[..., Any]] = {
    "mean": mean, "var": var, "add.reduce": masked_sum, "multiply.reduce": masked_prod,
    "maximum.reduce": masked_extremum(np.max, np.maximum), "minimum.reduce": masked_extremum(np.min, np.minimum),
    "norm": norm, "vector_norm": norm, "tensordot": tensordot, "dot": dot, "inner": inner, "kron": kron, "cross": cross,
    "diff": diff, "ptp": ptp, "trace": trace, "nan_to_num": nan_to_num, "sinc": sinc, "angle": angle, "round": round_,
    "around": round_, "matrix_power": matrix_power, "multi_dot": multi_dot, "interp": interp,
}
