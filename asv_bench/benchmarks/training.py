"""Training steps in one process: nnflat's tape, NumPy by hand, and JAX and PyTorch where they are installed.

One BLAS thread each is what to compare: OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np

import nnflat as nf
from nnflat import nn, optim

CASES = {"64-32-10x32": ((64, 32, 10), 32), "4-32-2x1": ((4, 32, 2), 1), "784-128-10x128": ((784, 128, 10), 128),
         "784-1024-10x128": ((784, 1024, 10), 128)}
WAYS = ["nnflat", "numpy", *[name for name in ("jax", "torch") if find_spec(name)]]
LR = 1e-3


def problem(sizes: tuple[int, ...], batch: int) -> tuple[nn.Chain, np.ndarray, np.ndarray]:
    """Return a tanh network, and a batch of inputs and labels."""
    rng = np.random.default_rng(0)
    names = ["tanh"] * (len(sizes) - 2) + ["identity"]
    model = nn.Chain(*[nn.Dense(a, b, name, rng=rng) for (a, b), name in zip(pairwise(sizes), names, strict=True)])
    x = rng.standard_normal((batch, sizes[0])).astype(np.float32)
    return model, x, rng.integers(0, sizes[-1], batch)


def by_nnflat(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    flat, layout = nf.destructure(model)
    rule = optim.Adam(LR)
    slope = nf.value_and_grad(layout.lift(lambda model, x, y: nn.cross_entropy(model(x), y)))

    @nf.compile
    def step(flat, count, mean, square, x, y):
        _, gradient = slope(flat, x, y)
        flat, state = rule.step(flat, gradient, {"step": count, "mean": mean, "square": square})
        return flat, state["step"], state["mean"], state["square"]

    held = (flat, *rule.init(flat).values())
    return lambda: step(*held, x, y, out=held)


def by_hand(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
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


def by_jax(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    def loss(layers, x, y):
        for i, (weight, bias) in enumerate(layers):
            x = x @ weight + bias
            x = jnp.tanh(x) if i < len(layers) - 1 else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()

    @partial(jax.jit, donate_argnums=0)
    def step(state, x, y):
        layers, mean, square, count = state
        grad, count, each = jax.grad(loss)(layers, x, y), count + 1, jax.tree.map
        mean = each(lambda m, g: 0.9 * m + 0.1 * g, mean, grad)
        square = each(lambda v, g: 0.999 * v + 0.001 * g * g, square, grad)
        c1, c2 = 1 - 0.9**count, 1 - 0.999**count
        layers = each(lambda p, m, v: p - LR * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), layers, mean, square)
        return layers, mean, square, count

    layers = [(jnp.array(layer.weight), jnp.array(layer.bias)) for layer in model.layers]
    zeros = [jax.tree.map(jnp.zeros_like, layers) for _ in range(2)]
    state, data = [(layers, *zeros, jnp.zeros(()))], (jnp.array(x), jnp.array(y))

    def run() -> None:
        state[0] = jax.block_until_ready(step(state[0], *data))

    return run


def by_torch(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    layers: list[Any] = []
    for layer in model.layers:
        layers += [torch.nn.Linear(*layer.weight.shape), torch.nn.Tanh()]
    net = torch.nn.Sequential(*layers[:-1])
    rule = torch.optim.Adam(net.parameters(), lr=LR, fused=True)
    inputs, labels = torch.tensor(x), torch.tensor(y)

    def step() -> None:
        rule.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        rule.step()

    return step


MAKERS = {"nnflat": by_nnflat, "numpy": by_hand, "jax": by_jax, "torch": by_torch}


@cache
def step(case: str, way: str) -> Callable[[], Any]:
    """Return one training step."""
    return MAKERS[way](*problem(*CASES[case]))


class Training:
    """A step of softmax cross-entropy and Adam, in place."""

    params = (list(CASES), WAYS)
    param_names = ("case", "way")

    def time_step(self, case: str, way: str) -> None:
        step(case, way)()


@cache
def adam(way: str) -> Callable[[], Any]:
    flat = np.random.default_rng(0).standard_normal(800_000).astype(np.float32)
    grad, rule = 0.1 * flat, optim.Adam(LR)
    state = rule.init(flat)
    if way == "numpy":
        return lambda: rule.step(flat, grad, state, out=(flat, state))
    if way == "nnflat":
        compiled = nf.compile(rule.step)
        return lambda: compiled(flat, grad, state, out=(flat, state))
    import torch

    parameter = torch.nn.Parameter(torch.tensor(flat))
    parameter.grad = torch.tensor(grad)
    return torch.optim.Adam([parameter], lr=LR, fused=True).step


class Adam:
    """The update alone, of 800,000 float32."""

    params = tuple(way for way in WAYS if way != "jax")
    param_names = ("way",)

    def time_step(self, way: str) -> None:
        adam(way)()


@cache
def gradient(way: str) -> Callable[[], Any]:
    """Return the gradient of 784-1024-10 by its weights, or the five products that it is made of."""
    rng = np.random.default_rng(0)
    model = nn.Chain(nn.Dense(784, 1024, "relu", rng=rng), nn.Dense(1024, 10, rng=rng))
    x, y = rng.standard_normal((128, 784)).astype(np.float32), rng.integers(0, 10, 128)
    flat, layout = nf.destructure(model)
    if way == "nnflat":
        slope = nf.value_and_grad(layout.lift(lambda model, x, y: nn.cross_entropy(model(x), y)))
        out = np.zeros((), np.float32), np.empty_like(flat)
        return lambda: slope(flat, x, y, out=out)
    first, last = (layer.weight for layer in model.layers)
    hidden, logits = x @ first, x @ first @ last
    pairs = [(x, first), (hidden, last), (logits, last.T), (hidden.T, logits), (x.T, hidden)]
    outs = [a @ b for a, b in pairs]
    return lambda: [np.matmul(a, b, out=out) for (a, b), out in zip(pairs, outs, strict=True)]


class Gradient:
    """A gradient against its products alone."""

    params = ("nnflat", "products")
    param_names = ("way",)

    def time_gradient(self, way: str) -> None:
        gradient(way)()


@cache
def regression(way: str) -> Callable[[], Any]:
    """Return a step of the small regression of SimpleChains.jl: 4-32-16-4, full batch of 200, Adam."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((200, 4)).astype(np.float32) for _ in range(2))
    sizes, rule = (4, 32, 16, 4), optim.Adam(LR)
    layers = [nn.Dense(a, b, name, rng=rng) for (a, b), name in zip(pairwise(sizes), ("tanh", "tanh", "identity"),
                                                                    strict=True)]
    if way == "nnflat":
        flat, layout = nf.destructure(nn.Chain(*layers))
        slope = nf.grad(layout.lift(lambda model, x, y: nn.mse(model(x), y)))
        step = nf.compile(lambda flat, state, x, y: rule.step(flat, slope(flat, x, y), state))
        state = rule.init(flat)
        return lambda: step(flat, state, x, y, out=(flat, state))
    import torch

    torch.set_num_threads(1)
    parts = [each for a, b in pairwise(sizes) for each in (torch.nn.Linear(a, b), torch.nn.Tanh())]
    net, inputs, targets = torch.nn.Sequential(*parts[:-1]), torch.tensor(x), torch.tensor(y)
    theirs = torch.optim.Adam(net.parameters(), lr=LR, fused=True)

    def run() -> None:
        theirs.zero_grad()
        torch.nn.functional.mse_loss(net(inputs), targets).backward()
        theirs.step()

    return run


