"""The full CMA-ES of pycma behind ask and tell."""

import numpy as np
import pytest

from nnflat import es

pytest.importorskip("cma")


def make(**options):
    return es.PyCMA(np.full(4, 0.5), **({"maximize": False, "pop": 8, "sigma": 0.3} | options))


def advance(strategy, generations):
    for _ in range(generations):
        strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    return strategy


def test_it_minimises_the_sphere():
    assert np.sum(advance(make(), 80).theta ** 2) < 1e-8


def test_asking_twice_gives_the_same_bits_and_write_a_row():
    strategy = advance(make(), 3)
    population = strategy.ask()
    np.testing.assert_array_equal(strategy.ask(), population)
    np.testing.assert_array_equal(strategy.write(3, np.empty(4)), population[3])


def test_seeds_decide_and_the_global_generator_plays_no_part():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - it is the one that must not move
    a = advance(make(seed=1), 5).theta.copy()
    np.random.rand(3)  # noqa: NPY002
    np.testing.assert_array_equal(advance(make(seed=1), 5).theta, a)
    assert not np.array_equal(advance(make(seed=2), 5).theta, a)
    assert np.random.get_state()[1].size == before.size  # noqa: NPY002


def test_a_restored_strategy_continues_to_the_bit():
    strategy, other = advance(make(seed=1), 6), advance(make(seed=2), 2)
    other.restore(strategy.state())
    advance(strategy, 5)
    advance(other, 5)
    for name, value in strategy.state().items():
        np.testing.assert_array_equal(other.state()[name], value, err_msg=name)


def test_too_many_elements_are_refused_with_the_memory_they_need():
    with pytest.raises(ValueError, match="GiB"):
        es.PyCMA(np.zeros(10_000), maximize=False, pop=8, sigma=0.3)


def test_nan_is_the_worst():
    strategy = make()
    for _ in range(100):
        values = np.sum(strategy.ask() ** 2, axis=1)
        values[2] = np.nan
        strategy.tell(values)
    assert np.sum(strategy.theta**2) < 1e-6
