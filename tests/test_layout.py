"""The invariants I1 to I7 of nnflat/layout.py over the whole zoo, then the verbs one by one."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import reference
import zoo
from zoo import Affine, count

import nnflat as nf
from nnflat import Layout, StructureChanged, tree

over_zoo = pytest.mark.parametrize("make", zoo.ZOO.values(), ids=zoo.ZOO.keys())


def shuffled(layout: Layout) -> np.ndarray:
    """Return a vector of the layout that every real leaf can take, unlike any model's."""
    flat = np.random.default_rng(0).permutation(layout.size).astype(layout.dtype)
    return flat / 4 if layout.size < 1000 else flat


def leaves_are(model, expected: dict) -> bool:
    found = reference.items(model)
    return [path for path, _ in found] == list(expected) and all(
        reference.same(leaf, expected[path]) for path, leaf in found
    )


# ---- I1: a leaf is its slice, in C order -------------------------------------------------------------------------


@over_zoo
def test_the_vector_is_what_a_loop_over_single_elements_gives(make):
    model = make()
    flat, _ = nf.destructure(model)
    assert reference.same(flat, reference.destructure(model))


@over_zoo
def test_each_leaf_is_its_slice_in_c_order(make):
    model = make()
    flat, layout = nf.destructure(model)
    found = dict(reference.items(model))
    for path, start, stop in zip(layout.paths, layout.offsets, layout.offsets[1:], strict=False):
        expected = reference.cast(found[path].reshape(-1), layout.dtype)
        assert reference.same(flat[start:stop], expected)
        assert layout[path] == slice(start, stop)


@over_zoo
def test_the_vector_is_fresh_contiguous_aligned_native_and_writeable(make):
    flat, layout = nf.destructure(make())
    assert flat.shape == (layout.size,)
    assert flat.flags.c_contiguous
    assert flat.flags.writeable
    assert flat.dtype.isnative
    assert flat.__array_interface__["data"][0] % 64 == 0
    assert type(flat) is np.ndarray


@over_zoo
def test_offsets_run_from_zero_to_the_size_and_are_read_only(make):
    layout = Layout.of(make())
    assert layout.offsets[0] == 0
    assert layout.offsets[-1] == layout.size
    assert np.all(np.diff(layout.offsets) >= 0)
    assert not layout.offsets.flags.writeable
    assert len(layout.offsets) == len(layout) + 1 == len(layout.paths) + 1


# ---- I2, I3: there and back --------------------------------------------------------------------------------------


@over_zoo
def test_restructure_of_destructure_is_the_same_tree(make):
    model = make()
    flat, layout = nf.destructure(model)
    again = layout.restructure(flat)
    assert reference.containers(again) == reference.containers(model)
    assert leaves_are(again, dict(reference.items(model)))
    for (path, mine), (other, its) in zip(reference.statics(again), reference.statics(model), strict=True):
        assert path == other
        assert np.array_equal(mine, its) if isinstance(its, np.ndarray) else mine == its


@over_zoo
def test_restructure_gives_what_a_loop_over_single_elements_gives(make):
    model = make()
    layout = Layout.of(model)
    flat = shuffled(layout)
    assert leaves_are(layout.restructure(flat), reference.restructure(model, flat))


@over_zoo
def test_restructure_keeps_c_and_fortran_order(make):
    model = make()
    flat, layout = nf.destructure(model)
    for (_, mine), (_, its) in zip(reference.items(layout.restructure(flat)), reference.items(model), strict=True):
        assert mine.flags.c_contiguous or not its.flags.c_contiguous
        assert mine.flags.f_contiguous or not its.flags.f_contiguous
        assert mine.flags.writeable
        assert mine.flags.aligned


@over_zoo
def test_restructure_keeps_ties(make):
    model = make()
    flat, layout = nf.destructure(model)
    again = layout.restructure(flat)
    assert Layout.of(again).ties == layout.ties
    for path, owner in layout.ties.items():
        found = dict(reference.items(again))
        assert sorted(reference.addresses(found[path])) == sorted(reference.addresses(found[owner]))


@over_zoo
def test_destructure_of_restructure_is_the_same_vector(make):
    layout = Layout.of(make())
    flat = shuffled(layout)
    model = layout.restructure(flat)
    expected = reference.destructure(model)
    assert reference.same(layout.destructure(model), expected)
    if len(set(layout.dtypes)) == 1:
        assert reference.same(expected, flat)


@over_zoo
def test_a_second_destructure_of_the_copy_gives_an_equal_layout(make):
    flat, layout = nf.destructure(make())
    again, other = nf.destructure(layout.restructure(flat))
    assert other == layout
    assert hash(other) == hash(layout)
    assert reference.same(again, flat)


# ---- in place ----------------------------------------------------------------------------------------------------

VERBS = {
    "restructure": lambda layout, model, flat: layout.restructure(flat, out=model),
    "load": lambda layout, model, flat: layout.bind(model).load(flat),
}
over_verbs = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


@over_zoo
@over_verbs
def test_in_place_writes_the_same_arrays_and_returns_the_tree(make, verb):
    model = make()
    layout = Layout.of(model)
    before = reference.identity(model)
    flat = shuffled(layout)
    expected = reference.restructure(model, flat)
    assert verb(layout, model, flat) is model
    assert leaves_are(model, expected)
    assert reference.identity(model) == before


@over_zoo
@over_verbs
def test_in_place_leaves_the_target_its_statics(make, verb):
    model = make()
    layout = Layout.of(model)
    before = [(path, id(value)) for path, value in reference.statics(model)]
    verb(layout, model, shuffled(layout))
    assert [(path, id(value)) for path, value in reference.statics(model)] == before


@over_zoo
@over_verbs
def test_in_place_does_not_write_beside_a_window(make, verb):
    model = make()
    flat, layout = nf.destructure(model)
    before = reference.memory(model)
    verb(layout, model, shuffled(layout))
    verb(layout, model, flat)
    assert reference.memory(model) == before


@over_zoo
def test_store_writes_out_and_returns_it(make):
    model = make()
    flat, layout = nf.destructure(model)
    for store in (layout.bind(model).store, lambda *, out: layout.destructure(model, out=out)):
        out = np.full(layout.size, 7, layout.dtype)
        assert store(out=out) is out
        assert reference.same(out, flat)
    assert reference.same(layout.bind(model).store(), flat)


# ---- I4: who shares memory ---------------------------------------------------------------------------------------


@over_zoo
def test_copies_share_no_memory(make):
    model = make()
    flat, layout = nf.destructure(model)
    trees = [model, layout.restructure(flat), layout.restructure(flat)]
    groups = [[flat], *([leaf for _, leaf in reference.items(each)] for each in trees)]
    for number, group in enumerate(groups):
        for rest in groups[number + 1 :]:
            spans = [np.lib.array_utils.byte_bounds(leaf) for leaf in rest if leaf.size]
            for leaf in group:
                if leaf.size:
                    low, high = np.lib.array_utils.byte_bounds(leaf)
                    assert not any(low < end and start < high for start, end in spans)


@over_zoo
def test_a_view_is_the_vector(make):
    model = make()
    flat, layout = nf.destructure(model)
    if any(leaf.dtype != layout.dtype for _, leaf in reference.items(model)):
        pytest.skip("a view needs leaves of the vector's dtype")
    mine = layout.view(flat)
    assert reference.containers(mine) == reference.containers(model)
    assert leaves_are(mine, dict(reference.items(model)))
    flat[...] = shuffled(layout)
    assert leaves_are(mine, reference.restructure(model, flat))
    for path, leaf in reference.items(mine):
        assert path in layout.ties or leaf.flags.c_contiguous
        assert leaf.size == 0 or np.shares_memory(leaf, flat)
        leaf[...] = 5
    assert np.all(flat == 5)


