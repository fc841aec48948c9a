"""vmap and scan: a function run once a row, eagerly a Python loop, on a tape one operation with a tape inside.

The tape inside is recorded on one row. Its buffers are aimed anew at each row: mapped operands move by their stride,
results by a row, values from outside stand still, and a carry goes from row to row through two places of its own. No
product is ever widened, so the bits are those of a loop of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat._replay import Replay
from nnflat.backward import captured, differentiating, is_inexact, pull_back, variable
from nnflat.compile import NUMBERS, Program
from nnflat.context import TraceError, active, differentiated, entered_errstate, tracing, user_line
from nnflat.plan import Plan, plan
from nnflat.structure import put_together, take_apart
from nnflat.tape import Tape, Window
from nnflat.trace import Trace
from nnflat.tracer import Tracer, as_array, is_traced, kind_of, value_of
from nnflat.verify import same_bits

# --- the plain meaning -------------------------------------------------------------------------------------

def vmap(fn: Callable[..., Any], in_axes: Any, *, threads: int | None = None) -> Program:
    """Map a function over an axis of its arguments: the results of a loop of calls, stacked along a first axis.

    Parameters
    ----------
    fn : callable
        A function of arrays, written for one row.
    in_axes : int, None, or tuple of them
        For each argument the axis that is walked, or None where all rows get the same. An axis of a tree is an axis
        of each of its arrays.
    threads : int, optional
        How many threads share the rows; left out, the calling thread does all. On several, NumPy's BLAS is held to
        one thread, where it is the OpenBLAS of NumPy's wheels (limit any other around the calls), so the bits are
        those of a loop of calls with a BLAS of one thread.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> distances = nf.vmap(lambda a, b: np.sqrt(np.sum((a - b) ** 2)), (0, None))
    >>> distances(np.array([[3.0, 4.0], [0.0, 1.0]]), np.zeros(2))
    array([5., 1.])
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads needs to be at least 1; got {threads}")
    return Program(Mapped(fn, in_axes if in_axes is None or isinstance(in_axes, int) else tuple(in_axes), threads or 1))


@dataclass(frozen=True)
class Mapped:
    """The function that `vmap` compiles."""

    fn: Callable[..., Any]
    in_axes: Any
    threads: int

    def __call__(self, *args: Any) -> Any:
        ends, axes, structure = self.take_apart(args)
        rows = count_rows([np.shape(value_of(end))[axis] for end, axis in zip(ends, axes, strict=True)
                           if axis is not None], "vmap")
        trace = active()
        if trace is not None:
            return map_traced(trace, self.fn, ends, axes, structure, rows)
        results = [self.fn(*put_together(structure, iter([row_of(end, axis, i) for end, axis in
                                                          zip(ends, axes, strict=True)]))) for i in range(rows)]
        return stack_trees(results)

    def take_apart(self, args: Sequence[Any]) -> tuple[list[Any], list[int | None], Any]:
        """Return the ends of the arguments, the axis of each (not negative), and the structure of the arguments."""
        in_axes = self.in_axes if isinstance(self.in_axes, tuple) else (self.in_axes,) * len(args)
        if len(in_axes) != len(args):
            raise ValueError(f"in_axes has {len(in_axes)} entries; the function got {len(args)} arguments")
        ends: list[Any] = []
        axes: list[int | None] = []
        for i, (arg, axis) in enumerate(zip(args, in_axes, strict=True)):
            found, _ = take_apart(arg)
            ends += found
            axes += [checked_axis(end, axis, i) for end in found]
        return ends, axes, take_apart(tuple(args))[1]


def checked_axis(end: Any, axis: int | None, i: int) -> int | None:
    if axis is None:
        return None
    ndim = np.ndim(value_of(end))
    if not -ndim <= axis < ndim:
        raise ValueError(f"in_axes has axis {axis} for argument {i}, an array with {ndim} axes")
    return axis % ndim


