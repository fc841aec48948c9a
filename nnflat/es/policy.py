"""Policies: what an environment needs of a model, and a whole population of models in batched products."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat import nn
from nnflat.compile import compile
from nnflat.context import TraceError
from nnflat.es.defaults import HIDDEN
from nnflat.es.lanes import make_lanes
from nnflat.layout import Layout
from nnflat.repeat import vmap
from nnflat.tree import format_path

__all__ = [
    "PopulationPolicy",
    "check_policy",
    "dense_layers",
    "input_size",
    "output_size",
    "policy_for",
    "population_forward",
    "to_actions",
]

HEAD_SCALE = 0.01  # undecided at first: else all of a generation may play one and the same action

Forward = Callable[[NDArray[Any]], NDArray[Any]]


def policy_for(
    env_id: str, *, hidden: Sequence[int] = HIDDEN, rng: np.random.Generator | None = None
) -> nn.Chain:
    """Return a policy for an environment: Dense layers with tanh, and a plain one for the actions.

    Parameters
    ----------
    env_id : str
        A gymnasium environment with a 1-D Box of observations and Discrete, MultiDiscrete or Box actions.
    hidden : sequence of int
        The sizes of the hidden layers.
    rng : numpy.random.Generator, optional
        Draws the initial weights.

    Examples
    --------
    >>> policy_for("CartPole-v1")
    Chain(Dense(4, 32, tanh), Dense(32, 2))
    """
    lanes = make_lanes(env_id, 1)
    sizes = [input_size(lanes.observation_space, env_id), *hidden]
    n_out = output_size(lanes.action_space, env_id)
    lanes.close()
    body = [nn.Dense(n, m, "tanh", rng=rng) for n, m in pairwise(sizes)]
    head = nn.Dense(sizes[-1], n_out, rng=rng)
    head.weight[...] *= HEAD_SCALE
    return nn.Chain(*body, head)


def input_size(space: Any, env_id: str) -> int:
    """Return the number of inputs that a policy needs for a space of observations."""
    if type(space).__name__ == "Box" and len(space.shape) == 1:
        return space.shape[0]
    raise ValueError(f"{env_id} has observations {space}; a policy needs a Box of one dimension")


def output_size(space: Any, env_id: str) -> int:
    """Return the number of outputs that a policy needs for a space of actions."""
    match type(space).__name__:
        case "Discrete":
            return int(space.n)
        case "MultiDiscrete" if space.nvec.ndim == 1:
            return int(space.nvec.sum())
        case "Box" if space.dtype.kind == "f":
            return int(np.prod(space.shape))
    raise ValueError(
        f"{env_id} has actions {space}; a policy needs Discrete, MultiDiscrete of one dimension, or a Box of floats"
    )


def check_policy(model: Any, lanes: Any, env_id: str) -> None:
    """Raise unless the model gives what the environment needs for an action."""
    n_in = input_size(lanes.observation_space, env_id)
    n_out = output_size(lanes.action_space, env_id)
    x = np.zeros((1, n_in), np.float32)
    given = np.shape(model(x, model.start(1))[0] if hasattr(model, "start") else model(x))
    if given != (1, n_out):
        raise ValueError(
            f"{env_id} needs {n_out} outputs for {lanes.action_space}; the model gives an output of "
            f"shape {given} for an input of shape (1, {n_in})"
        )


def to_actions(space: Any, outputs: NDArray[Any]) -> NDArray[Any]:
    """Turn the outputs of a policy, (lanes, n), into actions.

    Discrete: the largest output; MultiDiscrete: the largest of each group. Box: tanh, scaled to [low, high],
    where both bounds are finite; elsewhere the output itself, clipped.
    """
    if type(space).__name__ == "Discrete":
        return space.start + np.argmax(outputs, axis=1)
    if type(space).__name__ == "MultiDiscrete":
        groups = np.split(outputs, np.cumsum(space.nvec)[:-1], axis=1)
        largest = np.stack([group.argmax(axis=1) for group in groups], axis=1)
        return (space.start + largest).astype(space.dtype, copy=False)
    raw = outputs.reshape(-1, *space.shape).astype(space.dtype, copy=False)
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(bounded, space.low, -1), np.where(bounded, space.high, 1)
    squashed = low + (np.tanh(raw) + 1) * ((high - low) / 2)
    return np.clip(np.where(bounded, squashed, raw), space.low, space.high).astype(space.dtype, copy=False)


def population_forward(model: Any, layout: Layout) -> Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]:
    """Return the function (population, x) -> outputs that applies row k's model to x[k], for tapes to record.

    x has the shape (pop, batch, n_in). Chains of Dense layers take batched products over views of the population,
    other models `vmap`. A candidate's outputs do not depend on the others.
    """
    layers = dense_layers(model, layout)
    if layers is None or len(set(layout.dtypes)) > 1:
        return vmap(layout.lift(nn.call), (0, 0))

    def forward(population: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        leaves, x = layout.leaves(population), x.astype(layout.dtype)
        for weight, bias, activation in layers:
            x = activation(x @ leaves[weight] + leaves[bias][:, None, :])
        return x

    return forward


class PopulationPolicy:
    """What the models of a population do: compiled, where a tape can record the model, else one by one.

    A recurrent model's states go on from call to call; it is never compiled.
    """

    def __init__(self, model: Any, layout: Layout, space: Any) -> None:
        self._made_of = model, layout, space
        self._layout, self._space = layout, space
        self._recurrent = hasattr(model, "start")
        self._traceable = not self._recurrent and len(set(layout.dtypes)) == 1
        forward = population_forward(model, layout)

        def act(population: NDArray[Any], observations: NDArray[Any]) -> NDArray[Any]:
            outputs = forward(population, observations.reshape(len(population), -1, observations.shape[1]))
            return to_actions(space, outputs.reshape(len(observations), -1))

        self._act = compile(act)

    def __reduce__(self) -> tuple[Any, ...]:
        return PopulationPolicy, self._made_of

    def of(self, population: NDArray[Any], episodes: int) -> Forward:
        """Return the function of observations, (pop * episodes, n), that gives the actions of this population."""
        rows = np.ascontiguousarray(population, self._layout.dtype)
        plain: list[Forward] = []  # made when it is needed

        def act(observations: NDArray[Any]) -> NDArray[Any]:
            if self._traceable:
                try:
                    return self._act(rows, observations)
                except TraceError:
                    self._traceable = False
            if not plain:
                models = [self._layout.restructure(theta) for theta in population]
                plain.append(_recurrent(models, episodes) if self._recurrent else _one_by_one(models))
            outputs = plain[0](observations.reshape(len(population), episodes, -1))
            return to_actions(self._space, outputs.reshape(len(observations), -1))

        return act


def _one_by_one(models: list[Any]) -> Forward:
    return lambda x: np.stack([model(row) for model, row in zip(models, x, strict=True)])


def _recurrent(models: list[Any], episodes: int) -> Forward:
    states = [model.start(episodes) for model in models]

    def forward(x: NDArray[Any]) -> NDArray[Any]:
        outputs = []
        for k, model in enumerate(models):
            output, states[k] = model(x[k], states[k])
            outputs.append(output)
        return np.stack(outputs)

    return forward


def dense_layers(model: Any, layout: Layout) -> list[tuple[str, str, Forward]] | None:
    """Return (name of the weight, name of the bias, activation) a layer; None if this is not all there is."""
    found = []
    for prefix, layer in _layers(model, ()):
        weight, bias = (format_path((*prefix, name)) for name in ("weight", "bias"))
        if type(layer) is not nn.Dense or weight not in layout or bias not in layout:
            return None
        found.append((weight, bias, layer.activation))
    return found or None


def _layers(model: Any, prefix: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], Any]]:
    """Return (path, layer) for every layer of nested Chains, in order."""
    if type(model) is not nn.Chain:
        return [(prefix, model)]
    return [pair for i, layer in enumerate(model.layers) for pair in _layers(layer, (*prefix, "layers", i))]
