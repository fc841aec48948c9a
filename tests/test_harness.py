"""The harness of the benchmarks catches what it is there for: a slower call, and one that allocates more.

Time is a clock that the test moves, so nothing here depends on the machine.
"""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import nnflat as nf

SUITE = Path(__file__).parents[1] / "asv_bench"


@pytest.fixture
def harness(monkeypatch):
    """Return an importer of the modules of the benchmarks."""
    monkeypatch.syspath_prepend(SUITE)
    return importlib.import_module


@pytest.fixture
def load():
    """Return the `load` of a small model, as a function of nothing."""
    model = {"weight": np.ones((4, 32), np.float32), "bias": np.ones(32, np.float32)}
    flat, layout = nf.destructure(model)
    bound = layout.bind(model)
    return lambda: bound.load(flat)


class Clock:
    """A clock that only work moves."""

    def __init__(self):
        self.ns = 0

    def perf_counter_ns(self):
        return self.ns

    def perf_counter(self):
        return self.ns / 1e9

    def work(self, ns):
        """Return a call that takes so many nanoseconds."""

        def call():
            self.ns += ns

        return call


@pytest.fixture
def clock(harness, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(harness("benchmarks.measure"), "time", clock)
    return clock


def test_seconds_are_those_of_the_clock(harness, clock):
    (one, six) = harness("benchmarks.measure").seconds(clock.work(1_000), clock.work(6_000))
    assert (one.min, one.mean) == pytest.approx((1e-6, 1e-6))
    assert (six.min, six.mean) == pytest.approx((6e-6, 6e-6))


def test_the_mean_counts_what_happens_now_and_then(harness, clock):
    calls = 0

    def call():
        nonlocal calls
        calls += 1
        clock.ns += 100_000 if calls % 1000 == 0 else 1_000

    spent = harness("benchmarks.measure").seconds(call)[0]
    assert spent.min == pytest.approx(1e-6)
    assert spent.mean > 1.05e-6


def test_a_planted_sixfold_slowdown_shows_in_the_ratio_and_in_the_regressions(harness, clock):
    measure = harness("benchmarks.measure")

    class Planted(measure.Compared, measure.Timed):
        def __init__(self, factor):
            self.factor = factor

        def calls(self):
            return {"copy": clock.work(1_000), "load": clock.work(1_200 * self.factor)}

    before, after = Planted(1), Planted(6)
    assert before.track_ratio("load") == pytest.approx(1.2)
    assert after.track_ratio("load") == pytest.approx(7.2)
    assert regressed(before.track_ratio("load"), after.track_ratio("load"))
    assert not regressed(before.track_ratio("load"), before.track_ratio("load"))


def regressed(before, after):
    """Return whether asv's own detection, which fills the page of regressions, sees a step upwards."""
    from asv.step_detect import detect_regressions, detect_steps

    values = [before] * 5 + [after] * 5
    steps = detect_steps(values, [1.0] * len(values))
    return detect_regressions(steps, threshold=0.5)[2] is not None


def test_counts_of_allocations_repeat_exactly(harness, load):
    count = harness("benchmarks.counting").allocations
    assert len({count(lambda: load() and bytearray(700)) for _ in range(5)}) == 1


def test_load_allocates_nothing(harness, load):
    assert harness("benchmarks.counting").allocations(load) == (0, 0)


def test_array_data_and_python_objects_are_counted(harness):
    count = harness("benchmarks.counting").allocations
    assert count(lambda: np.empty(1000)).bytes >= 8000
    assert count(lambda: bytearray(7000)).bytes >= 7000
    assert count(lambda: None) == (0, 0)


def test_what_is_given_back_within_the_call_is_counted(harness):
    def call():
        np.empty(1000)
        np.empty(1000)

    assert harness("benchmarks.counting").allocations(call).bytes >= 16_000


def test_a_planted_allocation_in_load_fails_the_gate(harness, load):
    allocations, gates = harness("benchmarks.counting").allocations, harness("gates")
    kept = {"load": allocations(load)._asdict()}
    planted = {"load": allocations(lambda: (load(), bytearray(1)))._asdict()}
    assert list(gates.grown(kept, kept)) == []
    assert [line.split(":")[0] for line in gates.grown(kept, planted)] == ["load", "load"]


def test_instructions_may_grow_by_two_percent_and_no_more(harness):
    gates = harness("gates")
    kept = {"load": {"instructions": 1000}}
    assert list(gates.grown(kept, {"load": {"instructions": 1019}})) == []
    assert list(gates.grown(kept, {"load": {"instructions": 1021}})) == [
        "load: 1,021 instructions, and 1,000 were kept"
    ]


PLANTED = """\
import numpy as np
from benchmarks.instructions import run

import nnflat as nf

model = {"weight": np.ones((4, 32), np.float32), "bias": np.ones(32, np.float32)}
flat, layout = nf.destructure(model)
load = layout.bind(model).load


def sixfold():
    for _ in range(6):
        load(flat)


if __name__ == "__main__":
    run({"load": lambda: lambda: load(flat), "load, sixfold": lambda: sixfold})
"""


def test_a_planted_sixfold_slowdown_in_load_fails_the_gate_of_instructions(harness, monkeypatch, tmp_path):
    (tmp_path / "planted_load.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    instructions, gates = harness("benchmarks.instructions"), harness("gates")
    if missing := instructions.missing():
        pytest.skip(missing)
    counts = instructions.counts("planted_load")
    kept = {"load": {"instructions": counts["load"]}}
    assert list(gates.grown(kept, {"load": {"instructions": counts["load, sixfold"]}}))
    assert counts["load, sixfold"] / counts["load"] > 5


def test_a_call_without_a_kept_count_fails_the_gate(harness):
    assert list(harness("gates").grown({}, {"load": {"bytes": 0}}))


def test_counts_kept_elsewhere_are_not_compared(harness, monkeypatch, tmp_path, capsys):
    gates = harness("gates")
    (tmp_path / "gates.json").write_text(json.dumps({"where": {"python": "2.7"}, "counts": {}}))
    monkeypatch.setattr(gates, "KEPT", tmp_path / "gates.json")
    assert gates.main([]) == 0
    assert "nothing compared" in capsys.readouterr().out


def test_every_gated_call_has_a_kept_count(harness):
    gates = harness("gates")
    assert set(gates.GATED) == set(json.loads(gates.KEPT.read_text())["counts"])
