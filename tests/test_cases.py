"""Small cases from reports about other libraries, by number, each with neighbours; and Optimisers.jl's own models."""

import copy
import gc
import pickle
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import reference
from zoo import Affine, Pair, count

import nnflat as nf
from nnflat import tree


def round_trip(model):
    flat, layout = nf.destructure(model)
    return flat, layout, layout.restructure(flat)


# ---- ties --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [list, tuple, lambda nodes: dict(zip("ab", nodes, strict=True)), lambda n: Pair(*n)])
def test_c01_a_shared_layer_counts_once_in_vector_and_gradient(wrap):
    layer = {"w": count(2, 3), "b": count(3)}
    model = wrap([layer, layer])
    flat, layout, again = round_trip(model)
    assert flat.size == 9
    leaves = tree.leaves(again)
    assert leaves[0] is leaves[2]
    assert leaves[1] is leaves[3]
    assert layout.flatten_grad(model).size == 9


def test_c03_equal_gradient_objects_are_no_tie():
    layout = nf.Layout.of({"x": count(2), "y": count(2)})
    grad = count(2)
    assert layout.flatten_grad({"x": grad, "y": grad}).tolist() == [1, 2, 1, 2]
    shared = nf.Layout.of({"x": (w := count(2)), "y": w})
    assert shared.flatten_grad({"x": grad, "y": grad}).tolist() == [2, 4]


def test_c05_a_shared_bias_has_one_slot_and_three_paths():
    bias = count(3)
    layer = {"weight": count(2, 3), "bias": bias}
    _, layout, again = round_trip({"bias": bias, "lin": layer, "clone": layer})
    assert layout.size == 9
    assert layout.ties == {
        ("lin", "bias"): ("bias",),
        ("clone", "weight"): ("lin", "weight"),
        ("clone", "bias"): ("bias",),
    }
    assert all(name in str(layout) for name in ("lin.bias", "clone.bias"))
    assert again["bias"] is again["lin"]["bias"] is again["clone"]["bias"]


def test_c07_a_tied_leaf_is_reached_under_either_name():
    weight = count(2)
    model = {"weight": weight, "tied": {"weight": weight}}
    flat, layout, _ = round_trip(model)
    for name in ("weight", "tied.weight"):
        flat[layout[name]] = [7, 8]
        layout.restructure(flat, out=model)
        assert model["weight"].tolist() == model["tied"]["weight"].tolist() == [7, 8]
        made = tree.replace(model, {name: np.zeros(2)})
        assert made["weight"] is made["tied"]["weight"]


def test_c11_size_length_table_and_slices_agree_on_a_tied_model():
    weight = count(3, 3)
    flat, layout, _ = round_trip([weight, weight.T, {"x": weight, "y": count(2)}])
    unique = {(where.start, where.stop) for where in (layout[name] for name in layout.leaves(flat))}
    assert layout.size == len(flat) == layout.offsets[-1] == 11
    assert sum(stop - start for start, stop in unique) == 11
    assert "11 parameters in 2 leaves" in str(layout)


def test_c13_equal_values_are_no_tie():
    assert nf.destructure({"a": np.array(4.0), "b": np.array(4.0)})[0].tolist() == [4, 4]
    assert nf.destructure({"a": np.float64(4.0), "b": np.float64(4.0)})[0].size == 0


@pytest.mark.parametrize("alias", [lambda w: w, lambda w: w[:], lambda w: w.T], ids=["same", "view", "transpose"])
def test_c17_sharing_needs_no_wrapper(alias):
    weight = count(3, 3)
    flat, _, again = round_trip({"in": {"w": weight}, "out": [alias(weight)]})
    assert flat.size == 9
    again["in"]["w"][0, 1] = -1
    assert np.array_equal(again["out"][0], alias(again["in"]["w"]))


