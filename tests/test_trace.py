"""Tracing: what NumPy functions of traced values give, and what the errors say where they cannot be traced."""

import contextlib
import itertools
import math
import operator

import numpy as np
import pytest
from law import compare
from programs import BINARY

import nnflat as nf
from nnflat.context import TraceError

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
ORDERS = {
    "C": X,
    "F": np.asfortranarray(X),
    "strided": np.repeat(X, 2, axis=1)[:, ::2],
    "reversed": X[::-1, ::-1],
    "float64": X.astype(float),
    "complex": X + 1j * X[::-1],
    "integer": (3 * X).astype(np.int64),
    "bool": X > 0,
}

COVERED = {
    "sum": lambda x: np.sum(x, axis=1),
    "mean": lambda x: x.mean(axis=0),
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "std": lambda x: x.std(),
    "min": lambda x: np.min(x, axis=1, keepdims=True),
    "max": lambda x: x.max(),
    "prod": lambda x: np.prod(x, axis=0),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "argmin": lambda x: np.argmin(x, axis=0),
    "argmax": lambda x: x.argmax(),
    "any": lambda x: np.any(x, axis=0),
    "all": lambda x: x.all(),
    "clip": lambda x: np.clip(x, 0, 1),
    "where": lambda x: np.where(x > 0, x, 0),
    "reshape": lambda x: x.reshape(2, -1),
    "ravel": lambda x: np.ravel(x),
    "transpose": lambda x: np.transpose(x),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "broadcast_to": lambda x: np.broadcast_to(x, (3, 4, 5)) + x,
    "squeeze": lambda x: np.squeeze(x[None]),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "concatenate": lambda x: np.concatenate([x, x[:1]]),
    "stack": lambda x: np.stack([x, x], axis=1),
    "vstack": lambda x: np.vstack([x, x[0]]),
    "hstack": lambda x: np.hstack([x, x]),
    "split": lambda x: tuple(np.split(x, 2)),
    "flip": lambda x: np.flip(x),
    "roll": lambda x: np.roll(x, 2, axis=1),
    "pad": lambda x: np.pad(x, 1),
    "repeat": lambda x: np.repeat(x, 2, axis=0),
    "tile": lambda x: np.tile(x, (2, 1)),
    "take": lambda x: np.take(x, [0, 2], axis=1),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    "basic index": lambda x: x[1:, None, ::-2],
    "integer index": lambda x: x[[0, 2, 2]],
    "element": lambda x: x[1, 2],
    "trace": lambda x: x.trace(),
    "norm of what is broadcast": lambda x: np.linalg.norm(np.broadcast_to(x, (3, 4, 5))),
    "flat in memory's order": lambda x: np.broadcast_to(x[0], (3, 5)).ravel(order="K"),
    "clip a number": lambda x: np.clip(2j, x, x + 1),
    "round": lambda x: round(x[1, 2].real * 0.3, 1),
    "diagonal": lambda x: np.diagonal(x),
    "tril": lambda x: np.tril(x),
    "triu": lambda x: np.triu(x, 1),
    "norm": lambda x: np.linalg.norm(x),
    "norm of rows": lambda x: np.linalg.norm(x, axis=1),
    "astype": lambda x: x.astype(np.complex128),
    "copy": lambda x: x.copy(),
    "sliding_window_view": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1),
    "zeros_like": lambda x: x + np.zeros_like(x),
    "matmul": lambda x: x @ x.T,
    "dot": lambda x: x.dot(x.T),
    "vecdot": lambda x: np.vecdot(x, x),
    "matvec": lambda x: np.matvec(x, x[0]),
    "vecmat": lambda x: np.vecmat(x[:, 0], x),
    "inner": lambda x: np.inner(x, x),
    "outer": lambda x: np.outer(x, x),
    "tensordot": lambda x: np.tensordot(x, x, axes=([0], [0])),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "sort": lambda x: np.sort(x, axis=0),
    "argsort": lambda x: np.argsort(x, axis=0),
    "fft": lambda x: np.fft.fft(x),
    "real and imag": lambda x: (x.real, x.imag),
    "meshgrid": lambda x: tuple(np.meshgrid(x[0], x[1])),
    "ptp": lambda x: np.ptp(x, axis=0) if x.dtype != bool else x,
    "iteration": lambda x: tuple(row * 2 for row in x),
    "unary operators": lambda x: (abs(x), +x) if x.dtype != bool else ~x,
    "softmax": lambda x: np.exp(x - x.max(-1, keepdims=True)) / np.exp(x).sum(-1)[:, None] if x.dtype != bool else x,
}


