"""Rules that look at the flat vector leaf by leaf: they take the layout."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnflat.layout import Layout
from nnflat.optim.adaptive import Adam
from nnflat.optim.rule import Descent, Rate, Rule, State, Step, check_share, deliver, following, like, rate_of

QUINTIC = (3.4445, -4.7750, 2.0315)


def by_leaf(layout: Layout, fn: Callable[..., Any], *flats: NDArray[Any]) -> NDArray[Any]:
    """Return a flat vector made of `fn(slot, *pieces)` of each leaf."""
    bounds = layout.offsets.tolist()
    return np.concatenate([fn(slot, *[flat[start:stop] for flat in flats])
                           for slot, (start, stop) in enumerate(itertools.pairwise(bounds))])


def check_layout(layout: Layout, flat: NDArray[Any]) -> None:
    if flat.shape != (layout.size,):
        raise ValueError(f"the layout is of {layout.size} elements; flat has shape {flat.shape}")


@dataclass(frozen=True)
class LAMB(Descent):
    """Adam with a trust ratio a leaf: each leaf moves in proportion to its own norm.

    Parameters
    ----------
    lr, beta1, beta2, eps
        As in `Adam`.
    layout : Layout
        Of the flat vector.
    decay : float
        Weight decay, inside the trust ratio.

    References
    ----------
    You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2020.

    Examples
    --------
    >>> layout = Layout.of([np.zeros(2), np.zeros(1)])
    >>> rule = LAMB(0.1, layout)
    >>> flat = np.array([3.0, 4.0, 1.0])
    >>> rule.step(flat, np.ones(3), rule.init(flat))[0].round(4)
    array([2.6464, 3.6464, 0.9   ])
    """

    lr: Rate
    layout: Layout
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    decay: float = 0.0
    moments: ClassVar[tuple[str, ...]] = ("mean", "square")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat: NDArray[Any], grad: NDArray[Any], state: State,
                  count: NDArray[Any]) -> tuple[NDArray[Any], State]:
        """Return Adam's direction, each leaf scaled to its norm."""
        check_layout(self.layout, flat)
        direction, moments = Adam(self.lr, self.beta1, self.beta2, self.eps).direction(flat, grad, state, count)
        return by_leaf(self.layout, trusted, flat, direction + self.decay * flat), moments


def trusted(slot: int, weights: NDArray[Any], direction: NDArray[Any]) -> NDArray[Any]:
    """Return the direction with the norm of the weights, unless one of the two is 0."""
    length, norm = np.linalg.norm(weights), np.linalg.norm(direction)
    known = (length > 0) & (norm > 0)
    return direction * np.where(known, length / np.where(known, norm, 1), 1).astype(direction.dtype)


@dataclass(frozen=True)
class Muon:
    """Momentum whose matrices are made orthogonal; all other leaves are `others`' business.

    Parameters
    ----------
    lr : float, array or callable
        Of the matrices, the leaves with two axes longer than 1.
    layout : Layout
        Of the flat vector.
    momentum : float
    nesterov : bool
    iterations : int
        Newton-Schulz iterations.
    others : Rule
        For the leaves that are no matrices.

    References
    ----------
    Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.

    Examples
    --------
    >>> layout = Layout.of({"weight": np.zeros((2, 2)), "bias": np.zeros(2)})
    >>> rule = Muon(0.1, layout)
    >>> flat = np.zeros(6)
    >>> flat, state = rule.step(flat, np.array([3.0, 0.0, 0.0, 1.0, 1.0, 1.0]), rule.init(flat))
    >>> bool(0.06 < -flat[0] < 0.13 and 0.06 < -flat[3] < 0.13)
    True
    """

    lr: Rate
    layout: Layout
    momentum: float = 0.95
    nesterov: bool = True
    iterations: int = 5
    others: Rule = field(default_factory=Adam)

    def __post_init__(self) -> None:
        check_share("momentum", self.momentum)

    def init(self, flat: NDArray[Any]) -> State:
        """Return the state before the first step: count, velocity, and the state of the other rule."""
        others = {f"others.{name}": value for name, value in self.others.init(flat).items()}
        return {"step": np.zeros((), np.int64), "velocity": np.zeros_like(flat), **others}

    def step(self, flat: NDArray[Any], grad: NDArray[Any], state: State, *, out: Step | None = None) -> Step:
        """Return the next vector and state: copies, or the arrays of `out`, which may name the inputs."""
        check_layout(self.layout, flat)
        grad = like(grad, flat)
        held = {name.removeprefix("others."): value for name, value in state.items() if name.startswith("others.")}
        others, moved = self.others.step(flat, grad, held)
        velocity = self.momentum * state["velocity"] + grad
        ahead = grad + self.momentum * velocity if self.nesterov else velocity
        direction = by_leaf(self.layout, self.leaf, ahead)
        matrices = np.repeat([self.is_matrix(slot) for slot in range(len(self.layout))], np.diff(self.layout.offsets))
        stepped = np.where(matrices, flat - rate_of(self.lr, state, flat) * direction, others)
        new = {"step": following(state), "velocity": velocity}
        return deliver(stepped, new | {f"others.{name}": value for name, value in moved.items()}, out)

    def is_matrix(self, slot: int) -> bool:
        """Return whether a leaf has two axes longer than 1."""
        shape = self.layout.shapes[slot]
        return len(shape) == 2 and 1 not in shape

    def leaf(self, slot: int, ahead: NDArray[Any]) -> NDArray[Any]:
        """Return the direction of one leaf: orthogonal, as large for a tall matrix as for a wide one."""
        if not self.is_matrix(slot):
            return ahead
        rows, columns = self.layout.shapes[slot]
        scale = max(1.0, rows / columns) ** 0.5
        return (scale * orthogonal(ahead.reshape(rows, columns), self.iterations)).reshape(-1)


def orthogonal(matrix: NDArray[Any], iterations: int) -> NDArray[Any]:
    """Return nearly the orthogonal factor of a matrix, by a quintic Newton-Schulz iteration."""
    a, b, c = QUINTIC
    wide = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if wide else matrix
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(iterations):
        square = x @ x.T
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.T if wide else x
