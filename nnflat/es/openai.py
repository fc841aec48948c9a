"""OpenAI-ES: follow the gradient that the population estimates, with an ordinary update rule."""

import numpy as np
from numpy.typing import NDArray

from nnflat.es.defaults import LR
from nnflat.es.strategy import Strategy
from nnflat.optim import Adam

__all__ = ["OpenAIES"]


class OpenAIES(Strategy):
    """The evolution strategy of Salimans and others: mirrored noise, ranks, Adam.

    The gradient of the mean utility with respect to theta is estimated as

        sum_k utility_k * noise_k / (pop * sigma)

    (`combine(utilities) / (pop * sigma)`), and the optimizer steps along it, less `decay * theta`. Where the
    utilities are the fitness itself, its expectation for a linear fitness is the exact gradient.

    Parameters are those of `Strategy`; the default optimizer is `optim.Adam(lr=0.1)`.

    References
    ----------
    Salimans, Ho, Chen, Sidor, Sutskever, "Evolution strategies as a scalable alternative to reinforcement
    learning", 2017, algorithm 2 and section 2.1.

    Examples
    --------
    >>> strategy = OpenAIES(np.ones(3), maximize=False, pop=20, sigma=0.1, seed=1)
    >>> for _ in range(100):
    ...     population = strategy.ask()
    ...     strategy.tell(np.sum(population**2, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 0.01)
    True
    """

    default_optimizer = Adam(lr=LR)

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Step along the estimated gradient."""
        gradient = self.combine(utilities)
        np.divide(gradient, self._pop * self._sigma, out=gradient, where=self._sigma > 0, casting="same_kind")
        self._follow(gradient)
