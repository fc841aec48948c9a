"""What must not hide in a tree: an array where no walk looks would be an empty vector, so it is an error."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Hashable, ItemsView, Iterator, ValuesView
from typing import Any

import numpy as np

from nnflat._foreign import foreign_array
from nnflat._names import Path, format_path
from nnflat._nodes import IMMUTABLE, attributes, is_taken, keeps_items


def refuse_hidden_arrays(value: object, path: Path) -> None:
    """Raise TypeError for a static that is, or holds, an array; the message names the path and the way out."""
    if _holds_nothing(value):
        return
    if hint := foreign_array(type(value)):
        raise TypeError(f"{format_path(path)} is a {type(value).__name__}, which is no NumPy array: {hint}")
    if isinstance(value, Iterator):
        raise TypeError(f"{format_path(path)} is an iterator, which can be walked only once: make it a list")
    if (inside := _first_array(value)) is not None:
        name = type(value).__qualname__
        options = ", children=, rebuild=" if keeps_items(type(value)) else ""
        advice = "use a dict or list instead" if is_taken(type(value)) else f"nnflat.tree.register({name}{options})"
        raise TypeError(
            f"{format_path(path)} is a {name} that holds an array at {format_path((*path, *inside))}, but {name} is no"
            f" class of nodes: {advice}, or name it in static= where it is no parameter"
        )


def _holds_nothing(value: object) -> bool:
    """Whether a static is known to hold no parameter: a plain value, a function, a generator of random numbers."""
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return isinstance(value.__self__, types.ModuleType | None)
    return isinstance(value, IMMUTABLE) or type(value).__module__.startswith("numpy.random")


def _first_array(value: object) -> Path | None:
    """Return the path, from `value`, of an array in its attributes and items, or None."""
    seen: set[int] = set()
    todo: deque[tuple[Path, Any]] = deque([((), value)])
    while todo:
        path, item = todo.popleft()
        if isinstance(item, np.ndarray) or foreign_array(type(item)):
            return path
        if id(item) in seen or _holds_nothing(item):
            continue
        seen.add(id(item))
        todo.extend(((*path, key), child) for key, child in _contents(item))
    return None


def _contents(item: Any) -> Iterator[tuple[Hashable, Any]]:
    if isinstance(item, (types.MethodType, types.BuiltinFunctionType)):
        yield "__self__", item.__self__
    if isinstance(item, functools.partial):
        yield from (("args", item.args), ("keywords", item.keywords))
    if isinstance(item, (dict, types.MappingProxyType)):
        yield from item.items()
    elif isinstance(item, (list, tuple, set, frozenset, deque, ValuesView, ItemsView)):
        yield from enumerate(item)
    yield from attributes(item).items()
