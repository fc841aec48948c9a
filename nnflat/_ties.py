"""Which leaves are the same memory: ties, and the overlaps that are no ties.

Decided by memory cells, not by object identity. The same window, or an axis permutation of it, is a tie; any other
overlap of two leaves, or of a leaf with itself, is an error, for writing one would change the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from nnflat._copy import extent
from nnflat.tree import Flattened, Path, format_path

Axes = tuple[int, ...] | None
Tie = tuple[int, Axes]


def find_ties(paths: Sequence[Path], leaves: Sequence[np.ndarray]) -> list[Tie]:
    """Return for each leaf its owner, the first leaf of the same memory, and how its axes permute the owner's.

    Raises
    ------
    ValueError
        Where two leaves overlap without being a tie, or a leaf overlaps itself.
    """
    owners: dict[tuple, int] = {}
    spans = []
    ties: list[Tie] = []
    for index, leaf in enumerate(leaves):
        if leaf.size == 0:
            ties.append((index, None))
            continue
        low, high = extent(leaf)
        axes = sorted((n, stride) for n, stride in zip(leaf.shape, leaf.strides, strict=True) if n > 1)
        key = (low, leaf.dtype, leaf.ndim, tuple(axes))
        owner = owners.setdefault(key, index)
        ties.append((owner, None if owner == index else permutation(leaves[owner], leaf)))
        if owner == index:
            _refuse_self_overlap(paths[index], leaf, axes, high - low)
            spans.append((low, high, index))
    for first, second in _meeting(sorted(spans)):
        if np.shares_memory(leaves[first], leaves[second]):
            raise ValueError(
                f"{format_path(paths[first])} and {format_path(paths[second])} overlap in memory without being"
                " the same array or a transpose of it; copy one of them first"
            )
    return ties


def refuse_half_ties(flat: Flattened) -> None:
    """Raise where a leaf that `where` left out is the memory of one that it took."""
    statics = zip(flat.static_paths, flat.statics, strict=True)
    left = [(path, value) for path, value in statics if isinstance(value, np.ndarray) and value.dtype.kind in "fc"]
    paths, arrays = [*flat.paths, *(path for path, _ in left)], [*flat.leaves, *(value for _, value in left)]
    spans = [(*extent(array), index) for index, array in enumerate(arrays) if array.size]
    taken = len(flat.paths)
    for first, second in _meeting(sorted(spans)):
        if first < taken <= second and np.shares_memory(arrays[first], arrays[second]):
            names = f"{format_path(paths[first])} and {format_path(paths[second])}"
            raise ValueError(f"{names} share memory (tied?); where= must take both or none")


def permutation(owner: np.ndarray, leaf: np.ndarray) -> Axes:
    """Return the axes with `owner.transpose(axes)` the same window as `leaf`; None where they are in order."""
    free = list(range(owner.ndim))
    axes = []
    for n, stride in zip(leaf.shape, leaf.strides, strict=True):
        axis = next(k for k in free if owner.shape[k] == n and (n == 1 or owner.strides[k] == stride))
        free.remove(axis)
        axes.append(axis)
    return None if axes == sorted(axes) else tuple(axes)


def _refuse_self_overlap(path: Path, leaf: np.ndarray, axes: list[tuple[int, int]], room: int) -> None:
    if any(stride == 0 for _, stride in axes):
        raise ValueError(
            f"{format_path(path)} has stride 0: its elements are one cell of memory (np.broadcast_to?); copy it first"
        )
    span = leaf.itemsize
    for n, stride in sorted(axes, key=lambda axis: abs(axis[1])):
        if abs(stride) < span and (room < leaf.nbytes or _cells(leaf.itemsize, axes) < leaf.nbytes):
            raise ValueError(f"{format_path(path)} overlaps itself in memory; copy it first")
        span += (n - 1) * abs(stride)


def _cells(itemsize: int, axes: list[tuple[int, int]]) -> int:
    """Return the number of different bytes that a window covers."""
    addresses = np.arange(itemsize)
    for n, stride in axes:
        addresses = np.unique(np.add.outer(addresses, stride * np.arange(n)))
    return addresses.size


def _meeting(spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Sweep over spans (low, high, index) in the order of their addresses; yield the pairs of indices that meet."""
    reaching: list[tuple[int, int]] = []
    for low, high, index in spans:
        while reaching and reaching[0][0] <= low:
            heapq.heappop(reaching)
        for _, other in reaching:
            yield min(other, index), max(other, index)
        heapq.heappush(reaching, (high, index))
