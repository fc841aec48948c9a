"""Laws that every strategy keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nnflat import es, optim

ALL = [es.OpenAIES, es.ARS, es.PGPE, es.SNES, es.XNES, es.SepCMA, es.LMMAES, es.CRFMNES, es.GA, es.MeZO]
EVEN = {es.ARS, es.CRFMNES, es.MeZO}
ADAPTING = [es.PGPE, es.SNES, es.XNES, es.SepCMA, es.LMMAES, es.CRFMNES]

every = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
adapting = pytest.mark.parametrize("kind", ADAPTING, ids=lambda kind: kind.__name__)


def make(kind, n=6, *, pop=8, maximize=False, dtype=np.float64, **options):
    return kind(np.linspace(-1, 1, n).astype(dtype), maximize=maximize, pop=pop, **({"sigma": 0.3} | options))


def sphere(population):
    return np.sum((population.astype(np.float64) - 2) ** 2, axis=1)


def advance(strategy, generations, fitness=sphere):
    for _ in range(generations):
        strategy.tell(fitness(strategy.ask()))
    return strategy


def same_state(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        assert a[name].dtype == b[name].dtype


# laws


@every
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bounds", [None, (-1.5, 1.5)])
def test_write_is_the_row_of_ask_and_so_are_rows_of_any_range(kind, dtype, bounds):
    strategy = advance(make(kind, dtype=dtype, bounds=bounds), 3)
    population = strategy.ask()
    np.testing.assert_array_equal(strategy.ask(), population)
    for k in reversed(range(8)):
        np.testing.assert_array_equal(strategy.write(k, np.empty(6, dtype)), population[k])
    for members in (range(1, 4), range(0, 3), range(5, 8), range(2, 2)):
        rows = strategy.sampler.rows(members, np.empty((len(members), 6), dtype))
        np.testing.assert_array_equal(rows, population[members.start : members.stop])


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("generations", [0, 4])
def test_a_restored_strategy_continues_to_the_bit(kind, dtype, generations):
    strategy = advance(make(kind, dtype=dtype, seed=3), generations)
    other = advance(make(kind, dtype=dtype, seed=4), 2)
    other.restore(strategy.state())
    same_state(other.state(), strategy.state())
    same_state(advance(other, 4).state(), advance(strategy, 4).state())


@every
@pytest.mark.parametrize("value", [0.0, np.inf, -np.inf, np.nan, 1e308])
def test_constant_fitness_moves_nothing_but_the_count(kind, value):
    strategy = advance(make(kind), 3)
    before = strategy.state()
    strategy.tell(np.full(8, value))
    after = strategy.state()
    moved = {"generation", "failures", "best", "best_fitness"}
    for name in before.keys() - moved:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


@every
@pytest.mark.parametrize("maximize", [True, False])
def test_the_sign_of_the_fitness_follows_maximize(kind, maximize):
    strategy, other = make(kind, maximize=maximize, seed=2), make(kind, maximize=not maximize, seed=2)
    advance(strategy, 5)
    advance(other, 5, lambda population: -sphere(population))
    np.testing.assert_array_equal(strategy.theta, other.theta)


@every
@pytest.mark.parametrize("n", [1, 2, 10, 100_000])
@pytest.mark.parametrize("pop", [1, 2, 3])
def test_small_populations_and_sizes_stay_finite(kind, n, pop):
    if kind is es.XNES and n > 1000:
        pytest.skip("refused: see below")
    pop += pop % 2 if kind in EVEN else 0
    strategy = advance(make(kind, n, pop=pop), 3)
    assert np.isfinite(strategy.theta).all()
    assert np.all(np.isfinite(strategy.sigma))


few = settings(max_examples=settings().max_examples // 40)
extremes = st.floats() | st.sampled_from([0.0, 1e138, -1e138, 1e308, np.inf, -np.inf, 5e-324, np.nan])


@every
@few
@given(hnp.arrays(np.float64, (3, 8), elements=extremes))
def test_any_fitness_leaves_theta_and_sigma_finite(kind, fitness):
    options = {"optimizer": optim.ClipUp(0.1, max_speed=0.2)} if kind in (es.MeZO, es.ARS, es.PGPE) else {}
    strategy = make(kind, **options)
    with np.errstate(over="ignore", invalid="ignore"):
        for told in fitness:
            strategy.tell(told)
    if kind is not es.MeZO:  # which follows raw numbers
        assert np.isfinite(strategy.theta).all()
    assert np.all(np.isfinite(strategy.sigma))


@pytest.mark.parametrize("kind", [es.OpenAIES, es.ARS, es.PGPE, es.SNES, es.SepCMA, es.CRFMNES, es.GA, es.MeZO])
def test_an_element_of_sigma_zero_is_frozen(kind):
    sigma = np.array([0.3, 0.0, 0.3, 0.0, 0.3, 0.3])
    strategy = make(kind, sigma=sigma, decay=0.1)
    before = strategy.theta.copy()
    advance(strategy, 5)
    if kind.follows_gradient:
        np.testing.assert_array_equal((strategy.theta == before), sigma == 0)
    strategy = make(kind, sigma=sigma)
    advance(strategy, 5)
    np.testing.assert_array_equal(strategy.theta[sigma == 0], before[sigma == 0])


@pytest.mark.parametrize("kind", [es.OpenAIES, es.MeZO])
def test_a_linear_fitness_gives_its_gradient_for_every_sigma_of_a_vector(kind):
    slope, sigma = np.array([1.0, -2.0, 0.5, 0.0]), np.array([0.1, 0.3, 1.0, 2.0])
    strategy = kind(
        np.ones(4), maximize=True, pop=8000, sigma=sigma, shaping=es.raw, optimizer=optim.SGD(1.0), seed=2
    )
    before = strategy.theta.copy()
    strategy.tell(strategy.ask() @ slope)
    np.testing.assert_allclose(strategy.theta - before, slope, atol=0.35)


def test_the_centre_of_pgpe_follows_sigma_squared_times_the_gradient():
    slope, sigma = np.array([1.0, -2.0, 0.5, 0.0]), np.array([0.1, 0.3, 1.0, 0.5])
    strategy = es.PGPE(
        np.ones(4), maximize=True, pop=8000, sigma=sigma, shaping=es.raw, optimizer=optim.SGD(1.0), seed=2
    )
    strategy.tell(strategy.ask() @ slope)
    np.testing.assert_allclose(strategy.theta - 1, sigma**2 * slope, atol=0.06)


def test_a_schedule_of_sigma_starts_at_its_start_in_the_first_generation():
    strategy = make(es.OpenAIES, sigma=lambda generation: 0.5 / (1 + generation))
    seen = []
    for _ in range(3):
        seen.append(strategy.sigma)
        advance(strategy, 1)
    assert seen == [0.5, 0.25, 0.5 / 3]


@adapting
def test_a_schedule_is_refused_where_sigma_is_adapted(kind):
    with pytest.raises(TypeError, match="schedule"):
        make(kind, sigma=lambda generation: 0.1)


@adapting
def test_signs_are_refused_where_sigma_is_adapted(kind):
    with pytest.raises(TypeError, match="size of the noise"):
        make(kind, noise=es.Rademacher())


@pytest.mark.parametrize("kind", [es.SNES, es.XNES, es.SepCMA, es.LMMAES, es.CRFMNES, es.GA])
def test_an_optimizer_is_refused_where_no_gradient_is_followed(kind):
    with pytest.raises(TypeError, match="gradient"):
        make(kind, optimizer=optim.SGD(0.1))


@pytest.mark.parametrize("kind", sorted(EVEN, key=lambda kind: kind.__name__))
def test_pairs_need_an_even_population(kind):
    with pytest.raises(ValueError, match="even"):
        make(kind, pop=7)


def test_decay_pulls_to_the_anchor():
    anchor = np.arange(6.0)
    strategy = make(es.SNES, decay=0.2, anchor=anchor, sigma=1e-9)
    advance(strategy, 60, lambda population: np.arange(8.0))
    np.testing.assert_allclose(strategy.theta, anchor, atol=1e-4)


def test_decay_is_taken_off_the_gradient_where_one_is_followed():
    options = {"optimizer": optim.SGD(0.1), "seed": 1}
    pulled = advance(make(es.OpenAIES, decay=0.5, anchor=np.ones(6), **options), 1).theta
    free = advance(make(es.OpenAIES, **options), 1).theta
    np.testing.assert_allclose(pulled, free - 0.1 * 0.5 * (np.linspace(-1, 1, 6) - 1), atol=1e-12)


def test_xnes_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="MiB"):
        make(es.XNES, 1001)


@every
@pytest.mark.parametrize("noise", [es.Table(1 << 16), es.Rademacher()], ids=repr)
def test_other_noise_minimises_the_sphere_too(kind, noise):
    if kind in ADAPTING and isinstance(noise, es.Rademacher):
        pytest.skip("refused: see above")
    rates = {es.MeZO: 0.1, es.ARS: 0.2}
    options = {"optimizer": optim.SGD(rates[kind])} if kind in rates else {}
    strategy = make(kind, pop=20, noise=noise, **options)
    start = sphere(strategy.theta[None])[0]
    advance(strategy, 150)
    assert sphere(strategy.theta[None])[0] < 0.1 * start


# large


@pytest.mark.parametrize("kind", [es.SepCMA, es.LMMAES])
def test_fifty_thousand_elements_stay_finite_and_sigma_falls_near_the_optimum(kind):
    strategy = kind(np.full(50_000, 1e-4, np.float32), maximize=False, pop=8, sigma=1.0, seed=1)
    advance(strategy, 60, lambda population: np.einsum("ij,ij->i", population, population, dtype=np.float64))
    assert np.isfinite(strategy.theta).all()
    assert strategy.sigma < 1


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [es.Gaussian(), es.Rademacher()], ids=repr)
def test_noise_that_is_held_changes_no_bit(kind, dtype, noise, monkeypatch):
    if kind in ADAPTING and isinstance(noise, es.Rademacher):
        pytest.skip("refused: see above")
    n = 20 if kind is es.XNES else 700
    held = advance(make(kind, n=n, dtype=dtype, noise=noise), 4)
    monkeypatch.setattr("nnflat.es.strategy.HELD", 0)
    same_state(advance(make(kind, n=n, dtype=dtype, noise=noise), 4).state(), held.state())


def test_the_natural_gradients_of_crfmnes_vanish_in_expectation():
    from nnflat.es.crfmnes import _gradients

    direction, z = np.linspace(-0.5, 1, 6), np.random.default_rng(0).normal(size=(400_000, 6))
    squared = float(direction @ direction)
    y = z + np.outer(z @ direction, direction) * (np.sqrt(1 + squared) - 1) / squared
    along = y @ (direction / np.sqrt(squared))
    sums = np.square(y).mean(axis=0), (along[:, None] * y).mean(axis=0), np.square(along).mean(), 1.0
    for gradient in _gradients(*sums, direction):
        np.testing.assert_allclose(gradient, 0, atol=0.02)


class Halving:
    """A rule that no tape can record: it branches on what it sees."""

    def init(self, flat):
        return {"rate": np.ones(())}

    def step(self, flat, grad, state, *, out=None):
        rate = state["rate"] if float(np.sum(grad)) > 0 else state["rate"] / 2
        results = flat - rate * grad, {"rate": np.array(rate)}
        if out is None:
            return results
        np.copyto(out[0], results[0])
        np.copyto(out[1]["rate"], results[1]["rate"])
        return out


@pytest.mark.parametrize("rule", [Halving(), optim.Adam(optim.cosine(0.1, steps=5)), optim.ClipUp(0.1, 0.2)], ids=repr)
def test_the_step_is_that_of_the_plain_rule_to_the_bit(rule):
    stepped = advance(make(es.OpenAIES, optimizer=rule), 6)
    plain = make(es.OpenAIES, optimizer=rule)
    plain._stepper.compiled = False
    same_state(advance(plain, 6).state(), stepped.state())
    assert stepped._stepper.compiled == (type(rule) is not Halving)
