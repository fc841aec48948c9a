"""Training steps in place: by hand in NumPy, and by nnflat's tape. Other libraries are in `peers.py`.

One BLAS thread is what to compare: OPENBLAS_NUM_THREADS=1.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import nnflat as nf
from nnflat import nn, optim

from .measure import Call, Compared, Counted, Timed
from .models import chain, drawn

CASES = {
    "4-32-2 batch 1": ((4, 32, 2), 1),
    "64-32-10 batch 32": ((64, 32, 10), 32),
    "784-128-10 batch 128": ((784, 128, 10), 128),
    "784-1024-10 batch 128": ((784, 1024, 10), 128),
}
WAYS = ["numpy", "nnflat", "nnflat, dict"]
LR = 1e-3


def problem(sizes: tuple[int, ...], batch: int) -> tuple[nn.Chain, np.ndarray, np.ndarray]:
    """Return a tanh network, and a batch of inputs and labels."""
    labels = np.random.default_rng(0).integers(0, sizes[-1], batch)
    return chain(*sizes), drawn(batch, sizes[0]), labels


def by_nnflat(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Call:
    flat, layout = nf.destructure(model)
    rule = optim.Adam(LR)
    step, state = stepped(layout, rule), rule.init(flat)

    @nf.compile
    def unpacked(flat: Any, count: Any, mean: Any, square: Any, x: Any, y: Any) -> tuple[Any, ...]:
        flat, state = step(flat, {"step": count, "mean": mean, "square": square}, x, y)
        return flat, state["step"], state["mean"], state["square"]

    held = (flat, state["step"], state["mean"], state["square"])
    return lambda: unpacked(*held, x, y, out=held)


def by_nnflat_with_a_dict(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Call:
    flat, layout = nf.destructure(model)
    rule = optim.Adam(LR)
    step, held = nf.compile(stepped(layout, rule)), (flat, rule.init(flat))
    return lambda: step(*held, x, y, out=held)


def stepped(layout: nf.Layout, rule: optim.Rule) -> Any:
    """Return a step of a flat vector and the state of its rule, as a function to compile."""
    slope = nf.value_and_grad(layout.lift(lambda model, x, y: nn.cross_entropy(model(x), y)))

    def step(flat: Any, state: dict[str, Any], x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
        _, gradient = slope(flat, x, y)
        return rule.step(flat, gradient, state)

    return step


def by_hand(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Call:
    flat, layout = nf.destructure(model)
    grad, mean, square = (np.zeros_like(flat) for _ in range(3))
    layers, slopes = layout.view(flat).layers, layout.view(grad).layers
    rows, count = np.arange(len(y)), 0

    def step() -> None:
        nonlocal count
        hidden = [x]
        for layer in layers:
            z = hidden[-1] @ layer.weight
            z += layer.bias
            hidden.append(np.tanh(z, out=z) if layer is not layers[-1] else z)
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        z[rows, y] -= 1
        z /= len(y)
        for i in reversed(range(len(layers))):
            np.matmul(hidden[i].T, z, out=slopes[i].weight)
            z.sum(axis=0, out=slopes[i].bias)
            z = (z @ layers[i].weight.T) * (1 - np.square(hidden[i])) if i else z
        count += 1
        mean[:] = 0.9 * mean + 0.1 * grad
        square[:] = 0.999 * square + 0.001 * np.square(grad)
        root = np.sqrt(square) * np.float32(1 / np.sqrt(1 - 0.999**count)) + 1e-8
        flat[:] -= np.float32(LR / (1 - 0.9**count)) * mean / root

    return step


@cache
def step(case: str) -> dict[str, Call]:
    """Return the ways to make one training step."""
    makers = (by_hand, by_nnflat, by_nnflat_with_a_dict)
    return {way: make(*problem(*CASES[case])) for way, make in zip(WAYS, makers, strict=True)}


class Training(Timed, Compared, Counted):
    """A step of softmax cross-entropy and Adam, in place."""

    params = (list(CASES), WAYS)
    param_names = ("case", "way")

    def calls(self, case: str) -> Mapping[str, Call]:
        return step(case)


@cache
def products() -> dict[str, Call]:
    """Return the five matmuls of a gradient of 784-1024-10 at batch 128, the gradient, and a whole step."""
    model, x, y = problem(*CASES["784-1024-10 batch 128"])
    flat, layout = nf.destructure(model)
    slope = nf.value_and_grad(layout.lift(lambda model, x, y: nn.cross_entropy(model(x), y)))
    out = np.zeros((), np.float32), np.empty_like(flat)
    first, last = (layer.weight for layer in model.layers)
    hidden, logits = x @ first, x @ first @ last
    pairs = [(x, first), (hidden, last), (logits, last.T), (hidden.T, logits), (x.T, hidden)]
    outs = [a @ b for a, b in pairs]
    return {
        "matmuls": lambda: [np.matmul(a, b, out=place) for (a, b), place in zip(pairs, outs, strict=True)],
        "gradient": lambda: slope(flat, x, y, out=out),
        "step": step("784-1024-10 batch 128")["nnflat"],
    }


class Products(Compared):
    """The gradient and the step of 784-1024-10 at batch 128 against the five matmuls alone."""

    params = (["matmuls", "gradient", "step"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return products()


@cache
def adam() -> dict[str, Call]:
    """Return Adam's update of 800,000 float32, by NumPy and compiled."""
    flat = drawn(800_000)
    grad, rule = np.float32(0.1) * flat, optim.Adam(LR)
    state = rule.init(flat)
    compiled = nf.compile(rule.step)
    return {
        "numpy": lambda: rule.step(flat, grad, state, out=(flat, state)),
        "nnflat": lambda: compiled(flat, grad, state, out=(flat, state)),
    }


class Adam(Timed, Compared, Counted):
    """The update alone, of 800,000 float32."""

    params = (["numpy", "nnflat"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return adam()
