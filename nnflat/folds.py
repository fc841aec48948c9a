"""The methods of ufuncs (reduce, accumulate, reduceat, outer) written in calls of the ufunc, which has a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnflat.statistics import axes_of

# --- reductions with a mask --------------------------------------------------------------------------------

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


# --- methods of ufuncs -------------------------------------------------------------------------------------

def fold(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False) -> Any:
    """Reduce by one call of the ufunc an element."""
    axes = axes_of(axis, x.ndim)
    kept = [each for each in range(x.ndim) if each not in axes]
    rows = x.transpose([*axes, *kept]).reshape(-1, *[x.shape[each] for each in kept])
    y = rows[0]
    for i in range(1, len(rows)):
        y = ufunc(y, rows[i])
    return np.expand_dims(y, axes) if keepdims else y


def running(ufunc: np.ufunc, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    rows = np.moveaxis(x, axis, 0)
    found = [rows[0]]
    for i in range(1, len(rows)):
        found.append(ufunc(found[-1], rows[i]))
    return np.moveaxis(np.stack(found), 0, axis)


def pieces(ufunc: np.ufunc, x: Any, places: Any, axis: int = 0, dtype: Any = None) -> Any:
    rows = np.moveaxis(x, axis, 0)
    starts = np.asarray(places).tolist()
    stops = [stop if stop > start else start + 1 for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True)]
    found = [ufunc.reduce(rows[start:stop], axis=0) for start, stop in zip(starts, stops, strict=True)]
    return np.moveaxis(np.stack(found), 0, axis)


def table(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    return ufunc(np.reshape(a, np.shape(a) + (1,) * np.ndim(b)), b)


def cast_call(ufunc: np.ufunc, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """Call a ufunc that is told its dtype."""
    if dtype is None or set(kwargs) - {"casting", "order", "subok"}:
        raise TypeError(f"np.{ufunc.__name__} with {', '.join(kwargs)} has no derivative rule")
    return ufunc(*[x.astype(dtype) if isinstance(x, np.ndarray | np.generic) else x for x in args])


METHODS: dict[str, Callable[..., Any]] = {
    "__call__": cast_call, "reduce": fold, "accumulate": running, "reduceat": pieces, "outer": table,
}
FOLDS: dict[Any, Callable[..., Any]] = {
    "add.reduce": masked_sum, "multiply.reduce": masked_prod,
    "maximum.reduce": masked_extremum(np.max, np.maximum), "minimum.reduce": masked_extremum(np.min, np.minimum),
}
