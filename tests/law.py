"""The law, checked: what a compiled function gives is what NumPy gives, to the bit."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from programs import DTYPES, LAYOUTS, REFUSALS, SHAPES, Program, array, make_program

import nnflat as nf

NUMBERS = [(0.75, -1.25), (3, -2), (True, False), (2j, 1.5), (np.float32(1.5), np.float32(-0.1)),
           (np.float64(0.1), np.float64(3)), (np.int8(3), np.int8(-5)), (np.True_, np.False_),
           (np.complex64(1 + 2j), np.complex64(-1j)), (np.uint64(7), np.uint64(2**63)),
           (np.float16(0.3), np.float16(2))]

# NumPy rounds its first square of a complex scalar in a process otherwise than all that follow.
np.square(np.complex64(1)), np.square(np.complex128(1))


def random_case(rng: Any, length: int) -> tuple[Program, list[Any], list[Any]]:
    """Make a program, the arguments that it was made on, and others of the same form."""
    dtypes = rng.choice([rng.choices(DTYPES, k=3), rng.choices("fd", k=3), [rng.choice("fdeFDl")] * 3])
    shape = rng.choice(SHAPES)
    forms = []
    for dtype in dtypes[: rng.randrange(1, 4)]:
        layout = rng.choice(LAYOUTS) if rng.randrange(2) else "C"
        forms.append((dtype, shape if rng.randrange(3) else rng.choice(SHAPES), layout))
    first = [array(rng, *form, rng.randrange(2**32)) for form in forms]
    second = [array(rng, *form, rng.randrange(2**32)) for form in forms]
    if not rng.randrange(3):
        pair = rng.choice(NUMBERS)
        first.append(pair[0])
        second.append(pair[1])
    return make_program(rng, first, length), first, second


def check(program: Program, arguments: list[Any], others: list[Any]) -> None:
    compiled = nf.compile(program)
    for args in (arguments, others):
        expected, theirs = recorded(program, args)
        if isinstance(expected, Exception):
            continue
        given, ours = recorded(compiled, args)
        if isinstance(given, Exception):
            raise given
        compare(given, expected)
        assert ours == theirs, f"warnings {ours} where NumPy has {theirs}"


def check_rows(program: Program, rows: list[list[Any]]) -> None:
    """vmap of a program gives the rows of a loop of calls."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        warnings.filterwarnings("ignore", "Mean of empty|Degrees of freedom|invalid value|divide by zero")
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        try:
            expected = [program(*row) for row in zip(*columns, strict=True)]
        except REFUSALS:
            return
        given = nf.vmap(program, 0)(*columns)
        for i, result in enumerate(given):
            for row, wanted in zip(result, expected, strict=True):
                assert row.dtype == np.asarray(wanted[i]).dtype
                assert without_nan_signs(np.asarray(row)) == without_nan_signs(np.asarray(wanted[i]))


def recorded(function: Any, args: list[Any]) -> tuple[Any, set[Any]]:
    """Return the result, or the error, and the kinds of warnings."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        try:
            result = function(*args)
        except REFUSALS as error:
            return error, set()
    return result, {(each.category, kind_of(str(each.message))) for each in caught}


def kind_of(message: str) -> str:
    return message.split(" encountered")[0]


def compare(given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for i, (a, b) in enumerate(zip(given, expected, strict=True)):
        assert type(a) is type(b), f"result {i} is {type(a)} where NumPy has {type(b)}"
        if isinstance(b, np.ndarray):
            assert order(a, b) == order(b, b), f"result {i} has strides {a.strides} where NumPy has {b.strides}"
        x, y = np.asarray(a), np.asarray(b)
        assert x.dtype == y.dtype, f"result {i} has dtype {x.dtype} where NumPy has {y.dtype}"
        assert x.shape == y.shape, f"result {i} has shape {x.shape} where NumPy has {y.shape}"
        assert without_nan_signs(x) == without_nan_signs(y), f"result {i}: {x!r} where NumPy has {y!r}"


def order(x: np.ndarray, like: np.ndarray) -> tuple[int, ...]:
    """Return the axes from the outermost in memory to the innermost; those where `like` does not move do not count."""
    if x.size == 0:
        return ()
    axes = [axis for axis in range(x.ndim) if x.shape[axis] > 1 and like.strides[axis]]
    return tuple(sorted(axes, key=lambda axis: -abs(x.strides[axis])))


def without_nan_signs(x: np.ndarray) -> bytes:
    x = np.ascontiguousarray(x).astype(x.dtype.newbyteorder("="))
    if x.dtype.kind not in "fc":
        return x.tobytes()
    real = x.view(x.real.dtype)
    return np.where(np.isnan(real), np.nan, real).astype(real.dtype).tobytes()
