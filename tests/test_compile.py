"""compile: the law on random programs, and what a program does with its arguments, captured arrays and results."""

import copy
import functools
import gc
import operator
import os
import pickle
import random
import subprocess
import sys
import threading
import tracemalloc
import warnings
import weakref
from collections import OrderedDict, namedtuple
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law import check, random_case, recorded

import nnflat as nf
from nnflat import tree
from nnflat.context import TraceError

X = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
EXAMPLES = settings.default.max_examples


# --- the law -----------------------------------------------------------------------------------------------

@settings(max_examples=EXAMPLES // 10)
@given(st.integers(0, 2**32), st.integers(1, 30))
def test_a_compiled_program_gives_the_bits_and_warnings_of_numpy(seed, length):
    program, first, second = random_case(random.Random(seed), length)
    check(program, first, second)


@settings(max_examples=EXAMPLES // 4)
@given(st.randoms(use_true_random=False))
def test_a_short_program_gives_the_bits_and_warnings_of_numpy(rng):
    check(*random_case(rng, 3))


@pytest.mark.slow
def test_many_programs_give_the_bits_and_warnings_of_numpy():
    for seed in range(3000):
        check(*random_case(random.Random(seed), 1 + seed % 30))


def test_other_kernels_of_numpy_give_their_own_bits():
    """With the newest CPU features masked, NumPy takes other kernels, and so does the tape."""
    script = ("import random; from law import check, random_case\n"
              "for seed in range(60): check(*random_case(random.Random(seed), 12))")
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
                   "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-W", "ignore::ImportWarning", "-c", script], env=environment, timeout=120,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [np.longdouble, np.clongdouble])
def test_extended_precision_is_verified_by_its_numbers(kind):
    x = np.linspace(-1, 1, 7).astype(kind) * kind(1 + 0.5j if kind is np.clongdouble else 1)
    for function in (lambda x: np.tanh(x) * 2, lambda x: x.sum(), lambda x: x @ x, lambda x: np.zeros_like(x) * -x):
        for _ in range(5):
            assert np.array_equal(nf.compile(function)(x), function(x))


# --- arguments and results ---------------------------------------------------------------------------------

def test_arguments_may_be_trees_numbers_scalars_and_statics():
    def function(tree, number, scalar, name):
        assert name == "left"
        return {"sum": tree["a"] * number + tree["b"][0] * scalar, "name": name, "none": None}

    program = nf.compile(function)
    tree = {"a": X, "b": [X * 2, 3]}
    for _ in range(2):
        given, expected = program(tree, 2.5, np.float64(3), "left"), function(tree, 2.5, np.float64(3), "left")
        assert np.array_equal(given["sum"], expected["sum"])
        assert given["sum"].dtype == expected["sum"].dtype == np.float64
        assert (given["name"], given["none"]) == ("left", None)
    assert len(program.traces.plans) == 1


TREES = {
    "dict": lambda x: {"a": x, "b": x + 1},
    "nested": lambda x: {"a": [x, (x + 1, {})], "b": ()},
    "list": lambda x: [x, x + 1],
    "ordered": lambda x: OrderedDict(a=x, b=x + 1),
    "named": lambda x: Pair(x, x + 1),
}
Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_trees_go_in_and_come_out_as_they_are_and_may_be_written_in_place(make):
    def function(tree, scale):
        return nf.tree.map(lambda leaf: leaf * scale, tree)

    program = nf.compile(function)
    for value in (1.0, 2.0, 3.0):
        tree, out = make(np.full(3, value)), make(np.zeros(3))
        made, written = program(tree, 2.0), program(tree, 2.0, out=out)
        for result in (made, written):
            assert type(result) is type(tree)
            pairs = zip(nf.tree.items(result), nf.tree.items(function(tree, 2.0)), strict=True)
            assert all(path == other and np.array_equal(a, b) for (path, a), (other, b) in pairs)
        assert written is out
        assert program(tree, 2.0, out=tree) is tree
    assert len(program.traces.plans) == 1


