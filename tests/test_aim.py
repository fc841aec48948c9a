"""Where operations write: into parts of others, in place of arguments, and chains that are kept whole."""

import random
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnflat as nf
from nnflat import optim

LARGE = 20_000


def normal(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def kinds(program, *args):
    return [operation.kind for operation in program.trace(*args).operations]


def test_products_are_written_straight_into_what_is_concatenated():
    f = nf.compile(lambda a, b: np.concatenate([(a @ b).reshape(-1), np.tanh(b).reshape(-1)]))
    a, b = normal(3, 4), normal(4, 5)
    np.testing.assert_array_equal(f(a, b), np.concatenate([(a @ b).ravel(), np.tanh(b).ravel()]))
    assert "copy" not in kinds(f, a, b)


def test_what_is_wanted_in_two_places_is_written_once_and_copied_once():
    def twice(a):
        b = np.tanh(a)
        return np.concatenate([b, a, b]) * 2, b + 1

    f, a = nf.compile(twice), normal(6)
    for mine, numpys in zip(f(a), twice(a), strict=True):
        np.testing.assert_array_equal(mine, numpys)
    assert kinds(f, a).count("copy") == 2


def test_parts_that_overlap_are_not_aimed_at():
    def loss(x):
        return np.sum(np.sin(x[1:])) + np.sum(np.cos(x[:-1])) + np.sum(x[::2] ** 2)

    x = normal(9)
    expected = np.zeros(9)
    expected[1:] += np.cos(x[1:])
    expected[:-1] -= np.sin(x[:-1])
    expected[::2] += 2 * x[::2]
    np.testing.assert_allclose(nf.grad(loss)(x), expected)


def test_small_operations_between_do_not_cut_a_chain():
    def mixed(x, n):
        y = x * 2.0
        scale = np.sqrt(n + 1.0)
        return y + scale * x

    f = nf.compile(mixed)
    x, n = normal(LARGE), np.array(3.0)
    np.testing.assert_array_equal(f(x, n), mixed(x, n))
    assert max(instruction.chain for instruction in f.trace(x, n).replay.instructions) == 3


STEPS = [
    lambda a, b, c: a + b, lambda a, b, c: a * c, lambda a, b, c: np.tanh(b), lambda a, b, c: np.maximum(a, c),
    lambda a, b, c: a - b.mean(), lambda a, b, c: np.where(a > 0, b, c), lambda a, b, c: b[::-1],
    lambda a, b, c: np.concatenate([a[5:], b[:5]]), lambda a, b, c: 0.5 * a, lambda a, b, c: np.cumsum(c) * 1e-3,
    lambda a, b, c: a + b.max() * c, lambda a, b, c: np.square(c),
]  # fmt: skip


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 6), size=st.sampled_from([7, 3000, LARGE]))
def test_results_in_place_of_arguments_are_those_of_numpy(seed, length, size):
    rng = random.Random(seed)
    program = [(rng.randrange(len(STEPS)), *[rng.randrange(-9, 0) for _ in range(3)]) for _ in range(length)]
    chosen = [rng.randrange(-4, 0) for _ in range(3)]

    def run(x, y, z):
        values = [x, y, z]
        for step, *at in program:
            values.append(STEPS[step](*[values[max(i, -len(values))] for i in at]))
        return tuple(values[max(i, -len(values))] * 1.0 if i < -3 else values[max(i, -len(values))] for i in chosen)

    args = tuple(normal(size, seed=seed + k) for k in range(3))
    expected = [np.array(each) for each in run(*[each.copy() for each in args])]
    again = tuple(each.copy() for each in args)
    f = nf.compile(run)
    f(*[each.copy() for each in args])
    f(*again, out=again)
    for given_, wanted in zip(again, expected, strict=True):
        np.testing.assert_array_equal(given_, wanted)


def test_a_warning_in_place_names_the_operation_once_and_the_result_is_right():
    @nf.compile
    def step(x, y):
        return x + 1.0, y / (x - x)

    x, y = normal(LARGE), np.abs(normal(LARGE, seed=1)) + 1
    with np.errstate(all="ignore"):
        step(x, y)
    expected = x + 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step(x, y, out=(x, y))
    assert [str(each.message) for each in caught] == ["divide by zero encountered in divide"]
    np.testing.assert_array_equal(x, expected)
    assert np.isposinf(y).all()


def test_an_error_in_place_leaves_the_arguments_as_they_were():
    @nf.compile
    def step(x, y):
        return x + 1.0, y / (x - x)

    x, y = normal(LARGE), np.ones(LARGE)
    with np.errstate(all="ignore"):
        step(x, y)
    before = x.copy()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        step(x, y, out=(x, y))
    np.testing.assert_array_equal(x, before)
    assert (y == 1).all()


def test_a_training_step_in_place_is_one_pass_without_copies():
    rule, flat = optim.Adam(0.01), normal(LARGE, dtype=np.float32)
    grad, state = normal(LARGE, seed=1, dtype=np.float32), rule.init(flat)
    expected, expected_state = rule.step(flat, grad, state)
    step = nf.compile(rule.step)
    step(flat.copy(), grad, {name: value.copy() for name, value in state.items()})
    step(flat, grad, state, out=(flat, state))
    np.testing.assert_array_equal(flat, expected)
    for name, value in expected_state.items():
        np.testing.assert_array_equal(state[name], value)
    plan = step.trace(flat, grad, state)
    assert all(plan.replay.in_place)        # the count of steps, too: one that may not makes all take a detour
    assert "copy" not in {operation.kind for operation in plan.operations if operation.outputs[0].shape == (LARGE,)}
