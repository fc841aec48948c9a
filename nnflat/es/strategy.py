"""Strategy: ask for candidates, tell their fitness. The parts that all strategies share.

S1  A candidate is theta + sigma * noise, made afresh wherever it is needed; no evaluation modifies theta.
S2  Noise depends on (seed, generation, pair, element) only, so `ask`, `write` and `combine` agree to the
    bit, in any order and any number of times. Only `tell` moves on.
S3  Candidates 2i and 2i + 1 are theta plus and minus the same noise; the last of an odd population stands
    alone.
S4  A `tell` that raises in its checks or in the shaping has changed nothing.
S5  `state` is arrays only and holds all that is needed to continue to the bit.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat.es.checks import (
    check_state,
    checked_bounds,
    checked_maximize,
    checked_pop,
    checked_sigma,
    checked_theta,
    read_only,
)
from nnflat.es.noise import Gaussian, Noise
from nnflat.es.shaping import centred_ranks
from nnflat.optim import SGD, Rule
from nnflat.random import fold

__all__ = ["Strategy"]

MAX_FAILURES = 10  # generations in a row without one valid fitness

_GAUSSIAN = Gaussian()


class Strategy:
    """Base of the strategies: sampling, checks, best, state. A new strategy adds `update`.

    Parameters
    ----------
    theta : array_like, shape (size,)
        Where to start; copied. Its floating dtype is kept throughout.
    maximize : bool
        Whether a higher fitness is better. Required: nobody should have to remember a default.
    pop : int
        Candidates a generation, at least 1.
    sigma : float
        Standard deviation of the perturbation.
    noise : Noise
        The kind of noise.
    shaping : callable
        Fitness (already turned so that higher is better) to utilities, both of shape (pop,).
    optimizer : Rule, optional
        The update rule, for strategies that follow a gradient; None takes the strategy's own.
    bounds : pair of floats or arrays, optional
        Lower and upper bound of each element; candidates and theta are clipped to them.
    decay : float
        Pull towards zero: decay * theta is taken off the gradient.
    seed : int
        Starts the run. Equal seeds give equal bits; different seeds share no noise.
    """

    default_optimizer: Rule = SGD(lr=1.0)

    def __init__(
        self,
        theta: ArrayLike,
        *,
        maximize: bool,
        pop: int,
        sigma: float,
        noise: Noise = _GAUSSIAN,
        shaping: Callable[[NDArray[np.float64]], NDArray[np.float64]] = centred_ranks,
        optimizer: Rule | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._theta = checked_theta(theta)
        self._maximize = checked_maximize(maximize)
        self._pop = checked_pop(pop)
        self._sigma = checked_sigma(sigma)
        self._bounds = None if bounds is None else checked_bounds(bounds, self._theta)
        self._key = fold(np.uint64(0), operator.index(seed))
        self._generation = 0
        self._failures = 0
        self._best: NDArray[Any] | None = None
        self._best_fitness: float | None = None
        self.noise = noise
        self.shaping = shaping
        self.decay = decay
        self.optimizer = self.default_optimizer if optimizer is None else optimizer
        self._moments = self.optimizer.init(self._theta)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self._theta.size}, maximize={self._maximize}, pop={self._pop}, "
            f"sigma={self._sigma:g}, generation={self._generation})"
        )

    @property
    def theta(self) -> NDArray[Any]:
        """The centre of the search: a read-only view, which the next `tell` changes."""
        return read_only(self._theta)

    @property
    def maximize(self) -> bool:
        """Whether a higher fitness is better."""
        return self._maximize

    @property
    def pop(self) -> int:
        """Candidates a generation."""
        return self._pop

    @property
    def sigma(self) -> float:
        """Standard deviation of the perturbation."""
        return self._sigma

    @property
    def generation(self) -> int:
        """The number of generations told so far."""
        return self._generation

    @property
    def best(self) -> NDArray[Any] | None:
        """The best candidate told so far (read-only); None before the first valid fitness."""
        return None if self._best is None else read_only(self._best)

    @property
    def best_fitness(self) -> float | None:
        """The fitness of `best`, as it was told; None before the first valid fitness."""
        return self._best_fitness

    @property
    def key(self) -> np.uint64:
        """The key of this generation, for its evaluation; noise never draws from it."""
        return fold(self._key, 1, self._generation)

    def ask(self, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the candidates of this generation, shape (pop, size): a new array, or `out`.

        Asking again gives the same bits.
        """
        shape = (self._pop, self._theta.size)
        population = np.empty(shape, self._theta.dtype) if out is None else self._checked_out(out, shape)
        for pair in range((self._pop + 1) // 2):
            members = population[2 * pair : 2 * pair + 2]
            noise = self._fill(pair, members[-1])
            for member, sign in zip(members, (1, -1), strict=False):
                self._perturb(noise, sign, member)
        return population

    def write(self, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write candidate `k` into `out`, shape (size,), and return it: `ask()[k]` to the bit."""
        if not 0 <= k < self._pop:
            raise IndexError(f"candidate {k} is not in a population of {self._pop}")
        self._checked_out(out, self._theta.shape)
        pair, odd = divmod(k, 2)
        return self._perturb(self._fill(pair, out), -1 if odd else 1, out)

    def tell(self, fitness: ArrayLike) -> None:
        """Take the fitness of this generation's candidates, in their order, and move on to the next one.

        NaN, and the infinity on the wrong side, are worst. A generation whose fitnesses are all equal, or
        that has no valid one, leaves theta as it is, to the bit.

        Parameters
        ----------
        fitness : array_like, shape (pop,)
            Real numbers.

        Raises
        ------
        ValueError, TypeError
            If the fitness has another shape or kind; or at the tenth generation in a row without a valid one.
        """
        raw = self._checked_fitness(fitness)
        scores = read_only(raw if self._maximize else -raw)
        failures = 0 if np.any(scores > -np.inf) else self._failures + 1
        if failures >= MAX_FAILURES:
            raise ValueError(
                f"no candidate had a valid fitness in {failures} generations in a row (all were NaN or "
                f"infinitely bad): the evaluation fails, or theta has diverged"
            )
        utilities = self._checked_utilities(self.shaping(scores))
        best, best_fitness = self._better(scores, raw)
        if utilities.any():
            self.update(utilities)
            self._clip(self._theta)
        self._best, self._best_fitness = best, best_fitness
        self._failures = failures
        self._generation += 1

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Move theta by the utilities of this generation: the hook of a new strategy.

        It is not called when all utilities are zero.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define update(utilities)")

    def combine(self, weights: ArrayLike, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the sum over this generation of weight times the candidate's noise, of standard deviation 1.

        The noise is made again, not kept: no population is held.

        Parameters
        ----------
        weights : array_like, shape (pop,)
        out : ndarray, optional
            A vector of theta's shape and dtype for the result.
        """
        each = np.asarray(weights, np.float64)
        if each.shape != (self._pop,):
            raise ValueError(f"weights have shape {each.shape}; this population needs ({self._pop},)")
        pairs = each[0::2].copy()
        pairs[: self._pop // 2] -= each[1::2]  # S3
        total = np.empty_like(self._theta) if out is None else self._checked_out(out, self._theta.shape)
        return self.noise.combine(self._noise_key, self._generation, pairs, total)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that moves, as arrays; `restore` continues from it to the bit."""
        state = {
            "theta": self._theta.copy(),
            "sigma": np.array(self._sigma, np.float64),
            "generation": np.array(self._generation, np.int64),
            "failures": np.array(self._failures, np.int64),
            "key": np.array(self._key, np.uint64),
        }
        state |= {f"optimizer.{name}": moment.copy() for name, moment in self._moments.items()}
        if self._best is not None:
            state |= {"best": self._best.copy(), "best_fitness": np.array(self._best_fitness, np.float64)}
        return state

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state` of a strategy that was made with the same arguments."""
        check_state(state, self.state(), optional={"best": self._theta, "best_fitness": np.array(0.0)})
        np.copyto(self._theta, state["theta"])
        for name, moment in self._moments.items():
            np.copyto(moment, state[f"optimizer.{name}"])
        self._sigma = float(state["sigma"])
        self._generation = int(state["generation"])
        self._failures = int(state["failures"])
        self._key = np.uint64(state["key"])
        self._best = state["best"].copy() if "best" in state else None
        self._best_fitness = float(state["best_fitness"]) if "best" in state else None

    @property
    def _noise_key(self) -> np.uint64:
        return fold(self._key, 0)

    def _fill(self, pair: int, out: NDArray[Any]) -> NDArray[Any]:
        return self.noise.fill(self._noise_key, self._generation, pair, out)

    def _perturb(self, noise: NDArray[Any], sign: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write theta + sign * sigma * noise into `out`, which may be the noise itself."""
        np.multiply(noise, sign * self._sigma, out=out)
        np.add(out, self._theta, out=out)
        return self._clip(out)

    def _clip(self, flat: NDArray[Any]) -> NDArray[Any]:
        return flat if self._bounds is None else np.clip(flat, *self._bounds, out=flat)

    def _better(self, scores: NDArray[Any], raw: NDArray[Any]) -> tuple[NDArray[Any] | None, float | None]:
        """Return the best candidate up to this generation, and its fitness."""
        k = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
        held = self._best_fitness
        floor = -np.inf if held is None else held if self._maximize else -held
        if not scores[k] > floor:
            return self._best, held
        return self.write(k, np.empty_like(self._theta)), float(raw[k])

    def _checked_fitness(self, fitness: ArrayLike) -> NDArray[np.float64]:
        given = np.asarray(fitness)
        if given.shape != (self._pop,):
            raise ValueError(f"fitness has shape {given.shape}; this population needs ({self._pop},)")
        if given.dtype.kind not in "biuf":
            raise TypeError(f"fitness must be real numbers; got an array of dtype {given.dtype}")
        return given.astype(np.float64)

    def _checked_utilities(self, utilities: ArrayLike) -> NDArray[np.float64]:
        given = np.asarray(utilities, np.float64)
        if given.shape != (self._pop,) or not np.isfinite(given).all():
            raise ValueError(f"shaping must give {self._pop} finite utilities; got {given}")
        return given

    def _checked_out(self, out: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        dtype = self._theta.dtype
        if out.shape != shape or out.dtype != dtype:
            raise ValueError(f"out is {out.dtype} of shape {out.shape}; it must be {dtype} of shape {shape}")
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError("out must be C-contiguous and writeable")
        return out
