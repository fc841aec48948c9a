"""Layers, activations, initialisers and losses: plain NumPy functions on the nodes of a tree."""

from nnflat.nn import init
from nnflat.nn.activations import (
    elu,
    gelu,
    identity,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)
from nnflat.nn.chain import Chain
from nnflat.nn.dense import Dense
from nnflat.nn.flatten import Flatten
from nnflat.nn.layer import Layer, call, cast
from nnflat.nn.losses import binary_cross_entropy, cosine, cross_entropy, hinge, huber, kl_div, mae, mse, poisson

__all__ = [
    "Chain",
    "Dense",
    "Flatten",
    "Layer",
    "binary_cross_entropy",
    "call",
    "cast",
    "cosine",
    "cross_entropy",
    "elu",
    "gelu",
    "hinge",
    "huber",
    "identity",
    "init",
    "kl_div",
    "leaky_relu",
    "log_softmax",
    "mae",
    "mse",
    "poisson",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