@pytest.mark.parametrize("layout", ORDERS)
@pytest.mark.parametrize("name", COVERED)
def test_a_covered_function_gives_the_bits_dtype_order_and_kind_of_numpy(name, layout):
    function, x = COVERED[name], ORDERS[layout]
    as_tuple = lambda result: result if isinstance(result, tuple) else (result,)  # noqa: E731
    try:
        expected = as_tuple(function(x))
    except TypeError:
        pytest.skip("NumPy refuses this dtype")
    compiled = nf.compile(function)
    compare(as_tuple(compiled(x)), expected)
    compare(as_tuple(compiled(x.copy(order="K") if layout in ("C", "F") else x)), expected)


@pytest.mark.parametrize(("exponent", "name"), [(2, "square"), (0.5, "sqrt"), (-1, "reciprocal"), (2.0, "power"),
                                                (np.int64(2), "power"), (3, "power")])
def test_powers_take_the_shortcuts_that_numpy_takes(exponent, name):
    program = nf.compile(lambda x: x**exponent)
    x = abs(X) + 1
    compare((program(x),), (x**exponent,))
    assert f" {name} " in program.explain(x)


def test_a_traced_value_is_to_isinstance_what_it_is_to_numpy():
    seen = []

    def function(x):
        seen.extend([isinstance(x, np.ndarray), isinstance(x.sum(), np.float32), len(x), x.shape, x.ndim, x.dtype])
        return x

    nf.compile(function)(X)
    assert seen[:6] == [True, True, 4, (4, 5), 2, np.float32]


def test_a_reshape_of_what_is_contiguous_does_no_work():
    assert len(nf.compile(lambda x: x.reshape(-1)[2:].reshape(3, 6).T @ x[0, :3]).trace(X).operations) == 1


def test_ufuncs_of_other_libraries_are_replayed():
    special = pytest.importorskip("scipy.special")
    program = nf.compile(lambda x: special.erf(x) + special.expit(x))
    compare((program(X),), (special.erf(X) + special.expit(X),))
    assert "call" not in program.explain(X)


def branch(x):
    if x.sum() > 0:
        return x
    return -x


def assign(x):
    y = np.zeros(3)
    y[0] = x[0, 0]
    return y


def assign_to_argument(x):
    x[0] = 0
    return x


def increment(x):
    x += 1
    return x


def swallow(x):
    with contextlib.suppress(TypeError):
        float(x[0, 0])
    return x


UNTRACEABLE = {
    "branch": (branch, "branch", r"np\.where"),
    "float": (lambda x: float(x[0, 0]), "Python number", "astype"),
    "math.sin": (lambda x: math.sin(x[0, 0]), "Python number", r"np\.sin"),
    "np.array of traced": (lambda x: np.array([x, x]), "plain array", r"np\.stack"),
    "list to a reduction": (lambda x: np.sum([x, x]), "plain array", r"np\.stack"),
    "assignment into an array": (assign, "Python number|plain array", "astype"),
    "assignment to an argument": (assign_to_argument, "assignment", r"np\.where"),
    "in place": (increment, r"\+=", r"x = x \+ y"),
    "out=": (lambda x: np.add(x, 1, out=np.zeros((4, 5))), "in place", "result"),
    "mask": (lambda x: x[x > 0], "mask", r"np\.where"),
    "nonzero": (lambda x: np.nonzero(x), "shape depends on values", r"np\.where"),
    "where of one": (lambda x: np.where(x > 0), "shape depends on values", r"np\.where"),
    "unique": (lambda x: np.unique(x), "shape depends on values", r"np\.where"),
    "array_equal": (lambda x: np.array_equal(x, x), "array_equal", r"np\.all"),
    "allclose": (lambda x: np.allclose(x, x), "allclose", r"np\.isclose"),
    "index of a plain array": (lambda x: np.eye(5)[np.argmax(x)], "index", r"np\.take"),
    "item": (lambda x: x.item(0), "item", "array itself"),
    "sort in place": (lambda x: x.sort(), "in place", r"np\.sort"),
    "contains": (lambda x: 1.0 in x, "in", r"np\.any"),
    "swallowed": (swallow, "Python number", "astype"),
    "a size": (lambda x: np.zeros(int(x[0, 0])), "Python number", "static"),
}
UNTRACEABLE["round"] = (lambda x: round(x[0, 0]), "round", r"np\.round")
UNTRACEABLE["a size"] = (lambda x: range(np.argmax(x)), "size", "static")