@over_zoo
def test_a_view_of_another_dtype_is_refused_with_the_path(make):
    layout = Layout.of(make())
    if layout.size == 0:
        pytest.skip("no leaf")
    other = np.float32 if layout.dtype != np.float32 else np.float64
    with pytest.raises(TypeError, match="view needs a vector of the leaves' dtype"):
        layout.view(np.zeros(layout.size, other))


@over_zoo
def test_leaves_are_named_windows_of_a_vector_and_of_a_population(make):
    model = make()
    flat, layout = nf.destructure(model)
    rows = np.stack([flat, shuffled(layout)])
    named, stacked = layout.leaves(flat), layout.leaves(rows)
    found = {tree.format_path(path): leaf for path, leaf in reference.items(model)}
    assert list(named) == list(stacked) == list(found)
    for name, leaf in found.items():
        assert reference.same(named[name], reference.cast(leaf, layout.dtype))
        assert reference.same(stacked[name][0], reference.cast(leaf, layout.dtype))
        assert stacked[name].shape == (2, *leaf.shape)
        assert leaf.size == 0 or np.shares_memory(named[name], flat)
        assert leaf.size == 0 or np.shares_memory(stacked[name], rows)


# ---- I6: a layout is a value -------------------------------------------------------------------------------------


@over_zoo
def test_a_layout_keeps_no_parameter_alive(make):
    model = make()
    layout = Layout.of(model)
    refs = [weakref.ref(leaf) for _, leaf in reference.items(model)]
    layout.restructure(shuffled(layout), out=model)
    del model
    gc.collect()
    assert [ref() for ref in refs if ref() is not None] == []


@over_zoo
def test_a_layout_compares_and_hashes_by_what_it_says(make):
    layout, same = Layout.of(make()), Layout.of(make())
    assert layout == same
    assert hash(layout) == hash(same)
    assert layout != Layout.of({"other": count(3), "tree": [count(1)]})
    assert layout != "layout"


@over_zoo
def test_a_layout_survives_pickle_and_copies(make):
    model = make()
    flat, layout = nf.destructure(model)
    for again in (pickle.loads(pickle.dumps(layout)), copy.deepcopy(layout), copy.copy(layout)):
        assert again == layout
        assert hash(again) == hash(layout)
        assert leaves_are(again.restructure(flat), dict(reference.items(model)))
        assert str(again) == str(layout)


