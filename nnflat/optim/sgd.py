"""Gradient descent, with momentum, and with a limit to its speed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.optim.rule import Descent, Rate, State, Step, check_share, deliver, following, like, rate_of


@dataclass(frozen=True)
class SGD(Descent):
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
        check_share("momentum", self.momentum)
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs momentum > 0; got momentum=0")

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: the count, and the velocity if there is momentum."""
        state: State = {"step": np.zeros((), np.int64)}
        return state if self.momentum == 0 else state | {"velocity": np.zeros_like(flat)}

    def direction(self, flat, grad, state, count):
        if self.momentum == 0:
            return grad, {}
        velocity = self.momentum * state["velocity"] + grad
        return grad + self.momentum * velocity if self.nesterov else velocity, {"velocity": velocity}


@dataclass(frozen=True)
class ClipUp:
    """Momentum along the normalised gradient, with a largest speed: for the noisy gradients of evolution.

    Parameters
    ----------
    lr : float, array or callable
        How much of the normalised gradient is added to the velocity.
    max_speed : float
        The largest norm of the velocity: the largest step.
    momentum : float
        The share of the velocity that is kept.

    References
    ----------
    Toklu, Liskowski, Srivastava, "ClipUp: a simple and powerful optimizer for distribution-based policy evolution",
    2020.

    Examples
    --------
    >>> rule = ClipUp(0.1, max_speed=0.05)
    >>> flat = np.array([3.0, 4.0])
    >>> flat, state = rule.step(flat, flat, rule.init(flat))
    >>> flat
    array([2.97, 3.96])
    """

    lr: Rate
    max_speed: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_share("momentum", self.momentum)
        if not self.max_speed > 0:
            raise ValueError(f"max_speed must be above 0; got {self.max_speed}")

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: the count of steps, and no velocity."""
        return {"step": np.zeros((), np.int64), "velocity": np.zeros_like(flat)}

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        grad = like(grad, flat)
        length = np.linalg.norm(grad)
        unit = grad / np.where(length == 0, 1, length).astype(flat.dtype)
        velocity = self.momentum * state["velocity"] + rate_of(self.lr, state, flat) * unit
        speed = np.maximum(np.linalg.norm(velocity), self.max_speed)
        velocity = velocity * (self.max_speed / speed)
        return deliver(flat - velocity, {"step": following(state), "velocity": velocity}, out)
