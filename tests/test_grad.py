"""Gradients: against central differences, HIPS autograd, and themselves run eagerly; kinks, trees, errors."""

import gc
import weakref

import numpy as np
import pytest
from derivatives import P, X, Y, check, check_second, differences, normal, weighted
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from programs import KINDS, derivable

import nnflat as nf
from nnflat import nn
from nnflat.compile import trace_once
from nnflat.context import TraceError
from nnflat.grad import Gradient
from nnflat.verify import same_bits

# --- indices, operators, activations -----------------------------------------------------------------------

PROGRAMS = {
    "slice": (lambda x: x[1:, ::2] ** 2, X),
    "slice of a slice": (lambda x: x[:, 1:][1:, ::-1] ** 2, X),
    "slice of a transpose": (lambda x: x.T[1:3] ** 2, X),
    "reversed": (lambda x: x[::-1] * Y, X),
    "element": (lambda x: x[1, 2] * x[0, 0], X),
    "rows": (lambda x: sum(row * i for i, row in enumerate(x)), X),
    "newaxis": (lambda x: x[:, None, :] * x[None], X),
    "integer index": (lambda x: x[np.array([0, 2, 0])] ** 2, X),
    "two integer indices": (lambda x: x[np.array([0, 2, 0]), np.array([1, 1, 1])] ** 2, X),
    "list index": (lambda x: x[[0, 0, 1]] ** 2, X),
    "argmax": (lambda x: x[np.argmax(x[:, 0])] ** 2, X),
    "matmul with itself": (lambda x: x @ x.T, X),
    "power of a number": (lambda x: x**3 + 2.0**x + x**-1, P),
    "powers with shortcuts": (lambda x: x**2 + x**0.5 + x**-1, P),
    "operators": (lambda x, y: -x + y - x * y / 2 + abs(x) + x // y + x % y, X, P),
    "scalars": (lambda x: x[0] * x[1] / x[2] + x[0] ** 2, P[0]),
    "sum to float64": (lambda x: np.sum(x.astype(np.float32), dtype=np.float64), X),
    "casts": (lambda x: x.astype(np.float32).astype(np.float64) * 2.0, np.float32(X).astype(float)),
    "softmax": (nn.softmax, X),
    "log_softmax": (lambda x: nn.log_softmax(x, axis=0), X),
    **{name: (getattr(nn, name), X) for name in (
        "relu", "leaky_relu", "elu", "selu", "softplus", "sigmoid", "silu", "gelu", "tanh")},
}  # fmt: skip
COARSE = {"sum to float64", "casts"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradient_is_that_of_central_differences(name):
    fn, *args = PROGRAMS[name]
    if name in COARSE:
        given = nf.grad(weighted(fn))(args[0])
        assert_allclose(given, trace_once(Gradient(weighted(fn), 0, False, False, False), (args[0],)))
        assert_allclose(given, differences(weighted(fn), args[0], 1e-2), rtol=1e-4, atol=1e-4)
    else:
        check(fn, *args)


# --- generated programs ------------------------------------------------------------------------------------

def by_autograd(program, args):
    autograd = pytest.importorskip("autograd")
    import autograd.numpy as theirs

    return [autograd.grad(lambda x, y: program(theirs, x, y), k)(*args) for k in (0, 1)]


@pytest.mark.filterwarnings("ignore:Output seems independent")
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("kind", KINDS)
def test_generated_programs_have_the_gradients_of_autograd(kind, seed):
    program, args = derivable(kind, seed)
    expected = by_autograd(program, args)
    gradient = Gradient(lambda x, y: program(np, x, y), (0, 1), False, True, False)
    for mine, its, arg in zip(trace_once(gradient, args), expected, args, strict=True):
        assert mine.dtype == arg.dtype
        tolerance = 1e-8 if "f" not in KINDS[kind] else 2e-4
        assert_allclose(mine, its, rtol=tolerance, atol=tolerance)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
@pytest.mark.parametrize("kind", KINDS)
def test_the_tape_of_a_generated_gradient_has_the_bits_of_the_rules_run_eagerly(kind, seed):
    program, args = derivable(kind, seed)
    gradient = nf.grad(lambda x, y: program(np, x, y), (0, 1), allow_unused=True)
    gradient(*args)
    others = [np.asarray(arg * 0.5 - 0.1, arg.dtype) for arg in args]
    for mine, eager in zip(gradient(*others), trace_once(gradient.fn, tuple(others)), strict=True):
        assert same_bits(mine, eager)


@settings(max_examples=6)
@given(seed=st.integers(0, 2**32))
def test_generated_programs_have_the_second_derivatives_of_central_differences(seed):
    program, (x, y) = derivable("smooth", seed)
    check_second(nf.grad(lambda x: program(np, x, y), allow_unused=True), x)


# --- kinks -------------------------------------------------------------------------------------------------

ZERO = np.zeros(3)
KINKS = [
    ("ties of maximum share", lambda x: np.sum(np.maximum(x, 0)), ZERO, 0.5),
    ("ties of minimum share", lambda x: np.sum(np.minimum(x, 0)), ZERO, 0.5),
    ("ties of max share", np.max, ZERO, 1 / 3),
    ("relu at 0", lambda x: np.sum(nn.relu(x)), ZERO, 0),
    ("abs at 0", lambda x: np.sum(np.abs(x)), ZERO, 0),
    ("norm at 0", np.linalg.norm, ZERO, 0),
    ("norm of rows at 0", lambda x: np.sum(np.linalg.norm(x[None], axis=1)), ZERO, 0),
    ("norm of order 1 at 0", lambda x: np.linalg.norm(x, 1), ZERO, 0),
    ("std of a constant", np.std, np.ones(3), 0),
    ("std of a constant along an axis", lambda x: np.sum(np.std(x[None], axis=1)), np.ones(3), 0),
    ("clip at a bound", lambda x: np.sum(np.clip(x, 0, 1)), ZERO, 1),
    ("clip at the only bound", lambda x: np.sum(np.clip(x, 0, None)), ZERO, 1),
    ("clip at the upper bound", lambda x: np.sum(np.clip(x, None, 0)), ZERO, 1),
    ("x ** 0", lambda x: np.sum(x**0.0), ZERO, 0),
    ("x ** an array of 0", lambda x: np.sum(x ** np.zeros(3)), ZERO, 0),
    ("prod of zeros", np.prod, ZERO, 0),
    ("hypot at 0", lambda x: np.sum(np.hypot(x, x)), ZERO, 0),
    ("arctan2 at 0", lambda x: np.sum(np.arctan2(x, x)), ZERO, 0),
    ("sqrt not taken", lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0)), ZERO, 0),
    ("log not taken", lambda x: np.sum(np.where(x > 0, x * np.log(x), 0)), ZERO, 0),
    ("division not taken", lambda x: np.sum(np.where(x != 0, 1 / x, x)), ZERO, 1),
    ("exp not taken", lambda x: np.sum(np.where(x < 0, np.exp(x), x)), np.full(3, 1000.0), 1),
    ("power not taken", lambda x: np.sum(np.where(x > 0, x**-0.5, x)), ZERO, 1),
    ("sqrt masked by a product", lambda x: np.sum(np.sqrt(x) * np.zeros(3)) + np.sum(x), ZERO, 1),
    ("sqrt sliced away", lambda x: np.sqrt(x)[0] + x[0], np.array([1.0, 0.0, 0.0]), [1.5, 0, 0]),
    ("logaddexp of -inf", lambda x: np.sum(np.where(np.isfinite(x), np.logaddexp(x, x), x)), np.full(3, -np.inf), 1),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*encountered")
@pytest.mark.parametrize(("name", "fn", "x", "slope"), KINKS, ids=[kink[0] for kink in KINKS])
def test_a_kink_has_its_convention(name, fn, x, slope):
    assert_allclose(nf.grad(fn, allow_unused=True)(x), np.broadcast_to(slope, 3))


def test_prod_is_exact_with_one_zero():
    assert_array_equal(nf.grad(np.prod)(np.array([2.0, 0.0, 3.0])), [0, 6, 0])
    assert_array_equal(nf.grad(lambda x: np.cumprod(x)[-1])(np.array([2.0, 0.0, 3.0])), [0, 6, 0])


@pytest.mark.filterwarnings("ignore:.*encountered")
def test_the_root_of_zero_has_an_infinite_slope_where_it_is_taken():
    assert nf.grad(np.sqrt)(0.0) == np.inf


def test_the_walk_back_warns_of_nothing():
    assert nf.grad(np.sqrt)(0.0) == np.inf
    assert_array_equal(nf.grad(lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0)))(ZERO), ZERO)


