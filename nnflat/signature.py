"""Which loop of a ufunc NumPy takes for some operands, and whether that loop can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nnflat.lower import find_loop
from nnflat.tracer import as_array, value_of

WEAK = (int, float, complex)


def loop_signature(ufunc: np.ufunc, inputs: Sequence[Any], value: Any) -> str | None:
    """Return the signature of the loop that gave `value`; None where it is no loop that can be replayed."""
    found = resolve(ufunc, tuple(weak_dtype(x) for x in inputs))
    if found is None:
        return None
    signature, resolved = found
    outputs = value if type(value) is tuple else (value,)
    for y, dtype in zip(outputs, resolved[ufunc.nin:], strict=True):
        if as_array(y).dtype != dtype:
            return None
    for x, dtype in zip(inputs, resolved, strict=False):
        if not number_fits(value_of(x), dtype):
            return None
    return signature


@lru_cache(maxsize=4096)
def resolve(ufunc: np.ufunc, dtypes: tuple[Any, ...]) -> tuple[str, tuple[np.dtype, ...]] | None:
    """Return NumPy's choice of a loop for operands of these dtypes; a Python number gives its type."""
    try:
        resolved = ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))
    except (TypeError, RecursionError):
        return None
    chars = [dtype.char for dtype in resolved]
    signature = "".join(chars[:ufunc.nin]) + "->" + "".join(chars[ufunc.nin:])
    other_products = ufunc.signature is not None and ufunc is not np.matmul
    if other_products and any(dtype.kind == "c" for dtype in resolved):
        return None
    if "O" in signature or find_loop(ufunc, signature) is None or can_raise(ufunc, resolved):
        return None
    return signature, resolved


def weak_dtype(x: Any) -> Any:
    value = value_of(x)
    return type(value) if type(value) in WEAK else as_array(value).dtype


def can_raise(ufunc: np.ufunc, dtypes: Sequence[np.dtype]) -> bool:
    """Integer power raises from inside its loop."""
    return ufunc.__name__ == "power" and dtypes[0].kind in "iu"


def number_fits(value: Any, dtype: np.dtype) -> bool:
    """Whether a Python integer keeps its value in the dtype of the loop (`u1 > 300` has no loop)."""
    if type(value) is not int or dtype.kind not in "iu":
        return True
    return dtype == np.int64 or (np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def reduce_signature(ufunc: np.ufunc, dtype: np.dtype, wanted: Any, value: Any) -> str | None:
    options: dict[str, Any] = {} if wanted is None else {"signature": (np.dtype(wanted), None, None)}
    try:
        resolved = ufunc.resolve_dtypes((None, dtype, None), reduction=True, **options)
    except (TypeError, RecursionError):
        return None
    chars = [each.char for each in resolved]
    found = "".join(chars[:2]) + "->" + chars[2]
    if len(set(chars)) != 1 or as_array(value).dtype != resolved[2] or find_loop(ufunc, found) is None:
        return None
    return None if can_raise(ufunc, resolved) else found