class Regression:
    """Full-batch steps, small products."""

    params = tuple(way for way in WAYS if way in ("nnflat", "torch"))
    param_names = ("way",)

    def time_step(self, way: str) -> None:
        regression(way)()


@cache
def digits(way: str) -> Callable[[], Any]:
    """Return ten epochs of 64-32-10 on digits by `fit`, or by scikit-learn with the same settings."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    if way == "sklearn":
        theirs = MLPClassifier((32,), batch_size=32, max_iter=10, tol=0, alpha=0, n_iter_no_change=99, random_state=0)
        return lambda: quietly(theirs.fit, x, y)

    def run() -> None:
        rng = np.random.default_rng(0)
        model = nn.Chain(nn.Dense(64, 32, "relu", rng=rng), nn.Dense(32, 10, rng=rng))
        nf.fit(model, (x, y), loss=digits_loss, optimizer=optim.Adam(LR), epochs=10, progress=False)

    return run


def digits_loss(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Any:
    return nn.cross_entropy(model(x), y)


def quietly(function: Callable[..., Any], *args: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")         # ten epochs are not enough to converge
        function(*args)


class Digits:
    """Training with minibatches."""

    params = ("nnflat", *(["sklearn"] if find_spec("sklearn") else []))
    param_names = ("way",)

    def time_fit(self, way: str) -> None:
        digits(way)()
