"""NumPy by hand: what a careful user writes, with results in place where that is easy."""

import numpy as np

from workers import cases
from workers.cases import LR, Work


def net(layers, x):
    for weight, bias in layers:
        x = np.tanh(x @ weight + bias)
    return x


def policy(case):
    layers, x = cases.policy(case)
    return pure(lambda: net(layers, x))


def pure(call):
    """Return the work of a call whose result says all."""
    return Work(call, call)


def candidates(case):
    layers, x = cases.candidates()
    stacked = [(weight, bias[:, None]) for weight, bias in layers]
    return pure(lambda: net(stacked, x[:, None])[:, 0])


def chain(case):
    x = cases.drawn(10**6)

    def call():
        y = x
        for _ in range(10):
            y = (y + 1.5) * 0.5
        return y

    return pure(call)


class Adam:
    """Adam over a flat vector."""

    def __init__(self, flat):
        self.flat, self.mean, self.square, self.count = flat, np.zeros_like(flat), np.zeros_like(flat), 0

    def __call__(self, grad):
        self.count += 1
        self.mean += np.float32(0.1) * (grad - self.mean)
        self.square += np.float32(0.001) * (grad * grad - self.square)
        root = np.sqrt(self.square / np.float32(1 - 0.999**self.count)) + np.float32(1e-8)
        self.flat -= np.float32(LR / (1 - 0.9**self.count)) * self.mean / root


def views(flat, layers):
    """Return the layers as windows of a flat vector."""
    made, start = [], 0
    for pair in layers:
        made.append([])
        for leaf in pair:
            made[-1].append(flat[start : start + leaf.size].reshape(leaf.shape))
            start += leaf.size
    return made


def trained(layers, x, slope):
    """Return the work of steps of Adam along `slope`, which gives the loss and the cotangent of the last layer."""
    flat = np.concatenate([leaf.ravel() for pair in layers for leaf in pair])
    grad = np.zeros_like(flat)
    own, slopes, rule, last = views(flat, layers), views(grad, layers), Adam(flat), [None]

    def step():
        hidden = [x]
        for i, (weight, bias) in enumerate(own):
            z = hidden[-1] @ weight
            z += bias
            hidden.append(np.tanh(z, out=z) if i < len(own) - 1 else z)
        last[0], z = slope(z)
        for i in reversed(range(len(own))):
            np.matmul(hidden[i].T, z, out=slopes[i][0])
            z.sum(axis=0, out=slopes[i][1])
            z = (z @ own[i][0].T) * (1 - np.square(hidden[i])) if i else z
        rule(grad)

    return step, lambda: last[0]


def step(case):
    layers, x, y = cases.step(case)
    rows = np.arange(len(y))

    def slope(z):
        z = z - z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        loss = -np.log(z[rows, y]).mean()
        z[rows, y] -= 1
        z /= len(y)
        return loss, z

    return Work(*trained(layers, x, slope))


def regression(case):
    layers, x, y = cases.regression()

    def slope(z):
        error = z - y
        return np.square(error).mean(), error * np.float32(2 / error.size)

    one, result = trained(layers, x, slope)

    def call():
        for _ in range(100):
            one()

    return Work(call, result)


def adam(case):
    flat = cases.drawn(800_000)
    grad, rule = np.float32(0.1) * flat, Adam(flat.copy())
    return Work(lambda: rule(grad), lambda: rule.flat)


def flatten(case):
    leaves = cases.leaves(case)
    return pure(lambda: np.concatenate([leaf.ravel() for leaf in leaves]))


def restructure(case):
    leaves = cases.leaves(case)
    flat = np.concatenate([leaf.ravel() for leaf in leaves])
    ends = np.cumsum([leaf.size for leaf in leaves]).tolist()

    def call():
        starts = [0, *ends]
        return [
            flat[a:b].reshape(leaf.shape).copy() for a, b, leaf in zip(starts, ends, leaves, strict=False)
        ]

    return Work(call, lambda: np.concatenate([leaf.ravel() for leaf in call()]))


MAKERS = {
    **dict.fromkeys(cases.POLICIES, policy),
    cases.VMAP: candidates,
    cases.CHAIN: chain,
    **dict.fromkeys(cases.STEPS, step),
    cases.REGRESSION: regression,
    cases.ADAM: adam,
    **{f"flatten {model}": flatten for model in cases.MODELS},
    **{f"restructure {model}": restructure for model in cases.MODELS},
}
