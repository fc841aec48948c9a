"""PyCMA: the full CMA-ES of the package `cma`, behind the same ask and tell."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.checks import check_state
from nnflat.es.sampler import Sampler
from nnflat.es.shaping import centred_ranks
from nnflat.es.strategy import Strategy
from nnflat.random import fold, normal

__all__ = ["PyCMA"]

MAX_SIZE = 5000


class _Sampler(Sampler):
    def write(self, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Copy candidate `k`, which pycma has drawn."""
        return self._clip(np.add(self.arrays["population"][k], 0, out=out))


class PyCMA(Strategy):
    """CMA-ES with a full covariance, by the package pycma; its termination rules play no part.

    A state is the ranks of all generations so far: to restore it is to tell them again, which takes pycma's
    own time and gives the same bits, and needs no pickle. The draws are by key, as everywhere. A matrix of
    n * n float64 is held several times: more than 5000 elements are refused. Parameters are those of
    `Strategy`, without noise, shaping, optimizer and decay.

    Raises
    ------
    ImportError
        If pycma is not installed.

    References
    ----------
    Hansen, Akimoto, Baudis, "CMA-ES/pycma on GitHub", doi 10.5281/zenodo.2559634.
    """

    sampler_type = _Sampler
    mirrored = False
    follows_gradient = False
    adapts_sigma = True

    def __init__(self, theta: Any, *, maximize: bool, pop: int, sigma: Any, bounds: Any = None, seed: int = 0) -> None:
        super().__init__(theta, maximize=maximize, pop=pop, sigma=sigma, bounds=bounds, seed=seed)
        n = self._theta.size
        if n > MAX_SIZE:
            raise ValueError(
                f"a full covariance of {n:,} elements takes {8 * n * n / 2**30:,.1f} GiB a matrix, and pycma holds "
                f"several; it takes at most {MAX_SIZE:,}. SepCMA, LMMAES and CRFMNES are linear in n"
            )
        self._start = self._theta.copy(), self._sigma.copy()
        self._begin()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that moves, as arrays: the ranks told so far among them."""
        return super().state() | {"told": np.array(self._told, np.float64).reshape(-1, self._pop)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state` by telling its ranks again."""
        rest = {name: value for name, value in state.items() if name != "told"}
        told = np.asarray(state.get("told", np.empty((0, 0))), np.float64)
        if told.ndim != 2 or told.shape[1] != self._pop:
            raise ValueError(f"told in the state has shape {told.shape}; this strategy needs (.., {self._pop})")
        optional = {"best": self._theta, "best_fitness": np.array(0.0)}
        check_state(rest, super().state(), optional)
        self._key = np.uint64(state["key"])
        self._begin()
        for ranks in told:
            self._tell(ranks)
        self._take(rest)

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Tell pycma the ranks."""
        self._tell(centred_ranks(utilities))
        np.copyto(self._theta, self._cma.mean, casting="same_kind")
        self._sigma = np.array(self._cma.sigma, np.float64)

    def _sampled(self) -> dict[str, NDArray[Any]]:
        return super()._sampled() | {"population": self._population}

    def _begin(self) -> None:
        try:
            import cma
        except ImportError:
            raise ImportError("PyCMA needs pycma: pip install cma") from None
        theta, sigma = self._start
        scale = float(sigma.max())
        options = {
            "popsize": self._pop,
            "randn": self._randn,
            "seed": np.nan,  # leave NumPy's global generator alone
            "verbose": -9,
            "CMA_stds": np.broadcast_to(sigma / scale, theta.shape).astype(np.float64),
        }
        self._told: list[NDArray[np.float64]] = []
        self._draws = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._cma = cma.CMAEvolutionStrategy(theta.astype(np.float64), scale, options)
            self._draw()

    def _tell(self, ranks: NDArray[np.float64]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._cma.tell(list(self._solutions), (-ranks).tolist())
            self._told.append(ranks)
            self._draw()

    def _draw(self) -> None:
        """Ask pycma for the next candidates, once: asking it again would give others."""
        self._solutions = self._cma.ask()
        self._population = np.array(self._solutions).astype(self._theta.dtype)

    def _randn(self, *shape: int) -> Any:
        self._draws += 1
        return normal(fold(self._key, 3, self._draws), shape, np.float64)
