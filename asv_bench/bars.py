"""Print what the copies cost against `np.copyto` of the same bytes, measured in turns in one process.

    python asv_bench/bars.py

A row a model: microseconds a call and the ratio to `np.copyto`, the minimum and, in brackets, the mean.
"""

import itertools
import threading
import time

import numpy as np

import nnflat as nf
from nnflat import nn

ROUNDS = 80
SINGLE, DOUBLE = np.float32, np.float64


def dense(*sizes):
    """Return the arrays of a network of dense layers in a dict, as the seed has them."""
    pairs = enumerate(itertools.pairwise(sizes))
    return {
        f"{name}{i}": np.ones(shape, SINGLE)
        for i, (n_in, n_out) in pairs
        for name, shape in (("weight", (n_in, n_out)), ("bias", (n_out,)))
    }


MODELS = {  # name: (model, dtype of the flat vector)
    "784-1024-10": (dense(784, 1024, 10), SINGLE),
    "784-100-10": (dense(784, 100, 10), SINGLE),
    "4-32-2": (dense(4, 32, 2), SINGLE),
    "784-100-10, nn.Chain": (nn.Chain(nn.Dense(784, 100), nn.Dense(100, 10)), SINGLE),
    "1000 leaves x 16, tuple": (tuple(np.ones(16, SINGLE) for _ in range(1000)), SINGLE),
    "1000 leaves x 16, list": ([np.ones(16, SINGLE) for _ in range(1000)], SINGLE),
    "1000 leaves x 16, dict": ({str(i): np.ones(16, SINGLE) for i in range(1000)}, SINGLE),
    "Fortran 784 x 1024": (np.ones((784, 1024), SINGLE, order="F"), SINGLE),
    "Fortran 1024 x 1024": (np.ones((1024, 1024), SINGLE, order="F"), SINGLE),
    "Fortran 784 x 1024, float64": (np.ones((784, 1024), DOUBLE, order="F"), DOUBLE),
    "[:, ::2] of 784 x 2048": (np.ones((784, 2048), SINGLE)[:, ::2], SINGLE),
    "[:, ::-1] of 784 x 1024": (np.ones((784, 1024), SINGLE)[:, ::-1], SINGLE),
    "float64 flat, float32 leaves": (np.ones((784, 1024), SINGLE), DOUBLE),
    "40 MB in ten leaves": ([np.ones((1000, 1000), SINGLE) for _ in range(10)], SINGLE),
}


def measure(calls):
    """Return nanoseconds a call, (min, mean) each, of functions that take turns."""
    times = [[] for _ in calls]
    number = max(1, int(2e-3 / once(calls[0], 1)))
    for _ in range(ROUNDS):
        for call, spent in zip(calls, times, strict=True):
            spent.append(once(call, number) * 1e9)
    return [(min(spent), sum(spent) / len(spent)) for spent in times]


def once(call, number):
    """Return seconds a call over `number` calls."""
    start = time.perf_counter_ns()
    for _ in range(number):
        call()
    return (time.perf_counter_ns() - start) / 1e9 / number


def row(name, model, dtype):
    """Measure the verbs on one model."""
    flat, layout = nf.destructure(model, dtype=dtype)
    bound, copied = layout.bind(model), flat.copy()
    calls = [
        lambda: np.copyto(copied, flat),
        lambda: bound.load(flat),
        lambda: bound.store(out=flat),
        lambda: layout.restructure(flat, out=model),
    ]
    (low, mean), *others = measure(calls)
    cells = [f"{a / 1e3:9.2f} us {a / low:5.2f} ({b / mean:5.2f})" for a, b in others]
    print(f"{name:30}{low / 1e3:9.2f} us", *cells)


def new_model_against_numpy():
    """Compare `restructure` into a new model of 400 leaves with NumPy views and copies."""
    model = [{"weight": np.ones((4, 8), SINGLE), "bias": np.ones(8, SINGLE)} for _ in range(200)]
    flat, layout = nf.destructure(model)

    def by_hand():
        start, made = 0, []
        for layer in model:
            made.append({})
            for name, leaf in layer.items():
                made[-1][name] = flat[start : start + leaf.size].reshape(leaf.shape).copy()
                start += leaf.size
        return made

    (low, mean), (a, b) = measure([by_hand, lambda: layout.restructure(flat)])
    print(f"restructure, 400 leaves: {a / 1e3:.0f} us, NumPy {low / 1e3:.0f} us: {low / a:.2f} ({mean / b:.2f}) times")


def growth():
    """Compare 10,000 leaves with 1,000, and 100,000 with 10,000."""
    costs = {}
    for n in (1_000, 10_000, 100_000):
        model = [np.ones(16, SINGLE) for _ in range(n)]
        flat, layout = nf.destructure(model)
        calls = (lambda model=model: nf.destructure(model)), (lambda flat=flat, layout=layout: layout.restructure(flat))
        costs[n] = [min(once(call, 1) for _ in range(7)) for call in calls]
    for verb, few, more, many in zip(("destructure", "restructure"), *costs.values(), strict=True):
        print(f"{verb}: 10,000 leaves cost {more / few:.1f} times 1,000; 100,000 cost {many / more:.1f} times 10,000")


def threads():
    """Compare two threads, each loading a model of its own, with one that loads both."""
    bounds = [nf.Layout.of(model).bind(model) for model in (dense(784, 1024, 10), dense(784, 1024, 10))]
    flats = [bound.store() for bound in bounds]

    def load(bound, flat):
        for _ in range(200):
            bound.load(flat)

    def one():
        for pair in zip(bounds, flats, strict=True):
            load(*pair)

    def two():
        workers = [threading.Thread(target=load, args=pair) for pair in zip(bounds, flats, strict=True)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    alone, together = (min(once(call, 1) for _ in range(5)) for call in (one, two))
    print(f"two threads, 784-1024-10 each: {alone / together:.2f} times one")


if __name__ == "__main__":
    print(f"{'':30}{'copyto':>12}{'load':>26}{'store':>26}{'restructure(out=)':>26}")
    for name, (model, dtype) in MODELS.items():
        row(name, model, dtype)
    new_model_against_numpy()
    growth()
    threads()
