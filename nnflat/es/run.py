"""run: ask, evaluate, tell, generation after generation, until something says stop."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.evaluators import Evaluator, evaluate
from nnflat.es.progress import show
from nnflat.es.record import Record, evaluate_theta
from nnflat.es.result import Result
from nnflat.es.stop import Stop
from nnflat.es.strategy import Strategy

__all__ = ["run"]

Callback = Callable[[Record], object]


def run(
    strategy: Strategy,
    evaluator: Evaluator,
    *,
    generations: int,
    stop: Iterable[Stop] = (),
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
) -> Result:
    """Run a strategy on an evaluator and return what it found.

    The strategy is moved on in place; running it again continues. Ctrl-C ends the run after the last whole
    generation and returns the result so far, with a last evaluation of theta; a second one is raised.

    Parameters
    ----------
    strategy : Strategy
    evaluator : callable
        (population, key) -> fitness: `Each`, `Batch`, `Gym`, or any function.
    generations : int
        At most so many.
    stop : iterable of callables
        Rules such as `Solved(475)`: called with a `Record` after each generation; the first that says True
        ends the run.
    callbacks : iterable of callables
        Called with the `Record` of each generation, before the rules.
    progress : bool
        Whether to show, on stderr, generation, best, mean, speed and time left.

    Returns
    -------
    Result

    Examples
    --------
    >>> from nnflat import es
    >>> strategy = es.OpenAIES(np.ones(3), maximize=False, pop=20, sigma=0.1)
    >>> sphere = es.Batch(lambda population, key: np.sum(population**2, axis=1))
    >>> result = es.run(strategy, sphere, generations=500, stop=[es.Solved(0.01)], progress=False)
    >>> result.stopped_by, result.fitness <= 0.01, result.generations == len(result.history["best"])
    ('Solved', True, True)
    """
    stop, callbacks = list(stop), list(callbacks)
    records: list[Record] = []
    stopped_by = "generations"
    try:
        with show(generations, enabled=progress) as update:
            for record in _generations(strategy, evaluator, generations):
                records.append(record)
                update(record)
                for callback in callbacks:
                    callback(record)
                if rule := next((rule for rule in stop if rule(record)), None):
                    stopped_by = getattr(rule, "__name__", type(rule).__name__)
                    break
        fitness = _fitness_at_end(records, strategy, evaluator)
    except KeyboardInterrupt:
        stopped_by = "interrupted"
        fitness = _fitness_at_end(records, strategy, evaluator)
    return Result(
        theta=strategy.theta.copy(),
        fitness=fitness,
        history=_history(records),
        stopped_by=stopped_by,
        generations=len(records),
        evaluations=len(records) * strategy.pop,
    )


def _generations(strategy: Strategy, evaluator: Evaluator, generations: int) -> Iterable[Record]:
    """Yield the record of one generation after another."""
    start, steps = time.perf_counter(), _steps(evaluator)
    for done in range(1, generations + 1):
        fitness = _advance(strategy, evaluator)
        yield Record(
            generation=done,
            fitness=fitness,
            strategy=strategy,
            evaluator=evaluator,
            evaluations=done * strategy.pop,
            steps=_steps(evaluator) - steps,
            seconds=time.perf_counter() - start,
        )


def _advance(strategy: Strategy, evaluator: Evaluator) -> NDArray[Any]:
    """Take one generation and return its fitness; if interrupted, leave the strategy as it was."""
    before = strategy.state()
    try:
        fitness = evaluate(strategy, evaluator)
        strategy.tell(fitness)
    except KeyboardInterrupt:
        strategy.restore(before)
        raise
    told = np.array(fitness, np.float64)
    told.flags.writeable = False
    return told


def _fitness_at_end(records: list[Record], strategy: Strategy, evaluator: Evaluator) -> float:
    return records[-1].theta_fitness if records else evaluate_theta(strategy, evaluator)


def _steps(evaluator: Evaluator) -> int:
    return getattr(evaluator, "steps", 0)


def _history(records: list[Record]) -> dict[str, NDArray[Any]]:
    """Return the records as a dict of arrays."""
    names = ("generation", "best", "mean", "evaluations", "steps", "seconds")
    dtypes = (np.int64, np.float64, np.float64, np.int64, np.int64, np.float64)
    return {
        name: np.array([getattr(record, name) for record in records], dtype)
        for name, dtype in zip(names, dtypes, strict=True)
    }
