"""Chain is composition."""

import numpy as np
import pytest

from nnflat import random
from nnflat.nn import Chain, Dense, Flatten, Layer


class Keyed(Layer):
    """Keep the keys that come in."""

    def __init__(self):
        self.seen = []

    def __call__(self, x, *, key=None):
        self.seen.append(key)
        return x


def test_chain_is_composition_to_the_bit():
    rng = np.random.default_rng(0)
    first, second = Dense(4, 8, "tanh", rng=rng), Dense(8, 2, rng=rng)
    x = rng.normal(size=(5, 4))
    np.testing.assert_array_equal(Chain(first, np.abs, second)(x), second(np.abs(first(x))))


def test_chains_nest():
    rng = np.random.default_rng(0)
    a, b, c = (Dense(3, 3, "tanh", rng=rng) for _ in range(3))
    x = rng.normal(size=(2, 3))
    np.testing.assert_array_equal(Chain(Chain(a, b), c)(x), Chain(a, b, c)(x))


def test_an_empty_chain_is_the_identity():
    x = np.zeros(3)
    assert Chain()(x) is x


def test_layers_are_a_tuple():
    layers = (Dense(2, 2), np.tanh)
    assert Chain(*layers).layers == layers


def test_without_a_key_no_layer_gets_one():
    layer = Keyed()
    Chain(layer, layer)(0)
    assert layer.seen == [None, None]


def test_each_layer_gets_the_key_folded_with_its_place():
    key = np.uint64(7)
    layer = Keyed()
    Chain(layer, np.negative, layer)(0, key=key)
    assert layer.seen == [random.fold(key, 0), random.fold(key, 2)]


def test_what_cannot_be_called_is_refused_with_its_place():
    with pytest.raises(TypeError, match=r"layers\[1\] of a Chain needs to be callable, got 'tanh'"):
        Chain(Dense(2, 2), "tanh")


def test_repr_is_one_line():
    text = "Chain(Flatten(start=1), Dense(4, 8, relu), tanh, Chain(Dense(8, 2)))"
    assert repr(Chain(Flatten(), Dense(4, 8, "relu"), np.tanh, Chain(Dense(8, 2)))) == text
