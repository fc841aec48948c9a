"""Whole populations in gymnasium environments."""

import sys

import numpy as np
import pytest

from nnflat import destructure, es, nn
from nnflat.es import defaults
from nnflat.es.lanes import SingleLanes, VectorLanes, make_lanes
from nnflat.es.policy import PopulationPolicy, to_actions

gym = pytest.importorskip("gymnasium")
import environments  # noqa: E402, F401

KEY = np.uint64(5)
COUNTDOWNS = ["Countdown", "CountdownNextStep", "CountdownSameStep"]


def decided(actions, *, episodes=1, name="Countdown"):
    """Return an evaluator of Countdown, and a population whose members always take the given actions."""
    model = nn.Chain(nn.Dense(2, 2))
    theta, layout = destructure(model)
    population = np.zeros((len(actions), theta.size), theta.dtype)
    population[np.arange(len(actions)), layout["layers[0].bias"].start + np.array(actions)] = 1
    return es.Gym(f"nnflat-test/{name}-v0", model, layout, episodes=episodes), population


def evolving(env_id, **options):
    model = es.policy_for(env_id, rng=np.random.default_rng(0))
    theta, layout = destructure(model)
    noise = np.random.default_rng(1).normal(size=(6, theta.size)).astype(theta.dtype)
    return es.Gym(env_id, model, layout, **options), theta + noise


# counting


@pytest.mark.parametrize("name", COUNTDOWNS)
@pytest.mark.parametrize("episodes", [1, 3])
def test_rewards_and_steps_count_up_to_the_first_end_of_each_lane(name, episodes):
    evaluator, population = decided([0, 1, 0, 1], episodes=episodes, name=name)
    np.testing.assert_array_equal(evaluator(population, KEY), [3, 7, 3, 7])
    assert evaluator.steps == 20 * episodes


def test_steps_add_up_over_calls():
    evaluator, population = decided([0, 0, 0])
    evaluator(population, KEY)
    evaluator(population, KEY)
    assert evaluator.steps == 18


@pytest.mark.parametrize("name", COUNTDOWNS)
def test_it_stops_stepping_when_all_lanes_have_ended(name, monkeypatch):
    calls, (evaluator, population) = [], decided([0, 0], name=name)
    lanes = make_lanes(evaluator.env_id, 2)
    evaluator._lanes[2] = [lanes]
    step = lanes.step
    monkeypatch.setattr(lanes, "step", lambda *args: calls.append(1) or step(*args))
    evaluator(population, KEY)
    assert len(calls) == 3


def test_evaluate_gives_the_return_of_each_episode():
    evaluator, population = decided([1])
    np.testing.assert_array_equal(evaluator.evaluate(population[0], 5, KEY), np.full(5, 7.0))


# reproducibility


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_equal_keys_give_equal_fitness_and_others_do_not(env_id):
    evaluator, population = evolving(env_id)
    first = evaluator(population, KEY)
    assert not np.array_equal(evaluator(population, np.uint64(6)), first)
    np.testing.assert_array_equal(evaluator(population, KEY), first)
    np.testing.assert_array_equal(evolving(env_id)[0](population, KEY), first)


def test_candidates_of_single_environments_start_in_the_same_states_and_episodes_in_different_ones():
    lanes = make_lanes("Pendulum-v1", 6)
    first = lanes.reset(3, KEY)
    np.testing.assert_array_equal(first[:3], first[3:])
    assert np.unique(first[:3, 2]).size == 3


def test_an_environment_with_a_vectorised_implementation_uses_it():
    assert type(make_lanes("CartPole-v1", 2)) is VectorLanes
    assert type(make_lanes("Pendulum-v1", 2)) is SingleLanes


def test_a_closed_evaluator_goes_on_with_new_environments():
    evaluator, population = decided([0, 1])
    evaluator(population, KEY)
    evaluator.close()
    np.testing.assert_array_equal(evaluator(population, KEY), [3, 7])


# policies


ANYTHING = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)  # actions are the outputs as they are


class Branching(nn.Dense):
    """A model that no tape can record."""

    def __call__(self, x, *, key=None):
        return super().__call__(x) if float(np.sum(self.weight)) > 0 else -super().__call__(x)


@pytest.mark.parametrize(
    "model",
    [
        Branching(3, 2),
        nn.Chain(nn.Dense(3, 4, "tanh"), nn.Dense(4, 2)),
        nn.Chain(nn.Chain(nn.Dense(3, 4, "relu")), nn.Dense(4, 2, np.sin)),
        nn.Dense(3, 2),
        nn.Chain(nn.Dense(3, 4, dtype=np.float64), nn.Dense(4, 2, "softmax", dtype=np.float64)),
        nn.Chain(nn.Dense(3, 4), nn.Dense(4, 2, dtype=np.float64)),
        nn.Chain(nn.Dense(3, 4), np.tanh, nn.Dense(4, 2)),
    ],
    ids=repr,
)
def test_the_population_policy_is_each_model_on_its_own_batch(model):
    theta, layout = destructure(model)
    rng = np.random.default_rng(0)
    population = theta + rng.normal(size=(5, theta.size)).astype(theta.dtype)
    x = rng.normal(size=(5, 7, 3))
    policy = PopulationPolicy(model, layout, ANYTHING)
    outputs = policy.of(population, 7)(x.reshape(35, 3)).reshape(5, 7, 2)
    alone = [layout.restructure(row)(batch) for row, batch in zip(population, x, strict=True)]
    np.testing.assert_allclose(outputs, alone, rtol=1e-5, atol=1e-6)


