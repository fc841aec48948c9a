"""Restarts: begin again, with a larger population, when a strategy has come to its end."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat.es.sampler import Sampler
from nnflat.es.strategy import Strategy

__all__ = ["Restarts", "restarts"]

Make = Callable[[int, int], Strategy]


def restarts(make: Make, *, growth: int = 2) -> "Restarts":
    """Return a strategy that starts anew, with `growth` times the population, whenever it has converged.

    It has converged when, over 10 + 30 n / pop generations, the best fitnesses differ by at most 1e-12, or
    when sigma is below 1e-12 times its start.

    Parameters
    ----------
    make : callable
        `make(factor, seed)` gives a strategy whose population is `factor` times the first's.
    growth : int
        The factor is growth**attempt, the seed the number of the attempt, from 0.

    References
    ----------
    Auger, Hansen, "A restart CMA evolution strategy with increasing population size" (IPOP), CEC 2005.

    Examples
    --------
    >>> from nnflat import es
    >>> def make(factor, seed):
    ...     return es.SepCMA(np.full(2, 3.0), maximize=False, pop=6 * factor, sigma=1.0, seed=seed)
    >>> strategy = restarts(make)
    >>> while strategy.attempt < 2:
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    >>> strategy.pop, strategy.best_fitness < 1e-9
    (24, True)
    """
    return Restarts(make, growth)


class Restarts:
    """What `restarts` returns: a strategy of which the present attempt is one of many."""

    def __init__(self, make: Make, growth: int) -> None:
        if growth < 1:
            raise ValueError(f"growth must be at least 1; got {growth}")
        self._make, self._growth = make, growth
        self._generation = 0
        self._best: NDArray[Any] | None = None
        self._best_fitness: float | None = None
        self._begin(0)

    def __repr__(self) -> str:
        return f"Restarts(attempt={self.attempt}, {self.strategy})"

    @property
    def theta(self) -> NDArray[Any]:
        """The centre of the present attempt."""
        return self.strategy.theta

    @property
    def maximize(self) -> bool:
        """Whether a higher fitness is better."""
        return self.strategy.maximize

    @property
    def pop(self) -> int:
        """Candidates a generation of the present attempt."""
        return self.strategy.pop

    @property
    def sigma(self) -> Any:
        """Sigma of the present attempt."""
        return self.strategy.sigma

    @property
    def key(self) -> np.uint64:
        """The key of this generation, for its evaluation."""
        return self.strategy.key

    @property
    def sampler(self) -> Sampler:
        """What makes the candidates of this generation."""
        return self.strategy.sampler

    @property
    def generation(self) -> int:
        """The number of generations told in all attempts."""
        return self._generation

    @property
    def best(self) -> NDArray[Any] | None:
        """The best candidate of all attempts; None before the first valid fitness."""
        return self._best

    @property
    def best_fitness(self) -> float | None:
        """The fitness of `best`, as it was told."""
        return self._best_fitness

    def ask(self, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the candidates of this generation."""
        return self.strategy.ask(out=out)

    def hold(self) -> None:
        """Keep this generation's noise in memory until `tell`, if it is small."""
        self.strategy.hold()

    def write(self, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write candidate `k` into `out` and return it."""
        return self.strategy.write(k, out)

    def tell(self, fitness: ArrayLike) -> None:
        """Tell the present attempt; begin the next one if this one has converged."""
        self.strategy.tell(fitness)
        self._generation += 1
        self._keep_best()
        scores = np.asarray(fitness, np.float64)
        finite = scores[np.isfinite(scores)]
        best = (finite.max() if self.maximize else finite.min()) if finite.size else np.nan
        self._recent.append(float(best))
        if self._has_converged():
            self._begin(self.attempt + 1)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that moves, as arrays."""
        state = {f"attempt.{name}": value for name, value in self.strategy.state().items()}
        state |= {
            "attempt": np.array(self.attempt, np.int64),
            "generation": np.array(self._generation, np.int64),
            "recent": np.array(self._recent, np.float64),
        }
        if self._best is not None:
            state |= {"best": self._best.copy(), "best_fitness": np.array(self._best_fitness, np.float64)}
        return state

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state`."""
        strategy = self._made(int(state["attempt"]))
        prefix = "attempt."
        strategy.restore({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        self._begin(int(state["attempt"]), strategy)
        self._generation = int(state["generation"])
        self._recent.extend(np.asarray(state["recent"]).tolist())
        self._best = state["best"].copy() if "best" in state else None
        self._best_fitness = float(state["best_fitness"]) if "best" in state else None

    def _made(self, attempt: int) -> Strategy:
        return self._make(self._growth**attempt, attempt)

    def _begin(self, attempt: int, strategy: Strategy | None = None) -> None:
        self.attempt = attempt
        self.strategy = self._made(attempt) if strategy is None else strategy
        self._start_sigma = float(np.max(self.strategy.sigma)) if strategy is None else self._sigma_of(attempt)
        self._recent: deque[float] = deque(maxlen=10 + int(30 * self.theta.size / self.pop))

    def _sigma_of(self, attempt: int) -> float:
        return float(np.max(self._made(attempt).sigma))

    def _has_converged(self) -> bool:
        flat = len(self._recent) == self._recent.maxlen and np.ptp(np.array(self._recent)) <= 1e-12
        return bool(flat or np.max(self.sigma) < 1e-12 * self._start_sigma)

    def _keep_best(self) -> None:
        found, held = self.strategy.best_fitness, self._best_fitness
        if found is None or (held is not None and not (found > held if self.maximize else found < held)):
            return
        self._best, self._best_fitness = np.array(self.strategy.best), found
        self._best.flags.writeable = False
