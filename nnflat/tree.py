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
import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import Any

import numpy as np

from nnflat._foreign import defines, foreign_array
from nnflat._walk import Watch, Way

Path = tuple[Hashable, ...]

MAX_DEPTH = 100  # so that structures compare, hash and pickle within Python's recursion limit, too


@dataclasses.dataclass(frozen=True, slots=True)
class NodeType:
    """How the nodes of one class are taken apart and put together.

    `children(node)` gives a dict, or pairs, of key -> child in order; `rebuild(cls, children, aux)` makes a node
    without calling `__init__`; `aux(node)` is what rebuild needs beside the children. A frozen node cannot re-bind
    its children.
    """

    children: Callable[[Any], Any]
    rebuild: Callable[[type, dict, Any], Any]
    static: frozenset = frozenset()
    frozen: bool = False
    aux: Callable[[Any], Any] = lambda node: None


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


# ---- the classes of nodes ----------------------------------------------------------------------------------------


def _slot_names(cls: type) -> Iterator[str]:
    for base in reversed(cls.__mro__):
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            if name not in ("__dict__", "__weakref__"):
                yield name


def attributes(node: object) -> dict[str, Any]:
    """Return the attributes of an object itself: its `__slots__`, then its `__dict__`, in order."""
    slots = {name: getattr(node, name) for name in _slot_names(type(node)) if hasattr(node, name)}
    return slots | getattr(node, "__dict__", {})


def _set_attributes(node: Any, children: dict) -> Any:
    slots = set(_slot_names(type(node)))
    for name, child in children.items():
        if name in slots:
            object.__setattr__(node, name, child)
        else:
            node.__dict__[name] = child
    return node


def _rebuild_attributes(cls: type, children: dict, aux: None) -> object:
    return _set_attributes(object.__new__(cls), children)


def _rebuild_namedtuple(cls: type, children: dict, aux: None) -> object:
    values = list(children.values())
    fields = len(cls._fields)  # type: ignore[attr-defined]
    return _set_attributes(tuple.__new__(cls, values[:fields]), dict(list(children.items())[fields:]))


_LIST = NodeType(children=enumerate, rebuild=lambda cls, children, aux: cls(children.values()))
_TUPLE = dataclasses.replace(_LIST, frozen=True)
_NAMEDTUPLE = NodeType(
    children=lambda node: {**dict(zip(node._fields, node, strict=True)), **getattr(node, "__dict__", {})},
    rebuild=_rebuild_namedtuple,
    frozen=True,
)
_MAPPING = NodeType(children=dict, rebuild=lambda cls, children, aux: cls(children))
_BUILTIN: dict[type, NodeType] = {
    dict: _MAPPING,
    OrderedDict: _MAPPING,
    defaultdict: NodeType(
        children=dict,
        rebuild=lambda cls, children, aux: cls(aux, children),
        aux=lambda node: node.default_factory,
    ),
    list: _LIST,
    tuple: _TUPLE,
}
_ATTRIBUTES = NodeType(children=attributes, rebuild=_rebuild_attributes)
_FROZEN_ATTRIBUTES = dataclasses.replace(_ATTRIBUTES, frozen=True)

_exact: dict[type, NodeType] = dict(_BUILTIN)  # this very class
_inherited: dict[type, NodeType] = {}  # this class and those derived from it
_static_names: dict[type, frozenset] = {}  # for classes that are nodes by themselves


@functools.cache
def _protocol(frozen: bool) -> NodeType:
    return NodeType(
        children=operator.methodcaller("__tree_children__"),
        rebuild=lambda cls, children, aux: cls.__tree_rebuild__(children),  # type: ignore[attr-defined]
        frozen=frozen,
    )


def _by_nature(cls: type) -> NodeType | None:
    if defines(cls, "__tree_children__"):
        return _protocol(getattr(cls, "__tree_frozen__", False))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _NAMEDTUPLE
    if defines(cls, "__dataclass_fields__") and not _keeps_items(cls):
        return _FROZEN_ATTRIBUTES if cls.__dataclass_params__.frozen else _ATTRIBUTES  # type: ignore[attr-defined]
    return None


def node_type(cls: type) -> NodeType | None:
    """Return how nodes of class `cls` are walked, or None where `cls` is no class of nodes."""
    if cls in _exact:
        return _exact[cls]
    kind = next((_inherited[base] for base in cls.__mro__ if base in _inherited), None) or _by_nature(cls)
    static = frozenset().union(*(_static_names[base] for base in cls.__mro__ if base in _static_names))
    return dataclasses.replace(kind, static=static) if kind and static else kind


def children_of(node: object, kind: NodeType) -> dict:
    """Return the children of a node, key -> child, as a dict of their own."""
    given = kind.children(node)
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    children = dict(pairs)
    if len(children) < len(pairs):
        raise ValueError(f"a {type(node).__qualname__} has two children of one key: {[key for key, _ in pairs]}")
    return children


IMMUTABLE = (
    type(None), bool, int, float, complex, str, bytes, type, range, slice, type(Ellipsis),
    np.generic, np.dtype, np.ufunc, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
)  # fmt: skip


