"""The reward curve."""

import sys

import numpy as np
import pytest

from nnflat import es


def result_of(generations):
    strategy = es.OpenAIES(np.ones(3), maximize=False, pop=8, sigma=0.1)
    sphere = es.Batch(lambda population, key: np.sum(population**2, axis=1))
    return es.run(strategy, sphere, generations=generations, progress=False)


@pytest.mark.parametrize("generations", [0, 1, 20])
def test_plot_draws_best_and_mean_and_writes_the_file(generations, tmp_path):
    pytest.importorskip("matplotlib")
    result = result_of(generations)
    figure = result.plot(tmp_path / "curve.png")
    lines = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    np.testing.assert_array_equal(lines["best"], result.history["best"])
    np.testing.assert_array_equal(lines["mean"], result.history["mean"])
    np.testing.assert_array_equal(lines[f"theta at the end: {result.fitness:.4g}"], [result.fitness])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("generation", "fitness")


def test_plot_does_not_touch_pyplot(tmp_path):
    pytest.importorskip("matplotlib")
    loaded = "matplotlib.pyplot" in sys.modules
    result_of(2).plot(tmp_path / "curve.png")
    assert ("matplotlib.pyplot" in sys.modules) == loaded


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'nnflat\[demo\]'"):
        result_of(1).plot()


def test_a_result_prints_without_its_arrays():
    assert repr(result_of(2)).startswith("Result(fitness=")
    assert "array" not in repr(result_of(2))
