"""Rules with a rate an element, from running means of the gradient and of its square."""

# The signature of `direction` is that of `Descent`.

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nnflat.optim.rule import Descent, Rate, check_share, rate_of


def running(share: float, mean: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return a running mean: `share` of the old, the rest of the new."""
    return share * mean + (1 - share) * new


def unbiased(share: float, count: NDArray[Any], dtype: np.dtype) -> NDArray[Any]:
    """Return what a running mean that began at 0 is too small by, as a factor of the vector's dtype."""
    return (1 - share**count).astype(dtype)


@dataclass(frozen=True)
class Adam(Descent):
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

    moments: ClassVar[tuple[str, ...]] = ("mean", "square")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        ratio, scale, moments = self.ratio(grad, state, count)
        return scale * ratio, moments

    def move(self, flat, grad, state, count):
        """Return what is taken off the vector, and the new moments; the scale is taken into the rate."""
        ratio, scale, moments = self.ratio(grad, state, count)
        return rate_of(self.lr, state, flat) * scale * ratio, moments

    def ratio(self, grad, state, count):
        """Return the mean over the root, and the number by which it is biased, as at the end of the paper's section 2.

        So the corrections are numbers, and no passes over the vector.
        """
        mean = running(self.beta1, state["mean"], grad)
        square = running(self.beta2, state["square"], np.square(grad))
        bias = np.sqrt(1 - self.beta2**count)
        ratio = mean / (np.sqrt(square) + (self.eps * bias).astype(grad.dtype))
        scale = bias / (1 - self.beta1**count)
        return ratio, scale.astype(grad.dtype), {"mean": mean, "square": square}


@dataclass(frozen=True)
class AdamW(Descent):
    """Adam with weight decay that does not pass through the running means.

    Parameters
    ----------
    lr : float, array or callable
        As in `SGD`.
    beta1, beta2 : float
        The share of the running mean of the gradient, and of its square, that is kept a step.
    eps : float
        Added to the root of the mean square.
    decay : float
        Times the vector, added to the direction: the weights shrink by lr * decay a step.
    mask : array, optional
        Which elements decay, from `layout.fill`; all of them where left out.

    References
    ----------
    Loshchilov, Hutter, "Decoupled weight decay regularization", 2019.

    Examples
    --------
    >>> rule = AdamW(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.899, -1.898])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.01
    mask: Any = None

    moments: ClassVar[tuple[str, ...]] = ("mean", "square")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        adam = Adam(self.lr, self.beta1, self.beta2, self.eps)
        direction, moments = adam.direction(flat, grad, state, count)
        decay = self.decay if self.mask is None else (self.decay * np.asarray(self.mask)).astype(flat.dtype)
        return direction + decay * flat, moments


@dataclass(frozen=True)
class AMSGrad(Descent):
    """Adam by the largest mean square so far.

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
    Reddi, Kale, Kumar, "On the convergence of Adam and beyond", 2018.

    Examples
    --------
    >>> rule = AMSGrad(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.9, -1.9])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    moments: ClassVar[tuple[str, ...]] = ("mean", "square", "largest")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        mean = running(self.beta1, state["mean"], grad)
        square = running(self.beta2, state["square"], np.square(grad))
        largest = np.maximum(state["largest"], square)
        root = np.sqrt(largest / unbiased(self.beta2, count, flat.dtype)) + self.eps
        direction = mean / unbiased(self.beta1, count, flat.dtype) / root
        return direction, {"mean": mean, "square": square, "largest": largest}


@dataclass(frozen=True)
class NAdam(Descent):
    """Adam that looks ahead, as Nesterov's momentum does.

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
    Dozat, "Incorporating Nesterov momentum into Adam", 2016.

    Examples
    --------
    >>> rule = NAdam(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.8526, -1.8526])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    moments: ClassVar[tuple[str, ...]] = ("mean", "square")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        mean = running(self.beta1, state["mean"], grad)
        square = running(self.beta2, state["square"], np.square(grad))
        ahead = self.beta1 * mean / unbiased(self.beta1, count + 1, flat.dtype)
        ahead = ahead + (1 - self.beta1) * grad / unbiased(self.beta1, count, flat.dtype)
        root = np.sqrt(square / unbiased(self.beta2, count, flat.dtype)) + self.eps
        return ahead / root, {"mean": mean, "square": square}


@dataclass(frozen=True)
class RAdam(Descent):
    """Adam that is momentum until the mean square can be trusted.

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
    Liu et al., "On the variance of the adaptive learning rate and beyond", 2020.

    Examples
    --------
    >>> rule = RAdam(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.8, -1.6])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    moments: ClassVar[tuple[str, ...]] = ("mean", "square")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        mean = running(self.beta1, state["mean"], grad)
        square = running(self.beta2, state["square"], np.square(grad))
        final = 2 / (1 - self.beta2) - 1
        length = final - 2 * count * self.beta2**count / (1 - self.beta2**count)
        known = np.maximum(length, 5.0)
        factor = (known - 4) * (known - 2) * final / ((final - 4) * (final - 2) * known) * (1 - self.beta2**count)
        unit = mean / unbiased(self.beta1, count, flat.dtype)
        scaled = unit * np.sqrt(factor).astype(flat.dtype) / (np.sqrt(square) + self.eps)
        return np.where(length > 5, scaled, unit), {"mean": mean, "square": square}


