"""A population's outputs: each candidate's own, or by products that all share."""

import pickle

import numpy as np
import pytest

from nnflat import Layout, destructure, es, nn

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
DENSE = nn.Chain(nn.Dense(5, 8, "tanh", rng=np.random.default_rng(1)), nn.Dense(8, 3, rng=np.random.default_rng(2)))
OTHER = nn.Chain(nn.Dense(5, 8, rng=np.random.default_rng(3)), np.tanh, nn.Dense(8, 3, rng=np.random.default_rng(4)))


def total(forward, key):
    return np.sum(forward(X) ** 2, axis=(1, 2))


def make(model, noise=None, kind=es.OpenAIES, **options):
    theta, layout = destructure(model)
    noise = es.LowRank(layout, 2) if noise is None else noise
    options = {"maximize": False, "pop": 7, "sigma": 0.3, "noise": noise, "seed": 4} | options
    return kind(theta, **options), es.Forward(model, layout, total), layout


def one_by_one(strategy, layout):
    return [np.sum(layout.restructure(row.astype(layout.dtype))(X) ** 2) for row in strategy.ask()]


@pytest.mark.parametrize("model", [DENSE, OTHER], ids=["dense", "other"])
@pytest.mark.parametrize("noise", [None, es.Gaussian()], ids=["low rank", "gaussian"])
@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_the_fitness_is_that_of_each_model(model, noise, chunk):
    strategy, evaluator, layout = make(model, noise)
    for _ in range(2):
        fitness = es.evaluate(strategy, evaluator, chunk=chunk)
        np.testing.assert_allclose(fitness, one_by_one(strategy, layout), rtol=1e-4)
        strategy.tell(fitness)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (es.SepCMA, {}),
        (es.GA, {}),
        (es.SNES, {}),
        (es.OpenAIES, {"bounds": (-1.5, 1.5)}),
        (es.OpenAIES, {"sigma": np.full(75, 0.2, np.float32)}),
    ],
)
def test_candidates_that_are_more_than_theta_and_noise_are_made(kind, options):
    strategy, evaluator, layout = make(DENSE, kind=kind, **options)
    for _ in range(2):
        fitness = es.evaluate(strategy, evaluator)
        np.testing.assert_allclose(fitness, one_by_one(strategy, layout), rtol=1e-4)
        strategy.tell(fitness)


def test_noise_of_another_layout_is_not_shared():
    other = Layout.of({"matrix": np.zeros((3, 25), np.float32)})
    strategy, evaluator, layout = make(DENSE, es.LowRank(other))
    np.testing.assert_allclose(es.evaluate(strategy, evaluator), one_by_one(strategy, layout), rtol=1e-4)


def test_with_shared_products_no_candidate_is_made(monkeypatch):
    strategy, evaluator, _ = make(DENSE)
    monkeypatch.setattr(es.Sampler, "rows", None)
    monkeypatch.setattr(es.Sampler, "write", None)
    assert es.evaluate(strategy, evaluator).shape == (7,)


def test_a_pickled_evaluator_gives_the_same():
    strategy, evaluator, _ = make(DENSE)
    again = pickle.loads(pickle.dumps(evaluator))
    np.testing.assert_array_equal(es.evaluate(strategy, again), es.evaluate(strategy, evaluator))


def test_parameters_of_two_dtypes_are_refused():
    mixed = nn.Chain(nn.Dense(5, 4), nn.Dense(4, 1, dtype=np.float64))
    with pytest.raises(TypeError, match="one dtype"):
        es.Forward(mixed, destructure(mixed)[1], total)
