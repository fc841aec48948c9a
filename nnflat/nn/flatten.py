"""Flatten: many axes to one."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnflat.nn.layer import Layer


class Flatten(Layer):
    """Join the axes from `start` on into one, in C order: a view where NumPy can give one, else a copy.

    Parameters
    ----------
    start : int
        Number of leading axes that are kept: 1 for a batch of samples, 0 for a single one.

    Examples
    --------
    >>> Flatten()(np.zeros((5, 28, 28))).shape
    (5, 784)
    >>> Flatten(start=0)(np.zeros((28, 28))).shape
    (784,)
    """

    def __init__(self, *, start: int = 1) -> None:
        if start < 0:
            raise ValueError(f"Flatten needs start >= 0, got {start}")
        self.start = start

    def __call__(self, x: ArrayLike, *, key: object = None) -> NDArray[Any]:
        shape = np.shape(x)
        if len(shape) < self.start:
            raise ValueError(f"{self!r} needs x of at least {self.start} axes, got shape {shape}")
        return np.reshape(x, (*shape[: self.start], math.prod(shape[self.start :])))
