"""Arithmetic of scalars that is not that of the ufuncs: NumPy's own for its scalars, Python's for its numbers.

Sums, differences and products of 64-bit integers, a step counter of a scan say, have loops that notice when a result
does not fit. NumPy warns then; Python would go on with more bits, which no tape has: there it is an error. Comparisons
of Python integers are the ufunc's. All else is a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnflat.tracer import COMPARE, value_of

INT64 = np.dtype(np.int64)
WITH_REMAINDER = {np.floor_divide, np.remainder, np.divmod}
CHECKED = {np.add, np.subtract, np.multiply, np.negative, np.absolute, np.power, np.left_shift, np.right_shift}
COMPLEX = {np.absolute, np.multiply, np.divide, np.power, *COMPARE.values()}
NATIVE: dict[np.ufunc, str] = {np.add: "add", np.subtract: "subtract", np.multiply: "multiply"}


def own_arithmetic(ufunc: np.ufunc, inputs: Sequence[Any]) -> bool:
    """Whether these scalars are computed otherwise than by the loop.

    Integers warn when they overflow, divisions with a remainder and comparisons of complex numbers raise other flags,
    complex64 rounds otherwise, and Python numbers are Python's. So is what a complex one makes of a float64, which is
    a float of Python's, too.
    """
    values = [value_of(x) for x in inputs]
    if ufunc in WITH_REMAINDER or not any(isinstance(x, np.generic) for x in values):
        return True
    if type(values[0]) is complex and isinstance(values[-1], float):
        return True
    kinds = {x.dtype.kind for x in values if isinstance(x, np.generic)}
    return (ufunc in CHECKED and not kinds.isdisjoint("iu")) or (ufunc in COMPLEX and "c" in kinds)


def compute(trace: Any, python: Callable[..., Any], ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """Record an operator on scalars that have arithmetic of their own."""
    values = [value_of(x) for x in inputs]
    pythons = all(type(value) is int for value in values)
    if not all(fits(value) for value in values) or not (ufunc in NATIVE or (ufunc in COMPARE.values() and pythons)):
        return trace.call(python, inputs, {})
    value = python(*values)
    if ufunc in COMPARE.values():
        return record(trace, inputs, "ufunc", ufunc.__name__, value, ufunc=ufunc, signature=f"{INT64.char * 2}->?")
    if type(value) is not (int if pythons else np.int64) or not fits(value):
        return trace.call(python, inputs, {})
    beyond = {"errstate": {"over": "raise"}} if pythons else {}
    return record(trace, inputs, "checked", f"scalar {NATIVE[ufunc]}", value, **beyond)


def record(trace: Any, inputs: Sequence[Any], kind: str, name: str, value: Any, **settings: Any) -> Any:
    windows = [trace.cast(trace.window(x, INT64), INT64) for x in inputs]
    return trace.record(kind, name, windows, value, kinds=("number",) * len(inputs), **settings)


def fits(value: Any) -> bool:
    """Whether this is an integer that 64 bits hold as it is."""
    if isinstance(value, np.integer):
        return value.dtype.isnative and np.can_cast(value.dtype, INT64)
    return type(value) is int and -2**63 <= value < 2**63
