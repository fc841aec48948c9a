"""Run under callgrind by test_harness.py: the `load` of a small model, and one that is six times as slow."""

import numpy as np
from benchmarks.instructions import run

import nnflat as nf

model = {"weight": np.ones((4, 32), np.float32), "bias": np.ones(32, np.float32)}
flat, layout = nf.destructure(model)
load = layout.bind(model).load


def sixfold():
    for _ in range(6):
        load(flat)


if __name__ == "__main__":
    run({"load": lambda: lambda: load(flat), "load, sixfold": lambda: sixfold})
