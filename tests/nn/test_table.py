"""A printed model is a table whose total is the number of parameters."""

import numpy as np

from nnflat import tree
from nnflat.nn import Chain, Dense, Flatten, Layer
from nnflat.nn.table import table


def total(text):
    return int(text.splitlines()[-1].split()[-1].replace(",", ""))


def test_the_table_has_a_row_a_layer():
    model = Chain(Flatten(), Dense(784, 32, "relu"), Chain(Dense(32, 10)))
    expected = """
path                 layer                 shapes                        parameters
layers[0]            Flatten(start=1)                                             0
layers[1]            Dense(784, 32, relu)  weight (784, 32), bias (32,)      25,120
layers[2].layers[0]  Dense(32, 10)         weight (32, 10), bias (10,)          330
total                                                                        25,450
"""
    assert str(model) == expected.strip()


def test_the_total_is_the_number_of_parameters():
    model = Chain(Dense(3, 5), np.tanh, Chain(Dense(5, 2), Dense(2, 2)))
    assert total(str(model)) == sum(leaf.size for leaf in tree.leaves(model))


def test_a_single_layer_prints_too():
    assert total(str(Dense(3, 5))) == 20


def test_a_shared_layer_counts_once_and_says_what_it_is_tied_to():
    shared = Dense(3, 3)
    text = str(Chain(shared, shared))
    assert total(text) == 12
    assert "weight (3, 3) = layers[0].weight, bias (3,) = layers[0].bias" in text


def test_a_transposed_weight_counts_once():
    first = Dense(2, 3)
    second = Dense.__tree_rebuild__({**Dense(3, 2).__tree_children__(), "weight": first.weight.T})
    assert total(str(Chain(first, second))) == 6 + 3 + 2


def test_parts_of_one_buffer_are_not_tied():
    buffer = np.zeros((2, 3))
    assert total(table({"a": buffer[0], "b": buffer[1], "c": np.zeros(0)})) == 6


def test_a_model_with_parameters_and_layers_of_its_own_shows_both():
    class Policy(Layer):
        def __init__(self):
            self.body = Dense(4, 2)
            self.log_std = np.zeros(2)
            self.limits = (3, 3)

    lines = str(Policy()).splitlines()
    assert lines[1].split() == ["<root>", "Policy", "log_std", "(2,)", "2"]
    assert lines[2].split()[:2] == ["body", "Dense(4,"]
    assert total(lines[-1]) == 12


def test_any_tree_can_be_shown_and_statics_are_left_out():
    text = table({"net": {"weight": np.zeros((2, 3)), "steps": np.arange(4), "name": "a"}})
    assert text.splitlines()[1].split() == ["net", "dict", "weight", "(2,", "3)", "6"]
    assert total(text) == 6


def test_a_tree_without_parameters_has_total_zero():
    assert total(table({})) == 0
