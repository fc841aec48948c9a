"""What a worker does: make its share of the candidates, evaluate them, answer with what it was asked.

An order names the run, the generation and the version of the arrays; the answer echoes them, so that nothing
that is late, cached or read from older arrays can be taken for the work of this generation.
"""

import platform
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.block import Place
from nnflat.es.evaluators import Each, Evaluator
from nnflat.es.sampler import Sampler

__all__ = ["Answer", "Order", "Sent", "fingerprint", "measure", "work"]

Report = dict[str, NDArray[Any]] | None


@dataclass(frozen=True)
class Order:
    """A share of the work of a generation. The strategy itself is never sent."""

    run: str
    generation: int
    version: int
    members: range
    key: np.uint64
    sampler: Sampler  # without its arrays, where a block has them
    evaluator: Evaluator
    state: dict[str, NDArray[Any]] | None  # of the evaluator, where it has one


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
    evaluator = _kept(order)
    fitness, report = measure(replace(order.sampler, arrays=found), evaluator, order.members, order.key)
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


def _kept(order: Order) -> Any:
    """Return the evaluator; one that holds something (environments) is kept from order to order."""
    if order.state is None:
        return order.evaluator
    evaluator = _EVALUATORS.setdefault(order.run, order.evaluator)
    while len(_EVALUATORS) > 2:
        _EVALUATORS.popitem(last=False)[1].close()
    evaluator.restore(order.state)
    return evaluator
