"""Gradients beside the function itself: what a derivative costs in calls of the loss."""

from collections.abc import Mapping
from functools import cache

import nnflat as nf
from nnflat import nn

from .measure import Call, Compared, Counted, Timed
from .training import CASES, problem

MEASURED = ["4-32-2 batch 1", "784-128-10 batch 128"]
WAYS = ["loss", "value_and_grad", "hvp"]


@cache
def slopes(case: str) -> dict[str, Call]:
    """Return the compiled loss of a network's flat vector, its gradient, and a product with its Hessian."""
    model, x, y = problem(*CASES[case])
    flat, layout = nf.destructure(model)
    loss = layout.lift(lambda model, x, y: nn.cross_entropy(model(x), y))
    value, slope, product = nf.compile(loss), nf.value_and_grad(loss), nf.hvp(loss)
    return {
        "loss": lambda: value(flat, x, y),
        "value_and_grad": lambda: slope(flat, x, y),
        "hvp": lambda: product(flat, flat, x, y),
    }


class Gradients(Timed, Compared, Counted):
    """Derivatives of softmax cross-entropy; the baseline is the loss."""

    params = (MEASURED, WAYS)
    param_names = ("case", "way")

    def calls(self, case: str) -> Mapping[str, Call]:
        return slopes(case)
