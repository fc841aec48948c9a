"""The pages made from the kept figures: bars name real benchmarks, losses are shown, the report needs nothing."""

import doctest
import importlib
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

SUITE = Path(__file__).parents[1] / "asv_bench"


@pytest.fixture
def module(monkeypatch):
    """Return an importer of the modules beside the suite."""
    monkeypatch.syspath_prepend(SUITE)
    return importlib.import_module


@pytest.fixture
def figures(module):
    """Figures of two commits and one peer, made up."""
    names = module("figures")
    columns = ["result", "params"]
    commits = [
        names.Commit(hash=letter * 40, date=i, columns=columns, results={
            "flat.Copies.track_min": [[load * factor, 4e-7], [["'4-32-2'"], ["'load'", "'copy'"]]],
            "flat.Leaves.track_min": [[1e-6, 1e-5, None], [["1", "10", "100"], ["'load'"]]],
            "tape.Tracing.track_min": [[4e-3], []],
        })
        for i, (letter, factor) in enumerate((("a", 1), ("b", 2)))
        for load in (2e-7,)
    ]  # fmt: skip
    seconds = {"nnflat": {"min": 2e-6, "mean": 3e-6}, "jax": {"min": 1e-6, "mean": 9e-6}}
    rows = [{"case": "policy 4-32-2", "seconds": seconds}, {"case": "empty call", "differs": "jax gives <another>"}]
    peers = {"machine": {"cpu": "one"}, "peers": [
        {"peer": "jax", "versions": {"nnflat": "0.1.0", "jax": "1"}, "rows": rows},
        {"peer": "torch", "versions": {}, "rows": [], "failed": "ended with 1"},
    ]}  # fmt: skip
    copy = {"model": "4-32-2", "operation": "load", "min_us": 0.2, "mean_us": 0.3, "blocks": 0, "bytes": 0}
    copies = {"machine": {"cpu": "one"}, "rows": [copy | {"min_ratio": 0.5, "mean_ratio": 0.6}]}
    return names.Figures(commits, peers, copies)


def test_every_bar_is_of_a_benchmark_that_there_is(module):
    for bar in module("bars").BARS:
        if bar.benchmark != "peers":
            name, cls, function = bar.benchmark.split(".")
            owner = getattr(module(f"benchmarks.{name}"), cls)
            assert hasattr(owner, function), bar.name
            assert bar.case in cases(owner), bar.name


def cases(owner):
    params = getattr(owner, "params", ())
    return list(product(*(params if params and isinstance(params[0], list) else [params]))) if params else [()]


def test_every_bar_on_a_peer_is_of_a_case_that_the_peer_has(module):
    names = module("workers.cases")
    known = {*names.POLICIES, *names.STEPS, *names.STRATEGIES, names.VMAP, names.ADAM, names.REGRESSION, names.DIGITS}
    for bar in module("bars").BARS:
        if bar.benchmark == "peers":
            assert bar.case[0] in known, bar.name
            assert bar.case[1] in module("peers").PEERS, bar.name


def test_a_bar_has_one_limit(module):
    assert all((bar.at_most is None) != (bar.at_least is None) for bar in module("bars").BARS)


@pytest.mark.parametrize(("value", "met"), [(0.9, True), (1.0, True), (1.1, False)])
def test_at_most_is_met_at_or_below(module, value, met):
    assert module("bars").Bar(1, "", "", at_most=1.0).met(value) is met


@pytest.mark.parametrize(("value", "met"), [(0.9, False), (1.0, True), (1.1, True)])
def test_at_least_is_met_at_or_above(module, value, met):
    assert module("bars").Bar(1, "", "", at_least=1.0).met(value) is met


def test_the_last_commit_gives_the_value(figures):
    assert figures.value("flat.Copies.track_min", ("4-32-2", "load")) == 4e-7
    assert figures.value("tape.Tracing.track_min", ()) == 4e-3
    assert figures.value("flat.Copies.track_min", ("4-32-2", "fly")) is None


def test_a_peers_value_is_its_time_by_ours(figures):
    assert figures.value("peers", ("policy 4-32-2", "jax")) == 0.5
    assert figures.value("peers", ("empty call", "jax")) is None


def test_a_missed_bar_says_so_and_a_loss_is_shown_as_one(module, figures):
    text = module("document").page(figures)
    assert "| 0.03 | **missed** |" in text
    assert "| policy 4-32-2 | jax | 2 us (3 us) | 1 us (9 us) | 0.50 | 3.00 | lost |" in text
    assert "did not run: ended with 1" in text


def test_the_page_of_the_docs_is_what_the_kept_figures_give(module):
    assert module("document").main(["--check"]) == 0


def test_the_report_needs_no_script_and_no_network(module, figures):
    html = module("report").report(figures)
    assert "<script" not in html
    assert not re.search(r'(src|href)="', html)
    assert html.count("<svg") == 2


def test_the_report_has_copies_first_then_peers_then_trends(module, figures):
    html = module("report").report(figures)
    heads = re.findall("<h2>(.*?)</h2>", html)
    assert heads == ["A tree and its flat vector", "Beside other libraries", "The bars", "Growth", "Trends"]


def test_text_from_figures_is_escaped(module, figures):
    assert "jax gives &lt;another&gt;" in module("report").report(figures)


def test_lines_go_up_where_values_do(module):
    svg = module("graphs").lines({"load": [(1, 1e-6), (10, 1e-4)]}, x_label="leaves", logarithmic=True)
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in re.search('points="(.*?)"', svg)[1].split())
    assert x1 < x2
    assert y1 > y2


@pytest.mark.parametrize("name", ["graphs", "peers", "benchmarks.counting"])
def test_the_examples_in_the_docstrings_run(module, name):
    results = doctest.testmod(module(name), extraglobs={"np": np})
    assert results.attempted > 0
    assert results.failed == 0
