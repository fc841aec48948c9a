"""What may be given as a flat vector: the checks, and the messages that a user meets."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnflat._foreign import foreign_array


def check_array(value: Any, name: str) -> np.ndarray:
    """Return `value` if it is a real NumPy array of floats; raise TypeError that says what came."""
    if hint := foreign_array(type(value)):
        raise TypeError(f"{name} must be a NumPy array; got {type(value).__module__}.{type(value).__name__}: {hint}")
    if isinstance(value, tuple) and len(value) == 2:
        raise TypeError(f"{name} must be a NumPy array; got a tuple: destructure returns (flat, layout)")
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must be a NumPy array; got {type(value).__name__}")
    if not issubclass(type(value), np.ndarray):
        raise TypeError(
            f"{name} is being traced: writing it into arrays is invisible to the tape and to gradients;"
            " use layout.view, which shares"
        )
    if value.dtype.kind not in "fc":
        raise TypeError(f"{name} must hold floats; got {value.dtype} (use {name}.astype(float))")
    return value


def check_length(value: np.ndarray, size: int, name: str) -> None:
    """Raise ValueError where `value` is no vector of `size` elements."""
    if value.ndim == 2 and value.shape[1] == size:
        raise ValueError(
            f"{name} must be a vector of {size} elements; got a population of shape {value.shape}:"
            " take a row, or layout.leaves(population)"
        )
    if value.shape != (size,):
        raise ValueError(f"{name} must be a vector of {size} elements; got shape {value.shape}")


def check_out(out: Any, size: int, dtype: np.dtype) -> np.ndarray:
    """Return `out` if a vector of `size` elements of `dtype` can be written into it."""
    if not isinstance(out, np.ndarray) or out.dtype != dtype:
        came = f"{out.dtype}" if isinstance(out, np.ndarray) else f"{type(out).__name__}"
        raise TypeError(f"out must be an array of {dtype}; got {came}")
    check_array(out, "out")
    check_length(out, size, "out")
    if not out.flags.writeable:
        raise ValueError("out is read-only")
    return out