def test_a_pickled_layout_works_in_another_process(tmp_path):
    model = {"layers": [zoo.Pair(count(2, 3), count(3)), zoo.tied_square()], "registered": zoo.registered()}
    flat, layout = nf.destructure(model)
    file = tmp_path / "layout.pickle"
    file.write_bytes(pickle.dumps((layout, flat, hash(layout))))
    code = (
        "import pickle, sys; layout, flat, _ = pickle.load(open(sys.argv[1], 'rb'));"
        "model = layout.restructure(flat); print(layout); assert layout == type(layout).of(model)"
    )
    search = os.pathsep.join([str(Path(__file__).parent), str(Path(nf.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code, str(file)],
        env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip("\n") == str(layout)


@over_zoo
def test_a_layout_prints_every_path(make):
    model = make()
    layout = Layout.of(model)
    for text in (str(layout), layout._repr_html_()):
        for path, _ in reference.walk(model):
            name = tree.format_path(path)
            assert name in text or "&" in text
        assert f"{layout.size} parameters" in text
    assert f"{layout.size} parameters" in repr(layout)


def test_layouts_differ_where_paths_shapes_dtypes_ties_or_containers_do():
    weight = count(2, 2)
    base = Layout.of({"a": weight, "b": count(2, 2)})
    others = [
        {"a": weight, "c": count(2, 2)},
        {"a": weight, "b": count(4)},
        {"a": weight, "b": count(2, 2, dtype=np.float32)},
        {"a": weight, "b": weight},
        {"a": weight, "b": weight.T},
        {"b": weight, "a": count(2, 2)},
        {"a": weight, "b": count(2, 2), "c": 1},
        [weight, count(2, 2)],
        zoo.OrderedDict(a=weight, b=count(2, 2)),
    ]
    layouts = [Layout.of(other) for other in others]
    assert base not in layouts
    assert len({base, *layouts}) == len(layouts) + 1
    assert Layout.of({"a": weight, "b": count(2, 2)}, dtype=np.float32) != base


def test_a_layout_cannot_be_changed():
    layout = Layout.of([count(2)])
    with pytest.raises(AttributeError):
        layout.paths = ()


def test_the_statics_of_a_layout_are_its_own():
    running, options = np.array([1, 2]), {"k": [1]}
    model = [count(1), running, zoo.Scaler(count(1), options)]
    flat, layout = nf.destructure(model)
    running[:] = 9
    options["k"].append(2)
    first, second = layout.restructure(flat), layout.restructure(flat)
    first[1][:] = 7
    first[2].mean["k"].append(3)
    assert second[1].tolist() == [1, 2]
    assert second[2].mean == {"k": [1]}
    layout.statics[(1,)][:] = 8
    assert layout.statics[(1,)].tolist() == [1, 2]


def test_a_static_array_at_two_paths_stays_one():
    flat, layout = nf.destructure(zoo.static_arrays())
    again = layout.restructure(flat)
    assert again["steps"] is again["same"]


def test_statics_that_cannot_be_copied_are_shared():
    import threading

    lock = threading.Lock()
    model = {"lock": lock, "weight": count(1)}
    flat, layout = nf.destructure(model)
    assert layout.restructure(flat)["lock"] is lock


# ---- the vector's dtype ------------------------------------------------------------------------------------------


@over_zoo
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.complex64, np.complex128])
def test_dtype_gives_numpys_own_casts_both_ways(make, dtype):
    model = make()
    flat, layout = nf.destructure(model, dtype=dtype)
    assert flat.dtype == dtype
    assert reference.same(flat, reference.destructure(model, dtype))
    flat = flat + shuffled(layout)
    expected = reference.restructure(model, flat, dtype)
    assert leaves_are(layout.restructure(flat), expected)
    assert leaves_are(layout.restructure(flat, out=model), expected)


@over_zoo
@pytest.mark.parametrize("given", [np.float16, np.float32, np.float64, np.longdouble, ">f4", ">f8"])
def test_a_vector_of_another_precision_is_cast_as_numpy_does(make, given):
    model = make()
    layout = Layout.of(model)
    flat = np.linspace(-3, 3, layout.size).astype(given)
    expected = reference.restructure(model, flat)
    assert leaves_are(layout.restructure(flat), expected)
    assert leaves_are(layout.bind(model).load(flat), expected)


def test_complex_leaves_in_a_real_vector_are_pairs():
    model = [count(2), np.array([1 + 2j, 3 + 4j, 5 + 6j])]
    flat, layout = nf.destructure(model, dtype=np.float64)
    assert flat.tolist() == [1, 2, 1, 2, 3, 4, 5, 6]
    assert layout.offsets.tolist() == [0, 2, 8]
    assert layout.path_of(7) == (1,)
    assert leaves_are(layout.restructure(flat), dict(reference.items(model)))
    mine = layout.view(flat)
    flat[3] = -2
    assert mine[1][0] == 1 - 2j
    assert np.shares_memory(layout.leaves(flat)["[1]"], flat)


def test_the_dtype_of_a_vector_is_that_of_its_leaves():
    assert Layout.of([count(1, dtype=np.float16), count(1, dtype=np.float32)]).dtype == np.float32
    assert Layout.of([count(1, dtype=np.float32), count(1, dtype=np.complex64)]).dtype == np.complex64
    assert Layout.of([count(1), count(1, dtype=np.complex64)]).dtype == np.complex128
    assert Layout.of([np.zeros(0), count(1, dtype=np.float32)]).dtype == np.float32
    assert Layout.of([np.zeros(0, np.float32)]).dtype == np.float64
    assert Layout.of([count(1, dtype=">f4")]).dtype == np.dtype("f4").newbyteorder("=")


@pytest.mark.parametrize("dtype", [int, bool, object, "U3", "datetime64[s]"])
def test_a_vector_of_another_kind_is_refused(dtype):
    with pytest.raises(TypeError, match="float or complex"):
        nf.destructure([count(2)], dtype=dtype)
    with pytest.raises(TypeError, match="float or complex"):
        Layout.of([count(2)]).astype(dtype)


def test_no_parameters_give_a_float64_vector_of_length_zero():
    for empty in ({}, [], None, (), 3.0, "text", {"a": np.array([1])}):
        flat, layout = nf.destructure(empty)
        assert flat.shape == (0,)
        assert flat.dtype == np.float64
        assert layout.size == len(layout) == 0
        with pytest.raises(ValueError, match="0 elements"):
            layout.restructure(np.zeros(3))


@over_zoo
def test_astype_gives_the_same_places_in_another_dtype(make):
    model = make()
    layout = Layout.of(model)
    if layout.dtype.kind == "c":
        pytest.skip("complex leaves become pairs: another size")
    for dtype in (np.float32, np.float64):
        other = layout.astype(dtype)
        flat = np.linspace(-1, 1, layout.size).astype(dtype)
        again = other.restructure(flat)
        assert {leaf.dtype for _, leaf in reference.items(again)} <= {np.dtype(dtype)}
        assert other.offsets.tolist() == layout.offsets.tolist()
        assert other.ties == layout.ties
        assert reference.same(other.destructure(again), flat)
        assert reference.same(other.destructure(other.view(flat)), flat)
        for (_, mine), (_, its) in zip(reference.items(again), reference.items(model), strict=True):
            assert mine.flags.f_contiguous or not its.flags.f_contiguous


def test_astype_of_complex_leaves_is_pairs_under_a_real_dtype():
    layout = Layout.of([count(2), count(2) * 1j]).astype(np.float32)
    assert layout.dtypes == (np.float32, np.complex64)
    assert layout.size == 6
    assert layout.view(np.arange(6, dtype=np.float32))[1].tolist() == [2 + 3j, 4 + 5j]


# ---- no warnings, no errors of floating point --------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["f2", "f4", "f8", "g", "F", "D", ">f2", ">f4", ">f8", ">c8"])
@pytest.mark.parametrize("vector", ["f2", "f4", "f8", "g", "F", "D"])
def test_casts_never_warn_nor_raise(leaf, vector):
    extremes = np.array([1e300, -1e300, 1e-300, np.inf, -np.inf, np.nan, 70000.0, 1e-8, 3e38, 65520.0])
    with np.errstate(all="ignore"):
        values, flat = extremes.astype(leaf), extremes.astype(vector)
    model = [values, values[::-1].copy().reshape(2, 5).T]
    real = reference.lanes(values, np.dtype(vector))
    with np.errstate(all="raise"):
        made, layout = nf.destructure(model, dtype=vector)
        assert reference.same(made, reference.destructure(model, vector))
        flat = np.concatenate([flat] * 2 * real)
        expected = reference.restructure(model, flat, vector)
        assert leaves_are(layout.restructure(flat), expected)
        assert leaves_are(layout.restructure(flat, out=model), expected)
        layout.stack([model, model])
        np.ones(3) + np.ones(3)  # no flag is left behind


@pytest.mark.parametrize("given", ["f8", "g", "D", "G"])
def test_a_wider_vector_in_a_complex_layout_never_warns(given):
    layout = Layout.of([count(2, dtype=np.complex64)])
    with np.errstate(all="raise"):
        made = layout.restructure(np.array([1e300, 1e-300], given))
    assert reference.same(made[0], np.array([np.inf, 0], np.complex64))


# ---- I5: what is refused, and nothing is written -----------------------------------------------------------------


class Box:
    """An array of autograd, as it looks from outside."""

    __module__ = "autograd.numpy.numpy_boxes"
    __slots__ = ("_value",)

    def __init__(self, value):
        self._value = value


class Tensor:
    __module__ = "torch"

    def __array__(self, dtype=None, copy=None):
        return np.zeros(3)


class JaxTracer:
    __module__ = "jax._src.interpreters.partial_eval"

    def __jax_array__(self):
        raise AssertionError("never asked for")


class ArrayImpl:
    __module__ = "jaxlib._jax"

    def __array__(self, dtype=None, copy=None):
        return np.zeros(3)


class Traced:
    """A traced value: says that it is an array, and is none."""

    __class__ = np.ndarray
    dtype, shape, ndim, size = np.dtype(float), (3,), 1, 3


NOT_A_VECTOR = {
    "2-D": (np.zeros((3, 1)), ValueError, "shape"),
    "population": (np.zeros((2, 3)), ValueError, "population"),
    "0-d": (np.array(1.0), ValueError, "shape"),
    "short": (np.zeros(2), ValueError, "3 elements"),
    "long": (np.zeros(4), ValueError, "3 elements"),
    "integers": (np.zeros(3, int), TypeError, "floats"),
    "mask": (np.zeros(3, bool), TypeError, "floats"),
    "objects": (np.zeros(3, object), TypeError, "floats"),
    "text": (np.zeros(3, "U1"), TypeError, "floats"),
    "list": ([0.0, 0.0, 0.0], TypeError, "list"),
    "tuple": ((0.0, 0.0, 0.0), TypeError, "tuple"),
    "pair": ((np.zeros(3), None), TypeError, "destructure returns"),
    "number": (1.0, TypeError, "float"),
    "none": (None, TypeError, "NoneType"),
    "masked": (np.ma.zeros(3), TypeError, "MaskedArray"),
    "matrix": (np.zeros((1, 3)).view(np.matrix), ValueError, "shape|population"),
    "imaginary": (np.array([0, 0, 1j]), ValueError, "imaginary"),
    "autograd": (Box(np.zeros(3)), TypeError, "autograd"),
    "torch": (Tensor(), TypeError, "detach"),
    "jax": (ArrayImpl(), TypeError, "np.array"),
    "jax tracer": (JaxTracer(), TypeError, "jax"),
}
LOADS = {
    "load": lambda layout, model, flat: layout.bind(model).load(flat),
    "restructure(out=)": lambda layout, model, flat: layout.restructure(flat, out=model),
    "restructure": lambda layout, model, flat: layout.restructure(flat),
}


@pytest.mark.parametrize("name", ["load", "restructure(out=)"])
def test_a_traced_vector_is_not_written_into_arrays(name):
    model = {"weight": count(2), "bias": count(1)}
    before = reference.memory(model)
    with pytest.raises(TypeError, match="being traced"):
        LOADS[name](Layout.of(model), model, Traced())
    assert reference.memory(model) == before


@pytest.mark.parametrize(("given", "error", "word"), NOT_A_VECTOR.values(), ids=NOT_A_VECTOR.keys())
@pytest.mark.parametrize("verb", LOADS.values(), ids=LOADS.keys())
def test_what_is_no_vector_is_refused_and_nothing_written(verb, given, error, word):
    model = {"weight": count(2), "bias": count(1)}
    layout = Layout.of(model)
    before = reference.memory(model)
    with pytest.raises(error, match=word):
        verb(layout, model, given)
    assert reference.memory(model) == before


NOT_OUT = {
    "2-D": (np.zeros((3, 1)), ValueError, "shape"),
    "short": (np.zeros(2), ValueError, "3 elements"),
    "dtype": (np.zeros(3, np.float32), TypeError, "float64"),
    "complex": (np.zeros(3, complex), TypeError, "float64"),
    "integers": (np.zeros(3, int), TypeError, "float64"),
    "swapped": (np.zeros(3, np.dtype("f8").newbyteorder("S")), TypeError, "float64"),
    "list": ([0.0] * 3, TypeError, "list"),
    "masked": (np.ma.zeros(3), TypeError, "MaskedArray"),
    "read-only": (np.broadcast_to(0.0, 3).copy(), ValueError, "read-only"),
    "torch": (Tensor(), TypeError, "out"),
    "traced": (Traced(), TypeError, "trac"),
}
NOT_OUT["read-only"][0].setflags(write=False)
STORES = {
    "store": lambda layout, model, out: layout.bind(model).store(out=out),
    "destructure": lambda layout, model, out: layout.destructure(model, out=out),
    "flatten_grad": lambda layout, model, out: layout.flatten_grad(model, out=out),
}
over_stores = pytest.mark.parametrize("verb", STORES.values(), ids=STORES.keys())


@pytest.mark.parametrize(("out", "error", "word"), NOT_OUT.values(), ids=NOT_OUT.keys())
@over_stores
def test_what_cannot_be_written_is_refused_and_nothing_written(verb, out, error, word):
    model = {"weight": count(2), "bias": count(1)}
    layout = Layout.of(model)
    before = reference.memory(model, out)
    with pytest.raises(error, match=word):
        verb(layout, model, out)
    assert reference.memory(model, out) == before


@pytest.mark.parametrize("step", [2, -1, 3])
@over_stores
def test_a_strided_out_is_written_right_or_refused(verb, step):
    model = {"weight": count(2), "bias": count(1)}
    layout = Layout.of(model)
    block = np.full(64, -7.0)
    out = block[32 : 32 + 3 * step : step]
    others = np.ones(64, bool)
    others[32 : 32 + 3 * step : step] = False
    try:
        verb(layout, model, out)
    except ValueError as error:
        assert "contiguous" in str(error)  # noqa: PT017
        assert np.all(block == -7)
    else:
        assert out.tolist() == [1, 2, 1]
        assert np.all(block[others] == -7)


TREES = {
    "missing": ({"weight": count(2)}, "no parameter at bias"),
    "more": ({"weight": count(2), "bias": count(1), "extra": count(1)}, "extra"),
    "renamed": ({"weight": count(2), "offset": count(1)}, "bias"),
    "shape": ({"weight": count(1, 2), "bias": count(1)}, r"weight has shape \(1, 2\); the layout needs \(2,\)"),
    "dtype": ({"weight": count(2, dtype=np.float32), "bias": count(1)}, "weight is float32"),
    "integer": ({"weight": np.array([1, 2]), "bias": count(1)}, "weight"),
    "array": (count(3), "no parameter"),
    "list": ([count(2), count(1)], "no parameter"),
    "node": ({"weight": {"x": count(2)}, "bias": count(1)}, "weight"),
    "number": ({"weight": 1.0, "bias": count(1)}, "no parameter at weight"),
    "nothing": ({"weight": count(2), "bias": None}, "no parameter at bias"),
    "text": ({"weight": count(2), "bias": "text"}, "no parameter at bias"),
    "tuple": ({"weight": (1.0, 2.0), "bias": count(1)}, "no parameter at weight"),
    "scalar": ({"weight": count(2), "bias": np.float64(1)}, "no parameter at bias"),
    "list of numbers": ({"weight": [1.0, 2.0], "bias": count(1)}, "no parameter at weight"),
}


@pytest.mark.parametrize(("other", "word"), TREES.values(), ids=TREES.keys())
def test_a_tree_of_another_layout_is_refused_and_nothing_written(other, word):
    layout = Layout.of({"weight": count(2), "bias": count(1)})
    layout.destructure({"weight": count(2), "bias": count(1)})
    flat, out = np.full(3, 9.0), np.full(3, 8.0)
    before = reference.memory(other, out)
    for verb in (
        lambda: layout.bind(other),
        lambda: layout.destructure(other),
        lambda: layout.destructure(other, out=out),
        lambda: layout.restructure(flat, out=other),
        lambda: layout.stack([{"weight": count(2), "bias": count(1)}, other]),
    ):
        with pytest.raises(ValueError, match=word):
            verb()
    assert reference.memory(other, out) == before


def test_a_tree_of_nothing_is_refused():
    layout = Layout.of([count(2)])
    for verb in (layout.bind, layout.destructure):
        for nothing in (None, [], {}, [None]):
            with pytest.raises(ValueError, match="no parameter at"):
                verb(nothing)


def test_ties_that_were_lost_or_won_are_refused_with_the_path():
    weight = count(2, 2)
    tied, free = Layout.of({"a": weight, "b": weight.T}), Layout.of({"a": weight, "b": count(2, 2)})
    same = Layout.of({"a": weight, "b": weight})
    cases = [(tied, "free"), (tied, "same"), (free, "tied"), (free, "same"), (same, "free"), (same, "tied")]
    for layout, kind in cases:
        own = count(2, 2)
        other = {"a": own, "b": {"free": count(2, 2), "same": own, "tied": own.T}[kind]}
        before = reference.memory(other)
        with pytest.raises(ValueError, match=r"b is (not )?tied"):
            layout.restructure(np.zeros(layout.size), out=other)
        assert reference.memory(other) == before


def test_a_tree_in_another_order_is_matched_by_path():
    model = {"a": count(2), "b": count(2) + 10}
    flat, layout = nf.destructure(model)
    other = {"b": np.zeros(2), "a": np.zeros(2)}
    layout.restructure(flat, out=other)
    assert other["a"].tolist() == [1, 2]
    assert other["b"].tolist() == [11, 12]
    assert layout.destructure(other).tolist() == flat.tolist()


@pytest.mark.parametrize("verb", ["destructure", "restructure"])
def test_leaves_of_one_shape_are_never_swapped(verb):
    model = zoo.one_shape()
    layout = Layout.of(model)
    if verb == "destructure":
        assert layout.destructure(model).tolist() == reference.destructure(model).tolist()
    else:
        expected = reference.restructure(model, np.arange(16.0))
        assert leaves_are(layout.restructure(np.arange(16.0), out=model), expected)


def test_other_containers_with_the_same_paths_can_be_written():
    flat, layout = nf.destructure(Affine(count(1, 2), count(2)))
    other = {"weight": np.zeros((1, 2)), "bias": np.zeros(2)}
    assert layout.restructure(flat, out=other) is other
    assert other["bias"].tolist() == [1, 2]


@pytest.mark.parametrize("position", range(3))
def test_a_read_only_leaf_is_refused_before_any_write(position):
    model = [count(2), count(2), count(2)]
    layout = Layout.of(model)
    bound = layout.bind(model)
    model[position].setflags(write=False)
    before = reference.memory(model)
    for verb in (bound.load, lambda flat: layout.restructure(flat, out=model)):
        with pytest.raises(ValueError, match=rf"\[{position}\] is read-only"):
            verb(np.zeros(6))
    assert reference.memory(model) == before
    assert bound.store().tolist() == [1, 2, 1, 2, 1, 2]


def test_a_read_only_zoo_tree_can_be_read_and_is_restored_writeable():
    flat, layout = nf.destructure(zoo.read_only())
    assert flat.tolist() == [1, 2, 1, 2, 3, 1]
    assert layout.restructure(flat)["frozen"].flags.writeable


# ---- bind: the tree as it was ------------------------------------------------------------------------------------


def changed(model, bound, change, word, error=StructureChanged):
    """Change the model, then check that load and store refuse, naming the path, and write nothing."""
    change(model)
    out = np.full(bound.layout.size, -1.0, bound.layout.dtype)
    before = reference.memory(model, out)
    with pytest.raises(error, match=word):
        bound.load(np.zeros(bound.layout.size))
    with pytest.raises(error, match=word):
        bound.store(out=out)
    with pytest.raises(error, match=word):
        bound.store()
    assert reference.memory(model, out) == before


REBOUND = {
    "dict": (lambda: {"a": count(2), "b": count(1)}, lambda model: model.update(b=count(1)), "^b was re-bound"),
    "list": (lambda: [count(2), count(1)], lambda model: model.__setitem__(1, count(1)), r"^\[1\] was re-bound"),
    "deleted": (lambda: {"a": count(2), "b": count(1)}, lambda model: model.pop("b"), "^b was re-bound"),
    "popped": (lambda: [count(2), count(1)], lambda model: model.pop(), r"^\[1\] was re-bound"),
    "inserted": (lambda: [count(2), count(2)], lambda model: model.reverse(), r"^\[0\] was re-bound"),
    "attribute": (
        lambda: [zoo.Momentum(count(2), 0.1)],
        lambda model: setattr(model[0], "value", count(2)),
        r"^\[0\]\.value was re-bound",
    ),
    "slot": (lambda: zoo.Slotted(count(2), count(1)), lambda model: setattr(model, "bias", count(1)), "^bias was"),
    "deleted slot": (lambda: zoo.Slotted(count(2), count(1)), lambda model: delattr(model, "bias"), "^bias was"),
    "registered": (lambda: zoo.Scaler(count(2), 0), lambda model: setattr(model, "scale", count(2)), "^scale was"),
    "protocol": (
        lambda: zoo.Stack(count(2), count(1)),
        lambda model: setattr(model, "layers", (model.layers[0], count(1))),
        "^layer1 was re-bound",
    ),
    "node": (
        lambda: {"in": {"a": count(2)}, "b": count(1)},
        lambda model: model.update({"in": {"a": model["in"]["a"]}}),
        "^in was re-bound",
    ),
    "tied": (zoo.tied, lambda model: model.update(decoder=model["encoder"].copy()), "^decoder was re-bound"),
    "ordered": (lambda: zoo.OrderedDict(a=count(2)), lambda model: model.update(a=count(2)), "^a was re-bound"),
    "inside a tuple": (
        lambda: ({"a": count(2)}, count(1)),
        lambda model: model[0].update(a=count(2)),
        r"^\[0\]\.a was re-bound",
    ),
    "none": (lambda: {"a": count(2)}, lambda model: model.update(a=None), "^a was re-bound"),
}


@pytest.mark.parametrize(("make", "change", "word"), REBOUND.values(), ids=REBOUND.keys())
def test_a_leaf_that_was_re_bound_is_refused_and_bind_adopts_it(make, change, word):
    model = make()
    layout = Layout.of(model)
    changed(model, layout.bind(model), change, word)


def test_bind_again_adopts_what_stands_there_now():
    model = {"a": count(2)}
    layout = Layout.of(model)
    model["a"] = np.zeros(2)
    layout.bind(model).load(count(2))
    assert model["a"].tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(3,), (1, 2), (2, 2), (0,)])