def test_a_layout_of_some_of_the_parameters_leaves_the_others_as_they_are():
    model = nn.Chain(nn.Dense(3, 4, "tanh"), nn.Dense(4, 2))
    theta, layout = destructure(model, where=lambda path, leaf: path[1] == 1)
    outputs = PopulationPolicy(model, layout, ANYTHING).of(np.stack([theta, 2 * theta]), 1)(np.ones((2, 3)))
    np.testing.assert_allclose(outputs[:1], model(np.ones((1, 3))), rtol=1e-6)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 4)])
def test_policy_for_fits_the_environment(hidden):
    model = es.policy_for("Acrobot-v1", hidden=hidden, rng=np.random.default_rng(0))
    assert len(model.layers) == len(hidden) + 1
    assert model(np.zeros((5, 6))).shape == (5, 3)


def test_a_model_that_does_not_fit_the_actions_is_refused():
    model = nn.Chain(nn.Dense(4, 3))
    with pytest.raises(ValueError, match=r"needs 2 outputs for Discrete\(2\)"):
        es.Gym("CartPole-v1", model, destructure(model)[1])


def test_a_model_that_does_not_fit_the_observations_is_refused():
    model = nn.Chain(nn.Dense(3, 2))
    with pytest.raises(ValueError, match=r"\(1, 4\)"):
        es.Gym("CartPole-v1", model, destructure(model)[1])


def test_episodes_must_be_positive():
    model = nn.Chain(nn.Dense(4, 2))
    with pytest.raises(ValueError, match="episodes"):
        es.Gym("CartPole-v1", model, destructure(model)[1], episodes=0)


# actions


def test_discrete_actions_are_the_largest_output_counted_from_start():
    space = gym.spaces.Discrete(3, start=-1)
    outputs = np.array([[9.0, 1, 2], [0, 1, 2], [0, 3, 1]])
    np.testing.assert_array_equal(to_actions(space, outputs), [-1, 1, 0])


def test_bounded_actions_are_squashed_onto_their_bounds():
    space = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
    actions = to_actions(space, np.float32([[0, 0], [50, 50], [-50, -50]]))
    np.testing.assert_array_equal(actions, [[0, 5], [2, 10], [-2, 0]])
    assert all(space.contains(action) for action in actions)


def test_unbounded_actions_are_the_outputs():
    space = gym.spaces.Box(-np.inf, np.inf, (2,))
    np.testing.assert_array_equal(to_actions(space, np.float32([[7, -8]])), [[7, -8]])


def test_half_bounded_actions_are_the_outputs_clipped():
    space = gym.spaces.Box(np.float32([0, -np.inf]), np.float32([np.inf, 1]))
    np.testing.assert_array_equal(to_actions(space, np.float32([[-3, -8], [3, 8]])), [[0, -8], [3, 1]])


def test_actions_have_the_shape_and_dtype_of_the_space():
    for dtype in (np.float32, np.float64):
        space = gym.spaces.Box(0, 1, (2, 3), dtype)
        actions = to_actions(space, np.zeros((4, 6), np.float32))
        assert actions.shape == (4, 2, 3)
        assert actions.dtype == dtype


def test_continuous_actions_reach_the_environment():
    evaluator, population = evolving("nnflat-test/Reach-v0")
    fitness = evaluator(np.vstack([0 * population[:1], population[1:]]), KEY)
    assert fitness[0] == 0
    assert np.all(fitness[1:] < 0)


def test_multi_discrete_actions_are_the_largest_of_each_group():
    space = gym.spaces.MultiDiscrete([3, 2], start=[5, 0])
    actions = to_actions(space, np.array([[0, 9, 1, 2, 3], [5, 1, 2, 4, 0.0]]))
    np.testing.assert_array_equal(actions, [[6, 1], [5, 0]])
    assert all(space.contains(action) for action in actions)


def test_multi_discrete_actions_reach_the_environment():
    model = nn.Chain(nn.Dense(2, 5))
    theta, layout = destructure(model)
    theta[:] = 0
    theta[layout["layers[0].bias"]] = [0, 0, 1, 0, 1]
    np.testing.assert_array_equal(es.Gym("nnflat-test/Groups-v0", model, layout)(theta[None], KEY), [10])


# recurrent policies


class Memory(nn.Layer):
    """Adds up what it sees; its weight says which way it points."""

    def __init__(self):
        self.weight = np.ones((1, 2), np.float32)

    def start(self, lanes):
        return np.zeros((lanes, 1), np.float32)

    def __call__(self, x, state, *, key=None):
        state = state + x
        return state @ self.weight, state


