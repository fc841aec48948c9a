"""Evaluators: a population and a key in, a fitness a candidate out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat.es.strategy import Strategy

__all__ = ["Batch", "Each", "Evaluator", "evaluate"]

Evaluator = Callable[[NDArray[Any], np.uint64], NDArray[Any]]


@dataclass(frozen=True)
class Each:
    """Evaluate candidates one by one: `fn(theta, key)` gives a number.

    All candidates of a generation are given the same key: common random numbers.

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
    """Evaluate the whole population at once: `fn(population, key)` gives a fitness a row.

    Examples
    --------
    >>> sphere = Batch(lambda population, key: np.sum(population**2, axis=1))
    >>> sphere(np.array([[1.0, 2.0], [3.0, 4.0]]), np.uint64(0))
    array([ 5., 25.])
    """

    fn: Callable[[NDArray[Any], np.uint64], ArrayLike]

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[Any]:
        return np.asarray(self.fn(population, key))


def evaluate(strategy: Strategy, evaluator: Evaluator) -> NDArray[Any]:
    """Return the fitness of each candidate of the present generation; the strategy does not move on.

    Examples
    --------
    >>> from nnflat import es
    >>> strategy = es.OpenAIES(np.zeros(3), maximize=False, pop=4, sigma=0.1)
    >>> fitness = es.evaluate(strategy, es.Each(lambda theta, key: np.sum(theta**2)))
    >>> fitness.shape, strategy.generation
    ((4,), 0)
    """
    return evaluator(strategy.ask(), strategy.key)
