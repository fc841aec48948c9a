"""Arguments and results of NumPy functions: traced values taken out, put in, and recognised as views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnflat.tracer import Tracer, as_array, is_traced


def byte_offsets(array: np.ndarray) -> np.ndarray:
    """Number the elements by where they stand, in an array that is laid out as `array` is."""
    offsets = np.empty_like(array, np.intp, subok=False)
    offsets[...] = sum(np.arange(size).reshape([-1 if a == axis else 1 for a in range(array.ndim)]) * stride
                       for axis, (size, stride) in enumerate(zip(array.shape, array.strides, strict=True)))
    return offsets


def base_of(value: Any, leaves: Sequence[Any]) -> Tracer | None:
    """Return the traced array that `value` is a view of."""
    if type(value) is not np.ndarray or value.size == 0:
        return None
    for leaf in leaves:
        if is_traced(leaf) and isinstance(leaf.value, np.ndarray) and np.may_share_memory(value, leaf.value):
            return leaf
    return None


def places_depend_on_values(leaves: Sequence[Any]) -> bool:
    """Whether a traced integer may say where a view stands (`x[i]`): then it has to be a copy."""
    return any(is_traced(leaf) and as_array(leaf.value).dtype.kind in "iu" and leaf.ndim < 2 for leaf in leaves[1:])


def split(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Take tracers and plain arrays out of (args, kwargs); return them and a function that puts others in."""
    leaves: list[Any] = []

    def take(x: Any) -> Any:
        if is_traced(x) or type(x) is np.ndarray:
            leaves.append(x)
            k = len(leaves) - 1
            return lambda values: values[k]
        if type(x) in (list, tuple):
            parts = [take(each) for each in x]
            return lambda values: type(x)(part(values) for part in parts)
        if type(x) is dict:
            items = {key: take(each) for key, each in x.items()}
            return lambda values: {key: part(values) for key, part in items.items()}
        return lambda values: x

    return leaves, take(tree)


def split_results(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Flatten a result of NumPy; named tuples keep their type."""
    if isinstance(result, tuple | list):
        make = type(result)._make if hasattr(result, "_make") else type(result)
        return list(result), make
    return [result], lambda outputs: outputs[0]


def caller(function: Callable[..., Any], rebuild: Callable[[list[Any]], Any], fresh: list[int],
           errstate: dict[str, Any]) -> Callable[..., list[Any]]:
    """Return what a call runs at replay: values of the leaves -> the outputs that are no views."""

    def run(*values: Any) -> list[Any]:
        args, kwargs = rebuild(list(values))
        with np.errstate(**errstate):
            flat, _ = split_results(function(*args, **kwargs))
        return [flat[i] for i in fresh]

    return run


def function_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
