"""What a traced value does in NumPy's functions and methods.

Four routes: a composition of loops (`mean` is a sum and a division), a move of elements (`roll`), a call of NumPy on
the real arrays (`sort`; views are recognised there too), or a refusal that says what to write instead. A function
that is none of NumPy's own is refused: an unknown implementation may swallow the error of a traced value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy._core.umath as umath

from nnflat.draws import DRAWS
from nnflat.refusals import REFUSED
from nnflat.tape import Window, view_window
from nnflat.trace import Trace
from nnflat.tracer import Tracer, as_array, is_traced, kind_of, value_of

Handler = Callable[..., Any]
UNSET = np._NoValue
CLIP = vars(umath)["clip"]          # the ufunc behind np.clip


# --- ufuncs ------------------------------------------------------------------------------------------------

def ufunc_method(trace: Trace, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kwargs = {key: value for key, value in kwargs.items() if not is_default(key, value)}
    if "out" in kwargs or method == "at":
        raise trace.fail(f"np.{ufunc.__name__} writes into an array in place (out=, at, or +=)",
                         "the result of the function: x = x + y")
    if method == "__call__":
        return trace.ufunc(ufunc, inputs, kwargs)
    if method == "reduce" and set(kwargs) <= {"axis", "dtype", "keepdims"} and is_traced(inputs[0]):
        return trace.reduce(ufunc, *inputs, **kwargs)
    if method == "accumulate" and set(kwargs) <= {"axis", "dtype"} and is_traced(inputs[0]):
        return trace.accumulate(ufunc, *inputs, **kwargs)
    if method == "outer" and not kwargs and all(np.ndim(x) for x in inputs):
        left, right = inputs
        return trace.ufunc(ufunc, (expand(left, np.ndim(right)), right))
    return trace.call(getattr(ufunc, method), inputs, kwargs, f"{ufunc.__name__}.{method}")


def is_default(key: str, value: Any) -> bool:
    return value is UNSET or (value is None and key in ("out", "dtype")) or (key == "where" and value is True) or (
        key == "out" and isinstance(value, tuple) and all(each is None for each in value))


def is_array(x: Any) -> bool:
    return isinstance(value_of(x), np.ndarray)


def expand(x: Any, count: int) -> Any:
    return x[(..., *[None] * count)]


# --- functions ---------------------------------------------------------------------------------------------

def numpy_function(trace: Trace, function: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = function.__name__
    kwargs = {key: value for key, value in kwargs.items() if value is not UNSET}
    if kwargs.get("out") is not None:
        raise trace.fail(f"np.{name} with out= writes into an array", f"the result of np.{name}")
    if function in STATIC:
        return function(*[value_of(x) for x in args], **{key: value_of(x) for key, x in kwargs.items()})
    if function in REFUSED:
        raise trace.fail(f"np.{name} cannot be traced: {REFUSED[function][0]}", REFUSED[function][1])
    if hasattr(function, "derivative"):
        made = function.plain(*args, **kwargs)  # type: ignore[attr-defined]
        made = Tracer(trace, made.value, made.window)
        return trace.link("ruled", made, args, rule=function.derivative, kwargs=kwargs)
    if function in HANDLERS:
        result = HANDLERS[function](trace, *args, **kwargs)
        if result is not NotImplemented:
            return result
    if function in MOVES and is_traced(args[0]) and not any(is_traced(x) for x in [*args[1:], *kwargs.values()]):
        return trace.gather(function, args[0], args[1:], kwargs)
    if function not in KNOWN and function.__module__ != "nnflat.random":
        raise trace.fail(f"{function.__module__}.{name} is not a function that nnflat knows",
                         "the same in NumPy's own functions")
    return trace.call(function, args, kwargs)


def as_method(name: str) -> Handler:
    def handler(trace: Trace, a: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_traced(a) or not hasattr(a.value, name):
            return NotImplemented
        return getattr(a, name)(*args, **kwargs)

    return handler


def where(trace: Trace, condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise trace.fail("np.where with one argument cannot be traced: its shape depends on values",
                         "np.where(condition, a, b)")
    operands = [x if is_traced(x) or type(x) in (int, float, complex) else np.asarray(x)
                for x in (condition, *branches)]
    value = np.where(*[value_of(x) for x in operands])
    if value.dtype.hasobject:
        return NotImplemented
    dtypes = [np.dtype(bool), value.dtype, value.dtype]
    windows = [trace.cast(trace.window(x, dtype), dtype) for x, dtype in zip(operands, dtypes, strict=True)]
    windows = [window if window.aligned else trace.copied(window, window.dtype) for window in windows]
    return trace.link("where", trace.record("where", "where", windows, value), operands)


def concatenate(trace: Trace, arrays: Any, axis: int | None = 0, **kwargs: Any) -> Any:
    if is_traced(arrays) or axis is None or kwargs:
        return NotImplemented
    arrays = [x if is_traced(x) else np.asarray(x) for x in arrays]
    value = np.concatenate([value_of(x) for x in arrays], axis)
    output = trace.output(value)
    start = 0
    for x in arrays:
        part = value[(*[slice(None)] * (axis % value.ndim), slice(start, start + x.shape[axis]))]
        start += x.shape[axis]
        trace.add("copy", "concatenate", [trace.window(x)], [part_of(output, part)])
    return trace.link("concatenate", output, arrays, axis=axis % value.ndim)


def part_of(output: Tracer, part: np.ndarray) -> Window:
    return output.window.over(part, output.value) if part.size else view_window(output.window.buffer, 0, part)


def stack(trace: Trace, arrays: Any, axis: int = 0, **kwargs: Any) -> Any:
    if is_traced(arrays) or kwargs:
        return NotImplemented
    arrays = [x if is_traced(x) else np.asarray(x) for x in arrays]
    value = np.stack([value_of(x) for x in arrays], axis)
    output = trace.output(value)
    for i, x in enumerate(arrays):
        part = np.moveaxis(value, axis, 0)[i, ...]
        trace.add("copy", "stack", [trace.window(x)], [part_of(output, part)])
    return trace.link("stack", output, arrays, axis=axis)


def joined(prepare: Handler, axis: Callable[[list[Any]], int]) -> Handler:
    def handler(trace: Trace, arrays: Any, **kwargs: Any) -> Any:
        if is_traced(arrays) or kwargs:
            return NotImplemented
        parts = [prepare(x if is_traced(x) else np.asarray(x)) for x in arrays]
        return np.concatenate(parts, axis(parts))

    return handler


def takes_rows(x: Any, index: Any) -> bool:
    """Whether `x[index]` copies pieces of memory: rows of an array, by an array of integers."""
    array, numbers = value_of(x), as_array(value_of(index)) if is_traced(index) else index
    if not isinstance(array, np.ndarray) or not isinstance(numbers, np.ndarray):
        return False
    if array.ndim == 0 or not array.dtype.isnative:
        return False
    return (array.shape[0] > 0 and numbers.size > 0 and numbers.dtype.kind in "iu" and numbers.dtype != np.uint64
            and numbers.flags.c_contiguous and numbers.flags.aligned and array[0, ...].flags.c_contiguous)


def take(trace: Trace, a: Any, indices: Any, axis: Any = None, **kwargs: Any) -> Any:
    """`np.take` of rows is `a[indices]`."""
    along_rows = axis == 0 or (axis is None and np.ndim(value_of(a)) == 1)
    if kwargs or not along_rows or not takes_rows(a, indices):
        return NotImplemented
    return trace.take(a, indices, np.take(value_of(a), value_of(indices), axis))


def copy(trace: Trace, a: Any, order: Any = "K", **kwargs: Any) -> Any:
    return a.copy(order) if is_traced(a) and is_array(a) else NotImplemented


def clip(trace: Trace, a: Any, low: Any = None, high: Any = None, *, min: Any = UNSET, max: Any = UNSET,
         **kwargs: Any) -> Any:
    low = low if min is UNSET else min
    high = high if max is UNSET else max
    if kwargs or kind_of(value_of(a)) == "number" or as_array(value_of(a)).dtype.kind not in "fc":
        return NotImplemented
    if low is None and high is None:
        return np.positive(a)
    if low is None:
        return ruled(trace, "clip above", np.minimum(a, high), (a, high))
    if high is None:
        return ruled(trace, "clip below", np.maximum(a, low), (a, low))
    return trace.ufunc(CLIP, (a, low, high))


def ruled(trace: Trace, rule: str, x: Any, operands: tuple[Any, ...]) -> Any:
    """Return x with another derivative rule than that of the ufunc that made it."""
    return trace.link("ufunc", Tracer(trace, x.value, x.window), operands, ufunc=rule) if is_traced(x) else x


def dot(function: Handler) -> Handler:
    """`dot` and `inner` of real vectors and matrices are matmul's loop; all else has bits of its own."""

    def handler(trace: Trace, a: Any, b: Any) -> Any:
        left, right = value_of(a), value_of(b)
        if not all(plain_matrix(x) for x in (left, right)) or left.dtype != right.dtype:
            return NotImplemented
        value = function(left, right)
        char = left.dtype.char
        operands = (a, b.T if function is np.inner and right.ndim == 2 else b)
        windows = [trace.window(x) for x in operands]
        made = trace.record("gufunc", function.__name__, windows, value, ufunc=np.matmul,
                            signature=f"{char}{char}->{char}")
        return trace.link("ufunc", made, operands, ufunc=np.matmul)

    return handler


