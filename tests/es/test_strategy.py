"""What all strategies share, by way of OpenAI-ES: sampling, telling, state."""

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnflat import es, optim
from nnflat.es.strategy import MAX_FAILURES

DTYPES = [np.float16, np.float32, np.float64]
POPS = [1, 2, 3, 8, 9]
TARGET = np.arange(5.0)


def make(pop=8, *, maximize=True, dtype=np.float32, **options):
    options = {"sigma": 0.1, "optimizer": optim.Adam(0.1)} | options
    return es.OpenAIES(np.linspace(-1, 1, 5).astype(dtype), maximize=maximize, pop=pop, **options)


def sphere(population):
    return np.sum((population.astype(np.float64) - TARGET) ** 2, axis=1)


def advance(strategy, generations, fitness=sphere):
    for _ in range(generations):
        strategy.tell(fitness(strategy.ask()))
    return strategy


def same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        assert a[name].dtype == b[name].dtype


# ask and write


@pytest.mark.parametrize("pop", POPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_asking_twice_gives_the_same_bits(pop, dtype):
    strategy = advance(make(pop, dtype=dtype), 2)
    first = strategy.ask()
    assert first.shape == (pop, 5)
    assert first.dtype == dtype
    np.testing.assert_array_equal(strategy.ask(), first)


@pytest.mark.parametrize("pop", POPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bounds", [None, (-1.05, 1.05)])
def test_write_is_the_row_of_ask_to_the_bit(pop, dtype, bounds):
    strategy = make(pop, dtype=dtype, bounds=bounds)
    population = strategy.ask()
    for k in reversed(range(pop)):
        out = np.empty(5, dtype)
        assert strategy.write(k, out) is out
        np.testing.assert_array_equal(out, population[k])


def test_ask_fills_out_and_returns_it():
    strategy, out = make(), np.empty((8, 5), np.float32)
    assert strategy.ask(out=out) is out
    np.testing.assert_array_equal(out, strategy.ask())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_thousand_evaluations_leave_theta_as_it_was(dtype):
    strategy, buffer = make(dtype=dtype), np.empty(5, dtype)
    before = strategy.theta.copy()
    for k in range(1000):
        strategy.write(k % 8, buffer)
        np.copyto(buffer, strategy.theta)
    np.testing.assert_array_equal(strategy.theta, before)
    np.testing.assert_array_equal(buffer, before)


@pytest.mark.parametrize("pop", [2, 3, 8, 9])
def test_candidates_come_in_mirrored_pairs_around_theta(pop):
    strategy = make(pop, dtype=np.float64)
    noise = strategy.ask() - strategy.theta
    np.testing.assert_allclose(noise[0 : pop - 1 : 2], -noise[1:pop:2], atol=1e-15)
    assert np.unique(np.abs(noise).round(12)).size == (pop + 1) // 2 * 5


def test_sigma_is_the_standard_deviation_of_the_candidates():
    strategy = make(4000, sigma=0.25)
    assert abs((strategy.ask() - strategy.theta).std() - 0.25) < 0.01


def test_seeds_differ_and_generations_differ():
    populations = [make(seed=0).ask(), make(seed=1).ask(), make(seed=-1).ask()]
    populations.append(advance(make(seed=0), 1, lambda population: np.zeros(8)).ask())
    assert np.unique(np.array(populations)[:, ::2]).size == 4 * 4 * 5


def test_a_seed_gives_the_same_run_in_a_fresh_process():
    code = (
        "import numpy as np; from nnflat import es, optim\n"
        "strategy = es.OpenAIES(np.linspace(-1, 1, 5).astype(np.float32), maximize=True, pop=8, sigma=0.1,\n"
        "                       optimizer=optim.Adam(0.1), seed=7)\n"
        "for _ in range(3): strategy.tell(np.sum(strategy.ask(), axis=1))\n"
        "print(strategy.theta.tobytes().hex())"
    )
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    mine = advance(make(seed=7), 3, lambda population: np.sum(population, axis=1))
    assert fresh.stdout.strip() == mine.theta.tobytes().hex()


def test_bounds_hold_for_candidates_and_theta():
    strategy = make(sigma=1.0, bounds=(-1.0, np.full(5, 1.5)), maximize=False)
    for _ in range(20):
        population = strategy.ask()
        assert population.min() >= -1
        assert population.max() <= 1.5
        strategy.tell(sphere(population))
    assert strategy.theta.max() <= 1.5


@pytest.mark.parametrize(
    ("out", "word"),
    [
        (np.empty(4, np.float32), "shape"),
        (np.empty(5, np.float64), "float64"),
        (np.empty(10, np.float32)[::2], "contiguous"),
    ],
)
def test_an_unfit_out_is_refused(out, word):
    with pytest.raises(ValueError, match=word):
        make().write(0, out)


@pytest.mark.parametrize("k", [-1, 8])
def test_a_candidate_out_of_range_is_refused(k):
    with pytest.raises(IndexError, match="population of 8"):
        make().write(k, np.empty(5, np.float32))


def test_theta_and_best_are_read_only():
    strategy = advance(make(), 1)
    for flat in (strategy.theta, strategy.best):
        with pytest.raises(ValueError, match="read-only"):
            flat[0] = 1.0


def test_theta_is_copied_when_the_strategy_is_made():
    theta = np.zeros(3)
    strategy = es.OpenAIES(theta, maximize=True, pop=4, sigma=0.1)
    theta[:] = 9
    np.testing.assert_array_equal(strategy.theta, np.zeros(3))


# making


def test_maximize_is_required():
    with pytest.raises(TypeError, match="maximize"):
        es.OpenAIES(np.zeros(3), pop=4, sigma=0.1)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"theta": np.zeros((2, 2))}, ValueError, "vector"),
        ({"theta": np.zeros(0)}, ValueError, "at least one"),
        ({"theta": np.zeros(3, np.int64)}, TypeError, "int64"),
        ({"theta": np.zeros(3, np.complex128)}, TypeError, "complex128"),
        ({"maximize": "yes"}, TypeError, "maximize"),
        ({"pop": 0}, ValueError, "pop"),
        ({"pop": 2.5}, TypeError, "integer"),
        ({"sigma": 0.0}, ValueError, "sigma"),
        ({"sigma": np.nan}, ValueError, "sigma"),
        ({"bounds": (1.0, 2.0)}, ValueError, "within"),
        ({"bounds": (np.zeros(2), 1.0)}, ValueError, "bound"),
        ({"seed": 0.5}, TypeError, "integer"),
    ],
)
def test_impossible_arguments_are_refused(options, error, word):
    arguments = {"theta": np.zeros(3), "maximize": True, "pop": 4, "sigma": 0.1} | options
    with pytest.raises(error, match=word):
        es.OpenAIES(arguments.pop("theta"), **arguments)