@pytest.mark.parametrize("other", [
    {"b": X, "a": X}, {"a": X}, {"a": X, "b": X, "c": X}, {"a": X, "d": X}, [X, X], (X, X), {"a": X, "b": [X]},
    OrderedDict(a=X, b=X), {"a": X, "b": None}, {"a": X, "b": X[0]}, X,
])
def test_a_tree_of_another_structure_is_traced_anew(other):
    def total(tree):
        return sum(leaf.sum() for leaf in nf.tree.leaves(tree))

    program = nf.compile(total)
    for arranged in ({"a": X, "b": 2 * X}, other, {"a": X, "b": 2 * X}):
        assert program(arranged) == total(arranged)
    assert len(program.traces.plans) == 2


@pytest.mark.parametrize("out", [
    {"b": np.zeros(3), "a": np.zeros(3)}, {"a": np.zeros(3)}, [np.zeros(3)] * 2, np.zeros(3),
    {"a": np.zeros(3), "b": [np.zeros(3)]},
])
def test_an_out_of_another_structure_is_refused_before_anything_is_written(out):
    program = nf.compile(lambda x: {"a": x, "b": x + 1})
    program(np.ones(3))
    with pytest.raises((TypeError, ValueError), match="out"):
        program(np.ones(3), out=out)
    assert not any(leaf.any() for leaf in nf.tree.leaves(out))


def test_an_out_keeps_what_is_no_array_in_it():
    program, out = nf.compile(lambda x: {"a": x * 2, "name": "left", "n": None}), {"a": np.zeros(3), "name": 0, "n": 0}
    for scale in (1.0, 2.0):
        assert program(np.full(3, scale), out=out) is out
        assert out["a"].tolist() == [2 * scale] * 3
    assert (out["name"], out["n"]) == (0, 0)


def test_python_numbers_are_weak_and_may_change_without_a_new_trace():
    program = nf.compile(lambda x, rate: x * rate)
    assert program(X, 0.5).dtype == np.float32
    assert np.array_equal(program(X, 0.1), X * 0.1)
    assert len(program.traces.plans) == 1
    assert program(X, np.float64(0.1)).dtype == np.float64
    assert np.array_equal(program(X, 3), X * 3)
    assert len(program.traces.plans) == 3


def test_an_argument_named_static_is_part_of_the_program():
    @nf.compile(static="n")
    def function(x, n):
        return x.reshape(n, -1) if n > 1 else x

    assert function(X, 2).shape == (2, 10)
    assert function(X, 1).shape == (4, 5)
    with pytest.raises(ValueError, match="static names 'm'"):
        nf.compile(lambda n: n, static="m")


def test_a_static_that_compares_by_identity_is_refused():
    class Options:
        pass

    with pytest.raises(TypeError, match="has type Options"):
        nf.compile(lambda x, options: x)(X, Options())


def test_results_are_fresh_even_where_eager_gives_views():
    program = nf.compile(lambda x: (x, x.T, x[1:]))
    for result in program(X):
        assert not np.shares_memory(result, X)
        assert result.flags.writeable


def test_two_results_that_are_one_value_are_two_arrays():
    a, b = nf.compile(lambda x: (lambda y: (y, y))(x + 1))(X)
    assert not np.shares_memory(a, b)


def test_a_model_can_be_compiled_called_with_and_changed():
    model = nf.nn.Chain(nf.nn.Dense(5, 3, "tanh", rng=np.random.default_rng(0)),
                        nf.nn.Dense(3, 2, rng=np.random.default_rng(1)))
    program, of_model = nf.compile(model), nf.compile(lambda model, x: model(x))
    for _ in range(2):
        assert np.array_equal(program(X), model(X))
        assert np.array_equal(of_model(model, X), model(X))
        model.layers[0].weight[...] += 1
    assert len(program.traces.plans) == 1


def test_a_flat_vector_is_swapped_without_moving_a_parameter():
    model = nf.nn.Chain(nf.nn.Dense(5, 3, "tanh", rng=np.random.default_rng(0)))
    flat, layout = nf.destructure(model)
    program = nf.compile(layout.lift(nf.nn.call))
    assert np.array_equal(program(flat, X), model(X))
    assert np.array_equal(program(2 * flat, X), layout.restructure(2 * flat)(X))
    assert {operation.kind for operation in program.trace(flat, X).operations} == {"gufunc", "ufunc"}


