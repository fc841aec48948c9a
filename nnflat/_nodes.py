"""Nodes: how the containers of each class are taken apart and put together, and which classes are nodes at all."""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from nnflat._foreign import defines, foreign_array


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
    if defines(cls, "__dataclass_fields__") and not keeps_items(cls):
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
    if is_taken(cls) or foreign_array(cls):
        raise TypeError(f"{cls.__qualname__} cannot be registered as a node: it is a leaf, a static or built in")
    if (children is None) != (rebuild is None):
        raise TypeError(f"register({cls.__qualname__}) needs both children= and rebuild=, or neither")
    if children is None and _by_nature(cls) is None and keeps_items(cls):
        raise TypeError(
            f"register({cls.__qualname__}) needs children= and rebuild=: it keeps items beside its attributes"
        )


def is_taken(cls: type) -> bool:
    """Whether a class has its meaning already: it is built in, or NumPy's."""
    own = cls.__module__.partition(".")[0] in ("builtins", "numpy")
    return own or cls in _BUILTIN or issubclass(cls, (np.ndarray, *IMMUTABLE))


def keeps_items(cls: type) -> bool:
    """Whether objects of a class hold more than their attributes."""
    return issubclass(cls, (dict, list, tuple, set, frozenset, deque))


def is_builtin(cls: type) -> bool:
    """Whether a class is a container of Python itself."""
    return cls in _BUILTIN


def is_plain(kind: NodeType, node: object) -> bool:
    """Whether the children of a node are its items or attributes, which need no function to be found."""
    return kind.children is attributes or type(node) in _BUILTIN
