"""GA: the best candidates become the parents of the next generation, by mutation and crossover."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.sampler import Sampler
from nnflat.es.shaping import centred_ranks
from nnflat.es.strategy import Strategy
from nnflat.random import bernoulli, fold, uniform

__all__ = ["GA"]


class _Sampler(Sampler):
    def centre(self, k: int) -> NDArray[Any]:
        """Return a parent drawn by key; or a child of two, each element of either."""
        parents, key = self.arrays["parents"], fold(self.key, self.generation, -1 - k)
        draws = uniform(key, 3, np.float64)
        first, second = (draws[:2] * len(parents)).astype(np.intp)
        if draws[2] >= self.arrays["crossover"] or first == second:
            return parents[first]
        return np.where(bernoulli(fold(key, 0), 0.5, parents.shape[1]), parents[first], parents[second])

    def write(self, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write candidate `k` into `out`: the first one is the best parent as it is."""
        if k == 0:
            return self._clip(np.add(self.arrays["parents"][0], 0, out=out))
        return super().write(k, out)


class GA(Strategy):
    """A genetic algorithm: truncation selection, gaussian mutation, uniform crossover, one elite.

    Each candidate is a parent, or with probability `crossover` a mix of two, plus sigma * noise; the first is
    the best parent as it is. The best `parents` candidates are the next parents, and theta is the best.

    Parameters are those of `Strategy`, and

    parents : int, optional
        How many candidates survive; None is a quarter of them, at least one. They are held: parents * size.
    crossover : float
        The probability of two parents.

    References
    ----------
    Such and others, "Deep neuroevolution: genetic algorithms are a competitive alternative for training deep
    neural networks for reinforcement learning", 2017, algorithm 1.

    Examples
    --------
    >>> strategy = GA(np.ones(3), maximize=False, pop=40, sigma=0.1, crossover=0.5, seed=1)
    >>> for _ in range(100):
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 0.05)
    True
    """

    default_shaping = staticmethod(centred_ranks)
    sampler_type = _Sampler
    mirrored = False
    follows_gradient = False

    def __init__(
        self, theta: Any, *, pop: int, parents: int | None = None, crossover: float = 0.0, **options: Any
    ) -> None:
        super().__init__(theta, pop=pop, **options)
        count = max(self._pop // 4, 1) if parents is None else parents
        if not 1 <= count <= self._pop:
            raise ValueError(f"parents must be between 1 and pop, {self._pop}; got {parents}")
        if not 0 <= crossover <= 1:
            raise ValueError(f"crossover must be between 0 and 1; got {crossover}")
        self._crossover = np.array(crossover)
        self._memory = {"parents": np.repeat(self._theta[None], count, axis=0)}

    def _sampled(self) -> dict[str, NDArray[Any]]:
        return super()._sampled() | {"parents": self._memory["parents"], "crossover": self._crossover}

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Select the parents of the next generation."""
        parents, sampler = self._memory["parents"], self.sampler
        chosen = np.argsort(-utilities, kind="stable")[: len(parents)]
        selected = np.empty_like(parents)
        for row, k in zip(selected, chosen.tolist(), strict=True):
            sampler.write(k, row)
        np.copyto(parents, selected)
        np.copyto(self._theta, parents[0])
