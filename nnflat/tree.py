"""Trees of arrays: walk them, rebuild them, name the places in them. No numbers are touched here.

A tree is made of nodes (dict, list, tuple, namedtuple, dataclass, any class with the protocol or registered), whose
ends are leaves. A leaf is a NumPy array; one of inexact dtype is a parameter. Everything else is static: it is
carried along and never copied here.

 a. One walk (`flatten`) splits a tree into its structure, its parameters and its statics; one (`unflatten`) puts
    them together again. Every other function is these two.
 b. A structure is a value: nodes know their class and keys, ends are indices. It holds no array.
 c. What could hide an array (an unregistered object, an iterator, another library's tensor) is an error that names
    the path and the way out, never an empty vector.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from nnflat._hidden import refuse_hidden_arrays
from nnflat._names import Path, format_path, suggest
from nnflat._nodes import (
    IMMUTABLE,
    NodeType,
    attributes,
    children_of,
    is_builtin,
    is_plain,
    node_type,
    register,
    registered,
)
from nnflat._walk import Watch, Way

__all__ = [
    "IMMUTABLE",
    "NodeType",
    "Path",
    "attributes",
    "children_of",
    "flatten",
    "format_path",
    "items",
    "leaves",
    "map",
    "node_type",
    "register",
    "registered",
    "replace",
    "suggest",
    "unflatten",
    "watch",
    "way",
]

MAX_DEPTH = 100  # so that structures compare, hash and pickle within Python's recursion limit, too


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """The place of parameter number `index`."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class Static:
    """The place of static number `index`."""

    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of a structure: its class, its keys, and a Node, Leaf or Static for each."""

    cls: type
    keys: tuple
    children: tuple
    aux: Any = dataclasses.field(default=None, compare=False)


Structure = Node | Leaf | Static


@dataclasses.dataclass(slots=True)
class Flattened:
    """A tree taken apart: parameters and statics in walking order, each with its path."""

    structure: Structure
    paths: list[Path]
    leaves: list[np.ndarray]
    static_paths: list[Path]
    statics: list[Any]
    where: Callable[[Path, np.ndarray], bool] | None = None


# ---- the walk ----------------------------------------------------------------------------------------------------


def flatten(tree: object, where: Callable[[Path, np.ndarray], bool] | None = None) -> Flattened:
    """Take a tree apart into structure, parameters and statics; shares everything, copies nothing.

    Arrays of inexact dtype for which `where(path, leaf)` is false are statics, too.
    """
    flat = Flattened(Static(0), [], [], [], [], where)
    try:
        flat.structure = _visit(tree, (), flat, {})
    except RecursionError:
        raise ValueError("the tree is too deep for what is left of Python's recursion limit here") from None
    return flat


def _visit(value: Any, path: Path, flat: Flattened, active: dict[int, Path]) -> Structure:
    if isinstance(value, np.ndarray):
        return _visit_array(value, path, flat)
    kind = node_type(type(value))
    if kind is None:
        refuse_hidden_arrays(value, path)
        return _visit_static(value, path, flat)
    if id(value) in active:
        raise ValueError(f"{format_path(path)} is {format_path(active[id(value)])} again: a tree has no cycles")
    if len(path) >= MAX_DEPTH:
        raise ValueError(f"the tree is deeper than {MAX_DEPTH} levels at {format_path(path[:4])}...")
    active[id(value)] = path
    children = children_of(value, kind)
    places = tuple(
        [
            _visit_static(child, (*path, key), flat)
            if key in kind.static
            else _visit(child, (*path, key), flat, active)
            for key, child in children.items()
        ]
    )
    del active[id(value)]
    return Node(type(value), tuple(children), places, kind.aux(value))


def _visit_static(value: object, path: Path, flat: Flattened) -> Static:
    flat.static_paths.append(path)
    flat.statics.append(value)
    return Static(len(flat.statics) - 1)


def _visit_array(array: np.ndarray, path: Path, flat: Flattened) -> Leaf | Static:
    kind, cls = array.dtype.kind, array.__class__
    if kind == "O":
        raise TypeError(f"{format_path(path)} is an object array; a leaf needs numbers")
    if array.dtype.isbuiltin == 2:
        raise TypeError(f"{format_path(path)} is {array.dtype}, which is not NumPy's own; a leaf needs a dtype that is")
    plain = cls is np.ndarray or cls is np.memmap
    if not plain and (kind in "fc" or issubclass(cls, (np.ma.MaskedArray, np.matrix))):
        raise TypeError(f"{format_path(path)} is a {cls.__name__}; a leaf needs a plain array (np.asarray)")
    if kind not in "fc" or (flat.where is not None and not flat.where(path, array)):
        return _visit_static(array, path, flat)
    flat.paths.append(path)
    flat.leaves.append(array)
    return Leaf(len(flat.leaves) - 1)


def unflatten(structure: Structure, leaves: list, statics: list) -> Any:
    """Put a tree together again; shares the leaves and statics that it is given."""
    return way(structure, statics).build(leaves, statics)


def watch(tree: object, paths: list[Path]) -> tuple[Watch | None, list[Path]]:
    """Return a Watch over the containers that could re-bind what is on the way to `paths`, and its links' paths.

    Frozen containers are left out; None where no container is left.
    """
    links: dict[Path, tuple[Any, int, Hashable, Any, Callable | None]] = {}
    nodes: dict[Path, tuple[NodeType | None, dict, dict]] = {}
    for path in paths:
        node: Any = tree
        for end, key in enumerate(path, 1):
            above, here = path[: end - 1], path[:end]
            if above not in nodes:
                kind = node_type(type(node))
                children = children_of(node, kind) if kind else {}
                plain = kind is not None and is_plain(kind, node)
                again = children if plain or kind is None else children_of(node, kind)  # made anew at each call?
                positions = {
                    key: position for position, key in enumerate(children) if again.get(key) is children[key]
                }
                nodes[above] = kind, children, positions
            kind, children, positions = nodes[above]
            if here not in links and kind is not None and not kind.frozen and key in positions:
                plain = is_plain(kind, node)
                links[here] = node, positions[key], key, children[key], None if plain else kind.children
            node = children[key]
    return (Watch(list(links.values())) if links else None), list(links)


def way(structure: Structure, statics: Sequence[Any]) -> Way:
    """Return the Way through trees of a structure that carry statics of these classes."""
    queue = deque([Node(tuple, (0,), (structure,))])
    nodes = []
    numbers = 1
    while queue:
        node = queue.popleft()
        steps: list[tuple[Hashable, str, int, type | None]] = []
        for key, child in zip(node.keys, node.children, strict=True):
            if isinstance(child, Node):
                queue.append(child)
                steps.append((key, "node", numbers, None))
                numbers += 1
            elif isinstance(child, Leaf):
                steps.append((key, "leaf", child.index, None))
            else:
                steps.append((key, "static", child.index, _class_to_pass(node, key, statics[child.index])))
        nodes.append((node.cls, *_passage(node), steps))
    return Way(nodes)


def _class_to_pass(node: Node, key: Hashable, static: Any) -> type | None:
    """Return the class by which a Way knows a static again; None for an array, which may have become a parameter."""
    kind = node_type(node.cls)
    return None if isinstance(static, np.ndarray) and kind and key not in kind.static else type(static)


def _passage(node: Node) -> tuple[str, Callable | None, Callable | None]:
    """Return how a Way gets into a node: the access, the function for the children, and the one to make a node."""
    kind = node_type(node.cls)
    if kind is None:
        raise TypeError(f"{node.cls.__qualname__} is no class of nodes here: nnflat.tree.register it")
    if node.cls in (dict, list, tuple):
        return node.cls.__name__, None, None
    access = "dict" if is_builtin(node.cls) else "children"
    return access, kind.children, functools.partial(_rebuild, kind, node.cls, node.aux)


def _rebuild(kind: NodeType, cls: type, aux: Any, children: dict) -> Any:
    return kind.rebuild(cls, children, aux)


# ---- the verbs ---------------------------------------------------------------------------------------------------


def leaves(tree: object) -> list[np.ndarray]:
    """Return the parameters of a tree in order; the arrays themselves, no copies.

    >>> leaves({"weight": np.ones(2), "name": "a", "steps": np.array([3])})
    [array([1., 1.])]
    """
    return flatten(tree).leaves


def items(tree: object) -> list[tuple[Path, np.ndarray]]:
    """Return the parameters of a tree, each with its path; the arrays themselves, no copies.

    >>> items([np.ones(2)])
    [((0,), array([1., 1.]))]
    """
    flat = flatten(tree)
    return list(zip(flat.paths, flat.leaves, strict=True))


def map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Return a tree of the same structure with `fn(leaf, *leaves of rest)` in the place of each parameter.

    Trees in `rest` are matched by path. Statics come from the first tree, shared. `fn` is called once for an array
    that stands at several paths.

    Raises
    ------
    ValueError
        Where a tree in `rest` has no parameter at a path of the first, or one more.

    Examples
    --------
    >>> map(np.negative, {"a": np.ones(2), "b": "static"})
    {'a': array([-1., -1.]), 'b': 'static'}
    """
    flat = flatten(tree)
    others = [_matched(flat.paths, dict(items(other)), number) for number, other in enumerate(rest, 2)]
    made: dict[tuple[int, ...], Any] = {}
    results = []
    for group in zip(flat.leaves, *others, strict=True):
        key = tuple(id(leaf) for leaf in group)
        if key not in made:
            made[key] = fn(*group)
        results.append(made[key])
    return unflatten(flat.structure, results, flat.statics)


