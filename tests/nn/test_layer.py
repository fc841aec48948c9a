"""Layers are nodes: frozen once built, copied without `__init__`, computing in their parameters' dtype."""

import copy
import pickle

import numpy as np
import pytest

from nnflat import nn, tree
from nnflat.nn import Chain, Dense, Layer, cast, init


class Affine(Layer):
    """A layer as a user writes it."""

    def __init__(self, n_in, n_out, *, rng=None):
        self.weight = init.glorot_uniform((n_in, n_out), rng=rng)
        self.bias = np.zeros(n_out, self.weight.dtype)

    def __call__(self, x, *, key=None):
        return cast(x, self.weight) @ self.weight + self.bias


class Scaled(Affine):
    """A layer derived from a layer, with more to set after `super().__init__`."""

    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out)
        self.scale = np.array(2.0)
        self.bias = self.bias + 1


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "rebuild": lambda layer: type(layer).__tree_rebuild__(layer.__tree_children__()),
}


@pytest.fixture(params=COPIES)
def copied(request):
    return COPIES[request.param]


# ---- children ----------------------------------------------------------------------------------------------


def test_children_are_the_attributes_in_the_order_of_assignment():
    assert list(Dense(2, 3).__tree_children__()) == ["weight", "bias", "activation"]
    assert list(Scaled(2, 3).__tree_children__()) == ["weight", "bias", "scale"]


def test_children_are_shared_and_their_dict_is_not():
    layer = Affine(2, 3)
    children = layer.__tree_children__()
    assert children["weight"] is layer.weight
    children.clear()
    assert list(layer.__tree_children__()) == ["weight", "bias"]


def test_tree_walks_a_user_class_without_registration():
    model = Chain(Affine(2, 3), Dense(3, 1))
    names = [tree.format_path(path) for path, _ in tree.items(model)]
    assert names == ["layers[0].weight", "layers[0].bias", "layers[1].weight", "layers[1].bias"]


def test_tree_map_gives_a_model_that_can_be_called():
    zero = tree.map(np.zeros_like, Chain(Affine(2, 3), Dense(3, 1)))
    assert isinstance(zero, Chain)
    np.testing.assert_array_equal(zero(np.ones((4, 2))), np.zeros((4, 1)))


def test_slots_in_a_subclass_are_refused_because_their_arrays_would_be_missed():
    with pytest.raises(TypeError, match="Slotted has __slots__"):

        class Slotted(Layer):
            __slots__ = ("weight",)


# ---- frozen ------------------------------------------------------------------------------------------------


def test_re_binding_an_array_raises_and_says_how_to_write_in_place():
    layer = Affine(2, 3)
    with pytest.raises(AttributeError, match=r"Affine.weight cannot be .*: layer.weight\[...\] = value"):
        layer.weight = np.zeros((2, 3))


def test_re_binding_a_static_raises():
    with pytest.raises(AttributeError, match=r"Dense.activation cannot be re-bound"):
        Dense(2, 3).activation = nn.relu


def test_a_new_attribute_after_init_raises():
    with pytest.raises(AttributeError, match=r"Affine.wieght does not exist"):
        Affine(2, 3).wieght = np.zeros((2, 3))


def test_deleting_an_attribute_raises():
    with pytest.raises(AttributeError, match=r"Affine.bias cannot be deleted"):
        del Affine(2, 3).bias


def test_a_refused_assignment_changes_nothing():
    layer = Affine(2, 3)
    before = layer.weight
    with pytest.raises(AttributeError):
        layer.weight = before.copy()
    assert layer.weight is before


@pytest.mark.parametrize("name", ["weight", "scale"])
def test_augmented_assignment_writes_in_place(name):
    layer = Scaled(2, 3)
    array = getattr(layer, name)
    expected = array - 1
    if name == "weight":
        layer.weight -= 1
    else:
        layer.scale -= 1
    assert getattr(layer, name) is array
    np.testing.assert_array_equal(array, expected)


def test_init_may_bind_twice_and_delete_also_after_super_init():
    class Tidy(Scaled):
        def __init__(self):
            super().__init__(2, 3)
            self.helper = 1
            del self.helper

    layer = Tidy()
    np.testing.assert_array_equal(layer.bias, np.ones(3))
    assert list(layer.__tree_children__()) == ["weight", "bias", "scale"]
    with pytest.raises(AttributeError, match="re-bound"):
        layer.bias = np.ones(3)


