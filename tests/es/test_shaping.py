"""Laws of the rank transform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnflat.es import centred_ranks

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


@given(anything | few_values)
def test_ranks_are_the_mean_ranks_by_counting(fitness):
    np.testing.assert_allclose(centred_ranks(fitness), slow_ranks(fitness), atol=1e-15)


@given(anything | few_values)
def test_ranks_are_finite_within_a_half_and_sum_to_zero(fitness):
    ranks = centred_ranks(fitness)
    assert np.all(np.abs(ranks) <= 0.5)
    assert abs(ranks.sum()) < 1e-13


@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=False)))
def test_ranks_of_the_negated_fitness_are_the_negated_ranks(fitness):
    np.testing.assert_array_equal(centred_ranks(-fitness), -centred_ranks(fitness))


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
