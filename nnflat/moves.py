"""Back through functions that only move elements: what they do to the elements' numbers says where each came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnflat.views import call, scatter

Rule = Callable[..., list[Any]]

# Functions whose first argument is moved, each element to any number of places, nothing put in between.
MOVING = {"take", "take_along_axis", "repeat", "roll", "tile", "rot90", "flip", "fliplr", "flipud", "delete", "resize",
          "diagonal", "flatten", "ravel", "reshape", "transpose", "squeeze", "swapaxes", "T", "mT", "moveaxis",
          "rollaxis", "expand_dims", "broadcast_to", "copy", "atleast_1d", "atleast_2d", "atleast_3d", "fftshift",
          "ifftshift", "sliding_window_view", "split", "array_split", "hsplit", "vsplit", "dsplit"}


def numbers_of(x: Any) -> np.ndarray:
    return np.arange(x.size).reshape(x.shape)


def pull_sorted(cotangents: list[Any], outputs: Sequence[Any], x: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Sorting and partitions: the elements of the result are those of x, in an order that is found by sorting both."""
    return [unsorted(cotangents[0], outputs[0], x, kwargs.get("axis", args[0] if args else -1))]


def pull_partition(cotangents: list[Any], outputs: Sequence[Any], x: Any, kth: Any, axis: Any = -1,
                   **kwargs: Any) -> list[Any]:
    return [unsorted(cotangents[0], outputs[0], x, axis)]


def unsorted(g: Any, y: Any, x: Any, axis: Any) -> Any:
    if axis is None:
        return unsorted(g, y, x.ravel(), 0).reshape(x.shape)
    order = np.argsort(x, axis=axis, kind="stable")
    rank = np.argsort(np.argsort(y, axis=axis, kind="stable"), axis=axis, kind="stable")
    came = np.take_along_axis(order, rank, axis=axis)
    return scatter(g, np.take_along_axis(numbers_of(x), came, axis=axis), x.shape)


def pull_getitem(cotangents: list[Any], outputs: Sequence[Any], x: Any, index: Any) -> list[Any]:
    return [scatter(cotangents[0], call(lambda a, i: a[i], numbers_of(x), index), x.shape)]


def pull_take(cotangents: list[Any], outputs: Sequence[Any], x: Any, *args: Any, **kwargs: Any) -> list[Any]:
    if len(args) == 1 and not kwargs and isinstance(args[0], tuple):
        return pull_getitem(cotangents, outputs, x, args[0])
    return [scatter(cotangents[0], call(np.take, numbers_of(x), *args, **kwargs), x.shape)]


def pull_filled(function: Callable[..., Any]) -> Rule:
    """A move into an array of zeros: number 0 is none of the elements."""

    def pull(cotangents: list[Any], outputs: Sequence[Any], x: Any, *args: Any, **kwargs: Any) -> list[Any]:
        numbers = function(1 + numbers_of(x), *args, **kwargs)
        return [scatter(cotangents[0], numbers, (x.size + 1,))[1:].reshape(x.shape)]

    return pull


def pull_pad(cotangents: list[Any], outputs: Sequence[Any], x: Any, width: Any, mode: str = "constant",
             **kwargs: Any) -> list[Any]:
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap") or kwargs.get("reflect_type") == "odd":
        raise TypeError(f"np.pad with mode={mode!r} has no derivative rule")
    options: dict[str, Any] = {} if mode == "constant" else {"mode": mode, **kwargs}
    return pull_filled(np.pad)(cotangents, outputs, x, width, **options)


MOVES: dict[Any, Rule] = {
    np.sort: pull_sorted, np.sort_complex: pull_sorted, np.partition: pull_partition, "take": pull_take,
    "getitem": pull_getitem, np.pad: pull_pad, np.diag: pull_filled(np.diag), np.diagflat: pull_filled(np.diagflat),
}
