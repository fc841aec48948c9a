"""The table: complete, consistent, and its counts of allocations right. No time is asserted."""

import numpy as np
import pytest

from nnflat import bench, destructure

OPERATIONS = ["flat.copy()", "np.copyto", "destructure", "restructure", "restructure(out=)", "load", "store", "view"]


@pytest.fixture(scope="module")
def rows():
    model = [np.ones((100, 20), np.float32), np.ones(20, np.float32)]
    return {row.operation: row for row in bench.measure("small", model, rounds=2, slot=20_000)}


def test_the_models_of_the_table_have_their_sizes():
    models = bench.models(np.random.default_rng(0))
    sizes = {name: destructure(model)[0].size for name, model in models.items()}
    assert sizes == {"784-1024-10": 814_090, "784-100-10": 79_510, "4-32-2": 226, "1000 leaves of 16": 16_000}


def test_the_models_of_the_table_are_float32():
    assert {destructure(model)[1].dtype for model in bench.models(np.random.default_rng(0)).values()} == {
        np.dtype(np.float32)
    }


def test_every_operation_has_a_row(rows):
    assert list(rows) == OPERATIONS


def test_the_mean_is_never_below_the_min(rows):
    assert all(0 < row.min_us <= row.mean_us for row in rows.values())


def test_ratios_are_to_the_baseline(rows):
    base = rows["np.copyto"]
    assert (base.min_ratio, base.mean_ratio) == (1, 1)
    assert all(row.min_ratio == pytest.approx(row.min_us / base.min_us) for row in rows.values())


def test_a_copy_allocates_its_data_and_what_is_in_place_does_not(rows):
    size = 2020 * 4
    assert all(size <= rows[name].bytes < 2 * size for name in ("flat.copy()", "restructure"))
    assert all(rows[name].bytes < size for name in ("np.copyto", "load", "store", "view"))


def test_operations_do_what_their_names_say():
    calls = bench.operations([np.arange(4.0)])
    results = {name: call() for name, call in calls.items()}
    assert results["destructure"][0].tolist() == [0, 1, 2, 3]
    assert results["flat.copy()"].tolist() == results["store"].tolist() == [0, 1, 2, 3]
    assert all(results[name][0].tolist() == [0, 1, 2, 3] for name in ("restructure", "load", "view"))


def test_the_text_has_a_line_for_each_row_in_columns(rows):
    lines = bench.table(list(rows.values())).splitlines()
    assert len(lines) == 1 + len(OPERATIONS)
    assert len({len(line) for line in lines}) == 1


def test_the_machine_is_named():
    assert {"cpu", "python", "numpy"} <= bench.machine().keys()
    assert bench.machine()["numpy"] == np.__version__
