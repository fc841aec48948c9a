"""The determinism contract: the same bits here, on threads, on processes, on loky and on Dask."""

import itertools
import os
import pickle
import signal
import time
import tracemalloc
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from nnflat import destructure, es, nn
from nnflat.es.block import Block
from nnflat.es.engine import Engine
from nnflat.es.work import Order, Task, work


def ball(theta, key):
    return float(np.sum((theta - 1) ** 2) + 1e-3 * (int(key) % 7))


def balls(population, key):
    return np.sum((population @ np.ones((population.shape[1], 3), population.dtype)) ** 2, axis=1)


def failing(theta, key):
    raise ZeroDivisionError("the fitness itself")


def killing(theta, key):
    os.kill(os.getpid(), signal.SIGKILL)


class KillsOnce:
    """The sphere, but the first worker to evaluate anything kills itself in the middle of a generation."""

    def __init__(self, folder, generations=1):
        self.folder, self.parent = str(folder), os.getpid()

    def __call__(self, theta, key):
        try:
            os.close(os.open(os.path.join(self.folder, "killed"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return ball(theta, key)
        assert os.getpid() != self.parent
        os.kill(os.getpid(), signal.SIGKILL)


class HangsOnce(KillsOnce):
    """The sphere, but the first worker to evaluate anything never answers."""

    def __call__(self, theta, key):
        try:
            os.close(os.open(os.path.join(self.folder, "hung"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return ball(theta, key)
        time.sleep(600)


def make(kind=es.OpenAIES, *, pop=10, n=37, **options):
    return kind(np.linspace(-1, 1, n).astype(np.float32), maximize=False, pop=pop, sigma=0.2, seed=5, **options)


@contextmanager
def engine(name, workers=2):
    """Give an executor of that kind; None is the calling thread."""
    if name == "here":
        yield None
    elif name == "threads":
        with ThreadPoolExecutor(workers) as executor:
            yield executor
    elif name == "processes":
        with ProcessPoolExecutor(workers) as executor:
            yield executor
    elif name == "loky":
        loky = pytest.importorskip("loky")
        executor = loky.get_reusable_executor(max_workers=workers, timeout=60)
        yield executor
        loky.get_reusable_executor(max_workers=workers, timeout=60).shutdown(kill_workers=True)
    else:
        distributed = pytest.importorskip("distributed")
        cluster = distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
        )
        with cluster, distributed.Client(cluster) as client:
            yield client.get_executor(pure=False)


DASK = pytest.param("dask", marks=pytest.mark.slow)  # starting a cluster takes seconds
ENGINES = ["threads", "processes", "loky", DASK]
each_engine = pytest.mark.parametrize("name", ENGINES)
outside = pytest.mark.filterwarnings("ignore")  # of what other packages warn when workers are started and killed


def thetas(strategy, evaluator, executor, generations=3, chunk=4):
    with Engine(executor, chunk) as workers:
        for _ in range(generations):
            strategy.tell(workers.evaluate(strategy, evaluator))
    return strategy.theta.copy()


# the contract


@outside
@each_engine
def test_every_engine_gives_the_bits_of_the_calling_thread(name):
    makes = [make, lambda: make(es.SepCMA), lambda: make(es.GA, bounds=(-2.0, 2.0)), lambda: make(es.LMMAES)]
    with engine(name) as executor:
        for new, evaluator in itertools.product(makes, (es.Each(ball), es.Batch(balls))):
            np.testing.assert_array_equal(thetas(new(), evaluator, executor), thetas(new(), evaluator, None))


@pytest.mark.parametrize("workers", [1, 3, 12])
@pytest.mark.parametrize("name", ["threads", "processes"])
def test_the_number_of_workers_plays_no_part(name, workers):
    with engine(name, workers) as executor:
        got = thetas(make(), es.Each(ball), executor)
    np.testing.assert_array_equal(got, thetas(make(), es.Each(ball), None))


@pytest.mark.parametrize("pop", [1, 2, 3])
def test_populations_smaller_than_the_workers_are_evaluated(pop):
    with engine("processes", 4) as executor:
        got = thetas(make(pop=pop), es.Each(ball), executor, chunk=1)
    np.testing.assert_array_equal(got, thetas(make(pop=pop), es.Each(ball), None, chunk=1))


@outside
@pytest.mark.parametrize("name", ["processes", "loky", DASK])
def test_a_killed_worker_neither_loses_nor_changes_anything(name, tmp_path):
    with engine(name) as executor:
        got = thetas(make(), es.Each(KillsOnce(tmp_path)), executor, generations=3)
    assert (tmp_path / "killed").exists()
    np.testing.assert_array_equal(got, thetas(make(), es.Each(ball), None, generations=3))


def test_evaluate_alone_survives_a_killed_worker_too(tmp_path):
    with engine("processes") as executor:
        got = es.evaluate(make(), es.Each(KillsOnce(tmp_path)), executor=executor, chunk=4)
    np.testing.assert_array_equal(got, es.evaluate(make(), es.Each(ball), chunk=4))


def test_a_worker_that_hangs_is_killed_and_changes_nothing(tmp_path):
    with engine("processes") as executor:
        got = es.evaluate(make(), es.Each(HangsOnce(tmp_path)), executor=executor, chunk=4, timeout=3)
    assert (tmp_path / "hung").exists()
    np.testing.assert_array_equal(got, es.evaluate(make(), es.Each(ball), chunk=4))


def test_candidates_that_kill_every_worker_are_named_in_the_end():
    with engine("processes") as executor, pytest.raises(RuntimeError, match="candidates 0 to 3, 4 to 7, 8 to 9"):
        es.evaluate(make(), es.Each(killing), executor=executor, chunk=4)


@outside
@pytest.mark.parametrize("name", ["here", *ENGINES])
def test_what_the_fitness_raises_comes_through_and_the_engine_goes_on(name):
    with engine(name) as executor:
        with pytest.raises(ZeroDivisionError, match="the fitness itself"):
            es.evaluate(make(), es.Each(failing), executor=executor)
        assert es.evaluate(make(), es.Each(ball), executor=executor).shape == (10,)


@outside
@pytest.mark.parametrize("name", ["loky", DASK])
def test_a_local_function_is_sent_where_the_engine_can(name):
    shift = np.float32(0.5)

    def shifted(theta, key):
        return float(np.sum((theta - shift) ** 2))

    with engine(name) as executor:
        got = es.evaluate(make(), es.Each(shifted), executor=executor)
    np.testing.assert_array_equal(got, es.evaluate(make(), es.Each(shifted)))


# chunks


def test_a_batch_sees_chunks_and_each_a_candidate():
    seen = []
    counting = es.Batch(lambda population, key: seen.append(len(population)) or np.zeros(len(population)))
    es.evaluate(make(), counting, chunk=4)
    assert seen == [4, 4, 2]


def test_each_is_given_the_candidates_of_ask():
    strategy, seen = make(), []
    es.evaluate(strategy, es.Each(lambda theta, key: seen.append(theta.copy()) or 0.0), chunk=3)
    np.testing.assert_array_equal(seen, strategy.ask())


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_chunk_must_be_positive(chunk):
    with pytest.raises(ValueError, match="chunk"):
        es.evaluate(make(), es.Each(ball), chunk=chunk)


def test_a_fitness_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(4,\) is needed"):
        es.evaluate(make(), es.Batch(lambda population, key: np.zeros(3)), chunk=4)


def test_a_population_is_never_in_memory():
    strategy = make(n=100_000, pop=64)
    es.evaluate(strategy, es.Each(ball))
    tracemalloc.start()
    strategy.tell(es.evaluate(strategy, es.Each(ball)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * strategy.theta.nbytes


# versions


def order_for(strategy, version, fn=ball):
    sampler = replace(strategy.sampler, arrays={})
    return Order("run", strategy.generation, version, range(4), Task(strategy.key, sampler, es.Each(fn), None))


def test_no_worker_answers_by_arrays_of_another_version():
    strategy = make()
    block = Block(strategy.sampler.arrays)
    block.write(strategy.sampler.arrays, 7)
    assert work(order_for(strategy, 7), block.place).answers(order_for(strategy, 7))
    assert not work(order_for(strategy, 8), block.place).answers(order_for(strategy, 8))
    block.close()


def test_an_answer_whose_arrays_changed_under_it_is_no_answer():
    strategy = make()
    block = Block(strategy.sampler.arrays)
    block.write(strategy.sampler.arrays, 7)

    def meddling(theta, key):
        block.write(strategy.sampler.arrays, 8)
        return 0.0

    assert work(order_for(strategy, 7, meddling), block.place).fitness is None
    block.close()


def test_theta_written_in_place_between_generations_is_seen():
    strategy = make()
    with engine("processes") as executor, Engine(executor, 4) as workers:
        for _ in range(4):
            expected = es.evaluate(strategy, es.Each(ball))
            np.testing.assert_array_equal(workers.evaluate(strategy, es.Each(ball)), expected)
            strategy._theta += 1


class Remembering(Executor):
    """Answers with what it has answered first, for ever; but passes on what is asked by value."""

    def __init__(self):
        self.first, self.asked = {}, 0

    def submit(self, fn, order, arrays):
        self.asked += 1
        future = Future()
        future.set_result(self.first.setdefault(order.members, fn(order, arrays)))
        return future


def test_an_engine_that_serves_old_results_is_found_out():
    strategy, executor = make(), Remembering()
    with Engine(executor, 4) as workers:
        strategy.tell(workers.evaluate(strategy, es.Each(ball)))
        with pytest.raises(RuntimeError, match="lost"):
            workers.evaluate(strategy, es.Each(ball))


def test_orders_do_not_contain_the_strategy_nor_theta():
    strategy = make(n=10_000)
    assert len(pickle.dumps(order_for(strategy, 1))) < 3_000


def test_a_block_that_cannot_be_reached_is_replaced_by_the_arrays_themselves(monkeypatch):
    monkeypatch.setattr("nnflat.es.block.Place.read", lambda self: (_ for _ in ()).throw(FileNotFoundError))
    with engine("processes") as executor:
        got = es.evaluate(make(), es.Each(ball), executor=executor)
    np.testing.assert_array_equal(got, es.evaluate(make(), es.Each(ball)))


def test_the_block_is_removed_in_the_end():
    with engine("processes") as executor, Engine(executor, 4) as workers:
        workers.evaluate(make(), es.Each(ball))
        path = workers._block.place.path
        assert os.path.exists(path)
    assert not os.path.exists(path)


def test_a_worker_with_another_build_is_warned_about(monkeypatch):
    monkeypatch.setattr("nnflat.es.engine.fingerprint", lambda: "another")
    with engine("threads") as executor, pytest.warns(UserWarning, match="build differs"):
        es.evaluate(make(), es.Each(ball), executor=executor)


# runs and environments


def test_a_run_on_processes_is_the_run_here():
    with engine("processes") as executor:
        got = es.run(make(), es.Each(ball), generations=4, executor=executor, chunk=3, progress=False)
    here = es.run(make(), es.Each(ball), generations=4, chunk=3, progress=False)
    np.testing.assert_array_equal(got.theta, here.theta)
    np.testing.assert_array_equal(got.history["mean"], here.history["mean"])


@pytest.mark.parametrize("name", ["threads", "processes"])
def test_environments_give_the_same_returns_and_steps_on_every_engine(name):
    pytest.importorskip("gymnasium")
    model = nn.Chain(nn.Dense(4, 2, rng=np.random.default_rng(0)))
    theta, layout = destructure(model)
    results = []
    with engine(name) as executor:
        for chosen in (executor, None):
            gym = es.Gym("CartPole-v1", model, layout)
            strategy = es.OpenAIES(theta, maximize=True, pop=8, sigma=0.3)
            run = es.run(strategy, gym, generations=3, executor=chosen, chunk=4, progress=False)
            results.append((run.theta, run.history["steps"]))
            gym.close()
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
