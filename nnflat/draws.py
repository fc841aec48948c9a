"""What the draws of `nnflat.random` do with a traced key: loops over (key, values).

A key that is a uint64 (what `fold` gives, or an argument of that dtype) is read by the loop. Any other may be wrong
(negative, say), and only a call can raise: it goes that way, as does a probability that is traced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nnflat import random
from nnflat.trace import Trace
from nnflat.tracer import as_array, is_traced, value_of

UINT64 = np.dtype(np.uint64)


def draw(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what fills an array by a traced key."""

    def handler(trace: Trace, key: Any, shape: Any, *args: Any, **kwargs: Any) -> Any:
        check_shape(shape)
        if not is_key(key):
            return NotImplemented
        value = function(value_of(key), shape, *args, **kwargs)
        return trace.record("draw", function.__name__, [trace.window(key)], value)

    return handler


def check_shape(shape: Any) -> None:
    """Refuse a size that is traced, as a size is refused elsewhere."""
    for size in shape if type(shape) is tuple else (shape,):
        if is_traced(size):
            operator.index(size)


def fold(trace: Trace, key: Any, *numbers: Any) -> Any:
    if not numbers or (is_traced(key) and not is_key(key)):
        return NotImplemented
    for number in numbers:
        key = fold_one(trace, key, number)
    return key


def fold_one(trace: Trace, key: Any, number: Any) -> Any:
    """Fold one number into a key; a constant one of the two is an operand of its own."""
    value = random.fold(value_of(key), value_of(number))
    if not is_traced(key):
        key = key if isinstance(key, np.ndarray) else np.array(key, UINT64)
    numbers = as_array(value_of(number))
    wide = np.dtype(np.uint64 if numbers.dtype.kind == "u" else np.int64)
    number = number if is_traced(number) else numbers
    return trace.record("fold", "fold", [trace.window(key), trace.cast(trace.window(number), wide)], value)


def bernoulli(trace: Trace, key: Any, p: Any, shape: Any) -> Any:
    check_shape(shape)
    if not is_key(key) or is_traced(p):
        return NotImplemented
    value = random.bernoulli(value_of(key), p, shape)
    draws = random.uniform(key, shape, np.float64)
    windows = [trace.window(draws), trace.window(np.asarray(p, np.float64))]
    return trace.record("ufunc", "less", windows, value, ufunc=np.less, signature="dd->?", kinds=("array", "array"))


def is_key(key: Any) -> bool:
    return is_traced(key) and key.dtype == UINT64 and key.dtype.isnative


DRAWS: dict[Callable[..., Any], Callable[..., Any]] = {
    random.fold: fold, random.bernoulli: bernoulli,
    **{function: draw(function) for function in (random.bits, random.uniform, random.normal)},
}