def test_a_leaf_that_was_resized_is_refused(shape):
    model = {"a": count(2), "b": count(1)}
    bound = Layout.of(model).bind(model)
    changed(model, bound, lambda model: model["a"].resize(shape, refcheck=False), "^a has shape")


def test_a_leaf_that_was_moved_in_memory_is_followed():
    model = {"a": count(2)}
    bound = Layout.of(model).bind(model)
    model["a"].resize(200_000, refcheck=False)
    model["a"].resize(2, refcheck=False)
    bound.load(np.array([5.0, 6.0]))
    assert model["a"].tolist() == [5, 6]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_leaf_that_was_retyped_is_refused():
    model = {"a": count(2), "b": count(1)}
    bound = Layout.of(model).bind(model)
    changed(model, bound, lambda model: setattr(model["a"], "dtype", "i8"), "^a is int64 now")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_leaf_with_other_strides_is_refused():
    model = {"a": count(2, 2), "b": count(1)}
    bound = Layout.of(model).bind(model)
    changed(model, bound, lambda model: setattr(model["a"], "strides", (8, 16)), "^a has other strides")


def test_bound_knows_its_layout_and_tree_and_pickles_with_them():
    model = {"a": count(2)}
    layout = Layout.of(model)
    bound = layout.bind(model)
    assert bound.layout is layout
    assert bound.tree is model
    again = pickle.loads(pickle.dumps(bound))
    again.load(np.array([8.0, 9.0]))
    assert again.tree["a"].tolist() == [8, 9]
    assert model["a"].tolist() == [1, 2]