# --- forms -------------------------------------------------------------------------------------------------

def test_the_gradient_of_a_tree_is_a_tree_with_zeros_and_statics():
    tree = {"w": np.ones(2), "unused": np.ones((1, 2)), "name": "net", "labels": np.arange(3)}
    given = nf.grad(lambda t: np.sum(t["w"] ** 2))(tree)
    assert_array_equal(given["w"], [2, 2])
    assert_array_equal(given["unused"], np.zeros((1, 2)))
    assert given["name"] == "net"
    assert_array_equal(given["labels"], np.arange(3))


def test_the_gradient_of_a_model_is_a_model():
    model = nn.Dense(3, 2, "tanh", rng=np.random.default_rng(0))
    given = nf.grad(lambda m, x: np.sum(m(x)))(model, np.ones((4, 3), np.float32))
    assert type(given) is nn.Dense
    assert given.weight.shape == (3, 2)
    assert given.weight.dtype == np.float32


def test_several_arguments_give_a_tuple():
    a, b = nf.grad(lambda x, y: np.sum(x * y), (0, 1))(X, Y)
    assert_array_equal(a, Y)
    assert_array_equal(b, X)


def test_value_and_grad_gives_the_value_of_the_function_to_the_bit():
    value, _ = nf.value_and_grad(weighted(np.tanh))(X)
    assert value == weighted(np.tanh)(X)