@pytest.mark.parametrize("alias", [lambda w: w[:], lambda w: w.T], ids=["view", "transpose"])
def test_c61_a_tie_that_a_pickle_lost_is_refused_not_mis_sliced(alias):
    weight = count(3, 3)
    model = {"a": weight, "b": alias(weight), "c": count(1)}
    layout = nf.Layout.of(model)
    for lost in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert nf.destructure(lost)[0].size == 19
        before = reference.memory(lost)
        for verb in (layout.bind, layout.destructure, lambda tree: layout.restructure(np.zeros(10), out=tree)):
            with pytest.raises(ValueError, match="b is not tied in the tree"):
                verb(lost)
        assert reference.memory(lost) == before


def test_c61_a_layout_and_model_pickled_together_still_fit():
    weight = count(3, 3)
    model, layout = pickle.loads(pickle.dumps(({"a": weight, "b": weight}, nf.Layout.of({"a": weight, "b": weight}))))
    assert layout.destructure(model).size == 9


# ---- dtypes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flat", [np.array([True, False]), np.array([1, 2]), np.array([1, 2], np.uint8)])
def test_c19_a_mask_is_never_silently_made_float(flat):
    layout = nf.Layout.of([count(2)])
    for verb in (layout.restructure, layout.view, layout.bind([count(2)]).load):
        with pytest.raises(TypeError, match=r"floats|dtype"):
            verb(flat)


def test_c23_dtypes_and_values_do_not_drift():
    model = [(count(3) / 3).astype(dtype) for dtype in ("f2", "f4", "f8", "c8", ">f4", "c16")]
    before = reference.memory(model)
    flat, layout = nf.destructure(model)
    for _ in range(100):
        flat = layout.destructure(model, out=flat)
        layout.restructure(flat, out=model)
        model = layout.restructure(flat)
    assert reference.memory(model) == before
    assert [leaf.dtype for leaf in model] == ["f2", "f4", "f8", "c8", ">f4", "c16"]


def test_c25_a_buffer_of_the_wrong_dtype_is_refused_before_any_write():
    layout = nf.Layout.of([count(2, dtype=np.float32)])
    buffer = np.full(2, 7.0)
    with pytest.raises(TypeError, match="out must be an array of float32; got float64"):
        layout.destructure([count(2, dtype=np.float32)], out=buffer)
    assert buffer.tolist() == [7, 7]
    assert layout.dtype == np.float32


def test_c27_a_float32_model_gives_a_float64_vector_for_scipy():
    model = [count(2, dtype=np.float32)]
    flat, layout = nf.destructure(model, dtype=np.float64)
    assert flat.dtype == np.float64
    step = layout.astype(np.float64).restructure(flat + 1e-9)
    assert step[0].tolist() == [1 + 1e-9, 2 + 1e-9]
    assert layout.restructure(flat)[0].dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_c29_complex_parameters_are_pairs_in_a_real_vector(dtype):
    model = [count(2), np.array([1 + 2j, 3 - 4j, -5j])]
    flat, layout = nf.destructure(model, dtype=dtype)
    assert flat.dtype == dtype
    assert flat.tolist() == [1, 2, 1, 2, 3, -4, 0, -5]
    again = layout.restructure(flat)
    assert again[1].tolist() == model[1].tolist()
    assert layout.flatten_grad(model).tolist() == flat.tolist()


# ---- order and containers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda items: defaultdict(list, items)])
def test_c31_c33_keys_keep_their_order_in_every_kind_of_dict(kind):
    _, layout, again = round_trip(kind({"z": count(2), "a": count(1), "m": count(1)}))
    assert dict(layout) == {"z": slice(0, 2), "a": slice(2, 3), "m": slice(3, 4)}
    assert list(again) == ["z", "a", "m"]


