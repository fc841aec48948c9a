"""Compile a NumPy function: trace it on its first arguments, verify the tape against NumPy to the bit, replay it.

Invariants:

 C1  A tape is trusted only after its replay gave, to the bit, what NumPy gave on the arguments it was traced on; a
     function whose tape did not stays eager on arguments of that form, with a warning.
 C2  A tape holds for one form of its arguments and captured arrays: exact types, shapes, strides, dtypes, alignment,
     and the values of statics. Anything else is traced anew.
 C3  Results never share memory with arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, overload

import numpy as np

from nnflat._replay import Caller, Form, Replay, is_plain, vectorcalled
from nnflat.captured import watch_over, with_traced_arrays
from nnflat.context import TraceError, active, tracing
from nnflat.explain import explain
from nnflat.plan import Plan, plan
from nnflat.structure import Structure, put_together, take_apart, targets
from nnflat.tape import Window
from nnflat.threads import one_blas_thread, share
from nnflat.trace import Trace
from nnflat.tracer import as_array, is_traced, kind_of, value_of
from nnflat.verify import first_difference, same_bits, same_static

NUMBERS = (float, int, complex, bool)
CACHE: weakref.WeakKeyDictionary[Any, dict[Any, Traces]] = weakref.WeakKeyDictionary()


class Traces:
    """The plans of one function under one set of options. It does not know the function, which it would keep alive."""

    def __init__(self) -> None:
        self.replays: list[Replay] = []         # most recently used first
        self.eager: list[Replay] = []           # forms whose tape was refused (C1)
        self.plans: dict[Replay, Plan] = {}
        self.warned = False
        self.lock = threading.RLock()


@vectorcalled
class Program(Caller):
    """A compiled function: called as the function is, it replays NumPy's loops without the interpreter.

    The first call with arguments of a new form runs the function two or three times, so it has to be pure: no
    printing, no random numbers, no hidden state. Arrays that it closes over (weights, say) are read at each call, as
    NumPy would; so is what NumPy computes from them alone, where they are in closures, globals, defaults, or in a tree
    (an object that is no tree, see `nnflat.tree.register`, is not looked into). A name, an item or an attribute that
    holds another array since is traced anew: writing in place (`weight -= step`) is cheaper. Python numbers are
    constants, and so are objects with attributes that names hold.
    """

    def __init__(self, fn: Callable[..., Any], *, static: str | Sequence[str] = (), max_traces: int = 32) -> None:
        if not callable(fn):
            raise TypeError(f"compile needs a function; got {type(fn).__name__}")
        self.fn = fn
        self.static = (static,) if isinstance(static, str) else tuple(static)
        self.max_traces = max_traces
        self.names, self.static_positions = argument_names(fn, self.static)
        self.traces = shared_traces(fn, (type(self), self.static, max_traces))
        self.replays = self.traces.replays
        if hasattr(fn, "__name__"):
            functools.update_wrapper(self, fn)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), static=self.static, max_traces=self.max_traces), (self.fn,)

    def __repr__(self) -> str:
        return f"<Program of {getattr(self.fn, '__name__', self.fn)}, {len(self.traces.plans)} traces>"

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # the slow way in: a new form, containers, an out= that is no array

    def call_slowly(self, args: tuple[Any, ...], out: Any) -> Any:
        if active() is not None:
            return self.fn(*args)
        with self.traces.lock:
            leaves, structure = self.leaves_of(args)
            if any(replay.matches(leaves) for replay in self.traces.eager):
                return deliver(self.fn(*args), out)
            replay = self.find(leaves, structure)
            if replay is None:
                return deliver(self.first_call(leaves, structure), out)
        outs = None if out is None else tuple([end for i, end in enumerate(targets(out, replay.shape))
                                               if i not in replay.constant_results])
        results = replay(leaves, outs)
        return out if out is not None else replay.structured(results)

    def leaves_of(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Structure]:
        ends: list[Any] = []
        parts = []
        for i, arg in enumerate(args):
            found, part = ([arg], None) if i in self.static_positions else take_apart(arg)
            ends += found
            parts.append(part)
        return tuple(ends), (tuple, tuple(range(len(args))), tuple(parts), None)

    def find(self, leaves: tuple[Any, ...], structure: Structure) -> Replay | None:
        """Return the replay for leaves of these forms, and make it the most recent one."""
        replays, wanted = self.traces.replays, of_containers(structure)
        found = next((replay for replay in replays if replay.structure == wanted and replay.matches(leaves)), None)
        if found is not None:
            replays.remove(found)
            replays.insert(0, found)
        return found

    def first_call(self, leaves: tuple[Any, ...], structure: Structure) -> Any:
        forms = [self.form_of(leaf, i) for i, leaf in enumerate(self.static_leaves(leaves, structure))]
        with one_blas_thread() if getattr(self.fn, "threads", 1) > 1 else nullcontext():
            planned, eager = trace_and_plan(self.fn, leaves, forms, structure)
            results = planned.replay(leaves)
        bad = first_difference(results, eager)
        if bad is not None:
            self.traces.eager.append(planned.replay)
            warnings.warn(f"{self!r}: result {bad} of the tape is not NumPy's to the bit; this form of arguments "
                          f"stays eager ({culprit(self.fn, leaves, forms, structure)})", RuntimeWarning, stacklevel=4)
            return self.fn(*put_together(structure, iter(leaves)))
        self.keep(planned, structure)
        return planned.replay.structured(results)

    def static_leaves(self, leaves: tuple[Any, ...], structure: Structure) -> Iterator[tuple[Any, bool]]:
        """Yield each leaf, and whether its argument is named static."""
        assert structure is not None
        ends = iter(leaves)
        for i, part in enumerate(structure[2]):
            for _ in range(count_ends(part)):
                yield next(ends), i in self.static_positions

    def form_of(self, leaf: tuple[Any, bool], i: int) -> Form:
        value, static = leaf
        if static or not is_number_like(value):
            return static_form(value, i)
        if type(value) is np.ndarray:
            return Form("array", value.dtype, value.shape, value.strides, aligned=value.flags.aligned)
        array = np.asarray(value)
        return Form(kind_of(value), array.dtype, value=type(value))

    def keep(self, planned: Plan, structure: Structure) -> None:
        traces, replays = self.traces, self.traces.replays
        planned.replay.structure = of_containers(structure)
        replays.insert(0, planned.replay)
        traces.plans[planned.replay] = planned
        if len(traces.plans) > self.max_traces:
            if not traces.warned:
                traces.warned = True
                warnings.warn(f"{self!r} has more than max_traces={self.max_traces} forms of arguments; "
                              f"{self.what_changes(replays)}", RuntimeWarning, stacklevel=5)
            del traces.plans[replays.pop()]

    def what_changes(self, replays: list[Replay]) -> str:
        if len(replays) < 2 or replays[0].structure != replays[1].structure or (
                len(replays[0].forms) != len(replays[1].forms)):
            return "the structure of its arguments keeps changing"
        for i, (new, old) in enumerate(zip(replays[0].forms, replays[1].forms, strict=True)):
            if new.describe() != old.describe():
                name = self.names[i] if i < len(self.names) else f"argument {i}"
                return f"{name} keeps changing: {old.describe()}, then {new.describe()}"
        return "its captured arrays keep changing"

    # the other verbs

    def trace(self, *args: Any) -> Plan:
        """Trace (and verify) for these arguments, unless that is done; return the plan."""
        leaves, structure = self.leaves_of(args)
        with self.traces.lock:
            replay = self.find(leaves, structure)
            if replay is None:
                self.first_call(leaves, structure)
                replay = self.find(leaves, structure)
        if replay is None:
            raise TraceError(f"{self!r} stays eager on these arguments")
        return self.traces.plans[replay]

    def explain(self, *args: Any) -> str:
        """Describe the tape for these arguments: operations, shapes, buffers, bytes, copies, calls, flops."""
        return explain(self.trace(*args))


@overload
def compile(fn: Callable[..., Any], *, static: str | Sequence[str] = (), max_traces: int = 32) -> Program: ...
@overload
def compile(fn: None = None, *, static: str | Sequence[str] = (), max_traces: int = 32) -> Callable[..., Program]: ...


def compile(fn: Any = None, *, static: Any = (), max_traces: int = 32) -> Any:
    """Compile a function of arrays, written in plain NumPy; use it as a call or as a decorator.

    The compiled function gives what the function gives, to the bit, in arrays of its own. It is traced on its first
    arguments of each form (types, shapes, dtypes, strides) and verified there against NumPy; see `Program`.

    Parameters
    ----------
    fn : callable
        A function of arrays, trees of arrays and numbers. Strings, functions, None and the like are static by
        themselves.
    static : str or sequence of str
        Names of arguments whose value is part of the program: sizes, flags of an `if`.
    max_traces : int
        How many forms of arguments are kept, the least recent one out.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> @nf.compile
    ... def distance(a, b):
    ...     return np.sqrt(np.sum((a - b) ** 2))
    >>> distance(np.zeros(2), np.array([3.0, 4.0]))
    np.float64(5.0)
    """
    if fn is None:
        return functools.partial(compile, static=static, max_traces=max_traces)
    return Program(fn, static=static, max_traces=max_traces)


# --- tracing -----------------------------------------------------------------------------------------------

def trace_and_plan(fn: Callable[..., Any], leaves: Sequence[Any], forms: Sequence[Form],
                   structure: Structure) -> tuple[Plan, list[Any]]:
    """Trace the function twice, so that what is not a function of its arguments shows; return plan and results."""
    trace, ends, shape = run_traced(fn, leaves, forms, structure)
    again, other_ends, other_shape = run_traced(fn, leaves, forms, structure)
    settle_constants(trace, again)
    if shape != other_shape or len(trace.tape.operations) != len(again.tape.operations):
        raise impure("it did not do the same operations")
    results: list[tuple[Window, np.ndarray, str]] = []
    constants: list[Any] = []
    for end, other in zip(ends, other_ends, strict=True):
        if is_traced(end) or type(end) is np.ndarray:
            results.append((trace.window(end), as_array(value_of(end)), kind_of(value_of(end))))
            if type(end) is np.ndarray:
                settle_constant(trace.plain[-1], end, other)
        elif not same_static(end, other):
            raise impure(f"a result was {end!r}, then {other!r}")
        constants.append(None if is_traced(end) or type(end) is np.ndarray else (end,))
    planned = plan(trace.tape, results, list(forms))
    shape_results(planned.replay, shape, constants)
    planned.replay.watch = watch_over(trace.links, [array for _, array, _ in planned.replay.captured])
    trace.links = again.links = ()          # they hold the function, which its traces must not
    if [instruction.action for instruction in planned.replay.instructions] == ["repeat"]:
        planned.replay.threads, planned.replay.share = getattr(fn, "threads", 1), share
    return planned, [value_of(end) for end, constant in zip(ends, constants, strict=True) if constant is None]


def shape_results(replay: Replay, shape: Structure, constants: list[Any]) -> None:
    """Tell a replay what to make of its results, and where an `out` has them."""
    replay.build, replay.flat = builder(shape, constants)
    replay.shape = shape
    replay.constant_results = frozenset(i for i, constant in enumerate(constants) if constant is not None)
    if not any(constants) and is_plain(shape):
        replay.result_structure = shape


def trace_once(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Run a function that only works on traced values, and return what eager NumPy gave."""
    ends, structure = take_apart(args)
    forms = [Form("array", None) if is_number_like(end) else Form("static", value=end) for end in ends]
    _, ends, shape = run_traced(fn, ends, forms, structure)
    return put_together(shape, iter([value_of(end) for end in ends]))