def test_structure_changed_is_a_value_error():
    assert issubclass(StructureChanged, ValueError)
    assert nf.StructureChanged is StructureChanged


# ---- overlap of the vector and the model -------------------------------------------------------------------------

BLOCK = 40
OVERLAPS = {
    "its slices": lambda block: ([block[0:6].reshape(2, 3), block[6:10]], block[0:10]),
    "one its slice": lambda block: ([block[0:6].reshape(2, 3), block[20:24]], block[0:10]),
    "shifted on": lambda block: ([block[1:7].reshape(2, 3), block[7:11]], block[0:10]),
    "shifted back": lambda block: ([block[0:6].reshape(2, 3), block[6:10]], block[3:13]),
    "shifted a byte": lambda block: (
        [block.view(np.uint8)[4:52].view(float).reshape(2, 3), block.view(np.uint8)[60:92].view(float)],
        block[0:10],
    ),
    "swapped": lambda block: ([block[4:10].reshape(2, 3), block[0:4]], block[0:10]),
    "reversed": lambda block: ([block[5::-1].reshape(2, 3), block[9:5:-1]], block[0:10]),
    "transposed": lambda block: ([block[0:6].reshape(3, 2).T, block[6:10]], block[0:10]),
    "strided": lambda block: ([block[0:24:4].reshape(2, 3), block[25:33:2]], block[3:13]),
    "flat in the gaps": lambda block: ([block[0:12:2].reshape(2, 3), block[20:24]], block[1:11]),
    "all in one": lambda block: ([block[2:8].reshape(2, 3)[:, ::-1], block[8:12]], block[2:12]),
}


def overlapping(name):
    """Return a model and vector that overlap in one block, and the same apart."""
    block = np.arange(1.0, BLOCK + 1)
    model, flat = OVERLAPS[name](block)
    return block, model, flat


over_overlaps = pytest.mark.parametrize("name", OVERLAPS)


@over_overlaps
def test_load_from_a_vector_inside_the_model_is_as_from_a_copy(name):
    _, model, flat = overlapping(name)
    expected = reference.restructure(model, flat.copy())
    Layout.of(model).restructure(flat, out=model)
    assert leaves_are(model, expected)


@over_overlaps
def test_store_into_a_vector_inside_the_model_is_as_into_a_copy(name):
    _, model, flat = overlapping(name)
    expected = reference.destructure(model)
    Layout.of(model).destructure(model, out=flat)
    assert reference.same(flat, expected)


@over_overlaps
def test_an_overlap_changes_nothing_outside_of_what_is_written(name):
    block, model, flat = overlapping(name)
    untouched = np.ones(BLOCK * 8, bool)
    start = block.__array_interface__["data"][0]
    for leaf in model:
        for address in reference.addresses(leaf):
            untouched[address - start : address - start + 8] = False
    before = block.view(np.uint8)[untouched].copy()
    Layout.of(model).restructure(flat, out=model)
    assert np.array_equal(block.view(np.uint8)[untouched], before)


