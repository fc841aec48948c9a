"""Activations: plain functions of an array, by name or as they are.

Each keeps the dtype of a float array and gives NaN at NaN; the elementwise ones give their limits at -inf
and inf. None warns at finite numbers. They are made of functions that dispatch (no branch on a value, no
assignment to an item), so that they can be recorded.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.nn.derivative import with_derivative

Activation = Callable[..., Any]

_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772
_SATURATED = 50.0  # sigmoid(-50) is 0 in every float dtype up to float64


def identity(x: NDArray[Any]) -> NDArray[Any]:
    """Return `x` itself."""
    return x


@with_derivative(lambda g, y, x: np.where(x > 0, g, 0))
def relu(x: NDArray[Any]) -> NDArray[Any]:
    """Return max(x, 0), elementwise; NaN stays NaN. Its derivative at 0 is 0.

    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    return np.maximum(x, 0)


@with_derivative(lambda g, y, x, slope=0.01: np.where(x > 0, g, slope * g))
def leaky_relu(x: NDArray[Any], slope: float = 0.01) -> NDArray[Any]:
    """Return x where it is positive, else `slope * x`, for a slope in (0, 1].

    >>> leaky_relu(np.array([-1.0, 2.0]))
    array([-0.01,  2.  ])
    """
    return np.maximum(x, slope * x)


def elu(x: NDArray[Any], alpha: float = 1.0) -> NDArray[Any]:
    """Return x where it is positive, else `alpha * (exp(x) - 1)` (Clevert et al. 2016).

    >>> elu(np.array([-np.inf, 2.0]))
    array([-1.,  2.])
    """
    return np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


def selu(x: NDArray[Any]) -> NDArray[Any]:
    """Return the scaled `elu` that keeps mean 0 and variance 1 (Klambauer et al. 2017).

    >>> selu(np.array([0.0, 1.0]))
    array([0.        , 1.05070099])
    """
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


def softplus(x: NDArray[Any]) -> NDArray[Any]:
    """Return log(1 + exp(x)), elementwise, with no overflow.

    >>> softplus(np.array([-1000.0, 1000.0]))
    array([   0., 1000.])
    """
    return np.logaddexp(x, 0)


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    """Return 1 / (1 + exp(-x)), elementwise, by way of tanh: no overflow, one transcendental function.

    The absolute error is that of numbers near 1: far down the left tail the result is 0. For its logarithm,
    `-softplus(-x)` is accurate there.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def silu(x: NDArray[Any]) -> NDArray[Any]:
    """Return x * sigmoid(x), elementwise, also called swish (Elfwing et al. 2018).

    >>> silu(np.array([-np.inf, 0.0, 1000.0]))
    array([  -0.,    0., 1000.])
    """
    x = np.maximum(x, -_SATURATED)
    return x * sigmoid(x)


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    """Return x * Phi(x), Phi the normal distribution function, in its tanh form (Hendrycks & Gimpel 2016).

    NumPy has no erf; the tanh form differs from the exact one by less than 0.0005.

    >>> gelu(np.array([-np.inf, 0.0, 1.0]))
    array([-0.        , 0.        , 0.84119199])
    """
    x = np.maximum(x, -10.0)  # tanh has saturated beyond 10, where the cube could overflow
    z = np.minimum(x, 10.0)
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * z * (1.0 + 0.044715 * z * z)))


def _softmax_rule(g: Any, y: Any, x: Any, axis: int = -1) -> Any:
    weighted = g * y
    return weighted - y * weighted.sum(axis=axis, keepdims=True)


def _log_softmax_rule(g: Any, y: Any, x: Any, axis: int = -1) -> Any:
    return g - np.exp(y) * g.sum(axis=axis, keepdims=True)


@with_derivative(_softmax_rule)
def softmax(x: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    """Return exp(x) / sum(exp(x)) along an axis, with no overflow.

    >>> softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


@with_derivative(_log_softmax_rule)
def log_softmax(x: NDArray[Any], axis: int = -1) -> NDArray[Any]:
    """Return the logarithm of `softmax`, accurate where softmax itself is 0.

    >>> log_softmax(np.array([0.0, 1000.0]))
    array([-1000.,     0.])
    """
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


tanh = np.tanh

ACTIVATIONS: dict[str, Activation] = {
    "elu": elu,
    "gelu": gelu,
    "identity": identity,
    "leaky_relu": leaky_relu,
    "log_softmax": log_softmax,
    "relu": relu,
    "selu": selu,
    "sigmoid": sigmoid,
    "silu": silu,
    "softmax": softmax,
    "softplus": softplus,
    "tanh": tanh,
}


def resolve(activation: str | Activation) -> Activation:
    """Return the function of that name, or the function that was given.

    >>> resolve("tanh") is np.tanh is resolve(np.tanh)
    True
    """
    if callable(activation):
        return activation
    if isinstance(activation, str) and activation in ACTIVATIONS:
        return ACTIVATIONS[activation]
    error = ValueError if isinstance(activation, str) else TypeError
    raise error(f"activation needs to be a function or one of {', '.join(ACTIVATIONS)}; got {activation!r}")
