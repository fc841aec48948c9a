"""A model as a table: a row a layer, its shapes, its number of parameters, and the total."""

from typing import Any, NamedTuple

import numpy as np

from nnflat import tree
from nnflat._table import aligned


class Row(NamedTuple):
    """A node that holds parameters itself, or an innermost one that can be called."""

    path: tree.Path
    layer: str
    parameters: dict[Any, np.ndarray]


def table(model: object) -> str:
    """Return the layers of a model as lines of text; what is tied counts once.

    >>> from nnflat.nn import Chain, Dense
    >>> print(table(Chain(Dense(784, 32, "relu"), Dense(32, 10))))
    path       layer                 shapes                        parameters
    layers[0]  Dense(784, 32, relu)  weight (784, 32), bias (32,)      25,120
    layers[1]  Dense(32, 10)         weight (32, 10), bias (10,)          330
    total                                                              25,450
    """
    lines = [("path", "layer", "shapes", "parameters")]
    owners: dict[tuple[int, int], str] = {}
    total = 0
    for row in _rows(model, ()):
        shapes, count = _shapes(row, owners)
        lines.append((tree.format_path(row.path), row.layer, shapes, f"{count:,}"))
        total += count
    return aligned([*lines, ("total", "", "", f"{total:,}")], left=3)


def _rows(node: object, path: tree.Path) -> list[Row]:
    kind = tree.node_type(type(node))
    if kind is None:
        return []
    children = {key: child for key, child in tree.children_of(node, kind).items() if key not in kind.static}
    inner = [row for key, child in children.items() for row in _rows(child, (*path, key))]
    own = {key: child for key, child in children.items() if _is_parameter(child)}
    if own or (callable(node) and not inner):
        return [Row(path, _name(node, inner), own), *inner]
    return inner


def _is_parameter(child: object) -> bool:
    return isinstance(child, np.ndarray) and child.dtype.kind in "fc"


def _name(node: object, inner: list[Row]) -> str:
    """Return what a layer says of itself, and the name of the class for all else."""
    speaks = hasattr(node, "__tree_children__") and not inner
    return repr(node) if speaks else type(node).__name__


def _shapes(row: Row, owners: dict[tuple[int, int], str]) -> tuple[str, int]:
    """Return the shapes of a row, and how many parameters they add to those of `owners`, by memory."""
    texts, count = [], 0
    for key, leaf in row.parameters.items():
        name = tree.format_path((*row.path, key))
        owner = owners.setdefault(np.lib.array_utils.byte_bounds(leaf), name)
        tied = owner != name
        texts.append(f"{key} {leaf.shape} = {owner}" if tied else f"{key} {leaf.shape}")
        count += 0 if tied else leaf.size
    return ", ".join(texts), count
