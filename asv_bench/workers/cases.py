"""The work that is the same for all peers: names, sizes, and data, made by NumPy alone.

A worker makes a `Work` of a case: `call` is timed, and `result` is what is compared with the other workers before
any timing: the numbers of the last call, or for what has a state (training) the loss after what was called so far.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
POLICIES = {  # sizes, batch
    "policy 4-32-2": ((4, 32, 2), 1),
    "policy 24-64-64-4": ((24, 64, 64, 4), 1),
    "forward 64-32-10, batch 32": ((64, 32, 10), 32),
    "forward 784-1024-10, batch 128": ((784, 1024, 10), 128),
}
STEPS = {
    "step 4-32-2, batch 1": ((4, 32, 2), 1),
    "step 64-32-10, batch 32": ((64, 32, 10), 32),
    "step 784-128-10, batch 128": ((784, 128, 10), 128),
    "step 784-1024-10, batch 128": ((784, 1024, 10), 128),
}
MODELS = {"784-1024-10": (784, 1024, 10), "1000 leaves of 16": None}
STRATEGIES = {"20 generations, n = 226": 226, "20 generations, n = 6020": 6020}
GENERATIONS = 20
VMAP, CHAIN, EMPTY, ADAM = "vmap of 64 candidates", "chain of 20, 10^6", "empty call", "Adam, 800k"
REGRESSION, DIGITS = "regression, 100 steps", "fit digits, 200 epochs"
LR, POP, SIGMA, ES_LR = 1e-3, 64, 0.1, 0.01
COMPARED_STEPS = 5


class Work(NamedTuple):
    """What a worker times, and what its result is compared by."""

    call: Callable[[], Any]
    result: Callable[[], Any]


def drawn(*shape: int, seed: int = 0) -> Array:
    """Return normal float32."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def parameters(sizes: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Return the weight and the bias of each layer."""
    return [(drawn(n, m, seed=i) / np.float32(np.sqrt(n)), drawn(m, seed=9) / 9) for i, (n, m) in
            enumerate(pairwise(sizes))]


def policy(case: str) -> tuple[list[tuple[Array, Array]], Array]:
    """Return the layers, tanh each, and a batch of inputs."""
    sizes, batch = POLICIES[case]
    return parameters(sizes), drawn(batch, sizes[0], seed=1)


def candidates() -> tuple[list[tuple[Array, Array]], Array]:
    """Return the stacked layers of 64 candidates of 4-32-2, and an observation each, (64, 4)."""
    scale = 1 + np.arange(POP, dtype=np.float32)[:, None] / POP
    return [(weight * scale[..., None], bias * scale) for weight, bias in parameters((4, 32, 2))], drawn(POP, 4, seed=1)


def step(case: str) -> tuple[list[tuple[Array, Array]], Array, Array]:
    """Return the layers (tanh, the last one linear), a batch of inputs, and labels."""
    sizes, batch = STEPS[case]
    labels = np.random.default_rng(2).integers(0, sizes[-1], batch)
    return parameters(sizes), drawn(batch, sizes[0], seed=1), labels


def tree(model: str) -> list[Array]:
    """Return the leaves of a model."""
    sizes = MODELS[model]
    if sizes is None:
        return [drawn(16, seed=i) for i in range(1000)]
    return [leaf for layer in parameters(sizes) for leaf in layer]


@cache
def regression() -> tuple[list[tuple[Array, Array]], Array, Array]:
    """Return SimpleChains.jl's small problem: 4-32-16-4 (tanh, tanh, linear), 200 matrices 2 x 2, their exponentials.

    The exponential is by its series after scaling and squaring, in float64.
    """
    matrices = drawn(200, 2, 2, seed=3).astype(float)
    term = total = np.broadcast_to(np.eye(2), matrices.shape)
    for n in range(1, 20):
        term = term @ (matrices / 2**8) / n
        total = total + term
    for _ in range(8):
        total = total @ total
    inputs, targets = matrices.reshape(200, 4), total.reshape(200, 4)
    return parameters((4, 32, 16, 4)), inputs.astype(np.float32), targets.astype(np.float32)


def leaves(case: str) -> list[Array]:
    """Return the leaves of the model that a case names behind its verb."""
    return tree(case.partition(" ")[2])


def start(size: int) -> Array:
    """Return where a search begins."""
    return np.ones(size, np.float32)


def digits(data: tuple[Array, Array], fit: Callable[[Array, Array, int], Callable[[Array], Array]]) -> Work:
    """Return the work of fits with the seeds 0, 1, ..., each with a split of its own; the result is the accuracy."""
    x, y = (data[0] / 16).astype(np.float32), data[1]
    scores: list[float] = []

    def call() -> None:
        order = np.random.default_rng(len(scores)).permutation(len(x))
        train, test = order[:1437], order[1437:]
        predict = fit(x[train], y[train], len(scores))
        scores.append(float(np.mean(predict(x[test]) == y[test])))

    return Work(call, lambda: np.mean(scores))
