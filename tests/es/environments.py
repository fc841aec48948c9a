"""Small gymnasium environments, each there for one reason. Importing this module registers them."""

from functools import partial

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Countdown(gym.Env):
    """Three steps if the first action is 5, seven if it is 6, each gives 1; a step past the end is an error.

    The second number of an observation is drawn at reset.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.drawn = None, self.np_random.random()
        return np.array([1.0, self.drawn]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        if self.left is None:
            self.left = 3 if action == 5 else 7
        assert self.left > 0
        self.left -= 1
        return np.array([1.0, self.drawn]), 1.0, self.left == 0, False, {}


class Reach(gym.Env):
    """Ten steps of one continuous action of shape (1, 2); the reward is minus the distance from (0.5, -3)."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(np.float32([[0, -4]]), np.float32([[1, -2]]), dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return np.ones(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.left -= 1
        return np.ones(1, np.float32), -float(np.abs(action - [0.5, -3]).sum()), False, self.left == 0, {}


class Odd(Countdown):
    """Countdown with other spaces, none of which a policy can have."""

    def __init__(self, observation_space=Countdown.observation_space, action_space=Countdown.action_space):
        self.observation_space, self.action_space = observation_space, action_space


class Buttons(Countdown):
    """Ten steps of two groups of choices, counted from (5, 0); the reward is 1 for (7, 1)."""

    action_space = gym.spaces.MultiDiscrete([3, 2], start=[5, 0])

    def reset(self, *, seed=None, options=None):
        self.left = 10
        return np.ones(2), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.left -= 1
        return np.ones(2), float(np.array_equal(action, [7, 1])), False, self.left == 0, {}


class Recall(gym.Env):
    """The first observation is the action to choose in all five steps; those after it are zero."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted, self.left = int(self.np_random.integers(2)), 5
        return np.float32([2 * self.wanted - 1]), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), float(action == self.wanted), self.left == 0, False, {}


def vectorised(mode, num_envs):
    return SyncVectorEnv([Countdown] * num_envs, autoreset_mode=mode)


def register(name, entry_point, vector_entry_point=None):
    gym.register(
        f"nnflat-test/{name}-v0",
        entry_point,
        vector_entry_point=vector_entry_point,
        disable_env_checker=True,
        order_enforce=False,
    )


register("Countdown", Countdown)
register("CountdownNextStep", Countdown, partial(vectorised, AutoresetMode.NEXT_STEP))
register("CountdownSameStep", Countdown, partial(vectorised, AutoresetMode.SAME_STEP))
register("Reach", Reach)
register("Pixels", partial(Odd, observation_space=gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)))
register("Cells", partial(Odd, observation_space=gym.spaces.Discrete(16)))
register("Binary", partial(Odd, action_space=gym.spaces.MultiBinary(3)))
register("Groups", Buttons)
register("Recall", Recall)
register("Levels", partial(Odd, action_space=gym.spaces.Box(0, 9, (2,), np.int64)))
