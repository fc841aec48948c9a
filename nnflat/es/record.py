"""Record: one generation as callbacks, stopping rules and the progress line see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.defaults import EPISODES
from nnflat.es.evaluators import Evaluator
from nnflat.es.strategy import Strategy

__all__ = ["Record", "evaluate_theta"]


@dataclass(frozen=True, eq=False)
class Record:
    """One generation, after it was told.

    Attributes
    ----------
    generation : int
        Its number in this run, from 1.
    fitness : ndarray, shape (pop,)
        The fitness of its candidates, as evaluated (read-only).
    strategy, evaluator
        Those of the run; `strategy.theta` has taken its step.
    evaluations, steps : int
        Candidates evaluated, and the evaluator's steps (0 if it counts none), since the start of the run.
    seconds : float
        Since the start of the run.
    bests : sequence of float
        The best of each generation so far, this one's the last (once it is in the history).
    """

    generation: int
    fitness: NDArray[Any]
    strategy: Strategy
    evaluator: Evaluator
    evaluations: int
    steps: int
    seconds: float
    bests: Sequence[float] = ()

    @cached_property
    def best(self) -> float:
        """The best finite fitness of this generation; NaN if there is none."""
        finite = self._finite
        if finite.size == 0:
            return np.nan
        return float(finite.max() if self.strategy.maximize else finite.min())

    @cached_property
    def mean(self) -> float:
        """The mean of the finite fitnesses of this generation; NaN if there is none."""
        finite = self._finite
        return float((finite / finite.size).sum()) if finite.size else np.nan

    @cached_property
    def std(self) -> float:
        """The standard deviation of the finite fitnesses of this generation; NaN if there is none."""
        finite = self._finite
        largest = np.abs(finite).max(initial=0.0)
        return float((finite / largest).std() * largest) if largest > 0 else 0.0 if finite.size else np.nan

    @property
    def sigma(self) -> float:
        """The mean of sigma after this generation."""
        return float(np.mean(self.strategy.sigma))

    @cached_property
    def theta_fitness(self) -> float:
        """The fitness of the present theta, evaluated afresh: once, when first asked for."""
        return evaluate_theta(self.strategy, self.evaluator)

    def reaches(self, fitness: float, value: float) -> bool:
        """Return whether a fitness is as good as a value."""
        return fitness >= value if self.strategy.maximize else fitness <= value

    @property
    def _finite(self) -> NDArray[Any]:
        return self.fitness[np.isfinite(self.fitness)]


def evaluate_theta(strategy: Strategy, evaluator: Evaluator) -> float:
    """Return the fitness of theta: the mean of 100 fresh episodes, or one call if there are no episodes."""
    play = getattr(evaluator, "evaluate", None)
    if play is None:
        return float(evaluator(strategy.theta[None], strategy.key)[0])
    return float(np.mean(play(strategy.theta, EPISODES, strategy.key)))
