"""Compiled functions beside the same functions in NumPy: policies, a long elementwise chain, populations, tracing."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

import nnflat as nf

from .measure import Call, Compared, Counted, Growing, Timed, seconds
from .models import drawn

POLICIES = {
    "4-32-2": ((4, 32, 2), 1),
    "24-64-64-4": ((24, 64, 64, 4), 1),
    "64-32-10 batch 32": ((64, 32, 10), 32),
    "784-1024-10 batch 128": ((784, 1024, 10), 128),
}
WAYS = ["numpy", "compiled", "compiled_out"]


def parameters(sizes: tuple[int, ...]) -> list[np.ndarray]:
    """Return weights and biases in turn, small enough to keep tanh awake."""
    pairs = pairwise(sizes)
    return [leaf for n, m in pairs for leaf in (drawn(n, m) / np.float32(n), np.zeros(m, np.float32))]


def net(x: Any, *parameters: Any) -> Any:
    """Apply tanh layers."""
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        x = np.tanh(x @ weight + bias)
    return x


def ways(function: Callable[..., Any], *args: np.ndarray) -> dict[str, Call]:
    """Return a function's call by NumPy, compiled, and compiled with its results' memory given."""
    program = nf.compile(function)
    out = program(*args)
    return {
        "numpy": lambda: function(*args),
        "compiled": lambda: program(*args),
        "compiled_out": lambda: program(*args, out=out),
    }


@cache
def policies(name: str) -> dict[str, Call]:
    sizes, batch = POLICIES[name]
    held = parameters(sizes)
    return ways(lambda x: net(x, *held), drawn(batch, sizes[0]))


class Policies(Timed, Compared, Counted):
    """A call of a small net."""

    params = (list(POLICIES), WAYS)
    param_names = ("policy", "way")

    def calls(self, name: str) -> Mapping[str, Call]:
        return policies(name)


@cache
def products() -> dict[str, Call]:
    """Return the two matmuls of 784-1024-10 at batch 128 alone, and the whole net."""
    first, _, second, _ = parameters((784, 1024, 10))
    x, hidden = drawn(128, 784), drawn(128, 1024)
    outs = x @ first, hidden @ second

    def matmuls() -> None:
        np.matmul(x, first, out=outs[0])
        np.matmul(hidden, second, out=outs[1])

    return {"matmuls": matmuls} | {way: policies("784-1024-10 batch 128")[way] for way in WAYS}


class Products(Compared):
    """784-1024-10 at batch 128 against its two matmuls alone."""

    params = (["matmuls", *WAYS],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return products()


@cache
def chains() -> dict[str, Call]:
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = (x + 1.5) * 0.5
        return x

    return ways(chain, drawn(10**6))


class Chain(Timed, Compared, Counted):
    """Twenty additions and multiplications of a million elements."""

    params = (WAYS,)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return chains()


@cache
def identity() -> dict[str, Call]:
    return ways(lambda x: x, np.zeros(3))


class Overhead(Timed, Counted):
    """What a call costs that does nothing but copy three numbers."""

    params = (WAYS,)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return identity()


@cache
def candidates(pop: int = 64) -> dict[str, Call]:
    """Return batched matmuls by NumPy, and `vmap`, of one observation for each candidate of 4-32-2."""
    stacked = [np.stack([leaf] * pop) for leaf in parameters((4, 32, 2))]
    x = drawn(pop, 4)
    mapped = nf.vmap(net, 0, threads=1)
    out = mapped(x, *stacked)
    by_numpy = [leaf if leaf.ndim == 3 else leaf[:, None] for leaf in stacked]
    return {
        "numpy": lambda: net(x[:, None], *by_numpy),
        "vmap": lambda: mapped(x, *stacked),
        "vmap_out": lambda: mapped(x, *stacked, out=out),
    }


class Candidates(Timed, Compared, Counted):
    """Sixty-four candidates of 4-32-2, an observation each, on one thread."""

    params = (["numpy", "vmap", "vmap_out"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return candidates()

    def track_min_a_candidate(self, way: str) -> float:
        return seconds(self.call(way))[0].min / 64

    track_min_a_candidate.unit = "seconds"


class Populations(Growing):
    """Growth with the number of candidates of 4-32-2."""

    params = ([1, 4, 16, 64, 256, 1024], ["numpy", "vmap"])
    param_names = ("population", "way")

    def calls(self, pop: int) -> Mapping[str, Call]:
        return candidates(pop)


@cache
def threaded() -> dict[str, Call]:
    """Return `vmap` over a thousand candidates of 24-64-64-4, on one thread and on two."""
    stacked = [np.stack([leaf] * 1000) for leaf in parameters((24, 64, 64, 4))]
    x = drawn(1000, 24)
    calls = {}
    for name, threads in (("one", 1), ("two", 2)):
        mapped = nf.vmap(net, 0, threads=threads)
        mapped(x, *stacked)
        calls[name] = lambda mapped=mapped: mapped(x, *stacked)
    return calls


class Threads(Timed, Compared):
    """A thousand candidates of 24-64-64-4: the ratio of two threads to one."""

    params = (["one", "two"],)
    param_names = ("threads",)

    def calls(self) -> Mapping[str, Call]:
        return threaded()


def trace() -> None:
    """Trace, verify and plan a function of thirty operations."""

    def thirty(x: Any) -> Any:
        for _ in range(10):
            x = np.tanh(x + 1.5) * 0.5
        return x

    nf.compile(thirty).trace(np.zeros((4, 4)))


class Tracing:
    """The first call of a function of thirty operations."""

    def time_trace(self) -> None:
        trace()

    def track_min(self) -> float:
        return seconds(trace)[0].min

    track_min.unit = "seconds"