def test_what_comes_along_is_given_back():
    gradient, aux = nf.grad(lambda x: (np.sum(x**2), {"mean": np.mean(x)}), has_aux=True)(X)
    assert_array_equal(gradient, 2 * X)
    assert aux["mean"] == np.mean(X)
    (_, aux), gradient = nf.value_and_grad(lambda x: (np.sum(x**2), "note"), has_aux=True)(X)
    assert aux == "note"


def test_gradients_are_fresh_arrays():
    f = nf.grad(lambda x: np.sum(x * x))
    first = f(X)
    kept = first.copy()
    second = f(2 * X)
    assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)
    w = normal(3)
    assert not np.shares_memory(nf.grad(lambda x: np.sum(x * w))(normal(3)), w)


def test_the_gradient_keeps_the_dtype_of_the_argument():
    for dtype in (np.float16, np.float32, np.float64, np.complex64):
        assert nf.grad(lambda x: np.sum(np.abs(x) * np.float64(2)))(np.ones(3, dtype)).dtype == dtype


def test_a_zero_dimensional_argument_gives_a_zero_dimensional_array():
    given = nf.grad(lambda x: x * x)(np.array(3.0))
    assert type(given) is np.ndarray
    assert given == 6


def test_an_argument_with_broadcast_axes_has_a_gradient_an_element():
    x = np.broadcast_to(np.array([1.0, 2.0]), (3, 2))
    assert_array_equal(nf.grad(lambda x: np.sum(x[1:] ** 2))(x), [[0, 0], [2, 4], [2, 4]])


