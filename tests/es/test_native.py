"""Environments of NumPy functions: gymnasium's, step by step; roll-outs of them: a Python loop's, to the bit."""

import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from nnflat import destructure, es, nn

KEY = np.uint64(5)
ENVIRONMENTS = [(es.CartPole(), "CartPole-v1"), (es.Pendulum(), "Pendulum-v1")]

both = pytest.mark.parametrize(("environment", "env_id"), ENVIRONMENTS, ids=lambda value: str(value))


def policy(environment, hidden=8):
    rng = np.random.default_rng(0)
    model = nn.Chain(nn.Dense(environment.n_in, hidden, "tanh", rng=rng), nn.Dense(hidden, environment.n_out, rng=rng))
    return model, *destructure(model)


def evolving(environment, pop, **options):
    model, theta, layout = policy(environment)
    population = theta + np.random.default_rng(1).normal(size=(pop, theta.size)).astype(np.float32)
    return es.Native(environment, model, layout, **options), population


def random_actions(environment, rng, lanes):
    outputs = rng.normal(size=(lanes, environment.n_out))
    action = environment.act(outputs)
    return action, action.astype(int) if action.dtype == bool else action[:, None]


@both
def test_every_step_is_that_of_gymnasium(environment, env_id):
    gymnasium, rng = pytest.importorskip("gymnasium"), np.random.default_rng(0)
    peers = [gymnasium.make(env_id).unwrapped for _ in range(6)]
    for seed, peer in enumerate(peers):
        peer.reset(seed=seed)
    state, alive = np.stack([peer.state for peer in peers], axis=1), np.ones(6, bool)
    for _ in range(200):
        action, given = random_actions(environment, rng, 6)
        state, reward, over = environment.step(state, action)
        for lane in np.flatnonzero(alive):
            observation, peer_reward, terminated, _, _ = peers[lane].step(given[lane])
            np.testing.assert_allclose(state[:, lane], peers[lane].state, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(environment.observe(state)[:, lane], observation, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(reward[lane], peer_reward, rtol=1e-9)
            assert over[lane] == terminated
        alive &= ~over
    assert alive.any() == (env_id == "Pendulum-v1")


@both
def test_episodes_are_as_long_and_begin_where_those_of_gymnasium_do(environment, env_id):
    gymnasium = pytest.importorskip("gymnasium")
    assert environment.limit == gymnasium.spec(env_id).max_episode_steps
    peer, starts = gymnasium.make(env_id).unwrapped, []
    for seed in range(400):
        peer.reset(seed=seed)
        starts.append(peer.state)
    drawn = environment.start(KEY, 400)
    near = 0.2 * np.ptp(starts, axis=0).max()
    for quantile in (0, 0.5, 1):
        expected = np.quantile(starts, quantile, axis=0)
        np.testing.assert_allclose(np.quantile(drawn, quantile, axis=1), expected, atol=near)


@both
def test_a_return_is_that_of_a_python_loop_to_the_bit(environment, env_id):
    evaluator, population = evolving(environment, 3, episodes=2)
    expected = []
    for theta in population:
        model, state = evaluator.layout.restructure(theta), environment.start(KEY, 2)
        total, alive = np.zeros(2, np.float32), np.ones(2, bool)
        for _ in range(environment.limit):
            moved, reward, over = environment.step(state, environment.act(model(environment.observe(state).T)))
            total += np.where(alive, reward, 0)
            state, alive = np.where(alive, moved, state), alive & ~over
        expected.append(total.astype(np.float64).mean())
    np.testing.assert_array_equal(evaluator(population, KEY), expected)


@both
@pytest.mark.parametrize("threads", [None, 2])
def test_neighbours_blocks_and_threads_change_no_bit(environment, env_id, threads):
    evaluator, population = evolving(environment, 150)
    whole = es.Native(environment, evaluator.model, evaluator.layout, threads=threads)(population, KEY)
    for part in (slice(0, 1), slice(60, 70), slice(149, 150)):
        np.testing.assert_array_equal(evaluator(population[part], KEY), whole[part])


def test_steps_are_those_of_running_episodes_only():
    evaluator, population = evolving(es.CartPole(), 20, episodes=3)
    assert 3 * evaluator(population, KEY).sum() == evaluator.steps


def test_other_models_are_rolled_out_too():
    rng = np.random.default_rng(0)
    model = nn.Chain(nn.Dense(4, 3, rng=rng), np.tanh, nn.Dense(3, 2, rng=rng))
    theta, layout = destructure(model)
    dense = nn.Chain(nn.Dense(4, 3, "tanh"), nn.Dense(3, 2))
    population = rng.normal(size=(5, theta.size)).astype(np.float32)
    expected = es.Native(es.CartPole(), dense, destructure(dense)[1])(population, KEY)
    np.testing.assert_array_equal(es.Native(es.CartPole(), model, layout)(population, KEY), expected)


@pytest.mark.parametrize("kind", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_a_run_on_workers_is_the_run_here(kind):
    model, theta, layout = policy(es.CartPole())
    results = []
    with kind(2) as executor:
        for chosen in (executor, None):
            strategy = es.OpenAIES(theta, maximize=True, pop=12, sigma=0.3)
            evaluator = es.Native(es.CartPole(), model, layout)
            results.append(es.run(strategy, evaluator, generations=3, executor=chosen, chunk=5, progress=False))
    np.testing.assert_array_equal(results[0].theta, results[1].theta)
    np.testing.assert_array_equal(results[0].history["steps"], results[1].history["steps"])


def test_a_pickled_evaluator_counts_on():
    evaluator, population = evolving(es.CartPole(), 2)
    first = evaluator(population, KEY)
    again = pickle.loads(pickle.dumps(evaluator))
    assert again.steps == evaluator.steps
    np.testing.assert_array_equal(again(population, KEY), first)


def test_cartpole_is_solved_natively():
    model = policy(es.CartPole(), hidden=32)[0]
    model.layers[1].weight[...] *= 0.01
    theta, layout = destructure(model)
    strategy = es.OpenAIES(theta, maximize=True, pop=64, sigma=0.2, seed=0)
    evaluator = es.Native(es.CartPole(), model, layout)
    result = es.run(strategy, evaluator, generations=60, stop=[es.Solved(475)], progress=False)
    assert result.stopped_by == "Solved"


def test_what_cannot_be_rolled_out_is_refused():
    model, _, layout = policy(es.Pendulum())
    with pytest.raises(ValueError, match="episodes"):
        es.Native(es.Pendulum(), model, layout, episodes=0)
    wide = nn.Dense(3, 2)
    with pytest.raises(ValueError, match="needs 1 outputs"):
        es.Native(es.Pendulum(), wide, destructure(wide)[1])
    mixed = nn.Chain(nn.Dense(3, 4), nn.Dense(4, 1, dtype=np.float64))
    with pytest.raises(TypeError, match="one dtype"):
        es.Native(es.Pendulum(), mixed, destructure(mixed)[1])
