"""Stopping rules: called with the record of each generation; True ends the run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnflat.es.record import Record

__all__ = ["MaxEvaluations", "MaxSeconds", "Solved", "Stagnation", "Stop"]

Stop = Callable[[Record], bool]


@dataclass(frozen=True)
class Solved:
    """Stop once theta itself reaches a fitness, as the mean of 100 fresh episodes.

    Theta is evaluated after each generation whose best candidate has reached the value.
    """

    value: float

    def __call__(self, record: Record) -> bool:
        return record.reaches(record.best, self.value) and record.reaches(record.theta_fitness, self.value)


@dataclass(frozen=True)
class Stagnation:
    """Stop when this many generations have brought no candidate better than the best before them.

    The fitness counts as it was evaluated; generations without a finite one bring nothing.
    """

    generations: int

    def __call__(self, record: Record) -> bool:
        bests = np.array(record.bests, np.float64)
        if bests.size <= self.generations:
            return False
        scores = bests if record.strategy.maximize else -bests
        scores[np.isnan(scores)] = -np.inf
        return bool(scores[-self.generations :].max() <= scores[: -self.generations].max())


@dataclass(frozen=True)
class MaxSeconds:
    """Stop after the generation in which this many seconds have gone by."""

    seconds: float

    def __call__(self, record: Record) -> bool:
        return record.seconds >= self.seconds


@dataclass(frozen=True)
class MaxEvaluations:
    """Stop after the generation in which this many candidates have been evaluated."""

    evaluations: int

    def __call__(self, record: Record) -> bool:
        return record.evaluations >= self.evaluations
