"""optree: `tree_ravel` of its NumPy integration, and the function back that it gives."""

from optree.integrations.numpy import tree_ravel

from workers import cases
from workers.cases import Work


def destructure(case):
    leaves = cases.leaves(case)
    return Work(lambda: tree_ravel(leaves)[0], lambda: tree_ravel(leaves)[0])


def restructure(case):
    """A new model: `unravel` gives windows of the vector, so they are copied."""
    flat, unravel = tree_ravel(cases.leaves(case))

    def call():
        return [leaf.copy() for leaf in unravel(flat)]

    return Work(call, lambda: tree_ravel(call())[0])


MAKERS = {
    **{f"destructure {model}": destructure for model in cases.MODELS},
    **{f"restructure {model}": restructure for model in cases.MODELS},
}