# tell


@pytest.mark.parametrize("maximize", [True, False])
def test_the_sphere_is_descended_or_climbed_as_asked(maximize):
    strategy = make(20, maximize=maximize)
    start = sphere(strategy.theta[None])[0]
    advance(strategy, 100, lambda population: -sphere(population) if maximize else sphere(population))
    assert sphere(strategy.theta[None])[0] < 0.1 * start


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("bad", [np.nan, "wrong infinity"])
def test_nan_and_the_wrong_infinity_are_worst_in_both_directions(maximize, bad):
    strategy = make(8, maximize=maximize, dtype=np.float64, optimizer=optim.SGD(0.01))
    fitness = np.zeros(8)
    fitness[2] = bad if bad is np.nan else -np.inf if maximize else np.inf
    away = strategy.theta - strategy.ask()[2]
    before = strategy.theta.copy()
    strategy.tell(fitness)
    assert away @ (strategy.theta - before) > 0


@pytest.mark.parametrize("maximize", [True, False])
def test_nan_ranks_as_the_wrong_infinity_does(maximize):
    worst = -np.inf if maximize else np.inf
    fitness = np.arange(8.0)
    fitness[3] = worst
    a, b = make(maximize=maximize), make(maximize=maximize)
    a.tell(fitness)
    fitness[3] = np.nan
    b.tell(fitness)
    np.testing.assert_array_equal(a.theta, b.theta)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e138, np.inf])
