"""Update rules against slow float64 references written from the papers."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnflat as nf
from nnflat import optim
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


# --- all rules ---------------------------------------------------------------------------------------------

LAYOUT = nf.Layout.of({"weight": np.zeros((2, 3)), "bias": np.zeros(1)})
ALL = {
    "SGD": SGD(0.1, momentum=0.9),
    "RMSProp": optim.RMSProp(0.01, momentum=0.5),
    "Adam": Adam(0.1),
    "AdamW": optim.AdamW(0.1, decay=0.1),
    "AMSGrad": optim.AMSGrad(0.1),
    "NAdam": optim.NAdam(0.1),
    "RAdam": optim.RAdam(0.1),
    "AdaMax": optim.AdaMax(0.1),
    "AdaGrad": optim.AdaGrad(0.1),
    "AdaDelta": optim.AdaDelta(),
    "AdaBelief": optim.AdaBelief(0.1),
    "Lion": optim.Lion(0.01, decay=0.1),
    "ClipUp": optim.ClipUp(0.1, max_speed=0.15),
    "Muon": optim.Muon(0.02, LAYOUT),
    "LAMB": optim.LAMB(0.1, LAYOUT, decay=0.1),
    "chain": optim.chain(optim.clip_value(1.0), optim.clip_norm(0.5), optim.weight_decay(0.1), Adam(0.1)),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_traced_step_in_place_gives_the_bits_of_the_plain_one(name, dtype):
    rule, grads = ALL[name], gradients(4, 7, dtype)
    expected, expected_state = walk(rule, np.linspace(-1, 1, 7).astype(dtype), grads)
    flat = np.linspace(-1, 1, 7).astype(dtype)
    state, step = rule.init(flat), nf.compile(rule.step)
    for grad in grads:
        step(flat, grad, state, out=(flat, state))
    assert flat.dtype == dtype
    np.testing.assert_array_equal(flat, expected)
    for key, value in expected_state.items():
        np.testing.assert_array_equal(state[key], value)


@pytest.mark.parametrize("name", ALL)
def test_every_rule_goes_down_a_bowl(name):
    rule, flat = ALL[name], np.linspace(-1, 1, 7) + 0.5
    start, state = np.sum(flat**2), rule.init(flat)
    for _ in range(100):
        flat, state = rule.step(flat, 2 * flat, state)
    assert np.sum(flat**2) < 0.9 * start


@pytest.mark.parametrize("name", ALL)
def test_the_state_of_every_rule_is_saved_and_loaded(name, tmp_path):
    rule = ALL[name]
    flat, state = walk(rule, np.ones(7), gradients(2, 7))
    nf.save(tmp_path / "state.npz", state)
    loaded = nf.load(tmp_path / "state.npz")
    grad = gradients(3, 7)[2]
    np.testing.assert_array_equal(rule.step(flat, grad, loaded)[0], rule.step(flat, grad, state)[0])


@pytest.mark.parametrize("name", ALL)
def test_the_rate_may_be_a_schedule_in_every_rule(name):
    rule = ALL[name]
    inner = rule.rule if name == "chain" else rule
    scheduled = dataclasses.replace(inner, lr=optim.constant(inner.lr))
    if name == "chain":
        scheduled = dataclasses.replace(rule, rule=scheduled)
    grads = gradients(3, 7, np.float32)
    np.testing.assert_array_equal(
        walk(scheduled, np.ones(7, np.float32), grads)[0], walk(rule, np.ones(7, np.float32), grads)[0]
    )


def reference(name, flat, grads):
    """The rules of the papers, element by element in Python floats."""
    result = []
    for i, x in enumerate(flat.tolist()):
        m = v = u = 0.0
        for t, g in enumerate(grads[:, i].tolist(), start=1):
            if name == "AdaGrad":
                v += g * g
                x -= 0.1 * g / (math.sqrt(v) + 1e-10)
            elif name == "AdaDelta":
                v = 0.9 * v + 0.1 * g * g
                d = math.sqrt(u + 1e-6) / math.sqrt(v + 1e-6) * g
                u = 0.9 * u + 0.1 * d * d
                x -= d
            elif name == "RMSProp":
                v = 0.99 * v + 0.01 * g * g
                u = 0.5 * u + g / (math.sqrt(v) + 1e-8)
                x -= 0.01 * u
            elif name == "Lion":
                x -= 0.01 * (math.copysign(1, 0.9 * m + 0.1 * g) + 0.1 * x)
                m = 0.99 * m + 0.01 * g
            else:
                m = 0.9 * m + 0.1 * g
                x, v, u = moments_reference(name, t, g, x, m, v, u)
        result.append(x)
    return np.array(result)


def moments_reference(name, t, g, x, m, v, u):
    mean = m / (1 - 0.9**t)
    if name == "AdaMax":
        u = max(0.999 * u, abs(g) + 1e-8)
        return x - 0.1 * mean / u, v, u
    if name == "AdaBelief":
        v = 0.999 * v + 0.001 * (g - m) ** 2 + 1e-16
        return x - 0.1 * mean / (math.sqrt(v / (1 - 0.999**t)) + 1e-16), v, u
    v = 0.999 * v + 0.001 * g * g
    root = math.sqrt(v / (1 - 0.999**t)) + 1e-8
    if name == "AMSGrad":
        u = max(u, v)
        return x - 0.1 * mean / (math.sqrt(u / (1 - 0.999**t)) + 1e-8), v, u
    if name == "NAdam":
        return x - 0.1 * (0.9 * m / (1 - 0.9 ** (t + 1)) + 0.1 * g / (1 - 0.9**t)) / root, v, u
    if name == "AdamW":
        return x - 0.1 * (mean / root + 0.1 * x), v, u
    final = 2 / 0.001 - 1
    length = final - 2 * t * 0.999**t / (1 - 0.999**t)
    if length <= 5:
        return x - 0.1 * mean, v, u
    factor = (length - 4) * (length - 2) * final / ((final - 4) * (final - 2) * length)
    return x - 0.1 * mean * math.sqrt(factor * (1 - 0.999**t)) / (math.sqrt(v) + 1e-8), v, u


@pytest.mark.parametrize(
    "name", ["AdaGrad", "AdaDelta", "RMSProp", "Lion", "AdaMax", "AdaBelief", "AMSGrad", "NAdam", "AdamW", "RAdam"]
)
def test_a_hundred_steps_are_those_of_the_paper(name):
    flat, grads = np.linspace(-1, 1, 7), gradients(100, 7)
    np.testing.assert_allclose(walk(ALL[name], flat, grads)[0], reference(name, flat, grads), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("rule", "theirs", "options"),
    [
        (Adam(0.01), "Adam", {}),
        (optim.AdamW(0.01, decay=0.1), "AdamW", {"weight_decay": 0.1}),
        (optim.AMSGrad(0.01), "Adam", {"amsgrad": True}),
        (optim.RAdam(0.01), "RAdam", {}),
        (optim.AdaMax(0.01), "Adamax", {}),
        (optim.AdaGrad(0.01), "Adagrad", {}),
        (optim.AdaDelta(0.01), "Adadelta", {}),
        (optim.RMSProp(0.01), "RMSprop", {}),
        (SGD(0.01, 0.9, nesterov=True), "SGD", {"momentum": 0.9, "nesterov": True}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_hundred_steps_are_those_of_torch(rule, theirs, options):
    torch = pytest.importorskip("torch")
    flat, grads = np.linspace(-1, 1, 7), gradients(100, 7)
    parameter = torch.tensor(flat, requires_grad=True)
    optimizer = getattr(torch.optim, theirs)([parameter], lr=0.01, **options)
    for grad in grads:
        parameter.grad = torch.tensor(grad)
        optimizer.step()
    np.testing.assert_allclose(walk(rule, flat, grads)[0], parameter.detach().numpy(), rtol=1e-6, atol=1e-9)


def test_lamb_moves_each_leaf_in_proportion_to_its_norm():
    rule, flat = optim.LAMB(0.1, LAYOUT), np.arange(1.0, 8.0)
    moved = flat - rule.step(flat, np.ones(7), rule.init(flat))[0]
    for part in LAYOUT.values():
        np.testing.assert_allclose(np.linalg.norm(moved[part]), 0.1 * np.linalg.norm(flat[part]))


def test_muon_moves_matrices_by_nearly_orthogonal_steps_and_leaves_the_rest_to_the_other_rule():
    rule, flat, grad = optim.Muon(1.0, LAYOUT, others=SGD(0.5)), np.zeros(7), gradients(1, 7)[0]
    moved = -rule.step(flat, grad, rule.init(flat))[0]
    values = np.linalg.svd(moved[LAYOUT["weight"]].reshape(2, 3), compute_uv=False)
    assert ((values > 0.6) & (values < 1.3)).all()
    np.testing.assert_allclose(moved[6], 0.5 * grad[6])


def test_a_flat_vector_of_another_layout_is_refused():
    for rule in (ALL["LAMB"], ALL["Muon"]):
        with pytest.raises(ValueError, match="layout"):
            rule.step(np.ones(3), np.ones(3), rule.init(np.ones(3)))


def test_clip_up_is_never_faster_than_its_limit():
    rule, flat = optim.ClipUp(0.1, max_speed=0.15), np.zeros(7)
    state = rule.init(flat)
    for grad in gradients(20, 7) + 1:
        after, state = rule.step(flat, grad, state)
        assert np.linalg.norm(after - flat) < 0.15 + 1e-12
        flat = after


def test_per_path_rates_come_from_the_layout():
    rates = LAYOUT.fill({"bias": 0.0}, default=0.1)
    flat, _ = walk(Adam(rates), np.ones(7), gradients(3, 7))
    assert flat[6] == 1
    assert (flat[:6] != 1).all()


def test_masked_weight_decay_leaves_the_others_alone():
    mask = LAYOUT.fill({"bias": False}, default=True)
    for rule in (optim.chain(optim.weight_decay(0.1, mask=mask), SGD(1.0)), optim.AdamW(0.1, mask=mask)):
        flat, _ = rule.step(np.ones(7), np.zeros(7), rule.init(np.ones(7)))
        assert flat[6] == 1
        assert (flat[:6] < 1).all()


SCHEDULES = {
    "constant": (optim.constant(0.1), [0.1, 0.1, 0.1, 0.1]),
    "step": (optim.step(1.0, every=2, factor=0.5), [1, 1, 0.5, 0.5]),
    "exponential": (optim.exponential(1.0, factor=0.5), [1, 0.5, 0.25, 0.125]),
    "cosine": (optim.cosine(1.0, steps=2, final=0.2), [1, 0.6, 0.2, 0.2]),
    "warmup": (optim.warmup(optim.step(1.0, every=3, factor=0.1), steps=2), [0.5, 1, 1, 0.1]),
    "one_cycle": (optim.one_cycle(1.0, steps=4, rise=0.5, start=2, end=1.0), [0.5, 0.75, 1, 0.75]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_its_rates_plain_and_traced(name):
    schedule, expected = SCHEDULES[name]
    np.testing.assert_allclose([schedule(np.array(i)) for i in range(4)], expected)
    np.testing.assert_allclose([nf.compile(schedule)(np.array(i)) for i in range(4)], expected)
    assert schedule == dataclasses.replace(schedule)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.step(1.0, every=0, factor=0.5),
        lambda: optim.cosine(1.0, steps=0),
        lambda: optim.one_cycle(1.0, steps=5, rise=1.0),
        lambda: optim.clip_norm(0.0),
        lambda: optim.clip_value(-1.0),
        lambda: optim.ClipUp(0.1, max_speed=0.0),
        lambda: optim.RMSProp(beta=1.0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()


def test_a_chain_needs_a_rule_at_its_end():
    with pytest.raises(TypeError, match="rule"):
        optim.chain(optim.clip_norm(1.0))
    with pytest.raises(TypeError, match="rule"):
        optim.chain(SGD(0.1), SGD(0.1))
