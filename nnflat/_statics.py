"""Statics: what a tree carries along beside its parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnflat.tree import IMMUTABLE


def copy_statics(statics: Sequence[Any]) -> list[Any]:
    """Copy what can be copied, ties among them kept; what cannot (modules, locks, files) is shared."""
    memo: dict[int, Any] = {}
    return [value if isinstance(value, IMMUTABLE) else _deepcopy(value, memo) for value in statics]


def _deepcopy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def brief(value: object) -> tuple[str, str]:
    """Return what a static is, in two cells: shape and dtype of an array, else the value, shortened, and its type."""
    if isinstance(value, np.ndarray):
        return str(value.shape), str(value.dtype)
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= 24 else text[:21] + "...", type(value).__name__
