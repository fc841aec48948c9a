"""Copies between a tree and its flat vector, and the same bytes copied by NumPy."""

from collections.abc import Mapping
from functools import cache

import numpy as np

import nnflat as nf

from .measure import Call, Compared, Counted, Growing, Timed, seconds
from .models import FLAT_DTYPES, MODELS, ORDERS, model

OPERATIONS = ["copy", "destructure", "restructure", "restructure_out", "load", "store", "view"]


@cache
def operations(name: str) -> dict[str, Call]:
    """Return the operations on a model by name, `copy` being the baseline; all memory has been touched."""
    tree = model(name)
    flat, layout = nf.destructure(tree, dtype=FLAT_DTYPES.get(name))
    out, bound = flat.copy(), layout.bind(tree)
    return {
        "copy": lambda: np.copyto(out, flat),
        "destructure": lambda: nf.destructure(tree),
        "restructure": lambda: layout.restructure(flat),
        "restructure_out": lambda: layout.restructure(flat, out=tree),
        "load": lambda: bound.load(flat),
        "store": lambda: bound.store(out=out),
        "view": lambda: layout.view(flat),
    }


class Copies(Timed, Compared, Counted):
    """Every way between a tree and its flat vector."""

    params = (list(MODELS), OPERATIONS)
    param_names = ("model", "operation")

    def calls(self, name: str) -> Mapping[str, Call]:
        return operations(name)


class Orders(Compared):
    """The copies in place, of containers and memory orders that are harder."""

    params = (list(ORDERS), ["load", "store", "restructure_out"])
    param_names = ("model", "operation")

    def calls(self, name: str) -> Mapping[str, Call]:
        return operations(name)


@cache
def new_models() -> dict[str, Call]:
    """Return NumPy's way, and ours, to a new model of 400 leaves."""
    tree = [{"weight": np.ones((4, 8), np.float32), "bias": np.ones(8, np.float32)} for _ in range(200)]
    flat, layout = nf.destructure(tree)

    def by_hand() -> list[dict[str, np.ndarray]]:
        start, made = 0, []
        for layer in tree:
            made.append({})
            for name, leaf in layer.items():
                made[-1][name] = flat[start : start + leaf.size].reshape(leaf.shape).copy()
                start += leaf.size
        return made

    return {"numpy": by_hand, "restructure": lambda: layout.restructure(flat)}


class NewModel(Timed, Compared, Counted):
    """A new model of 400 leaves out of a flat vector."""

    params = (["numpy", "restructure"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return new_models()


@cache
def many(count: int) -> dict[str, Call]:
    """Return the verbs on so many leaves of one element."""
    tree = [np.ones(1, np.float32) for _ in range(count)]
    flat, layout = nf.destructure(tree)
    bound = layout.bind(tree)
    return {
        "destructure": lambda: nf.destructure(tree),
        "restructure": lambda: layout.restructure(flat),
        "load": lambda: bound.load(flat),
    }


class Leaves(Growing):
    """Growth with the number of leaves: a slope of one in a double logarithmic graph is linear."""

    params = ([1, 10, 100, 1_000, 10_000, 100_000], ["destructure", "restructure", "load"])
    param_names = ("leaves", "operation")

    def calls(self, count: int) -> Mapping[str, Call]:
        return many(count)


class TenTimes:
    """What ten times as many leaves cost: ten, where the growth is linear."""

    params = ([1_000, 10_000], ["destructure", "restructure"])
    param_names = ("leaves", "operation")

    def track_growth(self, count: int, operation: str) -> float:
        few, more = seconds(many(count)[operation], many(10 * count)[operation])
        return more.min / few.min

    track_growth.unit = "times"


@cache
def one_leaf(size: int) -> dict[str, Call]:
    """Return the verbs on one leaf of so many elements."""
    tree = [np.ones(size, np.float32)]
    flat, layout = nf.destructure(tree)
    out, bound = flat.copy(), layout.bind(tree)
    return {
        "copy": lambda: np.copyto(out, flat),
        "restructure": lambda: layout.restructure(flat),
        "load": lambda: bound.load(flat),
        "store": lambda: bound.store(out=out),
    }


class Parameters(Growing):
    """Growth with the number of parameters, in one leaf."""

    params = ([10**n for n in range(1, 8)], ["copy", "restructure", "load", "store"])
    param_names = ("parameters", "operation")

    def calls(self, size: int) -> Mapping[str, Call]:
        return one_leaf(size)


@cache
def stacked(pop: int) -> dict[str, Call]:
    """Return ways to make a population of a policy's vector."""
    tree = model("4-32-2")
    flat, layout = nf.destructure(tree)
    rows, trees = np.empty((pop, flat.size), np.float32), [tree] * pop
    layout.stack(trees, out=rows)
    return {
        "copy": lambda: np.copyto(rows, flat),
        "stack": lambda: layout.stack(trees, out=rows),
        "leaves": lambda: layout.leaves(rows),
    }


class Populations(Growing):
    """Growth with the size of a population of 4-32-2."""

    params = ([1, 4, 16, 64, 256, 1024], ["copy", "stack", "leaves"])
    param_names = ("population", "operation")

    def calls(self, pop: int) -> Mapping[str, Call]:
        return stacked(pop)
