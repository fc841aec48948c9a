"""Engine: the evaluation of a generation, here or by the workers of an executor. The result is the same.

E1  The chunk is a number of the run. Which candidates are evaluated in one call never depends on the engine
    or on the number of workers.
E2  Fitnesses and reports are put together in the order of the candidates, whatever order they come in.
E3  Work that is lost (a worker died, an answer is of another version or too late) is given out again, at
    most `ATTEMPTS` times, by a new pool where the old one broke. What a fitness raises is raised here.
"""

import pickle
import secrets
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from concurrent.futures import ProcessPoolExecutor as Processes
from concurrent.futures.process import BrokenProcessPool
from concurrent.futures.thread import BrokenThreadPool
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.block import Block
from nnflat.es.checks import checked_chunk
from nnflat.es.evaluators import Evaluator
from nnflat.es.work import Answer, Order, Packed, Report, Sent, Task, fingerprint, measure, work

__all__ = ["CHUNK", "Engine", "evaluate"]

CHUNK = 16
ATTEMPTS = 4


def evaluate(
    strategy: Any,
    evaluator: Evaluator,
    *,
    executor: Executor | None = None,
    chunk: int = CHUNK,
    timeout: float | None = None,
) -> NDArray[np.float64]:
    """Return the fitness of each candidate of the present generation; the strategy does not move on.

    Parameters
    ----------
    strategy : Strategy
    evaluator : callable
        `Each`, `Batch`, `Gym`, or any function (population, key) -> fitness.
    executor : concurrent.futures.Executor, optional
        Threads, processes, loky, `client.get_executor(pure=False)` of Dask; None evaluates here.
    chunk : int
        Candidates a call of the evaluator (but `Each` has one). Another chunk may give other bits, another
        engine or number of workers does not.
    timeout : float, optional
        Seconds that workers have for the generation. What is missing then counts as lost, and processes that
        hang are killed; threads cannot be. None waits for ever.

    Raises
    ------
    RuntimeError
        If the same candidates were lost four times, with the workers that evaluated them.

    Examples
    --------
    >>> from nnflat import es
    >>> strategy = es.OpenAIES(np.zeros(3), maximize=False, pop=4, sigma=0.1)
    >>> fitness = es.evaluate(strategy, es.Each(lambda theta, key: np.sum(theta**2)))
    >>> fitness.shape, strategy.generation
    ((4,), 0)
    >>> with ThreadPoolExecutor(2) as threads:
    ...     again = es.evaluate(strategy, es.Each(lambda theta, key: np.sum(theta**2)), executor=threads)
    >>> bool((fitness == again).all())
    True
    """
    with Engine(executor, chunk, timeout) as engine:
        return engine.evaluate(strategy, evaluator)


