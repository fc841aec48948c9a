"""The derivative rules of reductions and accumulations: `(g, y, x, axes) -> cotangent of x`.

Elements that are the extreme together share equally; products are exact with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def restore(g: Any, axes: Sequence[int], x: Any) -> Any:
    """Return g with axes of size 1 where a reduction of x took them."""
    if g.ndim == 0:
        return g[(None,) * x.ndim]
    return g.reshape([1 if axis in axes else n for axis, n in enumerate(x.shape)])


def sum_rule(g: Any, y: Any, x: Any, axes: Sequence[int]) -> Any:
    return np.broadcast_to(restore(g, axes, x), x.shape)


def extremum_rule(g: Any, y: Any, x: Any, axes: Sequence[int]) -> Any:
    """The extreme elements share equally."""
    hits = np.where(x == restore(y, axes, x), np.ones((), x.dtype), np.zeros((), x.dtype))
    return hits * (restore(g, axes, x) / hits.sum(axis=tuple(axes), keepdims=True))


def logaddexp_rule(exp: np.ufunc) -> Callable[..., Any]:
    return lambda g, y, x, axes: restore(g, axes, x) * exp(x - restore(y, axes, x))


def product_rule(g: Any, y: Any, x: Any, axes: Sequence[int]) -> Any:
    """Each element has the product of the others: of those before it and those after it, exact with zeros."""
    if not axes:
        return g
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*kept, *axes]
    moved = x.transpose(order)
    rows = moved.reshape(*[x.shape[axis] for axis in kept], -1)
    one = np.ones((*rows.shape[:-1], 1), x.dtype)
    before = np.concatenate([one, np.cumprod(rows[..., :-1], axis=-1)], axis=-1)
    after = np.concatenate([one, np.cumprod(rows[..., :0:-1], axis=-1)], axis=-1)[..., ::-1]
    others = (before * after).reshape(moved.shape).transpose(np.argsort(order).tolist())
    return restore(g, axes, x) * others


REDUCTIONS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: sum_rule,
    np.multiply: product_rule,
    np.maximum: extremum_rule,
    np.minimum: extremum_rule,
    np.fmax: extremum_rule,
    np.fmin: extremum_rule,
    np.logaddexp: logaddexp_rule(np.exp),
    np.logaddexp2: logaddexp_rule(np.exp2),
}


def reversed_cumsum(g: Any, axis: int) -> Any:
    back = (*[slice(None)] * axis, slice(None, None, -1))
    return np.cumsum(g[back], axis=axis)[back]


def cumsum_rule(g: Any, y: Any, x: Any, axis: int) -> Any:
    return reversed_cumsum(g, axis)


def cumprod_rule(g: Any, y: Any, x: Any, axis: int) -> Any:
    """Exact with zeros: dy[i]/dx[j] is the product before j times that of j + 1 .. i."""
    x, g = np.moveaxis(x, axis, -1), np.moveaxis(g, axis, -1)
    n = x.shape[-1]
    later = np.arange(n) > np.arange(n)[:, None]
    after = np.where(np.arange(n) >= np.arange(n)[:, None], np.cumprod(np.where(later, x[..., None, :], 1), axis=-1), 0)
    before = np.concatenate([np.ones((*x.shape[:-1], 1), x.dtype), np.cumprod(x[..., :-1], axis=-1)], axis=-1)
    return np.moveaxis(before * (after * g[..., None, :]).sum(axis=-1), -1, axis)


def cummax_rule(g: Any, y: Any, x: Any, axis: int) -> Any:
    """The extreme elements so far share equally."""
    x, y, g = (np.moveaxis(each, axis, -1) for each in (x, y, g))
    so_far = np.tri(x.shape[-1], dtype=bool)
    hits = np.where(so_far & (x[..., None, :] == y[..., :, None]), np.ones((), x.dtype), np.zeros((), x.dtype))
    return np.moveaxis(np.sum(g[..., None] * (hits / hits.sum(axis=-1, keepdims=True)), axis=-2), -1, axis)


ACCUMULATIONS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: cumsum_rule, np.multiply: cumprod_rule,
    **dict.fromkeys((np.maximum, np.minimum, np.fmax, np.fmin), cummax_rule),
}
