"""Evaluators: a population and a key in, a fitness a candidate out.

An evaluator that counts or learns something may offer, besides the call,

    measure(population, key) -> fitness, report    a dict of arrays; or None
    absorb(report)                                 called in the order of the candidates
    state() -> dict of arrays; restore(state)      what workers and checkpoints need; and close()

and changes in `absorb` only: so it is the same whichever worker evaluates what. One that needs no candidates but
what they are made of offers

    sample(sampler, members, key) -> fitness
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Batch", "Each", "Evaluator"]

Evaluator = Callable[[NDArray[Any], np.uint64], NDArray[Any]]


@dataclass(frozen=True)
class Each:
    """Evaluate candidates one by one: `fn(theta, key)` gives a number.

    All candidates of a generation are given the same key: common random numbers. `theta` is a buffer that the
    next candidate is written into: keep a copy, if anything. Only one candidate a worker is ever in memory.

    Examples
    --------
    >>> sphere = Each(lambda theta, key: np.sum(theta**2))
    >>> sphere(np.array([[1.0, 2.0], [3.0, 4.0]]), np.uint64(0))
    array([ 5., 25.])
    """

    fn: Callable[[NDArray[Any], np.uint64], ArrayLike]

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[Any]:
        return np.array([self.fn(theta, key) for theta in population], np.float64)


@dataclass(frozen=True)
class Batch:
    """Evaluate a chunk of the population at once: `fn(population, key)` gives a fitness a row.

    Examples
    --------
    >>> sphere = Batch(lambda population, key: np.sum(population**2, axis=1))
    >>> sphere(np.array([[1.0, 2.0], [3.0, 4.0]]), np.uint64(0))
    array([ 5., 25.])
    """

    fn: Callable[[NDArray[Any], np.uint64], ArrayLike]

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[Any]:
        return np.asarray(self.fn(population, key))
