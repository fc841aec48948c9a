"""The work given to other libraries: nnflat and NumPy by hand agree, and who gives another result is not timed."""

import importlib
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[1] / "asv_bench"
pytest.importorskip("threadpoolctl")


@pytest.fixture
def module(monkeypatch):
    """Return an importer of the modules of the suite, which time as little as they can."""
    monkeypatch.syspath_prepend(SUITE)
    measure = importlib.import_module("benchmarks.measure")
    monkeypatch.setattr(measure, "SECONDS", 1e-5)
    monkeypatch.setattr(measure, "LEAST", 1)
    return importlib.import_module


@pytest.fixture
def makers(module):
    return {name: module(f"workers.by_{name}").MAKERS for name in ("nnflat", "numpy")}


QUICK = [
    "policy 4-32-2",
    "policy 24-64-64-4",
    "forward 64-32-10, batch 32",
    "vmap of 64 candidates",
    "step 4-32-2, batch 1",
    "step 64-32-10, batch 32",
    "regression, 100 steps",
    "flatten 1000 leaves of 16",
    "restructure 1000 leaves of 16",
]


@pytest.mark.parametrize("case", QUICK)
def test_nnflat_and_numpy_give_the_same_result_and_both_are_timed(module, makers, case):
    row = module("workers.run").row(case, makers)
    assert set(row["seconds"]) == {"nnflat", "numpy"}
    assert all(0 < spent["min"] <= spent["mean"] for spent in row["seconds"].values())


def test_who_gives_another_result_is_named_and_not_timed(module, makers):
    case = "policy 4-32-2"
    right = makers["numpy"][case](case).call
    wrong = {case: lambda case: module("workers.by_numpy").pure(lambda: 1.01 * right())}
    row = module("workers.run").row(case, {**makers, "wrong": wrong})
    assert row == {"case": case, "differs": "wrong gives another result than nnflat"}


@pytest.mark.parametrize("result", [float("nan"), float("inf")])
def test_a_result_that_is_not_finite_differs(module, result):
    assert not module("workers.run").close(*map(module("numpy").asarray, (1.0, result)), 0.5)


def test_no_worker_of_a_peer_imports_nnflat(module):
    for path in (SUITE / "workers").glob("by_*.py"):
        if path.name != "by_nnflat.py":
            assert "nnflat" not in path.read_text(encoding="utf-8"), path.name


def test_every_peer_has_a_worker_and_every_worker_is_a_peer(module):
    workers = {path.stem.removeprefix("by_") for path in (SUITE / "workers").glob("by_*.py")}
    assert workers == {"nnflat", *module("peers").PEERS}
