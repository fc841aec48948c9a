"""What the strategies need to reach a minimum, beside pycma and evosax: evaluations, as medians of three seeds."""

from functools import cache

import numpy as np
import pytest

from nnflat import es

MOST = 60_000


def ellipsoid(x):
    return (x**2 * 1e6 ** (np.arange(x.shape[1]) / (x.shape[1] - 1))).sum(axis=1)


def rosenbrock(x):
    return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)


def rastrigin(x):
    return 10 * x.shape[1] + np.sum(x**2 - 10 * np.cos(2 * np.pi * x), axis=1)


def ball(x):
    return (x**2).sum(axis=1)


def evaluations(strategy, fitness, target, most=MOST):
    told = 0
    while told < most:
        values = fitness(strategy.ask())
        told += len(values)
        strategy.tell(values)
        if values.min() <= target:
            return told
    return np.inf


def ours(kind, fitness, n, pop, target):
    """Return the evaluations that a strategy of ours needs: the median of three seeds."""
    strategies = [kind(np.full(n, 0.5), maximize=False, pop=pop, sigma=0.3, seed=seed) for seed in (1, 2, 3)]
    return np.median([evaluations(strategy, fitness, target) for strategy in strategies])


@cache
def by_pycma(fitness, n, pop, target):
    """Return the evaluations that pycma needs: the median of three seeds."""
    cma = pytest.importorskip("cma")
    counts = []
    for seed in (1, 2, 3):
        peer = cma.CMAEvolutionStrategy(np.full(n, 0.5), 0.3, {"popsize": pop, "seed": seed, "verbose": -9})
        told = 0
        while told < MOST:
            xs = peer.ask()
            values = fitness(np.array(xs))
            told += len(xs)
            peer.tell(xs, list(values))
            if values.min() <= target:
                break
        counts.append(told)
    return np.median(counts)


CASES = [
    # kind, function, the factor of pycma's evaluations within which the target is reached
    (es.XNES, ball, 5.0),
    (es.SNES, ball, 2.5),
    (es.SepCMA, ball, 1.5),
    (es.LMMAES, ball, 2.0),
    (es.CRFMNES, ball, 2.0),
    (es.XNES, ellipsoid, 6.0),
    (es.SNES, ellipsoid, 3.0),
    (es.SepCMA, ellipsoid, 1.0),
    (es.CRFMNES, ellipsoid, 2.0),
    (es.XNES, rosenbrock, 8.0),
    (es.CRFMNES, rosenbrock, 4.0),
]


@pytest.mark.parametrize(("kind", "fitness", "factor"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_evaluations_to_the_target_are_within_a_factor_of_pycma(kind, fitness, factor):
    n, pop, target = 10, 10, 1e-8
    assert ours(kind, fitness, n, pop, target) <= factor * by_pycma(fitness, n, pop, target)


@cache
def by_evosax(name, fitness, n, pop, target):
    """Return the evaluations that evosax needs, in float64: the median of three seeds, each one jitted scan."""
    jax = pytest.importorskip("jax")
    algorithms = pytest.importorskip("evosax.algorithms")
    with jax.enable_x64(True):
        peer = getattr(algorithms, name)(population_size=pop, solution=jax.numpy.zeros(n))
        params = peer.default_params.replace(std_init=0.3)

        def generation(state, key):
            ask, tell = jax.random.split(key)
            population, state = peer.ask(ask, state, params)
            values = fitness(population)
            return peer.tell(tell, population, values, state, params)[0], values.min()

        @jax.jit
        def best(key):
            state = peer.init(key, jax.numpy.full(n, 0.5), params)
            return jax.lax.scan(generation, state, jax.random.split(key, MOST // pop))[1]

        reached = [np.asarray(best(jax.random.key(seed))) <= target for seed in (1, 2, 3)]
    return np.median([pop * (1 + there.argmax()) if there.any() else np.inf for there in reached])


EVOSAX = [
    # kind, its name there, function, the factor of evosax's evaluations within which the target is reached
    (es.SNES, "SNES", ball, 1.1),
    (es.SNES, "SNES", ellipsoid, 1.1),
    (es.SepCMA, "Sep_CMA_ES", ball, 1.1),
    (es.SepCMA, "Sep_CMA_ES", ellipsoid, 1.0),
    (es.LMMAES, "LM_MA_ES", ball, 1.0),
    (es.CRFMNES, "CR_FM_NES", ball, 1.0),
    (es.CRFMNES, "CR_FM_NES", ellipsoid, 1.0),
    (es.CRFMNES, "CR_FM_NES", rosenbrock, 1.3),
    (es.XNES, "xNES", ball, 1.3),
    (es.XNES, "xNES", ellipsoid, 1.3),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name", "fitness", "factor"), EVOSAX)
def test_evaluations_to_the_target_are_within_a_factor_of_evosax(kind, name, fitness, factor):
    n, pop, target = 10, 10, 1e-8
    assert ours(kind, fitness, n, pop, target) <= factor * by_evosax(name, fitness, n, pop, target)


@pytest.mark.parametrize("kind", [es.SepCMA, es.SNES, es.CRFMNES])
def test_rastrigin_is_solved_by_a_large_population(kind):
    strategy = kind(np.full(5, 3.0), maximize=False, pop=200, sigma=2.0, seed=1)
    assert evaluations(strategy, rastrigin, 1e-6) < np.inf