@pytest.mark.parametrize("optimizer", [optim.SGD(0.1, momentum=0.9), optim.Adam(0.1)])
def test_constant_fitness_leaves_theta_and_moments_and_counts(value, optimizer):
    strategy = advance(make(optimizer=optimizer, decay=0.1), 3)
    before = strategy.state()
    strategy.tell(np.full(8, value))
    after = strategy.state()
    assert after["generation"] == before["generation"] + 1
    for name in ("theta", *(name for name in before if name.startswith("optimizer."))):
        np.testing.assert_array_equal(after[name], before[name])


def test_a_population_of_one_never_moves():
    strategy = make(1)
    before = strategy.theta.copy()
    advance(strategy, 5)
    np.testing.assert_array_equal(strategy.theta, before)
    assert strategy.generation == 5


extremes = st.floats() | st.sampled_from([0.0, 1e138, -1e138, 1e308, np.inf, -np.inf, 5e-324, np.nan])


@settings(max_examples=settings().max_examples // 10)
@given(hnp.arrays(np.float64, 8, elements=extremes), st.booleans())
def test_any_fitness_leaves_theta_finite_and_best_a_number(fitness, maximize):
    strategy = make(maximize=maximize)
    strategy.tell(fitness)
    assert np.isfinite(strategy.theta).all()
    assert strategy.best_fitness is None or not np.isnan(strategy.best_fitness)


@pytest.mark.parametrize(
    ("fitness", "error", "word"),
    [
        (np.zeros(7), ValueError, r"\(7,\)"),
        (np.zeros((8, 1)), ValueError, r"\(8, 1\)"),
        (0.0, ValueError, r"\(\)"),
        (np.zeros(8, np.complex128), TypeError, "complex128"),
        (np.array(["a"] * 8), TypeError, "dtype <U1"),
        (np.array([None] * 8), TypeError, "object"),
    ],
)
def test_a_wrong_fitness_is_refused_and_changes_nothing(fitness, error, word):
    strategy = advance(make(), 2)
    before = strategy.state()
    with pytest.raises(error, match=word):
        strategy.tell(fitness)
    same_state(strategy.state(), before)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, np.uint8, np.float16])
@pytest.mark.parametrize("maximize", [True, False])
def test_real_numbers_of_every_dtype_are_a_fitness(dtype, maximize):
    fitness = np.array([0, 1, 0, 0, 1, 1, 0, 1])
    a, b = make(maximize=maximize), make(maximize=maximize)
    a.tell(fitness.astype(dtype))
    b.tell(fitness.astype(np.float64))
    same_state(a.state(), b.state())


@pytest.mark.parametrize("shaping", [lambda scores: scores[:3], lambda scores: scores * np.nan])
def test_a_shaping_that_gives_no_utilities_is_refused_and_changes_nothing(shaping):
    strategy = make(shaping=shaping)
    before = strategy.state()
    with pytest.raises(ValueError, match="utilities"):
        strategy.tell(np.arange(8.0))
    same_state(strategy.state(), before)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_generation_without_a_valid_fitness_is_counted_and_changes_nothing_else(maximize):
    strategy = advance(make(maximize=maximize), 2)
    theta, best = strategy.theta.copy(), strategy.best_fitness
    strategy.tell(np.full(8, np.nan))
    strategy.tell([np.nan] * 7 + [-np.inf if maximize else np.inf])
    assert strategy.generation == 4
    assert strategy.best_fitness == best
    np.testing.assert_array_equal(strategy.theta, theta)


def test_too_many_generations_without_a_valid_fitness_in_a_row_are_an_error():
    strategy = make()
    for _ in range(2):
        for _ in range(MAX_FAILURES - 1):
            strategy.tell(np.full(8, np.nan))
        strategy.tell(np.arange(8.0))
    for _ in range(MAX_FAILURES - 1):
        strategy.tell(np.full(8, np.nan))
    before = strategy.state()
    with pytest.raises(ValueError, match="10 generations in a row"):
        strategy.tell(np.full(8, np.nan))
    same_state(strategy.state(), before)