def register(
    cls: type | None = None,
    *,
    children: Callable[[Any], Any] | None = None,
    rebuild: Callable[[dict], Any] | None = None,
    static: Iterable[str] = (),
) -> Any:
    """Make a class a node of trees; use it as a call or as a decorator.

    Without `children` and `rebuild` the children are the attributes, `__slots__` first, then `__dict__` in order,
    and a rebuilt object gets them without a call of `__init__`; classes derived from `cls` are nodes, too.

    Parameters
    ----------
    cls : type
        The class. Left out where `register` is used as a decorator with options.
    children, rebuild : callable, optional
        `children(node)` gives a dict (or pairs) of key -> child; `rebuild(children)` makes a node of such a dict.
        Both or none. They hold for this very class.
    static : iterable of str
        The attributes (or keys) that are no parameters, whatever is in them. They are not looked into.

    Raises
    ------
    TypeError
        For an array, number or built-in class, which have their meaning already.

    Examples
    --------
    >>> import numpy as np
    >>> from nnflat import tree
    >>> @tree.register(static="mean")
    ... class Scaler:
    ...     def __init__(self):
    ...         self.scale, self.mean = np.ones(2), np.zeros(2)
    >>> tree.leaves(Scaler())
    [array([1., 1.])]
    """
    if cls is None:
        return functools.partial(register, children=children, rebuild=rebuild, static=static)
    names = frozenset((static,) if isinstance(static, str) else static)
    _refuse_registration(cls, children, rebuild)
    if children is not None and rebuild is not None:
        make = rebuild
        _exact[cls] = NodeType(children, lambda cls, children, aux: make(children), names)
        return cls
    if _by_nature(cls) is None:
        _inherited[cls] = _ATTRIBUTES
    _static_names[cls] = names
    return cls


def registered() -> list[type]:
    """Return the built-in classes of nodes and those that were registered."""
    return list({**_exact, **_inherited, **_static_names})


def _refuse_registration(cls: type, children: object, rebuild: object) -> None:
    if not isinstance(cls, type):
        raise TypeError(f"register needs a class; got {cls!r}")
    if _taken(cls) or foreign_array(cls):
        raise TypeError(f"{cls.__qualname__} cannot be registered as a node: it is a leaf, a static or built in")
    if (children is None) != (rebuild is None):
        raise TypeError(f"register({cls.__qualname__}) needs both children= and rebuild=, or neither")
    if children is None and _by_nature(cls) is None and _keeps_items(cls):
        raise TypeError(
            f"register({cls.__qualname__}) needs children= and rebuild=: it keeps items beside its attributes"
        )


def _taken(cls: type) -> bool:
    """Whether a class has its meaning already: it is built in, or NumPy's."""
    own = cls.__module__.partition(".")[0] in ("builtins", "numpy")
    return own or cls in _BUILTIN or issubclass(cls, (np.ndarray, *IMMUTABLE))


def _keeps_items(cls: type) -> bool:
    """Whether objects of a class hold more than their attributes."""
    return issubclass(cls, (dict, list, tuple, set, frozenset, deque))


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
        _refuse_hidden_arrays(value, path)
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
                plain = kind is not None and (kind.children is attributes or type(node) in _BUILTIN)
                again = children if plain or kind is None else children_of(node, kind)  # made anew at each call?
                positions = {
                    key: position for position, key in enumerate(children) if again.get(key) is children[key]
                }
                nodes[above] = kind, children, positions
            kind, children, positions = nodes[above]
            if here not in links and kind is not None and not kind.frozen and key in positions:
                plain = kind.children is attributes or type(node) in _BUILTIN
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
    access = "dict" if node.cls in _BUILTIN else "children"
    return access, kind.children, functools.partial(_rebuild, kind, node.cls, node.aux)


def _rebuild(kind: NodeType, cls: type, aux: Any, children: dict) -> Any:
    return kind.rebuild(cls, children, aux)


# ---- what must not hide in a tree --------------------------------------------------------------------------------


def _refuse_hidden_arrays(value: object, path: Path) -> None:
    if _holds_nothing(value):
        return
    if hint := foreign_array(type(value)):
        raise TypeError(f"{format_path(path)} is a {type(value).__name__}, which is no NumPy array: {hint}")
    if isinstance(value, Iterator):
        raise TypeError(f"{format_path(path)} is an iterator, which can be walked only once: make it a list")
    if (inside := _first_array(value)) is not None:
        name = type(value).__qualname__
        options = ", children=, rebuild=" if _keeps_items(type(value)) else ""
        advice = "use a dict or list instead" if _taken(type(value)) else f"nnflat.tree.register({name}{options})"
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


# ---- names -------------------------------------------------------------------------------------------------------


def format_path(path: Path) -> str:
    """Return the printed name of a path.

    >>> format_path(("layers", 0, "weight"))
    'layers[0].weight'
    """
    if not path:
        return "<root>"
    return "".join(
        f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]" for key in path
    ).removeprefix(".")


def suggest(name: object, names: list[str]) -> str:
    """Return the end of an error message that names what is there instead of `name`."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), names, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(names[:8]) or 'none'}"


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