def test_a_layer_without_init_is_frozen_too():
    class Double(Layer):
        def __call__(self, x, *, key=None):
            return 2 * x

    assert Double().__tree_children__() == {}
    with pytest.raises(AttributeError, match="does not exist"):
        Double().weight = 1


# ---- copies ------------------------------------------------------------------------------------------------


def test_copies_have_the_same_children_and_never_call_init(copied, monkeypatch):
    layer = Scaled(2, 3)
    monkeypatch.setattr(Scaled, "__init__", None)
    other = copied(layer)
    assert type(other) is Scaled
    assert list(other.__tree_children__()) == ["weight", "bias", "scale"]
    np.testing.assert_array_equal(other.weight, layer.weight)


def test_copies_are_frozen(copied):
    with pytest.raises(AttributeError, match="re-bound"):
        copied(Affine(2, 3)).weight = 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_copies_keep_dtype_and_memory_order(copied, dtype):
    layer = Affine.__tree_rebuild__({"weight": np.ones((2, 3), dtype, order="F"), "bias": np.ones(3, dtype)})
    other = copied(layer)
    assert other.weight.dtype == other.bias.dtype == dtype
    assert other.weight.flags.f_contiguous


@pytest.mark.parametrize("name", ["deepcopy", "pickle"])
def test_deep_copies_have_their_own_memory_and_keep_ties_by_identity(name):
    shared = Dense(3, 3, "tanh")
    model = Chain(shared, Dense(3, 3), shared)
    other = COPIES[name](model)
    assert other.layers[0] is other.layers[2]
    assert not np.shares_memory(other.layers[0].weight, shared.weight)
    assert other.layers[0].activation is np.tanh
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(other(x), model(x))


def test_copy_shares_the_arrays():
    layer = Affine(2, 3)
    assert copy.copy(layer).weight is layer.weight


# ---- cast and call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.complex64, np.complex128])
def test_cast_gives_the_array_itself_when_nothing_is_to_be_done(dtype):
    x = np.ones((2, 3), dtype)
    assert cast(x, np.zeros(1, dtype)) is x


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i1", "u8", "?"])
@pytest.mark.parametrize("like", [np.float32, np.float64, np.complex64])
def test_cast_gives_the_dtype_of_the_parameter(dtype, like):
    x = cast(np.array([0, 1], dtype), np.zeros(1, like))
    assert x.dtype == like
    np.testing.assert_array_equal(x, [0, 1])


@pytest.mark.parametrize("x", [3, 3.5, [1, 2], [[1.5], [2.5]], (True, False), np.float64(2)])
def test_cast_takes_array_likes(x):
    out = cast(x, np.zeros(1, np.float32))
    assert isinstance(out, np.ndarray)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, np.asarray(x, np.float32))


@pytest.mark.parametrize("x", [np.ones(2, complex), [1j], ["a"], np.array(["2026"], "M8[Y]"), [None]])
def test_cast_refuses_what_is_not_real_numbers(x):
    with pytest.raises(TypeError, match="parameters of dtype float32 cannot take an input of dtype"):
        cast(x, np.zeros(1, np.float32))


def test_a_layer_computes_in_the_dtype_of_its_parameters():
    for x in (np.ones((4, 2)), np.ones((4, 2), int), [[1, 2]]):
        assert Affine(2, 3)(x).dtype == np.float32


def test_call_calls_the_model():
    model = Dense(2, 3)
    x = np.ones((4, 2))
    np.testing.assert_array_equal(nn.call(model, x), model(x))
    assert nn.call(lambda a, b: a - b, 3, 1) == 2


# ---- printing ----------------------------------------------------------------------------------------------


def test_repr_of_a_user_class_shows_shapes_and_statics_on_one_line():
    class Mixed(Layer):
        def __init__(self):
            self.blocks = [np.zeros(2), Dense(1, 2)]
            self.named = {"a": np.zeros(())}
            self.rate = 0.5
            self.activation = np.tanh

    text = "Mixed(blocks=[(2,), Dense(1, 2)], named={'a': ()}, rate=0.5, activation=tanh)"
    assert repr(Mixed()) == text