# --- captured arrays ---------------------------------------------------------------------------------------

def test_captured_arrays_are_read_at_each_call():
    weight = np.ones(5, np.float32)
    program = nf.compile(lambda x: x @ weight)
    assert np.array_equal(program(X), X @ weight)
    weight[:] = 2
    assert np.array_equal(program(X), X @ weight)


def test_what_is_computed_from_captured_arrays_alone_is_not_frozen():
    weight = np.ones(5, np.float32)
    helper = lambda x: x @ (2 * weight)  # noqa: E731
    program = nf.compile(lambda x: helper(x))
    assert np.array_equal(program(X), helper(X))
    weight[:] = 3
    assert np.array_equal(program(X), helper(X))


def test_captured_integers_and_masks_are_live_too_unless_they_are_read_only():
    index, mask = np.array([0, 2]), np.array([True, False, True, False])
    program = nf.compile(lambda x: (x[index + 1], x * (~mask)[:, None]))
    for _ in range(2):
        given = program(X)
        assert np.array_equal(given[0], X[index + 1])
        assert np.array_equal(given[1], X * (~mask)[:, None])
        index += 1
        mask[:] = ~mask
        index %= 3
    with pytest.raises(TraceError, match="read-only"):
        nf.compile(lambda x: x[mask])(X)
    mask.flags.writeable = False
    assert np.array_equal(nf.compile(lambda x: x[mask])(X), X[mask])


def test_methods_partials_and_defaults_capture_too():
    class Scaler:
        def __init__(self):
            self.scale = np.full(5, 2.0)

        def __tree_children__(self):
            return dict(vars(self))

        @classmethod
        def __tree_rebuild__(cls, children):
            scaler = object.__new__(cls)
            vars(scaler).update(children)
            return scaler

        def apply(self, x):
            return (self.scale + 1) * x

    scaler, shift = Scaler(), np.ones(5)
    program = nf.compile(functools.partial(lambda s, x, t=shift: scaler.apply(x) + s * 2 + t * 3, shift))
    for _ in range(2):
        assert np.array_equal(program(X), (scaler.scale + 1) * X + shift * 2 + shift * 3)
        scaler.scale += 1
        shift += 1


class Net:
    """An object that is no tree."""

    def __init__(self):
        self.weight = np.ones(5)

    def __call__(self, x):
        return x * self.weight

    def with_program(self):
        self.program = nf.compile(lambda x: x * self.weight)
        return self.program


class Node(Net):
    """The same as a tree."""


tree.register(Node)


def in_a_closure():
    weight = np.ones(5)

    def bind(other):
        nonlocal weight
        weight = other

    return (lambda x: x * weight), bind


def in_a_global():
    return (lambda x: x * WEIGHT), lambda other: globals().update(WEIGHT=other)


def in_containers():
    trees = {"layers": [{"weight": np.ones(5)}]}
    return (lambda x: x * trees["layers"][0]["weight"]), lambda other: trees["layers"][0].update(weight=other)


def in_a_list():
    weights = [np.ones(5)]
    return functools.partial(lambda w, x: x * w[0], weights), lambda other: weights.__setitem__(0, other)


def in_an_attribute(kind, function):
    net = kind()
    return function(net), lambda other: setattr(net, "weight", other)


WEIGHT = np.ones(5)
REBOUND = {
    "closure": in_a_closure, "global": in_a_global, "containers": in_containers, "list": in_a_list,
    "attribute": lambda: in_an_attribute(Net, lambda net: net),
    "attribute of a tree": lambda: in_an_attribute(Node, lambda net: net),
    "attribute by a method": lambda: in_an_attribute(Net, lambda net: net.__call__),
    "attribute by a closure": lambda: in_an_attribute(Node, lambda net: lambda x: net(x)),
}


@pytest.mark.parametrize("make", REBOUND.values(), ids=REBOUND.keys())
def test_an_array_that_is_bound_anew_is_read(make):
    fn, bind = make()
    program = nf.compile(fn)
    for other in (np.ones(5), np.full(5, 2.0), np.full(5, 3.0, np.float32), np.full((4, 1), 4.0)):
        bind(other)
        for _ in range(2):
            assert np.array_equal(program(X), X * other)
        other += 1
        assert np.array_equal(program(X), X * other)


