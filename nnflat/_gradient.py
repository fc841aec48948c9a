"""A tree of gradients as a flat vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nnflat import tree as _tree
from nnflat._copy import aligned_empty
from nnflat.tree import Path, format_path

if TYPE_CHECKING:
    from nnflat.layout import Layout, Place


def flatten_grad(layout: Layout, tree: Any, out: np.ndarray | None) -> np.ndarray:
    """Sum the gradients of a tree into a flat vector; see `Layout.flatten_grad`."""
    flat = _tree.flatten(tree)
    statics = dict(zip(flat.static_paths, flat.statics, strict=True))
    scalars = {path: np.asarray(value) for path, value in statics.items() if isinstance(value, np.inexact)}
    grads = dict(zip(flat.paths, flat.leaves, strict=True)) | scalars
    zero = {path for path, value in statics.items() if value is None}
    for place in layout.places:
        if (came := statics.get(place.path)) is not None and place.path not in scalars:
            raise TypeError(f"the gradient at {format_path(place.path)} must be an array of floats; got {came!r}")
    found = [_gradient(layout, place, grads.get(place.path), zero) for place in layout.places]
    _refuse_stray(layout, grads)
    out = aligned_empty(layout.size, layout.dtype) if out is None else layout.check_out(out)
    total = np.zeros(layout.size, np.result_type(layout.dtype, np.float32))
    with np.errstate(all="ignore"):
        for window, grad in zip(layout.leaves(total).values(), found, strict=True):
            if grad is not None:
                np.add(window, grad, out=window, casting="same_kind")
        np.copyto(out, total, casting="same_kind")
    return out


def _gradient(layout: Layout, place: Place, grad: np.ndarray | None, zero: set[Path]) -> np.ndarray | None:
    name, dtype = format_path(place.path), layout.dtypes[place.slot]
    if grad is None:
        if not any(place.path[:end] in zero for end in range(len(place.path) + 1)):
            raise ValueError(f"the tree has no gradient at {name}; None stands for zero")
        return None
    if grad.shape != place.shape:
        raise ValueError(f"the gradient at {name} has shape {grad.shape}; the layout needs {place.shape}")
    if dtype.kind == "c":
        return grad
    if grad.dtype.kind == "c" and np.any(grad.imag):
        raise ValueError(f"the gradient at {name} is complex; the leaf is {dtype}")
    return grad.real


def _refuse_stray(layout: Layout, grads: dict[Path, np.ndarray]) -> None:
    known = {place.path for place in layout.places} | set(layout.static_paths)
    for path in grads:
        if not any(path[:end] in known for end in range(len(path) + 1)):
            raise ValueError(f"the tree has a gradient at {format_path(path)}, where the layout has no parameter")