@pytest.mark.parametrize("order", ["C", "F"])
def test_arguments_in_any_memory_order_are_differentiated(order):
    x = np.asarray(normal(4, 3), order=order)
    check(lambda x: x[1:].T @ x[:-1], x)
    check(lambda x: x[1:].T @ x[:-1], x[::-1, ::2])


VECTOR = np.arange(1.0, 5.0)
ODD = {
    "a Python number": (lambda x: x * x, (3.0,), 6),
    "the argument itself": (lambda x: x, (np.array(2.0),), 1),
    "an element": (lambda x: x[2], (VECTOR,), [0, 0, 1, 0]),
    "nothing": (lambda x: np.sum(x**2), (np.zeros(0),), np.zeros(0)),
    "a product over nothing": (lambda a, b: np.sum(a @ b + 1), (np.zeros((2, 0)), np.ones((0, 2))), np.zeros((2, 0))),
    "the rows of nothing": (lambda x: np.sum(x @ np.ones((3, 2))), (np.zeros((0, 3)),), np.zeros((0, 3))),
    "a traced index": (lambda x, i: np.sum(x[i] ** 2), (VECTOR, np.array([0, 0, 3])), [4, 0, 0, 8]),
    "a number as an index": (lambda x, i: np.take(x, i) ** 2, (VECTOR, 2), [0, 0, 6, 0]),
    "a mask": (lambda x, m: np.sum(np.where(m, x, 0)), (VECTOR, VECTOR > 2), [0, 0, 1, 1]),
    "a reversed view": (lambda x: np.sum(x[::-1] * np.arange(4.0)), (VECTOR[::-1],), [3, 2, 1, 0]),
    "stride 0": (lambda x: np.sum(x * np.arange(3.0)), (np.broadcast_to(2.0, 3),), [0, 1, 2]),
    "another byte order": (lambda x: np.sum(x**2), (VECTOR.astype(">f8"),), 2 * VECTOR),
    "no alignment": (lambda x: np.sum(x + x), (np.zeros(33, np.uint8)[1:].view(np.float64),), np.full(4, 2)),
    "one memory twice": (lambda a, b: np.sum(a * b), (VECTOR, VECTOR), VECTOR),
    "memory that overlaps": (lambda a, b: np.sum(a * b), (VECTOR[1:], VECTOR[:-1]), VECTOR[:-1]),
    "a tie": (lambda t: np.sum(t[0] * t[1]), ((VECTOR, VECTOR),), (VECTOR, VECTOR)),
    "small integers beside": (lambda x: np.sum(x * np.arange(4, dtype=np.uint8)), (VECTOR,), [0, 1, 2, 3]),
    "a default": (lambda x, k=2: np.sum(x**k), (VECTOR,), 2 * VECTOR),
    "steps of its own": (lambda x: np.sum(nf.scan(lambda c, _: (c - 0.1 * nf.grad(lambda v: np.sum(v**2))(c), None), x,
                                                  length=2)[0]), (VECTOR,), np.full(4, 0.64)),
    "gradients an element": (lambda x: np.sum(nf.vmap(nf.grad(lambda v: v**3), 0)(x)), (VECTOR,), 6 * VECTOR),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_the_gradient_is_right_by(name):
    fn, args, expected = ODD[name]
    assert_allclose(nf.grad(fn)(*args), expected, rtol=1e-12)


def into_zeros(x):
    y = np.zeros(4)
    y[:] = x
    return np.sum(y)


def added_into_zeros(x):
    y = np.zeros(4)
    y += x
    return np.sum(y)


def first_set(x):
    x[0] = 3.0
    return np.sum(x)


def added_out(x):
    return np.sum(np.add(x, x, out=np.zeros(4)))


@pytest.mark.parametrize("fn", [into_zeros, added_into_zeros, first_set, added_out])
def test_a_write_into_an_array_is_an_error_and_never_a_gradient_of_zero(fn):
    with pytest.raises(TraceError, match="Write instead"):
        nf.grad(fn)(VECTOR)


# --- flat vectors ------------------------------------------------------------------------------------------

def sines(x):
    return np.sin(x)


M1 = np.array([1.0, 2.0, 3.0])
MATRIX = np.ones((2, 2), np.float32)
OPTIMISERS = [
    ("first of m1", M1, lambda m: m[0], [1, 0, 0]),
    ("of the first of two", (M1, np.array([4.0, 5.0, 6.0])), lambda m: m[0][1], [0, 1, 0, 0, 0, 0]),
    ("x[3]", {"x": M1, "y": sines, "z": np.arange(4.0, 7)}, lambda m: m["x"][2], [0, 0, 1, 0, 0, 0]),
    ("z[1]", {"x": M1, "y": sines, "z": np.arange(4.0, 7)}, lambda m: m["z"][0], [0, 0, 0, 1, 0, 0]),
    ("tied", {"x": M1, "y": M1, "z": np.arange(4.0, 7)}, lambda m: m["y"][1], [0, 1, 0, 0, 0, 0]),
    ("ties summed", {"x": M1, "y": M1, "z": np.arange(4.0, 7)},
     lambda m: m["x"][0] + 2 * m["y"][1] + 3 * m["z"][2], [1, 2, 0, 0, 0, 3]),
    ("both of a tie", {"x": M1, "y": M1}, lambda m: np.sum(m["x"] * m["y"]), [2, 4, 6]),
    ("tied by a transpose", {"x": (W := np.arange(4.0).reshape(2, 2)), "y": W.T},
     lambda m: np.sum(m["x"] * m["y"]), [0, 4, 2, 6]),
]  # fmt: skip


@pytest.mark.parametrize("through", ["view", "restructure"])
@pytest.mark.parametrize(("name", "model", "fn", "expected"), OPTIMISERS, ids=[case[0] for case in OPTIMISERS])
def test_gradients_by_the_flat_vector_are_those_of_optimisers_jl(name, model, fn, expected, through):
    flat, layout = nf.destructure(model)
    rebuild = getattr(layout, through)
    assert_array_equal(nf.grad(lambda flat: fn(rebuild(flat)))(flat), expected)
    assert_array_equal(nf.grad(layout.lift(fn))(flat), expected)


def test_a_mixed_gradient_of_squares_of_a_tied_matrix():
    flat, layout = nf.destructure({"a": np.ones(3), "b": MATRIX, "c": [MATRIX]})
    flat[:] = np.arange(1, 8)
    given = nf.grad(lambda flat: np.sum(layout.restructure(flat)["c"][0] ** 2))(flat)
    assert_array_equal(given, [0, 0, 0, 8, 10, 12, 14])


def test_restructure_of_a_traced_vector_keeps_dtype_and_memory_order():
    model = {"w": np.asarray(normal(3, 2), order="F"), "b": np.ones(2, np.float32)}
    model["t"] = normal(2, 3, 4).transpose(1, 2, 0)
    flat, layout = nf.destructure(model)
    given, wanted = nf.compile(layout.restructure)(flat), layout.restructure(flat)
    for name in model:
        assert given[name].dtype == wanted[name].dtype
        assert given[name].strides == wanted[name].strides
        assert_array_equal(given[name], wanted[name])


def test_lifting_in_a_loop_traces_once():
    flat, layout = nf.destructure({"w": np.ones(2)})
    runs = []

    def loss(m):
        runs.append(1)
        return np.sum(m["w"] ** 2)

    for _ in range(3):
        nf.value_and_grad(layout.lift(loss))(flat)
    assert len(runs) == 2


def test_programs_do_not_keep_their_function_alive():
    def make():
        def loss(x):
            return np.sum(x**2)

        nf.grad(loss)(np.ones(2))
        return weakref.ref(loss)

    alive = make()
    gc.collect()
    assert alive() is None


def test_an_array_that_the_function_closes_over_is_live():
    w = np.ones(2)
    f = nf.grad(lambda x: np.sum(w * x))
    assert_array_equal(f(np.zeros(2)), [1, 1])
    w[:] = 3
    assert_array_equal(f(np.zeros(2)), [3, 3])


# --- functions of functions --------------------------------------------------------------------------------

def chain(w, x):
    return np.sum(np.tanh(np.tanh(x @ w) @ w) ** 2)


def test_jvp_is_the_derivative_in_a_direction():
    out, tangent = nf.jvp(lambda x, y: np.sin(x) * y, (X, Y), (Y, X))
    assert_array_equal(out, np.sin(X) * Y)
    assert_allclose(tangent, np.cos(X) * Y * Y + np.sin(X) * X)


def test_jvp_is_right_where_the_cotangents_of_ones_cancel():
    _, tangent = nf.jvp(lambda x: np.stack([np.sqrt(x), -np.sqrt(x)]) * np.exp(x), (np.float64(4.0),), (1.0,))
    slope = np.exp(4.0) * (0.25 + 2.0)
    assert_allclose(tangent, [slope, -slope])


def test_jvp_of_an_independent_result_is_zero():
    assert_array_equal(nf.jvp(lambda x: (x, np.ones(2)), (X,), (Y,))[1][1], np.zeros(2))


def test_vjp_pulls_cotangents_back():
    _, pull = nf.vjp(lambda x, w: {"a": x @ w, "b": x}, X, normal(4, 2))
    back = pull({"a": np.ones((3, 2)), "b": np.zeros((3, 4))})
    assert_allclose(back[0], np.ones((3, 2)) @ normal(4, 2).T)
    assert_allclose(back[1], X.T @ np.ones((3, 2)))


def test_jacobian_and_hessian_are_those_of_central_differences():
    x = normal(3)
    assert_allclose(nf.jacobian(lambda x: np.outer(x, x))(x), np.einsum("ik,j->ijk", np.eye(3), x) + np.einsum(
        "i,jk->ijk", x, np.eye(3)))
    assert_allclose(nf.hessian(lambda x: np.prod(x) ** 2)(x), np.stack([
        differences(lambda v, i=i: nf.grad(lambda x: np.prod(x) ** 2)(v)[i], x) for i in range(3)]), rtol=1e-6)


def test_jacobians_and_hessians_of_numbers_and_of_nothing_have_their_shapes():
    assert nf.hessian(lambda x: x**3)(2.0) == 12
    assert nf.jacobian(lambda x: x * 2)(np.zeros(0)).shape == (0, 0)
    assert nf.jacobian(lambda x: np.sum(x) * np.ones((2, 1)))(np.zeros((3, 0))).shape == (2, 1, 3, 0)


def test_the_hessian_of_what_is_linear_is_zero():
    assert_array_equal(nf.hessian(lambda x: np.sum(x))(M1), np.zeros((3, 3)))
    assert_array_equal(nf.grad(lambda x: np.sum(nf.grad(lambda x: 3 * np.sum(x))(x)))(M1), np.zeros(3))


def test_a_second_derivative_goes_through_a_captured_index_where_the_cotangent_is_constant():
    rows = np.array([2, 0, 2])
    slope = nf.grad(lambda x: np.sum(np.take(x, rows, axis=0) ** 2))
    assert_array_equal(nf.grad(lambda x: np.sum(slope(x)))(X)[:, 0], [2, 0, 4])


def test_a_third_derivative_is_right():
    assert_allclose(nf.grad(nf.grad(nf.grad(lambda x: x**5)))(2.0), 240)


def test_an_inner_gradient_is_not_confused_with_the_outer_one():
    outer = nf.grad(lambda x: x * nf.grad(lambda y: x * y)(2.0))
    assert outer(3.0) == 6


@pytest.mark.parametrize("by", [0, 1, 2])
def test_gradients_go_through_scan(by):
    def recurrent(w, x, h):
        last, ys = nf.scan(lambda h, x: (np.tanh(h @ w + x), h * x), h, x)
        return np.sum(last**2) + np.sum(ys)

    args = (normal(3, 3), normal(5, 3), normal(3))
    check(lambda v: recurrent(*args[:by], v, *args[by + 1 :]), args[by])


def test_gradients_go_through_scan_with_a_carry_that_changes_its_form():
    def total(h):
        return nf.scan(lambda state, _: ((state[0] + 1, state[1] * h + 1), None), (0, 0.0), length=5)[0][1]

    check(total, np.array(1.5))


@pytest.mark.parametrize("axes", [(None, 0), (None, 1)])
def test_gradients_go_through_vmap(axes):
    def mapped(w, x):
        return nf.vmap(lambda w, x: np.sin(x @ w), axes)(w, x)

    check(mapped, normal(3, 3), normal(3, 3, seed=2))


def test_gradients_for_each_example_are_a_vmap_of_a_gradient():
    w, x = normal(4, 4), normal(5, 4)
    each = nf.vmap(nf.grad(chain), (None, 0))(w, x)
    assert_allclose(each.sum(axis=0), nf.grad(lambda w: sum(chain(w, row) for row in x))(w))
    assert_array_equal(each[2], nf.grad(chain)(w, x[2]))


def test_remat_gives_the_same_gradient_with_a_smaller_workspace():
    w, x = normal(8, 8) * 0.3, normal(200, 8)

    def deep(block):
        def loss(w, x):
            for _ in range(4):
                x = block(x, w)
            return np.sum(x**2)

        return nf.grad(loss)

    def block(x, w):
        for _ in range(4):
            x = np.tanh(x @ w)
        return x

    plain, again = deep(block), deep(nf.remat(block))
    assert_allclose(plain(w, x), again(w, x), rtol=1e-10)
    assert again.trace(w, x).replay.nbytes < 0.7 * plain.trace(w, x).replay.nbytes


def test_gradients_work_inside_a_compiled_function():
    @nf.compile
    def step(w, x):
        value, gradient = nf.value_and_grad(chain)(w, x)
        return value, w - 0.1 * gradient

    w, x = normal(4, 4), normal(5, 4)
    value, after = step(w, x)
    assert value == chain(w, x)
    assert_array_equal(after, w - 0.1 * nf.grad(chain)(w, x))


def test_a_rule_can_be_given_to_a_ufunc():
    special = pytest.importorskip("scipy.special")
    with pytest.raises(TypeError, match="defvjp"):
        nf.grad(lambda x: np.sum(special.j0(x)))(M1)
    nf.defvjp(special.j0, lambda g, y, x: -g * special.j1(x))
    assert_allclose(nf.grad(lambda x: np.sum(special.j0(x)))(M1), -special.j1(M1))


# --- errors ------------------------------------------------------------------------------------------------

def test_independence_of_all_arguments_is_an_error_that_names_the_likely_causes():
    model = np.ones(3)
    with pytest.raises(TraceError, match="closes over"):
        nf.grad(lambda x: np.sum(model**2))(M1)
    assert_array_equal(nf.grad(lambda x: np.sum(model**2), allow_unused=True)(M1), np.zeros(3))
    with pytest.raises(TraceError, match="closes over"):
        nf.grad(lambda x: np.sum(np.round(x)))(M1)


def test_independence_of_one_of_several_arguments_is_zero():
    given = nf.grad(lambda x, y: np.sum(x), (0, 1))(M1, M1)
    assert_array_equal(given[1], np.zeros(3))


def test_writing_in_place_inside_a_differentiated_function_raises():
    model = {"w": np.zeros(3)}
    layout = nf.Layout.of(model)

    def loss(flat):
        layout.restructure(flat, out=model)
        return np.sum(model["w"] ** 2)

    with pytest.raises(TypeError, match="traced"):
        nf.grad(loss)(M1)
    bound = layout.bind(model)
    with pytest.raises(TypeError, match="traced"):
        nf.grad(lambda flat: np.sum(bound.load(flat)["w"]))(M1)


def test_a_result_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="one number"):
        nf.grad(np.sin)(M1)
    with pytest.raises(TypeError, match="real"):
        nf.grad(lambda z: np.sum(z))(M1 * 1j)
    with pytest.raises(TypeError, match="has_aux"):
        nf.grad(np.sum, has_aux=True)(M1)