@pytest.mark.parametrize("case", UNTRACEABLE)
def test_what_cannot_be_traced_is_named_with_the_line_and_the_replacement(case):
    function, what, instead = UNTRACEABLE[case]
    with pytest.raises(TraceError, match=rf"(?s)({what}).*test_trace\.py, line \d+.*Write instead: .*{instead}"):
        nf.compile(function)(X)


@pytest.mark.parametrize("file", ["<stdin>", "<string>", "<ipython-input-1-abc>"])
def test_an_error_names_the_line_of_a_prompt_or_a_notebook(file):
    names: dict = {}
    exec(compile("def f(x):\n    return 1 if x[0, 0] > 0 else 0", file, "exec"), names)
    with pytest.raises(TraceError, match=f"{file}, line 2, in f"):
        nf.compile(names["f"])(X)


def test_random_numbers_inside_are_found_by_running_twice():
    with pytest.raises(TraceError, match=r"np\.random"):
        nf.compile(lambda x: x + np.random.default_rng().normal())(X)


def test_hidden_state_is_found_by_running_twice():
    counter = []

    def function(x):
        counter.append(1)
        return x * float(len(counter))

    with pytest.raises(TraceError, match="hidden state"):
        nf.compile(function)(X)


def test_a_traced_value_that_was_kept_cannot_be_used_later():
    kept = []
    nf.compile(lambda x: (kept.append(x), x)[1])(X)
    with pytest.raises(TraceError, match="outlived"):
        operator.add(kept[0], 1)


def test_errors_of_numpy_come_through_as_they_are():
    with pytest.raises(ValueError, match="core dimension"):
        nf.compile(lambda x: x @ x)(X)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="foo"):
        nf.compile(lambda x: x.foo)(X)


@pytest.mark.parametrize("draw", [
    lambda key: nf.random.normal(key, (3, 4)),
    lambda key: nf.random.uniform(nf.random.fold(key, 1, 2), 5, np.float64),
    lambda key: nf.random.bernoulli(key, 0.5, 6) * 2,
    lambda key: nf.random.permutation(key, 7),
    lambda key: nf.random.bits(key, 2),
    lambda key: nf.random.fold(key, 3),
])
def test_draws_by_a_traced_key_are_part_of_the_tape(draw):
    program = nf.compile(draw)
    for key in (np.uint64(1), np.uint64(2**63 + 5)):
        compare((program(key),), (draw(key),))
    assert len(program.traces.plans) == 1


KEYS = np.array([0, 1, 2**63 + 5, 2**64 - 1], np.uint64)
DRAWS = {
    "bits 32": lambda key: nf.random.bits(key, (), np.uint32),
    "bits 64": lambda key: nf.random.bits(key, (3, 0, 2)),
    "uniform": lambda key: nf.random.uniform(key, (2, 7)),
    "uniform 64": lambda key: nf.random.uniform(key, 300, np.float64),
    "normal": lambda key: nf.random.normal(key, (301,)) + nf.random.normal(nf.random.fold(key, 1), 301),
    "normal 64": lambda key: nf.random.normal(key, (), np.float64) * 2,
    "bernoulli": lambda key: nf.random.bernoulli(key, [[0.0], [0.5], [1.0]], (3, 4)),
    "fold a negative": lambda key: nf.random.fold(key, -3, 2**64 - 1),
    "fold numbers": lambda key: nf.random.fold(key, np.arange(-3, 3).reshape(2, 3)[:, ::-1]),
    "fold a traced number": lambda key: nf.random.fold(7, key.astype(np.int32)),
    "fold into keys": lambda key: nf.random.fold(KEYS, np.uint8(3), key),
}


@pytest.mark.parametrize("case", DRAWS)
def test_draws_by_a_traced_key_are_loops(case):
    draw = DRAWS[case]
    program, mapped = nf.compile(draw), nf.vmap(draw, 0)
    for key in KEYS:
        compare((program(key),), (draw(key),))
    assert mapped(KEYS).tobytes() == np.stack([draw(key) for key in KEYS]).tobytes()
    assert "call" not in {operation.kind for operation in program.trace(KEYS[0]).operations}