def run_traced(fn: Callable[..., Any], leaves: Sequence[Any], forms: Sequence[Form],
               structure: Structure, *, keep: bool = False) -> tuple[Trace, list[Any], Structure]:
    trace = Trace()
    trace.kept = [] if keep else None
    with tracing(trace):
        traced = [leaf if form.name == "static" else trace.argument(leaf)
                  for leaf, form in zip(leaves, forms, strict=True)]
        try:
            result = with_traced_arrays(fn, trace)(*put_together(structure, iter(traced)))
        except Exception as error:
            if trace.error is None or trace.error is error:
                raise
            raise trace.error from error
        ends, shape = take_apart(result)
        if trace.error is not None:         # somebody has swallowed it
            raise trace.error
        for end in ends:
            trace.own(end) if is_traced(end) else None
    return trace, ends, shape


def settle_constants(trace: Trace, again: Trace) -> None:
    """Tell arrays that the function closes over (the same object twice) from those that it made (equal twice)."""
    if len(trace.plain) != len(again.plain):
        raise impure("it did not use the same arrays")
    for entry, (other, _) in zip(trace.plain, again.plain, strict=True):
        settle_constant(entry, entry[0], other)


def settle_constant(entry: tuple[Any, Window], x: Any, other: Any) -> None:
    if x is other:
        return
    if type(x) is not type(other) or not same_bits(as_array(x), as_array(other)):
        raise impure("an array that it made had other values")
    entry[1].buffer.role = "constant"


