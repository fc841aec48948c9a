"""PGPE: follow the gradients of the expected fitness by the centre, and by each standard deviation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.strategy import Strategy
from nnflat.optim import ClipUp

__all__ = ["PGPE"]


class PGPE(Strategy):
    """Policy gradients with parameter-based exploration: mirrored noise, a sigma an element.

    With utilities u of mean b, pop candidates and standard noise z, the gradients are

        centre  sum_k u_k * sigma * z_k / pop
        sigma   sum_k (u_k - b) * sigma * (z_k**2 - 1) / pop

    (the natural ones but for a factor: for a linear fitness of slope g, the first is sigma**2 * g). The
    optimizer follows the first; sigma takes steps of `sigma_lr` along the second, each by at most the share
    `max_change` of itself.

    Parameters are those of `Strategy`, with the default optimizer `optim.ClipUp(0.075, max_speed=0.15)`, and

    sigma_lr : float
        The rate of sigma.
    max_change : float
        The greatest relative change of a sigma in a generation.

    References
    ----------
    Sehnke and others, "Parameter-exploring policy gradients", Neural Networks 23, 2010. Toklu, Liskowski,
    Srivastava, "ClipUp", 2020, whose constants these are.

    Examples
    --------
    >>> strategy = PGPE(np.ones(3), maximize=False, pop=20, sigma=0.3, seed=1)
    >>> for _ in range(200):
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 0.05), bool(np.all(strategy.sigma < 0.3))
    (True, True)
    """

    default_optimizer = ClipUp(0.075, max_speed=0.15)
    adapts_sigma = True

    def __init__(self, theta: Any, *, sigma_lr: float = 0.1, max_change: float = 0.2, **options: Any) -> None:
        super().__init__(theta, **options)
        self.sigma_lr = sigma_lr
        self.max_change = max_change
        self._sigma = np.full(self._theta.shape, self._sigma, self._theta.dtype)

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Step with the centre, then with sigma."""
        gradient, spread = self.moments(utilities, utilities - utilities.mean())
        gradient *= self._sigma / self._pop
        change = np.clip(spread * (self.sigma_lr / self._pop), -self.max_change, self.max_change)
        self._follow(gradient)
        self._sigma *= 1 + change
