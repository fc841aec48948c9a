"""Many threads: on their own models, on one layout, on one bound tree, with and without the interpreter's lock."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import zoo

import nnflat as nf
from nnflat.threads import share

THREADS = 8
CALLS = 8_000  # over all animals: eight threads and two verbs make 128,000 calls a test


def run(work):
    """Run `work(number)` on all threads at once; raise what any of them raised."""
    start = threading.Barrier(THREADS)
    errors = []

    def guarded(number):
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


ANIMALS = ["dense", "tied_by_transpose", "nested", "mixed", "protocol"]


@pytest.mark.parametrize("animal", ANIMALS)
def test_threads_on_their_own_models_are_right(animal):
    def work(number):
        model = zoo.ZOO[animal]()
        flat, layout = nf.destructure(model)
        bound, out = layout.bind(model), np.zeros_like(flat)
        for step in range(CALLS // len(ANIMALS)):
            flat[:] = (number + step) % 100
            bound.load(flat)
            assert np.array_equal(bound.store(out=out), flat)

    run(work)


@pytest.mark.parametrize("animal", ANIMALS)
def test_threads_on_one_layout_are_right(animal):
    layout = nf.Layout.of(zoo.ZOO[animal]())

    def work(number):
        flat = np.full(layout.size, number, layout.dtype)
        for step in range(CALLS // len(ANIMALS)):
            flat[:] = (number + step) % 100
            model = layout.restructure(flat)
            assert np.array_equal(layout.destructure(model), flat)
            assert layout.path_of(0) == layout.paths[0]

    run(work)


def test_threads_that_meet_a_new_layout_at_once_are_right():
    for _ in range(50):
        layout = nf.Layout.of(zoo.nested())
        results = []
        run(lambda number, layout=layout, results=results: results.append(
            (hash(layout), layout.size, layout["layers[0]"].stop, str(layout), layout.restructure(np.zeros(11))["act"])
        ))  # fmt: skip
        assert len(set(results)) == 1


@pytest.mark.parametrize("animal", ["dense", "mixed", "one_large"])
def test_threads_on_one_bound_tree_load_the_same_without_harm(animal):
    model = zoo.ZOO[animal]()
    flat, layout = nf.destructure(model)
    bound = layout.bind(model)

    def work(number):
        out = np.zeros_like(flat)
        for _ in range(CALLS // 4):
            bound.load(flat)
            assert np.array_equal(bound.store(out=out), flat)

    run(work)


def test_large_copies_on_threads_are_right():
    def work(number):
        model = [np.full((400, 300), number, np.float32), np.asfortranarray(np.zeros((300, 300)))]
        flat, layout = nf.destructure(model)
        bound = layout.bind(model)
        for step in range(20):
            flat[:] = number * 1000 + step
            bound.load(flat)
            assert model[1][-1, -1] == number * 1000 + step
            assert np.array_equal(bound.store(), flat)

    run(work)


def test_another_thread_runs_while_a_large_leaf_is_copied():
    model = [np.zeros((1500, 1500), np.float32, order="F")]
    flat, layout = nf.destructure(model)
    bound, counted, done = layout.bind(model), [0], threading.Event()

    def count():
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    other = threading.Thread(target=count)
    other.start()
    sys.setswitchinterval(1000)  # from here on a thread runs only where another lets go of the lock
    try:
        progress = []
        for _ in range(100):
            before = counted[0]
            bound.load(flat)
            progress.append(counted[0] - before)
    finally:
        sys.setswitchinterval(interval)
        done.set()
        other.join()
    assert any(progress)


def test_a_leaf_that_is_re_bound_by_another_thread_is_refused_or_followed():
    model = {"a": np.zeros(50), "b": np.zeros(50)}
    layout = nf.Layout.of(model)
    flat = np.ones(100)

    def work(number):
        for _ in range(CALLS // 4):
            if number == 0:
                model["b"] = np.zeros(50)
            else:
                try:
                    layout.restructure(flat, out=model)
                except nf.StructureChanged:
                    continue

    run(work)
    assert model["a"].tolist() == [1] * 50


def test_shared_work_ends_everywhere_before_its_error_is_raised():
    done = []

    def work(part):
        if part == 0:
            raise ZeroDivisionError
        time.sleep(0.01)
        done.append(part)

    with pytest.raises(ZeroDivisionError):
        share(work, [0, 1, 2])
    assert sorted(done) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        share(work, [1, 0])


def test_the_blas_has_one_thread_while_work_is_shared_and_gets_the_others_back():
    info = pytest.importorskip("threadpoolctl").threadpool_info

    def limits(*_):
        return [library["num_threads"] for library in info() if "numpy.libs" in library["filepath"]]

    before, seen = limits(), []
    share(lambda part: seen.extend(limits()), [0, 1])
    run(lambda number: share(limits, [0, 1]))
    assert set(seen) <= {1}
    assert limits() == before


def test_the_bits_of_a_vmap_on_threads_are_those_of_a_blas_of_one_thread():
    limits = pytest.importorskip("threadpoolctl").threadpool_limits
    a, b = np.random.default_rng(0).standard_normal((2, 3, 200, 200)).astype(np.float32)
    with limits(1, "blas"):
        expected = np.stack([x @ y for x, y in zip(a, b, strict=True)])
    mapped = nf.vmap(lambda x, y: x @ y, 0, threads=2)
    for _ in range(2):
        assert mapped(a, b).tobytes() == expected.tobytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_process_with_threads_has_threads_of_its_own():
    script = ("import os, numpy as np, nnflat as nf\n"
              "mapped = nf.vmap(lambda x: x + 1, 0, threads=2); mapped(np.arange(6.0)); child = os.fork()\n"
              "right = mapped(np.arange(6.0)).sum() == 21\n"
              "os._exit(not right) if child == 0 else None\n"
              "raise SystemExit(os.waitpid(child, 0)[1] or not right)")
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", script], timeout=60, check=False).returncode == 0
