"""Losses: what they are, at extremes, in what dtype, and their gradients."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import nnflat as nf
from nnflat import nn

RNG = np.random.default_rng(0)
PRED, TARGET = RNG.standard_normal((5, 4)), RNG.standard_normal((5, 4))
LABELS = np.array([0, 3, 1, 1, 2])
SOFT = np.abs(TARGET) / np.abs(TARGET).sum(axis=1, keepdims=True)
CASES = {
    "mse": (nn.mse, PRED, TARGET),
    "mae": (nn.mae, PRED, TARGET),
    "huber": (nn.huber, 3 * PRED, TARGET),
    "cross_entropy": (nn.cross_entropy, PRED, LABELS),
    "binary_cross_entropy": (nn.binary_cross_entropy, PRED, (TARGET > 0).astype(int)),
    "hinge": (nn.hinge, PRED, np.sign(TARGET)),
    "kl_div": (nn.kl_div, nn.log_softmax(PRED), SOFT),
    "poisson": (nn.poisson, PRED, np.floor(np.abs(TARGET) * 3)),
    "cosine": (nn.cosine, PRED, TARGET),
}


def log_probabilities(pred):
    return np.log(np.exp(pred) / np.exp(pred).sum(axis=-1, keepdims=True))


def test_they_are_their_definitions():
    assert_allclose(nn.mse(PRED, TARGET), np.mean((PRED - TARGET) ** 2))
    assert_allclose(nn.mae(PRED, TARGET), np.mean(np.abs(PRED - TARGET)))
    d = np.abs(3 * PRED - TARGET)
    assert_allclose(nn.huber(3 * PRED, TARGET), np.mean(np.where(d < 1, d**2 / 2, d - 0.5)))
    assert_allclose(nn.cross_entropy(PRED, LABELS), -log_probabilities(PRED)[np.arange(5), LABELS].mean())
    p, t = 1 / (1 + np.exp(-PRED)), TARGET > 0
    assert_allclose(nn.binary_cross_entropy(PRED, t), -np.mean(np.where(t, np.log(p), np.log(1 - p))))
    assert_allclose(nn.kl_div(log_probabilities(PRED), SOFT),
                    np.mean(np.sum(SOFT * (np.log(SOFT) - log_probabilities(PRED)), axis=1)))  # fmt: skip
    cosines = np.sum(PRED * TARGET, axis=1) / np.linalg.norm(PRED, axis=1) / np.linalg.norm(TARGET, axis=1)
    assert_allclose(nn.cosine(PRED, TARGET), np.mean(1 - cosines))


@pytest.mark.parametrize("name", CASES)
def test_reductions_are_those_of_the_losses_of_the_examples(name):
    loss, pred, target = CASES[name]
    each = loss(pred, target, reduction="none")
    assert_allclose(loss(pred, target), each.mean())
    assert_allclose(loss(pred, target, reduction="sum"), each.sum())
    with pytest.raises(ValueError, match="reduction"):
        loss(pred, target, reduction="median")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_dtype_is_that_of_the_predictions(name, dtype):
    loss, pred, target = CASES[name]
    assert loss(pred.astype(dtype), target).dtype == dtype
    assert nf.grad(loss)(pred.astype(dtype), target).dtype == dtype


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_central_differences(name):
    loss, pred, target = CASES[name]
    slopes = np.zeros_like(pred)
    for i in np.ndindex(pred.shape):
        step = np.zeros_like(pred)
        step[i] = 1e-6
        slopes[i] = (loss(pred + step, target) - loss(pred - step, target)) / 2e-6
    assert_allclose(nf.grad(loss)(pred, target), slopes, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["cross_entropy", "binary_cross_entropy", "huber", "hinge"])
def test_extreme_predictions_give_finite_losses_and_gradients(name):
    loss, pred, target = CASES[name]
    extreme = np.float32(1e4) * np.sign(pred).astype(np.float32)
    assert np.isfinite(loss(extreme, target))
    assert np.isfinite(nf.grad(loss)(extreme, target)).all()


def test_one_hot_targets_give_what_labels_give():
    assert_allclose(nn.cross_entropy(PRED, np.eye(4)[LABELS]), nn.cross_entropy(PRED, LABELS))


def test_smoothed_labels_share_evenly():
    smooth = 0.8 * np.eye(4)[LABELS] + 0.05
    assert_allclose(nn.cross_entropy(PRED, LABELS, label_smoothing=0.2), nn.cross_entropy(PRED, smooth))


def test_weights_weigh_classes_and_the_mean_is_over_weights():
    weight = np.array([1.0, 2.0, 0.5, 0.0])
    each = nn.cross_entropy(PRED, LABELS, reduction="none")
    expected = np.sum(each * weight[LABELS]) / weight[LABELS].sum()
    assert_allclose(nn.cross_entropy(PRED, LABELS, weight=weight), expected)


def test_a_target_of_zero_adds_nothing_to_the_divergence():
    assert_allclose(nn.kl_div(np.log(np.array([0.25, 0.75])), np.array([0.0, 1.0])), -np.log(0.75))


def test_the_cosine_of_a_zero_vector_is_zero_and_has_no_slope():
    zero = np.zeros((1, 3))
    assert nn.cosine(zero, np.ones((1, 3))) == 1
    assert_array_equal(nf.grad(nn.cosine)(zero, np.ones((1, 3))), zero)


def test_labels_out_of_range_raise_or_give_nan_on_a_tape():
    with pytest.raises(ValueError, match=r"labels .* -1 to 3"):
        nn.cross_entropy(PRED, LABELS - 1 + (LABELS == 3))
    assert np.isnan(nf.compile(nn.cross_entropy)(PRED, LABELS + 1))


@pytest.mark.parametrize(
    ("loss", "target", "word"),
    [
        (nn.mse, TARGET[:4], "target"),
        (nn.mse, TARGET[:, :1], "target"),
        (nn.cross_entropy, LABELS[:4], "labels"),
        (nn.cross_entropy, SOFT[:4], "probabilities"),
    ],
)
def test_a_target_of_another_shape_is_refused(loss, target, word):
    with pytest.raises(ValueError, match=word):
        loss(PRED, target)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="empty"):
        nn.mse(PRED[:0], TARGET[:0])


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="delta"):
        nn.huber(PRED, TARGET, delta=0)
    with pytest.raises(ValueError, match="label_smoothing"):
        nn.cross_entropy(PRED, LABELS, label_smoothing=1.0)


def test_relu_leaky_relu_and_softmaxes_have_rules_of_their_own():
    assert_array_equal(nf.grad(lambda x: np.sum(nn.relu(x)))(np.array([-1.0, 0.0, 2.0])), [0, 0, 1])
    assert_array_equal(nf.grad(lambda x: np.sum(nn.leaky_relu(x, 0.5)))(np.array([-1.0, 2.0])), [0.5, 1])
