"""Trace by example: a Tracer carries the array that eager NumPy gave, and where it stands on the tape.

Dtype, memory order, shape and kind of every result come from NumPy itself, which has just computed it; what is
recorded is which loop did it, over which windows. A view is recognised by its memory, not by the function that made
it. What has no loop of its own is recorded as a call of NumPy.
"""

from __future__ import annotations

import operator
import os
import sys
import sysconfig
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nnflat.lower import STRIDE_BITS, find_loop
from nnflat.tape import Tape, Window, view_window
from nnflat._loops import cast_loop

STACK = threading.local()
WEAK = (int, float, complex)
PACKAGE = str(Path(__file__).parent)
NUMPY = str(Path(np.__file__).parent)


class TraceError(TypeError):
    """A function cannot be traced: the message names what it did, on which line, and what to write instead."""


# --- the trace ---------------------------------------------------------------------------------------------

class Trace:
    """One run of a function on tracers. `plain` has each untraced operand, in the order of use."""

    def __init__(self, parent: Trace | None = None) -> None:
        self.tape = Tape(parent.tape if parent else None)
        self.parent = parent
        self.error: TraceError | None = None
        self.plain: list[tuple[Any, Window]] = []
        self.entered: dict[Window, np.ndarray] = {}

    # operands

    def argument(self, value: Any) -> Tracer:
        return Tracer(self, value, self.tape.argument(as_array(value)))

    def live(self, array: np.ndarray) -> Tracer:
        """Return a traced value for an array that the function closes over."""
        return Tracer(self, array, self.tape.capture(array))

    def window(self, x: Any, dtype: np.dtype | None = None) -> Window:
        """Return the window of an operand; a Python number becomes a constant of `dtype`, as in NumPy."""
        if isinstance(x, Tracer):
            return self.own(x) if type(x.value) not in WEAK or dtype is None else self.weak(x, dtype)
        if self.parent is not None:
            return self.enter(self.parent.window(x, dtype), as_array(x))
        if type(x) is np.ndarray:
            window = self.tape.capture(x)
        else:
            window = self.tape.constant(np.array(x, dtype if type(x) in WEAK else None))
        self.plain.append((x, window))
        return window

    def own(self, tracer: Tracer) -> Window:
        if tracer.trace is self:
            return tracer.window
        if self.parent is None:
            raise self.fail("a traced value outlived the call that made it",
                            "return it from the function instead of keeping it")
        return self.enter(self.parent.own(tracer), as_array(tracer.value))

    def enter(self, window: Window, array: np.ndarray) -> Window:
        """Return the window in here of a value of the trace around; `array` is its eager value."""
        self.entered[window] = np.array(array, window.dtype) if array.dtype != window.dtype else array
        return self.tape.enter(window)

    def weak(self, tracer: Tracer, dtype: np.dtype) -> Window:
        """Return a Python number in the dtype of the loop; integers go through float64, as NumPy's setitem does."""
        window = self.own(tracer)
        if type(tracer.value) is int and dtype.kind in "fc":
            window = self.cast(window, np.dtype(float))
        return self.cast(window, dtype)

    def cast(self, window: Window, dtype: np.dtype) -> Window:
        return window if window.dtype == dtype else self.copied(window, dtype)

    # recording

    def add(self, kind: str, name: str, inputs: Sequence[Window], outputs: Sequence[Window], **settings: Any) -> None:
        self.tape.add(kind, name, tuple(inputs), tuple(outputs), errstate=entered_errstate(), where=user_line(),
                      **settings)

    def output(self, value: Any) -> Tracer:
        """Return a tracer of a new value, in a buffer of its own."""
        return Tracer(self, value, self.tape.temporary(as_array(value)))

    def record(self, kind: str, name: str, inputs: Sequence[Window], value: Any, **settings: Any) -> Any:
        """Record an operation that gave `value` (a tuple: several outputs)."""
        outputs = [self.output(each) for each in value] if type(value) is tuple else [self.output(value)]
        self.add(kind, name, inputs, [each.window for each in outputs], **settings)
        return tuple(outputs) if type(value) is tuple else outputs[0]

    def view(self, base: Tracer, value: np.ndarray) -> Tracer:
        return Tracer(self, value, self.own(base).over(value, base.value))

    def fail(self, what: str, instead: str) -> TraceError:
        """Make the error for what cannot be traced, and poison the trace: NumPy swallows some exceptions."""
        error = TraceError(f"{what} ({user_line()}). Write instead: {instead}.")
        self.error = self.error or error
        return error

    # routes

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
             name: str | None = None) -> Any:
        """Let NumPy do it: views are recognised, everything else is recorded as a call."""
        leaves, rebuild = split((args, kwargs))
        eager_args, eager_kwargs = rebuild([value_of(leaf) for leaf in leaves])
        result = function(*eager_args, **eager_kwargs)
        flat, join = split_results(result)
        bases = [None if places_depend_on_values(leaves) else base_of(each, leaves) for each in flat]
        fresh = [i for i, base in enumerate(bases) if base is None]
        for i in fresh:
            self.check_result(function, flat[i])
        outputs = [self.view(base, each) if base is not None else self.output(each)
                   for base, each in zip(bases, flat, strict=True)]
        if fresh:
            self.add("call", name or function_name(function), [self.window(leaf) for leaf in leaves],
                     [outputs[i].window for i in fresh],
                     function=caller(function, rebuild, fresh, entered_errstate()),
                     kinds=tuple(kind_of(value_of(leaf)) for leaf in leaves)
                     + tuple(kind_of(flat[i]) for i in fresh))
        return join(outputs)

    def check_result(self, function: Callable[..., Any], value: Any) -> None:
        if not isinstance(value, np.ndarray | np.generic | int | float | complex) or as_array(value).dtype.hasobject:
            raise self.fail(f"{function_name(function)} gives {type(value).__name__}, which is no array of numbers",
                            "a function of arrays to arrays")

    def ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Record a call of a ufunc as its loop; as a call of NumPy where it has none that fits."""
        if kwargs or any(isinstance(x, list | tuple) for x in inputs):
            return self.call(ufunc, tuple(inputs), kwargs or {})
        value = ufunc(*[value_of(x) for x in inputs])
        signature = loop_signature(ufunc, inputs, value)
        if signature is None:
            return self.call(ufunc, tuple(inputs), {})
        dtypes = [np.dtype(char) for char in signature.split("->")[0]]
        windows = [self.loop_operand(ufunc, x, dtype) for x, dtype in zip(inputs, dtypes, strict=True)]
        kind = "ufunc" if ufunc.signature is None else "gufunc"
        return self.record(kind, ufunc.__name__, windows, value, ufunc=ufunc, signature=signature)

    def loop_operand(self, ufunc: np.ufunc, x: Any, dtype: np.dtype) -> Window:
        """Return the window of an operand, cast beforehand where NumPy does that, or where it is quicker.

        NumPy casts a 0-d or short 1-d operand to keep the chance of a single loop, and buffers any other.
        """
        window = self.window(x, dtype)
        if window.dtype == dtype and window.aligned:
            return window
        short = len(window.shape) < 2 and window.size <= np.getbufsize() and ufunc.nargs <= 3
        quick = window.aligned and cast_loop(window.dtype.str[1:], dtype.str[1:]) is not None
        if short or ufunc.signature is not None or (quick and ufunc.__name__ not in STRIDE_BITS):
            return self.copied(window, dtype)
        return window

    def copied(self, window: Window, dtype: np.dtype) -> Window:
        target = self.tape.temporary(np.empty_like(window.standin(), dtype))
        self.add("copy", "cast", (window,), (target,))
        return target

    def reduce(self, ufunc: np.ufunc, x: Any, *, axis: Any = 0, dtype: Any = None, keepdims: bool = False) -> Any:
        kwargs = {"axis": axis, "dtype": dtype, "keepdims": keepdims}
        value = ufunc.reduce(value_of(x), **kwargs)
        array = as_array(value_of(x))
        signature = reduce_signature(ufunc, array.dtype, dtype, value)
        if signature is None:
            return self.call(ufunc.reduce, (x,), kwargs)
        axes = range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        return self.record("reduce", ufunc.__name__, [self.window(x)], value, ufunc=ufunc, signature=signature,
                           axes=tuple(a % array.ndim for a in axes) if array.ndim else ())

    def accumulate(self, ufunc: np.ufunc, x: Any, *, axis: int = 0, dtype: Any = None) -> Any:
        value = ufunc.accumulate(value_of(x), axis=axis, dtype=dtype)
        signature = reduce_signature(ufunc, value_of(x).dtype, dtype, value)
        if signature is None:
            return self.call(ufunc.accumulate, (x,), {"axis": axis, "dtype": dtype})
        window = self.window(x)
        window = self.cast(window, np.dtype(signature[0])) if window.aligned else self.copied(window, value.dtype)
        return self.record("accumulate", ufunc.__name__, [window], value, ufunc=ufunc, signature=signature,
                           axes=(axis % value.ndim,))

    def copy(self, x: Tracer, value: Any, name: str = "copy") -> Tracer:
        """Record a copy of x that is laid out, and typed, as `value`."""
        return self.record("copy", name, [self.window(x)], value)

    def take(self, x: Any, index: Any, value: Any) -> Any:
        """Record rows of x by a traced or captured index, where rows and index are pieces of memory."""
        window = self.cast(self.window(index), np.dtype(np.intp))
        return self.record("take", "take", [self.window(x), window], value)

    def copy_dense(self, x: Any, like: np.ndarray) -> Window:
        """Return the window of x where it is laid out as `like`, else of a copy that is."""
        window = self.window(x)
        if window.strides == like.strides and window.aligned and window.dtype == like.dtype:
            return window
        return self.copy(x, like).window

    def gather(self, function: Callable[..., Any], x: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a function that only moves elements: what it does to their numbers says where each goes."""
        value = function(x.value, *args, **kwargs)
        if type(value) is not np.ndarray or kind_of(x.value) == "number" or np.may_share_memory(
                value, x.value) or value.size > 100_000:
            return self.call(function, (x, *args), kwargs)
        table = function(byte_offsets(x.value), *args, **kwargs)
        return self.record("gather", function_name(function), [self.own(x), self.tape.constant(table)], value)