def test_a_view_is_its_slices_and_loading_it_is_no_work():
    flat, layout = nf.destructure(zoo.nested())
    model = layout.view(flat)
    before = flat.tobytes()
    bound = layout.bind(model)
    assert bound.load(flat) is model
    assert bound.store(out=flat) is flat
    assert flat.tobytes() == before


def test_a_vector_in_a_strided_buffer_of_the_model_is_read_right():
    block = np.arange(1.0, 21)
    model = [block[0:10]]
    flat = block[::2]
    expected = flat.copy()
    Layout.of(model).restructure(flat, out=model)
    assert model[0].tolist() == expected.tolist()


def test_a_vector_of_another_dtype_in_the_models_memory_is_read_right():
    block = np.zeros(16)
    flat = block.view(np.float32)[3:11]
    flat[:] = np.arange(8)
    model = [block[0:4], block[4:8]]
    Layout.of(model).restructure(flat, out=model)
    assert np.concatenate(model).tolist() == list(range(8))



def test_rows_of_a_population_that_are_models_are_stacked_as_copies_are():
    layout = Layout.of([count(2, 2), count(3)])
    population = np.arange(14.0).reshape(2, 7)
    expected = population[::-1].copy()
    models = [layout.view(population[1]), layout.view(population[0])]
    layout.stack(models, out=population)
    assert population.tolist() == expected.tolist()


# ---- population --------------------------------------------------------------------------------------------------


@over_zoo
def test_stack_is_a_row_a_tree(make):
    first, second = make(), make()
    layout = Layout.of(first)
    layout.restructure(shuffled(layout), out=second)
    rows = layout.stack([first, second])
    assert rows.shape == (2, layout.size)
    assert rows.dtype == layout.dtype
    assert reference.same(rows[0], layout.destructure(first))
    assert reference.same(rows[1], layout.destructure(second))
    out = np.zeros_like(rows)
    assert layout.stack([first, second], out=out) is out
    assert reference.same(out, rows)


def test_stack_of_no_trees_has_no_rows():
    assert Layout.of([count(3)]).stack([]).shape == (0, 3)


@pytest.mark.parametrize("order", ["F", "gaps", "columns"])
def test_stack_writes_a_population_of_any_order_or_refuses_it(order):
    block = np.full((8, 24), -7.0)
    out = {"F": np.asfortranarray(block[:2, :3]), "gaps": block[::2, 3:6][:2], "columns": block[:2, ::3][:, :3]}[order]
    before = block.copy()
    layout = Layout.of([count(3)])
    try:
        layout.stack([[count(3)], [count(3) + 3]], out=out)
    except ValueError as error:
        assert "contiguous" in str(error)  # noqa: PT017
        assert np.array_equal(block, before)
    else:
        assert out.tolist() == [[1, 2, 3], [4, 5, 6]]
        out[...] = -7
        assert np.array_equal(block, before)


STACKS = {
    "shape": (np.zeros((3, 3)), ValueError, r"shape \(2, 3\); got shape \(3, 3\)"),
    "vector": (np.zeros(6), ValueError, r"shape \(2, 3\); got shape \(6,\)"),
    "dtype": (np.zeros((2, 3), np.float32), TypeError, "array of float64; got float32"),
    "list": ([[0.0] * 3] * 2, TypeError, "array of float64; got list"),
}


@pytest.mark.parametrize(("out", "error", "word"), STACKS.values(), ids=STACKS.keys())
def test_a_wrong_population_is_refused_with_what_came(out, error, word):
    with pytest.raises(error, match=word):
        Layout.of([count(3)]).stack([[count(3)]] * 2, out=out)


def test_a_population_where_a_vector_is_wanted_says_so():
    layout = Layout.of([count(3)])
    for verb in (layout.view, layout.restructure):
        with pytest.raises(ValueError, match=r"population of shape \(5, 3\)"):
            verb(np.zeros((5, 3)))


@pytest.mark.parametrize("pop", [1, 5])
def test_leaves_of_a_population_have_its_axis_first(pop):
    layout = Layout.of({"weight": count(3, 2), "bias": count(2)})
    rows = np.arange(pop * 8.0).reshape(pop, 8)
    leaves = layout.leaves(rows)
    assert {name: leaf.shape for name, leaf in leaves.items()} == {"weight": (pop, 3, 2), "bias": (pop, 2)}
    leaves["bias"][...] = -1
    assert np.all(rows[:, 6:] == -1)


def test_leaves_of_a_tied_model_are_there_under_each_name():
    layout = Layout.of(zoo.tied_by_permutation())
    leaves = layout.leaves(np.arange(48.0).reshape(2, 24))
    assert [leaf.shape for leaf in leaves.values()] == [(2, 3, 4, 2), (2, 2, 3, 4), (2, 4, 2, 3)]
    assert np.array_equal(leaves["[0]"], leaves["[1]"].transpose(0, 2, 3, 1))
    assert np.array_equal(leaves["[2]"], leaves["[1]"].transpose(0, 3, 1, 2))


@pytest.mark.parametrize("shape", [(), (7,), (2, 7), (1, 2, 8), (8, 1)])
def test_leaves_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"\(8,\) or population \(pop, 8\)"):
        Layout.of([count(8)]).leaves(np.zeros(shape))


@pytest.mark.parametrize("given", [[0.0] * 8, None, Tensor(), Box(np.zeros(8))])
def test_leaves_of_no_array_are_refused(given):
    with pytest.raises(TypeError, match="NumPy array"):
        Layout.of([count(8)]).leaves(given)



def test_leaves_of_pairs_in_half_precision_are_complex_or_refused():
    flat, layout = nf.destructure([count(2) * (1 + 1j)], dtype=np.float16)
    with pytest.raises(TypeError, match="float16"):
        layout.leaves(flat)


# ---- view --------------------------------------------------------------------------------------------------------


def test_a_view_of_a_strided_vector_shares_it():
    layout = Layout.of(zoo.tied_by_transpose())
    block = np.arange(24.0)
    for flat in (block[::4], block[5::-1], block[:12:2]):
        model = layout.view(flat)
        assert np.array_equal(model["embed"], flat.reshape(3, 2))
        assert np.array_equal(model["project"], flat.reshape(3, 2).T)
        model["project"][...] = -1
        assert np.all(flat == -1)


def test_a_view_of_a_read_only_vector_is_read_only():
    flat, layout = nf.destructure(zoo.dense())
    flat.setflags(write=False)
    assert not any(leaf.flags.writeable for leaf in tree.leaves(layout.view(flat)))


def test_a_view_of_an_unaligned_vector_says_that_it_is_unaligned():
    layout = Layout.of([count(3)])
    flat = zoo.unaligned(count(3))
    leaf = layout.view(flat)[0]
    assert leaf.flags.aligned == flat.flags.aligned
    assert leaf.tolist() == [1, 2, 3]


def test_a_view_of_a_memory_map_writes_the_map(tmp_path):
    file = tmp_path / "flat"
    layout = Layout.of([count(2, 2)])
    flat = np.memmap(file, float, "w+", shape=4)
    layout.view(flat)[0][...] = 3
    flat.flush()
    assert np.fromfile(file).tolist() == [3, 3, 3, 3]


def test_a_view_keeps_the_vector_alive():
    layout = Layout.of([count(1000)])
    model = layout.view(np.arange(1000.0))
    gc.collect()
    assert model[0].tolist() == list(range(1000))



