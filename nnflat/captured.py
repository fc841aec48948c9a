"""The arrays that a function closes over, made traced values while it is traced.

`2 * weight` is computed by NumPy before it meets an argument: were `weight` a plain array there, the product would
be a constant of the tape, and a later change of the weight would go unseen. So a function is traced as a copy of
itself whose closure, globals, defaults and bound object hold traced values in the place of arrays. A read-only array
that owns its memory cannot change and stays what it is: so a mask or a table of indices may be frozen on purpose.

A name, item or attribute on the way to a captured array may come to hold another one (`weight = weight - step`). Such
links are remembered, for a Watch over them. They refer to objects with attributes weakly or not at all: one that has a
program of its own as an attribute would keep its traces, and they it, for ever.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from nnflat._replay import Caller
from nnflat._walk import Watch
from nnflat.trace import Trace
from nnflat.tree import children_of, is_plain, node_type

Link = tuple[Any, int, Hashable, Any, Callable[..., Any] | None]       # as a Watch takes them
Held = tuple[Any, Any, Link | None]         # holder, what it holds, and the link where that can be bound anew

LIBRARIES = {"numpy", "scipy", "nnflat", "builtins"}


def with_traced_arrays(fn: Callable[..., Any], trace: Trace) -> Callable[..., Any]:
    """Return a copy of the function that has traced values for its arrays; the function itself where it has none."""
    capture = Capture(trace)
    trace.links = capture.links
    return capture.copy(fn)


def watch_over(links: Iterable[Held], arrays: Iterable[np.ndarray]) -> Watch | None:
    """Return a Watch over the links on the way to these arrays; None where nothing can be bound anew."""
    wanted = {id(array) for array in arrays}
    watched = []
    for holder, child, link in links:
        if id(child) in wanted:
            wanted.add(id(holder))
            watched += [] if link is None else [link]
    return Watch(watched) if watched else None


class Capture:
    """One walk through what a function refers to. `done` has the copy of each object, so that cycles end.

    `links` tell what holds what, the inner ones first.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.done: dict[int, Any] = {}
        self.seen: list[Any] = []
        self.links: list[Held] = []

    def copy(self, x: Any) -> Any:
        if id(x) not in self.done:
            self.seen.append(x)             # an id holds as long as its object lives
            self.done[id(x)] = x
            self.done[id(x)] = self.make(x)
        return self.done[id(x)]

    def held(self, holder: Any, child: Any, container: Any = None, key: Any = None, position: int = 0) -> Any:
        """Return the copy of what an object holds: for good, or under a key of a container."""
        copied = self.copy(child)
        bound_anew = container is not None and has_no_attributes(child)
        self.links.append((holder, child, (container, position, key, child, None) if bound_anew else None))
        return copied

    def make(self, x: Any) -> Any:
        if type(x) is np.ndarray:
            return self.trace.live(x) if can_change(x) else x
        if isinstance(x, types.FunctionType):
            return self.function(x)
        if isinstance(x, types.MethodType):
            owner = self.held(x, x.__self__)
            return x if owner is x.__self__ else types.MethodType(x.__func__, owner)
        if isinstance(x, functools.partial):
            whole = x.func, x.args, x.keywords
            func, args, keywords = parts = self.held(x, whole)
            return x if parts is whole else functools.partial(func, *args, **keywords)
        if isinstance(x, Caller):
            return self.held(x, x.fn)
        return self.node(x)

    def node(self, x: Any) -> Any:
        kind = node_type(type(x))
        if kind is None:
            return self.opaque(x)
        children = children_of(x, kind)
        container = None if kind.frozen or not is_plain(kind, x) else container_of(x)
        copies = {key: child if key in kind.static else self.held(x, child, container, key, position)
                  for position, (key, child) in enumerate(children.items())}
        same = all(copies[key] is child for key, child in children.items())
        return x if same else kind.rebuild(type(x), copies, kind.aux(x))

    def opaque(self, x: Any) -> Any:
        """Leave an object that is no tree as it is, but for the links to its own arrays."""
        attributes, container = getattr(x, "__dict__", None), container_of(x)
        for name, value in attributes.items() if type(attributes) is dict and container is not None else ():
            if type(value) is np.ndarray:
                self.links.append((x, value, (container, 0, name, value, None)))
        return x

    def function(self, fn: types.FunctionType) -> Any:
        if (fn.__module__ or "").split(".")[0] in LIBRARIES:
            return fn
        cells = tuple(self.cell(fn, cell) for cell in fn.__closure__ or ())
        names = {name: fn.__globals__[name] for name in names_of(fn.__code__) if name in fn.__globals__}
        replaced = {name: self.held(fn, value, fn.__globals__, name) for name, value in names.items()}
        defaults = self.held(fn, fn.__defaults__)
        changed = {name: value for name, value in replaced.items() if value is not names[name]}
        if not changed and defaults is fn.__defaults__ and all(a is b for a, b in zip(cells, fn.__closure__ or (),
                                                                                     strict=True)):
            return fn
        copied = types.FunctionType(fn.__code__, {**fn.__globals__, **changed} if changed else fn.__globals__,
                                    fn.__name__, defaults, cells)
        copied.__kwdefaults__ = self.held(fn, fn.__kwdefaults__)
        return copied

    def cell(self, fn: types.FunctionType, cell: types.CellType) -> types.CellType:
        try:
            content = cell.cell_contents
        except ValueError:                  # a name that has no value yet
            return cell
        copied = self.held(fn, content, cell)
        return cell if copied is content else types.CellType(copied)


def has_no_attributes(x: Any) -> bool:
    """Whether this is an array, a container, or a tree whose attributes are settled."""
    kind = node_type(type(x))
    return type(x) is np.ndarray or (kind is not None and (kind.frozen or isinstance(x, dict | list)))


def container_of(x: Any) -> Any:
    """Return what a Watch looks into for the children of an object; None where it has no weak references."""
    if isinstance(x, dict | list):
        return x
    try:
        return weakref.ref(x)
    except TypeError:
        return None


def can_change(array: np.ndarray) -> bool:
    return array.dtype.kind in "biufc" and (array.flags.writeable or not array.flags.owndata)


def names_of(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function, or a function written inside it, refers to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)
