"""Native: roll-outs of an environment that is written in NumPy, replayed without the interpreter.

N1  The return of a candidate depends on its parameters and the key alone, not on the others, blocks or threads:
    whatever stands side by side in an array is computed element by element, or product by product.
N2  A lane whose episode is over stands still, and counts no more.
"""

import operator
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnflat.es.policy import population_forward
from nnflat.layout import Layout
from nnflat.repeat import scan, vmap

__all__ = ["Environment", "Native"]

BLOCK = 64  # lanes that are stepped together: their parameters stay in the second cache
SEGMENT = 50  # at most so many steps between two looks at whether anyone is still alive

Report = dict[str, NDArray[Any]]
Lanes = tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any], NDArray[np.int64]]


class Environment(Protocol):
    """An environment: functions of arrays, for many lanes at once, that a tape can record."""

    n_in: int
    n_out: int
    limit: int  # steps after which an episode is cut off

    def start(self, key: np.uint64, episodes: int) -> NDArray[Any]:
        """Return first states, (size of a state, episodes)."""
        ...

    def observe(self, state: NDArray[Any]) -> NDArray[Any]:
        """Return what a policy sees, (n_in, lanes)."""
        ...

    def act(self, outputs: NDArray[Any]) -> NDArray[Any]:
        """Turn the outputs of policies, (lanes, n_out), into an action a lane."""
        ...

    def step(self, state: NDArray[Any], action: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the next states, the rewards, and whether each episode is over."""
        ...


class Native:
    """Evaluate policies in an environment of NumPy functions; the fitness is the mean return of an episode.

    Equal episodes of all candidates start in the same state (common random numbers). The roll-outs are compiled
    by `scan` and `vmap` when they are first made.

    Parameters
    ----------
    environment : Environment
        Such as `CartPole()` or `Pendulum()`.
    model : callable
        A model of the policy's structure; its own parameters are not used.
    layout : Layout
        The model's, with parameters of one dtype.
    episodes : int
        Episodes a candidate and generation.
    threads : int, optional
        How many threads share the lanes; None takes the calling one.

    Attributes
    ----------
    steps : int
        Environment steps so far: those of running episodes only.

    Examples
    --------
    >>> from nnflat import destructure, es, nn
    >>> model = nn.Chain(nn.Dense(4, 8, "tanh", rng=np.random.default_rng(0)), nn.Dense(8, 2))
    >>> theta, layout = destructure(model)
    >>> evaluator = es.Native(es.CartPole(), model, layout)
    >>> fitness = evaluator(np.stack([theta, theta]), np.uint64(1))
    >>> fitness.shape, bool(fitness.sum() == evaluator.steps)
    ((2,), True)
    """

    def __init__(
        self,
        environment: Environment,
        model: Callable[..., Any],
        layout: Layout,
        *,
        episodes: int = 1,
        threads: int | None = None,
    ) -> None:
        if operator.index(episodes) < 1:
            raise ValueError(f"episodes must be at least 1; got {episodes}")
        if len(set(layout.dtypes)) > 1:
            raise TypeError(f"native roll-outs need parameters of one dtype; got {sorted(map(str, layout.dtypes))}")
        given = np.shape(model(np.zeros((1, environment.n_in), np.float32)))
        if given != (1, environment.n_out):
            raise ValueError(f"{environment} needs {environment.n_out} outputs; the model gives shape {given} for one")
        self.environment = environment
        self.model = model
        self.layout = layout
        self.episodes = operator.index(episodes)
        self.threads = threads
        self.steps = 0
        self._advance = self._compiled()

    def __repr__(self) -> str:
        return f"Native({self.environment}, episodes={self.episodes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.environment, self.model, self.layout, self.episodes, self.threads, self.steps)

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[np.float64]:
        """Return the mean return of each candidate, shape (pop,), and count the steps."""
        fitness, report = self.measure(population, key)
        self.absorb(report)
        return fitness

    def measure(self, population: NDArray[Any], key: np.uint64) -> tuple[NDArray[np.float64], Report]:
        """Return the mean return of each candidate, and the number of steps; nothing changes here."""
        returns, steps = self._play(population, self.episodes, key)
        return returns.mean(axis=1), {"steps": np.array(steps)}

    def absorb(self, report: Report) -> None:
        """Count the steps of a report."""
        self.steps += int(report["steps"])

    def evaluate(self, theta: NDArray[Any], episodes: int, key: np.uint64) -> NDArray[np.float64]:
        """Return the returns of that many episodes of one candidate, shape (episodes,); count their steps."""
        returns, steps = self._play(theta[None], episodes, key)
        self.steps += steps
        return returns[0]

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of what is counted."""
        return {"steps": np.array(self.steps, np.int64)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state`."""
        self.steps = int(state["steps"])

    def close(self) -> None:
        """Do nothing: there is nothing open."""

    def _play(self, population: NDArray[Any], episodes: int, key: np.uint64) -> tuple[NDArray[np.float64], int]:
        """Return the sum of rewards of each candidate and episode, (pop, episodes), and the number of steps."""
        rows = np.ascontiguousarray(population, self.layout.dtype)
        size = max(BLOCK // episodes, 1)
        whole = len(rows) - len(rows) % size
        parts = [rows[:whole].reshape(-1, size, rows.shape[1]), rows[None, whole:]]
        played = [self._blocks(blocks, episodes, key) for blocks in parts if blocks.size]
        returns = np.concatenate([returns.ravel() for returns, _ in played])
        return returns.astype(np.float64).reshape(len(rows), episodes), sum(steps for _, steps in played)

    def _blocks(self, blocks: NDArray[Any], episodes: int, key: np.uint64) -> tuple[NDArray[Any], int]:
        """Play all lanes of blocks of candidates, (blocks, candidates, size), until the last has ended."""
        start = self.environment.start(key, episodes)
        shape = len(blocks), blocks.shape[1] * episodes
        state = np.broadcast_to(np.tile(start, (1, blocks.shape[1])), (shape[0], len(start), shape[1]))
        alive, returns, lived = np.ones(shape, np.bool_), np.zeros(shape, start.dtype), np.zeros(shape, np.int64)
        lanes: Lanes = state.copy(), alive, returns, lived
        for _ in range(self.environment.limit // _segment(self.environment.limit)):
            lanes = self._advance(blocks, lanes)
            if not lanes[1].any():
                break
        return lanes[2], int(lanes[3].sum())

    def _compiled(self) -> Callable[[NDArray[Any], Lanes], Lanes]:
        """Return the function that plays a segment of blocks, a block a row."""
        environment, forward = self.environment, population_forward(self.model, self.layout)

        def advance(candidates: NDArray[Any], lanes: Lanes) -> Lanes:
            def step(lanes: Lanes, _: Any) -> tuple[Lanes, None]:
                state, alive, returns, lived = lanes
                seen = environment.observe(state).T.reshape(len(candidates), -1, environment.n_in)
                outputs = forward(candidates, seen).reshape(-1, environment.n_out)
                moved, reward, over = environment.step(state, environment.act(outputs))
                returns = returns + np.where(alive, reward, 0)
                return (np.where(alive, moved, state), alive & ~over, returns, lived + alive), None  # N2

            return scan(step, lanes, length=_segment(environment.limit))[0]

        return vmap(advance, (0, 0), threads=self.threads)


def _segment(limit: int) -> int:
    return max(length for length in range(1, SEGMENT + 1) if limit % length == 0)


def _made(environment: Any, model: Any, layout: Layout, episodes: int, threads: int | None, steps: int) -> Native:
    native = Native(environment, model, layout, episodes=episodes, threads=threads)
    native.steps = steps
    return native
