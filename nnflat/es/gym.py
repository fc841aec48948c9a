"""Gym: the return of a policy in a gymnasium environment, for a whole population at once."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.lanes import Lanes, make_lanes
from nnflat.es.policy import input_size, output_size, population_policy, to_actions
from nnflat.layout import Layout

__all__ = ["Gym"]


class Gym:
    """Evaluate policies in a gymnasium environment; the fitness is the mean return of an episode.

    All episodes of a population run side by side until the last has ended. Discrete actions are the largest
    output; Box actions are tanh of the outputs scaled to the bounds, or the outputs where there is none.

    Parameters
    ----------
    env_id : str
        An environment with a 1-D Box of observations and Discrete or Box actions, whose episodes end.
    model : callable
        A model of the policy's structure; its own parameters are not used.
    layout : Layout
        The model's, which says how to read a candidate.
    episodes : int
        Episodes a candidate and generation.

    Attributes
    ----------
    steps : int
        Environment steps so far: those of running episodes only.

    Examples
    --------
    >>> from nnflat import destructure, es
    >>> model = es.policy_for("CartPole-v1", rng=np.random.default_rng(0))
    >>> theta, layout = destructure(model)
    >>> gym = es.Gym("CartPole-v1", model, layout)
    >>> fitness = gym(np.stack([theta, theta]), np.uint64(1))
    >>> fitness.shape, bool(fitness.sum() == gym.steps)
    ((2,), True)
    """

    def __init__(self, env_id: str, model: Callable[..., Any], layout: Layout, *, episodes: int = 1) -> None:
        if operator.index(episodes) < 1:
            raise ValueError(f"episodes must be at least 1; got {episodes}")
        self.env_id = env_id
        self.model = model
        self.layout = layout
        self.episodes = operator.index(episodes)
        self.steps = 0
        self._lanes: dict[int, Lanes] = {}
        self._check_model()

    def __repr__(self) -> str:
        return f"Gym({self.env_id!r}, episodes={self.episodes})"

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[np.float64]:
        """Return the mean return of each candidate, shape (pop,)."""
        return self._returns(population, self.episodes, key).mean(axis=1)

    def evaluate(self, theta: NDArray[Any], episodes: int, key: np.uint64) -> NDArray[np.float64]:
        """Return the returns of that many episodes of one candidate, shape (episodes,)."""
        return self._returns(theta[None], episodes, key)[0]

    def close(self) -> None:
        """Close the environments; the next evaluation makes new ones."""
        while self._lanes:
            self._lanes.popitem()[1].close()

    def _returns(self, population: NDArray[Any], episodes: int, key: np.uint64) -> NDArray[np.float64]:
        """Return the sum of rewards of each candidate and episode, shape (pop, episodes)."""
        shape = (len(population), episodes)
        lanes = self._lanes_of(len(population) * episodes)
        policy = population_policy(self.model, self.layout, population)
        returns, alive = np.zeros(shape).ravel(), np.ones(shape, np.bool_).ravel()
        observations = lanes.reset(episodes, key)
        while alive.any():
            outputs = policy(observations.reshape(*shape, -1))
            actions = to_actions(lanes.action_space, outputs.reshape(alive.size, -1))
            observations, rewards, ended = lanes.step(actions, alive)
            returns[alive] += rewards[alive]
            self.steps += int(np.count_nonzero(alive))
            alive &= ~ended
        return returns.reshape(shape)

    def _lanes_of(self, number: int) -> Lanes:
        if number not in self._lanes:
            self._lanes[number] = make_lanes(self.env_id, number)
        return self._lanes[number]

    def _check_model(self) -> None:
        lanes = self._lanes_of(1)
        n_in = input_size(lanes.observation_space, self.env_id)
        n_out = output_size(lanes.action_space, self.env_id)
        given = np.shape(self.model(np.zeros((1, n_in), np.float32)))
        if given != (1, n_out):
            raise ValueError(
                f"{self.env_id} needs {n_out} outputs for {lanes.action_space}; the model gives an output of "
                f"shape {given} for an input of shape (1, {n_in})"
            )
