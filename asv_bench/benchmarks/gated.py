"""The calls whose allocations, bytes and instructions may not grow: `gates.py` compares them with what is kept."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .flat import operations
from .measure import Call
from .tape import candidates, identity, policies
from .training import step


def _one_of(make: Callable[..., Mapping[str, Call]], *case: Any, way: str) -> Call:
    return make(*case)[way]


SMALL = {
    f"{verb} 4-32-2": partial(_one_of, operations, "4-32-2", way=verb)
    for verb in ("destructure", "restructure", "restructure_out", "load", "store", "view")
}
MANY = {
    f"{verb} 1000 leaves": partial(_one_of, operations, "1000 x 16, tuple", way=verb)
    for verb in ("load", "store", "restructure_out")
}
GATED: dict[str, Callable[[], Call]] = {  # name: what makes the call
    **SMALL,
    **MANY,
    "identity": partial(_one_of, identity, way="compiled_out"),
    "policy 4-32-2": partial(_one_of, policies, "4-32-2", way="compiled"),
    "policy 4-32-2, out=": partial(_one_of, policies, "4-32-2", way="compiled_out"),
    "vmap of 64 candidates": partial(_one_of, candidates, way="vmap"),
    "training step 4-32-2": partial(_one_of, step, "4-32-2 batch 1", way="nnflat"),
}