def count_rows(sizes: Sequence[int], name: str) -> int:
    if not sizes:
        raise ValueError(f"{name} needs an array to walk along; none was given")
    if len(set(sizes)) > 1:
        raise ValueError(f"{name} walks along axes of different sizes: {', '.join(str(size) for size in sizes)}")
    if sizes[0] < 1:
        raise ValueError(f"{name} needs at least one row")
    return sizes[0]


def row_of(end: Any, axis: int | None, i: int) -> Any:
    return end if axis is None else end[(*[slice(None)] * axis, i)]


def stack_trees(trees: Sequence[Any]) -> Any:
    """Stack the arrays of equal trees along a first axis, in C order."""
    _, structure = take_apart(trees[0])
    columns = zip(*[take_apart(tree)[0] for tree in trees], strict=True)
    return put_together(structure, iter([stack_rows(column) for column in columns]))


def stack_rows(rows: Sequence[Any]) -> Any:
    if is_constant(rows[0]):
        return rows[0]
    shape, dtype = form_of_rows(rows)
    stacked = np.empty((len(rows), *shape), dtype)
    for i, row in enumerate(rows):
        stacked[i] = row
    return stacked


def form_of_rows(rows: Sequence[Any]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape that all rows have, and the dtype that holds each of them (Python numbers are weak)."""
    values = [value_of(row) for row in rows]
    arrays = [as_array(value) for value in values]
    shapes = {array.shape: None for array in arrays}
    if len(shapes) > 1:
        raise ValueError(f"rows need one shape to be stacked; got {', '.join(str(shape) for shape in shapes)}")
    return arrays[0].shape, np.result_type(*{value if type(value) in NUMBERS else array.dtype
                                                   for value, array in zip(values, arrays, strict=True)})


def is_constant(end: Any) -> bool:
    """Whether an end of a tree is the same for all rows: there is nothing of it to stack or to carry."""
    return end is None or isinstance(end, str)


def scan(fn: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any = None, *,
         length: int | None = None) -> tuple[Any, Any]:
    """Call `carry, y = fn(carry, x)` for each row x of `xs`; return the last carry, and the ys stacked.

    Plain arrays make a Python loop of it. Inside a compiled function it becomes one operation, with the tape of `fn`
    inside: time steps of a recurrent net, a roll-out, epochs.

    Parameters
    ----------
    fn : callable
        `fn(carry, x)` gives the next carry, of the same structure, and a y (or None).
    carry, xs : trees of arrays
        `xs` is walked along the first axis of each of its arrays; with None, `length` says how many steps.

    Examples
    --------
    >>> import numpy as np
    >>> import nnflat as nf
    >>> nf.scan(lambda total, x: (total + x, total * x), np.float64(0), np.array([1.0, 2.0, 3.0]))
    (np.float64(6.0), array([0., 2., 9.]))
    """
    ends, structure = take_apart(xs)
    ends = [] if xs is None else ends
    sizes = [np.shape(value_of(end))[0] for end in ends]
    steps = count_rows(sizes + ([length] if length is not None else []), "scan")

    def row(i: int) -> Any:
        return None if xs is None else put_together(structure, iter([end[i] for end in ends]))

    trace = active()
    if trace is not None and any(is_constant(end) for end in take_apart(carry)[0]):
        return scan_without_constants(trace, fn, carry, xs, length)
    if trace is not None and differentiated():
        return scan_differentiated(trace, fn, carry, xs, steps)
    if trace is not None:
        return scan_traced(trace, fn, carry, ends, structure, row, steps)
    ys = []
    for i in range(steps):
        carry, y = fn(carry, row(i))
        ys.append(y)
    return carry, stack_trees(ys)


# --- the tape inside ---------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Body:
    """The planned tape of one row, and the windows and eager arrays of what it takes from outside."""

    plan: Plan
    outside: list[Window]
    arrays: list[np.ndarray]

    @property
    def replay(self) -> Replay:
        return self.plan.replay


@dataclass(frozen=True, eq=False)
class Repetition:
    """How a Body is repeated: its operands on the tape around it, and how each moves from row to row."""

    plan: Plan
    rows: int
    moving: int
    carries: int
    operands: list[Window]
    strides: list[int]
    buffers: list[int]
    writes: tuple[int, ...]


def trace_row(trace: Trace, call: Callable[[list[Any]], Any], rows: Sequence[tuple[Any, np.ndarray]]) -> tuple[
        Trace, list[Any], Any]:
    """Trace `call` on one row; return the inner trace, the ends of the result, and its structure."""
    inner = Trace(trace)
    with tracing(inner):
        ends, structure = take_apart(call([
            Tracer(inner, value, inner.tape.argument(array)) for value, array in rows]))
    if inner.error is not None:
        trace.error = trace.error or inner.error
        raise inner.error
    return inner, ends, structure


def plan_body(inner: Trace, ends: Sequence[Any], contiguous: Sequence[bool]) -> Body:
    results = [(inner.window(end), as_array(value_of(end)), "array") for end in ends]
    planned = plan(inner.tape, results, contiguous=contiguous)
    outside = [window for _, window in planned.replay.outer]
    return Body(planned, outside, [inner.entered[window] for window in outside])


def repetition(body: Body, rows: int, moving: Sequence[tuple[Window, int]], outside: Sequence[Window],
               outputs: Sequence[tuple[Window, int]], carries: Sequence[tuple[Window, Window, Window, Window]],
               ) -> Repetition:
    """Put a body and its operands together. Its arguments are the carries, then what moves; so are its results."""
    count = len(carries)
    arguments, results = body.replay.argument_buffers, body.replay.result_buffers
    operands = [window for window, _ in moving] + list(outside) + [window for window, _ in outputs]
    strides = [step for _, step in moving] + [0] * len(outside) + [step for _, step in outputs]
    buffers = arguments[count:] + [buffer for buffer, _ in body.replay.outer] + results[count:]
    first = len(operands) - len(outputs)
    writes = list(range(first, len(operands)))
    for k, carry in enumerate(carries):
        writes += [len(operands) + 1, len(operands) + 2, len(operands) + 3]
        operands += carry
        buffers += [arguments[k], results[k]]
    return Repetition(body.plan, rows, len(strides), count, operands, strides, buffers, tuple(writes))


def add_repetition(tape: Tape, name: str, repeated: Repetition, **settings: Any) -> None:
    writes = set(repeated.writes)
    inputs = tuple(window for k, window in enumerate(repeated.operands) if k not in writes)
    outputs = tuple(repeated.operands[k] for k in repeated.writes)
    tape.add("repeat", name, inputs, outputs, inner=repeated, **settings)


def run_natively(body: Body, rows: int, moving: Sequence[tuple[np.ndarray, int, int]],
                 outputs: Sequence[np.ndarray], carries: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Repeat a body over eager arrays, given as (array, byte offset of the first row, step); return the last carries.

    Rows of results are written to `outputs`.
    """
    tape = Tape()
    arrays = [array for array, _, _ in moving] + body.arrays + list(carries)
    windows = [tape.argument(array) for array in arrays]
    n, m = len(moving), len(body.arrays)
    moved = [(shifted(window, offset), step) for window, (_, offset, step) in zip(windows[:n], moving, strict=True)]
    written = [tape.temporary(output) for output in outputs]
    four = [(start, tape.temporary(array), tape.temporary(array), tape.temporary(array))
            for start, array in zip(windows[n + m:], carries, strict=True)]
    steps = [(window, output.strides[0]) for window, output in zip(written, outputs, strict=True)]
    add_repetition(tape, "scan", repetition(body, rows, moved, windows[n:n + m], steps, four), errstate={}, where="")
    wanted = [(window, output, "array") for window, output in zip(written, outputs, strict=True)]
    wanted += [(carry[3], array, "array") for carry, array in zip(four, carries, strict=True)]
    with np.errstate(all="ignore"):
        results = plan(tape, wanted).replay(tuple(arrays))
    for output, result in zip(outputs, results, strict=False):
        output[...] = result
    return results[len(outputs):]


def shifted(window: Window, offset: int) -> Window:
    return Window(window.buffer, window.offset + offset, window.shape, window.strides, window.dtype, window.aligned)


# --- vmap on a tape ----------------------------------------------------------------------------------------

def map_traced(trace: Trace, fn: Callable[..., Any], ends: Sequence[Any], axes: Sequence[int | None], structure: Any,
               rows: int) -> Any:
    walked = [(end if is_traced(end) else np.asarray(end), axis) for end, axis in zip(ends, axes, strict=True)
              if axis is not None]
    windows = [trace.window(end) for end, _ in walked]

    def call(row: list[Any]) -> Any:
        mapped = iter(row)
        return fn(*put_together(structure, iter([end if axis is None else next(mapped)
                                                 for end, axis in zip(ends, axes, strict=True)])))

    def values(i: int) -> list[tuple[Any, np.ndarray]]:
        return [row_window(as_array(value_of(end)), axis, i) for end, axis in walked]

    inner, results, shape = trace_row(trace, call, values(0))
    given, results = results, [end if is_traced(end) or isinstance(end, np.ndarray) else np.asarray(end)
                               for end in results if not is_constant(end)]
    body = plan_body(inner, results, [True] * len(results))
    stacked = [np.empty((rows, *np.shape(value_of(end))), as_array(value_of(end)).dtype) for end in results]
    moving = [(as_array(value_of(end)), 0, as_array(value_of(end)).strides[axis]) for end, axis in walked]
    run_natively(body, rows, moving, stacked, [])
    check_row(stacked, results, 0, "vmap")
    if rows > 1:
        last = trace_row(trace, call, values(rows - 1))[1]
        check_row(stacked, [end for end in last if not is_constant(end)], rows - 1, "vmap")
    outputs = [trace.output(value) for value in stacked]
    moved = [(window, array.strides[axis]) for window, (array, _, _), (_, axis) in
             zip(windows, moving, walked, strict=True)]
    steps = [(output.window, output.value.strides[0]) for output in outputs]
    record(trace, "vmap", repetition(body, rows, moved, body.outside, steps, []))
    if differentiated():
        link_map(trace, call, walked, captured_in(inner, results), outputs)
    each = iter(outputs)
    return put_together(shape, iter([end if is_constant(end) else next(each) for end in given]))


def row_window(array: np.ndarray, axis: int, i: int) -> tuple[Any, np.ndarray]:
    """Return row i as NumPy gives it (a scalar, where one axis is all), and as an array."""
    moved = np.moveaxis(array, axis, 0)
    return moved[i], moved[i, ...]


def check_row(stacked: Sequence[np.ndarray], ends: Sequence[Any], i: int, name: str) -> None:
    """Compare a row of the native result with what NumPy gave for it."""
    for output, end in zip(stacked, ends, strict=True):
        if not same_bits(output[i], as_array(value_of(end))):
            raise TraceError(f"row {i} of {name} is not NumPy's to the bit: the function does not do the same for each "
                             "row, or uses hidden state")


def record(trace: Trace, name: str, repeated: Repetition) -> None:
    add_repetition(trace.tape, name, repeated, errstate=entered_errstate(), where=user_line())


# --- scan on a tape ----------------------------------------------------------------------------------------

MOST_UNROLLED = 4


def scan_traced(trace: Trace, fn: Callable[..., Any], carry: Any, ends: Sequence[Any], structure: Any,
                row: Callable[[int], Any], steps: int) -> tuple[Any, Any]:
    """Unroll steps until the carry keeps its form (a number becomes an array, say); repeat the rest."""
    ys: list[Any] = []
    for start in range(min(steps, MOST_UNROLLED)):
        carry_ends, carry_structure = take_apart(carry)
        attempt = try_step(trace, fn, carry_ends, carry_structure, ends, structure, start)
        if attempt is not None:
            return repeat_steps(trace, attempt, carry_ends, carry_structure, ends, start, steps, ys)
        carry, y = fn(carry, row(start))
        ys.append(y)
    if len(ys) < steps:
        raise trace.fail("the carry of a scan changes its form (dtype, shape, order or kind) at each step",
                         "a carry that has the dtype and shape of what the function returns")
    return carry, stack_traced(ys)


def stack_traced(ys: Sequence[Any]) -> Any:
    _, structure = take_apart(ys[0])
    columns = zip(*[take_apart(y)[0] for y in ys], strict=True)
    return put_together(structure, iter([column[0] if is_constant(column[0]) else np.stack(column)
                                         for column in columns]))


def scan_without_constants(trace: Trace, fn: Callable[..., Any], carry: Any, xs: Any,
                           length: int | None) -> tuple[Any, Any]:
    """Scan over the arrays of a carry; its constants stay what they are."""
    ends, structure = take_apart(carry)

    def whole(arrays: Sequence[Any]) -> Any:
        each = iter(arrays)
        return put_together(structure, iter([end if is_constant(end) else next(each) for end in ends]))

    def step(arrays: Any, x: Any) -> tuple[Any, Any]:
        after, y = fn(whole(arrays), x)
        found, form = take_apart(after)
        if form != structure or any((is_constant(old) or is_constant(new)) and old != new
                                    for old, new in zip(ends, found, strict=True)):
            raise trace.fail("the carry of a scan comes back in another structure", "the structure that it came in")
        return [end for end in found if not is_constant(end)], y

    arrays, ys = scan(step, [end for end in ends if not is_constant(end)], xs, length=length)
    return whole(arrays), ys


@dataclass(frozen=True, eq=False)
class Step:
    """A traced step whose carry keeps its form."""

    inner: Trace
    call: Callable[[list[Any]], Any]
    carries: list[Any]
    ys: list[Any]
    structure: Any


def try_step(trace: Trace, fn: Callable[..., Any], carry_ends: Sequence[Any], carry_structure: Any,
             ends: Sequence[Any], structure: Any, i: int) -> Step | None:
    """Trace a step on its own; None where its carry comes out in another form."""
    count = len(carry_ends)

    def call(values: list[Any]) -> Any:
        x = put_together(structure, iter(values[count:])) if ends else None
        carry, y = fn(put_together(carry_structure, iter(values[:count])), x)
        new_ends, new_structure = take_apart(carry)
        if new_structure != carry_structure:
            raise trace.fail("the carry of a scan comes back in another structure", "the structure that it came in")
        return new_ends, y

    inner, results, shape = trace_row(trace, call, [*map(carry_window, carry_ends), *row_windows(ends, i)])
    carries, ys = results[:count], results[count:]
    if any(form_of(old) != form_of(new) for old, new in zip(carry_ends, carries, strict=True)):
        return None
    return Step(inner, call, carries, ys, shape[2][1])


def carry_window(end: Any) -> tuple[Any, np.ndarray]:
    """Return a carry as it is, and as a dense array of its order."""
    value = value_of(end)
    return value, np.array(value, order="K", dtype=as_array(value).dtype)


def row_windows(ends: Sequence[Any], i: int) -> list[tuple[Any, np.ndarray]]:
    return [row_window(as_array(value_of(end)), 0, i) for end in ends]


def form_of(end: Any) -> tuple[Any, ...]:
    array = as_array(value_of(end))
    return kind_of(value_of(end)), type(value_of(end)), array.dtype, array.shape, np.empty_like(array).strides


def repeat_steps(trace: Trace, step: Step, carry_ends: Sequence[Any], carry_structure: Any, ends: Sequence[Any],
                 start: int, steps: int, unrolled: Sequence[Any]) -> tuple[Any, Any]:
    rows = steps - start
    ys = [end for end in step.ys if not is_constant(end)]
    check_unrolled(trace, unrolled, ys)
    body = plan_body(step.inner, [*step.carries, *ys], [False] * len(step.carries) + [True] * len(ys))
    first = [carry_window(end)[1] for end in carry_ends]
    moving = [(array, start * array.strides[0], array.strides[0]) for array in (as_array(value_of(e)) for e in ends)]
    stacked = [np.empty((steps, *np.shape(value_of(y))), as_array(value_of(y)).dtype) for y in ys]
    last = verified(trace, step, body, rows, moving, [value[start:] for value in stacked], first, ends, steps)
    dense = [trace.copy_dense(end, array) for end, array in zip(carry_ends, first, strict=True)]
    outputs = [trace.output(value) for value in stacked]
    final = [trace.output(value) for value in last]
    fours = [(begin, trace.output(array).window, trace.output(array).window, end.window)
             for begin, array, end in zip(dense, first, final, strict=True)]
    moved = [(shifted(trace.window(end), offset), stride)
             for end, (_, offset, stride) in zip(ends, moving, strict=True)]
    rest = [(output.window.over(output.value[start:], output.value), output.value.strides[0]) for output in outputs]
    fill_unrolled(trace, outputs, unrolled)
    record(trace, "scan", repetition(body, rows, moved, body.outside, rest, fours))
    carry = put_together(carry_structure, iter([like_kind(value_of(new), end) for new, end in
                                                zip(step.carries, final, strict=True)]))
    each = iter(outputs)
    return carry, put_together(step.structure, iter([y if is_constant(y) else next(each) for y in step.ys]))


def like_kind(eager: Any, end: Tracer) -> Tracer:
    """Give a final carry the kind (array, scalar, number) that NumPy gave it."""
    if isinstance(eager, np.ndarray):
        return end
    value = end.value[()] if isinstance(eager, np.generic) else end.value.item()
    return Tracer(end.owner, value, end.window)


def check_unrolled(trace: Trace, unrolled: Sequence[Any], ys: Sequence[Any]) -> None:
    """Refuse results of the unrolled steps that do not fit among the others."""
    for column in zip(ys, *[[end for end in take_apart(y)[0] if not is_constant(end)] for y in unrolled], strict=True):
        if form_of_rows(column)[1] != as_array(value_of(column[0])).dtype:
            raise trace.fail("a scan gives rows of a wider dtype first",
                             "a carry that has the dtype of what the function returns")


def fill_unrolled(trace: Trace, outputs: Sequence[Tracer], unrolled: Sequence[Any]) -> None:
    """Copy what the unrolled steps gave to the first rows."""
    for i, y in enumerate(unrolled):
        for output, end in zip(outputs, [end for end in take_apart(y)[0] if not is_constant(end)], strict=True):
            output.value[i] = value_of(end)
            row = output.value[i, ...]
            trace.add("copy", "copy", [trace.window(end)], [output.window.over(row, output.value)])


def verified(trace: Trace, step: Step, body: Body, rows: int, moving: Sequence[tuple[np.ndarray, int, int]],
             stacked: Sequence[np.ndarray], first: Sequence[np.ndarray], ends: Sequence[Any],
             steps: int) -> list[np.ndarray]:
    """Run all rows natively; compare the first and the last with NumPy's. Return the last carries."""
    one = [np.empty_like(value[:1]) for value in stacked]
    after = run_natively(body, 1, moving, one, first)
    check_row([*[value[None] for value in after], *one],
              [*step.carries, *[y for y in step.ys if not is_constant(y)]], 0, "scan")
    if rows == 1:
        for value, row in zip(stacked, one, strict=True):
            value[...] = row
        return after
    before = run_natively(body, rows - 1, moving, [value[:-1] for value in stacked], first)
    last = run_natively(body, rows, moving, stacked, first)
    values = [(like_value(old, new), new) for old, new in zip(step.carries, before, strict=True)]
    again = trace_row(trace, step.call, [*values, *row_windows(ends, steps - 1)])[1]
    check_row([*[value[None] for value in last], *[value[-1:] for value in stacked]],
              [end for end in again if not is_constant(end)], 0, "scan")
    return last


def like_value(end: Any, array: np.ndarray) -> Any:
    if isinstance(value_of(end), np.ndarray):
        return array
    return array[()] if isinstance(value_of(end), np.generic) else array.item()


# --- derivatives -------------------------------------------------------------------------------------------
#
# The walk back through a repetition is a scan over its rows that runs each row again on variables. What all rows
# share (values from outside) has its cotangent in the carry.

def captured_in(inner: Trace, results: Sequence[Any]) -> list[Tracer]:
    """Return the traced values from outside that the results of a row are made of."""
    return captured(results, lambda x: x.owner is not inner, set())


def link_map(trace: Trace, call: Callable[[list[Any]], Any], walked: Sequence[tuple[Any, int]],
             outside: Sequence[Tracer], outputs: Sequence[Tracer]) -> None:
    ends, axes = [end for end, _ in walked], [axis for _, axis in walked]

    def pull(cotangents: list[Any], needed: list[bool]) -> list[Any]:
        wanted, shared = needed[:len(ends)], [x for x, want in zip(outside, needed[len(ends):], strict=True) if want]

        def step(totals: list[Any], x: Any) -> tuple[list[Any], list[Any]]:
            values, arrived = x
            inside = active()
            assert inside is not None
            mine = [variable(inside, value) if want else value for value, want in zip(values, wanted, strict=True)]
            with differentiating():
                results = [end for end in take_apart(call(mine))[0] if not is_constant(end)]
            return pulled_row(list(zip(results, arrived, strict=True)), [], mine, wanted, shared, totals)

        rows = [np.moveaxis(end, axis, 0) for end, axis in zip(ends, axes, strict=True)]
        totals, back = scan(step, zeros_of(shared), (rows, filled(cotangents, outputs)))
        moved = iter([np.moveaxis(each, 0, axis) for each, axis in
                      zip(back, [a for a, want in zip(axes, wanted, strict=True) if want], strict=True)])
        return spread(moved, iter(totals), needed, len(ends))

    trace.link("pulled", tuple(outputs), [*ends, *outside], pull=pull)


def pulled_row(results: Sequence[tuple[Any, Any]], carried: Sequence[Tracer], mine: Sequence[Any],
               wanted: Sequence[bool], shared: Sequence[Tracer], totals: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Pull cotangents back through one row; return the next carry (of carries, then totals) and those of the row."""
    own = [x for x, want in zip(mine, wanted, strict=True) if want]
    variables = [*carried, *shared, *own]
    found = [zero(x) if each is None else each for x, each in
             zip(variables, pull_back(list(results), variables), strict=True)]
    start, stop = len(carried), len(carried) + len(shared)
    sums = [total + each for total, each in zip(totals, found[start:stop], strict=True)]
    return [*found[:start], *sums], found[stop:]


def zero(x: Any) -> np.ndarray:
    return np.zeros(np.shape(value_of(x)), as_array(value_of(x)).dtype)


def zeros_of(values: Sequence[Any]) -> list[Any]:
    return [zero(x) for x in values]


def filled(cotangents: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    return [zero(y) if each is None else each for each, y in zip(cotangents, outputs, strict=True)]


def spread(moved: Iterator[Any], totals: Iterator[Any], needed: Sequence[bool], count: int) -> list[Any]:
    return [None if not want else next(moved if i < count else totals) for i, want in enumerate(needed)]


def scan_differentiated(trace: Trace, fn: Callable[..., Any], carry: Any, xs: Any, steps: int) -> tuple[Any, Any]:
    """Scan, keep the carry that each step begins with, and link the results to what pulls back through them."""
    ends, structure = ([], None) if xs is None else take_apart(xs)
    starts, form = take_apart(carry)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        after, y = fn(carry, x)
        return after, (y, carry)

    def row(i: int) -> Any:
        return None if xs is None else put_together(structure, iter([end[i] for end in ends]))

    last, ys = scan_traced(trace, step, carry, ends, structure, row, steps)
    lasts, (ys_ends, ys_form) = take_apart(last)[0], take_apart(ys)
    inner, results, _ = trace_row(trace, lambda values: fn(
        put_together(form, iter(values[:len(starts)])),
        None if xs is None else put_together(structure, iter(values[len(starts):]))),
        [*map(carry_window, starts), *row_windows(ends, 0)])
    outside = captured_in(inner, results)
    fresh = [Tracer(trace, x.value, trace.own(x)) if is_traced(x) else x for x in (*lasts, *ys_ends)]
    kept = fresh[len(fresh) - len(starts):]
    rebuild = None if xs is None else structure

    def pull(cotangents: list[Any], needed: list[bool]) -> list[Any]:
        return pull_scan(step, form, rebuild, xs is None, kept, ends, outside, fresh, cotangents, needed)

    trace.link("pulled", tuple(x for x in fresh if is_traced(x)), [*starts, *ends, *outside], pull=pull)
    return (put_together(form, iter(fresh[:len(lasts)])), put_together(ys_form, iter(fresh[len(lasts):]))[0])


def pull_scan(fn: Callable[..., Any], form: Any, structure: Any, no_xs: bool, kept: Sequence[Any],
              ends: Sequence[Any], outside: Sequence[Tracer], fresh: Sequence[Any], cotangents: list[Any],
              needed: list[bool]) -> list[Any]:
    """Scan backwards over the carries that the steps began with; `fresh` has the last carries, then the ys."""
    ncarries = len(kept)
    given = iter(cotangents)
    arrived = [next(given) if is_traced(x) else None for x in fresh]
    moving = [is_inexact(x) for x in fresh[:ncarries]]
    wanted = needed[ncarries:ncarries + len(ends)]
    shared = [x for x, want in zip(outside, needed[ncarries + len(ends):], strict=True) if want]
    last = filled([g for g, moves in zip(arrived, moving, strict=False) if moves],
                  [x for x, moves in zip(fresh, moving, strict=False) if moves])
    ys = [i for i in range(ncarries, len(fresh)) if arrived[i] is not None]

    def step(state: list[Any], x: Any) -> tuple[list[Any], list[Any]]:
        kept_now, values, back = x
        inside = active()
        begun = [variable(inside, value) if moves else value for value, moves in zip(kept_now, moving, strict=True)]
        mine = [variable(inside, value) if want else value for value, want in zip(values, wanted, strict=True)]
        with differentiating():
            after, y = fn(put_together(form, iter(begun)),
                          None if no_xs else put_together(structure, iter(mine)))
        results = [*take_apart(after)[0], *take_apart(y)[0]]
        carried = [each for each, moves in zip(begun, moving, strict=True) if moves]
        pairs = list(zip([r for r, moves in zip(results, moving, strict=False) if moves], state, strict=False))
        pairs += zip([results[i] for i in ys], back, strict=True)
        return pulled_row(pairs, carried, mine, wanted, shared, state[len(carried):])

    rows = ([each[::-1] for each in kept], [end[::-1] for end in ends],
            [back[::-1] for i, back in enumerate(arrived) if i in ys and back is not None])
    state, back = scan(step, [*last, *zeros_of(shared)], rows)
    carries = iter(state[:sum(moving)])
    first = [next(carries) if moves else None for moves in moving]
    rest = spread(iter([each[::-1] for each in back]), iter(state[sum(moving):]), needed[ncarries:], len(ends))
    return [g if want else None for g, want in zip(first, needed, strict=False)] + rest
