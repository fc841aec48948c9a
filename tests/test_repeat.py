"""vmap and scan: the bits of a loop of calls, eager or on a tape, nested, on threads."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law import check_rows
from programs import array, make_program

import nnflat as nf
from nnflat.context import TraceError

RNG = np.random.default_rng(0)
W1, B1, W2 = (RNG.standard_normal(shape).astype(np.float32) for shape in ((6, 4, 8), (6, 8), (6, 8, 2)))
X = RNG.standard_normal((6, 4)).astype(np.float32)


def policy(w1, b1, w2, x):
    return np.tanh(np.tanh(x @ w1 + b1) @ w2)


@settings(max_examples=settings.default.max_examples // 20)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_vmap_of_a_random_program_gives_the_bits_of_a_loop(seed, length):
    rng = random.Random(seed)
    forms = [(rng.choice("?ldfeFD"), rng.choice([(), (1,), (7,), (3, 4), (4, 1), (33,)])) for _ in range(2)]
    rows = [[array(rng, *form, "C", rng.randrange(2**32)) for form in forms] for _ in range(3)]
    check_rows(make_program(rng, rows[0], length), rows)


def loop(fn, *columns):
    return np.stack([fn(*row) for row in zip(*columns, strict=True)])


@pytest.mark.parametrize("threads", [None, 1, 2, 5])
def test_vmap_gives_the_bits_of_a_loop_of_calls(threads):
    mapped = nf.vmap(policy, 0, threads=threads)
    for _ in range(2):
        assert mapped(W1, B1, W2, X).tobytes() == loop(policy, W1, B1, W2, X).tobytes()


def test_vmap_walks_any_axis_and_leaves_none_alone():
    mapped = nf.vmap(lambda a, b, c: (a * b).sum() + c, (1, -1, None))
    a, b = RNG.standard_normal((2, 4, 5))
    expected = np.array([(a[:, i] * b[:, i]).sum() + 2.0 for i in range(5)])
    assert np.array_equal(mapped(a, b, 2.0), expected)


def test_vmap_walks_trees_and_gives_trees():
    mapped = nf.vmap(lambda tree, x: {"y": tree["w"] @ x, "z": (x.sum(), tree["k"])}, (0, 0))
    tree = {"w": W2, "k": np.arange(6)}
    result = mapped(tree, RNG.standard_normal((6, 2)))
    assert result["y"].shape == (6, 8)
    assert np.array_equal(result["z"][1], np.arange(6))


def test_vmap_never_widens_a_product():
    x = RNG.standard_normal((50, 128)).astype(np.float32)
    w = RNG.standard_normal((128, 96)).astype(np.float32)
    assert np.array_equal(nf.vmap(lambda x, w: x @ w, (0, None))(x, w), np.stack([row @ w for row in x]))


def test_vmap_inside_a_compiled_function_is_one_operation():
    program = nf.compile(lambda w1, x: nf.vmap(lambda w: np.tanh(x @ w), 0)(w1 * 2))
    assert np.array_equal(program(W1, X), np.stack([np.tanh(X @ w) for w in W1 * 2]))
    assert [operation.kind for operation in program.trace(W1, X).operations] == ["ufunc", "repeat"]


def test_vmap_of_vmap():
    mapped = nf.vmap(nf.vmap(lambda a, b: a * b + a.sum(), (0, None)), (None, 0))
    a, b = RNG.standard_normal((3, 4)), RNG.standard_normal((5, 4))
    expected = np.stack([np.stack([p * q + p.sum() for p in a]) for q in b])
    assert np.array_equal(mapped(a, b), expected)


@pytest.mark.parametrize(("in_axes", "args", "words"), [
    ((0,), (X, X), "1 entries"),
    ((0, 0), (X, X[:3]), "different sizes: 6, 3"),
    (None, (X, X), "none was given"),
    ((2, None), (X, X), "axis 2 for argument 0"),
    ((0, None), (X[:0], X), "at least one row"),
])
def test_vmap_says_which_axis_does_not_fit(in_axes, args, words):
    with pytest.raises(ValueError, match=words):
        nf.vmap(lambda x, y: x + y, in_axes)(*args)


def test_threads_need_to_be_some():
    with pytest.raises(ValueError, match="at least 1"):
        nf.vmap(policy, 0, threads=0)


@pytest.mark.parametrize("threads", [1, 2])
def test_vmap_warns_as_a_loop_of_calls_does(threads):
    mapped = nf.vmap(lambda x: np.log(x), 0, threads=threads)
    mapped(abs(X) + 1)
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
        mapped(X * 0)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        mapped(X * 0)




def test_scan_is_a_loop_on_plain_arrays():
    total, partial = nf.scan(lambda c, x: (c + x, c), np.float64(0), np.arange(4.0))
    assert total == 6
    assert np.array_equal(partial, [0, 0, 1, 3])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_traced_scan_gives_the_bits_of_the_loop(order):
    weight = np.asarray(RNG.standard_normal((5, 5)), order=order)

    def run(h, xs):
        return nf.scan(lambda h, x: (np.tanh(h @ weight + x), {"sum": h.sum(), "h": h}), h, xs)

    program = nf.compile(run)
    h, xs = np.zeros(5), RNG.standard_normal((20, 5))
    for start in (h, h + 1):
        (given, gives), (expected, expects) = program(start, xs), run(start, xs)
        assert np.array_equal(given, expected)
        assert np.array_equal(gives["sum"], expects["sum"])
        assert np.array_equal(gives["h"], expects["h"])
    assert len(program.trace(h, xs).operations) == 1


def test_scan_without_xs_takes_a_length():
    program = nf.compile(lambda x: nf.scan(lambda c, _: (c * 2, None), x, length=5)[0])
    assert np.array_equal(program(X), X * 32)
    assert np.array_equal(nf.compile(lambda x: nf.scan(lambda c, _: (c * 2, None), x, length=1)[0])(X), X * 2)


def test_a_carry_that_changes_its_form_once_is_unrolled():
    run = lambda xs: nf.scan(lambda c, x: (c + x, c * 2), 0.0, xs)  # noqa: E731
    xs = np.arange(6.0)
    given, expected = nf.compile(run)(xs), run(xs)
    assert given[0] == expected[0]
    assert type(given[0]) is type(expected[0])
    assert np.array_equal(given[1], expected[1])


@pytest.mark.parametrize("start", [None, ("no state", None), (np.zeros(4), None, "h")])
def test_what_is_neither_array_nor_number_goes_through_as_it_is(start):
    def step(carry, x):
        after = (carry[0] + x**3, *carry[1:]) if isinstance(carry, tuple) and len(carry) == 3 else carry
        return after, (x**3, None, "row")

    scanned, mapped = lambda xs: nf.scan(step, start, xs), nf.vmap(lambda x: step(start, x), 0)
    for run in (scanned, mapped.fn):
        (given, gives), (wanted, wants) = nf.compile(run)(X), run(X)
        assert gives[1:] == wants[1:] == (None, "row")
        assert np.array_equal(gives[0], wants[0])
        assert str(given) == str(wanted)
        assert np.allclose(nf.grad(lambda xs, run=run: np.sum(run(xs)[1][0]))(X), 3 * X**2)
        assert np.allclose(nf.hvp(lambda xs, run=run: np.sum(run(xs)[1][0]))(X, X), 6 * X**2)


def test_a_constant_of_a_carry_that_changes_is_refused():
    with pytest.raises(TypeError, match="structure"):
        nf.compile(lambda xs: nf.scan(lambda c, x: ((c[0], "b"), x), (1.0, "a"), xs))(X)


@pytest.mark.parametrize("start", [0, 0.0, True, np.float32(0), np.int8(0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_several_dtypes_are_stacked_in_the_one_that_holds_them(start, dtype):
    run = lambda c, xs: nf.scan(lambda c, x: (c + x, c), c, xs)[1]  # noqa: E731
    xs = np.array([0.5, 0.25, 2.0, 3.0], dtype)
    wanted = run(start, xs)
    assert np.array_equal(wanted, [0 + start, 0.5 + start, 0.75 + start, 2.75 + start])
    assert_same(nf.compile(run)(start, xs), wanted)


def assert_same(given, wanted):
    assert given.dtype == wanted.dtype
    assert np.array_equal(given, wanted)


def test_rows_that_would_need_a_wider_dtype_than_the_last_or_another_shape_are_refused():
    narrow = lambda xs: nf.scan(lambda c, x: ((c * x).astype(np.float32), c), np.ones(4), xs)  # noqa: E731
    grown = lambda xs: nf.scan(lambda c, x: (c + x[None], c), np.ones(4), xs)  # noqa: E731
    with pytest.raises(TraceError, match="wider dtype"):
        nf.compile(narrow)(X)
    for run in (grown, nf.compile(grown)):
        with pytest.raises(ValueError, match="one shape"):
            run(X)


def test_a_carry_that_never_keeps_its_form_is_refused():
    with pytest.raises(TypeError, match="changes its form"):
        nf.compile(lambda x: nf.scan(lambda c, _: (np.concatenate([c, c]), None), x, length=9)[0])(np.ones(1))


def test_a_carry_in_another_structure_is_refused():
    with pytest.raises(TypeError, match="structure"):
        nf.compile(lambda x: nf.scan(lambda c, _: ((c, c), None), x, length=9)[0])(np.ones(1))


def test_vmap_of_scan_evaluates_candidates_over_time():
    run = lambda weight, xs: nf.scan(lambda h, x: (np.tanh(h @ weight + x), h[0]), np.zeros(4), xs)  # noqa: E731
    weights, xs = RNG.standard_normal((7, 4, 4)), RNG.standard_normal((10, 4))
    given = nf.vmap(run, (0, None), threads=2)(weights, xs)
    expected = [run(weight, xs) for weight in weights]
    assert np.array_equal(given[0], np.stack([last for last, _ in expected]))
    assert np.array_equal(given[1], np.stack([ys for _, ys in expected]))


def test_explain_shows_the_tape_inside():
    text = nf.vmap(lambda x: np.tanh(x) + 1, 0).explain(X)
    assert "6 times the tape below" in text
    assert "    0 ufunc    tanh" in text
    assert "48 flops" in text


def test_a_mapped_program_can_be_pickled():
    mapped = pickle.loads(pickle.dumps(nf.vmap(policy, 0, threads=2)))
    assert mapped(W1, B1, W2, X).tobytes() == loop(policy, W1, B1, W2, X).tobytes()


def test_programs_of_one_function_and_axes_share_their_traces():
    nf.vmap(policy, 0)(W1, B1, W2, X)
    assert len(nf.vmap(policy, 0).traces.plans) >= 1
    assert len(nf.vmap(policy, (0, 0, 0, 0)).traces.plans) == 0


def test_an_operation_without_a_loop_works_inside():
    mapped = nf.vmap(lambda x: np.sort(x)[::-1], 0, threads=2)
    assert np.array_equal(mapped(X), np.sort(X, axis=1)[:, ::-1])
