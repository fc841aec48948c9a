"""Lanes: many episodes of a gymnasium environment side by side.

L1  A lane is alive from `reset` to its first termination or truncation. What an environment returns for a
    lane that is no longer alive (another episode, under whichever autoreset mode) is never looked at.
L2  The first states depend on the key alone.
"""

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnflat.random import fold

__all__ = ["Lanes", "make_env", "make_lanes"]

Step = tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]


class Lanes(Protocol):
    """`pop * episodes` lanes; lane i plays episode i % episodes."""

    observation_space: Any
    action_space: Any

    def reset(self, episodes: int, key: np.uint64) -> NDArray[Any]:
        """Return the first observations, (lanes, n)."""
        ...

    def step(self, actions: NDArray[Any], alive: NDArray[np.bool_]) -> Step:
        """Return observations, rewards and whether each lane's episode ended."""
        ...

    def close(self) -> None:
        """Release the environments."""
        ...


class VectorLanes:
    """The environment's own vectorised implementation: all lanes in one call."""

    def __init__(self, gym: ModuleType, spec: Any, lanes: int) -> None:
        self._envs = gym.make_vec(spec, lanes, vectorization_mode="vector_entry_point")
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space

    def reset(self, episodes: int, key: np.uint64) -> NDArray[Any]:
        """Return the first observations: every lane has a state of its own."""
        observations, _ = self._envs.reset(seed=int(key))
        return observations

    def step(self, actions: NDArray[Any], alive: NDArray[np.bool_]) -> Step:
        """Step all lanes."""
        observations, rewards, terminated, truncated, _ = self._envs.step(actions)
        return observations, rewards, terminated | truncated

    def close(self) -> None:
        """Release the environments."""
        self._envs.close()


class SingleLanes:
    """One environment a lane; only those that are alive are stepped.

    Equal episodes of all candidates start in the same state (common random numbers).
    """

    def __init__(self, gym: ModuleType, spec: Any, lanes: int) -> None:
        self._envs = [gym.make(spec) for _ in range(lanes)]
        self.observation_space = self._envs[0].observation_space
        self.action_space = self._envs[0].action_space

    def reset(self, episodes: int, key: np.uint64) -> NDArray[Any]:
        """Return the first observations."""
        seeds = [int(fold(key, episode)) for episode in range(episodes)]
        self._observations = np.stack(
            [env.reset(seed=seeds[lane % episodes])[0] for lane, env in enumerate(self._envs)]
        )
        return self._observations

    def step(self, actions: NDArray[Any], alive: NDArray[np.bool_]) -> Step:
        """Step the lanes that are alive."""
        rewards, ended = np.zeros(len(self._envs)), np.ones(len(self._envs), np.bool_)
        for lane in np.flatnonzero(alive):
            observation, reward, terminated, truncated, _ = self._envs[lane].step(actions[lane])
            self._observations[lane], rewards[lane] = observation, reward
            ended[lane] = terminated or truncated
        return self._observations, rewards, ended

    def close(self) -> None:
        """Release the environments."""
        for env in self._envs:
            env.close()


def make_lanes(env_id: str, lanes: int) -> Lanes:
    """Return that many lanes of an environment, by its own vectorised implementation if it has one.

    Raises
    ------
    ValueError
        If gymnasium has no such environment.
    ImportError
        If gymnasium, or something that the environment needs, is not installed.
    """

    def make(gym: ModuleType, spec: Any) -> Lanes:
        return (SingleLanes if spec.vector_entry_point is None else VectorLanes)(gym, spec, lanes)

    return _made(env_id, make)


def make_env(env_id: str, *, render_mode: str | None = None) -> Any:
    """Return one environment; raises as `make_lanes` does."""

    def make(gym: ModuleType, spec: Any) -> Any:
        env = gym.make(spec, render_mode=render_mode)
        if render_mode is not None:
            env.reset()
            env.render()  # so that what is missing is known before anything is played
        return env

    return _made(env_id, make)


def _made(env_id: str, make: Callable[[ModuleType, Any], Any]) -> Any:
    """Return what `make(gymnasium, spec)` gives; say in one sentence why it cannot."""
    gym = _gymnasium()
    try:
        return make(gym, _spec(gym, env_id))
    except gym.error.DependencyNotInstalled as error:
        raise ImportError(f"{env_id} needs more than gymnasium: {error}") from None
    except gym.error.Error:
        raise ValueError(_unknown(gym, env_id)) from None


def _gymnasium() -> ModuleType:
    try:
        import gymnasium
    except ImportError:
        raise ImportError("environments need gymnasium: pip install 'nnflat[demo]'") from None
    return gymnasium


def _spec(gym: ModuleType, env_id: str) -> Any:
    """Return gymnasium's entry for "Name-v1", or for "module:Name-v1" once the module is imported."""
    module, _, name = env_id.rpartition(":")
    if module:
        import_module(module)
    return gym.spec(name)


def reward_threshold(env_id: str) -> float | None:
    """Return the mean return from which on gymnasium calls an environment solved, if it says one."""
    return _spec(_gymnasium(), env_id).reward_threshold


def _unknown(gym: ModuleType, env_id: str) -> str:
    names = {name.lower(): name for name in gym.registry}
    close = [names[match] for match in get_close_matches(env_id.lower(), names, n=3)]
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"gymnasium has no environment {env_id!r}{hint}"
