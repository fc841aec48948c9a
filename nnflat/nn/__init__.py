"""Layers, activations and initialisers: plain NumPy functions on the nodes of a tree."""

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

__all__ = [
    "Chain",
    "Dense",
    "Flatten",
    "Layer",
    "call",
    "cast",
    "elu",
    "gelu",
    "identity",
    "init",
    "leaky_relu",
    "log_softmax",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
