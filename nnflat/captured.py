"""The arrays that a function closes over, made traced values while it is traced.

`2 * weight` is computed by NumPy before it meets an argument: were `weight` a plain array there, the product would
be a constant of the tape, and a later change of the weight would go unseen. So a function is traced as a copy of
itself whose closure, globals, defaults and bound object hold traced values in the place of arrays. A read-only array
that owns its memory cannot change and stays what it is: so a mask or a table of indices may be frozen on purpose.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nnflat._replay import Caller
from nnflat.trace import Trace
from nnflat.tree import children_of, node_type

LIBRARIES = {"numpy", "scipy", "nnflat", "builtins"}


def with_traced_arrays(fn: Callable[..., Any], trace: Trace) -> Callable[..., Any]:
    """Return a copy of the function that has traced values for its arrays; the function itself where it has none."""
    return Capture(trace).copy(fn)


class Capture:
    """One walk through what a function refers to. `done` has the copy of each object, so that cycles end."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.done: dict[int, Any] = {}
        self.seen: list[Any] = []

    def copy(self, x: Any) -> Any:
        if id(x) not in self.done:
            self.seen.append(x)             # an id holds as long as its object lives
            self.done[id(x)] = x
            self.done[id(x)] = self.make(x)
        return self.done[id(x)]

    def make(self, x: Any) -> Any:
        if type(x) is np.ndarray:
            return self.trace.live(x) if can_change(x) else x
        if isinstance(x, types.FunctionType):
            return self.function(x)
        if isinstance(x, types.MethodType):
            owner = self.copy(x.__self__)
            return x if owner is x.__self__ else types.MethodType(x.__func__, owner)
        if isinstance(x, functools.partial):
            parts = self.copy((x.func, x.args, x.keywords))
            return x if parts == (x.func, x.args, x.keywords) else functools.partial(parts[0], *parts[1], **parts[2])
        if isinstance(x, Caller):
            return self.copy(x.fn)
        return self.node(x)

    def node(self, x: Any) -> Any:
        kind = node_type(type(x))
        if kind is None:
            return x
        children = children_of(x, kind)
        copies = {key: child if key in kind.static else self.copy(child) for key, child in children.items()}
        same = all(copies[key] is child for key, child in children.items())
        return x if same else kind.rebuild(type(x), copies, kind.aux(x))

    def function(self, fn: types.FunctionType) -> Any:
        if (fn.__module__ or "").split(".")[0] in LIBRARIES:
            return fn
        cells = tuple(self.cell(cell) for cell in fn.__closure__ or ())
        names = {name: fn.__globals__[name] for name in names_of(fn.__code__) if name in fn.__globals__}
        replaced = {name: self.copy(value) for name, value in names.items()}
        defaults = self.copy(fn.__defaults__)
        changed = {name: value for name, value in replaced.items() if value is not names[name]}
        if not changed and defaults is fn.__defaults__ and all(a is b for a, b in zip(cells, fn.__closure__ or (),
                                                                                     strict=True)):
            return fn
        copied = types.FunctionType(fn.__code__, {**fn.__globals__, **changed} if changed else fn.__globals__,
                                    fn.__name__, defaults, cells)
        copied.__kwdefaults__ = self.copy(fn.__kwdefaults__)
        return copied

    def cell(self, cell: types.CellType) -> types.CellType:
        try:
            content = cell.cell_contents
        except ValueError:                  # a name that has no value yet
            return cell
        copied = self.copy(content)
        return cell if copied is content else types.CellType(copied)


def can_change(array: np.ndarray) -> bool:
    return array.dtype.kind in "biufc" and (array.flags.writeable or not array.flags.owndata)


def names_of(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function, or a function written inside it, refers to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)
