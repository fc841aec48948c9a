"""NumPy functions that have no derivative rule of their own, written in those that have.

Where such a function is differentiated, its result is NumPy's; its derivative is that of the composition here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnflat.assembly import ASSEMBLY
from nnflat.folds import FOLDS
from nnflat.fourier import FOURIER
from nnflat.polynomials import POLYNOMIALS
from nnflat.statistics import STATISTICS, axes_of, squared


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norms of vectors where one axis, or every one, is taken together; of matrices where two are."""
    if axis is None and (ord is None or x.ndim == 1):
        return vector_norm(x, None, keepdims, 2 if ord is None else ord)
    axes = axes_of(axis, x.ndim)
    if len(axes) == 1:
        return vector_norm(x, axes, keepdims, 2 if ord is None else ord)
    found = matrix_norm(np.moveaxis(x, axes, (-2, -1)), ord="fro" if ord is None else ord)
    return np.expand_dims(found, axes) if keepdims else found


def vector_norm(x: Any, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """A length of 0 has the derivative 0."""
    axes = axes_of(axis, x.ndim)
    if ord == 2:
        total = np.sum(squared(x), axis=axes, keepdims=keepdims)
        return np.where(total == 0, 0, np.sqrt(np.where(total == 0, 1, total)))
    if ord == 0:
        return np.sum(x != 0, axis=axes, keepdims=keepdims)
    size = np.abs(x)
    if np.isinf(ord):
        return (np.max if ord > 0 else np.min)(size, axis=axes, keepdims=keepdims)
    return np.sum(size if ord == 1 else size ** ord, axis=axes, keepdims=keepdims) ** (1 / ord)


def matrix_norm(x: Any, keepdims: bool = False, ord: Any = "fro") -> Any:
    if ord in ("fro", "f"):
        return vector_norm(x, (-2, -1), keepdims)
    if ord in ("nuc", 2, -2):
        values = np.linalg.svdvals(x)
        found = np.sum(values, axis=-1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
    else:
        sums = np.sum(np.abs(x), axis=-2 if abs(ord) == 1 else -1)
        found = (np.max if ord > 0 else np.min)(sums, axis=-1)
    return found[..., None, None] if keepdims else found


def cond(x: Any, p: Any = None) -> Any:
    if p in (None, 2, -2):
        values = np.linalg.svdvals(x)
        ratio = values[..., 0] / values[..., -1]
        return 1 / ratio if p == -2 else ratio
    return matrix_norm(x, ord=p) * matrix_norm(np.linalg.inv(x), ord=p)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = ([each] if np.ndim(each) == 0 else list(each) for each in axes)
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


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Any:
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis,) * 3
    a, b = np.moveaxis(a, axisa, 0), np.moveaxis(b, axisb, 0)
    if len(a) != 3 or len(b) != 3:
        raise TypeError("np.cross of vectors that have not 3 elements has no derivative rule")
    parts = [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return np.moveaxis(np.stack(parts), 0, axisc)


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    ends = [row_of(prepend, x, axis), x, row_of(append, x, axis)]
    x = np.concatenate([each for each in ends if each is not None], axis=axis)
    head = (*[slice(None)] * (axis % x.ndim),)
    for _ in range(n):
        x = x[(*head, slice(1, None))] - x[(*head, slice(None, -1))]
    return x


def row_of(values: Any, x: Any, axis: int) -> Any:
    if values is None or np.ndim(values):
        return values
    return np.broadcast_to(values, [1 if each == axis % x.ndim else n for each, n in enumerate(x.shape)])


def ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    parts = [to_begin, diff(np.ravel(x)), to_end]
    return np.concatenate([np.atleast_1d(each) for each in parts if each is not None])


def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return np.sum(np.diagonal(x, offset, axis1, axis2), axis=-1)


def linalg_trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
    return trace(x, offset, -2, -1)


def sinc(x: Any) -> Any:
    angle = np.pi * np.where(x == 0, 1, x)
    return np.where(x == 0, 1 - np.square(np.pi * x) / 6, np.sin(angle) / angle)


def angle(x: Any, deg: bool = False) -> Any:
    found = np.arctan2(x.imag, x.real)
    return np.degrees(found) if deg else found


def round_(x: Any, decimals: int = 0, out: Any = None) -> Any:
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


def tensorinv(a: Any, ind: int = 2) -> Any:
    rows = int(np.prod(a.shape[:ind]))
    return np.linalg.inv(a.reshape(rows, -1)).reshape(*a.shape[ind:], *a.shape[:ind])


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    if axes is not None:
        a = np.moveaxis(a, axes, range(a.ndim - len(axes), a.ndim))
    shape = a.shape[b.ndim:]
    return np.linalg.solve(a.reshape(b.size, -1), np.ravel(b)).reshape(shape)


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Of a matrix of full rank."""
    x = np.matmul(np.linalg.pinv(a), b)
    return x, np.sum(squared(b - np.matmul(a, x)), axis=0), None, np.linalg.svdvals(a)


def vecdot(a: Any, b: Any, *, axis: int = -1) -> Any:
    return np.vecdot(np.moveaxis(a, axis, -1), np.moveaxis(b, axis, -1))


def outer(a: Any, b: Any) -> Any:
    return np.ravel(a)[:, None] * np.ravel(b)


def vdot(a: Any, b: Any) -> Any:
    return np.sum(np.conjugate(np.ravel(a)) * np.ravel(b))


COMPOSITIONS: dict[Any, Callable[..., Any]] = {
    "norm": norm, np.linalg.vector_norm: vector_norm, np.linalg.matrix_norm: matrix_norm, np.linalg.cond: cond,
    "tensordot": tensordot, "dot": dot, "inner": inner, "kron": kron, "cross": cross, "vdot": vdot,
    "diff": diff, "ediff1d": ediff1d, "ptp": ptp, np.linalg.trace: linalg_trace, "trace": trace, "sinc": sinc,
    "angle": angle, "round": round_, "around": round_, "fix": round_, "matrix_power": matrix_power,
    "multi_dot": multi_dot, "tensorinv": tensorinv, "tensorsolve": tensorsolve, "lstsq": lstsq, np.linalg.outer: outer,
    np.linalg.vecdot: vecdot, "vecdot.__call__": vecdot, "unwrap": lambda x, *args, **kwargs: x + 0,
    **FOLDS, **ASSEMBLY, **STATISTICS, **POLYNOMIALS, **FOURIER,
}
