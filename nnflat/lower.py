"""Lower an operation to instructions: which inner loop runs over which axes.

NumPy plans: the axes come from NumPy's own iterator over stand-ins, with the flags of the ufunc machinery. What it
buffers (casts, unaligned or reversed reductions, the few loops whose bits depend on strides) is replayed as that
iterator; the rest becomes a loop over its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from nnflat._loops import (
    Loop,
    address,
    arg_loop,
    cast_loop,
    checked_loop,
    copy_loop,
    draw_loop,
    fold_loop,
    gather_loop,
    select_loop,
    ufunc_loop,
)
from nnflat._replay import Call, Form, Iterator, Repeat
from nnflat.tape import Buffer, Operation, Window, view_window

EXTERNAL_LOOP, REFS_OK, ZEROSIZE_OK, REDUCE_OK = 0x8, 0x20, 0x40, 0x80
BUFFERED, GROWINNER, DELAY_BUFALLOC, DONT_NEGATE_STRIDES = 0x200, 0x400, 0x800, 0x1000
READWRITE, READONLY, WRITEONLY, ALIGNED = 0x10000, 0x20000, 0x40000, 0x100000
NO_BROADCAST, ASSUME_ELEMENTWISE = 0x8000000, 0x40000000
UFUNC_ITERATOR = EXTERNAL_LOOP | REFS_OK | ZEROSIZE_OK | BUFFERED | GROWINNER | DELAY_BUFALLOC
REDUCE_ITERATOR = UFUNC_ITERATOR | REDUCE_OK | DONT_NEGATE_STRIDES

STRIDE_BITS = {"power", "float_power", "fmin", "fmax"}     # the last two: the sign of zero where both signs meet
REVERSED_BITS = {"multiply", "square", "absolute"}


@dataclass(eq=False, slots=True)
class Instruction:
    """What `_replay` runs; operands are (buffer, byte offset), outputs last."""

    action: str
    name: str
    operands: list[tuple[Any, int]]
    writes: tuple[int, ...]
    loop: Loop | None = None
    dims: Sequence[int] = ()
    strides: Sequence[int] = ()
    outer: Sequence[int] = ()
    steps: Sequence[int] = ()
    first: bool = False
    errstate: dict[str, str] = field(default_factory=dict)
    helper: Any = None
    elementwise: bool = False
    chain: int = 1
    chained: bool = False
    local: int = 0
    work: int = 0


find_loop = lru_cache(maxsize=4096)(ufunc_loop)


def loop_of(operation: Operation) -> Loop:
    loop = find_loop(operation.ufunc, operation.signature)
    if loop is None:
        raise TypeError(f"{operation.name} has no loop {operation.signature}")
    return loop


def lower(operation: Operation) -> list[Instruction]:
    """Return the instructions of an operation; none where it touches no element."""
    instructions = LOWERINGS[operation.kind](operation)
    for instruction in instructions:
        instruction.errstate = operation.errstate
    return instructions


# --- axes --------------------------------------------------------------------------------------------------

def axes_of(windows: Sequence[Window], nwrites: int, **options: Any) -> tuple[list[np.ndarray], list[int]]:
    """Return NumPy's coalesced views over stand-ins, outermost axis first, and how far each moved its start."""
    standins = [window.standin() for window in windows]
    flags = [["readonly"]] * (len(windows) - nwrites) + [["readwrite"]] * nwrites
    options = {"op_flags": flags, "flags": ["external_loop", "zerosize_ok", "reduce_ok"], "order": "K", **options}
    views = np.nditer(standins, **options).itviews
    moved = [address(view) - address(standin) for view, standin in zip(views, standins, strict=True)]
    return list(views), moved