# best


def test_there_is_no_best_before_a_valid_fitness():
    strategy = make()
    strategy.tell(np.full(8, np.nan))
    assert strategy.best is None
    assert strategy.best_fitness is None


@pytest.mark.parametrize("maximize", [True, False])
def test_best_is_the_candidate_that_was_told_the_best_fitness(maximize):
    strategy, candidates, told = make(maximize=maximize), [], []
    for _ in range(6):
        population = strategy.ask()
        candidates.extend(population)
        told.extend(sphere(population))
        strategy.tell(told[-8:])
    k = np.argmax(told) if maximize else np.argmin(told)
    assert strategy.best_fitness == told[k]
    np.testing.assert_array_equal(strategy.best, candidates[k])


# state


@pytest.mark.parametrize("optimizer", [optim.SGD(0.1), optim.SGD(0.1, momentum=0.9), optim.Adam(0.1)])
@pytest.mark.parametrize("generations", [0, 3])
def test_a_restored_strategy_continues_to_the_bit(optimizer, generations):
    strategy = advance(make(optimizer=optimizer, seed=3), generations)
    file = io.BytesIO()
    np.savez(file, **strategy.state())
    file.seek(0)
    other = advance(make(optimizer=optimizer, seed=4), 2)
    with np.load(file, allow_pickle=False) as arrays:
        other.restore(dict(arrays))
    same_state(other.state(), strategy.state())
    same_state(advance(other, 4).state(), advance(strategy, 4).state())


def test_failures_are_part_of_the_state():
    strategy, other = make(), make()
    for _ in range(MAX_FAILURES - 1):
        strategy.tell(np.full(8, np.nan))
    other.restore(strategy.state())
    with pytest.raises(ValueError, match="in a row"):
        other.tell(np.full(8, np.nan))


def test_a_state_shares_no_memory_with_the_strategy():
    strategy = advance(make(), 1)
    before = strategy.state()
    for value in strategy.state().values():
        value[...] = 0
    same_state(strategy.state(), before)
    strategy.restore(before)
    before["theta"][...] = 7
    assert not np.any(strategy.theta == 7)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda state: state.pop("theta"), "lacks"),
        (lambda state: state.pop("optimizer.mean"), "optimizer.mean"),
        (lambda state: state.pop("best"), "both"),
        (lambda state: state.update(other=np.zeros(1)), "other"),
        (lambda state: state.update(theta=np.zeros(4, np.float32)), "theta"),
        (lambda state: state.update(generation=np.zeros(())), "generation"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, word):
    strategy = advance(make(), 2)
    before, state = strategy.state(), advance(make(seed=5), 1).state()
    change(state)
    with pytest.raises(ValueError, match=word):
        strategy.restore(state)
    same_state(strategy.state(), before)


# combine and the hook


@pytest.mark.parametrize("pop", POPS)
def test_combine_is_the_weighted_sum_of_the_candidates_noise(pop):
    strategy = make(pop, dtype=np.float64)
    noise = (strategy.ask() - strategy.theta) / strategy.sigma
    weights = np.random.default_rng(0).normal(size=pop)
    np.testing.assert_allclose(strategy.combine(weights), weights @ noise, atol=1e-12)
    out = np.empty(5)
    assert strategy.combine(weights, out=out) is out


def test_weights_of_another_length_are_refused():
    with pytest.raises(ValueError, match="weights"):
        make().combine(np.ones(3))


def test_a_new_strategy_needs_only_update():
    class Random(es.Strategy):
        def update(self, utilities):
            self._theta += 0.1 * self.combine(utilities)

    strategy = Random(np.full(5, 9.0), maximize=False, pop=10, sigma=0.5)
    advance(strategy, 100)
    assert sphere(strategy.theta[None])[0] < 2


def test_the_base_has_no_update():
    strategy = es.Strategy(np.zeros(3), maximize=True, pop=2, sigma=0.1)
    with pytest.raises(NotImplementedError, match="update"):
        strategy.tell([0.0, 1.0])