def test_a_recurrent_policy_keeps_its_state_through_an_episode_and_no_longer():
    _, layout = destructure(Memory())
    evaluator = es.Gym("nnflat-test/Recall-v0", Memory(), layout, episodes=8)
    right, wrong = np.float32([-1, 1]), np.float32([1, -1])
    for key in (KEY, np.uint64(6)):
        np.testing.assert_array_equal(evaluator(np.stack([right, wrong, 0 * right]), key)[:2], [5, 0])


# normalisation


def test_moments_of_observations_are_those_of_the_live_steps():
    evaluator, population = decided([0, 1, 1])
    model = evaluator.model
    evaluator = es.Gym("nnflat-test/Countdown-v0", model, evaluator.layout, normalize=True)
    evaluator(population, KEY)
    state = evaluator.state()
    drawn = evaluator.normalise(np.zeros((1, 2)))
    assert (int(state["count"]), int(state["steps"])) == (17, 17)
    assert state["mean"][0] == 1
    assert state["squares"][0] == 0
    assert np.isfinite(drawn).all()


def test_normalised_observations_have_mean_zero_and_standard_deviation_one():
    from nnflat.es.moments import Moments

    rng, seen, rows = np.random.default_rng(0), Moments.empty(3), []
    for count in (1, 5, 0, 30):
        rows.append(1e6 + rng.normal(size=(count, 3)) * [1, 10, 100])
        tally = seen.tally()
        tally.add(rows[-1])
        seen = seen.merged(tally.moments())
    every = np.concatenate(rows)
    np.testing.assert_allclose(seen.mean, every.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(seen.squares / 35, every.var(axis=0, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(seen.standardise(every).std(axis=0, ddof=1), 1, rtol=1e-6)


def test_within_a_generation_all_candidates_see_the_same_normalisation():
    model = es.policy_for("Pendulum-v1", rng=np.random.default_rng(0))
    theta, layout = destructure(model)
    fitness = []
    for chunk in (2, 4):
        evaluator = es.Gym("Pendulum-v1", model, layout, normalize=True)
        strategy = es.OpenAIES(theta, maximize=True, pop=4, sigma=0.1)
        for _ in range(2):
            fitness.append(es.evaluate(strategy, evaluator, chunk=chunk))
            strategy.tell([1, 0, 0, 0])
        assert evaluator.state()["count"] == 4 * 2 * 200
    np.testing.assert_allclose(fitness[:2], fitness[2:], rtol=1e-4)


def test_a_pickled_evaluator_plays_the_same_and_counts_on():
    import pickle

    evaluator, population = evolving("CartPole-v1")
    first = evaluator(population, KEY)
    again = pickle.loads(pickle.dumps(evaluator))
    assert again.steps == evaluator.steps
    np.testing.assert_array_equal(again(population, KEY), first)


# what cannot be


@pytest.mark.parametrize(
    ("env_id", "word"),
    [
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v9", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("Nope/Zzzzz-v3", "Nope/Zzzzz-v3"),
        ("a b", "a b"),
        ("", "no environment ''"),
    ],
)
def test_an_unknown_environment_is_one_sentence_with_close_names(env_id, word):
    with pytest.raises(ValueError, match=word) as error:
        es.policy_for(env_id)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("Pixels", r"observations Box\(0, 255, \(4, 4, 3\), uint8\)"),
        ("Cells", r"observations Discrete\(16\)"),
        ("Binary", r"actions MultiBinary\(3\)"),
        ("Levels", r"actions Box\(0, 9, \(2,\), int64\)"),
    ],
)
def test_a_space_that_no_policy_can_have_is_named_in_one_sentence(name, word):
    env_id, model = f"nnflat-test/{name}-v0", nn.Chain(nn.Dense(2, 2))
    with pytest.raises(ValueError, match=word):
        es.policy_for(env_id)
    with pytest.raises(ValueError, match=word):
        es.Gym(env_id, model, destructure(model)[1])


def test_a_module_that_registers_the_environment_is_imported():
    assert es.policy_for("environments:nnflat-test/Countdown-v0").layers[0].weight.shape == (2, 32)


def test_without_gymnasium_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'nnflat\[demo\]'"):
        es.policy_for("CartPole-v1")


# the main job


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cartpole_is_solved_within_forty_generations(seed):
    model = es.policy_for("CartPole-v1", rng=np.random.default_rng(seed))
    theta, layout = destructure(model)
    strategy = es.OpenAIES(theta, maximize=True, pop=defaults.POP, sigma=defaults.SIGMA, seed=seed)
    evaluator = es.Gym("CartPole-v1", model, layout)
    options = {"generations": 40, "chunk": defaults.CHUNK, "stop": [es.Solved(475)], "progress": False}
    result = es.run(strategy, evaluator, **options)
    assert result.stopped_by == "Solved"
    assert result.fitness >= 475
    assert evaluator.evaluate(result.theta, 100, np.uint64(99)).mean() >= 450