def test_c35_models_in_another_order_are_never_swapped():
    flat, layout = nf.destructure({"a": count(2), "b": 10 * count(2)})
    other = {"b": np.zeros(2), "a": np.zeros(2)}
    layout.bind(other).load(flat)
    assert other["a"].tolist() == [1, 2]
    assert other["b"].tolist() == [10, 20]
    assert layout.stack([other])[0].tolist() == flat.tolist()
    assert layout.flatten_grad(other).tolist() == flat.tolist()
    assert nf.Layout.of(other) != layout


@pytest.mark.parametrize(
    "model", [[count(2), count(1)], ({"a": count(2)}, {"a": count(1)}), [Affine(count(2), count(1))], [[[[count(3)]]]]]
)
def test_c37_any_container_works(model):
    flat, _, again = round_trip(model)
    assert flat.size == 3
    assert reference.containers(again) == reference.containers(model)


def test_c41_the_pair_that_destructure_returns_is_no_vector():
    flat, layout = nf.destructure([count(2)])
    for verb in (layout.restructure, layout.view, layout.leaves, layout.bind([count(2)]).load):
        with pytest.raises(TypeError, match=r"tuple: destructure returns \(flat, layout\)"):
            verb((flat, layout))


def test_c43_equal_sizes_do_not_excuse_other_shapes():
    model = {"w": count(2, 3)}
    layout = nf.Layout.of(model)
    bound = layout.bind(model)
    model["w"] = count(3, 2)
    with pytest.raises(ValueError, match=r"w has shape \(3, 2\); the layout needs \(2, 3\)"):
        layout.restructure(np.zeros(6), out=model)
    with pytest.raises(nf.StructureChanged, match="w"):
        bound.load(np.zeros(6))
    assert model["w"].tolist() == count(3, 2).tolist()


@pytest.mark.parametrize("empty", [{}, [], (), None, {"a": []}, [None, {}]], ids=repr)
def test_c45_an_empty_tree_gives_a_vector_of_length_zero(empty):
    flat, layout = nf.destructure(empty)
    assert flat.shape == (0,)
    assert layout.restructure(flat) == empty
    assert layout.view(flat) == empty
    assert layout.bind(empty).load(flat) == empty
    assert layout.stack([empty, empty]).shape == (2, 0)
    for wrong in (np.zeros(3), np.array(0.0)):
        with pytest.raises(ValueError, match="0 elements"):
            layout.restructure(wrong)


def test_c47_a_0d_array_is_a_parameter_and_a_number_is_not():
    model = {"w": count(2), "t": np.array(2.0), "rate": 2.0}
    flat, layout, again = round_trip(model)
    assert flat.tolist() == [1, 2, 2]
    assert again["t"].shape == ()
    assert isinstance(again["t"], np.ndarray)
    temperature = model["t"]
    layout.restructure(np.array([3.0, 4, 5]), out=model)
    assert model["t"] is temperature
    assert temperature == 5
    assert layout.view(flat)["t"].shape == ()
    assert str(layout).splitlines()[-2].split() == ["rate", "2.0", "float", "static"]


@pytest.mark.parametrize("pop", [1, 3, 5])
def test_c49_a_population_is_not_mixed_up_with_a_leaf(pop):
    layout = nf.Layout.of({"w": count(3, 3), "b": count(3)})
    population = np.arange(pop * 12.0).reshape(pop, 12)
    leaves = layout.leaves(population)
    assert (leaves["w"].shape, leaves["b"].shape) == ((pop, 3, 3), (pop, 3))
    row = layout.restructure(population[0])
    assert (row["w"].shape, row["b"].shape) == ((3, 3), (3,))
    with pytest.raises(ValueError, match="population"):
        layout.restructure(population)


def test_c51_a_layout_of_the_same_length_but_other_shapes_is_refused():
    one, other = {"w": count(2, 3)}, {"w": count(3, 2)}
    with pytest.raises(ValueError, match="w has shape"):
        nf.Layout.of(one).restructure(np.zeros(6), out=other)
    with pytest.raises(ValueError, match="w has shape"):
        nf.Layout.of(one).destructure(other)