def over_axes(name: str, loop: Loop, windows: Sequence[Window], views: list[np.ndarray], moved: list[int],
              **settings: Any) -> Instruction:
    """Make the loop over the axes of `views`: the last one inside, the others around it."""
    shape = views[0].shape
    inner = shape[-1:] or (1,)
    strides = [(view.strides or (0,))[-1] for view in views]
    steps = [view.strides[axis] for axis in range(len(shape) - 1) for view in views]
    operands = [(window.buffer, window.offset + move) for window, move in zip(windows, moved, strict=True)]
    settings = {"strides": strides, **settings}
    return Instruction("loop", name, operands, loop=loop, dims=inner, outer=shape[:-1],
                       steps=steps, work=prod(shape), **settings)


def single_strides(windows: Sequence[Window], nwrites: int, kinds: tuple[str, ...]) -> list[int]:
    """Return the strides that NumPy gives a ufunc's loop for one element: complex loops and power look at them.

    A scalar alone that gives its own dtype has a way of its own in newer NumPy: all are 0. So they are with two
    outputs, and where the shapes differ. Else NumPy goes without an iterator, and a 0-d input, scalars included,
    counts as broadcast.
    """
    output = windows[-1]
    alone = len(windows) == 2 and kinds in {("scalar",), ("number",)} and windows[0].dtype == output.dtype
    if (alone and scalars_go_alone()) or nwrites > 1 or len({window.shape for window in windows if window.shape}) > 1:
        return [0] * len(windows)
    strides = [window.strides[0] if len(window.shape) == 1 else window.dtype.itemsize for window in windows]
    return [stride if window.shape or window is output else 0
            for window, stride in zip(windows, strides, strict=True)]


@lru_cache(maxsize=1)
def scalars_go_alone() -> bool:
    """Whether a scalar goes another way through a unary ufunc than a 0-d array, seen by how complex squares round."""
    values = np.linspace(0.1, 1.9, 64) * np.exp(1j)
    np.square(values[0])                # NumPy takes that way from the second call on
    return any(np.square(z) != np.square(np.asarray(z)) for z in values)


# --- elementwise -------------------------------------------------------------------------------------------

def elementwise(name: str, loop: Loop, windows: Sequence[Window], nwrites: int = 1,
                kinds: tuple[str, ...] = ()) -> Instruction:
    views, moved = axes_of(windows, nwrites)
    writes = tuple(range(len(windows) - nwrites, len(windows)))
    single = {"strides": single_strides(windows, nwrites, kinds)} if windows[-1].size == 1 else {}
    return over_axes(name, loop, windows, views, moved, writes=writes, elementwise=True, **single)


def iterate_elementwise(name: str, loop: Loop, windows: Sequence[Window], dtypes: list[np.dtype],
                        nwrites: int = 1) -> Instruction:
    nin = len(windows) - nwrites
    flags = [READONLY | ALIGNED | ASSUME_ELEMENTWISE] * nin
    flags += [WRITEONLY | ALIGNED | NO_BROADCAST | ASSUME_ELEMENTWISE] * nwrites
    iterator = Iterator([axis_added(window).standin() for window in windows], UFUNC_ITERATOR, flags, dtypes)
    return Instruction("iterate", name, [(window.buffer, window.offset) for window in windows],
                       tuple(range(nin, len(windows))), loop=loop, helper=iterator, work=windows[-1].size)


def axis_added(window: Window) -> Window:
    """Return a 0-d window as one of an axis of size 1: NumPy's iterator buffers nothing that is 0-d."""
    return window if window.shape else replace(window, shape=(1,), strides=(window.dtype.itemsize,))


def lower_ufunc(operation: Operation) -> list[Instruction]:
    windows = operation.inputs + operation.outputs
    if operation.outputs[0].size == 0:
        return []
    loop = loop_of(operation)
    dtypes = [np.dtype(char) for char in operation.signature.replace("->", "")]
    nwrites = len(operation.outputs)
    if needs_iterator(operation, dtypes):
        return [iterate_elementwise(operation.name, loop, windows, dtypes, nwrites)]
    return [elementwise(operation.name, loop, windows, nwrites, operation.kinds)]


