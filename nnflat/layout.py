"""Layout: where each leaf of a tree stands in one flat vector, and the copies both ways.

I1  flat[offsets[i]:offsets[i + 1]] is leaf i in C order, whatever the leaf's memory order.
I2  restructure(destructure(t)) equals t: containers, dtypes, memory order, ties, statics.
I3  destructure(restructure(v)) equals v.
I4  view shares memory; restructure and destructure never do.
I5  A call that raises has written nothing.
I6  A Layout holds no parameter array of the model; it compares, hashes, pickles and prints.
I7  No raw pointer outlives a call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from nnflat import tree as _tree
from nnflat._copy import Plan, aligned_empty
from nnflat._gradient import flatten_grad
from nnflat._lift import Lifted
from nnflat._statics import brief, copy_statics
from nnflat._table import aligned, html_table
from nnflat._ties import Axes, find_ties, refuse_half_ties
from nnflat._vector import check_array, check_length, check_out
from nnflat._walk import Way
from nnflat.bound import Bound, StructureChanged
from nnflat.tree import Path, format_path

__all__ = ["Bound", "Layout", "StructureChanged", "destructure"]

Where = Callable[[Path, np.ndarray], bool]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a parameter stands: its path, its slot, its shape, and how its axes permute the slot's leaf (ties)."""

    path: Path
    slot: int
    shape: tuple[int, ...]
    axes: Axes


def destructure(tree: Any, *, where: Where | None = None, dtype: Any = None) -> tuple[np.ndarray, Layout]:
    """Copy the parameters of a tree into one flat vector; return the vector and its Layout.

    Parameters
    ----------
    tree : tree
        Nested containers of NumPy arrays; see `nnflat.tree`. Arrays of inexact dtype are the parameters.
    where : callable, optional
        `where(path, leaf) -> bool`: leaves for which it is false are static in this layout.
    dtype : dtype, optional
        Inexact dtype of the vector; `np.result_type` of the parameters where left out. A complex leaf in a real
        vector is stored as pairs (re, im).

    Returns
    -------
    flat : ndarray, shape (layout.size,)
        Fresh, contiguous, 64-byte aligned. Tied leaves have one slot.
    layout : Layout

    Raises
    ------
    TypeError, ValueError
        Where the tree holds what is no leaf (object and masked arrays, unregistered objects with arrays, arrays of
        other libraries, iterators, cycles) or leaves overlap without being tied; the message names the path.

    Notes
    -----
    After `destructure` of Optimisers.jl.

    Examples
    --------
    >>> flat, layout = destructure({"weight": np.ones((1, 2)), "bias": np.zeros(1)})
    >>> flat
    array([1., 1., 0.])
    >>> layout.restructure(np.arange(3.0))
    {'weight': array([[0., 1.]]), 'bias': array([2.])}
    """
    layout, leaves = _describe(tree, where, dtype)
    flat = aligned_empty(layout.size, layout.dtype)
    strides = [leaf.strides for leaf in leaves]
    Plan(layout.shapes, strides, layout.dtypes, layout.offsets.tolist(), layout.dtype).gather(leaves, flat)
    return flat, layout