# --- tracers -----------------------------------------------------------------------------------------------

class Tracer:
    """A traced value: to NumPy and to `isinstance` what its eager value is."""

    __slots__ = ("__weakref__", "trace", "value", "window")
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, value: Any, window: Window) -> None:
        self.trace, self.value, self.window = trace, value, window

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return type(self.value)

    def __repr__(self) -> str:
        return f"<traced {type(self.value).__name__}, shape {self.shape}, dtype {self.dtype}>"

    shape = property(lambda self: np.shape(self.value))
    ndim = property(lambda self: np.ndim(self.value))
    size = property(lambda self: np.size(self.value))
    dtype = property(lambda self: as_array(self.value).dtype)
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: as_array(self.value).nbytes)
    strides = property(lambda self: as_array(self.value).strides)
    flags = property(lambda self: as_array(self.value).flags)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from nnflat.handlers import ufunc_method

        return ufunc_method(current(self), ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        from nnflat.handlers import numpy_function

        return numpy_function(current(self), function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        from nnflat.handlers import method_of

        return method_of(self, name)

    def __getitem__(self, index: Any) -> Any:
        from nnflat.handlers import getitem

        return getitem(current(self), self, index)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise current(self).fail("a traced value was made into a plain array",
                                 "np.stack([a, b]) for np.array([a, b]), np.take(x, i) for x[i], x.astype(dtype) for "
                                 "np.asarray(x, dtype); keep traced values out of lists given to NumPy")

    def __bool__(self) -> bool:
        raise current(self).fail("a branch on a traced value",
                                 "np.where(condition, a, b); or name the argument in static=")

    def __float__(self) -> float:
        raise current(self).fail("a traced value as a Python number",
                                 "np.sin(x) for math.sin(x), x.astype(float) for float(x)")

    __complex__ = __int__ = __float__

    def __index__(self) -> int:
        raise current(self).fail("a traced value as an index or a size",
                                 "np.take(x, i) for x[i]; or name the argument in static=")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise current(self).fail("an assignment to elements of a traced value", "np.where or np.concatenate")

    def __contains__(self, value: Any) -> bool:
        raise current(self).fail("`in` on a traced value", "np.any(x == value) with np.where")


def in_place(name: str) -> Callable[[Tracer, Any], Any]:
    def method(self: Tracer, other: Any) -> Any:
        raise current(self).fail(f"an assignment in place ({name}) to a traced value", f"x = x {name[:-1]} y")

    return method


for _name, _symbol in {"add": "+=", "sub": "-=", "mul": "*=", "truediv": "/=", "floordiv": "//=", "mod": "%=",
                       "pow": "**=", "matmul": "@=", "and": "&=", "or": "|=", "xor": "^=", "lshift": "<<=",
                       "rshift": ">>="}.items():
    setattr(Tracer, f"__i{_name}__", in_place(_symbol))


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
          "floordiv": np.floor_divide, "mod": np.remainder, "divmod": np.divmod, "matmul": np.matmul,
          "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
          "lshift": np.left_shift, "rshift": np.right_shift}
COMPARE = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
           "ge": np.greater_equal}
UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
OPERATORS = {"divmod": divmod, "and": operator.and_, "or": operator.or_}


def binary(name: str, ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any]]:
    python = OPERATORS.get(name) or getattr(operator, name)

    def method(self: Tracer, other: Any) -> Any:
        return operate(current(self), python, ufunc, (self, other))

    def reflected(self: Tracer, other: Any) -> Any:
        return operate(current(self), python, ufunc, (other, self))

    return method, reflected


def operate(trace: Trace, python: Callable[..., Any], ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """Record an operator. Scalars have arithmetic of their own in NumPy; Python numbers have Python's."""
    if all(not isinstance(value_of(x), np.ndarray) for x in inputs) and own_arithmetic(ufunc, inputs):
        return trace.call(python, inputs, {})
    if any(isinstance(x, list | tuple) for x in inputs):
        inputs = tuple(np.asarray(x) if isinstance(x, list | tuple) else x for x in inputs)
    return trace.ufunc(ufunc, inputs)


def own_arithmetic(ufunc: np.ufunc, inputs: Sequence[Any]) -> bool:
    """Whether these scalars are computed otherwise than by the loop: integers and divisions with a remainder raise
    other flags, complex64 rounds otherwise, Python numbers are Python's."""
    if ufunc in (np.floor_divide, np.remainder, np.divmod):
        return True
    values = [value_of(x) for x in inputs]
    return all(isinstance(x, int | float | complex) and not isinstance(x, np.generic) for x in values) or any(
        as_array(x).dtype.kind in "iubc" for x in values if isinstance(x, np.generic))


def power(self: Tracer, other: Any, modulo: Any = None) -> Any:
    """`x ** n` has shortcuts for exact Python numbers, on arrays of numbers; take the same ones."""
    trace = current(self)
    shortcut = POWERS.get((type(other), other)) if type(other) in (int, float) else None
    if shortcut and isinstance(self.value, np.ndarray) and self.value.dtype.kind in shortcut[1]:
        return trace.ufunc(shortcut[0], (self,))
    if self.dtype == bool:
        return trace.call(operator.pow, (self, other), {})
    return operate(trace, operator.pow, np.power, (self, other))


POWERS = {(int, 2): (np.square, "iufc"), (int, -1): (np.reciprocal, "fc"), (float, 0.5): (np.sqrt, "fc")}


def reflected_power(self: Tracer, other: Any, modulo: Any = None) -> Any:
    return operate(current(self), operator.pow, np.power, (other, self))


for _name, _ufunc in BINARY.items():
    _method, _reflected = binary(_name, _ufunc)
    setattr(Tracer, f"__{_name}__", _method)
    setattr(Tracer, f"__r{_name}__", _reflected)
for _name, _ufunc in COMPARE.items():
    setattr(Tracer, f"__{_name}__", binary(_name, _ufunc)[0])
Tracer.__pow__, Tracer.__rpow__ = power, reflected_power  # type: ignore[attr-defined]


def unary(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    python = getattr(operator, name)

    def method(self: Tracer) -> Any:
        return operate(current(self), python, ufunc, (self,))

    return method


for _name, _ufunc in UNARY.items():
    setattr(Tracer, f"__{_name}__", unary(_name, _ufunc))


# --- signatures --------------------------------------------------------------------------------------------

def loop_signature(ufunc: np.ufunc, inputs: Sequence[Any], value: Any) -> str | None:
    """Return the signature of the loop that gave `value`; None where it is no loop that can be replayed."""
    found = resolve(ufunc, tuple(weak_dtype(x) for x in inputs))
    if found is None:
        return None
    signature, resolved = found
    outputs = value if type(value) is tuple else (value,)
    for y, dtype in zip(outputs, resolved[ufunc.nin:], strict=True):
        if as_array(y).dtype != dtype:
            return None
    for x, dtype in zip(inputs, resolved, strict=False):
        if not number_fits(value_of(x), dtype):
            return None
    return signature


@lru_cache(maxsize=4096)
def resolve(ufunc: np.ufunc, dtypes: tuple[Any, ...]) -> tuple[str, tuple[np.dtype, ...]] | None:
    """Return NumPy's choice of a loop for operands of these dtypes; a Python number gives its type."""
    try:
        resolved = ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))
    except (TypeError, RecursionError):
        return None
    chars = [dtype.char for dtype in resolved]
    signature = "".join(chars[:ufunc.nin]) + "->" + "".join(chars[ufunc.nin:])
    other_products = ufunc.signature is not None and ufunc is not np.matmul
    if other_products and any(dtype.kind == "c" for dtype in resolved):
        return None
    if "O" in signature or find_loop(ufunc, signature) is None or can_raise(ufunc, resolved):
        return None
    return signature, resolved


