"""HIPS autograd: gradients of plain NumPy functions, Adam by hand."""

import autograd.numpy as np
import numpy
from autograd import value_and_grad
from autograd.misc import flatten

from workers import by_numpy, cases
from workers.cases import Work


def linear_last(layers, x):
    *hidden, (weight, bias) = layers
    for each in hidden:
        x = np.tanh(np.dot(x, each[0]) + each[1])
    return np.dot(x, weight) + bias


def trained(layers, x, y, loss, steps):
    flat, unflatten = flatten(layers)
    flat = flat.astype(numpy.float32)
    slope = value_and_grad(lambda flat: loss(linear_last(unflatten(flat), x), y))
    rule, last = by_numpy.Adam(flat), [None]

    def call():
        for _ in range(steps):
            last[0], grad = slope(flat)
            rule(grad)

    return Work(call, lambda: last[0])


def cross_entropy(z, y):
    shifted = z - np.max(z, axis=1, keepdims=True)
    logs = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    return -np.mean(logs[numpy.arange(len(y)), y])


def step(case):
    return trained(*cases.step(case), cross_entropy, 1)


def regression(case):
    return trained(*cases.regression(), lambda z, y: np.mean((z - y) ** 2), 100)


def destructure(case):
    leaves = cases.leaves(case)
    return by_numpy.pure(lambda: flatten(leaves)[0])


def restructure(case):
    flat, unflatten = flatten(cases.leaves(case))
    return Work(lambda: unflatten(flat), lambda: flatten(unflatten(flat))[0])


MAKERS = {
    **dict.fromkeys(cases.STEPS, step),
    cases.REGRESSION: regression,
    **{f"destructure {model}": destructure for model in cases.MODELS},
    **{f"restructure {model}": restructure for model in cases.MODELS},
}