def test_c53_a_freed_array_is_never_touched():
    class Net:
        def __init__(self):
            self.W = count(1000)

    tree.register(Net)
    model = Net()
    layout = nf.Layout.of(model)
    bound = layout.bind(model)
    model.W = np.zeros(1000)
    gc.collect()
    with pytest.raises(nf.StructureChanged, match="W was re-bound"):
        bound.load(count(1000))
    assert not model.W.any()
    layout.restructure(count(1000), out=model)
    assert model.W.tolist() == count(1000).tolist()


@pytest.mark.parametrize("make", [lambda a: iter([a]), lambda a: (x for x in [a]), lambda a: [iter([a])]])
def test_c55_an_iterator_is_refused_not_used_up(make):
    iterator = make(count(2))
    with pytest.raises(TypeError, match="iterator"):
        nf.destructure(iterator)


def test_c57_the_tree_that_is_returned_is_the_one_that_was_written():
    model = {"w": count(2)}
    flat, layout = nf.destructure(model)
    assert layout.restructure(flat, out=model) is model
    bound = layout.bind(model)
    assert bound.load(flat) is model is bound.tree


def test_c59_a_model_and_a_vector_stay_apart_unless_it_is_a_view():
    model = {"w": count(2)}
    flat, layout = nf.destructure(model)
    layout.restructure(flat, out=model)
    model["w"] += 1
    assert flat.tolist() == [1, 2]
    new = layout.restructure(flat)
    new["w"] += 1
    assert flat.tolist() == [1, 2]
    layout.view(flat)["w"][...] += 1
    assert flat.tolist() == [2, 3]


def test_c63_flattening_twice_gives_the_same_and_disturbs_nothing():
    model = {"w": np.asfortranarray(count(2, 3)), "b": [count(1)]}
    flat, layout = nf.destructure(model)
    again, other = nf.destructure(model)
    third, new = nf.destructure(layout.restructure(flat))
    assert layout == other == new
    assert flat.tolist() == again.tolist() == third.tolist()
    layout.restructure(0 * flat, out=model)
    assert not layout.destructure(model).any()


# ---- memory ------------------------------------------------------------------------------------------------------

WINDOWS = {
    "column": lambda u: u[:, 1:2],
    "every second row": lambda u: u[::2],
    "reversed rows": lambda u: u[::-1],
    "reversed columns": lambda u: u[:, ::-2],
    "transposed": lambda u: u.T,
    "permuted": lambda u: u[:4].reshape(2, 2, 5).transpose(2, 0, 1),
    "diagonal": lambda u: np.lib.stride_tricks.as_strided(u, (5,), (6 * 8,)),
    "one element": lambda u: u[2:3, 3],
    "0-d": lambda u: u[2, 3, ...],
    "empty": lambda u: u[3:3],
}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS.keys())
def test_c65_c71_any_window_is_copied_right(window):
    block = count(6, 5)
    model = [window(block)]
    flat, layout = nf.destructure(model)
    assert flat.tolist() == [model[0][index] for index in np.ndindex(model[0].shape)]
    layout.restructure(-flat, out=model)
    assert model[0].reshape(-1).tolist() == (-flat).tolist()
    assert np.count_nonzero(block < 0) == flat.size
    assert layout.restructure(flat)[0].shape == model[0].shape


@pytest.mark.parametrize("shape", [(4096, 3), (3, 4096), (1, 4096)])
def test_c67_column_major_leaves_are_right(shape):
    leaf = np.asfortranarray(count(*shape))
    flat, layout = nf.destructure([leaf])
    assert np.array_equal(flat, leaf.ravel())
    again = layout.restructure(flat)[0]
    assert np.array_equal(again, leaf)
    assert again.flags.f_contiguous


def test_c69_a_broadcast_leaf_is_refused():
    with pytest.raises(ValueError, match=r"layers\.w has stride 0"):
        nf.destructure({"layers": {"w": np.broadcast_to(count(3), (4, 3))}})


