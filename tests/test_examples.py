"""The examples of the docs folder, on small sizes."""

import importlib.util
from pathlib import Path

import numpy as np

import nnflat as nf
from nnflat import nn

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_compiled_roll_out_gives_the_bits_of_the_python_loop():
    example = load("cartpole_rollout")
    rng = np.random.default_rng(1)
    layout = nf.Layout.of(nn.Chain(nn.Dense(4, 8, "tanh", rng=rng, dtype=float), nn.Dense(8, 2, rng=rng, dtype=float)))
    population, start = example.population_of(layout, 6, rng), rng.uniform(-0.05, 0.05, 4)
    rollout = example.make_rollout(layout, 30)
    fitness = nf.vmap(rollout, (0, None), threads=2)(population, start)
    assert fitness.tobytes() == np.array([rollout(flat, start) for flat in population]).tobytes()
    assert len(set(fitness)) > 1


def test_the_roll_out_example_prints_its_figures(capsys):
    load("cartpole_rollout").main(count=4, steps=5)
    assert "equal to the loop to the bit: True" in capsys.readouterr().out
