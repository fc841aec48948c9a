"""run: ask, evaluate, tell, generation after generation, until something says stop."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import timedelta
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.checkpoint import Checkpoint, Due
from nnflat.es.engine import CHUNK, Engine
from nnflat.es.evaluators import Evaluator
from nnflat.es.history import History
from nnflat.es.progress import show
from nnflat.es.record import Record, evaluate_theta
from nnflat.es.result import Result
from nnflat.es.stop import Stop

__all__ = ["run"]

Callback = Callable[[Record], object]


def run(
    strategy: Any,
    evaluator: Evaluator,
    *,
    generations: int,
    executor: Executor | None = None,
    chunk: int = CHUNK,
    timeout: float | None = None,
    stop: Iterable[Stop] = (),
    callbacks: Iterable[Callback] = (),
    checkpoint: str | PathLike[str] | None = None,
    every: int | timedelta = 10,
    resume: bool = False,
    progress: bool = True,
) -> Result:
    """Run a strategy on an evaluator and return what it found.

    The strategy is moved on in place; running it again continues. Ctrl-C and SIGTERM end the run after the
    last whole generation, save the checkpoint and return the result so far, with a last evaluation of theta; a
    second one is raised. The result is the same to the bit for every executor and number of workers, and
    across a checkpoint.

    Parameters
    ----------
    strategy : Strategy
    evaluator : callable
        (population, key) -> fitness: `Each`, `Batch`, `Gym`, or any function.
    generations : int
        At most so many; a resumed run counts from its beginning.
    executor : concurrent.futures.Executor, optional
        Who evaluates; see `evaluate`. None evaluates here.
    chunk : int
        Candidates a call of the evaluator.
    timeout : float, optional
        Seconds that workers have for a generation; see `evaluate`.
    stop : iterable of callables
        Rules such as `Solved(475)`: called with a `Record` after each generation; the first that says True
        ends the run.
    callbacks : iterable of callables
        Called with the `Record` of each generation, before the rules.
    checkpoint : path, optional
        A `.safetensors` or `.npz` file, written atomically every so often, and at the end whatever ends it.
    every : int or timedelta
        Generations, or time, between two checkpoints.
    resume : bool
        Whether to go on from the checkpoint, if the file exists; strategy and evaluator are to be made as they
        were then.
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
    stop, callbacks, due = list(stop), list(callbacks), Due(every)
    with Engine(executor, chunk, timeout) as engine, _sigterm_interrupts():
        saved = Checkpoint(checkpoint, strategy, evaluator, engine.chunk)
        history = saved.load() if resume else History()
        stopped_by, record = "generations", None
        try:
            with show(generations, enabled=progress) as update:
                for record in _generations(strategy, evaluator, engine, generations, history):
                    update(record)
                    for callback in callbacks:
                        callback(record)
                    if rule := next((rule for rule in stop if rule(record)), None):
                        stopped_by = getattr(rule, "__name__", type(rule).__name__)
                        break
                    if due(record.generation):
                        saved.save(history)
            fitness = _fitness_at_end(record, strategy, evaluator)
        except KeyboardInterrupt:
            stopped_by = "interrupted"
            saved.save(history)
            fitness = _fitness_at_end(record, strategy, evaluator)
        finally:
            saved.save(history)
    return Result(
        theta=strategy.theta.copy(),
        fitness=fitness,
        history=history.arrays(),
        stopped_by=stopped_by,
        generations=len(history),
        evaluations=history.last("evaluations"),
    )


def _generations(
    strategy: Any, evaluator: Evaluator, engine: Engine, generations: int, history: History
) -> Iterator[Record]:
    """Yield the record of one generation after another, once it is in the history."""
    begun = time.perf_counter() - history.last("seconds")
    counted = _steps(evaluator) - history.last("steps")
    for done in range(len(history) + 1, generations + 1):
        fitness = _advance(strategy, evaluator, engine)
        record = Record(
            generation=done,
            fitness=fitness,
            strategy=strategy,
            evaluator=evaluator,
            evaluations=history.last("evaluations") + fitness.size,
            steps=_steps(evaluator) - counted,
            seconds=time.perf_counter() - begun,
            bests=history.bests,
        )
        history.append(record)
        yield record


def _advance(strategy: Any, evaluator: Any, engine: Engine) -> NDArray[Any]:
    """Take one generation and return its fitness; if that fails, leave strategy and evaluator as they were."""
    before = strategy.state()
    counted = evaluator.state() if hasattr(evaluator, "state") else None
    try:
        fitness = engine.evaluate(strategy, evaluator)
        strategy.tell(fitness)
    except BaseException:
        strategy.restore(before)
        if counted is not None:
            evaluator.restore(counted)
        raise
    told = np.array(fitness, np.float64)
    told.flags.writeable = False
    return told


def _fitness_at_end(record: Record | None, strategy: Any, evaluator: Evaluator) -> float:
    return evaluate_theta(strategy, evaluator) if record is None else record.theta_fitness


def _steps(evaluator: Evaluator) -> int:
    return getattr(evaluator, "steps", 0)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does; signals reach the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
