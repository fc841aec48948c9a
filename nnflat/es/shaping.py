"""Shaping: the fitness of a generation (higher is better) to utilities, by which candidates are weighed.

H1  Equal fitnesses get equal utilities: the mean of what their places would get.
H2  NaN and minus infinity are the worst.
H3  A constant fitness, and that of a single member, gives exact zeros: no update.
H4  Utilities are finite.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Shaping",
    "centred_ranks",
    "linear_ranks",
    "nes_utilities",
    "raw",
    "recombination_weights",
    "top_k",
    "zscore",
]

Shaping = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def centred_ranks(fitness: ArrayLike) -> NDArray[np.float64]:
    """Return ranks scaled to [-0.5, 0.5], the best highest.

    Equal fitnesses share the mean of their ranks, so that a constant fitness (and a single member) gives
    exact zeros. NaN counts as minus infinity: the worst.

    Parameters
    ----------
    fitness : array_like, shape (pop,)
        Higher is better.

    Returns
    -------
    ndarray of float64, shape (pop,)
        Their sum is zero.

    References
    ----------
    Salimans, Ho, Chen, Sidor, Sutskever, "Evolution strategies as a scalable alternative to reinforcement
    learning", 2017.

    Examples
    --------
    >>> centred_ranks([10.0, 30.0, np.nan, 10.0, 20.0])
    array([-0.125,  0.5  , -0.5  , -0.125,  0.25 ])
    """
    below, not_above = _places(_scores(fitness))
    return (below + not_above - below.size) / (2 * max(below.size - 1, 1))


def linear_ranks(fitness: ArrayLike) -> NDArray[np.float64]:
    """Return ranks scaled to [0, 1], the best highest; zeros where all are equal.

    References
    ----------
    Baker, "Adaptive selection methods for genetic algorithms", 1985.

    Examples
    --------
    >>> linear_ranks([10.0, 30.0, np.nan, 10.0, 20.0])
    array([0.375, 1.   , 0.   , 0.375, 0.75 ])
    """
    ranks = centred_ranks(fitness)
    return ranks + 0.5 if ranks.any() else ranks


def nes_utilities(fitness: ArrayLike) -> NDArray[np.float64]:
    """Return max(0, log(pop / 2 + 1) - log(place)), scaled to a sum of 1, less their mean.

    References
    ----------
    Wierstra, Schaul, Glasmachers, Sun, Peters, Schmidhuber, "Natural evolution strategies", JMLR 15, 2014,
    section 3.1.

    Examples
    --------
    >>> nes_utilities([10.0, 30.0, 20.0, 0.0]).round(3)
    array([-0.25,  0.48,  0.02, -0.25])
    """
    pop = np.size(fitness)
    positive = np.maximum(np.log(pop / 2 + 1) - np.log(np.arange(1, pop + 1)), 0)
    return _by_place(fitness, positive / positive.sum() - 1 / pop)


def recombination_weights(fitness: ArrayLike) -> NDArray[np.float64]:
    """Return the weights of CMA-ES: log((pop + 1) / 2) - log(place) for the better half, with a sum of 1.

    References
    ----------
    Hansen, "The CMA evolution strategy: a tutorial", arXiv 1604.00772, 2016, equation 49.

    Examples
    --------
    >>> recombination_weights([10.0, 30.0, 20.0, 0.0]).round(3)
    array([0.  , 0.804, 0.196, 0.   ])
    """
    pop = np.size(fitness)
    better = max(pop // 2, 1)
    weights = np.zeros(pop)
    weights[:better] = np.log((pop + 1) / 2) - np.log(np.arange(1, better + 1))
    return _by_place(fitness, weights / max(weights.sum(), np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class top_k:
    """Give 1 / k to the best `k` and 0 to the others.

    Examples
    --------
    >>> top_k(2)([10.0, 30.0, np.nan, 20.0])
    array([0. , 0.5, 0. , 0.5])
    """

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top_k needs a k of at least 1; got {self.k}")

    def __call__(self, fitness: ArrayLike) -> NDArray[np.float64]:
        chosen = min(self.k, np.size(fitness))
        return _by_place(fitness, np.where(np.arange(np.size(fitness)) < chosen, 1 / chosen, 0.0))


def raw(fitness: ArrayLike) -> NDArray[np.float64]:
    """Return the fitness as it is; what is not finite becomes the worst, or the best, that is.

    Examples
    --------
    >>> raw([1.0, np.nan, 3.0])
    array([1., 1., 3.])
    """
    scores = _scores(fitness)
    finite = scores[np.isfinite(scores)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if finite.size and low == high and not np.isfinite(scores).all():  # only who is finite differs
        return centred_ranks(scores)
    values = np.clip(scores, low, high)
    return np.zeros(values.shape) if low == high else values


def zscore(fitness: ArrayLike) -> NDArray[np.float64]:
    """Return the fitness less its mean, over its standard deviation; what is not finite as in `raw`.

    Examples
    --------
    >>> zscore([1.0, 2.0, 3.0]).round(3)
    array([-1.225,  0.   ,  1.225])
    """
    values = raw(fitness)
    largest = np.abs(values).max(initial=0.0)
    if largest == 0:
        return values
    values = values / largest  # so that no square overflows or vanishes
    values -= values.mean()
    spread = values.std()
    return values / spread if spread > 0 else centred_ranks(fitness)


def _scores(fitness: ArrayLike) -> NDArray[np.float64]:
    scores = np.asarray(fitness, np.float64)
    return np.where(np.isnan(scores), -np.inf, scores)


def _places(scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return how many are worse than each, and how many are not better."""
    ordered = np.sort(scores)
    return np.searchsorted(ordered, scores, side="left"), np.searchsorted(ordered, scores, side="right")


def _by_place(fitness: ArrayLike, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `values`, of the best place first, by fitness; equals get their mean."""
    scores = _scores(fitness)
    below, not_above = _places(scores)
    if scores.size == 0 or np.all(not_above - below == scores.size):
        return np.zeros(scores.size)
    first, counts = scores.size - not_above, not_above - below
    starts = np.unique(first)
    sums = np.add.reduceat(values, starts)
    return sums[np.searchsorted(starts, first)] / counts