@pytest.mark.parametrize("value", [None, 5 * count(2), np.array([9])])
def test_c75_gradients_of_statics_are_not_copied_through(value):
    layout = nf.Layout.of({"w": count(1), "frozen": count(2)}, where=lambda path, leaf: path != ("frozen",))
    assert layout.flatten_grad({"w": count(1), "frozen": value}).tolist() == [1]


# ---- the models of Optimisers.jl ---------------------------------------------------------------------------------


class Partial:
    """Three pairs of function and vector, of which the first is trainable."""

    def __init__(self, *pairs):
        self.x, self.y, self.z = pairs


class Foo:
    def __init__(self, x, y):
        self.x, self.y = x, y


tree.register(Partial, static=("y", "z"))
tree.register(Foo)


def vector(*values):
    return np.array(values, float)


def models():
    m1 = vector(1, 2, 3)
    m3 = {"x": m1, "y": np.sin, "z": vector(4, 5, 6)}
    m4 = {"x": m1, "y": m1, "z": vector(4, 5, 6)}
    matrix = np.array([[4, 5], [6, 7]], np.float32)
    return {
        1: m1,
        2: (m1, vector(4, 5, 6)),
        3: m3,
        4: m4,
        5: {"a": (m3, True), "b": (m1, False), "c": (m4, True)},
        6: {"a": m1, "b": np.array([4 + 1j]), "c": m1},
        7: Partial((np.sin, m1), (np.cos, vector(4, 5, 6)), (np.tan, vector(7, 8, 9))),
        8: [Foo(m1, m1), {"a": True, "b": Foo(vector(4), False), "c": ()}, [[vector(5)]]],
        9: {"a": m1, "b": matrix, "c": [matrix, m1]},
    }


FLATS = {
    1: [1, 2, 3],
    2: [1, 2, 3, 4, 5, 6],
    3: [1, 2, 3, 4, 5, 6],
    4: [1, 2, 3, 4, 5, 6],
    5: [1, 2, 3, 4, 5, 6, 4, 5, 6],
    6: [1, 2, 3, 4 + 1j],
    7: [1, 2, 3],
    8: [1, 2, 3, 4, 5],
    9: [1, 2, 3, 4, 5, 6, 7],
}


@pytest.mark.parametrize("number", FLATS)
def test_optimisers_models_flatten_to_the_same_numbers(number):
    model = models()[number]
    flat, layout = nf.destructure(model)
    assert flat.tolist() == FLATS[number]
    assert flat.dtype == (np.complex128 if number == 6 else np.float64)
    assert reference.same(layout.destructure(layout.restructure(flat)), flat)


def rebuilt(number, flat):
    return nf.Layout.of(models()[number]).restructure(np.array(flat))


def test_optimisers_models_rebuild_to_the_same_trees():
    assert rebuilt(1, [7.0, 8, 9]).tolist() == [7, 8, 9]
    assert [leaf.tolist() for leaf in rebuilt(2, np.arange(4.0, 10))] == [[4, 5, 6], [7, 8, 9]]
    m3 = rebuilt(3, np.arange(4.0, 10))
    assert (m3["x"].tolist(), m3["y"], m3["z"].tolist()) == ([4, 5, 6], np.sin, [7, 8, 9])
    m4 = rebuilt(4, np.arange(4.0, 10))
    assert m4["x"] is m4["y"]
    assert (m4["y"].tolist(), m4["z"].tolist()) == ([4, 5, 6], [7, 8, 9])
    m5 = rebuilt(5, np.arange(9.0, 0, -1))
    assert m5["a"][0]["x"] is m5["b"][0]
    assert m5["b"][1] is False
    m8 = rebuilt(8, np.arange(1.0, 6))
    assert m8[0].x is m8[0].y
    assert (m8[1]["a"], m8[1]["b"].y, m8[1]["c"]) == (True, False, ())
    m9 = rebuilt(9, np.arange(10.0, 80, 10))
    assert m9["b"] is m9["c"][0]
    assert m9["b"].dtype == np.float32
    assert m9["b"].tolist() == [[40, 50], [60, 70]]


