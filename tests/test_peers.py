"""Gradients against JAX, and update rules against optax: for those who have them, from the extra `bench`."""

import dataclasses

import numpy as np
import pytest
from derivatives import EXAMPLES, is_inexact, normal, weighted
from numpy.testing import assert_allclose
from programs import derivable

import nnflat as nf
from nnflat import optim
from nnflat.compile import trace_once
from nnflat.grad import Gradient

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

NOT_IN_JAX = (AttributeError, NotImplementedError, TypeError, ValueError, jax.errors.JAXTypeError,
              jax.errors.TracerArrayConversionError)  # fmt: skip
OTHERS_IN_JAX = {       # all of them are those of central differences in test_rules.py
    **dict.fromkeys(["clip", "clip 1", "clip 2", "clip 3"], "shares at the bounds"),
}  # fmt: skip
CASES = [pytest.param(fn, args, id=f"{name} {i}" if i else name)
         for name, examples in EXAMPLES.items() for i, (fn, *args) in enumerate(examples)]  # fmt: skip


def by_jax(loss, args):
    """Return JAX's gradients, and the derivative of the first along a line; None where it has no such function."""
    numbers = tuple(k for k, arg in enumerate(args) if is_inexact(arg))

    def both(*args):
        along = jax.jvp(lambda x: jax.grad(loss)(x, *args[1:]), (args[0],), (jnp.ones_like(args[0]),))
        return jax.grad(loss, numbers)(*args), along[1]

    try:
        gradients, slope = jax.jit(both)(*[jnp.asarray(arg) for arg in args])
    except NOT_IN_JAX:
        return None
    return [np.asarray(each) for each in gradients], np.asarray(slope)


def along_ones(fn, x):
    """Return the product of the Hessian with ones."""
    slopes = nf.grad(fn, allow_unused=True)
    return trace_once(Gradient(lambda x: np.sum(slopes(x)), 0, False, True, False), (x,))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("fn", "args"), [case for case in CASES if case.id not in OTHERS_IN_JAX])
def test_first_and_second_derivatives_are_those_of_jax_where_it_has_them(fn, args):
    found = by_jax(weighted(lambda *args: fn(jnp, *args), jnp), args)
    if found is None:
        pytest.skip("JAX has no such function")
    loss = weighted(lambda *args: fn(np, *args))
    numbers = tuple(k for k, arg in enumerate(args) if is_inexact(arg))
    for mine, its in zip(trace_once(Gradient(loss, numbers, False, True, False), args), found[0], strict=True):
        assert_allclose(mine, its, rtol=1e-8, atol=1e-9)
    if np.asarray(args[0]).dtype.kind == "f":
        assert_allclose(along_ones(lambda x: loss(x, *args[1:]), args[0]), found[1], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["real", "complex", "mixed"])
def test_generated_programs_have_the_derivatives_of_jax(kind, seed):
    program, args = derivable(kind, seed)
    gradients, slope = by_jax(lambda *args: program(jnp, *args), args)
    mine = trace_once(Gradient(lambda *args: program(np, *args), (0, 1), False, True, False), args)
    for given, expected in zip(mine, gradients, strict=True):
        assert given.dtype == expected.dtype
        tolerance = 1e-8 if kind != "mixed" else 2e-4
        assert_allclose(given, expected, rtol=tolerance, atol=tolerance)
    if kind == "real":
        assert_allclose(along_ones(lambda x: program(np, x, args[1]), args[0]), slope, rtol=1e-7, atol=1e-8)


# --- update rules ------------------------------------------------------------------------------------------

