"""The update of OpenAI-ES is the gradient estimate that its docstring states."""

import numpy as np
import pytest

from nnflat import es, optim

SLOPE = np.array([1.0, -2.0, 0.5, 0.0])


def raw(scores):
    return scores


def step_of(strategy, fitness):
    before = strategy.theta.copy()
    strategy.tell(fitness)
    return strategy.theta - before


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("pop", [8_000, 8_001])
def test_the_estimate_of_a_linear_fitness_is_its_gradient(maximize, pop):
    strategy = es.OpenAIES(
        np.ones(4), maximize=maximize, pop=pop, sigma=0.3, shaping=raw, optimizer=optim.SGD(1.0), seed=2
    )
    step = step_of(strategy, strategy.ask() @ SLOPE)
    np.testing.assert_allclose(step, SLOPE if maximize else -SLOPE, atol=0.15)


@pytest.mark.parametrize("pop", [2, 5, 8])
def test_the_step_is_combine_over_pop_times_sigma_less_the_decay(pop):
    options = {"maximize": True, "pop": pop, "sigma": 0.2, "shaping": raw, "decay": 0.5}
    strategy = es.OpenAIES(np.arange(4.0), optimizer=optim.SGD(0.1), **options)
    fitness = np.arange(pop) ** 2.0
    expected = 0.1 * (strategy.combine(fitness) / (pop * 0.2) - 0.5 * strategy.theta)
    np.testing.assert_allclose(step_of(strategy, fitness), expected, rtol=1e-12)


def test_the_default_optimizer_is_adam():
    strategy = es.OpenAIES(np.zeros(4), maximize=True, pop=4, sigma=0.1)
    assert strategy.optimizer == optim.Adam(lr=0.1)
