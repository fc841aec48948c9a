"""PyTorch: modules in inference mode; training by autograd and the fused Adam, eager, as its tutorials have it."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from workers import cases
from workers.cases import LR, Work

torch.set_num_threads(1)


def module(layers, last):
    """Return the layers as modules, tanh between; `last` says whether behind the last one, too."""
    parts = []
    for weight, bias in layers:
        linear = nn.Linear(*weight.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(weight.T))
            linear.bias.copy_(torch.tensor(bias))
        parts += [linear, nn.Tanh()]
    return nn.Sequential(*(parts if last else parts[:-1]))


def pure(function):
    def call():
        with torch.inference_mode():
            return function()

    return Work(call, lambda: call().numpy())


def policy(case):
    layers, x = cases.policy(case)
    net, x = module(layers, last=True), torch.tensor(x)
    return pure(lambda: net(x))


def candidates(case):
    layers, x = cases.candidates()
    layers = [(torch.tensor(weight), torch.tensor(bias)) for weight, bias in layers]
    x = torch.tensor(x)[:, None]

    def function():
        y = x
        for weight, bias in layers:
            y = torch.tanh(torch.baddbmm(bias[:, None], y, weight))
        return y[:, 0]

    return pure(function)


def chain(case):
    x = torch.tensor(cases.drawn(10**6))

    def function():
        y = x
        for _ in range(10):
            y = (y + 1.5) * 0.5
        return y

    return pure(function)


def trained(layers, x, y, loss, steps):
    net, x, y, held = module(layers, last=False), torch.tensor(x), torch.tensor(y), [None]
    rule = torch.optim.Adam(net.parameters(), lr=LR, fused=True)

    def call():
        for _ in range(steps):
            rule.zero_grad()
            value = loss(net(x), y)
            value.backward()
            rule.step()
        held[0] = value.detach()

    return Work(call, lambda: held[0].numpy())


def step(case):
    return trained(*cases.step(case), nn.functional.cross_entropy, 1)


def regression(case):
    return trained(*cases.regression(), nn.functional.mse_loss, 100)


def adam(case):
    flat = cases.drawn(800_000)
    parameter = nn.Parameter(torch.tensor(flat))
    parameter.grad = torch.tensor(np.float32(0.1) * flat)
    return Work(torch.optim.Adam([parameter], lr=LR, fused=True).step, lambda: parameter.detach().numpy())


def held(case):
    return [nn.Parameter(torch.tensor(leaf)) for leaf in cases.leaves(case)]


def flatten(case):
    leaves = held(case)
    return pure(lambda: parameters_to_vector(leaves))


def restructure(case):
    """A new model: vector_to_parameters makes windows of the vector, so it is copied."""
    leaves = held(case)
    vector = parameters_to_vector(leaves).detach()

    def call():
        with torch.no_grad():
            made = copy.copy(leaves)
            vector_to_parameters(vector.clone(), made)
        return made

    return Work(call, lambda: parameters_to_vector(call()).detach().numpy())


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
