"""Activations agree with a float64 reference, keep the dtype and warn of nothing, at the extremes too."""

import math

import numpy as np
import pytest

from nnflat import nn
from nnflat.nn.activations import ACTIVATIONS, resolve


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def elu(x, alpha=1.0):
    return x if x > 0 else alpha * math.expm1(x)


REFERENCE = {
    "elu": elu,
    "gelu": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "identity": lambda x: x,
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "relu": lambda x: max(x, 0.0),
    "selu": lambda x: 1.0507009873554804934 * elu(x, 1.6732632423543772848),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "tanh": math.tanh,
}
LIMITS = {
    "elu": (-1.0, np.inf),
    "gelu": (0.0, np.inf),
    "identity": (-np.inf, np.inf),
    "leaky_relu": (-np.inf, np.inf),
    "relu": (0.0, np.inf),
    "selu": (-1.0507009873554804934 * 1.6732632423543772848, np.inf),
    "sigmoid": (0.0, 1.0),
    "silu": (0.0, np.inf),
    "softplus": (0.0, np.inf),
    "tanh": (-1.0, 1.0),
}
DTYPES = [np.float16, np.float32, np.float64]
GRID = np.concatenate([np.linspace(-20, 20, 801), [-1000, -100, 100, 1000], [-1e-3, 1e-3, -0.0]])

elementwise = pytest.mark.parametrize("name", REFERENCE)
every = pytest.mark.parametrize("name", ACTIVATIONS)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def softmax(x):
    powers = [math.exp(v - max(x)) for v in x]
    return [power / math.fsum(powers) for power in powers]


def log_softmax(x):
    return [v - max(x) - math.log(math.fsum(math.exp(u - max(x)) for u in x)) for v in x]


def test_there_is_a_reference_for_every_name():
    assert {*REFERENCE, "softmax", "log_softmax"} == set(ACTIVATIONS)


@elementwise
@dtypes
def test_elementwise_activations_agree_with_a_float64_reference(name, dtype):
    x = GRID.astype(dtype)
    expected = np.array([REFERENCE[name](float(v)) for v in x])
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(ACTIVATIONS[name](x), expected, rtol=4 * eps, atol=20 * eps)


@pytest.mark.parametrize(("name", "reference"), [("softmax", softmax), ("log_softmax", log_softmax)])
@dtypes
def test_softmax_and_its_logarithm_agree_with_a_float64_reference(name, reference, dtype):
    eps = float(np.finfo(dtype).eps)
    rows = np.random.default_rng(0).normal(0, 10, (50, 7)).astype(dtype)
    expected = np.array([reference([float(v) for v in row]) for row in rows])
    np.testing.assert_allclose(ACTIVATIONS[name](rows), expected, rtol=16 * eps, atol=16 * eps)


def test_gelu_is_close_to_the_exact_form():
    x = np.linspace(-10, 10, 4001)
    exact = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    assert np.abs(nn.gelu(x) - exact).max() < 5e-4


@every
@dtypes
def test_the_dtype_is_kept_by_arrays_of_any_number_of_axes(name, dtype):
    for shape in [(), (3,), (2, 3), (0, 3), (2, 2, 3)]:
        out = ACTIVATIONS[name](np.ones(shape, dtype))
        assert out.dtype == dtype
        assert out.shape == shape


@every
@dtypes
def test_huge_numbers_give_no_warning_and_no_nan(name, dtype):
    x = np.array([-0.5, -0.1, 0, 0.1, 0.5], dtype) * np.finfo(dtype).max
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert not np.isnan(ACTIVATIONS[name](x)).any()


@elementwise
@dtypes
def test_infinities_give_the_limits(name, dtype):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        out = ACTIVATIONS[name](np.array([-np.inf, np.inf], dtype))
    np.testing.assert_allclose(out, np.array(LIMITS[name], dtype), rtol=2 * float(np.finfo(dtype).eps))


@every
def test_nan_stays_nan(name):
    with np.errstate(invalid="ignore"):
        out = ACTIVATIONS[name](np.array([[np.nan, np.nan], [0.5, 1.0]], np.float32))
    np.testing.assert_array_equal(np.isnan(out), [[True, True], [False, False]])


@every
def test_the_input_is_left_alone(name):
    x = np.random.default_rng(0).normal(size=(3, 4))
    before = x.copy()
    ACTIVATIONS[name](x)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_sums_to_one_along_its_axis_and_does_not_see_a_shift(axis):
    x = np.random.default_rng(0).normal(size=(4, 5))
    np.testing.assert_allclose(nn.softmax(x, axis).sum(axis), 1.0)
    np.testing.assert_allclose(nn.softmax(x + 1000.0, axis), nn.softmax(x, axis))
    np.testing.assert_allclose(np.exp(nn.log_softmax(x, axis)), nn.softmax(x, axis))


def test_softmax_gives_a_masked_entry_exactly_zero():
    np.testing.assert_array_equal(nn.softmax(np.array([0.0, -np.inf])), [1.0, 0.0])


def test_log_softmax_is_accurate_where_softmax_is_zero():
    np.testing.assert_array_equal(nn.log_softmax(np.array([0.0, 1e30])), [-1e30, 0.0])


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_elu_has_its_alpha(alpha):
    np.testing.assert_allclose(nn.elu(np.array([-np.inf, 3.0]), alpha), [-alpha, 3.0])


@pytest.mark.parametrize("slope", [0.2, 1.0])
def test_leaky_relu_has_its_slope(slope):
    np.testing.assert_allclose(nn.leaky_relu(np.array([-2.0, 3.0]), slope), [-2.0 * slope, 3.0])


@every
def test_names_resolve_to_the_functions_of_nn(name):
    assert resolve(name) is resolve(getattr(nn, name)) is getattr(nn, name)