def plain_matrix(x: Any) -> bool:
    """Whether BLAS takes x as it stands: else `dot` copies it, and `matmul` does not."""
    return (type(x) is np.ndarray and x.dtype.char in "fd" and x.dtype.isnative and x.flags.aligned
            and x.ndim in (1, 2) and all(stride > 0 for stride in x.strides) and x.size > 1
            and (x.ndim == 1 or x.itemsize in x.strides))


def outer(trace: Trace, a: Any, b: Any) -> Any:
    return np.multiply(np.ravel(a)[:, None], np.ravel(b)[None, :])


def mask_of(m: Any, k: int) -> np.ndarray:
    tri: Any = np.tri
    return tri(*m.shape[-2:], k=k, dtype=bool)


def tril(trace: Trace, m: Any, k: int = 0) -> Any:
    return np.where(mask_of(m, k), m, np.zeros(1, m.dtype))


def triu(trace: Trace, m: Any, k: int = 0) -> Any:
    return np.where(mask_of(m, k - 1), np.zeros(1, m.dtype), m)


def norm(trace: Trace, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The two-norm of all elements is the square root of a dot product."""
    if ord is not None or axis is not None or keepdims or as_array(value_of(x)).dtype.kind != "f" or not is_array(x):
        return NotImplemented
    flat = x.ravel(order="K")
    square = flat.dot(flat)
    return ruled(trace, "root", np.sqrt(square), (square,))


def like(function: Handler) -> Handler:
    """`zeros_like` and kin depend on shape and dtype only: they give plain arrays."""

    def handler(trace: Trace, a: Any, *args: Any, **kwargs: Any) -> Any:
        if any(is_traced(x) for x in args):
            raise trace.fail("np.full_like with a traced value", "np.where(True, value, np.zeros_like(a))")
        return function(value_of(a), *args, **kwargs)

    return handler


# --- tables ------------------------------------------------------------------------------------------------

HANDLERS: dict[Handler, Handler] = {
    np.where: where, np.concatenate: concatenate, np.stack: stack, np.clip: clip,
    np.dot: dot(np.dot), np.inner: dot(np.inner), np.outer: outer, np.tril: tril, np.triu: triu,
    np.linalg.norm: norm, np.take: take,
    np.vstack: joined(np.atleast_2d, lambda parts: 0),
    np.hstack: joined(np.atleast_1d, lambda parts: 0 if parts and parts[0].ndim == 1 else 1),
    np.dstack: joined(np.atleast_3d, lambda parts: 2),
    **{function: like(function) for function in (np.zeros_like, np.ones_like, np.empty_like, np.full_like)},
    **{getattr(np, name): as_method(name) for name in (
        "sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "cumsum", "cumprod", "argmax", "argmin",
        "reshape", "ravel", "astype")},
    **DRAWS,
    np.copy: copy,
    np.amax: as_method("max"), np.amin: as_method("min"),
}
for _property in ("real", "imag"):
    HANDLERS[getattr(np, _property)] = lambda trace, x, name=_property: getattr(x, name)

MOVES = {np.roll, np.repeat, np.tile, np.take, np.rot90, np.flip, np.fliplr, np.flipud, np.broadcast_to, np.delete,
         np.resize, np.trim_zeros} - {np.trim_zeros}

STATIC = {np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj, np.common_type,
          np.min_scalar_type}

KNOWN = {function for module in (np, np.linalg, np.fft) for function in vars(module).values()
         if hasattr(function, "_implementation")} - set(REFUSED)
KNOWN.add(np.lib.stride_tricks.sliding_window_view)