@pytest.mark.parametrize("draw", [nf.random.normal, nf.random.bits, lambda k, n: nf.random.bernoulli(k, 0.5, (2, n))])
@pytest.mark.parametrize("key", [np.uint64(1), 1])
def test_a_traced_size_of_a_draw_is_refused(draw, key):
    with pytest.raises(TraceError, match="an index or a size"):
        nf.compile(draw)(key, 3)


def test_a_fold_of_no_number_raises_under_a_trace_too():
    with pytest.raises(TypeError, match="at least one integer"):
        nf.compile(nf.random.fold)(np.uint64(1))


def test_a_bad_key_raises_on_the_tape_as_it_does_in_a_draw():
    program = nf.compile(lambda key: nf.random.normal(key, 3))
    compare((program(7),), (nf.random.normal(7, 3),))
    with pytest.raises(ValueError, match="-7"):
        program(-7)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", "?bHqefdFD")
def test_an_arg_reduction_finds_what_numpy_finds(name, axis, order, dtype):
    x = np.round(ORDERS[order].real * 2).astype(dtype)[:: -1 if order == "reversed" else 1]
    unaligned = np.frombuffer(bytearray(b"?" + x.tobytes()), dtype, offset=1).reshape(x.shape)
    for case in (x, unaligned, x.astype(x.dtype.newbyteorder("S"))):
        if dtype in "efdFD":
            case[2, 1] = np.nan
        program = nf.compile(lambda x: getattr(np, name)(x, axis=axis))
        for array in (case, case.copy()):
            compare((program(array),), (getattr(np, name)(array, axis=axis),))
        assert "call" not in {operation.kind for operation in program.trace(case).operations}


EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 0.5]
SHAPES = [((3, 4), (4,)), ((4, 3), (4, 1)), ((3, 1), (1, 5)), ((12,), (12,)), ((5, 9), (5, 9)), ((2, 3, 4), (3, 1)),
          ((33,), ())]


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda ufunc: ufunc.__name__)
@pytest.mark.parametrize("dtype", "efdFD")
def test_edges_meet_in_broadcast_operands_as_they_do_in_numpy(ufunc, dtype):
    """Where a loop stands in its vector may decide: which chunks NumPy's iterator makes is part of the result."""
    rng = np.random.default_rng(0)
    for left, right in SHAPES:
        a, b = (rng.choice(EDGES, shape).astype(dtype) for shape in (left, right))
        with np.errstate(all="ignore"):
            if accepts(ufunc, a, b):
                compare((nf.compile(lambda a, b: ufunc(a, b))(a, b),), (ufunc(a, b),))
                compare((nf.compile(lambda a, b: ufunc(a + 0, b))(a, b),), (ufunc(a + 0, b),))


def accepts(ufunc, *arrays):
    """Whether NumPy itself takes these; what compiles fails outside of this."""
    try:
        ufunc(*arrays)
    except (TypeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("ufunc", [np.matmul, np.vecdot, np.matvec, np.vecmat])
@pytest.mark.parametrize("dtype", "edFD")
def test_products_along_axes_of_one_element_take_numpys_way(ufunc, dtype):
    shapes = [(1,), (1, 1), (3, 1), (1, 3), (2, 1, 1), (2, 1, 3), (33, 1), (33,)]
    with np.errstate(all="ignore"):
        for left, right, value in itertools.product(shapes, shapes, (-np.inf, 3.5, -0.0)):
            a, b = np.full(left, 1.5, dtype), np.full(right, 2.5, dtype)
            a.ravel()[0] = value
            if accepts(ufunc, a, b):
                compare((nf.compile(lambda a, b: ufunc(a, b))(a, b),), (ufunc(a, b),))


def test_a_traced_vector_is_viewed_by_a_layout_without_a_copy():
    flat, layout = nf.destructure({"weight": np.arange(6.0).reshape(2, 3), "bias": np.ones(3)})
    program = nf.compile(lambda flat: layout.view(flat)["weight"] + layout.view(flat)["bias"])
    assert np.array_equal(program(flat), flat[:6].reshape(2, 3) + flat[6:])
    assert [operation.name for operation in program.trace(flat).operations] == ["add"]