def weak_dtype(x: Any) -> Any:
    value = value_of(x)
    return type(value) if type(value) in WEAK else as_array(value).dtype


def can_raise(ufunc: np.ufunc, dtypes: Sequence[np.dtype]) -> bool:
    """Integer power raises from inside its loop."""
    return ufunc.__name__ == "power" and dtypes[0].kind in "iu"


def number_fits(value: Any, dtype: np.dtype) -> bool:
    """Whether a Python integer keeps its value in the dtype of the loop (`u1 > 300` has no loop)."""
    if type(value) is not int or dtype.kind not in "iu":
        return True
    return dtype == np.int64 or (np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def reduce_signature(ufunc: np.ufunc, dtype: np.dtype, wanted: Any, value: Any) -> str | None:
    options = {} if wanted is None else {"signature": (np.dtype(wanted), None, None)}
    try:
        resolved = ufunc.resolve_dtypes((None, dtype, None), reduction=True, **options)
    except (TypeError, RecursionError):
        return None
    chars = [each.char for each in resolved]
    found = "".join(chars[:2]) + "->" + chars[2]
    if len(set(chars)) != 1 or as_array(value).dtype != resolved[2] or find_loop(ufunc, found) is None:
        return None
    return None if can_raise(ufunc, resolved) else found


# --- values ------------------------------------------------------------------------------------------------

def is_traced(x: Any) -> bool:
    return type(x) is Tracer


def value_of(x: Any) -> Any:
    return x.value if type(x) is Tracer else x


def as_array(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def kind_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "array"
    return "scalar" if isinstance(value, np.generic) else "number"


def byte_offsets(array: np.ndarray) -> np.ndarray:
    """Number the elements by where they stand, in an array that is laid out as `array` is."""
    offsets = np.empty_like(array, np.intp, subok=False)
    offsets[...] = sum(np.arange(size).reshape([-1 if a == axis else 1 for a in range(array.ndim)]) * stride
                       for axis, (size, stride) in enumerate(zip(array.shape, array.strides, strict=True)))
    return offsets


def base_of(value: Any, leaves: Sequence[Any]) -> Tracer | None:
    """Return the traced array that `value` is a view of."""
    if type(value) is not np.ndarray or value.size == 0:
        return None
    for leaf in leaves:
        if is_traced(leaf) and isinstance(leaf.value, np.ndarray) and np.may_share_memory(value, leaf.value):
            return leaf
    return None


def places_depend_on_values(leaves: Sequence[Any]) -> bool:
    """Whether a traced integer may say where a view stands (`x[i]`): then it has to be a copy."""
    return any(is_traced(leaf) and as_array(leaf.value).dtype.kind in "iu" and leaf.ndim < 2 for leaf in leaves[1:])


def split(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Take tracers and plain arrays out of (args, kwargs); return them and a function that puts others in."""
    leaves: list[Any] = []

    def take(x: Any) -> Any:
        if is_traced(x) or type(x) is np.ndarray:
            leaves.append(x)
            k = len(leaves) - 1
            return lambda values: values[k]
        if type(x) in (list, tuple):
            parts = [take(each) for each in x]
            return lambda values: type(x)(part(values) for part in parts)
        if type(x) is dict:
            items = {key: take(each) for key, each in x.items()}
            return lambda values: {key: part(values) for key, part in items.items()}
        return lambda values: x

    return leaves, take(tree)


def split_results(result: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Flatten a result of NumPy; named tuples keep their type."""
    if isinstance(result, tuple | list):
        make = type(result)._make if hasattr(result, "_make") else type(result)
        return list(result), make
    return [result], lambda outputs: outputs[0]


def caller(function: Callable[..., Any], rebuild: Callable[[list[Any]], Any], fresh: list[int],
           errstate: dict[str, str]) -> Callable[..., list[Any]]:
    """Return what a call runs at replay: values of the leaves -> the outputs that are no views."""

    def run(*values: Any) -> list[Any]:
        args, kwargs = rebuild(list(values))
        with np.errstate(**errstate):
            flat, _ = split_results(function(*args, **kwargs))
        return [flat[i] for i in fresh]

    return run


def function_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


# --- context -----------------------------------------------------------------------------------------------

def stack() -> list[Trace]:
    if not hasattr(STACK, "traces"):
        STACK.traces = []
    return STACK.traces


def current(tracer: Tracer) -> Trace:
    """Return the innermost trace that is running: that is where an operation on a traced value is recorded."""
    traces = stack()
    if not traces:
        raise TraceError("a traced value outlived the call that made it: return it from the function instead")
    return traces[-1]


def active() -> Trace | None:
    traces = stack()
    return traces[-1] if traces else None


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    stack().append(trace)
    try:
        with warnings.catch_warnings(), np.errstate(all="call", call=silent):
            warnings.simplefilter("ignore")
            yield trace
    finally:
        stack().pop()


def silent(kind: str, flag: int) -> None:
    """Take floating-point errors during a trace: the replay that follows reports them."""


def entered_errstate() -> dict[str, str]:
    """Return the modes that the function itself has set by `np.errstate`; the rest is the caller's."""
    modes = {"all": "call"} if not stack() else np.geterr()
    return {name: mode for name, mode in modes.items() if mode != "call"}


LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def user_line() -> str:
    """Return the innermost line that is no library's; failing that, neither ours nor NumPy's."""
    return line_outside(in_library) or line_outside(in_numpy) or "no line of Python"


@lru_cache(maxsize=1024)
def in_numpy(file: str) -> bool:
    return file.startswith((PACKAGE, NUMPY, "<"))


@lru_cache(maxsize=1024)
def in_library(file: str) -> bool:
    return file.startswith(LIBRARIES) or in_numpy(file)


def line_outside(excluded: Callable[[str], bool]) -> str | None:
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not excluded(code.co_filename):
            return f"{os.path.basename(code.co_filename)}, line {frame.f_lineno}, in {code.co_name}"
        frame = frame.f_back
    return None
