"""Losses: plain functions of predictions and targets, stable at extremes, in the dtype of the predictions.

Each takes `reduction`: "mean" or "sum" over the examples (all axes of the loss), or "none". What one loss an example
is stands in its docstring. Labels are integers, or one-hot (or soft) targets of the shape of the predictions.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat.nn.activations import log_softmax, softplus

__all__ = ["binary_cross_entropy", "cosine", "cross_entropy", "hinge", "huber", "kl_div", "mae", "mse", "poisson"]

REDUCTIONS = ("mean", "sum", "none")


def mse(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return the squared differences.

    >>> mse(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    np.float64(2.0)
    """
    return _reduce(np.square(pred - _like(target, pred)), reduction)


def mae(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return the absolute differences; the derivative at 0 is 0.

    >>> mae(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    np.float64(1.0)
    """
    return _reduce(np.abs(pred - _like(target, pred)), reduction)


def huber(pred: NDArray[Any], target: ArrayLike, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """Return half the squared difference up to `delta`, and beyond it the line that goes on from there (Huber 1964).

    >>> huber(np.array([1.0, 3.0]), np.array([0.0, 0.0]), reduction="none")
    array([0.5, 2.5])
    """
    if not delta > 0:
        raise ValueError(f"delta needs to be above 0; got {delta}")
    difference = pred - _like(target, pred)
    inner = np.clip(difference, -delta, delta)
    return _reduce(inner * (difference - 0.5 * inner), reduction)


def cross_entropy(pred: NDArray[Any], target: ArrayLike, *, weight: ArrayLike | None = None,
                  label_smoothing: float = 0.0, reduction: str = "mean") -> Any:
    """Return minus the log-probability of the target under `softmax(pred)`.

    Parameters
    ----------
    pred : ndarray, shape (..., classes)
        Logits.
    target : array, shape (...,) of integers, or (..., classes)
        Labels, each in [0, classes); or probabilities. A label out of range raises, or gives NaN inside a compiled
        function, which cannot look at values.
    weight : array, shape (classes,), optional
        A weight a class. The mean is then over weights: the sum of the losses over the sum of the weights.
    label_smoothing : float
        Share of each target that is spread evenly over the classes.

    Examples
    --------
    >>> cross_entropy(np.array([[0.0, 0.0], [1000.0, 0.0]]), np.array([0, 1]), reduction="none")
    array([6.93147181e-01, 1.00000000e+03])
    """
    _check_reduction(reduction)
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing needs to be at least 0 and below 1; got {label_smoothing}")
    hot = _one_hot(target, pred)
    if weight is None and label_smoothing == 0 and hot.dtype == bool:
        losses = -np.where(hot, log_softmax(pred), 0).sum(axis=-1)
        return _reduce(losses if _is_plain(hot) else np.where(hot.any(axis=-1), losses, np.nan), reduction)
    shares = np.where(hot, np.ones((), pred.dtype), np.zeros((), pred.dtype)) if hot.dtype == bool else hot
    weights = np.ones((), pred.dtype) if weight is None else np.asarray(weight, pred.dtype)
    smooth = shares * (1 - label_smoothing) + label_smoothing / pred.shape[-1]
    losses = -(smooth * weights * log_softmax(pred)).sum(axis=-1)
    if weight is None or reduction != "mean":
        return _reduce(losses, reduction)
    return losses.sum() / (shares * weights).sum()


def binary_cross_entropy(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return minus the log-probability of a target in [0, 1] under `sigmoid(pred)`; `pred` are logits.

    >>> binary_cross_entropy(np.array([0.0, 1000.0]), np.array([1, 0]), reduction="none")
    array([6.93147181e-01, 1.00000000e+03])
    """
    return _reduce(softplus(pred) - pred * _like(target, pred), reduction)


def hinge(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return max(0, 1 - target * pred), for targets of -1 and 1.

    >>> hinge(np.array([0.5, -3.0]), np.array([1, -1]), reduction="none")
    array([0.5, 0. ])
    """
    return _reduce(np.maximum(1 - _like(target, pred) * pred, 0), reduction)


def kl_div(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return the divergence sum(target * log(target / p)) along the last axis, where `pred` is log(p).

    A target of 0 adds 0.

    >>> kl_div(np.log(np.array([0.5, 0.5])), np.array([1.0, 0.0]))
    np.float64(0.6931471805599453)
    """
    shares = _like(target, pred)
    positive = shares > 0
    entropy = np.where(positive, shares * np.log(np.where(positive, shares, 1)), 0)
    return _reduce((entropy - shares * pred).sum(axis=-1), reduction)


def poisson(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return exp(pred) - target * pred: minus the log-likelihood of counts, up to what does not depend on `pred`.

    `pred` is the logarithm of the rate.

    >>> poisson(np.array([0.0]), np.array([3]))
    np.float64(1.0)
    """
    return _reduce(np.exp(pred) - _like(target, pred) * pred, reduction)


def cosine(pred: NDArray[Any], target: ArrayLike, *, reduction: str = "mean") -> Any:
    """Return 1 - cos of the angle between vectors along the last axis; 1 where one of them is 0.

    >>> cosine(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 1.0]]), reduction="none")
    array([0.29289322, 1.        ])
    """
    target = _like(target, pred)
    product = np.linalg.norm(pred, axis=-1) * np.linalg.norm(target, axis=-1)
    zero = product == 0
    along = (pred * target).sum(axis=-1)
    return _reduce(1 - np.where(zero, 0, along / np.where(zero, 1, product)), reduction)


def _like(target: ArrayLike, pred: NDArray[Any]) -> Any:
    """Return the target in the dtype of the predictions, once their shapes are known to agree."""
    target = target if isinstance(target, np.ndarray) else np.asarray(target)
    if target.shape != pred.shape:
        raise ValueError(f"the target has shape {target.shape}; the predictions have {pred.shape}")
    return target if target.dtype == pred.dtype else target.astype(pred.dtype)


def _one_hot(target: ArrayLike, pred: NDArray[Any]) -> Any:
    """Return labels as a truth value a class; targets that are probabilities, as they are."""
    target = target if isinstance(target, np.ndarray) else np.asarray(target)
    if target.dtype.kind not in "iu":
        if target.shape != pred.shape:
            raise ValueError(f"the target needs integer labels of shape {pred.shape[:-1]}, or probabilities of shape "
                             f"{pred.shape}; got shape {target.shape} of {target.dtype}")
        return _like(target, pred)
    if target.shape != pred.shape[:-1]:
        raise ValueError(f"the labels have shape {target.shape}; {pred.shape[:-1]} is needed for {pred.shape}")
    _check_labels(target, pred.shape[-1])
    return target[..., None] == np.arange(pred.shape[-1], dtype=target.dtype)


def _check_labels(labels: Any, classes: int) -> None:
    if _is_plain(labels) and labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise ValueError(f"labels need to be in [0, {classes}); got {labels.min()} to {labels.max()}")


def _is_plain(x: Any) -> bool:
    """Whether values can be looked at: a traced array is of no class of NumPy's."""
    return issubclass(type(x), np.ndarray)


def _check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction needs to be one of {', '.join(REDUCTIONS)}; got {reduction!r}")


def _reduce(losses: NDArray[Any], reduction: str) -> Any:
    _check_reduction(reduction)
    if reduction == "none":
        return losses
    if losses.size == 0:
        raise ValueError("the batch is empty: there is no loss to reduce")
    return losses.mean() if reduction == "mean" else losses.sum()
