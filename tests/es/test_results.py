"""What the strategies reach in environments: the means of 100 fresh episodes, over the seeds named."""

import numpy as np
import pytest

from nnflat import destructure, es, optim

pytest.importorskip("gymnasium")
pytestmark = pytest.mark.slow


def policy(env_id, hidden, seed):
    model = es.policy_for(env_id, hidden=hidden, rng=np.random.default_rng(seed))
    return model, *destructure(model)


def result(strategy, gym, generations):
    run = es.run(strategy, gym, generations=generations, chunk=64, progress=False)
    gym.close()
    return run.fitness


@pytest.mark.parametrize("seed", [0, 1])
def test_mountain_car_continuous_reaches_90_with_a_linear_policy(seed):
    model, theta, layout = policy("MountainCarContinuous-v0", (), seed)
    strategy = es.SNES(0 * theta, maximize=True, pop=24, sigma=2.0, seed=seed)
    gym = es.Gym("MountainCarContinuous-v0", model, layout, normalize=True)
    assert result(strategy, gym, 12) >= 90


@pytest.mark.parametrize("seed", [0])
def test_acrobot_reaches_minus_90(seed):
    model, theta, layout = policy("Acrobot-v1", (16,), seed)
    strategy = es.OpenAIES(theta, maximize=True, pop=32, sigma=0.2, optimizer=optim.Adam(0.1), seed=seed)
    assert result(strategy, es.Gym("Acrobot-v1", model, layout), 25) >= -90
