"""Laws of the shapings, and of the rank transform."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnflat.es import centred_ranks, linear_ranks, nes_utilities, raw, top_k, zscore
from nnflat.es.shaping import recombination_weights

some = settings(max_examples=settings().max_examples // 10)
anything = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(width=64))
few = st.sampled_from([-1.0, 0.0, 2.0, np.nan, -np.inf])
few_values = hnp.arrays(np.float64, st.integers(1, 40), elements=few)


def slow_ranks(fitness):
    """Mean rank among equals, by counting, scaled to [-0.5, 0.5]."""
    scores = [-np.inf if np.isnan(value) else value for value in fitness]
    if len(scores) == 1:
        return [0.0]
    ranks = [sum(b < a for b in scores) + (sum(b == a for b in scores) - 1) / 2 for a in scores]
    return [rank / (len(scores) - 1) - 0.5 for rank in ranks]


@some
@given(anything | few_values)
def test_ranks_are_the_mean_ranks_by_counting(fitness):
    np.testing.assert_allclose(centred_ranks(fitness), slow_ranks(fitness), atol=1e-15)


@some
@given(anything | few_values)
def test_ranks_are_finite_within_a_half_and_sum_to_zero(fitness):
    ranks = centred_ranks(fitness)
    assert np.all(np.abs(ranks) <= 0.5)
    assert abs(ranks.sum()) < 1e-13


@some
@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=False)))
def test_ranks_of_the_negated_fitness_are_the_negated_ranks(fitness):
    np.testing.assert_array_equal(centred_ranks(-fitness), -centred_ranks(fitness))


@some
@given(anything | few_values, st.randoms(use_true_random=False))
def test_order_of_the_candidates_plays_no_part(fitness, random):
    order = np.array(random.sample(range(fitness.size), fitness.size))
    np.testing.assert_array_equal(centred_ranks(fitness[order]), centred_ranks(fitness)[order])


@pytest.mark.parametrize("value", [0.0, -3.5, np.inf, -np.inf, np.nan, 1e138, 5e-324])
@pytest.mark.parametrize("pop", [1, 2, 3, 64])
def test_constant_fitness_gives_exact_zeros(value, pop):
    np.testing.assert_array_equal(centred_ranks(np.full(pop, value)), np.zeros(pop))


def test_nan_is_the_worst():
    np.testing.assert_array_equal(centred_ranks([1.0, np.nan, 3.0]), [0.0, -0.5, 0.5])


def test_equal_fitnesses_share_their_rank():
    np.testing.assert_array_equal(centred_ranks([5, 5, 1, 9]), [0.0, 0.0, -0.5, 0.5])


SHAPINGS = [centred_ranks, linear_ranks, nes_utilities, recombination_weights, top_k(1), top_k(3), raw, zscore]
NAMES = [getattr(shaping, "__name__", repr(shaping)) for shaping in SHAPINGS]
each_shaping = pytest.mark.parametrize("shaping", SHAPINGS, ids=NAMES)


@each_shaping
@some
@given(anything | few_values)
def test_utilities_are_finite_equal_among_equals_and_never_better_for_worse(shaping, fitness):
    utilities = shaping(fitness)
    scores = np.where(np.isnan(fitness), -np.inf, fitness)
    order = np.argsort(scores)
    assert utilities.shape == fitness.shape
    assert np.isfinite(utilities).all()
    assert np.all(np.diff(utilities[order]) >= -1e-12 * np.abs(utilities).max())
    same = np.diff(scores[order]) == 0 if np.isfinite(scores).all() else []
    np.testing.assert_array_equal(np.diff(utilities[order])[same], 0)


@each_shaping
@pytest.mark.parametrize("value", [0.0, -3.5, np.inf, -np.inf, np.nan, 1e138, 5e-324])
@pytest.mark.parametrize("pop", [1, 2, 3, 64])
def test_every_shaping_of_a_constant_is_exact_zeros(shaping, value, pop):
    np.testing.assert_array_equal(shaping(np.full(pop, value)), np.zeros(pop))


@each_shaping
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_what_is_not_finite_is_not_better_than_the_worst(shaping, bad):
    utilities = shaping(np.array([1.0, bad, 3.0, 2.0]))
    assert utilities[1] == utilities.min()


@some
@given(anything | few_values)
def test_nes_utilities_sum_to_zero(fitness):
    assert abs(nes_utilities(fitness).sum()) < 1e-12


def test_nes_utilities_are_those_of_the_paper():
    expected = np.maximum(0, np.log(11) - np.log(np.arange(1, 21)))
    expected = expected / expected.sum() - 1 / 20
    np.testing.assert_allclose(nes_utilities(-np.arange(20.0)), expected, rtol=1e-14)


def test_recombination_weights_are_those_of_pycma_before_its_negative_ones():
    weights = recombination_weights(-np.arange(10.0))
    expected = np.log(5.5) - np.log(np.arange(1, 6))
    np.testing.assert_allclose(weights[:5], expected / expected.sum(), rtol=1e-14)
    assert not weights[5:].any()


def test_top_k_shares_what_is_tied_at_the_edge():
    np.testing.assert_array_equal(top_k(2)([1.0, 5.0, 3.0, 3.0]), [0, 0.5, 0.25, 0.25])
    np.testing.assert_array_equal(top_k(9)([1.0, 2.0]), [0.5, 0.5])


@some
@given(hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(-1e300, 1e300)))
def test_zscores_have_mean_zero_and_standard_deviation_one(fitness):
    scores = zscore(fitness)
    assert abs(scores.mean()) < 1e-9
    assert scores.std() == pytest.approx(1) or not scores.any() or np.ptp(fitness) < 1e-6 * np.abs(fitness).max()


def test_raw_keeps_finite_fitness():
    np.testing.assert_array_equal(raw([3.0, -1.0, np.inf, np.nan]), [3, -1, 3, -1])
