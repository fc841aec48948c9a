"""Arguments and results of compiled functions: nested containers taken apart into their ends, and put together.

A structure is a value that hashes: (class, keys, structures of the children, what rebuild needs) for a node of a
tree, `None` for an end. What an end is (array, number, static) is the business of the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nnflat.tree import children_of, node_type

Structure = tuple[Any, ...] | None


def take_apart(value: Any) -> tuple[list[Any], Structure]:
    """Return the ends of a tree in walking order, and its structure."""
    ends: list[Any] = []
    return ends, walk(value, ends)


def walk(value: Any, ends: list[Any]) -> Structure:
    kind = None if hasattr(type(value), "__array_ufunc__") else node_type(type(value))
    if kind is None:
        ends.append(value)
        return None
    children = children_of(value, kind)
    return (type(value), tuple(children), tuple(walk(child, ends) for child in children.values()), kind.aux(value))


def put_together(structure: Structure, ends: Iterator[Any]) -> Any:
    """Make the tree of a structure, with the next of `ends` at each end."""
    if structure is None:
        return next(ends)
    cls, keys, parts, aux = structure
    kind = node_type(cls)
    children = [put_together(part, ends) for part in parts]
    if kind is None:
        raise TypeError(f"{cls.__qualname__} is no class of nodes here; register it with nnflat.tree.register")
    return kind.rebuild(cls, dict(zip(keys, children, strict=True)), aux)


def targets(out: Any, structure: Structure) -> tuple[Any, ...]:
    """Return the ends of `out`, which needs the structure of the result."""
    ends, given = take_apart(out)
    if given != structure:
        raise ValueError(f"out needs {described(structure)}, as the function gives; got {described(given)}")
    return tuple(ends)


def described(structure: Structure) -> str:
    if structure is None:
        return "an array"
    cls, keys, parts, _ = structure
    children = [f"{key}{f' ({described(part)})' * (part is not None)}" for key, part in zip(keys, parts, strict=True)]
    return f"a {cls.__name__} of {', '.join(children) or 'nothing'}"
