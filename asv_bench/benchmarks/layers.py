"""Layers beside the same arithmetic by hand: what the class around it costs."""

from collections.abc import Mapping
from functools import cache

import numpy as np

import nnflat as nf

from .measure import Call, Compared, Counted, Timed
from .models import chain, drawn

SIZES = {"4-32-2": (4, 32, 2), "64-32-10": (64, 32, 10)}
WAYS = ["numpy", "eager", "compiled"]


@cache
def forward(name: str) -> dict[str, Call]:
    """Return the call of a Chain of two Dense layers by hand, as it is, and compiled."""
    model, x = chain(*SIZES[name]), drawn(1, SIZES[name][0])
    first, second = model.layers
    program = nf.compile(model)
    return {
        "numpy": lambda: np.tanh(x @ first.weight + first.bias) @ second.weight + second.bias,
        "eager": lambda: model(x),
        "compiled": lambda: program(x),
    }


class Dense(Timed, Compared, Counted):
    """A Chain of two Dense layers, of one example."""

    params = (list(SIZES), WAYS)
    param_names = ("model", "way")

    def calls(self, name: str) -> Mapping[str, Call]:
        return forward(name)
