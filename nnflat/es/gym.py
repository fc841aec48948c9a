"""Gym: the return of a policy in a gymnasium environment, for many candidates at once."""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.lanes import Lanes, make_lanes
from nnflat.es.moments import Moments
from nnflat.es.policy import PopulationPolicy, check_policy, input_size
from nnflat.layout import Layout

__all__ = ["Gym"]

Report = dict[str, NDArray[Any]]


class Gym:
    """Evaluate policies in a gymnasium environment; the fitness is the mean return of an episode.

    All episodes of a chunk run side by side until the last has ended. Discrete actions are the largest output,
    of MultiDiscrete ones of each group; Box actions are tanh of the outputs scaled to the bounds, or the
    outputs where there is none.

    Parameters
    ----------
    env_id : str
        An environment with a 1-D Box of observations and Discrete, MultiDiscrete or Box actions, whose
        episodes end.
    model : callable
        A model of the policy's structure; its own parameters are not used. A recurrent one has a method
        `start(lanes)` that gives the first state, and is called as `model(x, state)` for (outputs, state).
    layout : Layout
        The model's, which says how to read a candidate.
    episodes : int
        Episodes a candidate and generation.
    normalize : bool
        Whether policies see observations less their mean, over their standard deviation: those of all steps
        of running episodes up to the last generation (none in the first). `normalise` does it to others.

    Attributes
    ----------
    steps : int
        Environment steps so far: those of running episodes only.

    References
    ----------
    Mania, Guy, Recht, "Simple random search provides a competitive approach to reinforcement learning", 2018,
    for the normalisation.

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

    def __init__(
        self,
        env_id: str,
        model: Callable[..., Any],
        layout: Layout,
        *,
        episodes: int = 1,
        normalize: bool = False,
    ) -> None:
        if operator.index(episodes) < 1:
            raise ValueError(f"episodes must be at least 1; got {episodes}")
        self.env_id = env_id
        self.model = model
        self.layout = layout
        self.episodes = operator.index(episodes)
        self.steps = 0
        self._lanes: dict[int, list[Lanes]] = {}
        with self._borrowed(1) as lanes:
            check_policy(model, lanes, env_id)
            self._policy = PopulationPolicy(model, layout, lanes.action_space)
            self._seen = Moments.empty(input_size(lanes.observation_space, env_id)) if normalize else None

    def __repr__(self) -> str:
        return f"Gym({self.env_id!r}, episodes={self.episodes}, normalize={self._seen is not None})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lanes": {}}

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[np.float64]:
        """Return the mean return of each candidate, shape (pop,), and count what was seen."""
        fitness, report = self.measure(population, key)
        self.absorb(report)
        return fitness

    def measure(self, population: NDArray[Any], key: np.uint64) -> tuple[NDArray[np.float64], Report]:
        """Return the mean return of each candidate, and what there is to count; nothing changes here."""
        returns, report = self._play(population, self.episodes, key)
        return returns.mean(axis=1), report

    def absorb(self, report: Report) -> None:
        """Count the steps, and add the observations, of a report."""
        self.steps += int(report["steps"])
        if self._seen is not None:
            self._seen = self._seen.merged(Moments.of(report))

    def evaluate(self, theta: NDArray[Any], episodes: int, key: np.uint64) -> NDArray[np.float64]:
        """Return the returns of that many episodes of one candidate, shape (episodes,); count their steps."""
        returns, report = self._play(theta[None], episodes, key)
        self.steps += int(report["steps"])
        return returns[0]

    def normalise(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return observations as policies see them."""
        return observations if self._seen is None else self._seen.standardise(observations)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of what is counted, as arrays."""
        seen = {} if self._seen is None else self._seen.arrays()
        return {"steps": np.array(self.steps, np.int64)} | seen

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state`."""
        if self._seen is not None:
            self._seen = Moments.of(state)
        self.steps = int(state["steps"])

    def close(self) -> None:
        """Close the environments; the next evaluation makes new ones."""
        while self._lanes:
            for lanes in self._lanes.popitem()[1]:
                lanes.close()

    def _play(self, population: NDArray[Any], episodes: int, key: np.uint64) -> tuple[NDArray[np.float64], Report]:
        """Return the sum of rewards of each candidate and episode, (pop, episodes), and the report."""
        shape = (len(population), episodes)
        returns, alive = np.zeros(shape).ravel(), np.ones(shape, np.bool_).ravel()
        report, tally = {"steps": np.array(0)}, None if self._seen is None else self._seen.tally()
        act = self._policy.of(population, episodes)
        with self._borrowed(alive.size) as lanes:
            observations = lanes.reset(episodes, key)
            while (running := int(np.count_nonzero(alive))) > 0:
                if tally is not None:
                    tally.add(observations[alive])
                observations, rewards, ended = lanes.step(act(self.normalise(observations)), alive)
                returns += np.where(alive, rewards, 0.0)
                report["steps"] += running
                alive &= ~ended
        return returns.reshape(shape), report if tally is None else report | tally.moments().arrays()

    @contextmanager
    def _borrowed(self, number: int) -> Iterator[Lanes]:
        """Lend lanes that no other thread has meanwhile."""
        free = self._lanes.setdefault(number, [])
        try:
            lanes = free.pop()
        except IndexError:
            lanes = make_lanes(self.env_id, number)
        try:
            yield lanes
        finally:
            self._lanes.setdefault(number, []).append(lanes)
