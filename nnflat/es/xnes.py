"""XNES: the natural gradient of a full covariance, in coordinates in which it is simple."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.sampler import Sampler
from nnflat.es.shaping import nes_utilities
from nnflat.es.strategy import Strategy

__all__ = ["XNES"]

MAX_SIZE = 1000


class _Sampler(Sampler):
    def stretch(self, noise: NDArray[Any]) -> None:
        noise[...] = self.arrays["shape"] @ noise


class XNES(Strategy):
    """Exponential natural evolution strategy: a full covariance (sigma * B)(sigma * B).T with det B = 1.

    A generation costs pop * n**2 and a few n**3: it is for small n, and more than 1000 is refused. The rates
    are 1 for theta and 3 (3 + log n) / (5 n sqrt n) for sigma and B. Parameters are those of `Strategy`;
    `shaping` is `nes_utilities`.

    References
    ----------
    Glasmachers, Schaul, Yi, Wierstra, Schmidhuber, "Exponential natural evolution strategies", GECCO 2010;
    the rates are those of Wierstra and others, "Natural evolution strategies", JMLR 15, 2014, table 1.

    Examples
    --------
    >>> strategy = XNES(np.ones(3), maximize=False, pop=10, sigma=0.5, seed=1)
    >>> for _ in range(150):
    ...     strategy.tell(np.sum(strategy.ask() ** 2 * [1, 10, 100], axis=1))
    >>> bool(np.sum(strategy.theta**2) < 1e-6)
    True
    """

    default_shaping = staticmethod(nes_utilities)
    sampler_type = _Sampler
    mirrored = False
    follows_gradient = False
    adapts_sigma = True

    def __init__(self, theta: Any, **options: Any) -> None:
        super().__init__(theta, **options)
        n = self._theta.size
        if n > MAX_SIZE:
            raise ValueError(
                f"XNES would need {8 * n * n / 2**20:,.0f} MiB a matrix for {n} elements, of which there are "
                f"several, and some {n**3:.0e} operations a generation; it takes at most {MAX_SIZE}"
            )
        self._memory = {"shape": np.eye(n)}

    def _sampled(self) -> dict[str, NDArray[Any]]:
        return super()._sampled() | self._memory

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Take the step of natural gradients."""
        n, shape = self._theta.size, self._memory["shape"]
        rate = 3 * (3 + np.log(n)) / (5 * n * np.sqrt(n))
        noise = self.noise.rows(self._noise_key, self._generation, 0, np.empty((self._pop, n)))
        by_shape = (noise.T * utilities) @ noise - utilities.sum() * np.eye(n)
        by_sigma = np.trace(by_shape) / n
        by_shape -= by_sigma * np.eye(n)
        self._theta += (self._sigma * (shape @ (utilities @ noise))).astype(self._theta.dtype)
        values, vectors = np.linalg.eigh(by_shape)
        shape[...] = shape @ ((vectors * np.exp(rate / 2 * values)) @ vectors.T)
        self._sigma = self._sigma * np.exp(rate / 2 * by_sigma)
