"""Random trees against the slow reference: HYPOTHESIS_PROFILE=ci tries 2,000 of them, nightly 100,000.

A tree is grown from a few whole numbers: a number a window (dtype, shape, memory order), one for ties and statics, one
for containers. Its values come from a drawn seed, extremes among them.
"""

from __future__ import annotations

import itertools
import pickle
from collections import OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import reference
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

import nnflat as nf
from nnflat import tree

DTYPES = ["e", "f", "d", "g", "F", "D", ">e", ">f4", ">f8", ">c8"]
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 6e-8, 1e-42, 4e38, 1e300]
SHAPES = [(3,), (), (2, 3), (1,), (0,), (3, 2, 2), (2, 2), (4, 1), (1, 3, 1), (2, 0), (3, 3), (1, 1), (2, 3, 4), (1, 4)]
KINDS = ["list", "dict", "tuple", "ordered", "default", "pair", "affine", "slots", "protocol"]
STATICS = [None, 1, 2.5, "text", np.tanh, np.float64(1), np.array([1, 2]), np.array([True]), np.array(["a"])]


# ---- strategies --------------------------------------------------------------------------------------------------


def numbers(shape: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> np.ndarray:
    """Return numbers of all magnitudes, some of them extreme."""
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)
    values = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), values)
    if np.dtype(dtype).kind == "c":
        pairs = np.stack([values, numbers(shape, "d", rng)], -1)
        values = pairs.view("D").reshape(shape)
    return reference.cast(np.asarray(values), dtype)


