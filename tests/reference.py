"""What the copies must give, slowly: plain Python over single elements and addresses.

A tie needs no rule here: `positions` maps the address of each element to its place in the flat vector, so that two
leaves of the same memory meet by themselves, transposed or not.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """Return (key, child) pairs of a node, None for anything else."""
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return list(zip(node._fields, node, strict=True))
    if type(node) in (list, tuple):
        return list(enumerate(node))
    if hasattr(node, "__tree_children__"):
        return list(node.__tree_children__().items())
    if dataclasses.is_dataclass(node):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    if type(node).__module__ == "zoo":
        names = getattr(node, "__slots__", ()) or vars(node)
        return [(name, getattr(node, name)) for name in names if hasattr(node, name)]
    return None


def walk(tree: Any, path: tuple = ()) -> list[tuple[tuple, Any]]:
    """Return (path, value) of everything that is no node."""
    pairs = children(tree)
    if pairs is None:
        return [(path, tree)]
    return [end for key, child in pairs for end in walk(child, (*path, key))]


def is_parameter(path: tuple, value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fc" and path[-1:] != ("mean",)


def items(tree: Any) -> list[tuple[tuple, np.ndarray]]:
    return [(path, value) for path, value in walk(tree) if is_parameter(path, value)]


def statics(tree: Any) -> list[tuple[tuple, Any]]:
    return [(path, value) for path, value in walk(tree) if not is_parameter(path, value)]


def containers(tree: Any) -> Any:
    """Return the classes and keys of a tree, nested; leaves and statics are their class."""
    pairs = children(tree)
    if pairs is None:
        return type(tree) if not isinstance(tree, np.ndarray) else np.ndarray
    return type(tree), [(key, containers(child)) for key, child in pairs]


def addresses(leaf: np.ndarray) -> list[int]:
    """Return the address of each element, in C order."""
    start = leaf.__array_interface__["data"][0]
    return [start + sum(map(int.__mul__, index, leaf.strides)) for index in np.ndindex(leaf.shape)]


def lanes(leaf: np.ndarray, dtype: np.dtype) -> int:
    return 2 if leaf.dtype.kind == "c" and dtype.kind != "c" else 1


def positions(tree: Any, dtype: np.dtype) -> tuple[dict[int, int], int]:
    """Return where each address of the tree stands in a flat vector of `dtype`, and the vector's size."""
    found: dict[int, int] = {}
    size = 0
    for _, leaf in items(tree):
        for address in addresses(leaf):
            if address not in found:
                found[address] = size
                size += lanes(leaf, dtype)
    return found, size


def flat_dtype(tree: Any) -> np.dtype:
    dtypes = [leaf.dtype for _, leaf in items(tree) if leaf.size]
    return np.result_type(*dtypes).newbyteorder("=") if dtypes else np.dtype(np.float64)


def destructure(tree: Any, dtype: Any = None) -> np.ndarray:
    """Return the flat vector, element by element."""
    dtype = np.dtype(dtype) if dtype is not None else flat_dtype(tree)
    found, size = positions(tree, dtype)
    flat = np.zeros(size, dtype)
    for _, leaf in items(tree):
        for address, index in zip(addresses(leaf), np.ndindex(leaf.shape), strict=True):
            at, element = found[address], leaf[index]
            if lanes(leaf, dtype) == 2:
                flat[at : at + 2] = cast(np.array([element.real, element.imag]), dtype)
            else:
                flat[at : at + 1] = cast(np.array([element]), dtype)
    return flat


def restructure(tree: Any, flat: np.ndarray, dtype: Any = None) -> dict[tuple, np.ndarray]:
    """Return what the leaves of `tree` must hold after a load of `flat`, by path, in C order."""
    dtype = np.dtype(dtype) if dtype is not None else flat_dtype(tree)
    found, _ = positions(tree, dtype)
    expected = {}
    for path, leaf in items(tree):
        values = np.zeros(leaf.size, leaf.dtype)
        for number, address in enumerate(addresses(leaf)):
            element = flat[found[address] : found[address] + lanes(leaf, dtype)]
            if len(element) == 2:
                real = leaf.real.dtype
                values[number : number + 1].view(real)[:] = cast(element, real)
            else:
                values[number : number + 1] = cast(element, leaf.dtype)
        expected[path] = values.reshape(leaf.shape)
    return expected


def cast(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Return NumPy's own cast, silent; the imaginary part of a complex value is dropped in a real one."""
    with np.errstate(all="ignore"):
        values = values.real if values.dtype.kind == "c" and np.dtype(dtype).kind == "f" else values
        return values.astype(dtype)


# ---- comparing ---------------------------------------------------------------------------------------------------


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have one dtype, shape and value, to the sign of zero; a NaN is a NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "c":
        return same(a.real, b.real) and same(a.imag, b.imag)
    nan = np.isnan(a)
    return bool(np.all((nan == np.isnan(b)) & (nan | ((a == b) & (np.signbit(a) == np.signbit(b))))))


def identity(tree: Any) -> list[tuple[int, int]]:
    """Return which arrays stand in a tree, and where their memory is."""
    return [(id(leaf), leaf.__array_interface__["data"][0]) for _, leaf in items(tree)]


def memory(*values: Any) -> list[bytes]:
    """Return all bytes of the arrays of trees, and of the blocks that they are windows of."""
    found = []
    for value in values:
        for _, array in walk(value):
            while issubclass(type(array), np.ndarray):
                found.append(array.tobytes())
                array = array.base
    return found
