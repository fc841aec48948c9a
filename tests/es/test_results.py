"""What the strategies reach, over the seeds named: run by -m slow; `docs/evolution.md` has the table."""

import numpy as np
import pytest

from nnflat import destructure, es, nn, optim, vmap
from nnflat.es import defaults
from nnflat.random import permutation

pytest.importorskip("gymnasium")
pytestmark = pytest.mark.slow


def policy(env_id, hidden, seed):
    model = es.policy_for(env_id, hidden=hidden, rng=np.random.default_rng(seed))
    return model, *destructure(model)


def result(strategy, evaluator, generations, **options):
    return es.run(strategy, evaluator, generations=generations, progress=False, **({"chunk": 64} | options))


@pytest.mark.parametrize("chunk", [16, 64])
@pytest.mark.parametrize("seed", range(8))
def test_cartpole_is_solved_within_forty_generations_at_every_chunk(seed, chunk):
    model, theta, layout = policy("CartPole-v1", defaults.HIDDEN, seed)
    strategy = es.OpenAIES(theta, maximize=True, pop=defaults.POP, sigma=defaults.SIGMA, seed=seed)
    run = result(strategy, es.Gym("CartPole-v1", model, layout), 40, stop=[es.Solved(475)], chunk=chunk)
    assert run.stopped_by == "Solved"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pendulum_swung_up_natively_does_so_in_gymnasium(seed):
    rng = np.random.default_rng(seed)
    model = nn.Chain(nn.Dense(3, 16, "tanh", rng=rng), nn.Dense(16, 1, rng=rng))
    model.layers[1].weight[...] *= 0.1
    theta, layout = destructure(model)
    strategy = es.OpenAIES(theta, maximize=True, pop=64, sigma=0.2, optimizer=optim.Adam(0.1), seed=seed)
    run = result(strategy, es.Native(es.Pendulum(), model, layout, episodes=8), 150)
    gym = es.Gym("Pendulum-v1", model, layout)
    assert gym.evaluate(run.theta, 100, np.uint64(7)).mean() > -200
    gym.close()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mountain_car_continuous_reaches_90_with_a_linear_policy(seed):
    model, theta, layout = policy("MountainCarContinuous-v0", (), seed)
    strategy = es.SNES(0 * theta, maximize=True, pop=24, sigma=2.0, seed=seed)
    gym = es.Gym("MountainCarContinuous-v0", model, layout, normalize=True)
    assert result(strategy, gym, 12).fitness >= 90


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_acrobot_reaches_minus_90(seed):
    model, theta, layout = policy("Acrobot-v1", (16,), seed)
    strategy = es.OpenAIES(theta, maximize=True, pop=32, sigma=0.2, optimizer=optim.Adam(0.1), seed=seed)
    assert result(strategy, es.Gym("Acrobot-v1", model, layout), 25).fitness >= -90


@pytest.mark.parametrize("seed", [0])
def test_lunar_lander_continuous_reaches_230_with_a_linear_policy(seed):
    pytest.importorskip("Box2D")
    model, theta, layout = policy("LunarLanderContinuous-v3", (), seed)
    optimizer, sigma = optim.ClipUp(0.15, max_speed=0.3), 4.5 / theta.size**0.5
    strategy = es.PGPE(0 * theta, maximize=True, pop=200, sigma=sigma, optimizer=optimizer, seed=seed)
    gym = es.Gym("LunarLanderContinuous-v3", model, layout, normalize=True)
    assert result(strategy, gym, 60, chunk=200).fitness >= 230
    gym.close()


def split_digits():
    """Return features and labels of 1,437 digits to learn from and 360 to be judged by."""
    load_digits = pytest.importorskip("sklearn.datasets").load_digits
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype(np.float32), y[order]
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_digits_reach_98_percent_in_a_thousand_generations(seed):
    (x, y), (fresh, labels) = split_digits()
    rng = np.random.default_rng(seed)
    model = nn.Chain(nn.Dense(64, 64, "tanh", rng=rng), nn.Dense(64, 10, rng=rng))
    theta, layout = destructure(model)

    def log_likelihood(forward, key):
        rows = permutation(key, len(x))[:128]
        return np.mean(nn.log_softmax(forward(x[rows]))[:, np.arange(128), y[rows]], axis=1)

    optimizer = optim.Adam(optim.cosine(0.02, steps=1000))
    noise = es.LowRank(layout)
    strategy = es.OpenAIES(theta, maximize=True, pop=128, sigma=0.05, noise=noise, optimizer=optimizer, seed=seed)
    found = result(strategy, es.Forward(model, layout, log_likelihood), 1000, chunk=128)
    assert np.mean(layout.restructure(found.theta)(fresh).argmax(axis=1) == labels) >= 0.98


def windows(x, size):
    """Return every second window of x, (batch, time, channels), as a row (channels * size)."""
    seen = np.lib.stride_tricks.sliding_window_view(x, size, axis=1)[:, ::2]
    return seen.reshape(*seen.shape[:2], -1)


def convolutions(model, x):
    x = model["first"](windows(x[..., None], 5))
    x = model["second"](windows(x, 3))
    return model["head"](x.reshape(len(x), -1))


@pytest.mark.parametrize("seed", [0])
def test_mnist_1d_reaches_55_percent_by_two_convolutions(seed):
    data = pytest.importorskip("mnist1d.data").make_dataset()
    x, y, fresh = data["x"].astype(np.float32), data["y"], data["x_test"].astype(np.float32)
    rng = np.random.default_rng(seed)
    model = {
        "first": nn.Dense(5, 16, "relu", rng=rng),
        "second": nn.Dense(48, 16, "relu", rng=rng),
        "head": nn.Dense(128, 10, rng=rng),
    }
    theta, layout = destructure(model)

    def log_likelihood(model, x, y):
        return np.mean(nn.log_softmax(convolutions(model, x))[np.arange(128), y])

    each = vmap(layout.lift(log_likelihood), (0, None, None))

    def fitness(population, key):
        rows = permutation(key, len(x))[:128]
        return each(population, x[rows], y[rows])

    optimizer = optim.Adam(optim.cosine(0.02, steps=1500))
    strategy = es.OpenAIES(theta, maximize=True, pop=128, sigma=0.05, optimizer=optimizer, seed=seed)
    found = result(strategy, es.Batch(fitness), 1500, chunk=128)
    outputs = convolutions(layout.restructure(found.theta), fresh)
    assert np.mean(outputs.argmax(axis=1) == data["y_test"]) >= 0.55
