"""Trace by example: run a function on traced values, and record which loop did what, over which windows.

Dtype, memory order, shape and kind of every result come from NumPy itself, which has just computed it. A view is
recognised by its memory, not by the function that made it. What has no loop of its own is recorded as a call of NumPy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnflat._loops import cast_loop
from nnflat.context import TraceError, differentiated, entered_errstate, user_line
from nnflat.lower import STRIDE_BITS
from nnflat.signature import WEAK, loop_signature, reduce_signature
from nnflat.tape import Operation, Tape, Window
from nnflat.tracer import SERIAL, Node, Tracer, as_array, kind_of, value_of
from nnflat.values import base_of, byte_offsets, caller, function_name, places_depend_on_values, split, split_results


class Trace:
    """One run of a function on tracers. `plain` has each untraced operand, in the order of use."""

    def __init__(self, parent: Trace | None = None) -> None:
        self.tape: Tape = Tape()
        self.parent = parent
        self.error: TraceError | None = None
        self.plain: list[tuple[Any, Window]] = []
        self.entered: dict[Window, np.ndarray] = {}
        self.links: Sequence[Any] = ()          # on the way to what the function closes over
        self.kept: list[tuple[Operation, Tracer]] | None = None      # what each operation gave, where that is wanted

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
        if tracer.owner is self:
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
        settings = {"errstate": entered_errstate(), "where": user_line(), **settings}
        self.tape.add(kind, name, tuple(inputs), tuple(outputs), **settings)

    def output(self, value: Any) -> Tracer:
        """Return a tracer of a new value, in a buffer of its own."""
        return Tracer(self, value, self.tape.temporary(as_array(value)))

    def record(self, kind: str, name: str, inputs: Sequence[Window], value: Any, **settings: Any) -> Any:
        """Record an operation that gave `value` (a tuple: several outputs)."""
        outputs = [self.output(each) for each in value] if type(value) is tuple else [self.output(value)]
        self.add(kind, name, inputs, [each.window for each in outputs], **settings)
        if self.kept is not None:
            self.kept += [(self.tape.operations[-1], each) for each in outputs]
        return tuple(outputs) if type(value) is tuple else outputs[0]

    def view(self, base: Tracer, value: np.ndarray) -> Tracer:
        return self.link("view", Tracer(self, value, self.own(base).over(value, base.value)), (base,))

    def same(self, base: Tracer, value: Any, window: Window | None = None) -> Tracer:
        """Return a traced value with the elements of `base`, as `value` (of another kind or shape)."""
        return self.link("same", Tracer(self, value, window or self.own(base)), (base,))

    def link(self, kind: str, made: Any, operands: Sequence[Any], **settings: Any) -> Any:
        """Remember, while something is differentiated, of what `made` (a tuple: several values) was made."""
        if differentiated():
            outputs = made if type(made) is tuple else (made,)
            node = Node(kind, next(SERIAL), outputs, tuple(operands), settings)
            for output in outputs:
                output.node = node
        return made

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
        outputs = [self.view_of(base, each) if base is not None else self.output(each)
                   for base, each in zip(bases, flat, strict=True)]
        if fresh:
            self.link("call", tuple(outputs[i] for i in fresh), leaves, name=name or function_name(function),
                      function=function, args=args, kwargs=kwargs)
            self.add("call", name or function_name(function), [self.window(leaf) for leaf in leaves],
                     [outputs[i].window for i in fresh],
                     function=caller(function, rebuild, fresh, entered_errstate()),
                     kinds=tuple(kind_of(value_of(leaf)) for leaf in leaves)
                     + tuple(kind_of(flat[i]) for i in fresh))
        return join(outputs)

    def view_of(self, base: Tracer, value: np.ndarray) -> Tracer:
        """Return a view; one of the other dtype is the real or the imaginary part."""
        if value.dtype == base.dtype:
            return self.view(base, value)
        window = self.own(base).over(value, base.value)
        part = "real" if window.offset == self.own(base).offset else "imag"
        return self.link(part, Tracer(self, value, window), (base,))

    def check_result(self, function: Callable[..., Any], value: Any) -> None:
        if not isinstance(value, np.ndarray | np.generic | int | float | complex) or as_array(value).dtype.hasobject:
            raise self.fail(f"{function_name(function)} gives {type(value).__name__}, which is no array of numbers",
                            "a function of arrays to arrays")

    def ufunc(self, ufunc: np.ufunc, inputs: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Record a call of a ufunc as its loop; as a call of NumPy where it has none that fits."""
        if kwargs or any(isinstance(x, list | tuple) for x in inputs):
            return self.call(ufunc, tuple(inputs), kwargs or {})
        values = [value_of(x) for x in inputs]
        value = ufunc(*values)
        if len(inputs) == 1 and kind_of(values[0]) != "array":
            value = ufunc(*values)      # NumPy computes a scalar otherwise from its second call on
        signature = loop_signature(ufunc, inputs, value)
        if signature is None:
            return self.call(ufunc, tuple(inputs), {})
        dtypes = [np.dtype(char) for char in signature.split("->")[0]]
        if any(may_not_fit(x, dtype) for x, dtype in zip(inputs, dtypes, strict=True)):
            return self.call(ufunc, tuple(inputs), {})
        windows = [self.loop_operand(ufunc, x, dtype) for x, dtype in zip(inputs, dtypes, strict=True)]
        kind = "ufunc" if ufunc.signature is None else "gufunc"
        made = self.record(kind, ufunc.__name__, windows, value, ufunc=ufunc, signature=signature,
                           kinds=tuple(kind_of(each) for each in values))
        return self.link("ufunc", made, inputs, ufunc=ufunc)

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
        wanted = range(array.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = tuple(a % array.ndim for a in wanted) if array.ndim else ()
        made = self.record("reduce", ufunc.__name__, [self.window(x)], value, ufunc=ufunc, signature=signature,
                           axes=axes)
        return self.link("reduce", made, (x,), ufunc=ufunc, axes=axes)

    def accumulate(self, ufunc: np.ufunc, x: Any, *, axis: int = 0, dtype: Any = None) -> Any:
        value = ufunc.accumulate(value_of(x), axis=axis, dtype=dtype)
        signature = reduce_signature(ufunc, value_of(x).dtype, dtype, value)
        if signature is None:
            return self.call(ufunc.accumulate, (x,), {"axis": axis, "dtype": dtype})
        window = self.window(x)
        window = self.cast(window, np.dtype(signature[0])) if window.aligned else self.copied(window, value.dtype)
        made = self.record("accumulate", ufunc.__name__, [window], value, ufunc=ufunc, signature=signature,
                           axes=(axis % value.ndim,))
        return self.link("accumulate", made, (x,), ufunc=ufunc, axis=axis % value.ndim)

    def copy(self, x: Tracer, value: Any, name: str = "copy") -> Tracer:
        """Record a copy of x that is laid out, and typed, as `value`."""
        return self.link("same", self.record("copy", name, [self.window(x)], value), (x,))

    def take(self, x: Any, index: Any, value: Any) -> Any:
        """Record rows of x by a traced or captured index, where rows and index are pieces of memory."""
        window = self.cast(self.window(index), np.dtype(np.intp))
        made = self.record("take", "take", [self.window(x), window], value)
        return self.link("call", made, (x, index), name="getitem", function=operator.getitem, args=(x, index),
                         kwargs={})

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
                value, x.value) or value.size > 100_000 or is_broadcast(as_array(x.value)):
            return self.call(function, (x, *args), kwargs)
        table = function(byte_offsets(x.value), *args, **kwargs)
        made = self.record("gather", function_name(function), [self.own(x), self.tape.constant(table)], value)
        return self.link("gather", made, (x,), function=function, args=args, kwargs=kwargs)


def is_broadcast(array: np.ndarray) -> bool:
    """Whether elements share a place: then no other array is laid out as this one is, for a function that looks."""
    return any(stride == 0 and size > 1 for stride, size in zip(array.strides, array.shape, strict=True))


def may_not_fit(x: Any, dtype: np.dtype) -> bool:
    """Whether x is a traced Python integer that the dtype of the loop may not hold: NumPy looks at its value then."""
    return type(x) is Tracer and type(x.value) is int and dtype.kind in "iu" and dtype != np.int64
