"""Print what evolution costs against a baseline each, measured in turns in one process.

    OPENBLAS_NUM_THREADS=1 python asv_bench/bars_evolution.py

A row a case: milliseconds, the minimum and, in brackets, the mean, of ours and of the baseline; and the ratio of the
minima. evosax (its own environment: pip install evosax) and gymnasium are compared where they are installed.
"""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec

import numpy as np

from nnflat import destructure, es, nn
from nnflat.es.engine import Engine

ROUNDS = 60
POP = 64


def compare(name: str, ours: Callable[[], object], baseline: Callable[[], object], what: str) -> None:
    """Time both in turns, after one call of each, and print a row."""
    ours(), baseline()
    times = np.array([[once(ours), once(baseline)] for _ in range(ROUNDS)]) * 1e3
    (mine, theirs), (mean, their_mean) = times.min(axis=0), times.mean(axis=0)
    print(f"{name:34} {mine:9.3f} ({mean:.3f})  {what:26} {theirs:9.3f} ({their_mean:.3f})  {mine / theirs:5.2f}")


def once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def generations(strategy: es.Strategy, count: int = 10) -> Callable[[], object]:
    """Return what runs so many generations on the sphere."""
    population = np.ones((strategy.pop, strategy.theta.size), np.float32)

    def run() -> None:
        for _ in range(count):
            candidates = strategy.ask(out=population)
            strategy.tell(np.einsum("ij,ij->i", candidates, candidates))

    return run


def evosax_generations(size: int, count: int = 10) -> Callable[[], object]:
    """Return what runs so many generations of evosax's OpenAI-ES in one jitted scan."""
    import jax
    from evosax.algorithms import Open_ES

    strategy = Open_ES(population_size=POP, solution=jax.numpy.ones(size))
    params, key = strategy.default_params, jax.random.key(0)

    def step(carry, _):
        key, state = carry
        key, first, second = jax.random.split(key, 3)
        population, state = strategy.ask(first, state, params)
        fitness = jax.numpy.sum(population**2, axis=1)
        return (key, strategy.tell(second, population, fitness, state, params)[0]), None

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length=count)[0])
    start = key, strategy.init(key, jax.numpy.ones(size), params)
    return lambda: jax.block_until_ready(run(start))


