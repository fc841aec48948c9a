"""Update rules over a flat vector: frozen values, with their state beside them in a dict of arrays.

(a) A rule never changes its own attributes; all that moves is in `state`, so a checkpoint is arrays.
(b) `step` is a pure expression of arrays, with no branch on a value; `out` is filled at the end, once every
    result is there, and may therefore name the inputs.
(c) The vector keeps its dtype whatever the dtype of the rate, of the gradient or of a schedule's result.
(d) A rule is traced as any function: `nf.compile(rule.step)(flat, grad, state, out=(flat, state))` is one pass over
    memory, in place.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


class Descent:
    """What most rules share: a direction to go down along, `lr` times. Subclasses give `moments` and `direction`.

    `moments` names the arrays of the state, besides the count of steps; each starts at zero. `direction(flat, grad,
    state, count)` gives the direction and the new moments, `count` being the number of this step, from 1.
    """

    lr: Rate
    moments: ClassVar[tuple[str, ...]] = ()

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: the count of steps, and moments of zero."""
        return {"step": np.zeros((), np.int64), **{name: np.zeros_like(flat) for name in self.moments}}

    def direction(self, flat: NDArray[Any], grad: NDArray[Any], state: State,
                  count: NDArray[Any]) -> tuple[NDArray[Any], State]:
        raise NotImplementedError

    def move(self, flat: NDArray[Any], grad: NDArray[Any], state: State,
             count: NDArray[Any]) -> tuple[NDArray[Any], State]:
        """Return what is taken off the vector, and the new moments."""
        direction, moments = self.direction(flat, grad, state, count)
        return rate_of(self.lr, state, flat) * direction, moments

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        grad, count = like(grad, flat), following(state)
        move, moments = self.move(flat, grad, state, count)
        return deliver(flat - move, {"step": count, **moments}, out)


def check_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1; got {value}")


def like(grad: NDArray[Any], flat: NDArray[Any]) -> NDArray[Any]:
    """Return the gradient in the vector's dtype, once both are known to fit."""
    if flat.dtype.kind != "f":
        raise TypeError(f"flat must be of a floating dtype; got {flat.dtype}")
    if grad.shape != flat.shape:
        raise ValueError(f"grad has shape {grad.shape}; flat has shape {flat.shape}")
    return grad if grad.dtype == flat.dtype else grad.astype(flat.dtype, casting="same_kind")


def following(state: State) -> NDArray[Any]:
    """Return the count of steps after this one, as a 0-d array."""
    return np.add(state["step"], 1)[...]


def rate_of(lr: Rate, state: State, flat: NDArray[Any]) -> Any:
    """Return the rate of this step: a number, or an array of the vector's dtype (c)."""
    rate = lr(state["step"]) if callable(lr) else lr
    if np.shape(rate) not in ((), flat.shape):
        raise ValueError(f"lr has shape {np.shape(rate)}; it must be a number or like flat, {flat.shape}")
    if type(rate) in (int, float):
        return rate
    return rate.astype(flat.dtype) if isinstance(rate, np.ndarray | np.generic) else np.asarray(rate, flat.dtype)


def deliver(flat: NDArray[Any], state: State, out: Step | None) -> Step:
    """Return the results, or copy them into `out` (b)."""
    if out is None:
        return flat, state
    target, held = out
    check_out(target, flat, "flat")
    if held.keys() != state.keys():
        raise ValueError(f"the state in out has the keys {sorted(held)}; this rule's are {sorted(state)}")
    for name, value in state.items():
        check_out(held[name], value, name)
    np.copyto(target, flat)
    for name, value in state.items():
        np.copyto(held[name], value)
    return out


def check_out(target: NDArray[Any], value: NDArray[Any], name: str) -> None:
    if target.shape != value.shape or target.dtype != value.dtype:
        raise ValueError(
            f"out: {name} is {target.dtype} of shape {target.shape}; "
            f"it must be {value.dtype} of shape {value.shape}"
        )
    if not target.flags.writeable:
        raise ValueError(f"out: {name} is read-only")