def needs_iterator(operation: Operation, dtypes: list[np.dtype]) -> bool:
    windows = operation.inputs + operation.outputs
    if any(window.dtype != dtype or not window.aligned for window, dtype in zip(windows, dtypes, strict=True)):
        return True
    name = operation.ufunc.__name__
    if operation.outputs[0].size == 1:
        return False
    if name in STRIDE_BITS:
        return not trivial(windows)
    return name in REVERSED_BITS and dtypes[0].kind == "c" and any(s < 0 for w in windows for s in w.strides)


def trivial(windows: Sequence[Window]) -> bool:
    """Whether NumPy runs one inner loop with no iterator: operands of one contiguous layout, or 0-d."""
    output = windows[-1]
    return all(window.shape == () or (window.shape == output.shape and window.strides == output.strides)
               for window in windows) and dense(output)


def dense(window: Window) -> bool:
    array = window.standin()
    return array.flags.forc


def lower_checked(operation: Operation) -> list[Instruction]:
    """Lower integer arithmetic that notices an overflow; the name ends with what is done."""
    loop = checked_loop(operation.name.split()[-1])
    return [elementwise(operation.name, loop, operation.inputs + operation.outputs)]


# --- reductions --------------------------------------------------------------------------------------------

def lower_reduce(operation: Operation) -> list[Instruction]:
    source, target = operation.inputs[0], operation.outputs[0]
    if target.size == 0:
        return []
    loop = loop_of(operation)
    dtype = np.dtype(operation.signature[0])
    identity = operation.ufunc.identity
    first = identity is None
    if first:
        start = copy(first_slice(source, operation.axes), drop_axes(target, operation.axes, source))
    else:
        start = copy(fill_window(identity, target), target)
    if source.size == 0 or (first and source.size == target.size):
        return [start]
    return [start, reduce_loop(operation, loop, source, drop_axes(target, operation.axes, source), dtype, first)]


def fill_window(value: Any, target: Window) -> Window:
    array = np.array(value).astype(target.dtype)
    return view_window(Buffer("constant", array.nbytes, array), 0, array)


def first_slice(source: Window, axes: tuple[int, ...]) -> Window:
    keep = [axis for axis in range(len(source.shape)) if axis not in axes]
    return Window(source.buffer, source.offset, tuple(source.shape[axis] for axis in keep),
                  tuple(source.strides[axis] for axis in keep), source.dtype, source.aligned)


def drop_axes(target: Window, axes: tuple[int, ...], source: Window) -> Window:
    """Return the result without the axes of size 1 that keepdims gave it."""
    return first_slice(target, axes) if len(target.shape) == len(source.shape) and axes else target


def reduce_loop(operation: Operation, loop: Loop, source: Window, target: Window, dtype: np.dtype,
                first: bool) -> Instruction:
    if source.shape == ():
        source, target = axis_added(source), axis_added(target)
    kept = iter(range(len(target.shape)))
    op_axes = [[-1 if axis in operation.axes else next(kept) for axis in range(len(source.shape))],
               list(range(len(source.shape)))]
    windows = [target, source]
    if source.dtype == dtype and source.aligned and all(stride >= 0 for stride in source.strides):
        views, moved = axes_of(windows, 1, op_axes=op_axes, op_flags=[["readwrite"], ["readonly"]])
        if sum(stride == 0 for stride in views[0].strides) < 2:
            return over_axes("reduce", loop, [*windows, target], [*views, views[0]], [*moved, moved[0]],
                             writes=(0, 2), first=first)
    flags = [READWRITE | ALIGNED, READONLY | ALIGNED | NO_BROADCAST]
    iterator = Iterator([window.standin() for window in windows], REDUCE_ITERATOR, flags, [dtype, dtype], op_axes)
    return Instruction("iterate", "reduce", [(window.buffer, window.offset) for window in windows], (0,),
                       loop=loop, dims=(1,), first=first, helper=iterator, work=source.size)