class Engine:
    """Evaluates generations for a run; a context manager, which gives back what it took."""

    def __init__(
        self, executor: Executor | None = None, chunk: int = CHUNK, timeout: float | None = None
    ) -> None:
        self.chunk = checked_chunk(chunk)
        self._timeout = timeout
        self._executor = executor
        self._owned: list[Executor] = []
        self._block: Block | None = None
        self._run = secrets.token_hex(8)
        self._version = 0
        self._warned = False

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *error: object) -> None:
        if self._block is not None:
            self._block.close()
        for executor in self._owned:
            executor.shutdown(cancel_futures=True)

    def evaluate(self, strategy: Any, evaluator: Evaluator) -> NDArray[np.float64]:
        """Return the fitness of each candidate of the present generation."""
        shares = [range(k, min(k + self.chunk, strategy.pop)) for k in range(0, strategy.pop, self.chunk)]
        give = self._here if self._executor is None else self._by_workers
        results = give(strategy, evaluator, shares)
        for _, report in results:
            if report is not None:
                evaluator.absorb(report)  # type: ignore[attr-defined]
        return np.concatenate([fitness for fitness, _ in results])

    def _here(self, strategy: Any, evaluator: Evaluator, shares: list[range]) -> list[tuple[Any, Report]]:
        strategy.hold()
        sampler, key = strategy.sampler, strategy.key
        return [measure(sampler, evaluator, members, key) for members in shares]

    def _by_workers(self, strategy: Any, evaluator: Evaluator, shares: list[range]) -> list[tuple[Any, Report]]:
        done: dict[range, Answer] = {}
        for attempt in range(ATTEMPTS):
            left = [members for members in shares if members not in done]
            orders = self._orders(strategy, evaluator, left)
            done |= self._gather(orders, self._sent(strategy.sampler.arrays, by_value=attempt > 1))
            if len(done) == len(shares):
                return [(done[members].fitness, done[members].report) for members in shares]
        lost = [f"{members.start} to {members[-1]}" for members in shares if members not in done]
        raise RuntimeError(
            f"candidates {', '.join(lost)} of generation {strategy.generation} were lost {ATTEMPTS} times: their "
            f"evaluation kills its worker, or the workers cannot be reached"
        )

    def _orders(self, strategy: Any, evaluator: Evaluator, shares: list[range]) -> list[Order]:
        self._version += 1
        ids = self._run, strategy.generation, self._version
        task = self._packed(Task(strategy.key, replace(strategy.sampler, arrays={}, held=None), evaluator, None))
        return [Order(*ids, members, task) for members in shares]

    def _packed(self, task: Task) -> Task | Packed:
        """Return the task as it is for threads, with the evaluator's state and pickled for all others."""
        if isinstance(self._executor, ThreadPoolExecutor):
            return task
        state = task.evaluator.state() if hasattr(task.evaluator, "state") else None
        return Packed(_dumps_of(self._executor)(replace(task, state=state)))

    def _sent(self, arrays: dict[str, NDArray[Any]], *, by_value: bool) -> Any:
        """Return what a worker finds the arrays by: themselves, a place in memory, a future of Dask's."""
        client = _dask_client(self._executor)
        if client is not None:  # a dict that is scattered itself gives its keys to the cluster, for ever
            return client.scatter([Sent(self._version, arrays)], hash=False, broadcast=True)[0]
        if by_value or isinstance(self._executor, ThreadPoolExecutor):
            return Sent(self._version, arrays)
        if self._block is None or not self._block.fits(arrays):
            if self._block is not None:
                self._block.close()
            self._block = Block(arrays)
        self._block.write(arrays, self._version)
        return self._block.place

    def _gather(self, orders: list[Order], arrays: Any) -> dict[range, Answer]:
        """Return the answers by their members; those of lost work are missing."""
        futures = self._submit(orders, arrays)
        answers, whole = {}, len(futures) == len(orders)
        try:
            for future in as_completed(futures, timeout=self._timeout):
                error = None if future.cancelled() else future.exception()
                if future.cancelled() or _is_loss(error):
                    whole = whole and not isinstance(error, BrokenProcessPool | BrokenThreadPool)
                elif error is not None:
                    raise error
                elif future.result().answers(futures[future]):
                    answers[futures[future].members] = future.result()
        except TimeoutError:
            whole = False
        finally:
            for future in futures:
                future.cancel()
        if not whole:
            self._replace()
        self._compare([answer.fingerprint for answer in answers.values()])
        return answers

    def _submit(self, orders: list[Order], arrays: Any) -> dict[Future[Answer], Order]:
        """Give the orders out, up to where the executor turns out to be broken."""
        assert self._executor is not None
        futures = {}
        try:
            for order in orders:
                futures[self._executor.submit(work, order, arrays)] = order
        except (BrokenProcessPool, BrokenThreadPool):
            pass
        return futures

    def _replace(self) -> None:
        """Take an executor like the present one, whose workers are dead or hang."""
        old: Any = self._executor
        workers = getattr(old, "_max_workers", None)
        if type(self._executor) is Processes:
            _kill(old)
            self._executor = Processes(
                max_workers=workers,
                mp_context=old._mp_context,
                initializer=old._initializer,
                initargs=old._initargs,
            )
            self._owned.append(self._executor)
        elif type(old).__module__.startswith("loky"):
            import loky

            old.shutdown(kill_workers=True)
            self._executor = loky.get_reusable_executor(max_workers=workers)
        elif isinstance(old, ThreadPoolExecutor):
            self._executor = ThreadPoolExecutor(workers)
            self._owned.append(self._executor)

    def _compare(self, fingerprints: list[str]) -> None:
        others = {other for other in fingerprints if other != fingerprint()}
        if others and not self._warned:
            self._warned = True
            warnings.warn(
                f"a worker's build differs, so that bits may: here {fingerprint()}; there {others.pop()}", stacklevel=5
            )


def _dumps_of(executor: Any) -> Callable[[object], bytes]:
    """Return how the executor's workers are sent functions: loky and Dask take those of a notebook, too."""
    if type(executor).__module__.partition(".")[0] in ("loky", "distributed"):
        import cloudpickle

        return cloudpickle.dumps
    return pickle.dumps


def _kill(pool: Any) -> None:
    """End the processes of a pool, whatever they are at."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def _is_loss(error: BaseException | None) -> bool:
    """Return whether work was lost, rather than done and failed."""
    lost = isinstance(error, BrokenProcessPool | BrokenThreadPool | CancelledError)
    return lost or type(error).__name__ in ("KilledWorker", "FutureCancelledError", "FuturesCancelledError")


def _dask_client(executor: Executor | None) -> Any:
    """Return the client of a Dask executor, which keeps arrays where its workers are."""
    return getattr(executor, "_client", None) if type(executor).__module__.startswith("distributed") else None
