"""Forward: a fitness of what all candidates' models give for an input; low-rank noise shares the large products.

A candidate's matrix is W + c * A @ B.T, so that x @ (W + c * A @ B.T) = x @ W + c * (x @ A) @ B.T: one product with W
serves the whole population, and what is left is thin.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat.compile import compile
from nnflat.es.lowrank import LowRank
from nnflat.es.policy import dense_layers, population_forward
from nnflat.es.sampler import Sampler
from nnflat.layout import Layout

__all__ = ["Forward"]

Apply = Callable[[NDArray[Any]], NDArray[Any]]


class Forward:
    """Evaluate many candidates by their models' outputs: `fn(forward, key)` gives a fitness a candidate.

    `forward(x)` takes an input (batch, n_in) that all share and returns (candidates, batch, n_out). With
    `LowRank` noise and a chain of Dense layers the candidates are never made: all share the product with each
    matrix. Otherwise they are, and each has its own; then the bits are those of the models, while shared products
    round otherwise. The functions are compiled.

    Parameters
    ----------
    model : callable
        A model of the candidates' structure; its own parameters are not used.
    layout : Layout
        The model's, with parameters of one dtype.
    fn : callable
        `fn(forward, key)`, a fitness a candidate.

    References
    ----------
    Sarkar and others, "Evolution strategies at the hyperscale" (EGGROLL), arXiv 2511.16652, 2025.

    Examples
    --------
    >>> from nnflat import destructure, es, nn
    >>> model = nn.Chain(nn.Dense(3, 8, "tanh", rng=np.random.default_rng(0)), nn.Dense(8, 1))
    >>> theta, layout = destructure(model)
    >>> x = np.linspace(-1, 1, 30).reshape(10, 3)
    >>> def error(forward, key):
    ...     return np.mean((forward(x)[..., 0] - x.sum(axis=1)) ** 2, axis=1)
    >>> strategy = es.OpenAIES(theta, maximize=False, pop=8, sigma=0.1, noise=es.LowRank(layout))
    >>> es.evaluate(strategy, es.Forward(model, layout, error)).shape
    (8,)
    """

    def __init__(self, model: Any, layout: Layout, fn: Callable[[Apply, np.uint64], ArrayLike]) -> None:
        if len(set(layout.dtypes)) > 1:
            raise TypeError(f"a population needs parameters of one dtype; got {sorted(map(str, layout.dtypes))}")
        self.model, self.layout, self.fn = model, layout, fn
        self._layers = dense_layers(model, layout)
        self._each = compile(_each_of(model, layout))
        self._shared = None if self._layers is None else compile(_shared_by(self._layers, layout))

    def __reduce__(self) -> tuple[Any, ...]:
        return Forward, (self.model, self.layout, self.fn)

    def __call__(self, population: NDArray[Any], key: np.uint64) -> NDArray[Any]:
        """Return the fitness of candidates that are given."""
        rows = np.ascontiguousarray(population, self.layout.dtype)
        return np.asarray(self.fn(lambda x: self._each(rows, np.asarray(x)), key))

    def sample(self, sampler: Sampler, members: range, key: np.uint64) -> NDArray[Any]:
        """Return the fitness of these candidates of a generation."""
        if not self._can_share(sampler):
            theta = sampler.arrays["theta"]
            return self(sampler.rows(members, np.empty((len(members), theta.size), theta.dtype)), key)
        noise: Any = sampler.noise
        sides = np.array([sampler.side(k) for k in members])
        first, last = int(sides[0, 0]), int(sides[-1, 0])
        factors = noise.factors(sampler.key, sampler.generation, range(first, last + 1), self.layout.dtype)
        parts = noise.split(factors[sides[:, 0] - first])
        scales = (sides[:, 1] * float(sampler.arrays["sigma"])).astype(self.layout.dtype)[:, None, None]
        theta = np.ascontiguousarray(sampler.arrays["theta"], self.layout.dtype)
        shared: Any = self._shared
        return np.asarray(self.fn(lambda x: shared(theta, parts, scales, np.asarray(x)), key))

    def _can_share(self, sampler: Sampler) -> bool:
        """Return whether candidates are theta + a number * low-rank noise of this layout, and nothing else."""
        plain = type(sampler).stretch is Sampler.stretch and type(sampler).centre is Sampler.centre
        plain = plain and "low" not in sampler.arrays and sampler.arrays["sigma"].ndim == 0
        low_rank = isinstance(sampler.noise, LowRank) and sampler.noise.layout == self.layout
        return bool(self._layers and plain and low_rank and self.layout.dtype != np.float16)


def _each_of(model: Any, layout: Layout) -> Callable[..., Any]:
    """Return the function (population, x) -> outputs in which each candidate has its own products."""
    forward = population_forward(model, layout)

    def each(population: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        return forward(population, np.broadcast_to(x, (len(population), *x.shape)))

    return each


def _shared_by(layers: list[Any], layout: Layout) -> Callable[..., Any]:
    """Return the function (theta, parts of the noise, scales, x) -> outputs in which all share each matrix."""

    def shared(theta: NDArray[Any], parts: dict[int, Any], scales: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        leaves = layout.leaves(theta)
        x = x.astype(theta.dtype)
        for weight, bias, activation in layers:
            left, right = parts[layout[weight].start]
            (moved,) = parts[layout[bias].start]
            thin = (x @ left) @ right.transpose(0, 2, 1) * (scales / left.shape[2] ** 0.5)
            x = activation(_product(x, leaves[weight]) + leaves[bias] + thin + scales * moved[:, None, :])
        return x

    return shared


def _product(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    """Return x @ weight as one product, however many axes x has."""
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[1])