def impure(what: str) -> TraceError:
    return TraceError(f"the function was run twice and {what}: it uses np.random, or hidden state. Give random numbers "
                      "as an argument, or a key to nnflat.random")


def builder(shape: Structure, constants: list[Any]) -> tuple[Callable[[list[Any]], Any] | None, bool]:
    """Return what makes the function's result of the list of arrays, and whether that is just a tuple of them."""
    if shape is None and constants == [None]:
        return None, False
    if shape is not None and shape[0] is tuple and all(part is None for part in shape[2]) and not any(constants):
        return tuple, True

    def build(results: list[Any]) -> Any:
        arrays = iter(results)
        return put_together(shape, iter([next(arrays) if constant is None else constant[0] for constant in constants]))

    return build, False


# --- arguments ---------------------------------------------------------------------------------------------

def is_number_like(value: Any) -> bool:
    if type(value) is int:
        return -2**63 <= value < 2**63
    return type(value) in (np.ndarray, *NUMBERS) or isinstance(value, np.bool_ | np.number)


def static_form(value: Any, i: int) -> Form:
    hashable = type(value).__hash__ is not None
    by_identity = type(value).__hash__ is object.__hash__ and type(value).__eq__ is object.__eq__
    if not hashable or (by_identity and not callable(value) and value is not None):
        raise TypeError(f"argument {i} has type {type(value).__name__}: it needs to be an array, a number, a tree of "
                        "them, or a static value that hashes and compares by what it is")
    return Form("static", value=value)


