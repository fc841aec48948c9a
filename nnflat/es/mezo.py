"""MeZO: two evaluations a generation and a step along one direction, which is made again from its key."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.shaping import raw
from nnflat.es.strategy import Strategy
from nnflat.optim import SGD

__all__ = ["MeZO"]


class MeZO(Strategy):
    """Memory-efficient zeroth-order optimisation: simultaneous perturbation with replayed noise.

    The gradient is (fitness+ - fitness-) / (2 * sigma) * noise, averaged over the pairs if `pop` is more than
    the usual 2; for a linear fitness its expectation is the exact gradient. `write` makes a candidate in a
    buffer of your own, and theta is never touched by an evaluation, so there is nothing to restore.

    Parameters are those of `Strategy`, with `pop=2`, `shaping=raw` and the default optimizer
    `optim.SGD(lr=1e-3)`.

    References
    ----------
    Malladi and others, "Fine-tuning language models with just forward passes", 2023, algorithm 1; Spall,
    1992.

    Examples
    --------
    >>> from nnflat import optim
    >>> strategy = MeZO(np.ones(3), maximize=False, sigma=1e-3, optimizer=optim.SGD(0.05), seed=1)
    >>> for _ in range(300):
    ...     strategy.tell(np.sum(strategy.ask() ** 2, axis=1))
    >>> bool(np.sum(strategy.theta**2) < 1e-3)
    True
    """

    default_optimizer = SGD(lr=1e-3)
    default_shaping = staticmethod(raw)

    def __init__(self, theta: Any, *, pop: int = 2, **options: Any) -> None:
        super().__init__(theta, pop=pop, **options)
        if self._pop % 2:
            raise ValueError(f"MeZO needs an even pop, for pairs; got {pop}")

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Step along the noise of this generation."""
        gradient = self.combine(utilities)
        np.divide(gradient, self._pop * self._sigma, out=gradient, where=self._sigma > 0, casting="same_kind")
        self._follow(gradient)
