"""Derivatives of functions: grad, value_and_grad, vjp, jvp, hvp, jacobian, hessian, and what steers them.

Every one runs the function on traced values and walks back over what it did, by rules that are NumPy code: the
derivative lands on the tape of the function, and can be differentiated again. Programs are kept by function and
options, so that `nf.grad(loss)(x)` in a loop traces once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat.backward import differentiating, is_inexact, pull_back, relabel, variable
from nnflat.compile import Program, trace_once
from nnflat.context import STACK, TraceError, active, differentiated
from nnflat.repeat import vmap
from nnflat.structure import Structure, put_together, take_apart
from nnflat.trace import Trace
from nnflat.tracer import Tracer, as_array, is_traced, value_of

Argnums = int | tuple[int, ...]


# --- gradients ---------------------------------------------------------------------------------------------

def grad(fn: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, allow_unused: bool = False) -> Program:
    """Return the function that gives the gradient of a function with one real number as its result.

    Parameters
    ----------
    fn : callable
        A function of arrays, or of trees of them, that gives a real scalar. It has to be pure, as for `compile`.
    argnums : int or tuple of int
        Which arguments to differentiate by: a tuple gives a tuple of gradients.
    has_aux : bool
        Whether `fn` gives (scalar, anything else); then the result is (gradient, anything else).
    allow_unused : bool
        Give zeros where the result depends on none of these arguments, in the place of the error.

    Returns
    -------
    Program
        Its gradients are fresh arrays of the dtype and shape of the argument; of a tree, a tree of gradients, in
        which what is no array of inexact dtype stays what it is. Partial derivatives by what is not used are zero.

    Notes
    -----
    Of a complex argument, du/dx - i du/dy, as in JAX. The conventions at kinks are those of `nnflat.rules`.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.grad(lambda x: np.sum(x ** 3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    return Program(Gradient(checked(fn), checked_argnums(argnums), has_aux, allow_unused, False))


def value_and_grad(fn: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False,
                   allow_unused: bool = False) -> Program:
    """Return the function that gives (value, gradient); with `has_aux`, ((value, anything else), gradient).

    Parameters are those of `grad`. It is what SciPy's optimisers want with `jac=True`.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.value_and_grad(lambda x: np.sum(x ** 2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    return Program(Gradient(checked(fn), checked_argnums(argnums), has_aux, allow_unused, True))


def checked(fn: Any) -> Callable[..., Any]:
    if not callable(fn):
        raise TypeError(f"a function is needed; got {type(fn).__name__}")
    return fn


def checked_argnums(argnums: Any) -> Argnums:
    numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
    if not numbers or any(not isinstance(i, int) or i < 0 for i in numbers):
        raise ValueError(f"argnums needs to be a position, or a tuple of them, counted from 0; got {argnums!r}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"argnums needs each position once; got {argnums!r}")
    return argnums if isinstance(argnums, int) else tuple(argnums)


@dataclass(frozen=True)
class Gradient:
    """The function that `grad` compiles."""

    fn: Callable[..., Any]
    argnums: Argnums
    has_aux: bool
    allow_unused: bool
    with_value: bool

    def __call__(self, *args: Any) -> Any:
        if active() is None:
            return trace_once(self, args)
        inputs = Inputs(args, self.argnums)
        first = differentiated() == 0
        with differentiating():
            before = STACK.taken
            value = self.fn(*inputs.args)
            first &= STACK.taken == before
        value, aux = self.split(value)
        check_scalar(value)
        found = pull_back([(value, one_like(value))], inputs.variables)
        if first and not self.allow_unused and all(each is None for each in found):
            raise independent(self.argnums)
        gradient = inputs.gradients(found)
        if not self.with_value:
            return (gradient, aux) if self.has_aux else gradient
        return ((value, aux) if self.has_aux else value), gradient

    def split(self, result: Any) -> tuple[Any, Any]:
        if not self.has_aux:
            return result, None
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f"with has_aux the function needs to give (scalar, anything else); got {kind(result)}")
        return result


class Inputs:
    """Arguments of a function, with variables in the place of the inexact arrays of those in argnums."""

    def __init__(self, args: Sequence[Any], argnums: Argnums) -> None:
        numbers = argnums if isinstance(argnums, tuple) else (argnums,)
        if max(numbers) >= len(args):
            raise TypeError(f"argument {max(numbers)} is to be differentiated by; the function got {len(args)}")
        trace = active()
        assert trace is not None
        self.single = not isinstance(argnums, tuple)
        self.args = list(args)
        self.variables: list[Tracer] = []
        self.parts: list[tuple[list[Any], Structure]] = []
        for i in numbers:
            ends, structure = take_apart(args[i])
            ends = [variable(trace, end) if is_inexact(end) else end for end in ends]
            mine = [end for end in ends if is_inexact(end)]
            if not mine:
                raise TypeError(f"argument {i} is to be differentiated by: it needs to be an array of floats, or a "
                                f"tree of them; got {kind(args[i])}")
            self.variables += mine
            self.parts.append((ends, structure))
            self.args[i] = put_together(structure, iter(ends))

    def gradients(self, found: Sequence[Any]) -> Any:
        """Return the gradients in the form of the arguments."""
        each = iter(found)
        gradients = tuple(put_together(structure, iter([gradient_like(next(each), end) if is_inexact(end) else end
                                                        for end in ends])) for ends, structure in self.parts)
        return gradients[0] if self.single else gradients


def gradient_like(cotangent: Any, x: Tracer) -> Any:
    """Return a cotangent as what x is: an array, or a number."""
    if cotangent is None:
        zeros = np.zeros(x.shape, x.dtype)
        return zeros if isinstance(x.value, np.ndarray) else zeros[()]
    if isinstance(x.value, np.ndarray):
        return cotangent if isinstance(cotangent, np.ndarray) else cotangent[...]
    return cotangent[()] if isinstance(cotangent, np.ndarray) else cotangent


def check_scalar(value: Any) -> None:
    plain = value_of(value)
    if not isinstance(plain, np.ndarray | np.generic | int | float | complex) or np.ndim(plain) != 0:
        raise TypeError(f"a gradient needs a function that gives one number; it gave {kind(value)}")
    if as_array(plain).dtype.kind not in "f":
        raise TypeError(f"a gradient needs a function that gives a real number; it gave {as_array(plain).dtype}")


def one_like(value: Any) -> Any:
    return as_array(value_of(value)).dtype.type(1)


def kind(x: Any) -> str:
    plain = value_of(x)
    if isinstance(plain, np.ndarray):
        return f"an array of shape {plain.shape} and dtype {plain.dtype}"
    return type(plain).__name__


def independent(argnums: Argnums) -> TraceError:
    return TraceError(
        f"the result depends on no differentiable argument (argnums={argnums}). Likely causes: the function uses a "
        "model that it closes over instead of the one that is passed, writes into arrays in place, rounds or "
        "compares, or stops the gradient. allow_unused=True gives zeros")


# --- products with the Jacobian ----------------------------------------------------------------------------

def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Return the result of a function, and the function that pulls a cotangent of it back to the arguments.

    Parameters
    ----------
    fn : callable
    *primals : trees of arrays
        Its arguments.

    Returns
    -------
    out : tree of arrays
    pull : callable
        `pull(cotangent)`, of the form of `out`, gives a tuple with a cotangent for each argument.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> out, pull = nf.vjp(np.multiply, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> pull(np.array([1.0, 0.5]))
    (array([3., 2.]), array([1., 1.]))
    """
    trace = active()
    if trace is None:
        pulled = Program(Pulled(checked(fn)))
        return Program(fn)(*primals), lambda cotangent: pulled(primals, cotangent)
    inputs = Inputs(primals, tuple(range(len(primals))))
    with differentiating():
        out = fn(*inputs.args)
    return out, lambda cotangent: inputs.gradients(pull_back(pair(out, cotangent), inputs.variables))


@dataclass(frozen=True)
class Pulled:
    """The function that `vjp` compiles."""

    fn: Callable[..., Any]

    def __call__(self, primals: Any, cotangent: Any) -> Any:
        if active() is None:
            return trace_once(self, (primals, cotangent))
        return vjp(self.fn, *primals)[1](cotangent)


def pair(out: Any, cotangent: Any) -> list[tuple[Any, Any]]:
    """Pair each inexact array of a result with its cotangent; check their form."""
    ends, structure = take_apart(out)
    given, form = take_apart(cotangent)
    if structure != form:
        raise TypeError(f"the cotangent needs the form of the result, {kind(out)}; got {kind(cotangent)}")
    for end, other in zip(ends, given, strict=True):
        if np.shape(value_of(end)) != np.shape(value_of(other)):
            raise ValueError(f"the cotangent needs shape {np.shape(value_of(end))}; got {np.shape(value_of(other))}")
    return [(end, other) for end, other in zip(ends, given, strict=True) if is_inexact(end)]


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return the result of a function and its derivative in a direction.

    Parameters
    ----------
    fn : callable
    primals, tangents : tuple of trees of arrays
        Arguments, and the direction in which they move, of the same form.

    Notes
    -----
    Twice backward: what pulls a cotangent back is linear in it, and pulling back through that is the product with
    the Jacobian. What only the first walk needs is dropped from the tape.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.jvp(np.sin, (0.0,), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeError("jvp needs a tuple of arguments and a tuple of tangents")
    pushed = Pushed(checked(fn))
    if active() is None:
        return Program(pushed)(tuple(primals), tuple(tangents))
    return pushed(tuple(primals), tuple(tangents))


@dataclass(frozen=True)
class Pushed:
    """The function that `jvp` compiles."""

    fn: Callable[..., Any]

    def __call__(self, primals: Any, tangents: Any) -> Any:
        trace = active()
        if trace is None:
            return trace_once(self, (primals, tangents))
        inputs = Inputs(primals, tuple(range(len(primals))))
        with differentiating():
            out = self.fn(*inputs.args)
            ends, structure = take_apart(out)
            results = [end for end in ends if is_traced(end) and is_inexact(end)]
            ones = [constant(trace, np.ones_like(as_array(end.value))) for end in results]
            back = pull_back(list(zip(results, ones, strict=True)), inputs.variables)
        moves = direction(tangents, inputs)
        found = iter(pull_back(list(zip(back, moves, strict=True)), ones))
        tangent = [gradient_like(next(found), end) if is_traced(end) and is_inexact(end) else zero_like(end)
                   for end in ends]
        return out, put_together(structure, iter(tangent))


def constant(trace: Trace, array: np.ndarray) -> Tracer:
    return Tracer(trace, array, trace.window(array))


def zero_like(x: Any) -> Any:
    return np.zeros_like(value_of(x)) if is_inexact(x) else x


def direction(tangents: Any, inputs: Inputs) -> list[Any]:
    """Return the tangents of the variables, once they are known to be of their form."""
    given, _ = take_apart(tangents)
    ends = [end for part, _ in inputs.parts for end in part]
    if len(given) != len(ends):
        raise TypeError(f"the tangents need the form of the arguments: {len(ends)} arrays; got {len(given)}")
    for end, other in zip(ends, given, strict=True):
        if np.shape(value_of(end)) != np.shape(value_of(other)):
            raise ValueError(f"the tangent needs shape {np.shape(value_of(end))}; got {np.shape(value_of(other))}")
    return [other for end, other in zip(ends, given, strict=True) if is_inexact(end)]


def hvp(fn: Callable[..., Any]) -> Program:
    """Return `(x, v, *args) -> H v`, the product of the Hessian of a scalar function by x with a vector.

    The Hessian itself is never made; the price is that of a few gradients. It is what SciPy takes as `hessp`.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.hvp(lambda x: np.sum(x ** 3))(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    array([ 6., 12.])
    """
    return Program(HessianProduct(checked(fn)))


@dataclass(frozen=True)
class HessianProduct:
    """The function that `hvp` compiles."""

    fn: Callable[..., Any]

    def __call__(self, x: Any, v: Any, *args: Any) -> Any:
        if active() is None:
            return trace_once(self, (x, v, *args))
        inputs = Inputs((x,), 0)
        moves = direction(v, inputs)
        with differentiating():
            inner = Inputs((inputs.args[0], *args), 0)
            value = self.fn(*inner.args)
            check_scalar(value)
            found = pull_back([(value, one_like(value))], inner.variables)
        if differentiated() == 0 and all(each is None for each in found):
            raise independent(0)
        return inputs.gradients(pull_back(list(zip(found, moves, strict=True)), inputs.variables))


# --- matrices ----------------------------------------------------------------------------------------------

def jacobian(fn: Callable[..., Any], argnums: int = 0) -> Program:
    """Return the function that gives the Jacobian of an array by an array, shape (*result, *argument).

    Row by row, backward: cheap where the result is small.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.jacobian(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    return Program(Jacobian(checked(fn), argnums))


@dataclass(frozen=True)
class Jacobian:
    """The function that `jacobian` compiles."""

    fn: Callable[..., Any]
    argnum: int

    def __call__(self, *args: Any) -> Any:
        if active() is None:
            return trace_once(self, args)
        inputs = Inputs(args, self.argnum)
        first = differentiated() == 0
        with differentiating():
            before = STACK.taken
            out = self.fn(*inputs.args)
            first &= STACK.taken == before
        if len(inputs.variables) != 1 or not is_inexact(out):
            raise TypeError(f"a Jacobian needs a function of an array to an array of floats; it gave {kind(out)}")
        shape, (x,) = np.shape(value_of(out)), inputs.variables
        if 0 in (*shape, *x.shape):
            return np.zeros((*shape, *x.shape), x.dtype)
        basis = np.eye(int(np.prod(shape)), dtype=as_array(value_of(out)).dtype).reshape(-1, *shape)
        if pull_back([(out, basis[0])], inputs.variables)[0] is None:
            if first:
                raise independent(self.argnum)
            return np.zeros((*shape, *x.shape), x.dtype)
        rows = vmap(lambda g: pull_back([(out, g)], inputs.variables)[0], 0).fn(basis)
        return rows.reshape((*shape, *x.shape))


def hessian(fn: Callable[..., Any], argnums: int = 0) -> Program:
    """Return the function that gives the Hessian of a scalar function by an array, shape (*argument, *argument).

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    return Program(Jacobian(Gradient(checked(fn), argnums, False, False, False), argnums))


# --- what steers -------------------------------------------------------------------------------------------

def stop_gradient(x: Any) -> Any:
    """Return x, an array or a tree of them, as a constant to derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.grad(lambda x: np.sum(x * nf.stop_gradient(x)))(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    trace = active()
    if trace is None:
        return x
    ends, structure = take_apart(x)
    return put_together(structure, iter([Tracer(trace, end.value, trace.own(end)) if is_traced(end) else end
                                         for end in ends]))


@dataclass(frozen=True)
class Remat:
    """A function that is computed once more in the walk back, so that what it made need not be kept."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        trace = active()
        if trace is None or not differentiated():
            return self.fn(*args)
        return relabel(trace, self.fn, args)


def remat(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function; where it is differentiated, it is computed again in the walk back.

    That takes the time of the function once more and the memory of its temporaries less (see `explain`).

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.grad(nf.remat(lambda x: np.sin(np.sin(x))))(0.0)
    np.float64(1.0)
    """
    return Remat(checked(fn))
