"""The benchmarks run: each of them once, found as asv finds them, by name."""

import importlib
import pkgutil
import re
import subprocess
import sys
from inspect import getmembers, isabstract, isclass, isfunction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

SUITE = Path(__file__).parents[1] / "asv_bench"
NAME = re.compile("(time|timeraw|track|mem|peakmem)_")
SLOW = {"CartPole", "Instructions", "Table", "TenTimes"}  # run by asv in CI
QUICK = [
    ("measure", "SECONDS", 1e-5),
    ("measure", "LEAST", 1),
    ("counting", "WARM", 1),
    ("counting", "COUNTED", 1),
    ("imports", "RUNS", 1),
]


@pytest.fixture(scope="module")
def suite():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SUITE)
        package = importlib.import_module("benchmarks")
        for module, name, value in QUICK:
            patch.setattr(importlib.import_module(f"benchmarks.{module}"), name, value)
        yield [
            importlib.import_module(f"benchmarks.{module.name}") for module in pkgutil.iter_modules(package.__path__)
        ]


@pytest.fixture(scope="module")
def benchmarks(suite):
    """Every benchmark as (name, what has its parameters, function), of modules and of classes."""
    found = []
    for module in suite:
        found += [(name, one, one) for name, one in getmembers(module, isfunction) if NAME.match(name)]
        for _, cls in getmembers(module, isclass):
            if cls.__module__ == module.__name__ and not isabstract(cls):
                found += [
                    (f"{cls.__name__}.{name}", cls, method.__get__(cls()))
                    for name, method in getmembers(cls, isfunction)
                    if NAME.match(name)
                ]
    return found


def combinations(owner):
    """Return the arguments of every run, as asv reads `params`: of one parameter or of several."""
    params = getattr(owner, "params", ())
    several = params and isinstance(params[0], list | tuple)
    return list(product(*(params if several else [params]))) if params else [()]


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


TOPICS = {
    *("evolution", "flat", "gradients", "imports", "layers", "main_job"),
    *("memory", "overhead", "population", "tape", "training"),
}


def test_every_topic_has_benchmarks(benchmarks):
    assert TOPICS.issubset(owner.__module__.rpartition(".")[2] for _, owner, _ in benchmarks)


def test_every_benchmark_runs_once(benchmarks):
    for name, owner, benchmark in benchmarks:
        for arguments in [] if owner.__name__ in SLOW else combinations(owner):
            result = benchmark(*arguments)
            if "timeraw" in name:  # gives code for a process of its own
                run = python(result)
                assert run.returncode == 0, f"{name}{arguments}: {run.stderr}"
            if "track" in name:
                assert result >= 0, f"{name}{arguments}"


def test_no_benchmark_has_a_setup_for_asv_would_time_cold_calls(benchmarks):
    assert [name for name, owner, _ in benchmarks if hasattr(owner, "setup")] == []


def test_every_parameter_has_a_name(benchmarks):
    for name, owner, _ in benchmarks:
        assert {len(getattr(owner, "param_names", ()))} == {len(args) for args in combinations(owner)}, name


def test_what_is_tracked_has_a_unit(benchmarks):
    assert [name for name, _, one in benchmarks if ".track" in name and not hasattr(one, "unit")] == []


def test_every_operation_moves_the_same_numbers(suite):
    flat = next(module for module in suite if module.__name__ == "benchmarks.flat")
    calls = flat.operations("4-32-2")
    vector, layout = calls["destructure"]()
    for name in ("restructure", "restructure_out", "load", "view"):
        np.testing.assert_array_equal(layout.destructure(calls[name]()), vector, err_msg=name)
    np.testing.assert_array_equal(calls["store"](), vector)


@pytest.mark.parametrize("way", ["compiled", "compiled_out"])
def test_every_way_of_the_tape_gives_what_numpy_gives(suite, way):
    tape = next(module for module in suite if module.__name__ == "benchmarks.tape")
    for calls in (tape.policies("64-32-10 batch 32"), tape.chains(), tape.identity()):
        np.testing.assert_array_equal(calls[way](), calls["numpy"]())


def test_every_way_of_a_generation_runs(suite):
    population = next(module for module in suite if module.__name__ == "benchmarks.population")
    for call in (*population.sep_cma().values(), *population.acting(64).values()):
        call()
