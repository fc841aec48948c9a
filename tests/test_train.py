"""fit: it learns, stops as told, and is the same to the bit however it is cut up."""

import gc
import sys
import weakref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import nnflat as nf
from nnflat import nn, optim, random, train
from nnflat.compile import CACHE


def regression(n=70, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3)).astype(np.float32)
    return x, x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 1


def net(seed=0):
    rng = np.random.default_rng(seed)
    return nn.Chain(nn.Dense(3, 8, "tanh", rng=rng), nn.Dense(8, 1, rng=rng))


def squared(model, x, y):
    return nn.mse(model(x), y)


def run(model, data=None, **options):
    options = {"loss": squared, "optimizer": optim.Adam(0.01), "epochs": 5, "progress": False} | options
    return nf.fit(model, regression() if data is None else data, **options)


def weights(model):
    return nf.destructure(model)[0]


def test_it_learns_and_writes_the_model_in_place():
    model = net()
    first = model.layers[0].weight
    history = run(model, epochs=100)
    assert history["loss"][-1] < 0.1 * history["loss"][0]
    assert model.layers[0].weight is first
    assert squared(model, *regression()) < 0.1


def test_a_step_is_the_gradient_and_the_rule_in_plain_numpy():
    model, (x, y) = net(), regression(10)
    flat, layout = nf.destructure(model)
    rule = optim.SGD(0.1)
    run(model, (x, y), optimizer=rule, epochs=1, batch_size=10)
    order = random.permutation(random.fold(0, 1, 0), 10)
    gradient = nf.grad(layout.lift(squared))(flat, x[order], y[order])
    assert_array_equal(weights(model), rule.step(flat, gradient, rule.init(flat))[0])


def test_the_same_seed_gives_the_same_bits_and_another_one_others():
    first, again, other = net(), net(), net()
    run(first), run(again), run(other, seed=1)
    assert_array_equal(weights(first), weights(again))
    assert (weights(first) != weights(other)).any()


def test_the_bits_do_not_depend_on_the_chunks(monkeypatch):
    whole, cut = net(), net()
    run(whole, batch_size=8)
    monkeypatch.setattr(train, "CHUNK", 3)
    run(cut, batch_size=8)
    assert_array_equal(weights(whole), weights(cut))


def test_history_is_a_dict_of_arrays_with_a_value_an_epoch():
    history = run(net(), validation=regression(20, seed=1))
    assert sorted(history) == ["epoch", "loss", "seconds", "validation"]
    assert_array_equal(history["epoch"], [1, 2, 3, 4, 5])
    assert history.stopped_by == "epochs"


def test_the_loss_of_an_epoch_is_the_mean_over_examples():
    model = net()
    loss = run(model, epochs=1, batch_size=64, optimizer=optim.SGD(0.0))["loss"][0]
    np.testing.assert_allclose(loss, squared(net(), *regression()), rtol=1e-6)


def test_patience_ends_a_run_and_the_best_weights_are_kept():
    model = net()
    seen = []
    history = run(model, epochs=50, optimizer=optim.SGD(0.0), patience=3, callbacks=[seen.append])
    assert history.stopped_by == "patience"
    assert len(seen) == len(history["epoch"]) < 50
    assert [record.number for record in seen] == history["epoch"].tolist()


def test_the_model_has_the_weights_of_the_best_epoch():
    data, held = regression(), regression(20, seed=3)
    model = net()
    history = run(model, data, validation=held, epochs=30, optimizer=optim.SGD(0.2))
    value = squared(model, *held)
    np.testing.assert_allclose(value, history["validation"].min(), rtol=1e-5)
    assert history.best_epoch == 1 + history["validation"].argmin()


class Stop(KeyboardInterrupt):
    pass


def stop_at(number):
    def callback(record):
        if record.number == number:
            raise Stop

    return callback


def test_an_interrupt_gives_back_what_there_is():
    model = net()
    history = run(model, epochs=50, callbacks=[stop_at(3)])
    assert history.stopped_by == "interrupted"
    assert len(history["loss"]) == 3
    assert squared(model, *regression()) < squared(net(), *regression())


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_run_resumes_to_the_bit(tmp_path, suffix):
    straight, broken, path = net(), net(), tmp_path / f"run{suffix}"
    whole = run(straight, epochs=6, batch_size=8)
    run(broken, epochs=6, batch_size=8, checkpoint=path, callbacks=[stop_at(3)])
    second = run(net(5), epochs=6, batch_size=8, checkpoint=path, resume=True)
    resumed = net()
    history = run(resumed, epochs=6, batch_size=8, checkpoint=path, resume=True)
    assert_array_equal(second["loss"], whole["loss"])
    assert_array_equal(weights(resumed), weights(straight))
    assert_array_equal(history["epoch"], whole["epoch"])