LAYOUT = nf.Layout.of({"a": np.zeros((2, 3)), "b": np.zeros(1)})
RULES = {
    "sgd": (optim.SGD(0.01), {}),
    "sgd momentum": (optim.SGD(0.01, 0.9), {"momentum": 0.9}),
    "sgd nesterov": (optim.SGD(0.01, 0.9, nesterov=True), {"momentum": 0.9, "nesterov": True}),
    "adam": (optim.Adam(0.01), {}),
    "adamw": (optim.AdamW(0.01, decay=0.1), {"weight_decay": 0.1}),
    "nadam": (optim.NAdam(0.01), {}),
    "radam": (optim.RAdam(0.01), {}),
    "adamax": (optim.AdaMax(0.01), {}),
    "adabelief": (optim.AdaBelief(0.01), {"eps": 1e-16, "eps_root": 1e-16}),
    "adadelta": (optim.AdaDelta(0.01), {"rho": 0.9, "eps": 1e-6}),
    "rmsprop": (optim.RMSProp(0.01), {"decay": 0.99, "eps": 1e-8, "eps_in_sqrt": False}),
    "rmsprop momentum": (optim.RMSProp(0.01, momentum=0.5),
                         {"decay": 0.99, "eps": 1e-8, "eps_in_sqrt": False, "momentum": 0.5}),
    "lion": (optim.Lion(0.01, decay=0.1), {"b2": 0.99, "weight_decay": 0.1}),
    "lamb": (optim.LAMB(0.01, LAYOUT, decay=0.1), {"eps": 1e-6, "weight_decay": 0.1}),
}  # fmt: skip


def walk(rule, flat, grads):
    state, step = rule.init(flat), nf.compile(rule.step)
    for grad in grads:
        flat, state = step(flat, grad, state)
    return flat


def walk_by_optax(rule, flat, grads):
    tree = {name: jnp.asarray(value) for name, value in LAYOUT.view(flat).items()}
    state = rule.init(tree)
    optax = pytest.importorskip("optax")
    for grad in grads:
        updates, state = rule.update(LAYOUT.view(grad), state, tree)
        tree = optax.apply_updates(tree, updates)
    return LAYOUT.destructure({name: np.asarray(value) for name, value in tree.items()})


@pytest.mark.parametrize("name", RULES)
def test_a_hundred_steps_are_those_of_optax(name):
    optax = pytest.importorskip("optax")
    rule, options = RULES[name]
    flat, grads = np.linspace(-1, 1, 7), normal(100, 7)
    expected = walk_by_optax(getattr(optax, name.split()[0])(0.01, **options), flat, grads)
    assert_allclose(walk(rule, flat, grads), expected, rtol=1e-6, atol=1e-9)


def test_transforms_of_the_gradient_are_those_of_optax():
    optax = pytest.importorskip("optax")
    rule = optim.chain(optim.clip_value(1.0), optim.clip_norm(0.5), optim.weight_decay(0.1), optim.SGD(0.01))
    before = [optax.clip(1.0), optax.clip_by_global_norm(0.5), optax.add_decayed_weights(0.1)]
    theirs = optax.chain(*before, optax.sgd(0.01))
    flat, grads = np.linspace(-1, 1, 7), normal(100, 7)
    assert_allclose(walk(rule, flat, grads), walk_by_optax(theirs, flat, grads), rtol=1e-6, atol=1e-9)


def test_schedules_are_those_of_optax():
    optax = pytest.importorskip("optax")
    pairs = [
        (optim.cosine(0.1, steps=20, final=0.01), optax.cosine_decay_schedule(0.1, 20, alpha=0.1)),
        (optim.exponential(0.1, factor=0.9), optax.exponential_decay(0.1, 1, 0.9)),
        (optim.step(0.1, every=5, factor=0.5), optax.exponential_decay(0.1, 5, 0.5, staircase=True)),
    ]
    for mine, theirs in pairs:
        assert_allclose([mine(np.array(i)) for i in range(25)], [theirs(i) for i in range(25)], rtol=1e-6)
        rule = dataclasses.replace(optim.Adam(), lr=mine)
        flat, grads = np.linspace(-1, 1, 7), normal(25, 7)
        assert_allclose(walk(rule, flat, grads), walk_by_optax(optax.adam(theirs), flat, grads), rtol=1e-6)
