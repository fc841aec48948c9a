"""The models that are measured, each there for one reason, all float32."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np


def perceptron(*sizes: int) -> list[dict[str, np.ndarray]]:
    """Return the weights and biases of dense layers."""
    rng = np.random.default_rng(0)
    return [
        {"weight": rng.standard_normal((n, m), np.float32), "bias": rng.standard_normal(m, np.float32)}
        for n, m in pairwise(sizes)
    ]


def leaves(count: int) -> list[np.ndarray]:
    """Return many leaves of 16 elements."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(16, np.float32) for _ in range(count)]


MODELS = {
    "784-1024-10": lambda: perceptron(784, 1024, 10),  # the memory's speed
    "784-100-10": lambda: perceptron(784, 100, 10),  # the second-level cache's
    "4-32-2": lambda: perceptron(4, 32, 2),  # what a call costs
    "1000 x 16": lambda: leaves(1000),  # what a leaf costs
}


@cache
def model(name: str) -> Any:
    """Return a model by name: made once a process, outside of what is timed."""
    return MODELS[name]()
