"""Every kind of noise depends on its numbers only, and has the distribution that it says."""

import numpy as np
import pytest

from nnflat import Layout, es
from nnflat._noise import write_pairs
from nnflat.random import fold, normal

DTYPES = [np.float16, np.float32, np.float64]
KEY = np.uint64(3)
LAYOUT = Layout.of({"weight": np.zeros((60, 40), np.float32), "bias": np.zeros(37, np.float32)})
SIZE = LAYOUT.size
KINDS = [es.Gaussian(), es.Rademacher(), es.Table(1 << 20), es.LowRank(LAYOUT), es.LowRank(LAYOUT, rank=3)]
INDEPENDENT = KINDS[:3]

each_kind = pytest.mark.parametrize("noise", KINDS, ids=repr)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def draw(noise, key=KEY, generation=0, k=0, dtype=np.float64):
    return noise.fill(key, generation, k, np.empty(SIZE, dtype))


@each_kind
@each_dtype
def test_the_same_numbers_give_the_same_bits_whatever_stands_in_out(noise, dtype):
    first = draw(noise, k=5, dtype=dtype)
    np.testing.assert_array_equal(noise.fill(KEY, 0, 5, np.full(SIZE, np.nan, dtype)), first)


@pytest.mark.parametrize("noise", INDEPENDENT, ids=repr)
@each_dtype
def test_a_shorter_vector_gets_the_beginning_of_the_longer_one(noise, dtype):
    long = noise.fill(KEY, 2, 5, np.empty(1000, dtype))
    for size in (1, 37, 256, 513):
        np.testing.assert_array_equal(noise.fill(KEY, 2, 5, np.empty(size, dtype)), long[:size])


@each_kind
@each_dtype
def test_rows_are_the_directions_one_by_one(noise, dtype):
    rows = noise.rows(KEY, 1, 3, np.empty((8, SIZE), dtype)[::2])
    for k, row in enumerate(rows, start=3):
        np.testing.assert_array_equal(row, draw(noise, generation=1, k=k, dtype=dtype))


@each_kind
@each_dtype
def test_combine_is_the_weighted_sum(noise, dtype):
    weights = np.array([0.5, 0.0, -1.5, 2.0])
    total = noise.combine(KEY, 1, weights, np.empty(SIZE, dtype))
    parts = [draw(noise, generation=1, k=k, dtype=dtype).astype(np.float64) for k in range(4)]
    assert total.dtype == dtype
    tolerance = 16 * np.finfo(dtype).eps
    np.testing.assert_allclose(total, weights @ np.array(parts), rtol=tolerance, atol=tolerance)


