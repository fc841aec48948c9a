"""What is done to a gradient before a rule sees it."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnflat.optim.rule import Rule, State, Step, like


class Transform(Protocol):
    """A function of (flat, grad) to another gradient."""

    def __call__(self, flat: NDArray[Any], grad: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient that the rule is to see."""
        ...


@dataclass(frozen=True)
class clip_value:
    """Limit each element of the gradient to [-limit, limit].

    >>> clip_value(1.0)(np.zeros(2), np.array([0.5, -3.0]))
    array([ 0.5, -1. ])
    """

    limit: float

    def __post_init__(self) -> None:
        check_limit(self.limit)

    def __call__(self, flat: NDArray[Any], grad: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient, limited."""
        return np.clip(grad, -self.limit, self.limit)


@dataclass(frozen=True)
class clip_norm:
    """Shorten the gradient to a norm of at most `limit`.

    >>> clip_norm(1.0)(np.zeros(2), np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    limit: float

    def __post_init__(self) -> None:
        check_limit(self.limit)

    def __call__(self, flat: NDArray[Any], grad: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient, shortened."""
        return grad * (self.limit / np.maximum(np.linalg.norm(grad), self.limit)).astype(grad.dtype)


@dataclass(frozen=True, eq=False)
class weight_decay:
    """Add `rate` times the vector to the gradient, where `mask` is true (everywhere without one).

    >>> weight_decay(0.1, mask=np.array([True, False]))(np.ones(2), np.zeros(2))
    array([0.1, 0. ])
    """

    rate: float
    mask: Any = None

    def __call__(self, flat: NDArray[Any], grad: NDArray[Any]) -> NDArray[Any]:
        """Return the gradient with that of a penalty of `rate / 2` times the squares."""
        if self.mask is None:
            return grad + self.rate * flat
        return grad + (self.rate * np.asarray(self.mask)).astype(flat.dtype) * flat


def check_limit(limit: float) -> None:
    if not limit > 0:
        raise ValueError(f"the limit must be above 0; got {limit}")


@dataclass(frozen=True)
class Chain:
    """Transforms of the gradient, one after the other, and then a rule."""

    transforms: tuple[Transform, ...]
    rule: Rule

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state of the rule before the first step."""
        return self.rule.init(flat)

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        grad = like(grad, flat)
        for transform in self.transforms:
            grad = transform(flat, grad)
        return self.rule.step(flat, grad, state, out=out)


def chain(*parts: Any) -> Chain:
    """Return the rule that does transforms to the gradient, in this order, and then the rule that is last.

    >>> from nnflat.optim import SGD
    >>> rule = chain(clip_norm(1.0), SGD(0.5))
    >>> rule.step(np.zeros(2), np.array([3.0, 4.0]), rule.init(np.zeros(2)))[0]
    array([-0.3, -0.4])
    """
    if not parts or not hasattr(parts[-1], "step") or any(not callable(part) for part in parts[:-1]):
        raise TypeError("chain needs transforms of the gradient, then one rule")
    return Chain(tuple(parts[:-1]), parts[-1])
