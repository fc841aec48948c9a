"""ClipUp against a reference written from the paper."""

import numpy as np
import pytest

from nnflat.optim import ClipUp


def reference(flat, grads, lr, max_speed, momentum):
    velocity = np.zeros(flat.size)
    for grad in grads:
        velocity = momentum * velocity + lr * grad / np.linalg.norm(grad)
        speed = np.linalg.norm(velocity)
        if speed > max_speed:
            velocity *= max_speed / speed
        flat = flat - velocity
    return flat


def walk(rule, flat, grads):
    state = rule.init(flat)
    for grad in grads:
        flat, state = rule.step(flat, grad, state, out=(flat, state))
    return flat, state


@pytest.mark.parametrize(("lr", "max_speed", "momentum"), [(0.1, 0.2, 0.9), (0.1, 0.05, 0.5), (0.1, 9.0, 0.0)])
def test_it_is_the_algorithm_of_the_paper(lr, max_speed, momentum):
    grads = np.random.default_rng(0).normal(size=(30, 7))
    flat, _ = walk(ClipUp(lr, max_speed, momentum), np.ones(7), grads)
    np.testing.assert_allclose(flat, reference(np.ones(7), grads, lr, max_speed, momentum), rtol=1e-12)


def test_the_greatest_speed_is_twice_the_rate_unless_said_otherwise():
    grads = np.random.default_rng(0).normal(size=(30, 7)) + 1
    np.testing.assert_array_equal(walk(ClipUp(0.1), np.ones(7), grads)[0], walk(ClipUp(0.1, 0.2), np.ones(7), grads)[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_zero_gradient_lets_the_velocity_fade_and_the_dtype_stays(dtype):
    flat, state = walk(ClipUp(0.1), np.ones(3, dtype), np.zeros((2, 3), dtype))
    np.testing.assert_array_equal(flat, np.ones(3))
    assert (flat.dtype, state["velocity"].dtype, int(state["step"])) == (dtype, dtype, 2)


def test_the_length_of_the_gradient_plays_no_part():
    grads = np.random.default_rng(0).normal(size=(10, 4))
    np.testing.assert_allclose(walk(ClipUp(0.1), np.ones(4), 1e9 * grads)[0], walk(ClipUp(0.1), np.ones(4), grads)[0])


def test_a_rate_may_be_a_schedule():
    flat, _ = walk(ClipUp(lambda step: 0.1 / (1 + step), momentum=0.0), np.zeros(1), -np.ones((3, 1)))
    np.testing.assert_allclose(flat, [0.1 + 0.05 + 0.1 / 3])


@pytest.mark.parametrize("options", [{"momentum": 1.0}, {"max_speed": 0.0}])
def test_impossible_constants_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ClipUp(0.1, **options)