def gaps(values: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
    """Return the values as a window of a larger block, with steps (negative ones, too)."""
    block = np.zeros([n * abs(step) for n, step in zip(values.shape, steps, strict=True)], values.dtype)
    window = block[(..., *(slice(None, None, step) for step in steps))]
    window[...] = values
    return window


class Digits:
    """A whole number taken apart into small choices: small numbers make simple trees, so that failures shrink."""

    def __init__(self, number: int) -> None:
        self.number = number

    def choose(self, options: Any) -> Any:
        self.number, digit = divmod(self.number, len(options))
        return options[digit]


def window(number: int) -> np.ndarray:
    """Return an array of inexact dtype, of any memory order."""
    digits = Digits(number)
    dtype, shape = digits.choose(DTYPES), digits.choose(SHAPES)
    order = digits.choose(["C", "F", "unaligned", "permuted", "steps", "both"])
    values = numbers(shape, dtype, np.random.default_rng(digits.choose(range(8))))
    if order == "F":
        return values.copy("F")
    if order == "unaligned":
        return zoo.unaligned(values)
    if order in ("permuted", "both"):
        values = values.copy().transpose(digits.choose(list(itertools.permutations(range(len(shape))))))
    if order in ("steps", "both"):
        values = gaps(values, tuple(digits.choose([1, 2, -1, -2]) for _ in shape))
    return values


def tied(leaf: np.ndarray, digits: Digits) -> list[np.ndarray]:
    """Return no, or one more, array of the same memory."""
    kind = digits.choose(["none", "same", "view", "transpose", "none"])
    axes = digits.choose(list(itertools.permutations(range(leaf.ndim))))
    return {"none": [], "same": [leaf], "view": [leaf[...]], "transpose": [leaf.transpose(axes)]}[kind]


def contain(kind: str, ends: list) -> Any:
    """Put children into a container."""
    if kind == "list":
        return ends
    if kind == "tuple":
        return tuple(ends)
    if kind in ("pair", "affine", "slots") and ends:
        first, second = ends[0], ends[1] if len(ends) == 2 else ends[1:]
        return {"pair": zoo.Pair, "affine": zoo.Affine, "slots": zoo.Slotted}[kind](first, second)
    if kind in ("protocol", "pair", "affine", "slots"):
        return zoo.Stack(*ends)
    names = {f"key {index}" if index % 2 else f"k{index}": ends[index] for index in reversed(range(len(ends)))}
    return {"dict": dict, "ordered": OrderedDict, "default": lambda items: defaultdict(list, items)}[kind](names)


def grow(leaves: list[int], bindings: int, containers: int) -> Any:
    """Return a tree: windows and their ties, two statics at most, put into containers until one is left."""
    digits = Digits(bindings)
    windows = [window(number) for number in leaves]
    ends: list[Any] = [end for leaf in windows for end in (leaf, *tied(leaf, digits))]
    ends += [STATICS[digits.choose(range(len(STATICS)))] for _ in range(digits.choose([0, 1, 2]))]
    digits = Digits(containers)
    while ends and (len(ends) > 1 or digits.number):
        if digits.choose([False, False, True]):
            ends = [*ends[1:], ends[0]]
        taken = digits.choose([3, 2, 1, 0]) if digits.number else len(ends)
        ends = [*ends[taken:], contain(digits.choose(KINDS), ends[:taken])]
    return ends[0] if ends else []


def trees(min_leaves: int = 0) -> st.SearchStrategy:
    leaves = st.lists(st.integers(0, len(DTYPES) * len(SHAPES) * 6 * 8 * 384), min_size=min_leaves, max_size=4)
    return st.builds(grow, leaves, st.integers(0, 10**7), st.integers(0, 10**6))


def vector(size: int, dtype: Any, seed: int) -> np.ndarray:
    return numbers((size,), dtype, np.random.default_rng(seed))


def equal(model: Any, expected: dict) -> bool:
    found = reference.items(model)
    return [path for path, _ in found] == list(expected) and all(
        reference.same(leaf, expected[path]) for path, leaf in found
    )


seeds = st.integers(0, 255)
fewer = settings(max_examples=settings().max_examples // 5)


# ---- laws --------------------------------------------------------------------------------------------------------


@given(model=trees(), seed=seeds)
def test_round_trips_are_exact(model, seed):
    before = reference.memory(model)
    with np.errstate(all="raise"):
        flat, layout = nf.destructure(model)
        again = layout.restructure(flat)
    assert reference.same(flat, reference.destructure(model))
    assert reference.containers(again) == reference.containers(model)
    assert equal(again, dict(reference.items(model)))
    assert nf.Layout.of(again).ties == layout.ties
    for (_, mine), (_, its) in zip(reference.items(again), reference.items(model), strict=True):
        assert mine.flags.c_contiguous or not its.flags.c_contiguous
        assert mine.flags.f_contiguous or not its.flags.f_contiguous
    assert reference.memory(model) == before
    for (path, mine), (other, its) in zip(reference.statics(again), reference.statics(model), strict=True):
        assert path == other
        assert np.array_equal(mine, its)


@fewer
@given(model=trees(), seed=seeds)
def test_a_layout_is_a_value(model, seed):
    flat, layout = nf.destructure(model)
    other = nf.Layout.of(layout.restructure(flat))
    assert other == layout
    assert hash(other) == hash(layout)
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert reference.same(again.destructure(model), flat)
    for path, leaf in reference.items(model):
        where = layout[path]
        assert where.stop - where.start == leaf.size * reference.lanes(leaf, layout.dtype)
        assert leaf.size == 0 or layout[layout.path_of(where.start)] == where


@given(model=trees(), seed=seeds, real=st.sampled_from("efdgFD"), taken=st.sampled_from(DTYPES))
def test_casts_are_numpys_own_in_place_and_fresh(model, seed, real, taken):
    layout = nf.Layout.of(model, dtype=real)
    with np.errstate(all="raise"):
        made = layout.destructure(model)
    assert reference.same(made, reference.destructure(model, real))
    flat = vector(layout.size, real if np.dtype(taken).kind == "c" else taken, seed)
    if flat.dtype.kind == "c":
        for dtype, where in zip(layout.dtypes, map(layout.__getitem__, layout.paths), strict=True):
            if dtype.kind == "f":
                flat[where] = flat[where].real
    expected = reference.restructure(model, flat, real)
    identity = reference.identity(model)
    with np.errstate(all="raise"):
        fresh = layout.restructure(flat)
        assert layout.restructure(flat, out=model) is model
    assert equal(fresh, expected)
    assert equal(model, expected)
    assert reference.identity(model) == identity


@given(model=trees(), seed=seeds, step=st.sampled_from([1, 2, -1]))
def test_bound_trees_are_written_and_read_in_place(model, seed, step):
    layout = nf.Layout.of(model)
    bound = layout.bind(model)
    identity, beside = reference.identity(model), reference.memory(model)
    original = bound.store()
    flat = gaps(reference.cast(np.arange(layout.size) % 100 / 4.0, layout.dtype), (step,))
    out = np.full(layout.size, -1, layout.dtype)
    assert bound.load(flat) is model
    assert equal(model, reference.restructure(model, flat))
    assert bound.store(out=out) is out
    assert reference.same(out, reference.destructure(model))
    bound.load(original)
    assert reference.identity(model) == identity
    assert len(reference.memory(model)) == len(beside)
    if len({leaf.dtype for _, leaf in reference.items(model)}) <= 1 and layout.dtype.char not in "gG":
        assert reference.memory(model) == beside


@fewer
@given(model=trees(min_leaves=1), seed=seeds)
def test_views_share_and_copies_do_not(model, seed):
    layout = nf.Layout.of(model)
    dtypes = {leaf.dtype for _, leaf in reference.items(model)}
    layout = layout if dtypes == {layout.dtype} else layout.astype(np.float64)
    flat = vector(layout.size, layout.dtype, seed)
    view, copy = layout.view(flat), layout.restructure(flat)
    assert equal(view, dict(reference.items(copy)))
    flat[:] = 3
    assert all(np.all(leaf == leaf.dtype.type(3) + (3j if leaf.dtype.kind == "c" and layout.dtype.kind == "f" else 0))
               for _, leaf in reference.items(view))  # fmt: skip
    assert all(leaf.size == 0 or np.shares_memory(leaf, flat) for _, leaf in reference.items(view))
    assert not any(np.shares_memory(leaf, flat) for _, leaf in reference.items(copy))
    assert layout.bind(view).load(flat) is view
    assert np.all(flat == 3)


# ---- a call that raises has written nothing ----------------------------------------------------------------------


def wrong_vector(layout: nf.Layout, kind: str) -> Any:
    size = layout.size
    return {
        "short": np.ones(max(0, size - 1) if size else 1),
        "long": np.ones(size + 1),
        "column": np.ones((size, 1)),
        "integers": np.ones(size, int),
        "list": [1.0] * size,
        "none": None,
        "masked": np.ma.ones(size),
        "imaginary": np.full(size, 1 + 1j),
    }[kind]


VECTORS = ["short", "long", "column", "integers", "list", "none", "masked", "imaginary"]


@given(model=trees(min_leaves=1), kind=st.sampled_from(VECTORS))
def test_a_wrong_vector_changes_no_byte(model, kind):
    layout = nf.Layout.of(model)
    if kind == "imaginary" and (layout.size == 0 or all(dtype.kind == "c" for dtype in layout.dtypes)):
        kind = "long"
    if kind == "imaginary" and not any(np.prod(shape) for shape, dtype in zip(layout.shapes, layout.dtypes, strict=True)
                                       if dtype.kind == "f"):  # fmt: skip
        kind = "list"
    bound, flat = layout.bind(model), wrong_vector(layout, kind)
    before = reference.memory(model)
    for verb in (bound.load, lambda flat: layout.restructure(flat, out=model), layout.restructure):
        with pytest.raises((TypeError, ValueError)):
            verb(flat)
    if kind not in ("imaginary", "none"):
        with pytest.raises((TypeError, ValueError)):
            bound.store(out=flat)
    assert reference.memory(model) == before


@given(model=trees(min_leaves=1), data=st.data())
def test_a_spoilt_leaf_changes_no_byte(model, data):
    layout = nf.Layout.of(model)
    bound = layout.bind(model)
    owners = dict(reference.items(model))
    path = data.draw(st.sampled_from(layout.paths))
    owners[path].setflags(write=False)
    before = reference.memory(model)
    flat = np.ones(layout.size, layout.dtype)
    for verb in (bound.load, lambda flat: layout.restructure(flat, out=model)):
        with pytest.raises(ValueError, match="read-only"):
            verb(flat)
    assert reference.memory(model) == before
    assert reference.same(bound.store(), reference.destructure(model))


# ---- overlap -----------------------------------------------------------------------------------------------------


def meet(number: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return windows of one block that do not meet, and a vector anywhere in the same block."""
    digits = Digits(number)
    block = np.arange(1, 49).astype(digits.choose(["d", "f", "F", ">f8", "e"]))
    model, at, size = [], digits.choose(range(8)), 0
    for _ in range(digits.choose([1, 2, 3])):
        shape, step = digits.choose([(4,), (1,), (2, 3), (3, 2), (2, 2, 2)]), digits.choose([1, 1, 2, -1])
        length = int(np.prod(shape))
        if at + length * abs(step) > 40:
            break
        window = block[at : at + length * abs(step)][::step].reshape(shape)
        model.append(window.T if digits.choose([False, True]) else window)
        at, size = at + length * abs(step) + digits.choose([0, 1]), size + length
    start = digits.choose(range(48 - size))
    return model, block.view(block.dtype.newbyteorder("="))[start : start + size]


overlaps = st.integers(0, 5 * 8 * 3 * 80**3 * 40).map(meet)


@fewer
@given(pair=overlaps)
def test_a_load_from_the_models_own_memory_is_as_from_a_copy(pair):
    model, flat = pair
    expected = reference.restructure(model, flat.copy())
    nf.Layout.of(model).restructure(flat, out=model)
    assert equal(model, expected)


@fewer
@given(pair=overlaps)
def test_a_store_into_the_models_own_memory_is_as_into_a_copy(pair):
    model, flat = pair
    expected = reference.destructure(model)
    nf.Layout.of(model).destructure(model, out=flat)
    assert reference.same(flat, expected)


# ---- gradients ---------------------------------------------------------------------------------------------------


@fewer
@given(model=trees(min_leaves=1), seed=seeds)
def test_gradients_are_summed_over_ties(model, seed):
    layout = nf.Layout.of(model)
    rng = np.random.default_rng(seed)
    found, size = reference.positions(model, layout.dtype)
    grads, expected = [], np.zeros(size, layout.dtype)
    for _, leaf in reference.items(model):
        grads.append(rng.integers(-4, 5, leaf.shape).astype(leaf.dtype))
        for address, index in zip(reference.addresses(leaf), np.ndindex(leaf.shape), strict=True):
            expected[found[address]] += grads[-1][index]
    flat = tree.flatten(model)
    assert np.array_equal(layout.flatten_grad(tree.unflatten(flat.structure, grads, flat.statics)), expected)
