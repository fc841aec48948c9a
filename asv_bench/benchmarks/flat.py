"""Copies between a tree and its flat vector, and the same bytes copied by NumPy.

No class has a `setup`: with one, asv times a call at a time, which for calls of a microsecond measures the
cache misses and not the call. What a benchmark needs is made at its first call, which asv takes as warm-up.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import nnflat as nf

from .models import MODELS, model

OPERATIONS = ["copy", "destructure", "restructure", "restructure_out", "load", "store", "view"]


@cache
def operations(name: str) -> dict[str, Callable[[], Any]]:
    """Return the operations on a model by name, `copy` being the baseline; all memory has been touched."""
    tree = model(name)
    flat, layout = nf.destructure(tree)
    out, target = flat.copy(), layout.restructure(flat)
    bound = layout.bind(target)
    return {
        "copy": lambda: np.copyto(out, flat),
        "destructure": lambda: nf.destructure(tree),
        "restructure": lambda: layout.restructure(flat),
        "restructure_out": lambda: layout.restructure(flat, out=target),
        "load": lambda: bound.load(flat),
        "store": lambda: bound.store(out=out),
        "view": lambda: layout.view(flat),
    }


class Flat:
    """Every way between a tree and its flat vector."""

    params = (list(MODELS), OPERATIONS)
    param_names = ("model", "operation")

    def time_copy(self, name: str, operation: str) -> None:
        operations(name)[operation]()


@cache
def many(count: int) -> list[np.ndarray]:
    """Return a tree of so many leaves."""
    return [np.ones(1, np.float32) for _ in range(count)]


class Leaves:
    """The first destructure of a tree: linear in the number of its leaves."""

    params = (1_000, 10_000)
    param_names = ("leaves",)

    def time_destructure(self, count: int) -> None:
        nf.destructure(many(count))