@dataclass(frozen=True)
class AdaMax(Descent):
    """Adam by the largest gradient so far, which is forgotten slowly.

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
    Kingma, Ba, "Adam: a method for stochastic optimization", 2015, algorithm 2.

    Examples
    --------
    >>> rule = AdaMax(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.9, -1.9])
    """

    lr: Rate = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    moments: ClassVar[tuple[str, ...]] = ("mean", "largest")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        mean = running(self.beta1, state["mean"], grad)
        largest = np.maximum(self.beta2 * state["largest"], np.abs(grad) + self.eps)
        return mean / (unbiased(self.beta1, count, flat.dtype) * largest), {"mean": mean, "largest": largest}


@dataclass(frozen=True)
class AdaBelief(Descent):
    """Adam by how far the gradient is from what its running mean foretold.

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
    Zhuang et al., "AdaBelief optimizer", 2020.

    Examples
    --------
    >>> rule = AdaBelief(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.8889, -1.8889])
    """

    lr: Rate = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-16

    moments: ClassVar[tuple[str, ...]] = ("mean", "surprise")

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        mean = running(self.beta1, state["mean"], grad)
        surprise = running(self.beta2, state["surprise"], np.square(grad - mean)) + self.eps
        root = np.sqrt(surprise / unbiased(self.beta2, count, flat.dtype)) + self.eps
        return mean / unbiased(self.beta1, count, flat.dtype) / root, {"mean": mean, "surprise": surprise}


@dataclass(frozen=True)
class RMSProp(Descent):
    """A rate an element, from a running mean of the squared gradient.

    Parameters
    ----------
    lr : float, array or callable
        As in `SGD`.
    beta : float
        The share of the mean square that is kept a step.
    eps : float
        Added to its root.
    momentum : float
        The share of the velocity that is kept.

    References
    ----------
    Tieleman, Hinton, "Lecture 6.5: rmsprop", 2012.

    Examples
    --------
    >>> rule = RMSProp(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0., -1.])
    """

    lr: Rate = 1e-2
    beta: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0

    moments: ClassVar[tuple[str, ...]] = ("square", "velocity")

    def __post_init__(self) -> None:
        check_share("beta", self.beta)
        check_share("momentum", self.momentum)

    def direction(self, flat, grad, state, count):
        square = running(self.beta, state["square"], np.square(grad))
        velocity = self.momentum * state["velocity"] + grad / (np.sqrt(square) + self.eps)
        return velocity, {"square": square, "velocity": velocity}


@dataclass(frozen=True)
class AdaGrad(Descent):
    """A rate an element, from the sum of all squared gradients.

    References
    ----------
    Duchi, Hazan, Singer, "Adaptive subgradient methods", 2011.

    Examples
    --------
    >>> rule = AdaGrad(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.9, -1.9])
    """

    lr: Rate = 1e-2
    eps: float = 1e-10

    moments: ClassVar[tuple[str, ...]] = ("total",)

    def direction(self, flat, grad, state, count):
        total = state["total"] + np.square(grad)
        return grad / (np.sqrt(total) + self.eps), {"total": total}


@dataclass(frozen=True)
class AdaDelta(Descent):
    """Steps as large as the last ones were, in the units of the vector.

    References
    ----------
    Zeiler, "ADADELTA: an adaptive learning rate method", 2012.

    Examples
    --------
    >>> rule = AdaDelta(1.0)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.9968, -1.9968])
    """

    lr: Rate = 1.0
    rho: float = 0.9
    eps: float = 1e-6

    moments: ClassVar[tuple[str, ...]] = ("square", "moved")

    def __post_init__(self) -> None:
        check_share("rho", self.rho)

    def direction(self, flat, grad, state, count):
        square = running(self.rho, state["square"], np.square(grad))
        direction = np.sqrt(state["moved"] + self.eps) / np.sqrt(square + self.eps) * grad
        moved = running(self.rho, state["moved"], np.square(direction))
        return direction, {"square": square, "moved": moved}


@dataclass(frozen=True)
class Lion(Descent):
    """The sign of a running mean of the gradient.

    References
    ----------
    Chen et al., "Symbolic discovery of optimization algorithms", 2023.

    Examples
    --------
    >>> rule = Lion(0.1)
    >>> flat = np.array([1.0, -2.0])
    >>> flat, state = rule.step(flat, 2 * flat, rule.init(flat))
    >>> flat.round(4)
    array([ 0.9, -1.9])
    """

    lr: Rate = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    decay: float = 0.0

    moments: ClassVar[tuple[str, ...]] = ("mean",)

    def __post_init__(self) -> None:
        check_share("beta1", self.beta1)
        check_share("beta2", self.beta2)

    def direction(self, flat, grad, state, count):
        direction = np.sign(running(self.beta1, state["mean"], grad))
        return direction + self.decay * flat, {"mean": running(self.beta2, state["mean"], grad)}
