"""Update rules over a flat vector: frozen values, with their state beside them in a dict of arrays.

(a) A rule never changes its own attributes; all that moves is in `state`, so a checkpoint is arrays.
(b) `step` is a pure expression of arrays, with no branch on a value; `out` is filled at the end, once every
    result is there, and may therefore name the inputs.
(c) The vector keeps its dtype whatever the dtype of the rate, of the gradient or of a schedule's result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["SGD", "Adam", "ClipUp", "Rule"]

State = dict[str, NDArray[Any]]
Step = tuple[NDArray[Any], State]
Rate = float | NDArray[Any] | Callable[[NDArray[Any]], ArrayLike]


class Rule(Protocol):
    """What every update rule offers."""

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step."""
        ...

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and the next state."""
        ...


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum if asked for.

    Parameters
    ----------
    lr : float, array or callable
        The rate: a number, a vector with a rate an element (`layout.fill`), or a schedule, called with the
        number of steps taken so far (a 0-d integer array).
    momentum : float
        The share of the velocity that is kept: velocity = momentum * velocity + gradient.
    nesterov : bool
        Look ahead: step along gradient + momentum * velocity.

    References
    ----------
    Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning",
    2013.

    Examples
    --------
    >>> rule = SGD(lr=0.5)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat, state
    (array([0., 0.]), {'step': array(1)})
    """

    lr: Rate
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check_decay_rate("momentum", self.momentum)
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum > 0; got momentum=0")

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: the count, and the velocity if there is momentum."""
        if self.momentum == 0:
            return {"step": np.zeros((), np.int64)}
        return {"step": np.zeros((), np.int64), "velocity": np.zeros_like(flat)}

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        direction = grad = _like(grad, flat)
        new = {"step": _next(state)}
        if self.momentum != 0:
            direction = new["velocity"] = self.momentum * state["velocity"] + grad
        if self.nesterov:
            direction = grad + self.momentum * direction
        return _deliver(_descend(flat, self.lr, state, direction), new, out)


@dataclass(frozen=True)
class Adam:
    """Adam: a rate an element, from running means of the gradient and of its square.

    Parameters
    ----------
    lr : float, array or callable
        As in `SGD`.
    beta1, beta2 : float
        The share of the running mean of the gradient, and of its square, that is kept a step.
    eps : float
        Added to the root of the mean square.

    References
    ----------
    Kingma, Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1.

    Examples
    --------
    >>> rule = Adam(lr=0.1)
    >>> flat = np.array([1.0, -2.0], np.float32)
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat
    array([ 0.9, -1.9], dtype=float32)
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        _check_decay_rate("beta1", self.beta1)
        _check_decay_rate("beta2", self.beta2)

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: the count and both running means, all zero."""
        return {"step": np.zeros((), np.int64), "mean": np.zeros_like(flat), "square": np.zeros_like(flat)}

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        grad = _like(grad, flat)
        count = _next(state)
        mean = self.beta1 * state["mean"] + (1 - self.beta1) * grad
        square = self.beta2 * state["square"] + (1 - self.beta2) * np.square(grad)
        unbiased_mean = mean / (1 - self.beta1**count).astype(flat.dtype)
        unbiased_square = square / (1 - self.beta2**count).astype(flat.dtype)
        direction = unbiased_mean / (np.sqrt(unbiased_square) + self.eps)
        new = {"step": count, "mean": mean, "square": square}
        return _deliver(_descend(flat, self.lr, state, direction), new, out)


@dataclass(frozen=True)
class ClipUp:
    """ClipUp: steps of the gradient's direction alone, with momentum and a limit of speed.

    Parameters
    ----------
    lr : float or callable
        The length of what a gradient adds to the velocity; or a schedule, as in `SGD`.
    max_speed : float, optional
        The greatest length of a step; None is twice the rate.
    momentum : float
        The share of the velocity that is kept.

    References
    ----------
    Toklu, Liskowski, Srivastava, "ClipUp: a simple and powerful optimizer for distribution-based policy
    evolution", 2020.

    Examples
    --------
    >>> rule = ClipUp(lr=0.5)
    >>> flat = np.array([3.0, -4.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat
    array([ 2.7, -3.6])
    """

    lr: float | Callable[[NDArray[Any]], ArrayLike]
    max_speed: float | None = None
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _check_decay_rate("momentum", self.momentum)
        if self.max_speed is not None and not self.max_speed > 0:
            raise ValueError(f"max_speed must be above 0; got {self.max_speed}")

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: the count, and a velocity of zero."""
        return {"step": np.zeros((), np.int64), "velocity": np.zeros_like(flat)}

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        rate = np.asarray(self.lr(state["step"]) if callable(self.lr) else self.lr, np.float64)
        limit = 2 * rate if self.max_speed is None else self.max_speed
        push = _scaled(_like(grad, flat), lambda length: rate / length)
        velocity = self.momentum * state["velocity"] + push
        velocity = _scaled(velocity, lambda length: np.minimum(1.0, limit / length))
        new = {"step": _next(state), "velocity": velocity}
        return _deliver(flat - velocity, new, out)


def _scaled(vector: NDArray[Any], scale: Callable[[Any], Any]) -> NDArray[Any]:
    """Return the vector times a function of its length, in its dtype; zeros stay zeros."""
    length = np.sqrt(np.sum(np.square(vector, dtype=np.float64)))
    return np.multiply(vector, scale(np.where(length > 0, length, 1.0)), dtype=vector.dtype)


def _check_decay_rate(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1; got {value}")


def _like(grad: NDArray[Any], flat: NDArray[Any]) -> NDArray[Any]:
    """Return the gradient in the vector's dtype, once both are known to fit."""
    if flat.dtype.kind != "f":
        raise TypeError(f"flat must be of a floating dtype; got {flat.dtype}")
    if grad.shape != flat.shape:
        raise ValueError(f"grad has shape {grad.shape}; flat has shape {flat.shape}")
    return grad if grad.dtype == flat.dtype else grad.astype(flat.dtype, casting="same_kind")


def _next(state: State) -> NDArray[Any]:
    """Return the count of steps after this one, as a 0-d array."""
    return np.add(state["step"], 1)[...]


def _descend(flat: NDArray[Any], lr: Rate, state: State, direction: NDArray[Any]) -> NDArray[Any]:
    """Return flat - rate * direction in the vector's dtype (c)."""
    rate = lr(state["step"]) if callable(lr) else lr
    if np.shape(rate) not in ((), flat.shape):
        raise ValueError(f"lr has shape {np.shape(rate)}; it must be a number or like flat, {flat.shape}")
    return flat - np.multiply(rate, direction, dtype=flat.dtype)


def _deliver(flat: NDArray[Any], state: State, out: Step | None) -> Step:
    """Return the results, or copy them into `out` (b)."""
    if out is None:
        return flat, state
    target, held = out
    _check_out(target, flat, "flat")
    if held.keys() != state.keys():
        raise ValueError(f"the state in out has the keys {sorted(held)}; this rule's are {sorted(state)}")
    for name, value in state.items():
        _check_out(held[name], value, name)
    np.copyto(target, flat)
    for name, value in state.items():
        np.copyto(held[name], value)
    return out


def _check_out(target: NDArray[Any], value: NDArray[Any], name: str) -> None:
    if target.shape != value.shape or target.dtype != value.dtype:
        raise ValueError(
            f"out: {name} is {target.dtype} of shape {target.shape}; "
            f"it must be {value.dtype} of shape {value.shape}"
        )
    if not target.flags.writeable:
        raise ValueError(f"out: {name} is read-only")
