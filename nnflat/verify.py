"""Whether two results are the same, to the bit: what a tape has to give before it is trusted."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnflat.tracer import as_array


def first_difference(results: list[Any], eager: list[Any]) -> int | None:
    for i, (result, wanted) in enumerate(zip(results, eager, strict=True)):
        if not same_bits(as_array(result), as_array(wanted)):
            return i
    return None


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal to the bit, but for the sign of a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind not in "fc":
        return False
    if a.dtype.char in "gG":            # their bytes hold padding
        return same_values(a.real, b.real) and same_values(a.imag, b.imag)
    real = np.dtype(f"{a.dtype.byteorder}f{a.dtype.itemsize // 2}") if a.dtype.kind == "c" else a.dtype
    x, y = np.ascontiguousarray(a).view(real), np.ascontiguousarray(b).view(real)
    both = np.isnan(x) & np.isnan(y)
    return np.where(both, 0, x).tobytes() == np.where(both, 0, y).tobytes()


def same_values(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether real numbers are equal, signed zeros told apart."""
    numbers = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[numbers]), np.signbit(b[numbers]))


def same_static(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and (a == b or (a != a and b != b)))
