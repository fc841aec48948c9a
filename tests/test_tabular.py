"""`nnflat train`: tables from scikit-learn and CSV files, the model that is written, and errors of one sentence."""

import json

import numpy as np
import pytest

import nnflat as nf
from nnflat import tabular
from nnflat.cli import main

pytest.importorskip("matplotlib")

HEADER = "a,b,kind"


def write(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def flowers(path, n=60, header=True):
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'rose' if a > b else 'tulip'}" for a, b in rng.standard_normal((n, 2))]
    return write(path, [HEADER, *rows] if header else rows)


def train(folder, *options):
    return main(["train", *options, "--out", str(folder), "--quiet", "--json"])


def test_digits_reach_the_accuracy_that_is_promised(tmp_path, capsys):
    pytest.importorskip("sklearn")
    assert main(["train", "digits", "--out", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["test"] >= 0.975
    assert "epoch" in err
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    model, table = nf.load(tmp_path / "digits.safetensors"), tabular.load_table("digits")
    rows = tabular.split_rows(1797, 0).test
    assert np.mean(model(table.features[rows]).argmax(axis=1) == table.target[rows]) == report["test"]


@pytest.mark.parametrize(("name", "measure", "least"), [("breast_cancer", "accuracy", 0.93), ("diabetes", "R2", 0.3)])
def test_the_other_bundled_tables_are_learned(name, measure, least, tmp_path, capsys):
    pytest.importorskip("sklearn")
    assert train(tmp_path, name, "--epochs", "30") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["measure"] == measure
    assert report["test"] > least


def test_a_csv_file_is_learned_and_its_classes_are_remembered(tmp_path, capsys):
    assert train(tmp_path, flowers(tmp_path / "flowers.csv", 300), "--hidden", "16") == 0
    assert json.loads(capsys.readouterr().out)["test"] > 0.9
    assert nf.files.info(tmp_path / "flowers.safetensors").meta["classes"] == ["rose", "tulip"]


def test_the_report_is_text_for_people(tmp_path, capsys):
    path = flowers(tmp_path / "flowers.csv")
    assert main(["train", path, "--out", str(tmp_path), "--quiet", "--epochs", "2"]) == 0
    assert "flowers: test accuracy" in capsys.readouterr().out


def test_the_seed_decides_the_bits(tmp_path):
    path = flowers(tmp_path / "flowers.csv")
    for folder in ("one", "two"):
        assert train(tmp_path / folder, path, "--epochs", "2") == 0
    one, two = (nf.destructure(nf.load(tmp_path / each / "flowers.safetensors"))[0] for each in ("one", "two"))
    np.testing.assert_array_equal(one, two)


def test_headers_targets_and_quantities_are_recognised(tmp_path):
    plain = tabular.read_csv(flowers(tmp_path / "plain.csv", header=False), None)
    assert plain.features.shape == (60, 2)
    named = tabular.read_csv(write(tmp_path / "named.csv", ["y,x", "1.5,2", "2.5,3"]), "y")
    assert named.classes is None
    np.testing.assert_array_equal(named.target, np.float32([1.5, 2.5]))
    counted = tabular.read_csv(write(tmp_path / "counted.csv", ["2,0", "3,10", "4,9"]), "0")
    assert counted.classes == ["2", "3", "4"]
    np.testing.assert_array_equal(counted.features[:, 0], [0, 10, 9])


def test_the_scaling_is_folded_into_the_model():
    rng = np.random.default_rng(0)
    x, y = 100 * rng.standard_normal((20, 2)).astype(np.float32) + 7, rng.standard_normal(20).astype(np.float32)
    table = tabular.Table("t", x, y, None)
    model = tabular.make_model(table, (4,), rng)
    features, target = tabular.Scaling.of(x), tabular.Scaling.of(y[:, None])
    expected = model(features.apply(x)) * target.scale + target.shift
    tabular.fold_in(model, features, target)
    np.testing.assert_allclose(model(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("lines", "target", "word"),
    [
        ([], None, "empty"),
        (["a,b", "1,2", "3"], None, "row 3: 1 cells"),
        (["a,b", "1,x", "?,y"], None, "row 3, a: '[?]' is no number"),
        (["a,b", "1,2"], "c", "no column 'c'"),
        (["a,b", "1,"], None, "target is empty"),
        (["a", "1"], None, "two columns"),
        (["a,b", "1,2"], None, "10 rows"),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence_and_exit_2(lines, target, word, tmp_path, capsys):
    path = write(tmp_path / "bad.csv", lines) if lines else str(tmp_path / "bad.csv")
    if not lines:
        (tmp_path / "bad.csv").write_text("")
    assert train(tmp_path, path, *([] if target is None else ["--target", target])) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    with pytest.raises(ValueError, match=word):
        raise ValueError(err)


@pytest.mark.parametrize("data", ["iris", "missing.csv"])
def test_no_data_set_is_one_sentence_and_exit_2(data, tmp_path, capsys):
    assert train(tmp_path, data) == 2
    assert capsys.readouterr().err.count("\n") == 1
