"""Trees in files: safetensors and npz, with the layout and the architecture, atomically, and never pickle.

 A  The body holds the parameters in the order of the layout, each once: where they have one dtype it IS the
    flat vector. Static arrays follow. A tied parameter is an alias: its owner, a permutation of axes.
 B  A file is written beside its place and moved there when it is whole: a reader sees the old or the new one.
 C  `load(into=)` checks everything before it writes anything.
"""

import errno
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from nnflat import _npz, _safetensors
from nnflat._architecture import describe, outline, rebuild
from nnflat._safetensors import RESERVED, Entry, parse
from nnflat._ties import find_ties
from nnflat.tree import flatten, format_path

_FORMATS = {".safetensors": _safetensors, ".npz": _npz}
_OURS = "nnflat"  # the key of the metadata under which all that is nnflat's stands

Arrays = dict[str, np.ndarray]
Aliases = dict[str, tuple[str, tuple[int, ...]]]
PathLike = str | os.PathLike[str]


def save(path: PathLike, tree: object, *, meta: Mapping[str, Any] | None = None) -> None:
    """Write the arrays of a tree, its architecture and `meta` to a file, atomically.

    Parameters
    ----------
    path : str or path
        Its suffix decides the format: `.safetensors` (which other programs read, too) or `.npz`.
    tree : tree
        Parameters and static arrays are stored, what is tied once; other statics where JSON can hold them.
        Of the rest (a function of your own, say) a description is stored; the file needs `load(into=)` then.
    meta : dict, optional
        What else to remember, by name: all that JSON holds. `nnflat info` prints it.

    Raises
    ------
    ValueError
        For another suffix, or an array that the format cannot hold; nothing is written.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "model.safetensors")
    >>> save(path, {"weight": np.ones(2), "name": "small"}, meta={"loss": 0.25})
    >>> load(path)
    {'weight': array([1., 1.]), 'name': 'small'}
    >>> folder.cleanup()
    """
    from nnflat import __version__

    form = _format(path)
    parameters, aliases = _parameters(tree)
    architecture, found = describe(tree, form.holds)
    if unfit := [name for name in parameters if name not in found]:
        raise ValueError(f"{', '.join(unfit)}: no {form.NAME} file can hold the dtype")
    if RESERVED in found:
        raise ValueError(f"{RESERVED} is what a file calls its own notes; an array needs another name")
    arrays = {name: found[name] for name in (*parameters, *found) if name not in aliases}
    ours = {"version": __version__, "architecture": architecture, "aliases": aliases, "meta": _checked(meta)}
    with _replacing(path) as file:
        form.write(file, arrays, {_OURS: json.dumps(ours)})


def load(path: PathLike, *, into: Any = None) -> Any:
    """Read a tree from a file, or read the arrays of a file into a tree that is there already.

    Parameters
    ----------
    path : str or path
        A `.safetensors` or `.npz` file.
    into : tree, optional
        A tree whose arrays are written in place, matched by path. Its parameters need the names, shapes and
        dtypes of the file; static arrays are read where the file has them; other statics are left alone.

    Returns
    -------
    tree
        A new tree of nnflat's layers, built-in containers and registered classes; `into` where it is given; a
        dict of arrays by name where another program wrote the file.

    Raises
    ------
    ValueError
        For a file that is damaged; that holds what only `into=` can give back (classes and functions of your
        own: nothing is ever imported or unpickled); that does not fit `into`, which is left as it was.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "model.npz")
    >>> save(path, {"weight": np.ones(2)})
    >>> model = {"weight": np.zeros(2)}
    >>> load(path, into=model) is model
    True
    >>> model
    {'weight': array([1., 1.])}
    >>> folder.cleanup()
    """
    with _reading(path) as (form, file):
        arrays, metadata = form.read(file)
        ours = _ours(metadata)
        arrays = _with_aliases(arrays, ours.get("aliases", {}))
        if into is None:
            return rebuild(ours["architecture"], arrays) if "architecture" in ours else arrays
        _write_into(into, arrays, form)
        return into


@dataclass(frozen=True)
class Info:
    """What a file says of itself: the arrays in the order of their bytes, aliases, version, meta, architecture."""

    format: str
    entries: tuple[Entry, ...]
    aliases: dict[str, Any]
    version: str | None
    meta: dict[str, Any]
    architecture: str | None


def info(path: PathLike) -> Info:
    """Read what a file says of itself, without its arrays where the format allows it."""
    with _reading(path) as (form, file):
        entries, metadata = form.read_header(file)
        ours = _ours(metadata)
        meta = ours.get("meta", {}) if ours else metadata
        architecture = _outline(ours["architecture"]) if "architecture" in ours else None
        return Info(form.NAME, tuple(entries), ours.get("aliases", {}), ours.get("version"), meta, architecture)


def _outline(architecture: Any) -> str:
    try:
        return outline(architecture)
    except (AttributeError, TypeError, ValueError, StopIteration, RecursionError):
        raise ValueError("the architecture in the file is damaged") from None


# ---- what a file holds -------------------------------------------------------------------------------------


