"""What a traced value does in NumPy's functions and methods.

Four routes: a composition of loops (`mean` is a sum and a division), a move of elements (`roll`), a call of NumPy on
the real arrays (`sort`; views are recognised there too), or a refusal that says what to write instead. A function
that is none of NumPy's own is refused: an unknown implementation may swallow the error of a traced value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._core import umath

from nnflat.tape import Window, view_window
from nnflat.trace import Trace, Tracer, as_array, is_traced, value_of

Handler = Callable[..., Any]
UNSET = np._NoValue


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
    if function in HANDLERS:
        result = HANDLERS[function](trace, *args, **kwargs)
        if result is not NotImplemented:
            return result
    if function in MOVES and is_traced(args[0]) and not any(is_traced(x) for x in [*args[1:], *kwargs.values()]):
        return trace.gather(function, args[0], args[1:], kwargs)
    if function not in KNOWN:
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
    return trace.record("where", "where", windows, value)


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
    return output


def part_of(output: Tracer, part: np.ndarray) -> Window:
    return output.window.over(part, output.value) if part.size else view_window(output.window.buffer, 0, part)


def stack(trace: Trace, arrays: Any, axis: int = 0, **kwargs: Any) -> Any:
    if is_traced(arrays) or kwargs:
        return NotImplemented
    arrays = [x if is_traced(x) else np.asarray(x) for x in arrays]
    if len({x.shape for x in arrays}) != 1:
        return NotImplemented
    ndim = arrays[0].ndim + 1
    if not -ndim <= axis < ndim:
        return NotImplemented
    at = (*[slice(None)] * (axis % ndim), None)
    return np.concatenate([x[at] if x.ndim else np.reshape(x, (1,)) for x in arrays], axis)


def joined(prepare: Handler, axis: Callable[[list[Any]], int]) -> Handler:
    def handler(trace: Trace, arrays: Any, **kwargs: Any) -> Any:
        if is_traced(arrays) or kwargs:
            return NotImplemented
        parts = [prepare(x if is_traced(x) else np.asarray(x)) for x in arrays]
        return np.concatenate(parts, axis(parts))

    return handler


def clip(trace: Trace, a: Any, low: Any = None, high: Any = None, *, min: Any = UNSET, max: Any = UNSET,
         **kwargs: Any) -> Any:
    low = low if min is UNSET else min
    high = high if max is UNSET else max
    if kwargs or type(value_of(a)) is float or as_array(value_of(a)).dtype.kind not in "fc":
        return NotImplemented
    if low is None and high is None:
        return np.positive(a)
    if low is None:
        return np.minimum(a, high)
    if high is None:
        return np.maximum(a, low)
    return trace.ufunc(umath.clip, (a, low, high))


def dot(function: Handler) -> Handler:
    """`dot` and `inner` of real vectors and matrices are matmul's loop; all else has bits of its own."""

    def handler(trace: Trace, a: Any, b: Any) -> Any:
        left, right = value_of(a), value_of(b)
        if not all(plain_matrix(x) for x in (left, right)) or left.dtype != right.dtype:
            return NotImplemented
        value = function(left, right)
        char = left.dtype.char
        windows = [trace.window(a), trace.window(b)]
        if function is np.inner and right.ndim == 2:
            windows[1] = trace.window(b.T)
        return trace.record("gufunc", function.__name__, windows, value, ufunc=np.matmul,
                            signature=f"{char}{char}->{char}")

    return handler


def plain_matrix(x: Any) -> bool:
    return (type(x) is np.ndarray and x.dtype.char in "fd" and x.dtype.isnative and x.flags.aligned
            and x.ndim in (1, 2) and all(stride > 0 for stride in x.strides) and x.size > 1)


def outer(trace: Trace, a: Any, b: Any) -> Any:
    return np.multiply(np.ravel(a)[:, None], np.ravel(b)[None, :])