def test_optimisers_complex_model_takes_real_values_and_refuses_lost_parts():
    layout = nf.Layout.of(models()[6])
    m6 = layout.restructure(np.array([4, 5, 6, 7 + 4j]))
    assert m6["a"] is m6["c"]
    assert (m6["a"].tolist(), m6["a"].dtype, m6["b"].tolist()) == ([4, 5, 6], float, [7 + 4j])
    with pytest.raises(ValueError, match="a is float64; the vector has imaginary parts there"):
        layout.restructure(np.array([4 + 1j, 5 + 2j, 6 + 3j, 7 + 4j]))


def test_optimisers_partly_trainable_model_keeps_the_rest():
    layout = nf.Layout.of(models()[7])
    m7 = layout.restructure(np.array([10.0, 20, 30]))
    assert (m7.x[0], m7.x[1].tolist()) == (np.sin, [10, 20, 30])
    assert (m7.y[1].tolist(), m7.z[1].tolist()) == ([4, 5, 6], [7, 8, 9])
    for size in (2, 4):
        with pytest.raises(ValueError, match="vector of 3 elements"):
            layout.restructure(np.zeros(size))


GRADIENTS = [
    (1, lambda m: m[0], [1, 0, 0]),
    (2, lambda m: m[0][1], [0, 1, 0, 0, 0, 0]),
    (3, lambda m: m["x"][2], [0, 0, 1, 0, 0, 0]),
    (3, lambda m: m["z"][0], [0, 0, 0, 1, 0, 0]),
    (4, lambda m: m["y"][1], [0, 1, 0, 0, 0, 0]),
    (4, lambda m: m["x"][0] + 2 * m["y"][1] + 3 * m["z"][2], [1, 2, 0, 0, 0, 3]),
    (7, lambda m: m.x[1][2], [0, 0, 1]),
    (8, lambda m: np.sum(m[0].y ** 2), [2, 4, 6, 0, 0]),
    (8, lambda m: np.sum(m[2][0][0] ** 2), [0, 0, 0, 0, 10]),
    (9, lambda m: np.sum(m["c"][0] ** 2), [0, 0, 0, 8, 10, 12, 14]),
]


@pytest.mark.parametrize(("number", "fn", "expected"), GRADIENTS)
def test_optimisers_gradients_by_the_flat_vector_are_the_same(number, fn, expected):
    layout = nf.Layout.of(models()[number])
    flat = np.arange(1.0, layout.size + 1)
    gradient = nf.grad(lambda flat: fn(layout.restructure(flat)))(flat)
    assert gradient.tolist() == expected


def test_optimisers_gradient_of_what_is_not_trainable_is_zero():
    layout = nf.Layout.of(models()[7])
    rest = nf.grad(lambda flat: np.sum(layout.restructure(flat).y[1]) + 0 * flat[0])(np.arange(1.0, 4))
    assert rest.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="depends on no differentiable argument"):
        nf.grad(lambda flat: np.sum(layout.restructure(flat).z[1]))(np.arange(1.0, 4))
    unused = nf.grad(lambda flat: np.sum(layout.restructure(flat).z[1]), allow_unused=True)(np.arange(1.0, 4))
    assert unused.tolist() == [0, 0, 0]


def test_optimisers_complex_model_has_a_complex_gradient():
    layout = nf.Layout.of(models()[6])
    flat = np.array([4, 5, 6, 7 + 4j])

    def loss(flat):
        m6 = layout.restructure(flat)
        return np.abs(m6["b"][0]) ** 2 + m6["c"][1]

    gradient = nf.grad(loss)(flat)
    assert gradient.tolist() == [0, 1, 0, 14 - 8j]
