"""What a traced value does as an ndarray: indexing, methods, attributes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nnflat.context import current
from nnflat.handlers import UNSET, is_default, ruled, takes_rows, ufunc_method
from nnflat.refusals import REFUSED_METHODS
from nnflat.trace import Trace
from nnflat.tracer import Tracer, as_array, is_traced, value_of

Handler = Callable[..., Any]


def getitem(trace: Trace, x: Tracer, index: Any) -> Any:
    parts = index if isinstance(index, tuple) else (index,)
    if any((is_traced(part) and part.dtype == bool) or part is True or part is False for part in parts):
        raise trace.fail("a mask as an index: the shape of the result depends on values",
                         "np.where(mask, x, 0); or, where a captured mask never changes, make it read-only "
                         "(flags.writeable = False)")
    if len(parts) == 1 and takes_rows(x, parts[0]):
        return trace.take(x, parts[0], x.value[value_of(parts[0])])
    if any(is_traced(part) or isinstance(part, np.ndarray) for part in parts):
        return trace.call(operator.getitem, (x, index), {}, "getitem")
    value = x.value[index]
    if any(isinstance(part, list) for part in parts):
        return trace.gather(operator.getitem, x, (index,), {})
    if not isinstance(x.value, np.ndarray):
        array = as_array(x.value)
        at = array[index] if isinstance(array[index], np.ndarray) else array[(*parts, Ellipsis)]
        return trace.same(x, value, trace.own(x).over(at, array))
    if isinstance(value, np.ndarray):
        return trace.view(x, value)
    at = trace.view(x, x.value[(*parts, Ellipsis)])
    return trace.same(at, value) if at.window.dtype.isnative else trace.copy(at, value)


def reduction(ufunc: np.ufunc, default: Any = None) -> Handler:
    def method(x: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False,
               **kwargs: Any) -> Any:
        kwargs = {key: value for key, value in kwargs.items() if not is_default(key, value)}
        keepdims = False if keepdims is UNSET else keepdims
        options = {"axis": axis, "dtype": default if dtype is None else dtype, "keepdims": keepdims}
        return ufunc_method(current(), ufunc, "reduce", (x,), {**options, **kwargs, "out": out})

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
        return current().call(np.mean, (x,), {"axis": axis, "dtype": dtype, "keepdims": keepdims, "where": where})
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
        return current().call(np.var, (x,), options)
    value = np.var(x.value, axis=axis, ddof=ddof, keepdims=keepdims)
    wide = np.dtype("f8") if array.dtype.kind in "iu" else None
    centre = reduction(np.add)(x, axis, wide, None, True)
    centre = divide_by_count(centre, count, centre.dtype)
    total = reduction(np.add)(np.square(np.subtract(x, centre)), axis, wide, None, keepdims)
    return with_value(divide_by_count(total, count - ddof, total.dtype), value)


def std(x: Tracer, *args: Any, **kwargs: Any) -> Any:
    variance = var(x, *args, **kwargs)
    return ruled(current(), "root", np.sqrt(variance), (variance,))


def with_value(x: Tracer, value: Any) -> Tracer:
    """Return x as what the NumPy function gave: the kind of a composition may differ."""
    return current().same(x, value)


def arg_reduction(name: str) -> Handler:
    """`argmax` and `argmin` look along rows of memory: NumPy, too, moves the axis to the end and copies."""

    def method(x: Tracer, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        if out is not None or keepdims not in (False, UNSET) or not isinstance(x.value, np.ndarray) or x.ndim == 0:
            return called(name)(x, axis, out, keepdims=keepdims)
        value = getattr(x.value, name)(axis)
        rows: Any = x.ravel() if axis is None else np.moveaxis(x, axis, -1)       # type: ignore[type-var]
        like = np.empty(rows.shape, x.dtype.newbyteorder("="))
        return current().record("extremum", name, [current().copy_dense(rows, like)], value)

    return method


def cumulative(name: str, ufunc: np.ufunc) -> Handler:
    def method(x: Tracer, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if not isinstance(x.value, np.ndarray) or x.ndim == 0:
            return called(name)(x, axis, dtype)
        if axis is None:
            x, axis = x.ravel(), 0
        return ufunc_method(current(), ufunc, "accumulate", (x,), {"axis": axis, "dtype": dtype, "out": out})

    return method


def astype(x: Tracer, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
           copy: bool = True) -> Tracer:
    trace = current()
    value = x.value.astype(dtype, order, casting, subok, copy)
    if isinstance(x.value, np.ndarray) and value is x.value:
        return x
    if as_array(value).dtype.hasobject or as_array(value).dtype.kind not in "biufc":
        raise trace.fail(f"astype({np.dtype(dtype)})", "a dtype of numbers")
    if x.dtype.kind == "c" != as_array(value).dtype.kind:       # NumPy warns of the part that is lost
        return trace.call(operator.methodcaller("astype", dtype, order, casting, subok, copy), (x,), {}, "astype")
    return trace.copy(x, value, "cast")


def copy(x: Tracer, order: Any = "C") -> Tracer:
    return current().copy(x, x.value.copy(order) if isinstance(x.value, np.ndarray) else x.value)


def reshaped(name: str) -> Handler:
    """`reshape` and `ravel`: a view where NumPy gives one, else a copy in C order and a view of that."""

    def method(x: Tracer, *args: Any, **kwargs: Any) -> Any:
        trace = current()
        value = getattr(x.value, name)(*args, **kwargs)
        array = as_array(x.value)
        in_fortran_order = value.flags.f_contiguous and not value.flags.c_contiguous
        if np.may_share_memory(value, array) or array.size == 0 or in_fortran_order:
            return trace.call(operator.methodcaller(name, *args, **kwargs), (x,), {}, name)
        if kwargs.get("order", "C") != "C" or (name == "ravel" and args and args[0] != "C"):
            return trace.gather(lambda a: getattr(a, name)(*args, **kwargs), x, (), {})
        straight = trace.copy(x, np.ascontiguousarray(array).reshape(array.shape), "reshape")
        return trace.same(straight, value, straight.window.over(value, value))

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
        return current().call(operator.attrgetter(name), (x,), {}, name)
    trace, value, array = current(), getattr(x.value, name), as_array(x.value)
    return trace.link(name, Tracer(trace, value, trace.own(x).over(getattr(array, name), array)), (x,))


def transpose(x: Tracer, *axes: Any) -> Any:
    return current().call(operator.methodcaller("transpose", *axes), (x,), {}, "transpose")


def moved(name: str) -> Handler:
    def method(x: Tracer, *args: Any, **kwargs: Any) -> Any:
        def function(a: Any) -> Any:
            return getattr(a, name)(*args, **kwargs)

        if any(is_traced(a) or isinstance(a, np.ndarray) for a in [*args, *kwargs.values()]):
            return current().call(lambda a, *b, **c: getattr(a, name)(*b, **c), (x, *args), kwargs, name)
        function.__name__ = name
        return current().gather(function, x, (), {})

    return method


def called(name: str) -> Handler:
    def method(x: Tracer, *args: Any, **kwargs: Any) -> Any:
        return current().call(lambda a, *b, **c: getattr(a, name)(*b, **c), (x, *args), kwargs, name)

    return method


METHODS: dict[str, Handler] = {
    "sum": reduction(np.add), "prod": reduction(np.multiply), "max": extremum(np.maximum),
    "min": extremum(np.minimum), "any": reduction(np.logical_or, bool), "all": reduction(np.logical_and, bool),
    "mean": mean, "var": var, "std": std,
    "argmax": arg_reduction("argmax"), "argmin": arg_reduction("argmin"),
    "cumsum": cumulative("cumsum", np.add), "cumprod": cumulative("cumprod", np.multiply),
    "astype": astype, "copy": copy, "reshape": reshaped("reshape"), "ravel": reshaped("ravel"),
    "dot": dot_method, "clip": clip_method, "round": round_method, "transpose": transpose,
    "conj": lambda x: np.conjugate(x), "conjugate": lambda x: np.conjugate(x),
    **{name: called(name) for name in ("swapaxes", "squeeze", "diagonal", "argsort", "take", "searchsorted", "choose",
                                       "trace")},
    **{name: moved(name) for name in ("repeat", "flatten")},
}
PROPERTIES: dict[str, Handler] = {
    "T": lambda x: transpose(x) if isinstance(x.value, np.ndarray) else x,
    "mT": lambda x: current().call(operator.attrgetter("mT"), (x,), {}, "mT"),
    "real": real, "imag": imag,
}
def method_of(x: Tracer, name: str) -> Any:
    if name in METHODS and hasattr(x.value, name):
        return lambda *args, **kwargs: METHODS[name](x, *args, **kwargs)
    if name in PROPERTIES:
        return PROPERTIES[name](x)
    if name in REFUSED_METHODS:
        raise current().fail(*REFUSED_METHODS[name])
    raise AttributeError(f"a traced {type(x.value).__name__} has no attribute {name!r}")
