"""SNES: the natural gradient of a centre and of a standard deviation an element."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.shaping import nes_utilities
from nnflat.es.strategy import Strategy

__all__ = ["SNES"]


class SNES(Strategy):
    """Separable natural evolution strategy.

    With utilities u and standard noise z of each candidate

        theta += sigma * sum_k u_k * z_k
        sigma *= exp(rate / 2 * sum_k u_k * (z_k**2 - 1))

    with the rate (3 + log n) / (5 sqrt n). Parameters are those of `Strategy`; `shaping` is `nes_utilities`.

    References
    ----------
    Schaul, Glasmachers, Schmidhuber, "High dimensions and heavy tails for natural evolution strategies",
    GECCO 2011, algorithm 2.

    Examples
    --------
    >>> strategy = SNES(np.ones(3), maximize=False, pop=10, sigma=0.5, seed=1)
    >>> for _ in range(100):
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 1e-6)
    True
    """

    default_shaping = staticmethod(nes_utilities)
    mirrored = False
    follows_gradient = False
    adapts_sigma = True

    def __init__(self, theta: Any, **options: Any) -> None:
        super().__init__(theta, **options)
        self._sigma = np.full(self._theta.shape, self._sigma, self._theta.dtype)

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Take the step of natural gradients."""
        n = self._theta.size
        rate = (3 + np.log(n)) / (5 * np.sqrt(n))
        step, spread = self.moments(utilities, utilities)
        self._theta += self._sigma * step
        self._sigma *= np.exp(rate / 2 * (spread - utilities.sum())).astype(self._sigma.dtype)
