"""Update rules against slow float64 references written from the papers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnflat.optim import SGD, Adam

RULES = [
    SGD(0.1),
    SGD(0.1, momentum=0.9),
    SGD(0.1, momentum=0.9, nesterov=True),
    Adam(0.1),
    Adam(0.01, 0.5, 0.9, 1e-3),
]


def gradients(steps, size, dtype=np.float64):
    return np.random.default_rng(0).normal(size=(steps, size)).astype(dtype)


def copied(state):
    return {name: value.copy() for name, value in state.items()}


def walk(rule, flat, grads):
    state = rule.init(flat)
    for grad in grads:
        flat, state = rule.step(flat, grad, state)
    return flat, state


def adam_reference(flat, grads, lr, beta1, beta2, eps):
    """Kingma, Ba 2015, algorithm 1, element by element in Python floats."""
    result = []
    for i, theta in enumerate(flat.tolist()):
        m = v = 0.0
        for t, g in enumerate(grads[:, i].tolist(), start=1):
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            theta -= lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + eps)
        result.append(theta)
    return np.array(result)


def sgd_reference(flat, grads, lr, momentum, nesterov):
    """Sutskever and others 2013, with the rate outside the velocity."""
    result = []
    for i, theta in enumerate(flat.tolist()):
        velocity = 0.0
        for g in grads[:, i].tolist():
            velocity = momentum * velocity + g
            theta -= lr * (g + momentum * velocity if nesterov else velocity)
        result.append(theta)
    return np.array(result)


@given(
    lr=st.floats(1e-4, 1.0),
    beta1=st.floats(0.0, 0.99),
    beta2=st.floats(0.0, 0.9999),
    steps=st.integers(1, 30),
)
def test_adam_is_the_algorithm_of_the_paper(lr, beta1, beta2, steps):
    flat, grads = np.linspace(-1, 1, 5), gradients(steps, 5)
    result, _ = walk(Adam(lr, beta1, beta2), flat, grads)
    expected = adam_reference(flat, grads, lr, beta1, beta2, 1e-8)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_is_the_recurrence_of_the_paper(momentum, nesterov):
    flat, grads = np.linspace(-1, 1, 5), gradients(20, 5)
    result, _ = walk(SGD(0.1, momentum, nesterov), flat, grads)
    np.testing.assert_allclose(result, sgd_reference(flat, grads, 0.1, momentum, nesterov), rtol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_dtype_stays(rule, dtype):
    flat, state = walk(rule, np.ones(4, dtype), gradients(3, 4))
    assert flat.dtype == dtype
    assert {value.dtype for name, value in state.items() if name != "step"} <= {np.dtype(dtype)}


@pytest.mark.parametrize(
    "lr",
    [
        pytest.param(0.5, id="float"),
        pytest.param(1, id="int"),
        pytest.param(np.float64(0.5), id="float64"),
        pytest.param(np.array(0.5), id="0-d"),
        pytest.param(np.full(4, 0.5), id="vector"),
        pytest.param(lambda step: np.float64(0.5), id="schedule"),
        pytest.param(lambda step: 0.5 + 0 * step, id="schedule of the count"),
    ],
)
@pytest.mark.parametrize("rule", [SGD, Adam])
def test_float32_stays_float32_whatever_the_type_of_the_rate(rule, lr):
    flat, _ = walk(rule(lr), np.ones(4, np.float32), gradients(2, 4, np.float32))
    assert flat.dtype == np.float32


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_place_gives_the_bits_of_the_copy_in_the_same_arrays(rule, dtype):
    flat, grads = np.linspace(-1, 1, 7).astype(dtype), gradients(5, 7, dtype)
    expected, expected_state = walk(rule, flat, grads)
    mine, state = flat.copy(), rule.init(flat)
    held = dict(state)
    for grad in grads:
        result = rule.step(mine, grad, state, out=(mine, state))
        assert result[0] is mine
        assert result[1] is state
    np.testing.assert_array_equal(mine, expected)
    for name, value in state.items():
        assert value is held[name]
        np.testing.assert_array_equal(value, expected_state[name])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_without_out_nothing_that_came_in_is_written(rule):
    flat, grad = np.ones(3), np.full(3, 2.0)
    state = rule.init(flat)
    before = copied(state)
    rule.step(flat, grad, state)
    np.testing.assert_array_equal(flat, np.ones(3))
    np.testing.assert_array_equal(grad, np.full(3, 2.0))
    for name in before:
        np.testing.assert_array_equal(state[name], before[name])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_the_state_is_arrays_that_count_the_steps(rule):
    _, state = walk(rule, np.ones(3), gradients(4, 3))
    assert all(type(value) is np.ndarray for value in state.values())
    assert state["step"] == 4


@pytest.mark.parametrize("rule", [SGD, Adam])
def test_a_vector_of_rates_is_a_rate_an_element(rule):
    rates, flat, grads = np.array([0.1, 0.0, 0.3]), np.ones(3), gradients(5, 3)
    together, _ = walk(rule(rates), flat, grads)
    for i, rate in enumerate(rates.tolist()):
        alone, _ = walk(rule(rate), flat[i : i + 1], grads[:, i : i + 1])
        np.testing.assert_array_equal(together[i : i + 1], alone)


@pytest.mark.parametrize("rule", [SGD, Adam])
def test_a_schedule_sees_the_steps_taken_so_far(rule):
    seen = []

    def schedule(step):
        seen.append(int(step))
        return 0.1

    result, _ = walk(rule(schedule), np.ones(3), gradients(3, 3))
    assert seen == [0, 1, 2]
    np.testing.assert_array_equal(result, walk(rule(0.1), np.ones(3), gradients(3, 3))[0])


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules_are_frozen_values(rule):
    with pytest.raises(AttributeError, match="lr"):
        rule.lr = 1.0
    assert rule == type(rule)(**vars(rule))
    assert hash(rule) == hash(type(rule)(**vars(rule)))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: SGD(0.1, momentum=1.0), "momentum"),
        (lambda: SGD(0.1, nesterov=True), "nesterov"),
        (lambda: Adam(beta1=-0.1), "beta1"),
        (lambda: Adam(beta2=1.0), "beta2"),
    ],
)
def test_a_rule_with_an_impossible_constant_is_refused(make, word):
    with pytest.raises(ValueError, match=word):
        make()


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_gradient_of_another_shape_is_refused(rule):
    with pytest.raises(ValueError, match=r"grad has shape \(1,\)"):
        rule.step(np.ones(3), np.ones(1), rule.init(np.ones(3)))


def test_a_complex_gradient_of_a_real_vector_is_refused():
    with pytest.raises(TypeError, match="complex"):
        SGD(0.1).step(np.ones(3), np.ones(3, np.complex128), SGD(0.1).init(np.ones(3)))


def test_a_vector_of_integers_is_refused():
    with pytest.raises(TypeError, match="int64"):
        SGD(0.1).step(np.ones(3, np.int64), np.ones(3), SGD(0.1).init(np.ones(3)))


@pytest.mark.parametrize("lr", [np.ones(2), lambda step: np.ones((3, 3))], ids=["vector", "schedule"])
def test_a_rate_of_another_shape_is_refused(lr):
    with pytest.raises(ValueError, match="lr has shape"):
        SGD(lr).step(np.ones(3), np.ones(3), SGD(lr).init(np.ones(3)))


def read_only(flat):
    flat.flags.writeable = False
    return flat


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("target", [np.ones(2), np.ones(3, np.float32), read_only(np.ones(3))])
def test_an_unfit_out_is_refused_before_anything_is_written(rule, target):
    flat, state = np.ones(3), rule.init(np.ones(3))
    before, before_state = target.copy(), copied(state)
    with pytest.raises(ValueError, match="out: flat is"):
        rule.step(flat, np.ones(3), state, out=(target, state))
    np.testing.assert_array_equal(target, before)
    for name in state:
        np.testing.assert_array_equal(state[name], before_state[name])


def test_a_state_of_another_rule_in_out_is_refused():
    rule, flat = Adam(), np.ones(3)
    with pytest.raises(ValueError, match="keys"):
        rule.step(flat, flat, rule.init(flat), out=(flat, SGD(0.1).init(flat)))