def test_a_run_resumes_to_the_bit_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    straight, resumed, path = net(), net(), tmp_path / "run.npz"
    run(straight, epochs=4, batch_size=8)
    monkeypatch.setattr(train, "CHUNK", 2)
    monkeypatch.setattr(train, "SAVE_EVERY", -1.0)
    saves = []

    def save(trainer, original=train.Trainer.save):
        original(trainer)
        saves.append(trainer.run.batch)
        if len(saves) == 7:
            raise Stop

    monkeypatch.setattr(train.Trainer, "save", save)
    assert run(net(), epochs=4, batch_size=8, checkpoint=path).stopped_by == "interrupted"
    assert saves[-1] > 0
    monkeypatch.undo()
    run(resumed, epochs=4, batch_size=8, checkpoint=path, resume=True)
    assert_array_equal(weights(resumed), weights(straight))


def interrupted_at(line):
    """Make a trace function that raises at the line of that number among those that a trainer runs."""
    count = 0

    def at_line(frame, event, arg):
        nonlocal count
        count += event == "line"
        if event == "line" and count == line:
            raise KeyboardInterrupt
        return at_line

    def trace(frame, event, arg):
        name = frame.f_code.co_name
        return at_line if name in ("finish_epoch", "run_batches", "close_epoch") and not count >= line else None

    return trace


@pytest.mark.parametrize("line", range(1, 75, 3))
def test_a_run_that_was_interrupted_at_any_line_resumes_to_the_bit(tmp_path, line):
    straight, resumed, path = net(), net(), tmp_path / "run.npz"
    run(straight, epochs=3, batch_size=32)
    before = sys.gettrace()
    sys.settrace(interrupted_at(line))
    try:
        history = run(net(), epochs=3, batch_size=32, checkpoint=path)
    finally:
        sys.settrace(before)
    assert history.stopped_by == "interrupted"
    resumed_history = run(resumed, epochs=3, batch_size=32, checkpoint=path, resume=True)
    assert_array_equal(weights(resumed), weights(straight))
    assert_array_equal(resumed_history["epoch"], [1, 2, 3])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    run(net(), checkpoint=path)
    with pytest.raises(ValueError, match="seed"):
        run(net(), checkpoint=path, resume=True, seed=1)
    with pytest.raises(ValueError, match="weights"):
        run(nn.Dense(3, 1, rng=np.random.default_rng(0)), checkpoint=path, resume=True)
    with pytest.raises(ValueError, match="state"):
        run(net(), checkpoint=path, resume=True, optimizer=optim.SGD(0.1, momentum=0.9))
    with pytest.raises(ValueError, match="state"):      # a rule with less of it
        run(net(), checkpoint=path, resume=True, optimizer=optim.SGD(0.1))
    with pytest.raises(ValueError, match="validation=None"):
        run(net(), checkpoint=path, resume=True, validation=regression(9))


def test_a_resumed_history_has_the_dtypes_of_one_without_a_break(tmp_path):
    path = tmp_path / "run.npz"
    run(net(), checkpoint=path, epochs=2)
    resumed, whole = run(net(), checkpoint=path, resume=True, epochs=3), run(net(), epochs=3)
    assert {name: column.dtype for name, column in resumed.items()} == {
        name: column.dtype for name, column in whole.items()}


def test_labels_for_validation_that_are_out_of_range_raise_before_training():
    def loss(model, x, labels):
        return nn.cross_entropy(model(x), labels)

    model, labels = nn.Dense(3, 2, rng=np.random.default_rng(0)), np.zeros(70, int)
    before = weights(model)
    with pytest.raises(ValueError, match="labels need to be in"):
        run(model, (regression()[0], labels), loss=loss, validation=(regression()[0], labels + 2))
    assert_array_equal(weights(model), before)


def test_columns_without_elements_are_batched():
    x, y = regression()
    history = run(net(), (x, y, np.zeros((70, 0))), loss=lambda model, x, y, none: squared(model, x, y))
    assert_array_equal(history["loss"], run(net())["loss"])


@pytest.mark.parametrize("name", ["epochs", "batch_size", "patience"])
def test_counts_need_to_be_integers(name):
    with pytest.raises(TypeError, match=f"{name} needs an int; got 2.0"):
        run(net(), **{name: 2.0})


def test_a_loss_that_draws_gets_a_key_of_its_own_for_each_batch():
    def noisy(model, x, y, *, key):
        return nn.mse(model(x + 0.1 * random.normal(key, (8, 3))), y)

    first, again = net(), net()
    data = regression(64)
    run(first, data, loss=noisy, batch_size=8)
    run(again, data, loss=noisy, batch_size=8)
    assert_array_equal(weights(first), weights(again))