def _matched(paths: list[Path], found: dict[Path, np.ndarray], number: int) -> list[np.ndarray]:
    for path in found.keys() ^ set(paths):
        where = "has one more parameter" if path in found else "has no parameter"
        raise ValueError(f"tree {number} {where} at {format_path(path)}")
    return [found[path] for path in paths]


def replace(tree: Any, values: Mapping[Path | str, np.ndarray]) -> Any:
    """Return a tree with other arrays at the given paths (or printed names); all else is shared with `tree`.

    An array that stands at several paths is replaced at all of them.

    Raises
    ------
    KeyError
        For a path at which the tree has no parameter.
    TypeError
        For a value that is no array.

    Examples
    --------
    >>> replace({"a": np.ones(1), "b": np.ones(1)}, {"b": np.zeros(1)})
    {'a': array([1.]), 'b': array([0.])}
    """
    flat = flatten(tree)
    names = {format_path(path): index for index, path in enumerate(flat.paths)}
    index_of = names | {path: index for index, path in enumerate(flat.paths)}
    new: dict[int, tuple[Path | str, np.ndarray]] = {}
    for path, value in values.items():
        if path not in index_of:
            name = path if isinstance(path, str) else format_path(path)
            raise KeyError(f"the tree has no parameter at {name}{suggest(name, list(names))}")
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{path} needs an array; got {type(value).__name__}")
        other, earlier = new.setdefault(id(flat.leaves[index_of[path]]), (path, value))
        if earlier is not value:
            raise ValueError(f"{other} and {path} are one array in the tree; got two values for it")
    leaves = [new[id(leaf)][1] if id(leaf) in new else leaf for leaf in flat.leaves]
    return unflatten(flat.structure, leaves, flat.statics)
