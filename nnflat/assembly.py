"""Choices, and arrays put together of others, written in `where` and `concatenate`, which have derivative rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# --- choices -----------------------------------------------------------------------------------------------

def select(conditions: Any, choices: Any, default: Any = 0) -> Any:
    y = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        y = np.where(condition, choice, y)
    return y


def choose(index: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    n = len(choices)
    index = {"raise": index, "clip": np.clip(index, 0, n - 1), "wrap": np.remainder(index, n)}[mode]
    return select([np.equal(index, i) for i in range(n)], list(choices))


def piecewise(x: Any, conditions: Any, functions: Any, *args: Any, **kwargs: Any) -> Any:
    """Each function is evaluated everywhere: it needs to be one of elements."""
    conditions = list(conditions) if np.ndim(conditions[0]) or x.ndim == 0 else [conditions]
    values = [f(x, *args, **kwargs) if callable(f) else f for f in functions]
    y = np.where(np.ones(x.shape, bool), values[len(conditions)] if len(values) > len(conditions) else 0, x)
    for condition, value in zip(conditions, values, strict=False):
        y = np.where(condition, value, y)
    return y


# --- arrays put together -----------------------------------------------------------------------------------

def append(x: Any, values: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.concatenate([np.ravel(x), np.ravel(values)])
    return np.concatenate([x, values], axis=axis)


def insert(x: Any, places: Any, values: Any, axis: Any = None) -> Any:
    """The elements of both, in the order that numbers have when they are inserted so."""
    values = np.broadcast_to(values, (1,)) if np.ndim(values) == 0 else values
    numbers = np.arange(x.size + values.size)
    order = np.insert(numbers[:x.size].reshape(x.shape), places, numbers[x.size:].reshape(values.shape), axis)
    return np.take(np.concatenate([np.ravel(x), np.ravel(values)]), order)


def column_stack(arrays: Any) -> Any:
    return np.concatenate([np.reshape(x, (-1, 1)) if np.ndim(x) == 1 else np.atleast_2d(x) for x in arrays], axis=1)


def block(arrays: Any) -> Any:
    depth = depth_of(arrays)
    return joined(arrays, 0, depth, max(depth, most_axes(arrays)))


def depth_of(arrays: Any) -> int:
    return 1 + max(map(depth_of, arrays)) if isinstance(arrays, list) else 0


def most_axes(arrays: Any) -> int:
    return max(map(most_axes, arrays)) if isinstance(arrays, list) else np.ndim(arrays)


def joined(arrays: Any, level: int, depth: int, ndim: int) -> Any:
    if isinstance(arrays, list):
        return np.concatenate([joined(x, level + 1, depth, ndim) for x in arrays], axis=ndim - depth + level)
    return np.reshape(arrays, (1,) * (ndim - np.ndim(arrays)) + np.shape(arrays))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    n = len(xi)
    grids = [np.reshape(x, [-1 if k == i else 1 for k in range(n)]) for i, x in enumerate(xi)]
    if indexing == "xy" and n > 1:
        grids = [np.swapaxes(grid, 0, 1) for grid in grids]
    shape = np.broadcast_shapes(*[grid.shape for grid in grids])
    return grids if sparse else [np.broadcast_to(grid, shape) for grid in grids]


def cumulative(reduce: Callable[..., Any], start: int) -> Callable[..., Any]:
    def function(x: Any, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        axis = 0 if axis is None else axis
        found = reduce(x, axis=axis)
        if not include_initial:
            return found
        shape = [1 if each == axis % x.ndim else n for each, n in enumerate(x.shape)]
        return np.concatenate([np.full(shape, start, x.dtype), found], axis=axis)

    return function


def joined_as(join: Callable[..., Any]) -> Callable[..., Any]:
    """Return a join of arrays that are traced as one, or that are cast."""

    def function(arrays: Any, axis: Any = 0, *, dtype: Any = None, **kwargs: Any) -> Any:
        parts = [x if dtype is None else x.astype(dtype) for x in arrays]
        return join([np.ravel(x) for x in parts]) if axis is None else join(parts, axis)

    return function


ASSEMBLY: dict[Any, Callable[..., Any]] = {
    np.select: select, "choose": choose, np.piecewise: piecewise, np.append: append, np.insert: insert,
    np.column_stack: column_stack, np.block: block, np.meshgrid: meshgrid, np.concatenate: joined_as(np.concatenate),
    np.stack: joined_as(np.stack), np.vstack: joined_as(lambda parts, axis: np.vstack(parts)),
    np.hstack: joined_as(lambda parts, axis: np.hstack(parts)),
    np.dstack: joined_as(lambda parts, axis: np.dstack(parts)),
    np.cumulative_sum: cumulative(np.cumsum, 0), np.cumulative_prod: cumulative(np.cumprod, 1),
}
