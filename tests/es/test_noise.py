"""Noise depends on its numbers only."""

import numpy as np
import pytest

from nnflat.es import Gaussian
from nnflat.es.noise import BLOCK
from nnflat.random import fold

DTYPES = [np.float16, np.float32, np.float64]
KEY = np.uint64(3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_shorter_vector_gets_the_beginning_of_the_longer_one(dtype):
    long = Gaussian().fill(KEY, 2, 5, np.empty(100, dtype))
    np.testing.assert_array_equal(Gaussian().fill(KEY, 2, 5, np.empty(37, dtype)), long[:37])


@pytest.mark.parametrize("dtype", DTYPES)
def test_combine_is_the_weighted_sum_across_blocks(dtype):
    size, weights = 2 * BLOCK + 3, np.array([0.5, 0.0, -1.5])
    total = Gaussian().combine(KEY, 1, weights, np.empty(size, dtype))
    parts = [Gaussian().fill(KEY, 1, k, np.empty(size, dtype)).astype(np.float64) for k in range(3)]
    assert total.dtype == dtype
    tolerance = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(total, weights @ np.array(parts), rtol=tolerance, atol=tolerance)


def test_no_two_seeds_generations_or_directions_share_a_value():
    keys = [fold(np.uint64(0), seed) for seed in range(4)]
    draws = [
        Gaussian().fill(key, generation, k, np.empty(64))
        for key in keys
        for generation in range(4)
        for k in range(4)
    ]
    assert np.unique(draws).size == 4 * 4 * 4 * 64


def test_noise_is_standard_normal():
    draws = np.array([Gaussian().fill(KEY, 0, k, np.empty(1000)) for k in range(100)])
    assert abs(draws.mean()) < 0.015
    assert abs(draws.std() - 1) < 0.01
    assert abs(np.corrcoef(draws[:2])[0, 1]) < 0.15


def test_gaussian_is_a_value():
    assert Gaussian() == Gaussian()
    assert hash(Gaussian()) == hash(Gaussian())
