"""LMMAES: CMA-ES by a few direction vectors in place of a matrix."""

from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.sampler import Sampler
from nnflat.es.shaping import recombination_weights
from nnflat.es.strategy import Strategy

__all__ = ["LMMAES"]


class _Sampler(Sampler):
    def stretch(self, noise: NDArray[Any]) -> None:
        directions = self.arrays["directions"]
        for i in range(min(int(self.arrays["updates"]), len(directions))):
            rate = min(1.0, 1.5**-i / noise.size)
            along = rate * float(directions[i] @ noise)
            noise *= 1 - rate
            noise += along * directions[i]


class LMMAES(Strategy):
    """Limited-memory matrix adaptation evolution strategy: m directions that stretch the noise.

    Time and memory are linear in n: m = 4 + 3 log n vectors. Parameters are those of `Strategy`; `shaping` is
    `recombination_weights`. The usual pop is 4 + 3 log n.

    References
    ----------
    Loshchilov, Glasmachers, Beyer, "Large scale black-box optimization by limited-memory matrix adaptation",
    IEEE Trans. Evolutionary Computation 23, 2019, algorithm 1.

    Examples
    --------
    >>> strategy = LMMAES(np.ones(5), maximize=False, pop=10, sigma=0.5, seed=1)
    >>> for _ in range(150):
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
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
        if self._sigma.ndim:
            raise ValueError("LMMAES needs one number as sigma; got a vector")
        n, dtype = self._theta.size, self._theta.dtype
        self._memory = {
            "directions": np.zeros((4 + int(3 * log(n)), n), dtype),
            "path": np.zeros(n, dtype),
            "updates": np.array(0, np.int64),
        }

    def _sampled(self) -> dict[str, NDArray[Any]]:
        return super()._sampled() | {name: self._memory[name] for name in ("directions", "updates")}

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Move theta, then the path, the directions and sigma."""
        n, mass = self._theta.size, 1 / np.sum(np.square(utilities))
        path, directions = self._memory["path"], self._memory["directions"]
        rate_sigma = min(1.0, 2 * self._pop / n)
        step = self.combine(utilities)
        path *= 1 - rate_sigma
        path += np.sqrt(mass * rate_sigma * (2 - rate_sigma)) * step
        rates = np.minimum(1.0, self._pop / n * 4.0 ** -np.arange(len(directions)))
        stretched = step.copy()
        self.sampler.stretch(stretched)
        for direction, rate in zip(directions, rates.tolist(), strict=True):
            direction *= 1 - rate
            direction += (mass * rate * (2 - rate)) ** 0.5 * step
        self._theta += float(self._sigma) * stretched
        self._memory["updates"] += 1
        length = np.sum(np.square(path, dtype=np.float64))
        self._sigma = self._sigma * np.exp(rate_sigma / 2 * (length / n - 1))
