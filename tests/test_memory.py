"""Copying in place, again and again, keeps no memory: neither array data nor objects."""

import gc
import sys
import tracemalloc

import numpy as np
import pytest
import zoo

import nnflat as nf

CALLS = 1_000
SPARE = 64  # blocks and bytes a kind of call may keep once (caches)
KINDS = ["tied_by_transpose", "mixed", "protocol"]
ANIMALS = {
    "dense": zoo.dense,
    "longdouble": zoo.longdouble,
    "all kinds": lambda: {name: zoo.ZOO[name]() for name in KINDS},
}
over_animals = pytest.mark.parametrize("make", ANIMALS.values(), ids=ANIMALS.keys())


def in_place(model):
    """Return the in-place verbs as functions of nothing."""
    flat, layout = nf.destructure(model)
    bound = layout.bind(model)
    other = flat.astype(flat.dtype.newbyteorder("S"))
    rows = layout.stack([model, model])
    return {
        "load": lambda: bound.load(flat),
        "load of swapped bytes": lambda: bound.load(other),
        "store": lambda: bound.store(out=flat),
        "restructure": lambda: layout.restructure(flat, out=model),
        "destructure": lambda: layout.destructure(model, out=flat),
        "flatten_grad": lambda: layout.flatten_grad(model, out=flat),
        "stack": lambda: layout.stack([model, model], out=rows),
        "fresh vector": lambda: bound.store(),
        "fresh tree": lambda: layout.restructure(flat),
        "leaves": lambda: layout.leaves(flat),
    }


def growth(call):
    """Return how many blocks, and how many traced bytes, CALLS calls leave behind."""
    for _ in range(20):
        call()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            call()
        gc.collect()
        blocks, (size, _) = sys.getallocatedblocks(), tracemalloc.get_traced_memory()
        for _ in range(CALLS):
            call()
        gc.collect()
        return sys.getallocatedblocks() - blocks, tracemalloc.get_traced_memory()[0] - size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("verb", in_place(zoo.dense()))
@over_animals
def test_a_thousand_calls_leave_nothing_behind(make, verb):
    blocks, size = growth(in_place(make())[verb])
    assert blocks < SPARE
    assert size < 100 * SPARE


@over_animals
def test_refused_calls_leave_nothing_behind(make):
    model = make()
    layout = nf.Layout.of(model)
    bound = layout.bind(model)
    wrong = np.zeros(layout.size + 1)

    def call():
        for verb in (bound.load, layout.restructure, layout.view, lambda flat: bound.store(out=flat)):
            try:
                verb(wrong)
            except (TypeError, ValueError):
                continue
            raise AssertionError("a vector of the wrong length was taken")

    blocks, size = growth(call)
    assert blocks < 4 * SPARE
    assert size < 400 * SPARE


def peak(call):
    """Return the most bytes that a call held at once."""
    call()
    tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - start
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("verb", ["load", "store", "restructure", "destructure"])
def test_in_place_verbs_allocate_no_array_memory(verb):
    model = {"first": np.zeros((300, 300)), "second": np.asfortranarray(np.zeros((300, 200)))}
    assert peak(in_place(model)[verb]) < 20_000


def test_counts_of_references_stay():
    model = zoo.mixed()
    flat, layout = nf.destructure(model)
    bound = layout.bind(model)
    watched = [flat, *model, *(leaf.dtype for leaf in model), layout]
    gc.collect()
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(CALLS):
        bound.load(flat)
        bound.store(out=flat)
        layout.restructure(flat)
        layout.restructure(flat, out=model)
        layout.destructure(model, out=flat)
    gc.collect()
    after = [sys.getrefcount(value) for value in watched]
    assert all(abs(now - then) < 10 for now, then in zip(after, before, strict=True))


def test_bound_trees_are_collected():
    import weakref

    model = zoo.Scaler(zoo.count(2), None)
    bound = nf.Layout.of(model).bind(model)
    leaf = weakref.ref(model.scale)
    del model, bound
    gc.collect()
    assert leaf() is None


def test_a_cycle_through_a_bound_tree_is_collected():
    import weakref

    model = {"weight": zoo.count(2), "keep": []}
    bound = nf.Layout.of(model).bind(model)
    model["keep"] = {"bound": zoo.count(1)}
    holder = zoo.Scaler(bound, None)
    model["holder"] = holder
    leaf = weakref.ref(model["weight"])
    del model, bound, holder
    gc.collect()
    assert leaf() is None