def test_a_model_that_is_bound_anew_is_read():
    model = (np.ones(5), "frozen")
    program = nf.compile(lambda x: x * model[0])
    program(X)
    model = (np.full(5, 2.0), "frozen")
    assert np.array_equal(program(X), X * 2.0)


@pytest.mark.parametrize("kind", [Net, Node])
def test_an_object_with_a_program_of_its_own_is_freed(kind):
    net = kind()
    program = net.with_program()
    program(X)
    net.weight = np.full(5, 2.0)
    assert np.array_equal(program(X), X * 2.0)
    alive = weakref.ref(net)
    del net, program
    gc.collect()
    assert alive() is None


def test_a_partial_of_arrays_alone_captures_them():
    weight = np.ones(5)
    program = nf.compile(functools.partial(np.multiply, weight))
    for _ in range(2):
        assert np.array_equal(program(X), X * weight)
        weight += 1


def test_copies_are_traced():
    run = lambda x: (copy.copy(x), copy.deepcopy({"x": x})["x"], copy.deepcopy(x[0, 0]))  # noqa: E731
    for x in (X, X.T):
        for result, wanted in zip(nf.compile(run)(x), run(x), strict=True):
            assert type(result) is type(wanted)
            assert result.strides == wanted.strides
            assert np.array_equal(result, wanted)


def test_a_captured_array_that_changed_its_shape_is_traced_anew():
    weight = np.ones((5, 1))
    program = nf.compile(lambda x: x * weight.sum())
    program(X)
    weight.resize(10, 1, refcheck=False)
    weight[:] = 1
    assert np.array_equal(program(X), X * np.float64(10))


# --- out= --------------------------------------------------------------------------------------------------

def test_out_is_written_and_returned():
    program = nf.compile(lambda x: x + 1)
    out = np.empty((4, 5), np.float32)
    assert program(X, out=out) is out
    assert np.array_equal(out, X + 1)
    strided = np.empty((4, 10), np.float32)[:, ::2]
    assert program(X, out=strided) is strided
    assert np.array_equal(strided, X + 1)


def test_out_may_name_inputs():
    program = nf.compile(lambda x, y: (y.T @ x, x[::-1] + y))
    x, y = np.random.default_rng(1).standard_normal((2, 4, 4))
    expected = y.T @ x, x[::-1] + y
    assert program(x, y, out=(y, x)) == (y, x) or True
    assert np.array_equal(y, expected[0])
    assert np.array_equal(x, expected[1])


@pytest.mark.parametrize(("out", "error", "words"), [
    (np.empty((4, 4), np.float32), ValueError, "shape"),
    (np.empty((4, 5)), ValueError, "dtype"),
    ([1, 2], (TypeError, ValueError), "out"),
    (np.broadcast_to(np.float32(0), (4, 5)), ValueError, "read-only"),
])
def test_an_out_that_does_not_fit_is_refused(out, error, words):
    program = nf.compile(lambda x: x + 1)
    program(X)
    with pytest.raises(error, match=words):
        program(X, out=out)


def test_out_is_untouched_when_the_call_raises():
    program = nf.compile(lambda x: np.log(x))
    out = np.full((4, 5), 7, np.float32)
    program(abs(X))
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        program(-abs(X), out=out)
    assert np.all(out == 7)


def test_keyword_arguments_are_refused():
    with pytest.raises(TypeError, match="positional"):
        nf.compile(lambda x: x)(X, x=X)


# --- warnings ----------------------------------------------------------------------------------------------

def test_a_floating_point_warning_names_its_ufunc_and_is_given_once():
    program = nf.compile(lambda x: np.maximum(np.log(x) + 1, 0))
    program(X + 10)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log") as caught:
        program(np.zeros((4, 5), np.float32))
    assert len(caught) == 1