def test_an_argument_that_is_no_array_of_floats_is_refused():
    with pytest.raises(TypeError, match="argument 0"):
        nf.grad(lambda n: np.sum(n))(np.arange(3))
    with pytest.raises(TypeError, match="argument 2"):
        nf.grad(np.sum, 2)(M1)
    with pytest.raises(ValueError, match="argnums"):
        nf.grad(np.sum, -1)


def test_cotangents_and_tangents_of_another_form_are_refused():
    _, pull = nf.vjp(np.sin, M1)
    with pytest.raises(ValueError, match="shape"):
        pull(np.ones(2))
    with pytest.raises(ValueError, match="shape"):
        nf.jvp(np.sin, (M1,), (np.ones(2),))
    with pytest.raises(TypeError, match="tuple"):
        nf.jvp(np.sin, M1, M1)


@pytest.mark.parametrize(
    "fn",
    [
        np.i0,
        lambda x: np.cov(x, aweights=np.ones(4)),
        lambda x: np.quantile(x, 0.5, method="nearest"),
        lambda x: np.linalg.svd(x)[0],
        lambda x: np.linalg.qr(x, mode="complete")[0],
        lambda x: np.pad(x, 1, mode="mean"),
    ],
)
def test_what_has_no_rule_says_so(fn):
    with pytest.raises(TypeError, match="derivative rule"):
        nf.grad(lambda x: np.sum(fn(x)))(X)


