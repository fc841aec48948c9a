"""Functions that bring a derivative of their own, where that of their parts is slower, or another at a kink."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def with_derivative(rule: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function of an array the derivative `rule(g, y, x, ...)`, in plain NumPy.

    g is the cotangent of the result y, x and what follows are the arguments. Arrays are passed straight to the
    function; other types that speak NumPy's protocol (NEP 18) are asked first, as by NumPy's own functions.

    >>> @with_derivative(lambda g, y, x: g * (2 * x))
    ... def square(x):
    ...     return x * x
    >>> square(np.array([3.0]))
    array([9.])
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(x: Any, *args: Any, **kwargs: Any) -> Any:
            if type(x) is np.ndarray or not hasattr(type(x), "__array_function__"):
                return function(x, *args, **kwargs)
            return x.__array_function__(call, (type(x),), (x, *args), kwargs)

        call.plain = call._implementation = function  # type: ignore[attr-defined]
        call.derivative = rule  # type: ignore[attr-defined]
        return call

    return decorate
