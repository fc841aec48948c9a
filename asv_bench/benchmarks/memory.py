"""Memory: the most that a call holds at once, Python's objects and array data."""

import tracemalloc
from collections.abc import Mapping
from functools import cache

import numpy as np

import nnflat as nf

from .flat import operations
from .measure import Call
from .models import model
from .training import step


def peak(call: Call) -> int:
    """Return the most bytes that a warm call holds at once."""
    call()
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


VERBS = ["destructure", "restructure", "load", "store", "view"]


@cache
def large() -> Mapping[str, Call]:
    """Return calls over much memory, by name; `copy` of the same vector is the baseline."""
    flat = np.ones(814_090, np.float32)
    verbs = operations("784-1024-10")
    train = step("784-1024-10 batch 128")
    return {
        "copy": flat.copy,
        **{verb: verbs[verb] for verb in VERBS},
        "layout_of": lambda: nf.Layout.of(model("784-1024-10")),
        "train_numpy": train["numpy"],
        "train_nnflat": train["nnflat"],
    }


class Peak:
    """The most bytes held at once, beyond what was there before the call."""

    params = (["copy", *VERBS, "layout_of", "train_numpy", "train_nnflat"],)
    param_names = ("operation",)

    def track_peak(self, operation: str) -> int:
        return peak(large()[operation])

    track_peak.unit = "bytes"

