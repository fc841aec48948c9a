"""SepCMA: CMA-ES with a diagonal covariance, linear in the number of elements."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.sampler import Sampler
from nnflat.es.shaping import recombination_weights
from nnflat.es.strategy import Strategy

__all__ = ["SepCMA", "expected_length"]


class _Sampler(Sampler):
    def stretch(self, noise: NDArray[Any]) -> None:
        noise *= self.arrays["scales"]


class SepCMA(Strategy):
    """Separable CMA-ES: a step size sigma, and a scale an element.

    Candidates are theta + sigma * scales * noise. Parameters are those of `Strategy`; `shaping` is
    `recombination_weights`. The usual pop is 4 + 3 log n.

    References
    ----------
    Ros, Hansen, "A simple modification in CMA-ES achieving linear time and space complexity", PPSN 2008.

    Examples
    --------
    >>> strategy = SepCMA(np.ones(3), maximize=False, pop=10, sigma=0.5, seed=1)
    >>> for _ in range(100):
    ...     strategy.tell(np.sum(strategy.ask() ** 2 * [1, 10, 100], axis=1))
    >>> bool(np.sum(strategy.theta**2) < 1e-6)
    True
    """

    default_shaping = staticmethod(recombination_weights)
    sampler_type = _Sampler
    mirrored = False
    follows_gradient = False
    adapts_sigma = True

    def __init__(self, theta: Any, **options: Any) -> None:
        super().__init__(theta, **options)
        scales = np.full(self._theta.shape, self._sigma / self._sigma.max(), self._theta.dtype)
        self._sigma = np.array(self._sigma.max(), np.float64)
        paths = np.zeros((2, *self._theta.shape), self._theta.dtype)
        self._memory = {"scales": scales, "path_sigma": paths[0], "path": paths[1]}

    def _sampled(self) -> dict[str, NDArray[Any]]:
        return super()._sampled() | {"scales": self._memory["scales"]}

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Move theta, then the paths, the scales and sigma."""
        n, mass = self._theta.size, 1 / np.sum(np.square(utilities))
        scales, path, path_sigma = (self._memory[name] for name in ("scales", "path", "path_sigma"))
        rate_sigma = (mass + 2) / (n + mass + 3)
        damping = 1 + rate_sigma + 2 * max(0.0, np.sqrt((mass - 1) / (n + 1)) - 1)
        rate_path, rate = 4 / (n + 4), _covariance_rate(n, mass)
        step, squares = self.moments(utilities, utilities)
        path_sigma *= 1 - rate_sigma
        path_sigma += np.sqrt(rate_sigma * (2 - rate_sigma) * mass) * step
        length = np.linalg.norm(path_sigma)
        remembered = np.sqrt(1 - (1 - rate_sigma) ** (2 * (self._generation + 1)))
        straight = length / remembered < (1.4 + 2 / (n + 1)) * expected_length(n)
        step *= scales
        self._theta += float(self._sigma) * step
        path *= 1 - rate_path
        if straight:
            path += np.sqrt(rate_path * (2 - rate_path) * mass) * step
        squares *= rate * (1 - 1 / mass)
        squares += 1 - rate  # of the variance that was; the rest is of the path
        squares *= np.square(scales)
        squares += rate / mass * np.square(path)
        np.sqrt(squares, out=scales)
        self._sigma = self._sigma * np.exp(rate_sigma / damping * (length / expected_length(n) - 1))


def expected_length(n: int) -> float:
    """Return the expected length of a standard normal vector, nearly.

    Examples
    --------
    >>> round(expected_length(100), 3)
    9.975
    """
    return n**0.5 * (1 - 1 / (4 * n) + 1 / (21 * n * n))


def _covariance_rate(n: int, mass: float) -> float:
    """Return the rate of the variances: that of a full covariance times (n + 2) / 3."""
    full = 2 / (n + 2**0.5) ** 2 / mass + (1 - 1 / mass) * min(1.0, (2 * mass - 1) / ((n + 2) ** 2 + mass))
    return min(1.0, (n + 2) / 3 * full)