def test_a_view_with_an_empty_leaf_of_another_dtype_needs_no_cast():
    flat, layout = nf.destructure(zoo.empty_leaf())
    assert [leaf.dtype for leaf in layout.view(flat)] == [np.float64, np.float32, np.float64]


@pytest.mark.parametrize("key", [name for name in NOT_A_VECTOR if name not in ("traced", "imaginary")])
def test_a_view_of_what_is_no_vector_is_refused(key):
    given, error, word = NOT_A_VECTOR[key]
    with pytest.raises(error, match=word):
        Layout.of([count(3)]).view(given)


# ---- lift --------------------------------------------------------------------------------------------------------


def total(model, x=0.0):
    return sum(leaf.sum() for leaf in tree.leaves(model)) + x


def test_lift_gives_a_function_of_the_vector():
    flat, layout = nf.destructure(zoo.nested())
    assert layout.lift(total)(flat) == flat.sum()
    assert layout.lift(total)(flat, x=1.0) == flat.sum() + 1
    assert layout.lift(lambda x, model: total(model, x), argnum=1)(2.0, flat) == flat.sum() + 2


def test_lift_sees_the_vector_itself():
    flat, layout = nf.destructure(zoo.dense())
    layout.lift(lambda model: model["bias"].fill(9))(flat)
    assert flat[layout["bias"]].tolist() == [9] * 4


def test_lifted_functions_are_equal_where_layout_function_and_argument_are():
    one, two = Layout.of(zoo.dense()), Layout.of(zoo.dense())
    assert one.lift(total) == two.lift(total)
    assert hash(one.lift(total)) == hash(two.lift(total))
    assert len({one.lift(total), two.lift(total)}) == 1
    assert one.lift(total) != one.lift(total, argnum=1)
    assert one.lift(total) != one.lift(sum)
    assert one.lift(total) != Layout.of([count(16)]).lift(total)


def test_a_lifted_function_pickles():
    flat, layout = nf.destructure(zoo.dense())
    assert pickle.loads(pickle.dumps(layout.lift(np.size)))(flat) == np.size(zoo.dense())


def test_a_lifted_function_without_its_vector_says_what_is_missing():
    with pytest.raises(TypeError, match="argument 1"):
        Layout.of([count(1)]).lift(total, argnum=1)(count(1))



def test_a_negative_argument_of_lift_counts_from_the_end_or_is_refused():
    flat, layout = nf.destructure([count(2)])
    try:
        lifted = layout.lift(lambda x, model: total(model, x), argnum=-1)
    except (TypeError, ValueError) as error:
        assert "argnum" in str(error)  # noqa: PT017
    else:
        assert lifted(1.0, flat) == 4


# ---- flatten_grad ------------------------------------------------------------------------------------------------


@over_zoo
def test_gradients_of_untied_leaves_stand_as_the_leaves_do(make):
    model = make()
    flat, layout = nf.destructure(model)
    if not layout.ties:
        assert reference.same(layout.flatten_grad(model), flat)


@over_zoo
def test_gradients_of_tied_leaves_are_summed(make):
    model = make()
    layout = Layout.of(model)
    found, size = reference.positions(model, layout.dtype)
    expected = np.zeros(size, layout.dtype)
    grads = {path: leaf.copy() for path, leaf in reference.items(model)}
    for path, leaf in reference.items(model):
        for address, value in zip(reference.addresses(leaf), grads[path].reshape(-1), strict=True):
            expected[found[address]] += value
    assert reference.same(layout.flatten_grad(model), expected)


def test_the_gradient_of_a_transpose_is_summed_transposed():
    layout = Layout.of(zoo.tied_square())
    grads = {"embed": count(3, 3), "project": 100 * count(3, 3)}
    assert np.array_equal(layout.flatten_grad(grads).reshape(3, 3), grads["embed"] + grads["project"].T)


def test_one_gradient_array_at_two_places_is_no_tie():
    layout = Layout.of({"x": count(2), "y": count(2)})
    grad = np.array([1.0, 2.0])
    assert layout.flatten_grad({"x": grad, "y": grad}).tolist() == [1, 2, 1, 2]


def test_none_stands_for_no_gradient_of_a_leaf_a_node_or_all():
    layout = Layout.of({"a": {"b": count(2), "c": count(1)}, "d": count(1)})
    d = np.array([5.0])
    assert layout.flatten_grad({"a": {"b": None, "c": d}, "d": d}).tolist() == [0, 0, 5, 5]
    assert layout.flatten_grad({"a": None, "d": d}).tolist() == [0, 0, 0, 5]
    assert layout.flatten_grad(None).tolist() == [0, 0, 0, 0]


def test_none_at_one_of_two_tied_places_leaves_the_other():
    layout = Layout.of(zoo.tied())
    grads = {"encoder": None, "decoder": count(3, 2), "bias": None}
    assert layout.flatten_grad(grads).tolist() == [1, 2, 3, 4, 5, 6, 0, 0]


def test_gradients_at_static_places_are_ignored():
    layout = Layout.of(zoo.Scaler(count(2), count(2)))
    assert layout.flatten_grad({"scale": count(2), "mean": 9 * count(2)}).tolist() == [1, 2]


GRADS = {
    "missing": ({"a": count(2)}, "no gradient at b"),
    "shape": ({"a": count(2), "b": count(2)}, r"b has shape \(2,\); the layout needs \(1,\)"),
    "stray": ({"a": count(2), "b": count(1), "c": count(1)}, "gradient at c"),
    "complex": ({"a": count(2), "b": count(1) * 1j}, "b is complex"),
}


@pytest.mark.parametrize(("grads", "word"), GRADS.values(), ids=GRADS.keys())
def test_wrong_gradients_are_refused_with_the_path_and_out_left_alone(grads, word):
    out = np.full(3, 7.0)
    with pytest.raises(ValueError, match=word):
        Layout.of({"a": count(2), "b": count(1)}).flatten_grad(grads, out=out)
    assert out.tolist() == [7, 7, 7]


@pytest.mark.parametrize("came", [1.0, 1, "one", np.ones(1, int), np.int64(1)])
def test_a_gradient_that_is_no_array_of_floats_is_refused_with_what_came(came):
    with pytest.raises(TypeError, match="gradient at b must be an array of floats; got"):
        Layout.of({"a": count(2), "b": count(1)}).flatten_grad({"a": count(2), "b": came})


def test_the_gradient_of_a_leaf_without_axes_may_be_a_scalar():
    layout = Layout.of({"a": np.array(2.0), "b": count(1)})
    assert layout.flatten_grad({"a": np.float64(3), "b": count(1)}).tolist() == [3, 1]


