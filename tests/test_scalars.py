"""Scalars: integers compute on the tape as NumPy's scalars and Python's numbers do, as loops."""

import itertools
import operator

import numpy as np
import pytest
from law import recorded

import nnflat as nf

ARITHMETIC = [operator.add, operator.sub, operator.mul]
COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
EDGES = [0, 1, -1, 2, -7, 2**31, 2**32 + 1, 3037000500, 2**62, -2**62, 2**63 - 1, -2**63]
PAIRS = list(itertools.product(EDGES, EDGES))


def assert_same(program, function, a, b):
    (given, ours), (expected, theirs) = recorded(program, [a, b]), recorded(function, [a, b])
    assert (type(given), given, ours) == (type(expected), expected, theirs)


@pytest.mark.parametrize("function", ARITHMETIC + COMPARISONS)
def test_int64_scalars_give_what_numpy_gives_and_its_warnings(function):
    program = nf.compile(lambda a, b: function(a, b))
    program(np.int64(1), np.int64(2))
    for pair in PAIRS:
        assert_same(program, function, *map(np.int64, pair))
    assert "call" not in {operation.kind for operation in program.trace(np.int64(1), np.int64(2)).operations}


@pytest.mark.parametrize("function", ARITHMETIC)
def test_python_integers_are_exact_and_raise_where_64_bits_do_not_hold_them(function):
    program = nf.compile(lambda a, b: function(a, b))
    program(1, 2)
    for a, b in PAIRS:
        expected = function(a, b)
        if -2**63 <= expected < 2**63:
            given = program(a, b)
            assert (type(given), given) == (int, expected)
        else:
            with pytest.raises(FloatingPointError, match="overflow encountered in scalar"):
                program(a, b)
    assert "call" not in {operation.kind for operation in program.trace(1, 2).operations}


@pytest.mark.parametrize("function", COMPARISONS)
def test_comparisons_of_python_integers_are_loops(function):
    program = nf.compile(lambda a, b: function(a, b))
    for a, b in PAIRS:
        assert program(a, b) is function(a, b)
    assert [operation.kind for operation in program.trace(1, 2).operations] == ["ufunc"]


def test_a_step_counter_of_a_scan_costs_no_call():
    def run(x):
        return nf.scan(lambda carry, _: ((carry[0] * 2, carry[1] + 1), carry[1] < 3), (x, 0), length=6)

    program = nf.compile(run)
    for x in (np.float32(1), np.float32(3)):
        (value, steps), early = program(x)
        assert (value, steps, early.tolist()) == (64 * x, 6, [True] * 3 + [False] * 3)
    assert "call" not in program.explain(np.float32(1))


@pytest.mark.parametrize("pair", [
    (np.int64(3), np.int8(2)), (np.int64(3), True), (np.uint64(3), 2), (np.uint64(3), np.int64(2)),
    (np.int8(100), np.int8(100)), (3, 2.5), (2.5, np.int64(3)), (True, True),
])
@pytest.mark.parametrize("function", [*ARITHMETIC, operator.lt])
def test_other_scalars_keep_their_types_and_warnings(function, pair):
    program = nf.compile(lambda a, b: function(a, b))
    assert_same(program, function, *pair)
    assert_same(program, function, *pair[::-1])


SCALARS = [3, -0.7, 1.5 - 2j, True, np.int8(3), np.int64(-5), np.uint64(7), np.float16(0.3), np.float32(-1.7),
           np.float64(0.1), np.complex64(1.3 - 0.7j), np.complex128(-0.3 + 1.9j), np.True_]
OPERATORS = [*ARITHMETIC, *COMPARISONS, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.and_,
             operator.lshift, divmod]

# With a traced x on the right, Python asks x for `1j == x` as for `x == 1j`, and NumPy takes `c * x` for np.multiply.
NOT_TOLD_APART = {(complex, np.float64), (np.complex64, np.complex64)}


@pytest.mark.parametrize("function", OPERATORS)
def test_every_pair_of_scalars_gives_the_bits_and_the_type_of_eager(function):
    for a, b in itertools.product(SCALARS, SCALARS):
        assert_traced(function, a, b)
        assert_traced(lambda a, b=b: function(a, b), a)
        if (type(a), type(b)) not in NOT_TOLD_APART:
            assert_traced(lambda b, a=a: function(a, b), b)


@pytest.mark.parametrize("function", [abs, operator.neg, operator.pos, operator.invert, lambda x: round(x, 1)])
def test_every_scalar_gives_the_bits_and_the_type_of_eager(function):
    for a in SCALARS:
        assert_traced(function, a)


@np.errstate(all="ignore")
def assert_traced(function, *args):
    try:
        expected = function(*args)
    except (TypeError, OverflowError, ValueError):
        return
    given = nf.compile(lambda *args: function(*args))(*args)
    assert same(given, expected), f"{given!r} where eager has {expected!r}, of {args}"


def same(a, b):
    if type(a) is tuple:
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and np.asarray(a).tobytes() == np.asarray(b).tobytes()
