"""Means, moments and quantiles, with or without NaN, written in functions that have a derivative rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def without_nan(x: Any, filler: Any = 0) -> Any:
    return np.where(np.isnan(x), filler, x)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    return tuple(each % ndim for each in axes)


# --- moments -----------------------------------------------------------------------------------------------

def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, where: Any = True) -> Any:
    kept = np.where(where, x, 0)
    count = np.sum(np.broadcast_to(where, x.shape), axis=axis, keepdims=keepdims)
    return np.sum(kept, axis=axis, keepdims=keepdims) / count


def var(x: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: bool = False, where: Any = True,
        correction: Any = None) -> Any:
    ddof = ddof if correction is None else correction
    there = np.broadcast_to(where, x.shape)
    count = np.sum(there, axis=axis, keepdims=True)
    centred = np.where(there, x - np.sum(np.where(there, x, 0), axis=axis, keepdims=True) / count, 0)
    total = np.sum(squared(centred), axis=axis, keepdims=keepdims)
    return total / np.maximum(np.reshape(count, total.shape) - ddof, 0)


def squared(x: Any) -> Any:
    return np.square(x.real) + np.square(x.imag) if np.iscomplexobj(x) else np.square(x)


def std(x: Any, *args: Any, **kwargs: Any) -> Any:
    """A constant has the derivative 0."""
    variance = var(x, *args, **kwargs)
    return np.where(variance == 0, 0, np.sqrt(np.where(variance == 0, 1, variance)))


def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    if weights is None:
        weights = np.ones(x.shape)
    elif np.shape(weights) != x.shape:
        axes = axes_of(axis, x.ndim)
        order = np.argsort(np.argsort(axes)).tolist() if len(axes) > 1 else [0]
        weights = np.transpose(weights, order).reshape([n if k in axes else 1 for k, n in enumerate(x.shape)])
    total = np.sum(np.broadcast_to(weights, x.shape), axis=axis, keepdims=keepdims)
    found = np.sum(x * weights, axis=axis, keepdims=keepdims) / total
    return (found, total) if returned else found


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:
    if fweights is not None or aweights is not None:
        raise TypeError("np.cov with weights has no derivative rule")
    rows = np.concatenate([variables_in_rows(each, rowvar) for each in (m, y) if each is not None])
    count = rows.shape[1] - ((0 if bias else 1) if ddof is None else ddof)
    centred = rows - np.mean(rows, axis=1, keepdims=True)
    return np.squeeze(np.matmul(centred, np.conjugate(centred.T)) / count)


def variables_in_rows(x: Any, rowvar: bool) -> Any:
    rows = np.atleast_2d(x)
    return rows if rowvar or x.ndim == 1 else rows.T


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, **kwargs: Any) -> Any:
    c = cov(x, y, rowvar)
    if c.ndim == 0:
        return c / c
    scale = np.sqrt(np.real(np.diagonal(c)))
    return c / scale[:, None] / scale[None, :]


# --- quantiles ---------------------------------------------------------------------------------------------

def quantile(x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False, weights: Any = None,
             **kwargs: Any) -> Any:
    """Linear between the two elements that are next in order. What is NaN comes last, and is not counted."""
    if method != "linear" or weights is not None:
        raise TypeError("quantiles have a derivative rule with method='linear' and without weights")
    axes = axes_of(axis, x.ndim)
    kept = [each for each in range(x.ndim) if each not in axes]
    rows = np.sort(x.transpose([*kept, *axes]).reshape(*[x.shape[each] for each in kept], -1), axis=-1)
    last = np.sum(~np.isnan(rows), axis=-1, keepdims=True) - 1
    place = np.multiply(last, np.ravel(q))
    low = np.floor(place)
    share = place - low
    lower = np.take_along_axis(rows, low.astype(np.intp), axis=-1)
    upper = np.take_along_axis(rows, np.ceil(place).astype(np.intp), axis=-1)
    found = np.moveaxis(lower + share.astype(x.dtype) * (upper - lower), -1, 0)
    shape = [1 if each in axes else n for each, n in enumerate(x.shape) if keepdims or each not in axes]
    return found.reshape([*np.shape(q), *shape])


def percentile(x: Any, q: Any, axis: Any = None, **kwargs: Any) -> Any:
    return quantile(x, np.divide(q, 100), axis, **kwargs)


def median(x: Any, axis: Any = None, **kwargs: Any) -> Any:
    return quantile(x, 0.5, axis, **kwargs)


# --- without NaN -------------------------------------------------------------------------------------------

def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    return np.where(np.isfinite(x), x, 0)


def filled(function: Callable[..., Any], filler: float) -> Callable[..., Any]:
    """Return a function of an array in which NaN is what changes nothing."""
    return lambda x, *args, **kwargs: function(without_nan(x, filler), *args, **kwargs)


def known(moment: Callable[..., Any]) -> Callable[..., Any]:
    """Return a moment of the elements that are no NaN."""

    def function(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, **kwargs: Any) -> Any:
        return moment(without_nan(x), axis=axis, where=~np.isnan(x), **kwargs)

    return function


STATISTICS: dict[Any, Callable[..., Any]] = {
    "mean": mean, "var": var, np.std: std, np.average: average, np.cov: cov, np.corrcoef: corrcoef,
    np.quantile: quantile, np.percentile: percentile, np.median: median, np.nan_to_num: nan_to_num,
    np.nansum: filled(np.sum, 0),
    np.nanprod: filled(np.prod, 1), np.nancumsum: filled(np.cumsum, 0), np.nancumprod: filled(np.cumprod, 1),
    np.nanmax: filled(np.max, -math.inf), np.nanmin: filled(np.min, math.inf), np.nanmean: known(mean),
    np.nanvar: known(var), np.nanstd: known(std), np.nanmedian: median, np.nanquantile: quantile,
    np.nanpercentile: percentile,
}
