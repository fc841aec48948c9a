"""Bound: a tree walked once, copied from and to flat vectors many times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnflat import tree as _tree
from nnflat._copy import Binding
from nnflat._ties import find_ties
from nnflat.tree import Path, format_path

if TYPE_CHECKING:
    from nnflat.layout import Layout, Place


class StructureChanged(ValueError):
    """A tree is not as it was when it was bound; `layout.bind(tree)` again to adopt it."""


class Bound(Binding):
    """A tree walked once, to be copied from and to flat vectors many times. Made by `layout.bind(tree)`.

    `load(flat)` writes a flat vector into the arrays of the tree, `store(out=)` the arrays into a flat vector. At every
    call each array is looked at again: one that was re-bound, resized or retyped since `bind` raises
    StructureChanged. An array
    added since is not looked for; `layout.restructure(flat, out=tree)` looks for all.

    Examples
    --------
    >>> import nnflat as nf
    >>> model = {"bias": np.zeros(2)}
    >>> bound = nf.Layout.of(model).bind(model)
    >>> bound.load(np.ones(2))
    {'bias': array([1., 1.])}
    >>> bound.store()
    array([1., 1.])
    """

    def __init__(self, layout: Layout, tree: Any) -> None:
        leaves = match(layout, tree)
        watch, self._link_paths = _tree.watch(tree, [place.path for place in layout.places])
        super().__init__(layout, tree, leaves, watch, layout.offsets.tolist(), layout.dtype)

    def refuse_link(self, index: int) -> None:
        """Raise for a container that no longer holds what it held at `bind`."""
        path = format_path(self._link_paths[index])
        raise StructureChanged(f"{path} was re-bound since bind; bind the tree again to adopt what stands there now")

    def refuse_leaf(self, index: int, leaf: np.ndarray) -> None:
        """Raise for a leaf that is not as it was at `bind`, or is read-only."""
        layout, path = self.layout, format_path(self.layout.paths[index])
        if leaf.shape != layout.shapes[index]:
            raise StructureChanged(f"{path} has shape {leaf.shape} now; at bind it had {layout.shapes[index]}")
        if leaf.dtype != layout.dtypes[index]:
            raise StructureChanged(f"{path} is {leaf.dtype} now; at bind it was {layout.dtypes[index]}")
        if not leaf.flags.writeable:
            raise ValueError(f"{path} is read-only; nothing was written")
        raise StructureChanged(f"{path} has other strides than at bind; bind the tree again to adopt them")

    def __reduce__(self) -> tuple:
        return Bound, (self.layout, self.tree)


def match(layout: Layout, tree: Any) -> list[np.ndarray]:
    """Return the leaves of a tree of this layout in the order of the vector; raise ValueError where it is not."""
    flat = _tree.flatten(tree)
    found = dict(zip(flat.paths, flat.leaves, strict=True))
    statics = dict(zip(flat.static_paths, flat.statics, strict=True))
    for place in layout.places:
        _refuse_other(layout, place, found.get(place.path, statics.get(place.path)))
    if more := found.keys() - {place.path for place in layout.places} - layout.left_out:
        raise ValueError(f"the tree has a parameter at {format_path(min(more, key=str))} that the layout has not")
    leaves = [found[place.path] for place in layout.places]
    _refuse_other_ties(layout, leaves)
    return [leaves[owner] for owner in layout.owners]


def _refuse_other(layout: Layout, place: Place, leaf: Any) -> None:
    name, dtype = format_path(place.path), layout.dtypes[place.slot]
    if not isinstance(leaf, np.ndarray):
        raise ValueError(f"the tree has no parameter at {name}; the layout needs {dtype} of shape {place.shape}")
    if leaf.shape != place.shape:
        raise ValueError(f"{name} has shape {leaf.shape}; the layout needs {place.shape}")
    if leaf.dtype != dtype:
        raise ValueError(f"{name} is {leaf.dtype}; the layout needs {dtype}")


def _refuse_other_ties(layout: Layout, leaves: list[np.ndarray]) -> None:
    ties = find_ties([place.path for place in layout.places], leaves)
    for place, (owner, axes) in zip(layout.places, ties, strict=True):
        needed, found = layout.paths[place.slot], layout.places[owner].path
        if (needed, place.axes) != (found, axes):
            raise ValueError(
                f"{format_path(place.path)} is {_tied(place, found)} in the tree; in the layout it is"
                f" {_tied(place, needed)}"
            )


def _tied(place: Place, owner: Path) -> str:
    return "not tied" if owner == place.path else f"tied to {format_path(owner)}"