V = np.array([0.3, 0.7, 1.2, 2.0])
LISTS = {
    "dot": lambda x: np.dot([1.0, 2, 3, 4], x) ** 2, "inner": lambda x: np.inner([1.0, 2, 3, 4], x) ** 2,
    "kron": lambda x: np.kron([1.0, 2], x) ** 2, "matmul": lambda x: np.matmul([1.0, 2, 3, 4], x) ** 2,
    "tensordot": lambda x: np.tensordot([[1.0, 2], [3, 4]], x.reshape(2, 2), [[0], [1]]) ** 2,
    "tensordot of two axes": lambda x: np.tensordot(x.reshape(2, 2), [[1.0, 2], [3, 4]], [0, 1]) ** 2,
    "insert": lambda x: np.insert(x, [0, 2], [5.0, 6]) ** 2, "choose": lambda x: np.choose([0, 1, 1, 0], [x, x**2]),
    "cross": lambda x: np.cross([1.0, 2, 3], x[:3]) ** 2, "maximum": lambda x: np.maximum([1, 0, 1, 0], x) ** 2,
    "column_stack": lambda x: np.column_stack([x, [1, 2, 3, 4]]) ** 2,
    "convolve": lambda x: np.convolve([1.0, 2], x) ** 2,
    "polyval": lambda x: np.polyval([1.0, 2], x) ** 2, "interp": lambda x: np.interp(x, [0, 1, 3], [0, 1, 9]) ** 2,
    "piecewise": lambda x: np.piecewise(x, [[True, False, True, False]], [lambda v: v**3, lambda v: v]),
}


@pytest.mark.parametrize("run", LISTS.values(), ids=LISTS.keys())
def test_a_list_of_numbers_is_an_operand_as_an_array_is(run):
    steps = 1e-6 * np.eye(4)
    slopes = np.array([np.sum(run(V + step) - run(V - step)) / 2e-6 for step in steps])
    assert np.allclose(nf.grad(lambda x: np.sum(run(x)))(V), slopes, rtol=1e-6, atol=1e-8)