def small() -> None:
    """Compare 10 generations of a small vector with evosax's, or with the draws alone."""
    rng = np.random.default_rng(0)
    for size in (226, 6_020):
        ours = generations(es.OpenAIES(np.ones(size, np.float32), maximize=False, pop=POP, sigma=0.1))
        if find_spec("evosax"):
            compare(f"10 generations, n = {size:,}", ours, evosax_generations(size), "evosax, one jitted scan")
        drawn = np.empty((10 * POP // 2, size), np.float32)
        draws = lambda drawn=drawn: rng.standard_normal(dtype=np.float32, out=drawn)  # noqa: E731
        compare(f"10 generations, n = {size:,}", ours, draws, "NumPy's normals alone")


def separable() -> None:
    """Time a generation of SepCMA, n = 10,000, at the usual population."""
    pop = 4 + int(3 * np.log(10_000))
    ours = generations(es.SepCMA(np.ones(10_000, np.float32), maximize=False, pop=pop, sigma=0.1), 1)
    drawn, rng = np.empty((pop, 10_000), np.float32), np.random.default_rng(0)
    compare("SepCMA, n = 10,000", ours, lambda: rng.standard_normal(dtype=np.float32, out=drawn), "NumPy's normals")


def table(size: int = 1_000_000) -> None:
    """Compare ask and tell of a large vector by a table with the traffic that they must have."""
    noise, fitness = es.Table(1 << 25), np.arange(float(POP))
    strategy = es.OpenAIES(np.ones(size, np.float32), maximize=False, pop=POP, sigma=0.1, noise=noise)
    population, windows = np.ones((POP, size), np.float32), np.ones((POP // 2, size), np.float32)
    moments = [np.ones(size, np.float32) for _ in range(4)]

    def traffic() -> None:
        for k, row in enumerate(population):
            np.copyto(row, windows[k // 2])
        for window in (*windows, *moments):
            window.max()
        for moment in moments[:3]:
            np.copyto(moment, moments[3])

    def ask_and_tell() -> None:
        strategy.ask(out=population)
        strategy.tell(fitness)

    compare("ask and tell, table, n = 1,000,000", ask_and_tell, traffic, "its traffic")


def policy(pop: int) -> None:
    """Compare the policies of a population with the environments that they act in."""
    model = es.policy_for("CartPole-v1", rng=np.random.default_rng(0))
    theta, layout = destructure(model)
    gym = es.Gym("CartPole-v1", model, layout)
    population = theta + np.random.default_rng(0).normal(size=(pop, theta.size)).astype(np.float32) / 10
    with gym._borrowed(pop) as lanes:
        observations, alive = lanes.reset(1, np.uint64(0)), np.ones(pop, np.bool_)
        act = gym._policy.of(population, 1)
        actions = act(observations)
        compare(f"{pop:,} policies", lambda: act(observations), lambda: lanes.step(actions, alive), "CartPole itself")
    gym.close()


def native(pop: int = 1024, learning: int = 60) -> None:
    """Print the environment steps a second of native roll-outs whose episodes are all long."""
    rng = np.random.default_rng(0)
    model = nn.Chain(nn.Dense(3, 32, "tanh", rng=rng), nn.Dense(32, 1, rng=rng))
    theta, layout = destructure(model)
    cart = nn.Chain(nn.Dense(4, 32, "tanh", rng=rng), nn.Dense(32, 2, rng=rng))
    start, cart_layout = destructure(cart)
    strategy = es.OpenAIES(0.3 * start, maximize=True, pop=POP, sigma=0.2)
    found = es.run(strategy, es.Native(es.CartPole(), cart, cart_layout), generations=learning, progress=False)
    for environment, policy, centre, described in (
        (es.CartPole(), cart, found.theta, cart_layout),
        (es.Pendulum(), model, theta, layout),
    ):
        for threads in (1, 2):
            evaluator = es.Native(environment, policy, described, threads=threads)
            rate, cpu = steps_a_second(evaluator, np.repeat(centre[None], pop, axis=0))
            print(f"{environment}, {threads} threads: {rate:.2f} million steps a second, {cpu:.2f} a CPU second")


def steps_a_second(evaluator: es.Native, population: np.ndarray) -> tuple[float, float]:
    """Return how many million steps there are in a second, and in a second of the processor, at best."""
    evaluator(population, np.uint64(0))
    steps, times, cpu = evaluator.steps, [], []
    for _ in range(ROUNDS // 6):
        start = time.perf_counter(), time.process_time()
        evaluator(population, np.uint64(0))
        times.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    return steps / min(times) / 1e6, steps / min(cpu) / 1e6


class _Still(es.Sampler):
    def write(self, k, out):
        return out


class _Fixed(es.OpenAIES):
    sampler_type = _Still


def nothing(theta, key):
    return 0.0


def processes(size: int = 1_000_000) -> None:
    """Compare 200 evaluations of nothing on two processes with the map of the pool itself."""
    strategy = _Fixed(np.zeros(size, np.float32), maximize=True, pop=200, sigma=0.1)
    with ProcessPoolExecutor(2) as pool, Engine(pool, 16) as engine:
        mapped = lambda: list(pool.map(nothing, range(200), range(200), chunksize=16))  # noqa: E731
        compare("200 evaluations of nothing", lambda: engine.evaluate(strategy, es.Each(nothing)), mapped, "pool.map")


def main() -> None:
    small()
    separable()
    table()
    if find_spec("gymnasium"):
        policy(64)
        policy(1024)
    native()
    processes()


if __name__ == "__main__":
    main()
