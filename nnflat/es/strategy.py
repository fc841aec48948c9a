"""Strategy: ask for candidates, tell their fitness. The parts that all strategies share.

S1 to S3 (of candidates) are kept in `sampler.py`; `ask`, `write` and `combine` agree to the bit.
S4  A `tell` that raises in its checks or in the shaping has changed nothing.
S5  `state` is arrays only and holds all that is needed to continue to the bit.
S6  Only `tell` moves on.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat._noise import add_held_rows
from nnflat.es.checks import (
    check_state,
    checked_bounds,
    checked_fitness,
    checked_maximize,
    checked_noise,
    checked_optimizer,
    checked_out,
    checked_pop,
    checked_schedule,
    checked_sigma,
    checked_theta,
    checked_utilities,
    read_only,
)
from nnflat.es.noise import Gaussian, Noise
from nnflat.es.sampler import Sampler
from nnflat.es.shaping import Shaping, centred_ranks
from nnflat.es.stepper import Stepper
from nnflat.optim import SGD, Rule
from nnflat.random import fold

__all__ = ["Strategy"]

HELD = 1 << 20  # elements of a generation's noise up to which it is kept from `ask` to `tell`
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
    sigma : float, array or callable
        Standard deviation of the perturbation: a number; a vector (`layout.fill`), in which 0 freezes an
        element; or, where the strategy does not adapt it, a schedule called with the number of generations
        told, 0 for the first.
    noise : Noise
        The kind of noise.
    shaping : callable, optional
        Fitness (already turned so that higher is better) to utilities, both of shape (pop,); None takes the
        strategy's own: `centred_ranks` unless it says otherwise.
    optimizer : Rule, optional
        The update rule, for strategies that follow a gradient; None takes the strategy's own.
    bounds : pair of floats or arrays, optional
        Lower and upper bound of each element; candidates and theta are clipped to them.
    decay : float
        Pull towards the anchor: decay * (theta - anchor) is taken off the gradient, or off theta itself where
        the strategy follows none.
    anchor : array_like, optional
        Where `decay` pulls to; None is zero.
    seed : int
        Starts the run. Equal seeds give equal bits; different seeds share no noise.
    """

    default_optimizer: Rule = SGD(lr=1.0)
    default_shaping: Shaping = staticmethod(centred_ranks)
    sampler_type: type[Sampler] = Sampler
    mirrored = True  # whether candidates come in pairs of opposite noise
    follows_gradient = True  # whether the optimizer makes the step
    adapts_sigma = False

    def __init__(
        self,
        theta: ArrayLike,
        *,
        maximize: bool,
        pop: int,
        sigma: float | ArrayLike | Callable[[int], float],
        noise: Noise = _GAUSSIAN,
        shaping: Shaping | None = None,
        optimizer: Rule | None = None,
        bounds: tuple[ArrayLike, ArrayLike] | None = None,
        decay: float = 0.0,
        anchor: ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        self._theta = checked_theta(theta)
        self._maximize = checked_maximize(maximize)
        self._pop = checked_pop(pop)
        self._schedule = checked_schedule(sigma, self)
        self._sigma = checked_sigma(sigma(0) if callable(sigma) else sigma, self._theta)
        self._bounds = None if bounds is None else checked_bounds(bounds, self._theta)
        self._anchor = None if anchor is None else np.array(anchor, self._theta.dtype)
        self._key = fold(np.uint64(0), operator.index(seed))
        self._generation = 0
        self._failures = 0
        self._best: NDArray[Any] | None = None
        self._best_fitness: float | None = None
        self._held: NDArray[Any] | None = None
        self._memory: dict[str, NDArray[Any]] = {}
        self.noise = checked_noise(noise, self)
        self.shaping = self.default_shaping if shaping is None else shaping
        self.decay = decay
        self.optimizer = self.default_optimizer if optimizer is None else checked_optimizer(optimizer, self)
        self._stepper = Stepper(self.optimizer, self._theta)
        self._moments = self._stepper.moments if self.follows_gradient else {}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self._theta.size}, maximize={self._maximize}, pop={self._pop}, "
            f"sigma={np.mean(self._sigma):g}, generation={self._generation})"
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
    def sigma(self) -> Any:
        """Standard deviation of the perturbation: a float, or a read-only vector."""
        return read_only(self._sigma) if self._sigma.ndim else float(self._sigma)

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
        population = np.empty(shape, self._theta.dtype) if out is None else checked_out(out, shape, self._theta.dtype)
        self.hold()
        return self.sampler.rows(range(self._pop), population)

    def hold(self) -> None:
        """Keep this generation's noise in memory until `tell`, if it is small: the bits do not change."""
        directions = -(-self._pop // 2) if self.mirrored else self._pop
        small = directions * self._theta.size <= HELD and self._theta.dtype != np.float16
        if self._held is None and small and self.noise.sums_by_row:
            rows = np.empty((directions, self._theta.size), self._theta.dtype)
            self._held = self.noise.rows(self._noise_key, self._generation, 0, rows)

    def write(self, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write candidate `k` into `out`, shape (size,), and return it: `ask()[k]` to the bit."""
        if not 0 <= k < self._pop:
            raise IndexError(f"candidate {k} is not in a population of {self._pop}")
        return self.sampler.write(k, checked_out(out, self._theta.shape, self._theta.dtype))

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
        raw = checked_fitness(fitness, self._pop)
        scores = read_only(raw if self._maximize else -raw)
        failures = 0 if np.any(scores > -np.inf) else self._failures + 1
        if failures >= MAX_FAILURES:
            raise ValueError(
                f"no candidate had a valid fitness in {failures} generations in a row (all were NaN or "
                f"infinitely bad): the evaluation fails, or theta has diverged"
            )
        utilities = checked_utilities(self.shaping(scores), self._pop)
        best, best_fitness = self._better(scores, raw)
        if utilities.any():
            self.update(utilities)
            self._pull()
            self._clip(self._theta)
        self._best, self._best_fitness = best, best_fitness
        self._failures = failures
        self._generation += 1
        self._held = None
        if self._schedule:
            self._sigma = checked_sigma(self._schedule(self._generation), self._theta)

    def update(self, utilities: NDArray[np.float64]) -> None:
        """Move theta by the utilities of this generation: the hook of a new strategy.

        It is not called when all utilities are zero.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define update(utilities)")

    def combine(self, weights: ArrayLike, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the sum over this generation of weight times the candidate's noise, of standard deviation 1.

        The noise is made again where it is not small: no population is held.

        Parameters
        ----------
        weights : array_like, shape (pop,)
        out : ndarray, optional
            A vector of theta's shape and dtype for the result.
        """
        total = np.empty_like(self._theta) if out is None else checked_out(out, self._theta.shape, self._theta.dtype)
        each = self._by_direction(weights, -1)
        if self._held is None:
            return self.noise.combine(self._noise_key, self._generation, each, total)
        total.fill(0)
        add_held_rows(self._held, each, total)
        return total

    def moments(self, weights: ArrayLike, square_weights: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return `combine(weights)`, and the sum of the other weights times the squares of the noise."""
        out = np.zeros_like(self._theta), np.zeros_like(self._theta)
        each = self._by_direction(weights, -1), self._by_direction(square_weights, 1)
        if self._held is not None:
            add_held_rows(self._held, each[0], out[0], each[1], out[1])
            return out
        return self.noise.moments(self._noise_key, self._generation, *each, out)

    def _by_direction(self, weights: ArrayLike, sign: int) -> NDArray[np.float64]:
        """Return a weight a direction; `sign` is what the second of a mirrored pair counts for (S3)."""
        each = np.asarray(weights, np.float64)
        if each.shape != (self._pop,):
            raise ValueError(f"weights have shape {each.shape}; this population needs ({self._pop},)")
        if not self.mirrored:
            return each
        pairs = each[0::2].copy()
        pairs[: self._pop // 2] += sign * each[1::2]
        return pairs

    def state(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all that moves, as arrays; `restore` continues from it to the bit."""
        state = {
            "theta": self._theta.copy(),
            "sigma": self._sigma.copy(),
            "generation": np.array(self._generation, np.int64),
            "failures": np.array(self._failures, np.int64),
            "key": np.array(self._key, np.uint64),
        }
        state |= {f"optimizer.{name}": moment.copy() for name, moment in self._moments.items()}
        state |= {name: array.copy() for name, array in self._memory.items()}
        if self._best is not None:
            state |= {"best": self._best.copy(), "best_fitness": np.array(self._best_fitness, np.float64)}
        return state

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Continue from a `state` of a strategy that was made with the same arguments."""
        check_state(state, self.state(), optional={"best": self._theta, "best_fitness": np.array(0.0)})
        self._take(state)

    def _take(self, state: dict[str, NDArray[Any]]) -> None:
        self._held = None
        np.copyto(self._theta, state["theta"])
        for name, moment in self._moments.items():
            np.copyto(moment, state[f"optimizer.{name}"])
        for name, array in self._memory.items():
            np.copyto(array, state[name])
        self._sigma = state["sigma"].copy()
        self._generation = int(state["generation"])
        self._failures = int(state["failures"])
        self._key = np.uint64(state["key"])
        self._best = state["best"].copy() if "best" in state else None
        self._best_fitness = float(state["best_fitness"]) if "best" in state else None

    @property
    def _noise_key(self) -> np.uint64:
        return fold(self._key, 0)

    @property
    def sampler(self) -> Sampler:
        """What makes the candidates of this generation; valid until the next `tell`."""
        return self.sampler_type(
            noise=self.noise,
            key=self._noise_key,
            generation=self._generation,
            pop=self._pop,
            mirrored=self.mirrored,
            arrays=self._sampled(),
            held=self._held,
        )

    def _sampled(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that the sampler needs."""
        arrays = {"theta": self._theta, "sigma": self._sigma}
        if self._bounds is not None:
            arrays |= {"low": self._bounds[0], "high": self._bounds[1]}
        return arrays

    def _follow(self, gradient: NDArray[Any]) -> None:
        """Step along a gradient, less the decay; frozen elements (sigma 0) stay."""
        if self.decay:
            gradient -= self.decay * self._from_anchor()
        if self._sigma.ndim:
            gradient[self._sigma == 0] = 0
        np.negative(gradient, out=gradient)
        self._stepper.step(self._theta, gradient)

    def _pull(self) -> None:
        """Decay where no gradient carries it."""
        if self.decay and not self.follows_gradient:
            self._theta -= self.decay * self._from_anchor()

    def _from_anchor(self) -> NDArray[Any]:
        return self._theta if self._anchor is None else self._theta - self._anchor

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