def lower_accumulate(operation: Operation) -> list[Instruction]:
    source, target = operation.inputs[0], operation.outputs[0]
    axis = operation.axes[0]
    if target.size == 0:
        return []
    count = source.shape[axis] - 1
    start = copy(first_slice(source, (axis,)), first_slice(target, (axis,)))
    if count == 0:
        return [start]
    loop = loop_of(operation)
    windows = [target, source, target]
    others = [other for other in range(len(source.shape)) if other != axis]
    offsets = [0, source.strides[axis], target.strides[axis]]
    return [start, Instruction(
        "loop", "accumulate", [(w.buffer, w.offset + move) for w, move in zip(windows, offsets, strict=True)],
        (0, 2), loop=loop, dims=(count,), strides=[window.strides[axis] for window in windows],
        outer=[source.shape[other] for other in others],
        steps=[window.strides[other] for other in others for window in windows], work=source.size)]


def lower_extremum(operation: Operation) -> list[Instruction]:
    """Lower argmax or argmin along the last axis of a contiguous source."""
    source, target = operation.inputs[0], operation.outputs[0]
    if target.size == 0:
        return []
    row = source.shape[-1]
    return [Instruction("loop", operation.name, [(source.buffer, source.offset), (target.buffer, target.offset)], (1,),
                        loop=arg_loop(operation.name, source.dtype), dims=(target.size, row),
                        strides=(row * source.dtype.itemsize, target.dtype.itemsize), work=source.size)]


# --- products ----------------------------------------------------------------------------------------------