def test_gradients_are_cast_to_the_vector_without_a_warning():
    layout = Layout.of([count(2, dtype=np.float32)])
    with np.errstate(all="raise"):
        made = layout.flatten_grad([np.array([1e300, 1e-300])])
    assert reference.same(made, np.array([np.inf, 0], np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gradients_of_pairs_are_pairs(dtype):
    layout = Layout.of([count(2), count(1) * 1j], dtype=dtype)
    assert layout.flatten_grad([count(2), np.array([3 + 4j])]).tolist() == [1, 2, 3, 4]


def test_out_may_be_the_memory_of_the_gradients():
    layout = Layout.of({"a": count(2), "b": count(2)})
    out = np.arange(4.0)
    layout.flatten_grad({"a": out[2:], "b": out[:2]}, out=out)
    assert out.tolist() == [2, 3, 0, 1]


# ---- names -------------------------------------------------------------------------------------------------------


@over_zoo
def test_a_layout_is_a_mapping_of_paths_and_names_to_slices(make):
    model = make()
    layout = Layout.of(model)
    assert len(layout) == len(layout.paths) == len(list(layout))
    assert list(layout) == [tree.format_path(path) for path in layout.paths]
    for path, leaf in reference.items(model):
        assert layout[path] == layout[tree.format_path(path)]
        assert path in layout
        where = layout[path]
        assert where.stop - where.start == leaf.size * reference.lanes(leaf, layout.dtype)
    assert "no such leaf" not in layout


@over_zoo
def test_path_of_finds_each_element(make):
    layout = Layout.of(make())
    for index in range(min(layout.size, 2000)):
        where = layout[layout.path_of(index)]
        assert where.start <= index < where.stop
    if layout.size:
        assert layout.path_of(-1) == layout.path_of(layout.size - 1)
        assert layout.path_of(np.int32(0)) == layout.path_of(0)
    for index in (layout.size, -layout.size - 1):
        with pytest.raises(IndexError, match="outside"):
            layout.path_of(index)


def test_path_of_needs_an_integer():
    with pytest.raises(TypeError):
        Layout.of([count(2)]).path_of(1.0)


def test_a_node_has_the_slice_of_all_its_leaves():
    layout = Layout.of(zoo.nested())
    assert layout["layers"] == slice(0, 11)
    assert layout["layers[0]"] == layout[("layers", 0)] == slice(0, 7)
    assert layout["layers[0].bias"] == slice(4, 7)
    assert layout["layers[0].bias[1].deep"] == slice(5, 7)
    assert layout[()] == layout["<root>"] == slice(0, 11)


def test_a_node_whose_leaves_do_not_stand_together_says_so():
    weight = count(2)
    layout = Layout.of([{"w": weight}, {"b": count(1)}, {"v": count(1), "w": weight}])
    with pytest.raises(KeyError, match="do not stand together"):
        layout[(2,)]
    assert layout["[2].v"] == slice(3, 4)


@pytest.mark.parametrize("key", ["layer", "layers[9]", ("layers", 9), 3, None, [1], ("layers", [1])])
def test_an_unknown_name_is_a_key_error_that_names_what_is_there(key):
    with pytest.raises(KeyError, match="no parameter at"):
        Layout.of(zoo.nested())[key]
    with pytest.raises(KeyError, match="no parameter at"):
        Layout.of(zoo.nested()).fill({"layer": 1.0}, default=0.0)


def test_a_near_name_is_suggested():
    with pytest.raises(KeyError, match="did you mean weight"):
        Layout.of(zoo.dense())["wieght"]


# ---- fill --------------------------------------------------------------------------------------------------------


def test_fill_gives_a_value_a_path():
    layout = Layout.of(zoo.nested())
    made = layout.fill({"layers[0]": 2.0, ("layers", 0, "weight"): 3.0}, default=1.0)
    assert made.tolist() == [3] * 4 + [2] * 3 + [1] * 4
    assert made.dtype == layout.dtype


def test_longer_paths_win_whatever_the_order():
    layout = Layout.of(zoo.nested())
    values = {("layers", 0, "weight"): 3.0, "layers": 2.0, (): 7.0}
    assert layout.fill(values, default=1.0).tolist() == [3] * 4 + [2] * 7


def test_fill_of_bools_is_a_mask():
    layout = Layout.of(zoo.dense())
    mask = layout.fill({"bias": False}, default=True)
    assert mask.dtype == bool
    assert mask.tolist() == [True] * 12 + [False] * 4
    assert layout.fill({"bias": 0.5}, default=True).dtype == np.float32


def test_fill_takes_arrays_that_broadcast_to_the_leaf():
    layout = Layout.of({"weight": count(2, 3), "bias": count(3)})
    made = layout.fill({"weight": np.array([1.0, 2.0, 3.0])}, default=0.0)
    assert made.tolist() == [1, 2, 3, 1, 2, 3, 0, 0, 0]
    with pytest.raises(ValueError, match=r"weight needs .* shape \(2, 3\); got \(2,\)"):
        layout.fill({"weight": np.zeros(2)}, default=0.0)



def test_fill_of_a_transposed_tie_takes_the_array_as_that_place_sees_it():
    for layout, shape in ((Layout.of(zoo.tied_by_transpose()), (2, 3)), (Layout.of(zoo.tied_square()), (3, 3))):
        values = count(*shape)
        assert np.array_equal(layout.fill({"project": values}, default=0.0), values.T.reshape(-1))


def test_fill_of_pairs_gives_both_parts_the_value():
    layout = Layout.of({"a": count(1), "z": count(2) * 1j}, dtype=np.float64)
    assert layout.fill({"z": 2.0}, default=1.0).tolist() == [1, 2, 2, 2, 2]
    assert layout.fill({"z": np.array([2.0, 3.0])}, default=1.0).tolist() == [1, 2, 2, 3, 3]


def test_fill_of_a_complex_vector_is_real():
    assert Layout.of(zoo.complex_leaves()).fill({"gain": 2.0}, default=1.0).dtype == np.float64


# ---- where -------------------------------------------------------------------------------------------------------


def test_where_makes_leaves_static_in_one_layout():
    model = {"weight": count(2), "bias": count(1)}
    flat, layout = nf.destructure(model, where=lambda path, leaf: path[-1] == "weight")
    assert flat.tolist() == [1, 2]
    assert list(layout.statics) == [("bias",)]
    model["bias"][:] = 9
    again = layout.restructure(10 * flat)
    assert again["weight"].tolist() == [10, 20]
    assert again["bias"].tolist() == [1]
    layout.restructure(10 * flat, out=model)
    assert model["weight"].tolist() == [10, 20]
    assert model["bias"].tolist() == [9]


def test_where_sees_each_parameter_and_its_path():
    seen = []
    model = zoo.nested()
    Layout.of(model, where=lambda path, leaf: seen.append((path, id(leaf))) or True)
    assert seen == [(path, id(leaf)) for path, leaf in reference.items(model)]


@pytest.mark.parametrize("make", [zoo.tied, zoo.tied_by_view, zoo.tied_by_transpose, zoo.tied_by_permutation])
def test_where_must_take_all_of_a_tie_or_nothing(make):
    model = make()
    first = reference.items(model)[0][0]
    with pytest.raises(ValueError, match="where= must take both or none"):
        nf.destructure(model, where=lambda path, leaf: path != first)
    with pytest.raises(ValueError, match="where= must take both or none"):
        nf.destructure(model, where=lambda path, leaf: path == first)
    assert Layout.of(model, where=lambda path, leaf: False).size == 0


def test_where_must_not_cut_an_overlap():
    block = count(6)
    with pytest.raises(ValueError, match="share memory"):
        nf.destructure({"a": block[:4], "b": block[2:]}, where=lambda path, leaf: path == ("a",))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
def test_the_dtype_of_a_layout_is_numpys_own_object(dtype):
    """Checks by identity would take another one, equal to it, for a dtype that needs a cast."""
    swapped = np.zeros(2, np.dtype(dtype).newbyteorder("S"))
    for leaves in ([np.zeros(2, dtype)], [swapped]):
        for layout in (Layout.of(leaves), Layout.of(leaves, dtype=swapped.dtype), Layout.of(leaves).astype(dtype)):
            assert layout.dtype is np.dtype(dtype)


def test_trees_are_stacked_into_rows_that_are_no_piece_of_memory():
    trees = [{"a": np.full(2, k), "b": np.full((1, 3), -k)} for k in (1.0, 2.0)]
    layout, out = Layout.of(trees[0]), np.zeros((2, 10))
    layout.stack(trees, out=out[:, ::2])
    assert out[:, ::2].tolist() == [[1, 1, -1, -1, -1], [2, 2, -2, -2, -2]]
    assert not out[:, 1::2].any()
