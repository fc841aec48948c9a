"""ARS: random search along the better directions, in steps scaled by the spread of their rewards."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.shaping import raw
from nnflat.es.strategy import Strategy
from nnflat.optim import SGD

__all__ = ["ARS"]


class ARS(Strategy):
    """Augmented random search: raw rewards of mirrored pairs, of the `top` pairs only.

    Theta moves along

        sum over the top pairs of (reward+ - reward-) * noise / (top * std of their rewards)

    There is no divisor by sigma: the step depends on the ratio of rewards to their spread alone. A pair is as
    good as the better of its two. (The normalisation of observations, which makes V2 of it, is
    `Gym(normalize=True)`.)

    Parameters are those of `Strategy`, with a `pop` that is even (the paper's N is pop / 2), the default
    optimizer `optim.SGD(lr=0.02)`, `shaping=raw`, and

    top : int, optional
        The number of pairs used; None is all (V1).

    References
    ----------
    Mania, Guy, Recht, "Simple random search provides a competitive approach to reinforcement learning", 2018,
    algorithms 1 and 2.

    Examples
    --------
    >>> strategy = ARS(np.ones(3), maximize=False, pop=16, sigma=0.1, top=4, seed=1)
    >>> for _ in range(200):
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 0.01)
    True
    """

    default_optimizer = SGD(lr=0.02)
    default_shaping = staticmethod(raw)

    def __init__(self, theta: Any, *, pop: int, top: int | None = None, **options: Any) -> None:
        super().__init__(theta, pop=pop, **options)
        if self._pop % 2:
            raise ValueError(f"ARS needs an even pop, for pairs; got {pop}")
        self.top = self._pop // 2 if top is None else top
        if not 1 <= self.top <= self._pop // 2:
            raise ValueError(f"top must be between 1 and the {self._pop // 2} pairs; got {top}")

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Step along the better pairs."""
        rewards = utilities.reshape(-1, 2)
        chosen = np.argsort(-rewards.max(axis=1), kind="stable")[: self.top]
        scale = np.abs(rewards[chosen]).max() or 1.0  # so that the square of no reward overflows
        spread = (rewards[chosen] / scale).std() * self.top
        if spread > 0:
            weights = np.zeros_like(rewards)
            weights[chosen] = rewards[chosen] / scale / spread
            self._follow(self.combine(weights.reshape(-1)))
