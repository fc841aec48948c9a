"""What a worker does: make its share of the candidates, evaluate them, answer with what it was asked.

An order names the run, the generation and the version of the arrays; the answer echoes them, so that nothing
that is late, cached or read from older arrays can be taken for the work of this generation.
"""

import pickle
import platform
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nnflat.es.block import Place
from nnflat.es.evaluators import Each, Evaluator
from nnflat.es.sampler import Sampler

__all__ = ["Answer", "Order", "Packed", "Sent", "Task", "fingerprint", "measure", "work"]

Report = dict[str, NDArray[Any]] | None


@dataclass(frozen=True)
class Task:
    """What all orders of a generation have in common. The strategy itself is never sent."""

    key: np.uint64
    sampler: Sampler  # without its arrays
    evaluator: Evaluator
    state: dict[str, NDArray[Any]] | None  # of the evaluator, where it has one

    def open(self) -> Self:
        """Return the task."""
        return self


@dataclass(frozen=True)
class Packed:
    """A task that is pickled once for all its orders, and unpickled once a worker."""

    data: bytes

    def open(self) -> Task:
        """Return the task."""
        return _opened(self.data)


@dataclass(frozen=True)
class Order:
    """A share of the work of a generation."""

    run: str
    generation: int
    version: int
    members: range
    task: Task | Packed


@dataclass(frozen=True, eq=False)
class Answer:
    """What came of an order; `fitness` is None where the arrays were not those that it names."""

    run: str
    generation: int
    version: int
    members: range
    fitness: NDArray[np.float64] | None
    report: Report
    fingerprint: str

    def answers(self, order: Order) -> bool:
        """Return whether this is the fitness that the order asks for."""
        echoed = (self.run, self.generation, self.version, self.members)
        asked = (order.run, order.generation, order.version, order.members)
        return self.fitness is not None and echoed == asked


@dataclass(frozen=True, eq=False)
class Sent:
    """Arrays that are sent themselves, in place of the place of a block."""

    version: int
    arrays: dict[str, NDArray[Any]]

    def read(self) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        """Return the version and the arrays, as `Place.read` does."""
        return np.array([self.version], np.uint64), self.arrays


def work(order: Order, arrays: Sent | Place) -> Answer:
    """Carry out an order, with the arrays of the sampler or the place of the block that has them."""
    try:
        version, found = arrays.read()
    except OSError:  # a worker on another machine, or the run is over
        return _answer(order, None, None)
    if version[0] != order.version:
        return _answer(order, None, None)
    task = order.task.open()
    evaluator = _kept(order.run, task)
    fitness, report = measure(replace(task.sampler, arrays=found), evaluator, order.members, task.key)
    if version[0] != order.version:
        return _answer(order, None, None)
    return _answer(order, fitness, report)


def measure(
    sampler: Sampler, evaluator: Evaluator, members: range, key: np.uint64
) -> tuple[NDArray[np.float64], Report]:
    """Return the fitness of these candidates, and the evaluator's report, if it gives one."""
    theta = sampler.arrays["theta"]
    if isinstance(evaluator, Each):
        buffer = np.empty_like(theta)
        return np.array([evaluator.fn(sampler.write(k, buffer), key) for k in members], np.float64), None
    given, report = _given(sampler, evaluator, members, key)
    fitness = np.asarray(given)
    if fitness.shape != (len(members),):
        raise ValueError(
            f"the evaluator gave a fitness of shape {fitness.shape} for {len(members)} candidates; "
            f"({len(members)},) is needed"
        )
    return fitness, report


def _given(sampler: Sampler, evaluator: Any, members: range, key: np.uint64) -> tuple[Any, Report]:
    """Return what the evaluator gives for these candidates: made here, or from the sampler if it takes that."""
    if hasattr(evaluator, "sample"):
        return evaluator.sample(sampler, members, key), None
    theta = sampler.arrays["theta"]
    rows = sampler.rows(members, np.empty((len(members), theta.size), theta.dtype))
    return evaluator.measure(rows, key) if hasattr(evaluator, "measure") else (evaluator(rows, key), None)


@cache
def fingerprint() -> str:
    """Return what the bits of a fitness may depend on, besides the program: versions and the processor."""
    from nnflat import __version__

    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    simd = ",".join(config["SIMD Extensions"].get("found", ()))
    parts = (__version__, np.__version__, blas.get("name"), blas.get("version"), platform.machine(), simd)
    return " ".join(map(str, parts))


def _answer(order: Order, fitness: NDArray[np.float64] | None, report: Report) -> Answer:
    return Answer(order.run, order.generation, order.version, order.members, fitness, report, fingerprint())


_EVALUATORS: OrderedDict[str, Any] = OrderedDict()


def _kept(run: str, task: Task) -> Any:
    """Return the evaluator; one that holds something (environments) is kept from order to order."""
    if task.state is None:
        return task.evaluator
    evaluator = _EVALUATORS.setdefault(run, task.evaluator)
    while len(_EVALUATORS) > 2:
        _EVALUATORS.popitem(last=False)[1].close()
    evaluator.restore(task.state)
    return evaluator


@lru_cache(maxsize=2)
def _opened(data: bytes) -> Task:
    return pickle.loads(data)
