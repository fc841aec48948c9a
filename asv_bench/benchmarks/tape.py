"""Compiled functions beside the same functions in NumPy: policies, a long elementwise chain, populations, tracing.

NumPy is a value of the parameter `way`, so that both stand in one graph. No class has a `setup` (see flat.py).
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import nnflat as nf

POLICIES = {"4-32-2": ((4, 32, 2), 1), "24-64-64-4": ((24, 64, 64, 4), 1), "64-32-10 batch 32": ((64, 32, 10), 32),
            "784-1024-10 batch 128": ((784, 1024, 10), 128)}
WAYS = ["numpy", "compiled", "compiled_out"]


def policy(sizes: tuple[int, ...], rng: np.random.Generator) -> tuple[list[np.ndarray], Callable[..., Any]]:
    """Return the parameters of a net of tanh layers, and the net as a function of an input and parameters."""
    parameters = []
    for n_in, n_out in pairwise(sizes):
        parameters += [rng.standard_normal((n_in, n_out)).astype(np.float32) / n_in, np.zeros(n_out, np.float32)]

    def net(x: Any, *parameters: Any) -> Any:
        for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
            x = np.tanh(x @ weight + bias)
        return x

    return parameters, net


def ways(function: Callable[..., Any], *args: np.ndarray) -> dict[str, Callable[[], Any]]:
    program = nf.compile(function)
    out = program(*args)
    return {"numpy": lambda: function(*args), "compiled": lambda: program(*args),
            "compiled_out": lambda: program(*args, out=out)}


@cache
def policies(name: str) -> dict[str, Callable[[], Any]]:
    sizes, batch = POLICIES[name]
    rng = np.random.default_rng(0)
    parameters, net = policy(sizes, rng)
    return ways(lambda x: net(x, *parameters), rng.standard_normal((batch, sizes[0])).astype(np.float32))


@cache
def chains() -> dict[str, Callable[[], Any]]:
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = (x + 1.5) * 0.5
        return x

    return ways(chain, np.random.default_rng(0).standard_normal(10**6).astype(np.float32))


@cache
def populations(threads: int) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    parameters, net = policy((24, 64, 64, 4), rng)
    stacked = [np.stack([each] * 1000) for each in parameters]
    mapped = nf.vmap(net, 0, threads=threads)
    x = rng.standard_normal((1000, 24)).astype(np.float32)
    mapped(x, *stacked)
    return lambda: mapped(x, *stacked)


class Policies:
    """A call of a small net."""

    params = (list(POLICIES), WAYS)
    param_names = ("policy", "way")

    def time_call(self, name: str, way: str) -> None:
        policies(name)[way]()


class Chain:
    """Twenty additions and multiplications of a million elements."""

    params = (WAYS,)
    param_names = ("way",)

    def time_chain(self, way: str) -> None:
        chains()[way]()


class Overhead:
    """What a call costs that does nothing but copy three numbers."""

    def time_identity(self) -> None:
        identity()()


@cache
def identity() -> Callable[[], Any]:
    return ways(lambda x: x, np.zeros(3))["compiled_out"]


class Populations:
    """A thousand candidates of 24-64-64-4."""

    params = (1, 2)
    param_names = ("threads",)

    def time_vmap(self, threads: int) -> None:
        populations(threads)()


class Tracing:
    """Trace, verify and plan a function of thirty operations."""

    def time_trace(self) -> None:
        def thirty(x: Any) -> Any:
            for _ in range(10):
                x = np.tanh(x + 1.5) * 0.5
            return x

        nf.compile(thirty).trace(np.zeros((4, 4)))
