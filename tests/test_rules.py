"""Derivative rules: of every function that the tracer covers, or a reason why it has none."""

import numpy as np
import pytest
from derivatives import (
    BINARY,
    COMPLEX,
    EXAMPLES,
    REASONS,
    X,
    check,
    complex_normal,
    is_inexact,
    normal,
    positive,
    weighted,
)
from numpy.testing import assert_allclose, assert_array_equal

import nnflat as nf
from nnflat.compile import trace_once
from nnflat.handlers import KNOWN
from nnflat.methods import METHODS, PROPERTIES
from nnflat.rules import RULES

NUMBERS = "?bBhHiIlLqQefdgFDG"


def covered():
    """Return the names of all functions, ufuncs and methods that a traced value has an answer for."""
    functions = {f"{each.__module__}.{each.__name__}".removeprefix("numpy.") for each in KNOWN}
    ufuncs = {each.__name__ for each in vars(np).values() if isinstance(each, np.ufunc)
              and any(set(types) <= set(NUMBERS + "->O") for types in each.types)}  # fmt: skip
    return functions | ufuncs | {f"ndarray.{name}" for name in (*METHODS, *PROPERTIES)}


def test_every_function_that_is_traced_has_a_derivative_or_a_reason_why_not():
    reasons = [name for names in REASONS.values() for name in names]
    assert covered() - set(EXAMPLES) - set(reasons) == set()
    assert len(reasons) == len(set(reasons))
    assert set(EXAMPLES) & set(reasons) == set()


CASES = [pytest.param(fn, args, id=f"{name} {i}" if i else name)
         for name, examples in EXAMPLES.items() for i, (fn, *args) in enumerate(examples)]  # fmt: skip


@pytest.mark.parametrize(("fn", "args"), CASES)
def test_first_and_second_derivatives_are_those_of_central_differences(fn, args):
    check(lambda *args: fn(np, *args), *args)


@pytest.mark.parametrize("name", COMPLEX)
def test_the_rule_of_a_complex_ufunc_is_its_derivative(name):
    check(getattr(np, name), 0.3 * complex_normal(2, 3))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power"])
def test_the_rule_of_a_complex_ufunc_of_two_operands_is_its_derivative(name):
    check(getattr(np, name), complex_normal(3), complex_normal(3, seed=4))
    check(getattr(np, name), positive(3), complex_normal(3, seed=4))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "hypot"])
def test_the_derivative_by_a_broadcast_operand_is_summed(name):
    check(getattr(np, name), normal(3, 1), positive(4))
    check(getattr(np, name), 0.7, positive(2, 2))


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "fmin", "subtract", "divide", "hypot", "logaddexp"])
@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat", "outer"])
def test_the_methods_of_a_ufunc_have_its_derivative(name, method):
    bound = getattr(getattr(np, name), method)
    if method == "outer":
        check(bound, positive(2), positive(3, seed=2))
    else:
        extra = ([0, 2, 1],) if method == "reduceat" else ()
        check(lambda x: bound(x, *extra, axis=1), positive(2, 4))


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
def test_ties_of_running_extremes_share_equally(ufunc):
    given = nf.grad(lambda x: ufunc.accumulate(x)[-1])(np.ones(4))
    assert_array_equal(given, np.full(4, 0.25))


def test_a_ufunc_that_is_told_its_dtype_has_its_derivative():
    check(lambda x: np.multiply(x, x, dtype=np.complex128) * (1 + 1j), X)


@pytest.mark.parametrize("name", [*BINARY])
def test_float32_stays_float32(name):
    args = [each.astype(np.float32) for each in BINARY[name]]
    for gradient in nf.grad(weighted(getattr(np, name)), (0, 1), allow_unused=True)(*args):
        assert gradient.dtype == np.float32


def test_every_rule_has_an_entry_an_operand():
    for ufunc, rules in RULES.items():
        if isinstance(ufunc, np.ufunc):
            assert len(rules) == ufunc.nin, ufunc


def by_autograd(fn, args):
    """Return autograd's gradients of an example; None where it has no such function, or no rule for it."""
    autograd = pytest.importorskip("autograd")
    import autograd.numpy as theirs

    loss = weighted(lambda *args: fn(theirs, *args), theirs)
    try:
        return [autograd.grad(loss, k)(*args) for k, arg in enumerate(args) if is_inexact(arg)]
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return None


NOT_AUTOGRADS = {       # checked by central differences above
    **dict.fromkeys(["sum 3", "prod 3", "mean 1", "var 2"], "ignores where="),
    **dict.fromkeys(["pad 2", "pad 3", "pad 4", "pad 5"], "takes every mode for a constant"),
    **dict.fromkeys(["broadcast_to", "broadcast_to 1"], "broadcasts the cotangent once more"),
    **dict.fromkeys(["linalg.slogdet 1", "linalg.pinv 3", "linalg.cholesky 1"], "has the rule of real matrices"),
    "diag": "has the rule of square matrices", "linalg.solve 3": "does not sum over a broadcast axis",
    "linalg.norm 4": "divides zero by zero",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("fn", "args"), [case for case in CASES if case.id not in NOT_AUTOGRADS])
def test_the_gradient_is_that_of_autograd_where_it_has_one(fn, args):
    expected = by_autograd(fn, args)
    if expected is None:
        pytest.skip("autograd has no such rule")
    numbers = tuple(k for k, arg in enumerate(args) if is_inexact(arg))
    gradient = nf.grad(weighted(lambda *args: fn(np, *args)), numbers, allow_unused=True)
    given = trace_once(gradient.fn, args)
    for mine, its in zip(given, expected, strict=True):
        assert_allclose(mine, its, rtol=1e-8, atol=1e-9)
