"""Back from a view to what it is a view of: cotangents of windows put together.

A view is known by its memory (offset, shape, strides), not by the function that made it. A permutation of axes is
undone by a permutation, broadcast axes are summed, windows that are apart are copied into one array, and what is left
(overlapping windows, views of what is not dense) adds its elements one by one, by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat.context import active
from nnflat.tape import address
from nnflat.tracer import Tracer, as_array, is_traced, value_of
from nnflat.values import split


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """The cotangent of a window of an array that is dense in memory; its offset is in bytes."""

    cotangent: Any
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return this window of an array that is laid out as the one that was viewed."""
        memory = array if array.flags.c_contiguous else array.T
        return np.ndarray(self.shape, array.dtype, memory, self.offset, self.strides)


# --- one view ----------------------------------------------------------------------------------------------

def undo_view(g: Any, view: Tracer, base: Tracer) -> Any:
    """Return the cotangent of the base from that of a view of it: whole, or a View where it is a part."""
    mine, its = as_array(view.value), as_array(base.value)
    if mine.size == its.size and address(mine) == address(its):
        if mine.shape == its.shape and same_places(mine, its):
            return g
        if mine.flags.c_contiguous and its.flags.c_contiguous:
            return reshape(g, its.shape)
        axes = permutation(mine, its)
        if axes is not None:
            return reshape(reshape(g, [n for n in mine.shape if n != 1]).transpose(axes), its.shape)
    broadcast = tuple(axis for axis in range(mine.ndim) if mine.shape[axis] > 1 and mine.strides[axis] == 0)
    if broadcast:
        g = np.sum(g, axis=broadcast, keepdims=True)
        mine = mine[tuple(slice(0, 1) if axis in broadcast else slice(None) for axis in range(mine.ndim))]
        if mine.size == its.size and np.size(g) == its.size and mine.flags.c_contiguous and its.flags.c_contiguous:
            return reshape(g, its.shape)
    window = View(g, address(mine) - address(its), mine.shape, mine.strides)
    if its.flags.forc and apart(window, its):
        return window
    return scatter(g, numbers_of(mine, its), its.shape)


def same_places(a: np.ndarray, b: np.ndarray) -> bool:
    return all(s == t for n, s, t in zip(a.shape, a.strides, b.strides, strict=True) if n > 1)


def permutation(view: np.ndarray, base: np.ndarray) -> list[int] | None:
    """Return which axes of the view, those of size 1 left out, are the axes of the base."""
    mine = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    its = [(n, s) for n, s in zip(base.shape, base.strides, strict=True) if n != 1]
    if sorted(mine) != sorted(its) or len(set(its)) != len(its) or any(s == 0 for _, s in its):
        return None
    return [mine.index(axis) for axis in its]


def reshape(x: Any, shape: Sequence[int]) -> Any:
    if np.shape(value_of(x)) == tuple(shape):
        return x
    return x.reshape(shape) if np.ndim(value_of(x)) else x[(None,) * len(shape)]


def apart(window: View, base: np.ndarray) -> bool:
    """Whether no element of the base is twice in the window."""
    steps = sorted((abs(s), n) for n, s in zip(window.shape, window.strides, strict=True) if n > 1)
    reach = 0
    for step, n in steps:
        if step <= reach:
            return False
        reach += step * (n - 1)
    return True


def numbers_of(view: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Return for each element of a view its number in the base, counted in C order."""
    low = sum(min(0, (n - 1) * s) for n, s in zip(base.shape, base.strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(base.shape, base.strides, strict=True))
    places = np.full(high - low + 1, -1)
    spots = np.lib.stride_tricks.as_strided(places[-low:], base.shape, [8 * s for s in base.strides])
    spots[...] = np.arange(base.size).reshape(base.shape)
    start = address(view) - address(base) - low
    return np.lib.stride_tricks.as_strided(places[start:], view.shape, [8 * s for s in view.strides]).copy()


# --- many views --------------------------------------------------------------------------------------------

def assemble(base: Tracer, views: Sequence[View]) -> list[Any]:
    """Return cotangents of the base that add up to those of the views: as few as keep the windows apart."""
    groups: list[tuple[np.ndarray, list[View]]] = []
    for view in views:
        for covered, group in groups:
            if not view.of(covered).any():
                view.of(covered)[...] = True
                group.append(view)
                break
        else:
            covered = np.zeros_like(as_array(base.value), base.dtype)
            view.of(covered)[...] = 1
            groups.append((covered, [view]))
    return [inject(covered, group) for covered, group in groups]


def inject(covered: np.ndarray, views: Sequence[View]) -> Any:
    """Copy the views into one array; where there is none it is zero."""
    trace = active()
    assert trace is not None
    value = np.zeros_like(covered)
    output = trace.output(value)
    if not covered.all():
        trace.add("copy", "zeros", [trace.window(np.zeros((), value.dtype))], [output.window])
    for view in views:
        part = view.of(value)
        part[...] = value_of(view.cotangent)
        trace.add("copy", "concatenate", [trace.window(view.cotangent)], [output.window.over(part, value)])
    return trace.link("pulled", output, [view.cotangent for view in views],
                      pull=lambda cotangents, needed: [extract(cotangents[0], view, value) for view in views])


def extract(x: Any, view: View, like: np.ndarray) -> Any:
    """Return a window of x, which is first laid out as `like`."""
    trace = active()
    if not is_traced(x) or trace is None:
        dense = np.empty_like(like)
        dense[...] = x
        return view.of(dense)
    if x.value.strides != like.strides:
        x = trace.copy(x, arranged(x.value, like))
    return trace.view(x, view.of(x.value))


def arranged(value: np.ndarray, like: np.ndarray) -> np.ndarray:
    dense = np.empty_like(like)
    dense[...] = value
    return dense


# --- elements by their numbers -----------------------------------------------------------------------------

def moved_numbers(function: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return where the elements that a function moves came from."""
    numbers = np.arange(x.size).reshape(x.shape)
    trace = active()
    if trace is not None and any(is_traced(each) for each in [*args, *kwargs.values()]):
        return trace.call(function, (numbers, *args), kwargs)
    return function(numbers, *args, **kwargs)


def scatter(g: Any, numbers: Any, shape: tuple[int, ...]) -> Any:
    """Return an array of zeros to which the elements of g are added at their numbers."""
    size = int(np.prod(shape))
    if not is_traced(numbers):
        if not is_traced(g):
            return scatter_add(g, numbers, shape)
        if numbers.size == size and np.array_equal(np.sort(numbers, axis=None), np.arange(size)):
            return np.take(g, np.argsort(numbers, axis=None).reshape(shape))
    trace = active()
    assert trace is not None
    return trace.call(scatter_add, (g, numbers, shape), {})


def scatter_add(values: Any, numbers: Any, shape: tuple[int, ...]) -> np.ndarray:
    total = np.zeros(shape, np.asarray(values).dtype)
    np.add.at(total.reshape(-1), np.ravel(numbers), np.ravel(values))
    return total


def pick(x: Any, numbers: Any) -> Any:
    """Return the elements of x at their numbers. NumPy asks x alone whether it is traced."""
    return np.take(x, numbers) if is_traced(x) else call(np.take, x, numbers)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a plain function; on the tape, where an argument is traced."""
    trace = active()
    if trace is not None and any(is_traced(x) for x in split((args, kwargs))[0]):
        return trace.call(function, args, kwargs)
    return function(*args, **kwargs)
