"""Initialisers have the variances and the structure that their papers ask for."""

import math

import numpy as np
import pytest

from nnflat.nn import init

FAN_IN, FAN_OUT = 2 * 3 * 40, 2 * 3 * 90
KERNEL = (2, 3, 40, 90)
VARIANCE = {
    "glorot": 2 / (FAN_IN + FAN_OUT),
    "he": 2 / FAN_IN,
    "lecun": 1 / FAN_IN,
}
SCALED = [f"{family}_{kind}" for family in VARIANCE for kind in ("uniform", "normal")]
RANDOM = [*SCALED, "orthogonal", "truncated_normal"]
EVERY = [*RANDOM, "zeros", "constant", "identity"]


def draw(name, shape, **options):
    return getattr(init, name)(shape, rng=np.random.default_rng(0), **options)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_scaled_draws_have_mean_zero_and_their_variance(name, gain):
    weight = draw(name, KERNEL, gain=gain, dtype=np.float64)
    std = gain * math.sqrt(VARIANCE[name.split("_")[0]])
    assert abs(weight.mean()) < 4 * std / math.sqrt(weight.size)
    assert weight.std() == pytest.approx(std, rel=0.02)


@pytest.mark.parametrize("family", VARIANCE)
def test_uniform_draws_stay_within_their_limit_and_come_near_it(family):
    limit = math.sqrt(3 * VARIANCE[family])
    largest = np.abs(draw(f"{family}_uniform", KERNEL, dtype=np.float64)).max()
    assert 0.99 * limit < largest <= limit


@pytest.mark.parametrize("family", VARIANCE)
def test_normal_draws_have_the_kurtosis_of_a_normal(family):
    weight = draw(f"{family}_normal", KERNEL, dtype=np.float64)
    assert np.mean((weight / weight.std()) ** 4) == pytest.approx(3.0, rel=0.1)


def test_truncated_normal_has_its_standard_deviation_and_is_cut_at_two_sigma():
    draws = draw("truncated_normal", (100_000,), gain=0.5, dtype=np.float64)
    assert draws.std() == pytest.approx(0.5, rel=0.01)
    cut = 2 * 0.5 / 0.87962566103423978
    assert 0.99 * cut < np.abs(draws).max() <= cut


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (1, 4), (3, 3, 2, 5), (1, 2, 2, 9)])
@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_orthogonal_has_orthonormal_rows_or_columns_times_gain(shape, gain):
    weight = draw("orthogonal", shape, gain=gain, dtype=np.float64)
    matrix = weight.reshape(-1, shape[-1])
    small = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(small, gain**2 * np.eye(len(small)), atol=1e-12)


def test_orthogonal_draws_have_no_preferred_sign():
    rng = np.random.default_rng(0)
    corners = np.array([init.orthogonal((2, 2), rng=rng)[0, 0] for _ in range(2000)])
    assert abs(corners.mean()) < 4 * corners.std() / math.sqrt(corners.size)


def test_identity_passes_a_dense_input_on():
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(x @ init.identity((4, 4), gain=2.0), 2 * x)


@pytest.mark.parametrize("spatial", [(3,), (3, 5), (4, 1)])
def test_identity_of_a_kernel_stands_in_its_middle(spatial):
    weight = init.identity((*spatial, 2, 3))
    np.testing.assert_array_equal(weight[tuple(size // 2 for size in spatial)], np.eye(2, 3))
    assert np.count_nonzero(weight) == 2


def test_zeros_and_constant_fill():
    np.testing.assert_array_equal(init.zeros((2, 3)), np.zeros((2, 3)))
    np.testing.assert_array_equal(init.constant((2, 3), gain=0.25), np.full((2, 3), 0.25))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 4, 5), (0, 3), (3, 0)])
def test_arrays_are_fresh_contiguous_writeable_and_of_the_dtype(name, dtype, shape):
    weight = draw(name, shape, dtype=dtype)
    assert weight.shape == shape
    assert weight.dtype == dtype
    assert weight.flags.c_contiguous
    assert weight.flags.writeable


@pytest.mark.parametrize("name", EVERY)
def test_float32_is_the_default(name):
    assert draw(name, (3, 4)).dtype == np.float32


@pytest.mark.parametrize("name", RANDOM)
def test_the_same_generator_gives_the_same_numbers_rounded_in_every_dtype(name):
    exact = draw(name, (5, 6), dtype=np.float64)
    np.testing.assert_array_equal(draw(name, (5, 6)), exact.astype(np.float32))


@pytest.mark.parametrize("name", RANDOM)
def test_without_a_generator_every_draw_is_another(name):
    initialise = getattr(init, name)
    assert not np.array_equal(initialise((5, 6)), initialise((5, 6)))


@pytest.mark.parametrize("name", RANDOM)
def test_a_generator_is_moved_on(name):
    rng = np.random.default_rng(0)
    initialise = getattr(init, name)
    assert not np.array_equal(initialise((5, 6), rng=rng), initialise((5, 6), rng=rng))


@pytest.mark.parametrize("name", [*SCALED, "orthogonal", "identity"])
def test_what_depends_on_fans_needs_two_axes(name):
    with pytest.raises(ValueError, match=r"two axes or more, .* got shape \(3,\)"):
        draw(name, (3,))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
@pytest.mark.parametrize("name", ["truncated_normal", "zeros", "constant"])
def test_what_does_not_depend_on_fans_takes_any_shape(name, shape):
    assert draw(name, shape).shape == shape


@pytest.mark.parametrize("name", EVERY)
def test_an_integer_dtype_is_refused(name):
    with pytest.raises(TypeError, match=r"float.* dtype, got int32"):
        draw(name, (3, 4), dtype=np.int32)


@pytest.mark.parametrize("name", RANDOM)
def test_a_complex_dtype_is_refused_by_what_draws_real_numbers(name):
    with pytest.raises(TypeError, match="float dtype, got complex64"):
        draw(name, (3, 4), dtype=np.complex64)


@pytest.mark.parametrize("name", ["zeros", "constant", "identity"])
def test_a_complex_dtype_is_allowed_where_nothing_is_drawn(name):
    assert draw(name, (3, 4), dtype=np.complex64).dtype == np.complex64