def argument_names(fn: Callable[..., Any], static: tuple[str, ...]) -> tuple[list[str], frozenset[int]]:
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        names = []
    unknown = [name for name in static if name not in names]
    if unknown:
        raise ValueError(f"static names {unknown[0]!r}; the arguments are {', '.join(names) or 'unknown'}")
    return names, frozenset(names.index(name) for name in static)


def of_containers(structure: Structure) -> Structure:
    """Return the structure of arguments; None where they are ends themselves, as most are."""
    assert structure is not None
    return None if all(part is None for part in structure[2]) else structure


def count_ends(structure: Structure) -> int:
    return 1 if structure is None else sum(count_ends(part) for part in structure[2])


def shared_traces(fn: Callable[..., Any], options: Any) -> Traces:
    """Programs of one function share their traces as long as the function lives."""
    while dataclasses.is_dataclass(fn) and hasattr(fn, "fn"):
        others = [getattr(fn, each.name) for each in dataclasses.fields(fn) if each.name != "fn"]
        fn, options = fn.fn, (options, type(fn), *others)
    try:
        return CACHE.setdefault(fn, {}).setdefault(options, Traces())
    except TypeError:
        return Traces()


# --- verifying ---------------------------------------------------------------------------------------------

def culprit(fn: Callable[..., Any], leaves: tuple[Any, ...], forms: Sequence[Form], structure: Structure) -> str:
    """Find the first operation whose replay is not what NumPy gave, and name it with its line."""
    trace, _, _ = run_traced(fn, leaves, forms, structure, keep=True)
    kept = trace.kept or []
    results = [(each.window, as_array(each.value), "array") for _, each in kept]
    with np.errstate(all="ignore"):
        replayed = plan(trace.tape, results, list(forms)).replay(leaves)
    for (operation, each), result in zip(kept, replayed, strict=True):
        if not same_bits(result, as_array(each.value)):
            return f"{operation.name}, {operation.where}"
    return "the operation that differs could not be told"


def deliver(result: Any, out: Any) -> Any:
    """Copy a result into `out`, where it is given."""
    if out is None:
        return result
    ends, structure = take_apart(result)
    pairs = [(end, target) for end, target in zip(ends, targets(out, structure), strict=True) if is_number_like(end)]
    for end, target in pairs:
        if type(target) is not np.ndarray:
            raise TypeError(f"out needs an array of shape {np.shape(end)}; got {type(target).__name__}")
        if target.shape != np.shape(end) or target.dtype != as_array(end).dtype:
            raise ValueError(f"out has shape {target.shape} and dtype {target.dtype}; the function gives "
                             f"{np.shape(end)} and {as_array(end).dtype}")
    for end, target in pairs:
        target[...] = end
    return out
