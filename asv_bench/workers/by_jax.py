"""JAX: jitted, parameters as arguments, buffers of a training step donated; a call ends when its result is there."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from workers import cases
from workers.cases import LR, Work

wait = jax.block_until_ready


def net(layers, x):
    for weight, bias in layers:
        x = jnp.tanh(x @ weight + bias)
    return x


def pure(function, *args):
    jitted, args = jax.jit(function), jax.device_put(args)
    return Work(lambda: wait(jitted(*args)), lambda: np.asarray(jitted(*args)))


def policy(case):
    return pure(net, *cases.policy(case))


def candidates(case):
    return pure(jax.vmap(net), *cases.candidates())


def chain(case):
    def function(x):
        for _ in range(10):
            x = (x + 1.5) * 0.5
        return x

    return pure(function, cases.drawn(10**6))


def empty(case):
    return pure(lambda x: x, np.zeros(3, np.float32))


def linear_last(layers, x):
    *hidden, (weight, bias) = layers
    return net(hidden, x) @ weight + bias


def cross_entropy(layers, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(linear_last(layers, x)), y[:, None], 1).mean()


def squared(layers, x, y):
    return jnp.square(linear_last(layers, x) - y).mean()


def adam_update(layers, grad, mean, square, count):
    each, count = jax.tree.map, count + 1
    mean = each(lambda m, g: 0.9 * m + 0.1 * g, mean, grad)
    square = each(lambda v, g: 0.999 * v + 0.001 * g * g, square, grad)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    layers = each(lambda p, m, v: p - LR * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), layers, mean, square)
    return layers, mean, square, count


def trained(loss, layers, x, y, steps):
    def one(state, x, y):
        value, grad = jax.value_and_grad(loss)(state[0], x, y)
        layers, *rest = state
        return adam_update(layers, grad, *rest), value

    @partial(jax.jit, donate_argnums=0)
    def run(state, x, y):
        if steps == 1:
            return one(state, x, y)
        state, values = jax.lax.scan(lambda state, _: one(state, x, y), state, length=steps)
        return state, values[-1]

    zeros = [jax.tree.map(jnp.zeros_like, layers) for _ in range(2)]
    held = [(jax.device_put(layers), *zeros, jnp.zeros(())), None]
    x, y = jax.device_put((x, y))

    def call():
        held[:] = wait(run(held[0], x, y))

    return Work(call, lambda: np.asarray(held[1]))


def step(case):
    return trained(cross_entropy, *cases.step(case), 1)


def regression(case):
    return trained(squared, *cases.regression(), 100)


def adam(case):
    flat = cases.drawn(800_000)
    grad = jnp.array(np.float32(0.1) * flat)
    run = jax.jit(lambda state, grad: adam_update(state[0], grad, *state[1:]), donate_argnums=0)
    held = [(jnp.array(flat), jnp.zeros_like(flat), jnp.zeros_like(flat), jnp.zeros(()))]

    def call():
        held[0] = wait(run(held[0], grad))

    return Work(call, lambda: np.asarray(held[0][0]))


def destructure(case):
    leaves = jax.device_put(cases.leaves(case))
    return Work(lambda: wait(ravel_pytree(leaves)[0]), lambda: np.asarray(ravel_pytree(leaves)[0]))


def restructure(case):
    flat, unravel = ravel_pytree(jax.device_put(cases.leaves(case)))
    return Work(lambda: wait(unravel(flat)), lambda: np.asarray(ravel_pytree(unravel(flat))[0]))


MAKERS = {
    **dict.fromkeys(cases.POLICIES, policy),
    cases.VMAP: candidates,
    cases.CHAIN: chain,
    cases.EMPTY: empty,
    **dict.fromkeys(cases.STEPS, step),
    cases.REGRESSION: regression,
    cases.ADAM: adam,
    **{f"destructure {model}": destructure for model in cases.MODELS},
    **{f"restructure {model}": restructure for model in cases.MODELS},
}
