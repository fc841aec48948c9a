"""The models that are measured, each there for one reason, with the dtype of their flat vector."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from nnflat import nn

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def perceptron(*sizes: int) -> list[dict[str, np.ndarray]]:
    """Return the weights and biases of dense layers."""
    return [{"weight": filled(n, m), "bias": filled(m)} for n, m in pairwise(sizes)]


def filled(*shape: int) -> np.ndarray:
    """Return float32 that differ, all memory touched: quicker than draws, where only bytes are moved."""
    return np.arange(np.prod(shape), dtype=SINGLE).reshape(shape)


def drawn(*shape: int) -> np.ndarray:
    """Return normal float32, all memory touched."""
    return np.random.default_rng(0).standard_normal(shape, SINGLE)


def leaves(count: int) -> list[np.ndarray]:
    """Return many leaves of 16 elements."""
    return [filled(16) for _ in range(count)]


def chain(*sizes: int) -> nn.Chain:
    """Return a net of tanh layers with a linear last one."""
    names = ["tanh"] * (len(sizes) - 2) + ["identity"]
    rng = np.random.default_rng(0)
    return nn.Chain(*(nn.Dense(n, m, name, rng=rng) for (n, m), name in zip(pairwise(sizes), names, strict=True)))


MODELS: dict[str, Callable[[], Any]] = {
    "784-1024-10": lambda: perceptron(784, 1024, 10),  # the memory's speed
    "784-100-10": lambda: perceptron(784, 100, 10),  # the second-level cache's
    "4-32-2": lambda: perceptron(4, 32, 2),  # what a call costs
    "1000 x 16, tuple": lambda: tuple(leaves(1000)),  # what a leaf costs, where none can be re-bound
}
ORDERS: dict[str, Callable[[], Any]] = {
    "784-100-10, nn.Chain": lambda: chain(784, 100, 10),  # layers, which are asked for their children
    "1000 x 16, list": lambda: leaves(1000),  # what looking leaves up again costs
    "1000 x 16, dict": lambda: {str(i): leaf for i, leaf in enumerate(leaves(1000))},
    "Fortran 784 x 1024": lambda: np.asfortranarray(filled(784, 1024)),
    "Fortran 1024 x 1024": lambda: np.asfortranarray(filled(1024, 1024)),
    "Fortran 784 x 1024, float64": lambda: np.asfortranarray(filled(784, 1024).astype(DOUBLE)),
    "[:, ::2] of 784 x 2048": lambda: filled(784, 2048)[:, ::2],
    "[:, ::-1] of 784 x 1024": lambda: filled(784, 1024)[:, ::-1],
    "float64 flat, float32 leaf": lambda: filled(784, 1024),  # casts both ways
    "40 MB in ten leaves": lambda: [filled(1000, 1000) for _ in range(10)],  # what no cache holds
}
FLAT_DTYPES = {"float64 flat, float32 leaf": DOUBLE}


@cache
def model(name: str) -> Any:
    """Return a model by name: made once a process, outside of what is timed."""
    return (MODELS | ORDERS)[name]()