def _format(path: PathLike) -> ModuleType:
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _FORMATS:
        raise ValueError(f"{os.fspath(path)} needs the suffix {' or '.join(_FORMATS)}")
    return _FORMATS[suffix]


def _refuse_other_keys(value: Any) -> None:
    """Raise TypeError for a key that is no string, which JSON would turn into one."""
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise TypeError(f"names must be strings; got {list(value)}")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _refuse_other_keys(item)


def _checked(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    meta = dict(meta or {})
    if not all(isinstance(key, str) for key in meta):
        raise TypeError(f"meta needs names that are strings; got {list(meta)}")
    try:
        _refuse_other_keys(meta)
        json.dumps(meta)
    except (TypeError, ValueError) as error:
        raise TypeError(f"meta needs values that JSON can hold: {error}") from None
    return meta


def _ours(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return what nnflat wrote beside the arrays; nothing where another program wrote the file."""
    ours = parse(metadata.get(_OURS, "{}"), "what nnflat wrote")
    aliases, meta = ours.get("aliases", {}), ours.get("meta", {})
    if not isinstance(aliases, dict) or not all(map(_is_alias, aliases.values())):
        raise ValueError("the aliases need to be names with an owner and axes")
    if not isinstance(meta, dict):
        raise ValueError("the meta needs to be a JSON object")
    return ours


def _is_alias(value: object) -> bool:
    return isinstance(value, list) and list(map(type, value)) == [str, list]


def _parameters(tree: object) -> tuple[list[str], Aliases]:
    """Return the names of the parameters, and alias -> (owner, axes): alias is owner.transpose(axes)."""
    flat = flatten(tree)
    names = [format_path(path) for path in flat.paths]
    aliases = {}
    for name, leaf, (owner, axes) in zip(names, flat.leaves, find_ties(flat.paths, flat.leaves), strict=True):
        if names[owner] != name:
            aliases[name] = (names[owner], tuple(range(leaf.ndim)) if axes is None else axes)
    return names, aliases


def _with_aliases(arrays: Arrays, aliases: Mapping[str, Any]) -> Arrays:
    try:
        return arrays | {name: arrays[owner].transpose(axes) for name, (owner, axes) in aliases.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the aliases do not fit the arrays: {error}") from None


# ---- into a tree -------------------------------------------------------------------------------------------


def _write_into(tree: object, arrays: Arrays, form: ModuleType) -> None:
    parameters, aliases = _parameters(tree)
    _, leaves = describe(tree, lambda dtype: dtype.kind in "fc" or form.holds(dtype))
    problems = [*_misfits(parameters, leaves, arrays, aliases)] or [*_conflicts(arrays, aliases)]
    if problems:
        more = f"; and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise ValueError("; ".join(problems[:8]) + more)
    for name, array in arrays.items():
        np.copyto(leaves[name], array)


def _misfits(names: list[str], leaves: Arrays, arrays: Arrays, aliases: Aliases) -> Iterator[str]:
    """Say what of the file does not fit the tree; one name of a tied parameter is enough."""
    owner = {name: aliases[name][0] if name in aliases else name for name in leaves}
    covered = {owner[name] for name in arrays if name in owner}
    yield from (f"{name} is not in the file" for name in names if owner[name] not in covered)
    yield from (f"{name} is in the file, but not in the tree" for name in arrays if name not in leaves)
    for name in arrays.keys() & leaves.keys():
        array, leaf = arrays[name], leaves[name]
        if (array.shape, array.dtype) != (leaf.shape, leaf.dtype.newbyteorder("=")):
            there, here = f"{array.dtype} of shape {array.shape}", f"{leaf.dtype} of shape {leaf.shape}"
            yield f"{name} is {there} in the file, {here} in the tree"
        if not leaf.flags.writeable:
            yield f"{name} is read-only in the tree"


def _conflicts(arrays: Arrays, aliases: Aliases) -> Iterator[str]:
    """Say which names are tied in the tree and differ in the file, bit for bit."""
    tied = {owner for owner, _ in aliases.values()}
    first: dict[str, tuple[str, bytes]] = {}
    for name, array in arrays.items():
        owner, axes = aliases.get(name, (name, range(array.ndim)))
        if owner in tied:
            bits = array.transpose(np.argsort(axes)).tobytes()
            other, expected = first.setdefault(owner, (name, bits))
            if bits != expected:
                yield f"{other} and {name} are tied in the tree, but differ in the file"


# ---- the file itself ---------------------------------------------------------------------------------------


@contextmanager
def _reading(path: PathLike) -> Iterator[tuple[ModuleType, BinaryIO]]:
    form = _format(path)
    with open(path, "rb") as file:
        try:
            yield form, file
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: {error}") from error


@contextmanager
def _replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` when all went well, and is gone when not."""
    place = os.path.realpath(path)
    folder = os.path.dirname(place)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
    beside = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")
    file = open(beside, "xb")  # noqa: SIM115 - what another process has there is not ours to unlink
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, place)
    except BaseException:
        os.unlink(beside)
        raise
