"""The generator against its published vectors, the laws of a draw, and statistics with fixed keys."""

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnflat import _random, random

KINDS = [
    (random.bits, _random.fill_bits, np.uint32),
    (random.bits, _random.fill_bits, np.uint64),
    (random.uniform, _random.fill_uniform, np.float32),
    (random.uniform, _random.fill_uniform, np.float64),
    (random.normal, _random.fill_normal, np.float32),
    (random.normal, _random.fill_normal, np.float64),
]
every_kind = pytest.mark.parametrize(
    ("draw", "fill", "dtype"), KINDS, ids=[f"{draw.__name__}-{dtype.__name__}" for draw, _, dtype in KINDS]
)
keys = st.integers(0, 2**64 - 1)
words = st.integers(0, 2**32 - 1)


def philox(counter, key):
    """Philox4x32-10 as the paper writes it, on Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q & 0xFFFFFFFF, (p >> 32) ^ c3 ^ k1, p & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def chi_square(observed, expected):
    return float(np.sum((observed - expected) ** 2 / expected))


def upper_tail(z):
    """P(Z > z)."""
    return 0.5 * math.erfc(z / math.sqrt(2))


# ---- the generator ----


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ([0] * 4, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, 0xFFFFFFFF_FFFFFFFF, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0_A4093822,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_the_generator_gives_the_known_answers_of_random123(counter, key, block):
    assert " ".join(f"{word:08x}" for word in _random.philox4x32(counter, key)) == block


@given(st.tuples(words, words, words, words), keys)
def test_the_generator_is_the_one_in_the_paper(counter, key):
    assert _random.philox4x32(counter, key) == philox(counter, key)


@given(keys, st.sampled_from([0, 5, 63, 2**32 - 2, 2**59 + 2**40]))
def test_word_k_of_a_draw_is_word_k_mod_4_of_block_k_div_4(key, block):
    drawn = np.empty(20, np.uint32)
    _random.fill_bits(key, 4 * block, drawn)
    assert drawn.tolist() == [
        word for b in range(block, block + 5) for word in philox((b & 0xFFFFFFFF, b >> 32, 0, 0), key)
    ]


@given(keys, st.integers(-(2**63), 2**64 - 1))
def test_fold_is_half_a_block_of_a_domain_of_its_own(key, number):
    low = number % 2**64
    block = philox((low & 0xFFFFFFFF, low >> 32, int(number < 0), 1), key)
    assert random.fold(key, number) == block[0] | block[1] << 32


# ---- the same bits everywhere ----


@pytest.mark.parametrize(
    ("draw", "dtype", "digest"),
    [
        (random.bits, "<u4", "8d67f2636a2ca89d"),
        (random.bits, "<u8", "c30a41da46d8a637"),
        (random.uniform, "<f4", "820a4a2ca7052c5f"),
        (random.uniform, "<f8", "d825afa6ed54d608"),
        (random.normal, "<f4", "00af7d1b99555162"),
        (random.normal, "<f8", "ef5c24781436a3d0"),
    ],
)
def test_draws_have_the_bits_they_always_had(draw, dtype, digest):
    drawn = draw(2026, 1000, np.dtype(dtype).newbyteorder("="))
    assert hashlib.sha256(drawn.astype(dtype).tobytes()).hexdigest().startswith(digest)


def test_keys_masks_and_orders_are_what_they_always_were():
    assert random.fold(2026, 1, -1, 2**64 - 1) == 2668598747861932399
    assert random.permutation(2026, 8).tolist() == [1, 2, 0, 4, 3, 7, 5, 6]
    assert random.bernoulli(2026, 0.5, 10).astype(int).tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 1, 1]


# ---- value k depends on (key, k) only ----


@every_kind
def test_a_short_draw_is_the_beginning_of_a_long_one(draw, fill, dtype):
    longest = draw(3, 5000, dtype)
    for n in (0, 1, 2, 7, 127, 128, 129, 255, 256, 257, 1024, 4097):
        np.testing.assert_array_equal(draw(3, n, dtype), longest[:n], strict=True)


@every_kind
def test_any_window_can_be_drawn_alone(draw, fill, dtype):
    longest = draw(3, 5000, dtype)
    for start, stop in [(0, 1), (1, 2), (2, 300), (3, 260), (255, 258), (257, 1500), (2047, 5000)]:
        window = np.empty(stop - start, dtype)
        fill(3, start, window)
        np.testing.assert_array_equal(window, longest[start:stop])


@every_kind
def test_the_shape_only_arranges_the_values_in_c_order(draw, fill, dtype):
    line = draw(4, 105, dtype)
    np.testing.assert_array_equal(draw(4, (3, 5, 7), dtype), line.reshape(3, 5, 7), strict=True)
    assert draw(4, (), dtype) == line[0]
    assert draw(4, (), dtype).shape == ()
    assert draw(4, (3, 0), dtype).shape == (3, 0)


@every_kind
def test_threads_draw_the_same_bits(draw, fill, dtype):
    longest = draw(5, 80_000, dtype)
    together = np.empty_like(longest)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda start: fill(5, start, together[start : start + 9_999]), range(0, 80_000, 9_999)))
    np.testing.assert_array_equal(together, longest)


@every_kind
def test_out_is_written_and_returned(draw, fill, dtype):
    out = np.zeros((4, 3), dtype)
    assert draw(6, (4, 3), dtype, out=out) is out
    np.testing.assert_array_equal(out, draw(6, (4, 3), dtype))


def test_the_default_dtypes_are_uint64_and_float32():
    assert [draw(1, 1).dtype for draw in (random.bits, random.uniform, random.normal)] == [
        np.uint64,
        np.float32,
        np.float32,
    ]


def test_a_wide_value_is_made_of_two_narrow_ones_the_lower_half_first():
    narrow = random.bits(8, 2000, np.uint32).astype(np.uint64)
    np.testing.assert_array_equal(random.bits(8, 1000), narrow[::2] | narrow[1::2] << np.uint64(32))


# ---- uniform ----


def test_a_uniform_is_the_upper_bits_of_the_word():
    single = (random.bits(8, 1000, np.uint32) >> 8) / 2.0**24
    np.testing.assert_array_equal(random.uniform(8, 1000), single)
    double = (random.bits(8, 1000) >> np.uint64(11)).astype(np.float64) / 2.0**53
    np.testing.assert_array_equal(random.uniform(8, 1000, np.float64), double)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniforms_lie_in_the_half_open_unit_interval_evenly(dtype):
    drawn = random.uniform(9, 1_000_000, dtype)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.bincount((drawn * 1000).astype(int), minlength=1000)
    assert abs(chi_square(counts, 1000.0) - 999) < 4 * math.sqrt(2 * 999)


# ---- normal ----


def test_the_quantile_has_the_tail_probability_it_says():
    for p in 2.0 ** -np.linspace(1, 65, 5001):
        z = _random.quantile(p)
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        assert abs(upper_tail(z) - p) / density <= 1e-15 * max(1, z)


def test_the_quantile_agrees_with_the_standard_library():
    for p in 2.0 ** -np.linspace(1, 65, 1001):
        assert _random.quantile(p) == pytest.approx(-NormalDist().inv_cdf(p), rel=1e-15, abs=1e-15)


def test_the_quantile_falls_as_the_tail_grows():
    z = [_random.quantile(p) for p in 2.0 ** -np.linspace(65, 1, 20_001)]
    assert all(a > b for a, b in pairwise(z))
    assert z[-1] == 0


def test_a_double_normal_is_the_quantile_of_its_word():
    words, drawn = random.bits(10, 1000), random.normal(10, 1000, np.float64)
    for word, z in zip(words.tolist(), drawn.tolist(), strict=True):
        negative, magnitude = word >> 63, word & (2**63 - 1)
        if negative:
            magnitude ^= 2**63 - 1
        assert z == (-1) ** negative * _random.quantile((magnitude + 0.5) / 2.0**64)


def test_a_single_normal_is_within_its_error_of_the_quantile_of_its_word():
    words = random.bits(10, 300_000, np.uint32)
    drawn = random.normal(10, 300_000)
    magnitudes = np.where(words >> 31, ~words, words)
    exact = np.array([_random.quantile((m + 0.5) / 2.0**32) for m in magnitudes.tolist()])
    np.testing.assert_array_equal(np.signbit(drawn), words >> 31 == 1)
    error = np.abs(np.abs(drawn) - exact)
    assert np.all(error <= np.where(exact < 1, 1.1e-7, 1.3 * np.spacing(exact.astype(np.float32))))


@pytest.mark.parametrize(
    ("k", "word"),
    [
        (1117418819, 0xFFFFFFFE),
        (1453024970, 0xFFFFFFFD),
        (2619376062, 0xFFFFFFFC),
        (1819059, 0x80000001),
        (2592375475, 0x80000000),
        (384180842, 0x7FFFFFEF),
    ],
)
def test_the_far_ends_of_the_words_give_the_far_ends_of_the_normals(k, word):
    bits, z = np.empty(1, np.uint32), np.empty(1, np.float32)
    _random.fill_bits(0, k, bits)
    _random.fill_normal(0, k, z)
    signed = int(bits.view(np.int32)[0])
    exact = _random.quantile(((signed if signed >= 0 else ~signed) + 0.5) / 2.0**32)
    assert bits[0] == word
    assert abs(float(z[0])) == pytest.approx(exact, rel=1.3 * 2.0**-23, abs=1.1e-7)
    assert np.signbit(z[0]) == (signed < 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_have_the_moments_of_the_normal_distribution(dtype):
    n = 1_000_000
    z = random.normal(11, n, dtype).astype(np.float64)
    for power, moment, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10_170)]:
        assert abs(np.mean(z**power) - moment) < 3 * math.sqrt(variance / n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normals_pass_the_kolmogorov_smirnov_test(dtype):
    n = 50_000
    z = np.sort(random.normal(12, n, dtype).astype(np.float64))
    below = np.array([upper_tail(-value) for value in z.tolist()])
    steps = np.arange(n + 1) / n
    distance = max(np.max(steps[1:] - below), np.max(below - steps[:-1]))
    assert distance * math.sqrt(n) < 1.63  # exceeded once in a hundred keys


def test_the_tails_hold_as_many_normals_as_they_should():
    z = np.abs(random.normal(13, 4_000_000))
    for bound in (2.0, 3.0, 4.0, 4.5):
        expected = z.size * 2 * upper_tail(bound)
        assert abs(np.sum(z > bound) - expected) < 3 * math.sqrt(expected)


# ---- independence ----


def test_the_bytes_of_a_draw_are_uniform():
    counts = np.bincount(random.bits(14, 500_000).view(np.uint8), minlength=256)
    assert abs(chi_square(counts, 4_000_000 / 256) - 255) < 4 * math.sqrt(2 * 255)


def test_the_words_of_neighbouring_seeds_and_numbers_are_uniform_too():
    for folded in (random.fold(np.arange(200_000, dtype=np.uint64), 0), random.fold(0, np.arange(200_000))):
        counts = np.bincount(folded.view(np.uint8), minlength=256)
        assert abs(chi_square(counts, 1_600_000 / 256) - 255) < 4 * math.sqrt(2 * 255)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 16, 64, 256])
def test_neighbours_are_not_correlated(lag):
    z = random.normal(15, 400_000)
    assert abs(np.mean(z[:-lag] * z[lag:])) < 4 / math.sqrt(z.size)


@pytest.mark.parametrize("other", [random.fold(16, 0), random.fold(16, 1), random.fold(17, 0), 17, 2**40])
def test_draws_by_different_keys_are_not_correlated(other):
    n = 400_000
    mine, theirs = random.normal(16, n), random.normal(other, n)
    for shift in range(-4, 5):
        assert abs(np.mean(mine * np.roll(theirs, shift))) < 4 / math.sqrt(n)


def test_candidates_of_neighbouring_generations_share_no_value():
    populations = [random.bits(random.fold(*numbers), 100) for numbers in np.ndindex(4, 10, 25)]
    assert np.unique(np.concatenate(populations)).size == 100_000


# ---- fold ----


def test_fold_gives_a_different_key_for_every_number():
    powers = 2 ** np.arange(20, 63)
    numbers = np.concatenate([np.arange(-100_000, 100_000), powers, -powers])
    assert np.unique(random.fold(1, numbers)).size == numbers.size


def test_fold_of_several_numbers_is_fold_of_fold_and_the_order_matters():
    assert random.fold(1, 2, 3) == random.fold(random.fold(1, 2), 3)
    assert random.fold(1, 2, 3) != random.fold(1, 3, 2)


def test_a_negative_number_is_not_the_large_one_with_the_same_bits():
    assert random.fold(1, -1) != random.fold(1, 2**64 - 1)


@pytest.mark.parametrize("kind", [int, np.int8, np.int64, np.uint8, np.uint64, np.array])
def test_every_kind_of_integer_makes_the_same_key(kind):
    assert random.fold(5, kind(7)) == random.fold(5, 7)
    assert type(random.fold(5, kind(7))) is np.uint64
    np.testing.assert_array_equal(random.bits(kind(5), 3), random.bits(5, 3))


def test_arrays_of_keys_and_numbers_broadcast():
    keys, numbers = random.fold(1, np.arange(3)), np.arange(-2, 2)
    folded = random.fold(keys[:, None], numbers)
    assert folded.dtype == np.uint64
    assert folded.tolist() == [[random.fold(key, number) for number in numbers] for key in keys]
    np.testing.assert_array_equal(random.fold(keys[::2], numbers[::-2]), [folded[0, 3], folded[2, 1]])
    assert keys.tolist() == random.fold(1, np.arange(3)).tolist()


# ---- bernoulli, permutation ----


@given(keys, st.floats(0, 1), st.integers(0, 50))
def test_bernoulli_compares_a_uniform_double_with_p(key, p, n):
    below = random.uniform(key, n, np.float64) < p
    np.testing.assert_array_equal(random.bernoulli(key, p, n), below, strict=True)


def test_bernoulli_is_never_true_at_0_always_at_1_and_in_proportion_between():
    mask = random.bernoulli(18, [0.0, 0.1, 0.5, 1.0], (100_000, 4))
    assert mask.dtype == np.bool_
    assert mask[:, 0].sum() == 0
    assert mask[:, 3].all()
    assert abs(mask[:, 1].mean() - 0.1) < 4 * math.sqrt(0.09 / 100_000)
    assert abs(mask[:, 2].mean() - 0.5) < 4 * math.sqrt(0.25 / 100_000)


@given(keys, st.integers(0, 100))
def test_a_permutation_holds_every_number_once(key, n):
    order = random.permutation(key, n)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))


def test_all_permutations_are_equally_likely():
    orders = [tuple(random.permutation(key, 4).tolist()) for key in range(12_000)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert counts.size == 24
    assert abs(chi_square(counts, 500.0) - 23) < 4 * math.sqrt(2 * 23)


# ---- errors ----


@every_kind
def test_a_key_that_is_none_is_refused(draw, fill, dtype):
    for key in (1.0, "1", None, True, np.True_, np.float32(1), np.arange(2, dtype=np.uint64)):
        with pytest.raises(TypeError, match="a key needs one integer; got"):
            draw(key, 3, dtype)
    for key in (-1, 2**64, np.int64(-5)):
        with pytest.raises(ValueError, match=r"0 <= key < 2\*\*64; got"):
            draw(key, 3, dtype)


@every_kind
def test_an_out_that_does_not_fit_is_refused_and_not_written(draw, fill, dtype):
    frozen = np.zeros((2, 3), dtype)
    frozen.flags.writeable = False
    for out, error, word in [
        (np.zeros((3, 2), dtype), ValueError, r"shape \(2, 3\)"),
        (np.zeros((2, 3), np.int16), ValueError, "got shape .* int16"),
        (np.zeros((3, 2), dtype).T, ValueError, "C-contiguous"),
        (frozen, ValueError, "writeable=False"),
        ([[0.0] * 3] * 2, TypeError, "array; got list"),
    ]:
        with pytest.raises(error, match=word):
            draw(1, (2, 3), dtype, out=out)
        assert not np.any(out)


@pytest.mark.parametrize("draw", [random.bits, random.uniform, random.normal])
@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.complex64, np.uint8, bool, np.longdouble])
def test_a_dtype_that_cannot_be_drawn_is_refused(draw, dtype):
    with pytest.raises(TypeError, match="this draw needs dtype"):
        draw(1, 3, dtype)


def test_a_foreign_byte_order_is_refused():
    with pytest.raises(ValueError, match="native byte order"):
        random.normal(1, 3, np.dtype(np.float32).newbyteorder())


@every_kind
def test_a_negative_start_is_refused(draw, fill, dtype):
    with pytest.raises(ValueError, match="start needs to be 0 or more; got -1"):
        fill(1, -1, np.empty(3, dtype))


def test_fold_refuses_what_is_no_integer():
    for number in (1.0, "1", None, True, np.arange(2.0), np.array([True])):
        with pytest.raises(TypeError, match="fold needs"):
            random.fold(1, number)
    for number in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=r"fold needs -2\*\*63 <= number < 2\*\*64; got"):
            random.fold(1, number)
    with pytest.raises(TypeError, match="at least one integer"):
        random.fold(1)
    with pytest.raises(TypeError, match="an array of keys needs dtype uint64; got int64"):
        random.fold(np.arange(2), 1)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, [0.5, 2.0]])
def test_bernoulli_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="0 <= p <= 1"):
        random.bernoulli(1, p, 2)


def test_bernoulli_refuses_probabilities_that_do_not_fit_the_shape():
    with pytest.raises(ValueError, match="broadcast"):
        random.bernoulli(1, np.full((3, 2), 0.5), 2)


def test_permutation_refuses_what_is_no_length():
    with pytest.raises(TypeError, match="integer"):
        random.permutation(1, 2.0)
    with pytest.raises(ValueError, match="negative"):
        random.permutation(1, -1)


def test_a_range_of_folds_is_the_folds_one_by_one():
    from nnflat._random import fold_range

    np.testing.assert_array_equal(fold_range(7, 3, 5), random.fold(7, np.arange(3, 8)))
    with pytest.raises(ValueError, match="starts at 0"):
        fold_range(7, -1, 2)