def tril(trace: Trace, m: Any, k: int = 0) -> Any:
    return np.where(np.tri(*m.shape[-2:], k=k, dtype=bool), m, np.zeros(1, m.dtype))


def triu(trace: Trace, m: Any, k: int = 0) -> Any:
    return np.where(np.tri(*m.shape[-2:], k=k - 1, dtype=bool), np.zeros(1, m.dtype), m)


def norm(trace: Trace, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The two-norm of all elements is the square root of a dot product."""
    if ord is not None or axis is not None or keepdims or as_array(value_of(x)).dtype.kind != "f" or not is_array(x):
        return NotImplemented
    flat = x.ravel(order="K")
    return np.sqrt(flat.dot(flat))


def like(function: Handler) -> Handler:
    """`zeros_like` and kin depend on shape and dtype only: they give plain arrays."""

    def handler(trace: Trace, a: Any, *args: Any, **kwargs: Any) -> Any:
        if any(is_traced(x) for x in args):
            raise trace.fail("np.full_like with a traced value", "np.where(True, value, np.zeros_like(a))")
        return function(value_of(a), *args, **kwargs)

    return handler


# --- methods -----------------------------------------------------------------------------------------------

def getitem(trace: Trace, x: Tracer, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    if any(is_traced(part) and part.dtype == bool or part is True or part is False for part in parts):
        raise trace.fail("a mask as an index: the shape of the result depends on values", "np.where(mask, x, 0)")
    if len(parts) == 1 and takes_rows(x, parts[0]):
        return trace.take(x, parts[0], x.value[value_of(parts[0])])
    if any(is_traced(part) or isinstance(part, np.ndarray) for part in parts):
        return trace.call(operator.getitem, (x, index), {}, "take")
    value = x.value[index]
    if any(isinstance(part, list) for part in parts):
        return trace.gather(operator.getitem, x, (index,), {})
    if not isinstance(x.value, np.ndarray):
        array = as_array(x.value)
        return Tracer(trace, value, trace.own(x).over(array[index], array))
    if isinstance(value, np.ndarray):
        return trace.view(x, value)
    at = trace.view(x, x.value[(*parts, Ellipsis)])
    return Tracer(trace, value, at.window) if at.window.dtype.isnative else trace.copy(at, value)


def takes_rows(x: Any, index: Any) -> bool:
    """Whether `x[index]` copies pieces of memory: rows of an array, by an array of integers."""
    array, numbers = value_of(x), as_array(value_of(index)) if is_traced(index) else index
    if not isinstance(array, np.ndarray) or not isinstance(numbers, np.ndarray) or array.ndim == 0:
        return False
    return (array.shape[0] > 0 and numbers.size > 0 and numbers.dtype.kind in "iu" and numbers.dtype != np.uint64
            and numbers.flags.c_contiguous and numbers.flags.aligned and array[0, ...].flags.c_contiguous)


def take(trace: Trace, a: Any, indices: Any, axis: Any = None, **kwargs: Any) -> Any:
    """`np.take` of rows is `a[indices]`."""
    along_rows = axis == 0 or (axis is None and np.ndim(value_of(a)) == 1)
    if kwargs or not along_rows or not takes_rows(a, indices):
        return NotImplemented
    return trace.take(a, indices, np.take(value_of(a), value_of(indices), axis))


def reduction(ufunc: np.ufunc, default: Any = None) -> Handler:
    def method(x: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        kwargs = {key: value for key, value in kwargs.items() if not is_default(key, value)}
        keepdims = False if keepdims is UNSET else keepdims
        options = {"axis": axis, "dtype": default if dtype is None else dtype, "keepdims": keepdims}
        return ufunc_method(x.trace_now, ufunc, "reduce", (x,), {**options, **kwargs, "out": out})

    return method


def extremum(ufunc: np.ufunc) -> Handler:
    def method(x: Tracer, axis: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
        return reduction(ufunc)(x, axis, None, out, keepdims, **kwargs)

    return method


def mean(x: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
         where: Any = True) -> Any:
    keepdims = False if keepdims is UNSET else keepdims
    array = as_array(x.value)
    if out is not None or where is not True or array.size == 0 or dtype is not None:
        return x.trace_now.call(np.mean, (x,), {"axis": axis, "dtype": dtype, "keepdims": keepdims, "where": where})
    value = np.mean(x.value, axis=axis, keepdims=keepdims)
    wide = np.dtype("f8") if array.dtype.kind in "iub" else np.dtype("f4") if array.dtype.char == "e" else None
    total = reduction(np.add)(x, axis, wide, None, keepdims)
    return with_value(divide_by_count(total, array.size // max(as_array(value).size, 1), as_array(value).dtype), value)


def divide_by_count(total: Tracer, count: int, dtype: np.dtype) -> Tracer:
    """Divide as `np.mean` does: by an intp, so in double precision, then rounded."""
    if total.dtype == "f8" or (total.dtype == "f4" and count <= 2**24):
        quotient = np.true_divide(total, total.dtype.type(count))
    else:
        wide = np.result_type(total.dtype, np.intp)
        quotient = astype(np.true_divide(astype(total, wide), wide.type(count)), total.dtype)
    return astype(quotient, dtype)


def var(x: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False,
        **kwargs: Any) -> Any:
    kwargs = {key: value for key, value in kwargs.items() if not is_default(key, value)}
    keepdims = False if keepdims is UNSET else keepdims
    array = as_array(x.value)
    count = array.size // max(as_array(np.sum(x.value, axis=axis)).size, 1)
    options = {"axis": axis, "dtype": dtype, "ddof": ddof, "keepdims": keepdims, **kwargs}
    if kwargs or dtype is not None or array.size == 0 or array.dtype.kind not in "fiu" or count <= ddof:
        return x.trace_now.call(np.var, (x,), options)
    value = np.var(x.value, axis=axis, ddof=ddof, keepdims=keepdims)
    wide = np.dtype("f8") if array.dtype.kind in "iu" else None
    centre = reduction(np.add)(x, axis, wide, None, True)
    centre = divide_by_count(centre, count, centre.dtype)
    total = reduction(np.add)(np.square(np.subtract(x, centre)), axis, wide, None, keepdims)
    return with_value(divide_by_count(total, count - ddof, total.dtype), value)


def std(x: Tracer, *args: Any, **kwargs: Any) -> Any:
    return np.sqrt(var(x, *args, **kwargs))


def with_value(x: Tracer, value: Any) -> Tracer:
    """Return x as what the NumPy function gave: the kind of a composition may differ."""
    return Tracer(x.trace_now, value, x.window)


def cumulative(name: str, ufunc: np.ufunc) -> Handler:
    def method(x: Tracer, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if not isinstance(x.value, np.ndarray) or x.ndim == 0:
            return called(name)(x, axis, dtype)
        if axis is None:
            x, axis = x.ravel(), 0
        return ufunc_method(x.trace_now, ufunc, "accumulate", (x,), {"axis": axis, "dtype": dtype, "out": out})

    return method


def astype(x: Tracer, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
           copy: bool = True) -> Tracer:
    trace = x.trace_now
    value = x.value.astype(dtype, order, casting, subok, copy)
    if isinstance(x.value, np.ndarray) and value is x.value:
        return x
    if as_array(value).dtype.hasobject or as_array(value).dtype.kind not in "biufc":
        raise trace.fail(f"astype({np.dtype(dtype)})", "a dtype of numbers")
    if x.dtype.kind == "c" != as_array(value).dtype.kind:       # NumPy warns of the part that is lost
        return trace.call(operator.methodcaller("astype", dtype, order, casting, subok, copy), (x,), {}, "astype")
    return trace.copy(x, value, "cast")


def copy(x: Tracer, order: str = "C") -> Tracer:
    return x.trace_now.copy(x, x.value.copy(order) if isinstance(x.value, np.ndarray) else x.value)


def reshaped(name: str) -> Handler:
    """`reshape` and `ravel`: a view where NumPy gives one, else a copy in C order and a view of that."""

    def method(x: Tracer, *args: Any, **kwargs: Any) -> Any:
        trace = x.trace_now
        value = getattr(x.value, name)(*args, **kwargs)
        array = as_array(x.value)
        if np.may_share_memory(value, array) or array.size == 0 or value.flags.f_contiguous and not value.flags.c_contiguous:
            return trace.call(operator.methodcaller(name, *args, **kwargs), (x,), {}, name)
        if kwargs.get("order", "C") != "C" or (name == "ravel" and args and args[0] != "C"):
            return trace.gather(lambda a: getattr(a, name)(*args, **kwargs), x, (), {})
        straight = trace.copy(x, np.ascontiguousarray(array).reshape(array.shape), "reshape")
        return Tracer(trace, value, straight.window.over(value, value))

    return method


def dot_method(x: Tracer, other: Any, out: Any = None) -> Any:
    return np.dot(x, other)


def clip_method(x: Tracer, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    return np.clip(x, min, max, **kwargs)


def round_method(x: Tracer, decimals: int = 0, out: Any = None) -> Any:
    return np.round(x, decimals)


def real(x: Tracer) -> Any:
    return part(x, "real")


def imag(x: Tracer) -> Any:
    return part(x, "imag")


def part(x: Tracer, name: str) -> Any:
    if isinstance(x.value, np.ndarray) or x.dtype.kind != "c":
        return x.trace_now.call(operator.attrgetter(name), (x,), {}, name)
    value = getattr(x.value, name)
    array = as_array(x.value)
    return Tracer(x.trace_now, value, x.trace_now.own(x).over(getattr(array, name), array))


def transpose(x: Tracer, *axes: Any) -> Any:
    return x.trace_now.call(operator.methodcaller("transpose", *axes), (x,), {}, "transpose")


def moved(name: str) -> Handler:
    def method(x: Tracer, *args: Any, **kwargs: Any) -> Any:
        def function(a: Any) -> Any:
            return getattr(a, name)(*args, **kwargs)

        if any(is_traced(a) or isinstance(a, np.ndarray) for a in [*args, *kwargs.values()]):
            return x.trace_now.call(lambda a, *b, **c: getattr(a, name)(*b, **c), (x, *args), kwargs, name)
        function.__name__ = name
        return x.trace_now.gather(function, x, (), {})

    return method


def called(name: str) -> Handler:
    def method(x: Tracer, *args: Any, **kwargs: Any) -> Any:
        return x.trace_now.call(lambda a, *b, **c: getattr(a, name)(*b, **c), (x, *args), kwargs, name)

    return method


METHODS: dict[str, Handler] = {
    "sum": reduction(np.add), "prod": reduction(np.multiply), "max": extremum(np.maximum),
    "min": extremum(np.minimum), "any": reduction(np.logical_or, bool), "all": reduction(np.logical_and, bool),
    "mean": mean, "var": var, "std": std, "cumsum": cumulative("cumsum", np.add), "cumprod": cumulative("cumprod", np.multiply),
    "astype": astype, "copy": copy, "reshape": reshaped("reshape"), "ravel": reshaped("ravel"),
    "dot": dot_method, "clip": clip_method, "round": round_method, "transpose": transpose,
    "conj": lambda x: np.conjugate(x), "conjugate": lambda x: np.conjugate(x),
    **{name: called(name) for name in ("swapaxes", "squeeze", "diagonal", "argmin", "argmax", "argsort", "ptp",
                                       "trace", "take", "searchsorted", "choose")},
    **{name: moved(name) for name in ("repeat", "flatten")},
}
PROPERTIES: dict[str, Handler] = {
    "T": lambda x: transpose(x) if isinstance(x.value, np.ndarray) else x,
    "mT": lambda x: x.trace_now.call(operator.attrgetter("mT"), (x,), {}, "mT"),
    "real": real, "imag": imag, "trace_now": lambda x: x.trace,
}
REFUSED_METHODS = {
    "item": ("item() of a traced value", "the array itself; results of the function may be scalars"),
    "tolist": ("tolist() of a traced value", "the array itself"),
    "fill": ("fill() writes in place", "np.full_like"),
    "sort": ("x.sort() writes in place", "np.sort(x)"),
    "put": ("put() writes in place", "np.where"),
    "resize": ("resize() writes in place", "np.reshape"),
    "nonzero": ("nonzero() cannot be traced: its shape depends on values", "np.where(condition, a, b)"),
    "view": ("view() with another dtype", "x.astype(dtype), or x.real and x.imag"),
    "flat": ("x.flat", "x.ravel()"),
}


def method_of(x: Tracer, name: str) -> Any:
    from nnflat.trace import current

    if name == "trace_now":
        return current(x)
    if name in METHODS and hasattr(x.value, name):
        return lambda *args, **kwargs: METHODS[name](x, *args, **kwargs)
    if name in PROPERTIES:
        return PROPERTIES[name](x)
    if name in REFUSED_METHODS:
        raise current(x).fail(*REFUSED_METHODS[name])
    raise AttributeError(f"a traced {type(x.value).__name__} has no attribute {name!r}")


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
        "sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "cumsum", "cumprod", "reshape", "ravel",
        "astype")},
    np.copy: lambda trace, a, order="K", **kwargs: copy(a, order) if isinstance(a.value, np.ndarray) else NotImplemented,
    np.amax: as_method("max"), np.amin: as_method("min"),
}
for _property in ("real", "imag"):
    HANDLERS[getattr(np, _property)] = lambda trace, x, name=_property: getattr(x, name)

MOVES = {np.roll, np.repeat, np.tile, np.take, np.rot90, np.flip, np.fliplr, np.flipud, np.broadcast_to, np.delete,
         np.resize, np.trim_zeros} - {np.trim_zeros}

STATIC = {np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj, np.common_type,
          np.min_scalar_type}

VALUES = "its shape depends on values"
ANSWER = "its answer is a Python bool"
REFUSED: dict[Handler, tuple[str, str]] = {
    **{function: (ANSWER, "np.all(a == b), in np.where") for function in (np.array_equal, np.array_equiv)},
    np.allclose: (ANSWER, "np.all(np.isclose(a, b)), in np.where"),
    **{function: (VALUES, "np.where(condition, a, b)") for function in (
        np.nonzero, np.flatnonzero, np.argwhere, np.extract, np.compress, np.unique, np.unique_values,
        np.unique_counts, np.unique_inverse, np.unique_all, np.trim_zeros, np.union1d, np.intersect1d,
        np.setdiff1d, np.setxor1d, np.bincount, np.count_nonzero, np.histogram, np.iscomplex, np.isreal)},
    **{function: ("it writes in place", "np.where") for function in (
        np.copyto, np.put, np.putmask, np.place, np.put_along_axis, np.fill_diagonal)},
    **{function: ("it makes text or files", "the array itself") for function in (
        np.array2string, np.array_repr, np.array_str, np.save, np.savez, np.savetxt, np.savez_compressed)},
    np.isfortran: (ANSWER, "nothing: the order of a traced value is in x.flags"),
}
for _function in (np.count_nonzero, np.iscomplex, np.isreal):
    del REFUSED[_function]

KNOWN = {function for module in (np, np.linalg, np.fft) for function in vars(module).values()
         if hasattr(function, "_implementation")} - set(REFUSED)
KNOWN.add(np.lib.stride_tricks.sliding_window_view)