def test_an_errstate_inside_that_raises_leaves_out_as_it_was():
    def function(x):
        with np.errstate(all="raise"):
            return x * 2, np.log(x)

    program, bad = nf.compile(function), np.array([1.0, 0.0])
    program(np.ones(2))
    for out in ((np.full(2, 7.0), np.full(2, 7.0)), (bad.copy(), np.full(2, 7.0))):
        before = [array.copy() for array in out]
        with pytest.raises(FloatingPointError, match="log"):
            program(out[0] if out[0][1] == 0 else bad, out=out)
        assert all(np.array_equal(*pair) for pair in zip(out, before, strict=True))


def test_products_of_what_blas_does_not_take_as_it_stands_warn_as_numpy_does():
    rng = np.random.default_rng(0)
    program = nf.compile(lambda x, y: np.inner(x, y))
    for _ in range(300):
        x, y = rng.choice([1, np.inf, -np.inf, np.nan, 0.5], (2, 3, 16)).astype(np.float32)[:, :, :8:2]
        assert recorded(program, [x[0], y])[1] == recorded(np.inner, [x[0], y])[1]


def test_an_errstate_inside_belongs_to_its_operations_and_the_rest_to_the_caller():
    def function(x):
        with np.errstate(divide="ignore"):
            y = np.log(x)
        return y, 1 / x

    program = nf.compile(function)
    zeros = np.zeros((4, 5), np.float32)
    with np.errstate(all="ignore"):
        program(zeros)
    assert recorded(program, [zeros])[1] == recorded(function, [zeros])[1] == {(RuntimeWarning, "divide by zero")}
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide"):
        program(zeros)


# --- programs ----------------------------------------------------------------------------------------------

def test_more_forms_than_max_traces_warn_and_name_what_changes():
    program = nf.compile(lambda x, y: x.sum() + y, max_traces=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 4):
            program(np.ones(n), X)
    with pytest.warns(RuntimeWarning, match=r"x keeps changing: an array of shape \(3,\).*shape \(4,\)"):
        program(np.ones(4), X)
    assert len(program.traces.plans) == 3


def test_the_least_recent_form_goes_first():
    program = nf.compile(lambda x: x + 1, max_traces=2)
    program(np.ones(1))
    program(np.ones(2))
    program(np.ones(1))
    with pytest.warns(RuntimeWarning, match="max_traces"):
        program(np.ones(3))
    assert [replay.forms[0].shape for replay in program.replays] == [(3,), (1,)]


def test_programs_of_one_function_share_traces_and_do_not_keep_it_alive():
    def function(x):
        return x + 1

    program = nf.compile(function)
    program(X)
    assert len(nf.compile(function).traces.plans) == 1
    count = len(nf.compile.__globals__["CACHE"])
    del program, function
    gc.collect()
    assert len(nf.compile.__globals__["CACHE"]) < count


def double(x):
    return x * 2


def test_a_pickled_program_is_its_function():
    program = pickle.loads(pickle.dumps(nf.compile(double, max_traces=5)))
    assert np.array_equal(program(X), X * 2)
    assert program.max_traces == 5


def test_compile_is_a_decorator_with_and_without_options():
    @nf.compile
    def plain(x):
        """Say what it does."""
        return x

    @nf.compile(static=("n",))
    def optioned(x, n):
        return x * n

    assert plain.__doc__ == "Say what it does."
    assert np.array_equal(optioned(X, 2), X * 2)


def test_a_program_inside_a_traced_function_is_part_of_its_tape():
    inner = nf.compile(lambda x: np.tanh(x))
    outer = nf.compile(lambda x: inner(x) + 1)
    assert np.array_equal(outer(X), np.tanh(X) + 1)
    assert [operation.name for operation in outer.trace(X).operations] == ["tanh", "add"]


def test_explain_tells_operations_casts_calls_and_bytes():
    text = nf.compile(lambda x: np.sort(x @ x.T) + x.astype(float).sum()).explain(X)
    for word in ("matmul", "float32[4, 5] argument 80 B", "NumPy itself", "a cast from float32 to float64",
                 "workspace", "flops", "test_compile.py"):
        assert word in text


def test_explain_says_why_a_copy_is_needed():
    text = nf.compile(lambda x: (x.T, x.T.reshape(-1) + 1, np.stack([x, x]))).explain(X)
    for reason in ("the result is a view", "not contiguous", "put together"):
        assert reason in text


