"""A generation of a strategy on the sphere: ask, a synthetic fitness, tell; and what evaluation adds to it.

The baseline, `normals`, is as many draws by NumPy as the population has elements. No class has a `setup`; see
`flat.py`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np

from nnflat import es

POP = 64

STRATEGIES: dict[str, Callable[[np.ndarray], Any]] = {
    "OpenAIES": lambda theta: es.OpenAIES(theta, maximize=False, pop=POP, sigma=0.1),
    "OpenAIES table": lambda theta: es.OpenAIES(theta, maximize=False, pop=POP, sigma=0.1, noise=es.Table(1 << 22)),
    "OpenAIES signs": lambda theta: es.OpenAIES(theta, maximize=False, pop=POP, sigma=0.1, noise=es.Rademacher()),
    "PGPE": lambda theta: es.PGPE(theta, maximize=False, pop=POP, sigma=0.1),
    "SNES": lambda theta: es.SNES(theta, maximize=False, pop=POP, sigma=0.1),
    "SepCMA": lambda theta: es.SepCMA(theta, maximize=False, pop=POP, sigma=0.1),
    "LMMAES": lambda theta: es.LMMAES(theta, maximize=False, pop=POP, sigma=0.1),
    "CRFMNES": lambda theta: es.CRFMNES(theta, maximize=False, pop=POP, sigma=0.1),
}


@cache
def generation(name: str, size: int) -> Callable[[], object]:
    """Return what makes one generation; the memory of its population is there."""
    theta, population = np.ones(size, np.float32), np.ones((POP, size), np.float32)
    if name == "normals":
        rng = np.random.default_rng(0)
        return lambda: rng.standard_normal(dtype=np.float32, out=population)
    strategy = STRATEGIES[name](theta)

    def one() -> None:
        candidates = strategy.ask(out=population)
        strategy.tell(np.einsum("ij,ij->i", candidates, candidates))

    return one


class Generation:
    """Ask, evaluate, tell."""

    params = (["normals", *STRATEGIES], [226, 6_020])
    param_names = ("strategy", "size")

    def time_generation(self, strategy: str, size: int) -> None:
        generation(strategy, size)()


@cache
def evaluation(engine: str) -> Callable[[], object]:
    """Return an evaluation of nothing, 200 candidates in chunks of 16."""
    strategy = es.OpenAIES(np.ones(16, np.float32), maximize=False, pop=200, sigma=0.1)
    nothing = es.Batch(lambda population, key: np.zeros(len(population)))
    executor = ThreadPoolExecutor(2) if engine == "threads" else None
    return lambda: es.evaluate(strategy, nothing, executor=executor)


class Evaluation:
    """What it costs to have a population evaluated."""

    params = (["here", "threads"],)
    param_names = ("engine",)

    def time_evaluation(self, engine: str) -> None:
        evaluation(engine)()
