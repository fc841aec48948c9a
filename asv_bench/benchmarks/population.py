"""Evolution at the sizes of its bars: many elements, shared noise, native environments.

What a generation of each strategy costs is in `evolution.py`.
"""

import time
import tracemalloc
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import find_spec

import numpy as np

import nnflat as nf
from nnflat import es, nn
from nnflat.es.engine import Engine

from .measure import Call, Compared, Timed
from .models import chain


@cache
def sep_cma() -> dict[str, Call]:
    """Return a generation of SepCMA, 10,000 elements, and as many draws by NumPy; the population is the usual one."""
    pop = 4 + int(3 * np.log(10_000))
    strategy = es.SepCMA(np.ones(10_000, np.float32), maximize=False, pop=pop, sigma=0.1)
    population, rng = strategy.ask(), np.random.default_rng(0)

    def generation() -> None:
        strategy.ask(out=population)
        strategy.tell(np.einsum("ij,ij->i", population, population))

    return {
        "normals": lambda: rng.standard_normal(dtype=np.float32, out=np.empty_like(population)),
        "generation": generation,
    }


class SepCMA(Timed):
    """Ask and tell of 10,000 elements, pop 31."""

    params = (["normals", "generation"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return sep_cma()


@cache
def table() -> dict[str, Call]:
    """Return ask and tell of a million elements with shared noise, and a copy of their population.

    The copy is the traffic that cannot be spared: to write 64 rows, and to read 32 windows of the table in `ask` and
    again in `tell`, which is as much as to read 64 rows.
    """
    noise = es.Table(1 << 24)
    strategy = es.OpenAIES(np.ones(10**6, np.float32), maximize=False, pop=64, sigma=0.1, noise=noise)
    population, fitness = strategy.ask(), np.arange(64.0)
    other = population.copy()

    def generation() -> None:
        strategy.ask(out=population)
        strategy.tell(fitness)

    return {"copy": lambda: np.copyto(other, population), "generation": generation}


class Table(Compared):
    """Ask and tell of a million elements, pop 64, against the memory traffic."""

    params = (["copy", "generation"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return table()


def balancing() -> tuple[nn.Chain, np.ndarray, nf.Layout]:
    """Return a policy 4-32-2 that pushes to the side to which the pole leans and falls, so that episodes are long."""
    model = chain(4, 32, 2)
    theta, layout = nf.destructure(model)
    theta[:] = 0
    first, second = layout.view(theta).layers
    first.weight[:, 0] = 0.002, 0.01, 0.1, 0.1
    second.weight[0] = -1, 1
    return model, theta, layout


class CartPole:
    """The native CartPole: environment steps a second, 256 policies 4-32-2, 4 episodes each, on two threads."""

    def track_rate(self) -> float:
        model, theta, layout = balancing()
        evaluator = es.Native(es.CartPole(), model, layout, episodes=4, threads=2)
        population = np.tile(theta, (256, 1))
        evaluator(population, np.uint64(0))
        before, start = evaluator.steps, time.perf_counter()
        for key in range(1, 4):
            evaluator(population, np.uint64(key))
        return (evaluator.steps - before) / (time.perf_counter() - start)

    track_rate.unit = "steps a second"


@cache
def acting(pop: int) -> dict[str, Call]:
    """Return a step of gymnasium's CartPoles, and what their policies 4-32-2 do for it."""
    model = es.policy_for("CartPole-v1", rng=np.random.default_rng(0))
    theta, layout = nf.destructure(model)
    gym = es.Gym("CartPole-v1", model, layout)
    population = theta + np.random.default_rng(0).normal(size=(pop, theta.size)).astype(np.float32) / 10
    with gym._borrowed(pop) as lanes:
        observations, alive = lanes.reset(1, np.uint64(0)), np.ones(pop, np.bool_)
        act = gym._policy.of(population, 1)
        actions = act(observations)
    return {"environment": lambda: lanes.step(actions, alive), "policies": lambda: act(observations)}


class Acting(Compared):
    """The policies of a population against the environments that they act in."""

    params = ([64, 1024], ["environment", "policies"])
    param_names = ("population", "way")

    def calls(self, pop: int) -> Mapping[str, Call]:
        if not find_spec("gymnasium"):
            raise NotImplementedError("gymnasium is not installed")
        return acting(pop)


class Unmoved(es.Sampler):
    """Candidates that cost nothing to make."""

    def write(self, k: int, out: np.ndarray) -> np.ndarray:
        return out


class Still(es.OpenAIES):
    """A strategy of such candidates."""

    sampler_type = Unmoved


def nothing(theta: np.ndarray, key: np.uint64) -> float:
    return 0.0


@cache
def sent() -> dict[str, Call]:
    """Return 200 evaluations of nothing on two processes: by the pool itself, and as a generation."""
    strategy = Still(np.zeros(10**6, np.float32), maximize=True, pop=200, sigma=0.1)
    pool = ProcessPoolExecutor(2)
    engine = Engine(pool, 16)
    return {
        "map": lambda: list(pool.map(nothing, range(200), range(200), chunksize=16)),
        "generation": lambda: engine.evaluate(strategy, es.Each(nothing)),
    }


class Workers(Timed):
    """A generation of a million elements whose fitness is nothing, on two processes."""

    params = (["map", "generation"],)
    param_names = ("way",)

    def calls(self) -> Mapping[str, Call]:
        return sent()


class Memory:
    """The peak of a run, n = 10^6, pop 256, by the size of its population."""

    timeout = 300.0

    def track_share(self) -> float:
        size, pop = 10**6, 256
        strategy = es.OpenAIES(np.zeros(size, np.float32), maximize=True, pop=pop, sigma=0.1, noise=es.Rademacher())
        tracemalloc.start()
        es.run(strategy, es.Each(nothing), generations=1, progress=False)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / (size * pop * 4)

    track_share.unit = "times the population"
