"""CRFMNES: a natural evolution strategy for many elements, with a scale each and one direction for all."""

from math import exp, log, sqrt, tanh
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.sampler import Sampler
from nnflat.es.sepcma import expected_length
from nnflat.es.shaping import nes_utilities
from nnflat.es.strategy import Strategy
from nnflat.random import fold, normal

__all__ = ["CRFMNES"]


class _Sampler(Sampler):
    def stretch(self, noise: NDArray[Any]) -> None:
        lengthen(noise, self.arrays["direction"])
        noise *= self.arrays["scales"]


class CRFMNES(Strategy):
    """Cost-reduced fast moving natural evolution strategy: covariance sigma**2 D (I + v v.T) D.

    Time and memory are linear in n. Candidates are mirrored, so `pop` must be even. All candidates count as
    feasible, and a fitness that is not finite is only the worst. Parameters are those of `Strategy`; `shaping`
    is `nes_utilities`.

    References
    ----------
    Nomura, Ono, "Fast moving natural evolution strategy for high-dimensional problems", CEC 2022 (arXiv
    2201.11422), and its reference implementation for the constants; but the constant term of the gradient of
    the scales is -1, with which its expectation is zero (Akimoto, Auger, Hansen, "Comparison-based natural
    gradient optimization in high dimension", GECCO 2014), where that implementation adds 1.

    Examples
    --------
    >>> strategy = CRFMNES(np.ones(8), maximize=False, pop=12, sigma=0.5, seed=1)
    >>> for _ in range(150):
    ...     strategy.tell(np.sum(strategy.ask() ** 2 * 10.0 ** np.arange(8) / 1e4, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 1)
    True
    """

    default_shaping = staticmethod(nes_utilities)
    sampler_type = _Sampler
    follows_gradient = False
    adapts_sigma = True

    def __init__(self, theta: Any, **options: Any) -> None:
        super().__init__(theta, **options)
        if self._pop % 2:
            raise ValueError(f"CRFMNES needs an even pop, for pairs; got {self._pop}")
        n, dtype = self._theta.size, self._theta.dtype
        scales = np.full(n, self._sigma / self._sigma.max(), dtype)
        self._sigma = np.array(self._sigma.max(), np.float64)
        direction = normal(fold(self._key, 2), n, np.float64) / sqrt(n)
        self._memory = {
            "scales": scales,
            "direction": direction.astype(dtype),
            "path": np.zeros(n, dtype),
            "path_sigma": np.zeros(n, dtype),
        }

    def _sampled(self) -> dict[str, NDArray[Any]]:
        return super()._sampled() | {name: self._memory[name] for name in ("scales", "direction")}

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Move theta and the paths, then direction, scales and sigma."""
        n, pop = self._theta.size, self._pop
        path, path_sigma = self._memory["path"], self._memory["path_sigma"]
        mass = 1 / np.sum(np.square(utilities + 1 / pop))
        rate_sigma, rate_path = (mass + 2) / (n + mass + 5), (4 + mass / n) / (n + 4 + 2 * mass / n)
        path_sigma *= 1 - rate_sigma
        path_sigma += sqrt(rate_sigma * (2 - rate_sigma) * mass) * self.combine(utilities)
        speed = float(np.linalg.norm(path_sigma)) / expected_length(n)
        lengths = self._squared_lengths()
        weights = _by_distance(utilities, np.sqrt(lengths), n) if speed >= 1 else utilities
        step = self.combine(weights)
        self.sampler.stretch(step)
        path *= 1 - rate_path
        path += sqrt(rate_path * (2 - rate_path) * mass) * step
        self._theta += float(self._sigma) * step
        spread = float(weights @ (lengths - n)) / n
        growth = self._shape(weights, (2 / ((n + 1.3) ** 2 + mass)) if speed >= 1 else 0.0)
        if not (speed >= 1 and spread < 0):
            growth += _sigma_rate(speed, n, pop) / 2 * spread
        self._sigma = self._sigma * np.exp(growth)

    def _squared_lengths(self) -> NDArray[np.float64]:
        """Return the squared length of each candidate's noise."""
        noise = np.empty_like(self._theta)
        directions = range(self._pop // 2)
        fill = self.noise.fill
        each = [
            np.sum(np.square(fill(self._noise_key, self._generation, k, noise), dtype=np.float64))
            for k in directions
        ]
        return np.repeat(each, 2)

    def _shape(self, weights: NDArray[np.float64], path_rate: float) -> float:
        """Move direction and scales by their natural gradients; return the logarithm that sigma grows by."""
        n, pop = self._theta.size, self._pop
        scales, direction = self._memory["scales"], self._memory["direction"]
        rate = tanh((min(0.02 * pop, 3 * log(n)) + 5) / (0.23 * n + 25))
        path_weight = path_rate * max(n - 5, 0) / 6
        before = _log_volume(scales, direction)
        by_scale, by_direction = _gradients(*self._sums(rate * weights, path_weight), direction)
        frozen = scales == 0
        direction += by_direction / np.linalg.norm(direction)
        scales *= np.maximum(1 + by_scale, 0.1)  # a scale stays above zero
        after = _log_volume(scales, direction)
        scales[...] = np.where(frozen, 0, scales / exp(after))
        return before

    def _sums(self, weights: NDArray[np.float64], path_weight: float) -> tuple[Any, Any, float, float]:
        """Return weighted sums over the candidates y, and the path, that the gradients are made of.

        y * y; (y . unit) * y; (y . unit) ** 2; and 1, with the unit vector of the direction.
        """
        scales, direction = self._memory["scales"], self._memory["direction"]
        unit = direction / np.linalg.norm(direction)
        squares, along = np.zeros((2, self._theta.size))
        parts = [(k, weight) for k, weight in enumerate(weights.reshape(-1, 2).sum(axis=1).tolist())]
        y, total = np.empty_like(self._theta), 0.0
        for k, weight in [*parts, (-1, path_weight)]:
            if k < 0:
                np.divide(self._memory["path"], scales, out=y, where=scales > 0)
            else:
                lengthen(self.noise.fill(self._noise_key, self._generation, k, y), direction)
            inner = float(y @ unit)
            squares += weight * np.square(y)
            along += weight * inner * y
            total += weight * inner**2
        return squares, along, total, float(weights.sum() + path_weight)


def lengthen(noise: NDArray[Any], direction: NDArray[Any]) -> NDArray[Any]:
    """Stretch standard noise along a direction v, in place, to covariance I + v v.T."""
    squared = float(direction @ direction)
    noise += ((sqrt(1 + squared) - 1) / squared * float(direction @ noise)) * direction
    return noise


def _gradients(squares: Any, along: Any, inner: float, mass: float, direction: Any) -> tuple[Any, Any]:
    """Return the natural gradients of the logarithms of the scales, and of the direction (times its length).

    They are linear in their sums over candidates, so that one pass over the sums is enough.
    """
    v2 = float(direction @ direction)
    unit = direction / sqrt(v2)
    units, gamma = unit * unit, 1 + v2
    alpha = min(1.0, sqrt(v2**2 + (2 * gamma - sqrt(gamma)) / float(units.max())) / (2 + v2))
    t = along - unit * (inner + gamma * mass) / 2
    b = -(1 - alpha**2) * v2**2 / gamma + 2 * alpha**2
    inverse = 1 / (2 - (b + 2 * alpha**2) * units)
    s = squares - v2 / gamma * unit * along - mass
    s = s - alpha / gamma * ((2 + v2) * unit * t - v2 * units * float(unit @ t))
    scaled = inverse * units
    s = s * inverse - b / (1 + b * float(units @ scaled)) * scaled * float(scaled @ s)
    t = t - alpha * ((2 + v2) * unit * s - unit * float(units @ s))
    return s, t


def _log_volume(scales: NDArray[Any], direction: NDArray[Any]) -> float:
    """Return the logarithm of the n-th root of the volume of D (I + v v.T) D's root."""
    positive = np.log(scales[scales > 0], dtype=np.float64)
    return float(np.sum(positive) + log(1 + float(direction @ direction)) / 2) / scales.size


def _by_distance(utilities: NDArray[np.float64], lengths: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Return weights that favour distant candidates, for when the distribution moves."""
    pop = utilities.size
    alpha = _inverse(n) * min(1.0, sqrt(pop / n))
    weights = (utilities + 1 / pop) * np.exp(alpha * (lengths - lengths.max()))
    return weights / weights.sum() - 1 / pop


def _sigma_rate(speed: float, n: int, pop: int) -> float:
    """Return the rate of sigma: while moving, stagnating, converging."""
    if speed >= 1:
        return 1.0
    if speed >= 0.1:
        return tanh((0.024 * pop + 0.7 * n + 20) / (n + 12))
    return 2 * tanh((0.025 * pop + 0.75 * n + 10) / (n + 4))


def _inverse(n: int) -> float:
    """Return the a > 0 with (1 + a**2) exp(a**2 / 2) / 0.24 - 10 = n, by bisection."""
    low, high = 0.0, 10.0
    while high - low > 1e-12:
        a = (low + high) / 2
        low, high = (low, a) if (1 + a * a) * exp(a * a / 2) / 0.24 - 10 > n else (a, high)
    return high
