"""The architecture of a tree as JSON, and a tree of it again: what a file says beside its arrays.

 A  Nothing is imported and no code of the file is run: a name is only looked up among what is here already,
    a class only among nnflat's layers, the built-in containers and the classes that were registered as nodes.
 B  What JSON cannot hold is described in words, and refused on the way back with its path.

In JSON None, bools, ints, floats and strings stand for themselves. All else is an object of one item, which
says what it is: array (its name in the file), class ([name, [[key, child], ...], aux]), tuple (as a key),
complex, scalar, type, function, opaque (words).
"""

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nnflat import tree
from nnflat.tree import Path, format_path

_FACTORIES = {cls.__name__: cls for cls in (dict, list, set, int, float, str)}
_NUMBERS = (bool, int, float, complex)
_INTO = "build the tree and give it as into="


def describe(root: object, holds: Callable[[np.dtype], bool]) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the architecture of a tree, and its arrays by name, parameters and statics; shares the arrays.

    `holds(dtype)` says which arrays can go into the file; the others are opaque.

    >>> describe([np.ones(2), 0.5], lambda dtype: True)
    ({'class': ['builtins.list', [[0, {'array': '[0]'}], [1, 0.5]], None]}, {'[0]': array([1., 1.])})
    """
    arrays: dict[str, np.ndarray] = {}

    def visit(value: Any, path: Path) -> Any:
        if len(path) > tree.MAX_DEPTH:
            raise ValueError(f"the tree is deeper than {tree.MAX_DEPTH} levels at {format_path(path[:4])}...")
        if type(value) in (np.ndarray, np.memmap) and holds(value.dtype):
            name = format_path(path)
            if name in arrays:
                raise ValueError(f"{name} is the printed name of two paths; a file needs one for each")
            arrays[name] = value
            return {"array": name}
        kind = tree.node_type(type(value))
        if kind is None:
            return _describe_static(value)
        children = tree.children_of(value, kind).items()
        pairs = []
        for key, child in children:
            closed = key in kind.static and not isinstance(child, np.ndarray)
            pairs.append([_describe_static(key), _describe_static(child) if closed else visit(child, (*path, key))])
        return {"class": [_class_name(type(value)), pairs, _describe_static(kind.aux(value))]}

    return visit(root, ()), arrays


def _describe_static(value: Any) -> Any:
    cls = type(value)
    if value is None or cls in (bool, int, float, str):
        return value
    if cls is complex:
        return {"complex": [value.real, value.imag]}
    if cls is tuple:
        return {"tuple": [_describe_static(item) for item in value]}
    if isinstance(value, np.generic) and value.dtype.kind in "biufc" and type(value.item()) in _NUMBERS:
        return {"scalar": [value.dtype.name, _describe_static(value.item())]}
    if name := next((name for name, factory in _FACTORIES.items() if factory is value), None):
        return {"type": name}
    if name := next((name for name, function in _functions().items() if function is value), None):
        return {"function": name}
    words = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {_class_name(cls)}"
    return {"opaque": words}


def outline(architecture: Any) -> str:
    """Return an architecture in one line.

    >>> outline(describe([np.ones(2), 0.5], lambda dtype: True)[0])
    'list(0: array, 1: 0.5)'
    """
    if not isinstance(architecture, dict):
        return repr(architecture)
    kind, value = next(iter(architecture.items()))
    if kind != "class":
        return "array" if kind == "array" else str(value)
    name, children, _ = value
    inner = ", ".join(f"{key if isinstance(key, str) else outline(key)}: {outline(child)}" for key, child in children)
    return f"{name.rpartition('.')[2]}({inner})"


def rebuild(architecture: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the tree that an architecture describes, made of the arrays themselves.

    >>> rebuild({"class": ["builtins.list", [[0, {"array": "[0]"}], [1, 0.5]], None]}, {"[0]": np.ones(2)})
    [array([1., 1.]), 0.5]
    """

    known = _known_nodes()

    def visit(value: Any, path: Path) -> Any:
        match value:
            case None | bool() | int() | float() | str():
                return value
            case {"array": name}:
                return arrays[name]
            case {"class": [str(cls_name), pairs, aux]}:
                if cls_name not in known:
                    where = f"{format_path(path)} is a {cls_name}"
                    raise ValueError(f"{where}, not nnflat's own nor registered here; {_INTO}")
                cls, kind = known[cls_name]
                children = {(key := visit(name, path)): visit(child, (*path, key)) for name, child in pairs}
                return kind.rebuild(cls, children, visit(aux, path))
            case {"tuple": items}:
                return tuple(visit(item, path) for item in items)
            case {"complex": [real, imag]}:
                return complex(real, imag)
            case {"scalar": [str(name), number]} if np.dtype(name).kind in "biufc":
                return np.dtype(name).type(visit(number, path))
            case {"type": name}:
                return _FACTORIES[name]
            case {"function": name}:
                return _functions()[name]
            case {"opaque": words}:
                raise ValueError(f"{format_path(path)} is {words}, which no file can hold; {_INTO}")
        raise ValueError(f"{format_path(path)} is described by {str(value)[:80]}, which has no meaning here")

    try:
        return visit(architecture, ())
    except Exception as error:  # a file can say anything
        raise ValueError(f"the tree in the file cannot be rebuilt: {error}") from error


@functools.cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that have a name in files: nnflat's activations and NumPy's ufuncs."""
    from nnflat.nn import activations

    own = {
        f"nnflat.{name}": function
        for name, function in vars(activations).items()
        if isinstance(function, types.FunctionType) and function.__module__ == activations.__name__
    }
    return own | {f"numpy.{name}": ufunc for name, ufunc in vars(np).items() if isinstance(ufunc, np.ufunc)}


def _known_nodes() -> dict[str, tuple[type, tree.NodeType]]:
    """Return the classes that a file may name: built-in, registered, and the layers defined so far."""
    from nnflat.nn import Layer

    classes: list[type] = [*tree.registered(), Layer]
    for cls in classes:  # grows: the subclasses of subclasses, too
        classes += cls.__subclasses__() if issubclass(cls, Layer) else ()
    return {_class_name(cls): (cls, kind) for cls in classes if (kind := tree.node_type(cls))}


def _class_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
