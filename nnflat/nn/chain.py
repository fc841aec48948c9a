"""Chain: layers one after another."""

from collections.abc import Callable
from typing import Any

from nnflat import random
from nnflat.nn.layer import Layer, brief


class Chain(Layer):
    """Call layers one after another, each on what the one before gave.

    Parameters
    ----------
    *layers : callable
        Layers, or plain functions of an array. No layers at all: the identity.

    Attributes
    ----------
    layers : tuple

    Notes
    -----
    A `key` reaches layer i as `nnflat.random.fold(key, i)`, so that no two layers draw the same numbers.
    What is no `Layer` gets none.

    Examples
    --------
    >>> import numpy as np
    >>> from nnflat.nn import Dense
    >>> model = Chain(Dense(4, 8, "tanh"), Dense(8, 2), np.abs)
    >>> model
    Chain(Dense(4, 8, tanh), Dense(8, 2), absolute)
    >>> model(np.zeros(4))
    array([0., 0.], dtype=float32)
    """

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for i, layer in enumerate(layers):
            if not callable(layer):
                raise TypeError(f"layers[{i}] of a Chain needs to be callable, got {layer!r}")
        self.layers = layers

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        if key is None:
            for layer in self.layers:
                x = layer(x)
            return x
        for i, layer in enumerate(self.layers):
            x = layer(x, key=random.fold(key, i)) if isinstance(layer, Layer) else layer(x)
        return x

    def __repr__(self) -> str:
        return f"Chain({', '.join(map(brief, self.layers))})"