@dataclass(frozen=True, eq=False, repr=False)
class Layout(Mapping):
    """Where each leaf of a tree stands in one flat vector. Immutable; holds no parameter array.

    A Mapping from paths, or their printed names, to slices of the flat vector; a path to a node gives the slice of
    all its leaves where they stand together. Made by `destructure` or `Layout.of`.

    Attributes
    ----------
    paths, shapes, dtypes : tuple
        Of the leaves, in the order of the vector; a tied leaf counts once, at its first path.
    dtype : dtype
        Of the flat vector.

    Examples
    --------
    >>> layout = Layout.of({"weight": np.ones((1, 2)), "bias": np.zeros(1)})
    >>> layout["bias"], layout.size, len(layout)
    (slice(2, 3, None), 3, 2)
    >>> print(layout)
    path    shape   dtype    tied to  offset
    weight  (1, 2)  float64                0
    bias    (1,)    float64                2
    3 parameters in 2 leaves, flat vector of float64
    """

    structure: _tree.Structure
    paths: tuple[Path, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    dtype: np.dtype
    places: tuple[Place, ...]
    _strides: tuple[tuple[int, ...], ...]
    static_paths: tuple[Path, ...]
    _statics: tuple[Any, ...]

    @classmethod
    def of(cls, tree: Any, *, where: Where | None = None, dtype: Any = None) -> Layout:
        """Make the layout of a tree; copies no parameter. Parameters and errors as for `destructure`.

        >>> Layout.of([np.zeros(2), np.zeros(3)]).offsets
        array([0, 2, 5])
        """
        return _describe(tree, where, dtype)[0]

    # ---- copies --------------------------------------------------------------------------------------------------

    def destructure(self, tree: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Copy the parameters of a tree of this layout into a flat vector, fresh or `out`.

        Raises ValueError where the tree is not of this layout, TypeError where `out` has another dtype; then nothing
        has been written.

        >>> Layout.of([np.zeros(2)]).destructure([np.ones(2)])
        array([1., 1.])
        """
        flat = aligned_empty(self.size, self.dtype) if out is None else out
        leaves = self._follow(tree) if self._plan.receives(flat) else None
        if leaves is None or not self._plan.fits(leaves):
            return self.bind(tree).store(out=flat)
        self._plan.gather(leaves, flat)
        return flat

    def restructure(self, flat: np.ndarray, *, out: Any = None) -> Any:
        """Copy a flat vector into a new tree, or into the arrays of `out`.

        Parameters
        ----------
        flat : ndarray, shape (size,)
            Floats of any precision; cast to each leaf's dtype. A complex vector only where the imaginary parts of
            real leaves are zero.
        out : tree, optional
            A tree of this layout. Its arrays are written in place, its statics left alone.

        Returns
        -------
        tree
            `out`, or a new tree with memory of its own, each leaf in the dtype and memory order of the layout.

        Raises
        ------
        TypeError, ValueError
            Where `flat` or `out` is not of this layout; nothing has been written.

        Examples
        --------
        >>> Layout.of({"weight": np.ones((1, 2))}).restructure(np.arange(2.0))
        {'weight': array([[0., 1.]])}
        """
        if out is None:
            if _traced(flat):
                return self._unflatten([self._traced_copy(flat, slot) for slot in range(len(self.paths))])
            return self._unflatten(self._plan.fresh(self.check_vector(flat)))
        if _traced(flat):
            check_array(flat, "flat")
        if (leaves := self._follow(out)) is not None and self._plan.scatter(leaves, flat):
            return out
        return self.bind(out).load(flat)

    def _traced_copy(self, flat: Any, slot: int) -> Any:
        """Return a copy of a slot of a traced vector, in the leaf's dtype and memory order."""
        check_length(flat, self.size, "flat")
        strides = self._strides[slot]
        axes = sorted(range(len(strides)), key=lambda axis: -strides[axis])
        window = self._window(flat, slot).transpose(axes).astype(self.dtypes[slot], order="C")
        return window.transpose(np.argsort(axes).tolist())

    def bind(self, tree: Any) -> Bound:
        """Walk a tree of this layout once; return what copies between its arrays and flat vectors many times.

        >>> model = [np.zeros(2)]
        >>> Layout.of(model).bind(model).load(np.ones(2))
        [array([1., 1.])]
        """
        return Bound(self, tree)

    def stack(self, trees: Sequence[Any], *, out: np.ndarray | None = None) -> np.ndarray:
        """Copy trees of this layout into the rows of a population, shape (len(trees), size).

        >>> Layout.of([np.zeros(2)]).stack([[np.zeros(2)], [np.ones(2)]])
        array([[0., 0.],
               [1., 1.]])
        """
        trees = list(trees)
        sources = [self._source(tree) for tree in trees]
        shape = (len(trees), self.size)
        population = aligned_empty(math.prod(shape), self.dtype).reshape(shape) if out is None else out
        if not isinstance(population, np.ndarray) or population.dtype != self.dtype:
            came = population.dtype if isinstance(population, np.ndarray) else type(population).__name__
            raise TypeError(f"out must be an array of {self.dtype}; got {came}")
        if population.shape != shape or not population.flags.writeable:
            raise ValueError(f"out must be writeable and of shape {shape}; got shape {population.shape}")
        if out is not None and any(np.may_share_memory(out, leaf) for tree in trees for leaf in _tree.leaves(tree)):
            out[...] = self.stack(trees)  # a row may be another's model
            return out
        for store, row in zip(sources, population, strict=True):
            store(out=row)
        return population

    def _source(self, tree: Any) -> Callable[..., Any]:
        """Return what stores a tree, found to be of this layout, into a vector `out`."""
        leaves = self._follow(tree)
        if leaves is None or not self._plan.fits(leaves):
            return self.bind(tree).store
        return partial(self._gather, leaves)

    def _gather(self, leaves: list[np.ndarray], *, out: np.ndarray) -> None:
        flat = out if self._plan.receives(out) else aligned_empty(self.size, self.dtype)
        self._plan.gather(leaves, flat)
        if flat is not out:
            out[...] = flat

    def flatten_grad(self, tree: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Copy a tree of gradients into a flat vector; gradients of tied leaves are summed, None counts as zero.

        The tree is matched by path; its containers may be others, and what it has at static paths is ignored. None
        may stand for a leaf or for all leaves below a node.

        >>> layout = Layout.of({"weight": np.ones(2), "bias": np.ones(1)})
        >>> layout.flatten_grad({"weight": np.array([1.0, 2.0]), "bias": None})
        array([1., 2., 0.])
        """
        return flatten_grad(self, tree, out)

    # ---- views ---------------------------------------------------------------------------------------------------

    def view(self, flat: np.ndarray) -> Any:
        """Return a tree whose arrays ARE the flat vector: write one, and the other has changed.

        Parameters
        ----------
        flat : ndarray, shape (size,)
            Of exactly the dtype of the leaves (a complex leaf in pairs: of its real dtype).

        Raises
        ------
        TypeError
            Where a leaf has another dtype than the vector; `layout.astype(flat.dtype).view(flat)` has not.

        Examples
        --------
        >>> flat, layout = destructure({"bias": np.zeros(2)})
        >>> model = layout.view(flat)
        >>> flat[:] = 1
        >>> model
        {'bias': array([1., 1.])}
        """
        traced = _traced(flat)
        if not traced:
            check_array(flat, "flat")
        check_length(flat, self.size, "flat")
        for path, dtype, needed in self._view_dtypes:
            if flat.dtype != needed:
                raise TypeError(
                    f"view needs a vector of the leaves' dtype; {format_path(path)} is {dtype}, the vector"
                    f" {flat.dtype}: layout.astype has leaves of another (native) dtype, layout.restructure copies"
                )
        if traced or not flat.flags.c_contiguous:
            return self._unflatten([self._window(flat, slot) for slot in range(len(self.paths))])
        return self._unflatten(self._plan.windows(flat))

    def leaves(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the arrays of a flat vector, or of a population, by name; they share its memory and dtype.

        Parameters
        ----------
        flat : ndarray, shape (size,) or (pop, size)

        Returns
        -------
        dict of str to ndarray, shape (*shape) or (pop, *shape)
            In the order of the tree. A tied leaf is there under each of its names.

        Examples
        --------
        >>> layout = Layout.of({"weight": np.ones((3, 2)), "bias": np.ones(2)})
        >>> {name: leaf.shape for name, leaf in layout.leaves(np.zeros((5, 8))).items()}
        {'weight': (5, 3, 2), 'bias': (5, 2)}
        """
        if not isinstance(flat, np.ndarray) or isinstance(flat, np.ma.MaskedArray) or flat.dtype.kind == "O":
            check_array(flat, "flat")
        if flat.ndim not in (1, 2) or flat.shape[-1] != self.size:
            raise ValueError(f"a vector ({self.size},) or population (pop, {self.size}) is needed; got {flat.shape}")
        arrays = [self._window(flat, slot) for slot in range(len(self.paths))]
        return {
            format_path(place.path): _permute(arrays[place.slot], place.axes, flat.ndim - 1) for place in self.places
        }

    def _window(self, flat: np.ndarray, slot: int) -> np.ndarray:
        """Return leaf `slot` of a vector, or of each row of a population, in the vector's precision."""
        window = flat[..., self.offsets[slot] : self.offsets[slot + 1]]
        if self.dtypes[slot].kind == "c" and flat.dtype.kind != "c":
            if flat.dtype.itemsize < 4:
                raise TypeError(f"{format_path(self.paths[slot])} is complex; pairs of {flat.dtype} have no such view")
            if window.size and flat.strides[-1] != flat.itemsize:
                raise ValueError(f"{format_path(self.paths[slot])} is stored as pairs, which need a contiguous vector")
            window = window.view(np.result_type(flat.dtype, np.complex64))
        return window.reshape(flat.shape[:-1] + self.shapes[slot])

    def lift(self, fn: Callable, *, argnum: int = 0) -> Callable:
        """Return `fn`, a function of a tree, as a function of a flat vector: argument `argnum` goes through `view`.

        >>> layout = Layout.of({"bias": np.zeros(2)})
        >>> layout.lift(lambda model, x: model["bias"] + x)(np.ones(2), 1.0)
        array([2., 2.])
        """
        return Lifted(self, fn, argnum)

    # ---- named places --------------------------------------------------------------------------------------------

    def __getitem__(self, key: Path | str) -> slice:
        """Return the slice of a leaf, or of all leaves below a node, by path or printed name.

        Raises KeyError where there is none, and where the leaves of a node do not stand together (ties).
        """
        slots = self._slots(key)
        if slots != list(range(slots[0], slots[0] + len(slots))):
            raise KeyError(f"the leaves of {_name(key)} do not stand together: one is tied to a leaf elsewhere")
        return slice(int(self.offsets[slots[0]]), int(self.offsets[slots[-1] + 1]))

    def __iter__(self) -> Iterator[str]:
        return map(format_path, self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def _slots(self, key: Path | str) -> list[int]:
        """Return the slots at and below a path or name, ascending."""
        try:
            return self._index[key]
        except (KeyError, TypeError):
            names = [format_path(place.path) for place in self.places]
            raise KeyError(f"no parameter at {_name(key)}{_tree.suggest(_name(key), names)}") from None

    @cached_property
    def _index(self) -> dict[Hashable, list[int]]:
        below: dict[Path, set[int]] = {}
        for place in self.places:
            for end in range(len(place.path) + 1):
                below.setdefault(place.path[:end], set()).add(place.slot)
        slots: dict[Hashable, list[int]] = {path: sorted(found) for path, found in below.items()}
        return {format_path(path): slots[path] for path in below} | slots

    def path_of(self, index: int) -> Path:
        """Return the path of the leaf that element `index` of the flat vector belongs to.

        >>> Layout.of([np.zeros(2), np.zeros(3)]).path_of(2)
        (1,)
        """
        position = operator.index(index)
        if not -self.size <= position < self.size:
            raise IndexError(f"index {position} is outside a flat vector of {self.size} elements")
        return self.paths[int(np.searchsorted(self.offsets, position % self.size, side="right")) - 1]

    def fill(self, values: Mapping[Path | str, Any], *, default: Any) -> np.ndarray:
        """Return a flat vector with a value a path, for learning rates, bounds and masks.

        Parameters
        ----------
        values : mapping of path or name to number or array
            A path to a node holds for all leaves below it; longer paths win. Arrays broadcast to the leaf's shape.
        default : number or bool
            Everywhere else.

        Raises
        ------
        KeyError
            For a path at which the layout has no parameter.
        TypeError, ValueError
            For a value that is no real number, or of a shape that does not broadcast to the leaf's.

        Returns
        -------
        ndarray, shape (size,)
            Of bool where all values are, else of the vector's (real) dtype.

        Examples
        --------
        >>> layout = Layout.of({"weight": np.ones(2), "bias": np.ones(1)})
        >>> layout.fill({"bias": 0.1}, default=1.0)
        array([1. , 1. , 0.1])
        """
        kinds = [np.asarray(value) for value in (default, *values.values())]
        real = np.zeros(0, self.dtype).real.dtype
        flat = np.full(self.size, default, bool if all(kind.dtype == bool for kind in kinds) else real)
        for key, value in sorted(values.items(), key=lambda item: len(self._path(item[0]))):
            path = self._path(key)
            for place in self.places:
                if place.path[: len(path)] == path:
                    self._fill_place(flat, place, _number_for(place, value))
        return flat

    def _fill_place(self, flat: np.ndarray, place: Place, value: np.ndarray) -> None:
        segment = flat[self.offsets[place.slot] : self.offsets[place.slot + 1]]
        lanes = segment.size // max(1, math.prod(place.shape))
        window = segment.reshape(*self.shapes[place.slot], lanes)  # the lanes of a pair have one value
        axes = place.axes or range(len(place.shape))
        window.transpose(*axes, len(place.shape))[...] = value[..., np.newaxis]

    def _path(self, key: Path | str) -> Path:
        self._slots(key)
        if not isinstance(key, str):
            return key
        ends = (place.path[:end] for place in self.places for end in range(len(place.path) + 1))
        return next(path for path in ends if format_path(path) == key)

    # ---- the layout itself ---------------------------------------------------------------------------------------

    def astype(self, dtype: Any) -> Layout:
        """Return this layout with leaves and flat vector in another inexact dtype (SciPy wants float64).

        Under a real dtype complex leaves take the complex dtype of that precision, stored as pairs.

        >>> Layout.of([np.zeros(2, np.float32)]).astype(np.float64).restructure(np.ones(2))
        [array([1., 1.])]
        """
        new = _inexact(dtype)
        pair = np.result_type(new, np.complex64)
        dtypes = tuple(pair if old.kind == "c" else new for old in self.dtypes)
        strides = tuple(
            tuple(stride // old.itemsize * to.itemsize for stride in steps)
            for steps, old, to in zip(self._strides, self.dtypes, dtypes, strict=True)
        )
        return replace(self, dtypes=dtypes, dtype=new, _strides=strides)

    @cached_property
    def offsets(self) -> np.ndarray:
        """Return where each leaf starts in the flat vector, and at the end its size: (len + 1,) integers."""
        lengths = [
            math.prod(shape) * (2 if dtype.kind == "c" and self._pairs else 1)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]
        offsets = np.cumsum([0, *lengths], dtype=np.int64)
        offsets.setflags(write=False)
        return offsets

    @property
    def size(self) -> int:
        """Return the number of elements of the flat vector."""
        return int(self.offsets[-1])

    @property
    def ties(self) -> dict[Path, Path]:
        """Return the path of each tied leaf with the path that owns its slot."""
        return {place.path: self.paths[place.slot] for place in self.places if place.path != self.paths[place.slot]}

    @property
    def statics(self) -> dict[Path, Any]:
        """Return what is carried along, by path; copies of the layout's own."""
        return dict(zip(self.static_paths, copy_statics(self._statics), strict=True))

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Return for each slot the index in `places` of its owner, the first place of that slot."""
        first: dict[int, int] = {}
        for index, place in enumerate(self.places):
            first.setdefault(place.slot, index)
        return tuple(first.values())

    @cached_property
    def left_out(self) -> frozenset[Path]:
        """Return the paths of the static arrays that would be parameters, had not `where` left them out."""
        pairs = zip(self.static_paths, self._statics, strict=True)
        return frozenset(path for path, value in pairs if isinstance(value, np.ndarray) and value.dtype.kind in "fc")

    @property
    def _pairs(self) -> bool:
        """Whether complex leaves are stored as (re, im)."""
        return self.dtype.kind != "c"

    @cached_property
    def _view_dtypes(self) -> list[tuple[Path, np.dtype, np.dtype]]:
        """Return path and dtype of each leaf that is not empty, and the dtype of a vector that it can be a view of."""
        return [
            (path, dtype, np.zeros(0, dtype).real.dtype if self._pairs else dtype)
            for path, dtype, shape in zip(self.paths, self.dtypes, self.shapes, strict=True)
            if math.prod(shape)
        ]

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self.shapes, self._strides, self.dtypes, self.offsets.tolist(), self.dtype)

    @cached_property
    def _tied(self) -> bool:
        return len(self.places) > len(self.paths)

    @cached_property
    def _way(self) -> Way:
        return _tree.way(self.structure, self._statics)

    def _follow(self, tree: Any) -> list[np.ndarray] | None:
        """Return the leaves of a tree as `match` does, where they are easily found; else None, and `match` has to."""
        leaves = self._way.follow(tree)
        if leaves is not None and self._tied:
            owners = [leaves[index] for index in self.owners]
            pairs = zip(self.places, leaves, strict=True)
            if any(place.axes or leaf is not owners[place.slot] for place, leaf in pairs):
                return None
            leaves = owners
        return leaves

    def _unflatten(self, arrays: list[np.ndarray]) -> Any:
        if self._tied:
            arrays = [_permute(arrays[place.slot], place.axes, 0) for place in self.places]
        return self._way.build(arrays, copy_statics(self._statics))

    def _identity(self) -> tuple:
        return self.structure, self.paths, self.shapes, self.dtypes, self.dtype, self.places

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Layout) else NotImplemented

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity())

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("path", "shape", "dtype", "tied to", "offset")]
        for place in self.places:
            path = self.paths[place.slot]
            tied = "" if path == place.path else format_path(path) + (".T" if place.axes else "")
            dtype, offset = self.dtypes[place.slot], self.offsets[place.slot]
            rows.append((format_path(place.path), str(place.shape), str(dtype), tied, str(offset)))
        for path, value in zip(self.static_paths, self._statics, strict=True):
            rows.append((format_path(path), *brief(value), "", "static"))
        return rows

    def _summary(self) -> str:
        return f"{self.size} parameters in {len(self)} leaves, flat vector of {self.dtype}"

    def __repr__(self) -> str:
        return f"<Layout: {self._summary()}>"

    def __str__(self) -> str:
        return f"{aligned(self._rows(), left=4)}\n{self._summary()}"

    def _repr_html_(self) -> str:
        return html_table(self._rows()) + f"<p>{self._summary()}</p>"

    # ---- checks --------------------------------------------------------------------------------------------------

    def check_vector(self, flat: Any) -> np.ndarray:
        """Return `flat` as a vector that the copies can read; raise TypeError or ValueError where it is none."""
        if not _traced(flat) and self._plan.takes(flat):
            return flat
        flat = check_array(flat, "flat")
        check_length(flat, self.size, "flat")
        if flat.dtype.kind == "c":
            self._refuse_imaginary(flat)
            flat = flat if self.dtype.kind == "c" else flat.real
        elif self.dtype.kind == "c":
            flat = flat.astype(np.result_type(flat.dtype, np.complex64))
        return np.ascontiguousarray(flat, flat.dtype.newbyteorder("="))

    def _refuse_imaginary(self, flat: np.ndarray) -> None:
        for path, dtype, start, stop in zip(self.paths, self.dtypes, self.offsets, self.offsets[1:], strict=False):
            if dtype.kind == "c" and self._pairs:
                raise TypeError(f"{format_path(path)} is stored as pairs of {self.dtype}; got a {flat.dtype} vector")
            if dtype.kind != "c" and np.any(flat.imag[start:stop]):
                raise ValueError(f"{format_path(path)} is {dtype}; the vector has imaginary parts there")

    def check_out(self, out: Any) -> np.ndarray:
        """Return `out` if a flat vector of this layout can be written into it; raise TypeError or ValueError."""
        return check_out(out, self.size, self.dtype)


def _traced(flat: Any) -> bool:
    """Whether a vector is being traced: it says that it is an array, and is of another class."""
    return isinstance(flat, np.ndarray) and not issubclass(type(flat), np.ndarray)


# ---- making a layout ---------------------------------------------------------------------------------------------


def _describe(tree: Any, where: Where | None, dtype: Any) -> tuple[Layout, list[np.ndarray]]:
    """Return the layout of a tree, and its leaves, one a slot."""
    flat = _tree.flatten(tree, where)
    ties = find_ties(flat.paths, flat.leaves)
    if where is not None:
        refuse_half_ties(flat)
    owners = [index for index, (owner, _) in enumerate(ties) if owner == index]
    leaves = [flat.leaves[owner] for owner in owners]
    slot_of = {owner: slot for slot, owner in enumerate(owners)}
    layout = Layout(
        structure=flat.structure,
        paths=tuple(flat.paths[owner] for owner in owners),
        shapes=tuple(leaf.shape for leaf in leaves),
        dtypes=tuple(leaf.dtype for leaf in leaves),
        dtype=_flat_dtype(leaves, dtype),
        places=tuple(
            Place(path, slot_of[owner], leaf.shape, axes)
            for path, leaf, (owner, axes) in zip(flat.paths, flat.leaves, ties, strict=True)
        ),
        _strides=tuple(_fresh_strides(leaf) for leaf in leaves),
        static_paths=tuple(flat.static_paths),
        _statics=tuple(copy_statics(flat.statics)),
    )
    names = list(map(format_path, flat.paths))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is the printed name of two paths; a layout needs one for each")
    return layout, leaves


def _inexact(dtype: Any) -> np.dtype:
    result = np.dtype(np.dtype(dtype).newbyteorder("=").str)       # NumPy's own object, which checks by identity know
    if result.kind not in "fc":
        raise TypeError(f"a flat vector needs a float or complex dtype; got {np.dtype(dtype)}")
    return result


def _flat_dtype(leaves: list[np.ndarray], dtype: Any) -> np.dtype:
    if dtype is not None:
        return _inexact(dtype)
    dtypes = [leaf.dtype for leaf in leaves if leaf.size]
    return _inexact(np.result_type(*dtypes) if dtypes else np.float64)


def _fresh_strides(leaf: np.ndarray) -> tuple[int, ...]:
    """Return the strides of a contiguous array in the memory order of `leaf`."""
    axes = list(range(leaf.ndim))
    if not leaf.flags.c_contiguous:
        axes.sort(key=lambda axis: -abs(leaf.strides[axis]))
    strides, step = [0] * leaf.ndim, leaf.itemsize
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(1, leaf.shape[axis])
    return tuple(strides)


def _permute(array: np.ndarray, axes: Axes, leading: int) -> np.ndarray:
    if axes is None:
        return array
    return array.transpose(*range(leading), *(leading + axis for axis in axes))


def _number_for(place: Place, value: Any) -> np.ndarray:
    """Return a value as an array of numbers of the shape of a leaf."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{format_path(place.path)} needs a real number or an array of them; got {value!r}")
    try:
        return np.broadcast_to(array, place.shape)
    except ValueError:
        raise ValueError(
            f"{format_path(place.path)} needs a number or an array of shape {place.shape}; got {array.shape}"
        ) from None


def _name(key: object) -> str:
    return format_path(key) if isinstance(key, tuple) else str(key)
