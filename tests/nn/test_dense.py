"""Dense is the formula, to the bit."""

import numpy as np
import pytest

from nnflat import nn
from nnflat.nn import Dense
from nnflat.nn.activations import ACTIVATIONS


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("lead", [(), (1,), (5,), (0,), (2, 3)])
def test_dense_is_the_formula_to_the_bit(rng, lead, name, dtype):
    layer = Dense(4, 3, name, rng=rng, dtype=dtype)
    layer.bias[...] = rng.normal(size=3)
    x = rng.normal(size=(*lead, 4)).astype(dtype)
    out = layer(x)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, ACTIVATIONS[name](x @ layer.weight + layer.bias))


def test_the_weight_is_drawn_by_glorot_uniform_and_the_bias_is_zero(rng):
    layer = Dense(4, 3, rng=np.random.default_rng(5), dtype=np.float64)
    expected = nn.init.glorot_uniform((4, 3), rng=np.random.default_rng(5), dtype=np.float64)
    np.testing.assert_array_equal(layer.weight, expected)
    np.testing.assert_array_equal(layer.bias, np.zeros(3))
    assert layer.bias.dtype == np.float64


def test_parameters_are_float32_by_default():
    layer = Dense(4, 3)
    assert layer.weight.dtype == layer.bias.dtype == np.float32


@pytest.mark.parametrize("activation", [np.tanh, lambda x: x + 1])
def test_the_activation_may_be_a_function_and_is_kept_as_it_is(activation):
    assert Dense(4, 3, activation).activation is activation


def test_a_name_and_its_function_are_the_same():
    assert Dense(4, 3, "gelu").activation is nn.gelu


def test_an_unknown_activation_raises_and_lists_the_names():
    with pytest.raises(ValueError, match=r"one of elu, gelu, .*softplus, tanh; got 'rleu'"):
        Dense(4, 3, "rleu")


def test_an_activation_that_is_no_function_raises():
    with pytest.raises(TypeError, match=r"needs to be a function or one of .* got 3"):
        Dense(4, 3, 3)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (4, 0), (2, 4, 1)])
def test_a_wrong_input_shape_raises_and_names_layer_needed_and_given(shape):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Dense(4, 3, "tanh")(np.zeros(shape))
    assert str(error.value) == f"Dense(4, 3, tanh) needs x of shape (..., 4), got {shape}"


def test_an_error_of_the_activation_is_not_taken_for_a_wrong_shape():
    def broken(x):
        raise ValueError("broken")

    with pytest.raises(ValueError, match=r"^broken$"):
        Dense(4, 3, broken)(np.zeros(4))


def test_complex_input_is_refused_by_a_real_layer():
    with pytest.raises(TypeError, match="float32 cannot take an input of dtype complex128"):
        Dense(4, 3)(np.zeros(4, complex))


def test_an_integer_dtype_is_refused():
    with pytest.raises(TypeError, match="float dtype, got int64"):
        Dense(4, 3, dtype=np.int64)


@pytest.mark.parametrize(("n_in", "n_out"), [(0, 3), (4, 0), (0, 0)])
def test_empty_sizes_are_allowed(n_in, n_out):
    np.testing.assert_array_equal(Dense(n_in, n_out)(np.zeros((2, n_in))), np.zeros((2, n_out)))


@pytest.mark.parametrize("size", [-1, 2.0, "tanh"])
def test_sizes_need_to_be_natural_numbers(size):
    with pytest.raises((ValueError, TypeError)):
        Dense(4, size)


def test_repr_leaves_the_identity_out():
    assert repr(Dense(4, 3)) == "Dense(4, 3)"
    assert repr(Dense(4, 3, np.abs)) == "Dense(4, 3, absolute)"
