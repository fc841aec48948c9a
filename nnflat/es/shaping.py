"""Fitness to utilities: what an update sees of a generation. Here higher is always better."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["centred_ranks"]


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
    scores = np.asarray(fitness, np.float64)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    ordered = np.sort(scores)
    below = np.searchsorted(ordered, scores, side="left")
    not_above = np.searchsorted(ordered, scores, side="right")
    return (below + not_above - scores.size) / (2 * max(scores.size - 1, 1))