def test_a_call_allocates_nothing_but_its_results():
    program = nf.compile(lambda x: np.tanh(x @ x.T) + 1)
    x, out = np.ones((100, 100)), np.empty((100, 100))
    program(x, out=out)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    program(x, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - before < 1000


def test_one_program_may_run_in_eight_threads_at_once():
    program = nf.compile(lambda x: np.tanh(x @ x.T).sum(axis=0) + np.exp(-x[0, 0] ** 2))
    arrays = [np.random.default_rng(seed).standard_normal((30, 30)) for seed in range(8)]
    expected = [program(x) for x in arrays]
    wrong = []

    def work(k):
        wrong.extend(k for _ in range(200) if not np.array_equal(program(arrays[k]), expected[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_tape_that_is_not_numpy_to_the_bit_stays_eager_with_a_warning(monkeypatch):
    monkeypatch.setattr("nnflat.trace.loop_signature", lambda ufunc, inputs, value: "ff->f")
    monkeypatch.setattr("nnflat.lower.find_loop", lambda ufunc, signature: nf._loops.ufunc_loop(np.subtract, "ff->f"))
    program = nf.compile(lambda x: x + x)
    with pytest.warns(RuntimeWarning, match=r"stays eager \(add, test_compile\.py, line"):
        first = program(X)
    assert np.array_equal(first, X + X)
    assert np.array_equal(program(X), X + X)


def one_element(value):
    """Return the forms of one element, by how NumPy strides over it."""
    many = np.array([value] * 9)
    return [value.item(), value, np.array(value), many[:1].copy(), many[:1].reshape(1, 1).copy(),
            many[:1].reshape(1, 1, 1).copy(), many[::4][:1], many[::-1][:1]]


def values_of(dtype, count, seed):
    values = np.random.default_rng(seed).standard_normal((count, 2)) * 2
    return (values @ (1, 1j) if dtype in "FD" else abs(values[:, 0])).astype(dtype)


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("ufunc", [np.square, np.conjugate, np.reciprocal, np.absolute, np.exp, np.tanh])
def test_one_element_alone_has_the_bits_of_numpy(ufunc, dtype):
    def fn(x):
        return ufunc(x)

    values = values_of(dtype, 40, 0)
    fn(values[0]), fn(values[0].item())         # the second call of NumPy on a scalar is another one than the first
    program = nf.compile(fn)
    for value in values:
        for x in one_element(value):
            assert np.asarray(program(x)).tobytes() == np.asarray(fn(x)).tobytes()


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("ufunc", [np.multiply, np.power, np.add])
def test_one_element_with_another_has_the_bits_of_numpy(ufunc, dtype):
    program = nf.compile(lambda x, y: ufunc(x, y), max_traces=64)
    exponents = np.array([2, 0.5, -1, 3, 1.3]).astype(dtype)
    for k, value in enumerate(values_of(dtype, 20, 1)):
        other = exponents[k % 5] if ufunc is np.power else values_of(dtype, 20, 2)[k]
        for x in one_element(value):
            for y in one_element(other):
                assert np.asarray(program(x, y)).tobytes() == np.asarray(ufunc(x, y)).tobytes()


@pytest.mark.parametrize("dtype", ["u1", "i1", "u4", "i4", "u8"])
def test_an_integer_that_its_dtype_cannot_hold_is_what_it_is_in_numpy(dtype):
    def choose(n, x):
        return np.where(x > 1, x, n)

    x = np.arange(3).astype(dtype)
    for function in (operator.lt, operator.ge, operator.eq, operator.add, choose):
        program = nf.compile(lambda n, x: function(n, x))  # noqa: B023
        program(2, x)
        for n in (-2, 300, 2**40, -2**63):
            assert outcome(program, n, x) == outcome(function, n, x)


def outcome(function, *args):
    try:
        return function(*args).tolist()
    except OverflowError as error:
        return str(error)


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="needs a function"):
        nf.compile(3)


def test_a_traced_error_is_a_type_error():
    assert issubclass(TraceError, TypeError)