def lower_gufunc(operation: Operation) -> list[Instruction]:
    """Lower a generalised ufunc: core dimensions inside, all others around; the last of those is the loop's."""
    windows = operation.inputs + operation.outputs
    if operation.outputs[0].size == 0:
        return []
    loop = loop_of(operation)
    cores = core_dimensions(operation.ufunc.signature, windows)
    sizes: dict[str, int] = {}
    inner_strides: list[int] = []
    for window, core in zip(windows, cores, strict=True):
        present = [name for name, there in core if there]
        start = len(window.shape) - len(present)
        at = dict(zip(present, range(start, len(window.shape)), strict=True))
        for name, there in core:
            sizes[name] = window.shape[at[name]] if there else sizes.get(name, 1)
            inner_strides.append(window.strides[at[name]] if sizes[name] != 1 else 0)      # as NumPy does
    around = [len(window.shape) - sum(there for _, there in core) for window, core in zip(windows, cores, strict=True)]
    shape = operation.outputs[0].shape[:around[-1]]
    moves = [outer_strides(window, count, len(shape)) for window, count in zip(windows, around, strict=True)]
    last = shape[-1] if shape else 1
    return [Instruction(
        "loop", operation.name, [(window.buffer, window.offset) for window in windows],
        tuple(range(len(operation.inputs), len(windows))), loop=loop,
        dims=[last, *sizes.values()],         # in the order in which the signature first names them
        strides=[move[-1] if shape else 0 for move in moves] + inner_strides,
        outer=shape[:-1], steps=[move[axis] for axis in range(len(shape) - 1) for move in moves],
        work=prod(shape) * prod(sizes.values()) // 4)]


def core_dimensions(signature: str, windows: Sequence[Window]) -> list[list[tuple[str, bool]]]:
    """Return, an operand, its core dimensions and whether they are there (`n?` may be missing)."""
    groups = [group.strip("()").split(",") for group in signature.replace("->", "),(").replace(" ", "").split("),(")]
    names = [[name for name in group if name] for group in groups]
    inputs = zip(names[:signature.split("->")[0].count("(")], windows, strict=False)
    missing = {name for group, window in inputs if len(window.shape) < len(group)
               for name in group if name.endswith("?")}
    return [[(name, name not in missing) for name in group] for group in names]


def outer_strides(window: Window, count: int, ndim: int) -> list[int]:
    """Return the strides of the first `count` axes, 0 where they are broadcast to `ndim`."""
    sizes = zip(window.shape[:count], window.strides[:count], strict=True)
    own = [0 if size == 1 else stride for size, stride in sizes]
    return [0] * (ndim - count) + own


# --- moving cells ------------------------------------------------------------------------------------------

def copy(source: Window, target: Window) -> Instruction:
    """Copy, casting where the dtypes differ, broadcasting where the shapes do."""
    windows = (source, target)
    if source.dtype == target.dtype:
        size = source.dtype.itemsize
        return elementwise("copy", copy_loop(size, source.aligned), windows)
    loop = cast_loop(source.dtype.str[1:], target.dtype.str[1:])
    if loop is not None and source.aligned and source.dtype.isnative and target.dtype.isnative:
        return elementwise("cast", loop, windows)
    return iterate_elementwise("cast", copy_loop(target.dtype.itemsize), windows, [target.dtype] * 2)


def lower_copy(operation: Operation) -> list[Instruction]:
    return [copy(operation.inputs[0], operation.outputs[0])] if operation.outputs[0].size else []


def lower_select(operation: Operation) -> list[Instruction]:
    target = operation.outputs[0]
    if target.size == 0:
        return []
    return [elementwise("where", select_loop(target.dtype.itemsize), (*operation.inputs, target))]


def lower_gather(operation: Operation) -> list[Instruction]:
    source, table = operation.inputs
    target = operation.outputs[0]
    if target.size == 0:
        return []
    fixed = Window(source.buffer, source.offset, (), (), source.dtype, source.aligned)
    return [elementwise("take", gather_loop(target.dtype.itemsize), (fixed, table, target))]


def lower_take(operation: Operation) -> list[Instruction]:
    """Lower rows of a source by index; a row is one piece of memory, and so is the index."""
    source, index = operation.inputs
    target = operation.outputs[0]
    if target.size == 0:
        return []
    row = target.size // index.size * target.dtype.itemsize
    return [Instruction("take", "take", [(w.buffer, w.offset) for w in (source, index, target)], (2,),
                        dims=(index.size, source.shape[0], row), strides=(source.strides[0], index.dtype.itemsize, row),
                        work=target.size)]


# --- draws -------------------------------------------------------------------------------------------------

def lower_draw(operation: Operation) -> list[Instruction]:
    key, target = operation.inputs[0], operation.outputs[0]
    if target.size == 0:
        return []
    size = target.dtype.itemsize
    return [Instruction("loop", operation.name, [(key.buffer, key.offset), (target.buffer, target.offset)], (1,),
                        loop=draw_loop(operation.name, size), dims=(target.size,), strides=(0, size),
                        work=4 * target.size)]


def lower_fold(operation: Operation) -> list[Instruction]:
    key, number, target = operation.inputs + operation.outputs
    return [elementwise("fold", fold_loop(number.dtype.kind), (key, number, target))] if target.size else []


# --- what has no loop --------------------------------------------------------------------------------------

def lower_call(operation: Operation) -> list[Instruction]:
    windows = operation.inputs + operation.outputs
    forms = [Form(kind, window.dtype, window.shape, window.strides)
             for kind, window in zip(operation.kinds, windows, strict=True)]
    nin = len(operation.inputs)
    helper = Call(operation.function, tuple(forms[:nin]), tuple(forms[nin:]))
    return [Instruction("call", operation.name, [(window.buffer, window.offset) for window in windows],
                        tuple(range(nin, len(windows))), helper=helper, work=10_000)]


def lower_repeat(operation: Operation) -> list[Instruction]:
    inner = operation.inner
    return [Instruction("repeat", operation.name, [(window.buffer, window.offset) for window in inner.operands],
                        inner.writes, dims=(inner.rows, inner.moving, inner.carries), strides=inner.strides,
                        outer=inner.buffers, helper=Repeat(inner.plan.replay),
                        work=inner.rows * inner.plan.replay.work)]


LOWERINGS: dict[str, Callable[[Operation], list[Instruction]]] = {
    "ufunc": lower_ufunc,
    "checked": lower_checked,
    "reduce": lower_reduce,
    "accumulate": lower_accumulate,
    "extremum": lower_extremum,
    "gufunc": lower_gufunc,
    "copy": lower_copy,
    "where": lower_select,
    "gather": lower_gather,
    "take": lower_take,
    "draw": lower_draw,
    "fold": lower_fold,
    "call": lower_call,
    "repeat": lower_repeat,
}