@each_kind
@each_dtype
def test_moments_are_both_weighted_sums(noise, dtype):
    weights, others = np.array([0.5, -1.5, 2.0]), np.array([1.0, 0.25, -0.5])
    total, squares = noise.moments(KEY, 1, weights, others, (np.empty(SIZE, dtype), np.empty(SIZE, dtype)))
    parts = np.array([draw(noise, generation=1, k=k, dtype=dtype).astype(np.float64) for k in range(3)])
    tolerance = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(total, weights @ parts, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(squares, others @ parts**2, rtol=tolerance, atol=tolerance)


@each_kind
def test_mean_is_zero_and_standard_deviation_one(noise):
    draws = np.array([draw(noise, k=k) for k in range(400)])
    assert abs(draws.mean()) < 0.01
    assert abs(draws.std() - 1) < 0.05
    assert np.abs(draws.mean(axis=0)).max() < 0.35
    assert abs(np.median(draws.var(axis=0)) - 1) < 0.1


@each_kind
def test_neighbouring_seeds_generations_and_directions_are_uncorrelated(noise):
    seeds = [fold(np.uint64(0), seed) for seed in (7, 8)]
    draws = [draw(noise, key, generation, k) for key in seeds for generation in (4, 5) for k in (0, 1)]
    assert np.abs(np.corrcoef(draws) - np.eye(8)).max() < 0.1


@each_kind
def test_leaves_are_uncorrelated(noise):
    draws = np.array([draw(noise, k=k) for k in range(2000)])
    picks = draws[:, [0, 41, 1250, 2399, SIZE - 1]]
    assert np.abs(np.corrcoef(picks.T) - np.eye(5)).max() < 0.12


@pytest.mark.parametrize("noise", [KINDS[0]], ids=repr)
def test_no_two_seeds_generations_or_directions_share_a_value(noise):
    keys = [fold(np.uint64(0), seed) for seed in range(4)]
    draws = [
        noise.fill(key, generation, k, np.empty(64)) for key in keys for generation in range(4) for k in range(4)
    ]
    assert np.unique(draws).size == 4 * 4 * 4 * 64


def test_no_window_of_signs_is_shared_by_neighbouring_seeds():
    rows = [es.Rademacher().fill(fold(np.uint64(0), seed), 0, k, np.empty(4096)) for seed in (1, 2) for k in (0, 1)]
    words = [set(np.packbits(row > 0).reshape(-1, 8).view(np.uint64).ravel().tolist()) for row in rows]
    assert len(set.union(*words)) == sum(map(len, words))


def test_gaussian_elements_are_the_normals_of_the_folded_key():
    expected = normal(fold(KEY, 2, 5), 30, np.float64)
    np.testing.assert_array_equal(es.Gaussian().fill(KEY, 2, 5, np.empty(30)), expected)


def test_signs_are_the_bits_of_the_words():
    from nnflat.random import bits

    words = bits(fold(KEY, 2, 5), 40, np.uint32)
    expected = 1.0 - 2.0 * (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).ravel()
    np.testing.assert_array_equal(es.Rademacher().fill(KEY, 2, 5, np.empty(1280)), expected)


@pytest.mark.parametrize("size", [50, 80])
def test_a_table_wraps_around_its_end(size):
    table, noise = es.Table(80).fill(KEY, 0, 0, np.empty(80)), es.Table(80)
    for k in range(20):
        window = noise.fill(KEY, 1, k, np.empty(size))
        shift = int(np.flatnonzero(table == window[0])[0])
        np.testing.assert_array_equal(window, np.roll(table, -shift)[:size])


def test_a_table_that_is_smaller_than_theta_is_refused():
    with pytest.raises(ValueError, match="table"):
        es.Table(10).fill(KEY, 0, 0, np.empty(11))


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_low_rank_noise_has_that_rank_in_each_matrix_and_full_noise_elsewhere(rank):
    noise = draw(es.LowRank(LAYOUT, rank=rank))
    weight = noise[LAYOUT["weight"]].reshape(60, 40)
    assert np.linalg.matrix_rank(weight) == rank
    assert np.unique(noise[LAYOUT["bias"]]).size == 37


def test_low_rank_noise_for_another_layout_is_refused():
    with pytest.raises(ValueError, match="layout of 2437"):
        es.LowRank(LAYOUT).fill(KEY, 0, 0, np.empty(4))


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="size"):
        es.Table(0)
    with pytest.raises(ValueError, match="rank"):
        es.LowRank(LAYOUT, rank=0)


@each_kind
def test_a_kind_of_noise_is_a_value(noise):
    import pickle

    again = pickle.loads(pickle.dumps(noise))
    assert again == noise
    assert hash(again) == hash(noise)
    np.testing.assert_array_equal(draw(again), draw(noise))


@each_kind
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reading_is_the_rows_wherever_they_are(noise, dtype):
    for first, count in ((0, 1), (3, 1), (2, 4)):
        rows = noise.rows(KEY, 1, first, np.empty((count, SIZE), dtype))
        np.testing.assert_array_equal(noise.read(KEY, 1, first, np.empty((count, SIZE), dtype)), rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("in_place", [True, False])
def test_pairs_round_as_numpy_does(dtype, in_place):
    rng = np.random.default_rng(0)
    noise, theta = rng.normal(size=(3, 700)).astype(dtype), rng.normal(size=700).astype(dtype)
    out = np.empty((6, 700), dtype)
    if in_place:
        out[0::2] = noise
    write_pairs(out[0::2] if in_place else noise, theta, 0.3, out)
    np.testing.assert_array_equal(out[0::2], theta + 0.3 * noise)
    np.testing.assert_array_equal(out[1::2], theta - 0.3 * noise)


@pytest.mark.parametrize(
    ("noise", "theta", "out", "error", "word"),
    [
        (np.zeros((2, 3)), np.zeros(3), np.zeros((4, 3), np.float32), TypeError, "float32 or float64"),
        (np.zeros((2, 3), "f2"), np.zeros(3, "f2"), np.zeros((4, 3), "f2"), TypeError, "float32 or float64"),
        (np.zeros((2, 3)), np.zeros(3), np.zeros((3, 3)), ValueError, "two rows"),
        (np.zeros((2, 3)), np.zeros(4), np.zeros((4, 3)), ValueError, "two rows"),
        (np.zeros((2, 6))[:, ::2], np.zeros(3), np.zeros((4, 3)), ValueError, "contiguous"),
        (np.zeros((2, 3)), np.zeros(6)[::2], np.zeros((4, 3)), ValueError, "aligned"),
    ],
)
def test_what_is_no_pair_is_refused(noise, theta, out, error, word):
    with pytest.raises(error, match=word):
        write_pairs(noise, theta, 0.1, out)
