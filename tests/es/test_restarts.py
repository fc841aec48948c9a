"""Restarts with growing populations."""

import numpy as np
import pytest

from nnflat import es


def make(factor, seed):
    return es.SepCMA(np.full(2, 3.0), maximize=False, pop=6 * factor, sigma=1.0, seed=seed)


def rastrigin(x):
    return 10 * x.shape[1] + np.sum(x**2 - 10 * np.cos(2 * np.pi * x), axis=1)


def advance(strategy, generations):
    for _ in range(generations):
        strategy.tell(rastrigin(strategy.ask()))
    return strategy


def test_populations_grow_and_the_best_of_all_attempts_is_kept():
    strategy = es.restarts(make)
    seen = {}
    best = np.inf
    for _ in range(250):
        seen[strategy.attempt] = strategy.pop
        values = rastrigin(strategy.ask())
        best = min(best, values.min())
        strategy.tell(values)
    assert list(seen.values())[:3] == [6, 12, 24]
    assert strategy.best_fitness == best
    assert strategy.generation == 250


def test_a_flat_fitness_restarts():
    strategy = es.restarts(make)
    for _ in range(60):
        strategy.tell(np.zeros(strategy.pop))
    assert strategy.attempt >= 1


@pytest.mark.parametrize("generations", [3, 90])
def test_a_restored_state_continues_to_the_bit(generations):
    strategy, other = advance(es.restarts(make), generations), advance(es.restarts(make), 5)
    other.restore(strategy.state())
    advance(strategy, 90)
    advance(other, 90)
    assert other.attempt == strategy.attempt
    for name, value in strategy.state().items():
        np.testing.assert_array_equal(other.state()[name], value, err_msg=name)


def test_a_run_takes_them():
    sphere = es.Batch(lambda population, key: np.sum(population**2, axis=1))
    result = es.run(es.restarts(make), sphere, generations=200, progress=False)
    assert result.fitness < 1e-3


def test_growth_must_be_positive():
    with pytest.raises(ValueError, match="growth"):
        es.restarts(make, growth=0)