def explode_at(count):
    """Make a rule whose steps become infinite after so many."""

    class Exploding(optim.SGD):
        def direction(self, flat, grad, state, count_now):
            return np.where(count_now > count, np.inf, 1.0).astype(flat.dtype) * grad, {}

    return Exploding(0.01)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9, 12])
def test_a_loss_that_is_nan_ends_the_run_with_the_last_finite_weights(count):
    model, expected = net(), net()
    with pytest.warns(RuntimeWarning, match=f"step {count + 2}"):
        history = run(model, regression(40), optimizer=explode_at(count), batch_size=8, epochs=9)
    assert history.stopped_by == "nan"
    assert np.isfinite(weights(model)).all()
    if count < 5:
        flat, layout = nf.destructure(expected)
        rule, (x, y) = optim.SGD(0.01), regression(40)
        state, order = rule.init(flat), random.permutation(random.fold(0, 1, 0), 40)
        for i in range(count):
            rows = order[8 * i : 8 * i + 8]
            flat, state = rule.step(flat, nf.grad(layout.lift(squared))(flat, x[rows], y[rows]), state)
        assert_array_equal(weights(model), flat)


def test_a_data_set_of_one_row_is_enough():
    history = run(net(), regression(1), epochs=3)
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.parametrize(
    ("data", "options", "word"),
    [
        ((np.zeros((0, 3), np.float32), np.zeros((0, 1), np.float32)), {}, "empty"),
        ((np.zeros((4, 3), np.float32), np.zeros((5, 1), np.float32)), {}, "different lengths"),
        ((np.zeros((4, 2), np.float32), np.zeros((4, 1), np.float32)), {}, "shape"),
        ((np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)), {}, "target"),
        (None, {"epochs": 0}, "epochs"),
        (None, {"batch_size": 0}, "batch_size"),
        (None, {"patience": 0}, "patience"),
    ],
)
def test_what_does_not_fit_is_refused_and_the_model_stays(data, options, word):
    model = net()
    with pytest.raises(ValueError, match=word):
        run(model, data, **options)
    assert_array_equal(weights(model), weights(net()))


def test_labels_out_of_range_are_refused_wherever_they_stand():
    x, labels = regression(2000)[0], np.zeros(2000, int)
    labels[-1] = 3
    model = nn.Dense(3, 3, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="labels"):
        run(model, (x, labels), loss=lambda m, x, y: nn.cross_entropy(m(x), y))


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="one number"):
        run(net(), loss=lambda m, x, y: m(x) - y)


def test_a_model_of_two_dtypes_is_trained():
    model = {"w": np.zeros((3, 1), np.float32), "b": np.zeros(1)}
    run(model, loss=lambda m, x, y: nn.mse(x @ m["w"] + m["b"], y), optimizer=optim.Adam(0.05), epochs=100)
    np.testing.assert_allclose(model["b"], 1, atol=0.05)


@pytest.mark.parametrize("rule", [optim.clip_norm(0.1), optim.weight_decay(0.01)], ids=repr)
def test_chained_rules_train(rule):
    history = run(net(), optimizer=optim.chain(rule, optim.SGD(optim.cosine(0.5, steps=15))))
    assert history["loss"][-1] < history["loss"][0]


def test_history_draws_a_learning_curve(tmp_path):
    pytest.importorskip("matplotlib")
    run(net(), validation=regression(9, seed=1)).plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_progress_goes_to_stderr(capsys):
    run(net(), progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "epoch 5/5" in captured.err


def test_a_second_fit_with_the_same_settings_traces_nothing():
    runs = []

    def loss(model, x, y):
        runs.append(type(x))
        return nn.mse(model(x), y)

    first, second, other = net(), net(), net()
    run(first, loss=loss)
    before = len(runs)
    run(second, loss=loss)
    assert set(runs[before:]) == {np.ndarray}           # the check of the data in plain NumPy
    assert_array_equal(weights(first), weights(second))
    before = len(runs)
    run(other, loss=loss, optimizer=optim.SGD(0.1))
    assert set(runs[before:]) != {np.ndarray}


def test_traces_are_kept_as_long_as_the_loss_lives_and_for_the_last_settings_only(monkeypatch):
    def make():
        def loss(model, x, y):
            return nn.mse(model(x), y)

        kept = []
        for rate in range(1, 6):
            run(net(), regression(4), loss=loss, optimizer=optim.SGD(rate / 100), epochs=1)
            kept.append(len(CACHE[loss]))
        return weakref.ref(loss), kept

    monkeypatch.setattr(train, "MOST_KEPT", 3)
    alive, kept = make()
    gc.collect()
    assert alive() is None
    assert kept[-1] < kept[0] + 3
