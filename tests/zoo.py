"""Small trees, each there for one reason: the laws run over all of them.

`ZOO` maps a name to a function that makes the tree anew; its docstring is the reason.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat import tree

Pair = namedtuple("Pair", "weight bias")


@dataclass(frozen=True)
class Affine:
    weight: np.ndarray
    bias: np.ndarray


@dataclass
class Momentum:
    value: np.ndarray
    rate: float


@tree.register
class Slotted:
    __slots__ = ("bias", "weight")

    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias


@tree.register(static="mean")
class Scaler:
    def __init__(self, scale, mean):
        self.scale, self.mean = scale, mean


class Stack:
    """A class with the protocol, whose `__init__` must not be called again."""

    made = 0

    def __init__(self, *layers):
        type(self).made += 1
        self.layers = layers

    def __tree_children__(self):
        return {f"layer{index}": layer for index, layer in enumerate(self.layers)}

    @classmethod
    def __tree_rebuild__(cls, children):
        new = object.__new__(cls)
        new.layers = tuple(children.values())
        return new


ZOO: dict[str, Callable[[], Any]] = {}


def animal(make: Callable[[], Any]) -> Callable[[], Any]:
    ZOO[make.__name__] = make
    return make


def count(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Return 1, 2, 3 ... in an array of a shape that owns its memory: every element another value."""
    array = np.zeros(shape, dtype)
    array[...] = np.arange(1, 1 + array.size).reshape(shape)
    return array


def unaligned(values: np.ndarray) -> np.ndarray:
    """Return a copy whose data pointer is one byte past an aligned address."""
    block = np.zeros(values.nbytes + 1, np.uint8)
    array = block[1:].view(values.dtype).reshape(values.shape)
    array[...] = values
    return array


@animal
def dense():
    """The usual: a matrix and a vector of one dtype."""
    return {"weight": count(3, 4, dtype=np.float32), "bias": count(4, dtype=np.float32)}


@animal
def tied():
    """The same array at two paths has one slot."""
    weight = count(3, 2)
    return {"encoder": weight, "decoder": weight, "bias": count(2)}


@animal
def tied_node():
    """The same container at two paths: all below it is tied."""
    layer = {"weight": count(2, 2), "bias": count(2)}
    return [layer, layer]


@animal
def tied_by_view():
    """Another array object of the same window is a tie, too."""
    weight = count(3, 2)
    return [weight, weight[:], count(1)]


@animal
def tied_by_transpose():
    """W and W.T: one slot, restored as a transpose."""
    weight = count(3, 2)
    return {"embed": weight, "project": weight.T}


@animal
def tied_square():
    """Square, so that a forgotten transpose would not be seen in the shapes."""
    weight = count(3, 3)
    return {"embed": weight, "project": weight.T}


@animal
def tied_by_permutation():
    """Three axes: the permutation is not its own inverse."""
    kernel = count(2, 3, 4)
    return [kernel.transpose(1, 2, 0), kernel, kernel.transpose(2, 0, 1)]


@animal
def tied_with_unit_axes():
    """Axes of length one can be matched by nothing but their length."""
    row = count(1, 4, 1)
    return [row, row.transpose(1, 0, 2), row.transpose(2, 0, 1)]


@animal
def mixed():
    """Leaves of several dtypes: the vector has one that holds all."""
    return [count(3, dtype=np.float16), count(2, dtype=np.float32), count(2, 2), count(2, dtype=np.complex64) * 1j]


@animal
def half():
    """Half precision alone: the vector is half, too."""
    return [count(5, dtype=np.float16), count(2, 2, dtype=np.float16)]


@animal
def complex_leaves():
    """Complex and real in one precision: the vector is complex."""
    return {"phase": count(2, 2) * (1 + 2j), "gain": count(3)}


@animal
def longdouble():
    """The precision that no loop knows: NumPy copies it."""
    return [count(3, dtype=np.longdouble), count(2, dtype=np.clongdouble) * 1j, count(2)]


@animal
def fortran():
    """Column-major memory; the vector is row-major."""
    return {"weight": np.asfortranarray(count(3, 4)), "bias": count(4)}


@animal
def permuted():
    """Contiguous, but neither C nor Fortran."""
    return [count(2, 3, 4).transpose(1, 0, 2), count(2, 3, 4).transpose(1, 2, 0)]


@animal
def strided():
    """Windows with gaps, which must not be written."""
    block = count(6, 8)
    return {"odd": block[::2, ::2], "even": block[1::2, 1::2], "column": count(4, 3)[:, 1:2]}


@animal
def reversed_axes():
    """Negative strides: the data pointer is not the lowest address."""
    return [count(4)[::-1], count(3, 4)[::-1, ::2], count(2, 3)[:, ::-1].T]


@animal
def zero_d():
    """A 0-d array is a leaf of one element; a float is static."""
    return {"weight": count(2), "temperature": np.array(2.0), "rate": 2.0, "scalar": np.float64(3.0)}


@animal
def empty_leaf():
    """No element: the slot has no length, the dtype has no say."""
    return [np.zeros((0, 3), np.float64), count(2, dtype=np.float32), np.zeros((2, 0), np.float64)]


@animal
def empty_tree():
    """No parameter at all: a vector of length 0."""
    return {"layers": [], "options": {}, "name": "nothing", "none": None}


@animal
def bare_array():
    """The root is a leaf: its path is ()."""
    return count(2, 3)


@animal
def frozen_dataclass():
    """Cannot be assigned to, must be rebuilt without `__init__`."""
    return Affine(count(2, 3), count(3))


@animal
def mutable_dataclass():
    """Can be re-bound; the number stays a number."""
    return [Momentum(count(3), 0.9), Momentum(count(2), 0.5)]


@animal
def slots():
    """No `__dict__`: the attributes are in `__slots__`, in that order."""
    return Slotted(count(2, 2), count(2))


@animal
def named_tuple():
    """A tuple whose keys are names."""
    return Pair(count(2, 3), count(3))


@animal
def nested():
    """Each container in another."""
    first = Pair(count(2, 2), (count(1), {"deep": [count(2)]}))
    return {"layers": [first, Affine(count(1, 2), count(2))], "act": np.tanh}


@animal
def one_shape():
    """All leaves of one shape, inner nodes first: a swap would show in nothing but the numbers."""
    first = {"node": [count(2), {"deep": (count(2) + 10,)}, count(2) + 20], "leaf": count(2) + 30}
    return [first, count(2) + 40, Stack([count(2) + 50], count(2) + 60), count(2) + 70]


@animal
def dicts():
    """Kinds of dict keep their kind and order; keys are not sorted."""
    default = defaultdict(list, {"z": count(2), "a": count(1)})
    return OrderedDict([("second", default), ("first", count(3)), (3, {(): count(1), "with space": count(2)})])


@animal
def registered():
    """A registered class; what `static=` names is carried along."""
    return [Scaler(count(2), count(2)), Scaler(count(1), None)]


@animal
def protocol():
    """A class with `__tree_children__`."""
    return Stack(count(2, 2), Stack(count(3)), "tanh")


@animal
def static_arrays():
    """Integers, bools and strings are no parameters, even as arrays."""
    steps = np.array([1, 2])
    return {"weight": count(2), "steps": steps, "same": steps, "mask": np.array([True]), "names": np.array(["a"])}


@animal
def big_endian():
    """Bytes in the other order; the vector is native."""
    return [count(3, dtype=">f8"), count(2, 2, dtype=">f4"), count(2, dtype=">c16"), count(2, dtype=">f2")]


@animal
def unaligned_leaves():
    """Addresses that are no multiple of the element's size."""
    return [unaligned(count(3)), unaligned(count(2, 3, dtype=np.float32)), unaligned(count(2, 2)).T]


@animal
def memmap():
    """A file in memory is an array like another."""
    with tempfile.TemporaryFile() as file:
        array = np.memmap(file, np.float32, "w+", shape=(2, 3))
    array[...] = count(2, 3)
    return {"table": array, "bias": count(2, dtype=np.float32)}


@animal
def many_leaves():
    """More leaves than fit on the stack of the kernel."""
    return [count(index % 4) + index for index in range(1000)]


@animal
def one_large():
    """Large enough for the loops to release the interpreter's lock, in two orders."""
    return [count(130, 70, dtype=np.float32), np.asfortranarray(count(130, 70, dtype=np.float32))]


def read_only() -> Any:
    """A leaf that cannot be written: in no law on writing, so not in the zoo."""
    leaf = count(3)
    leaf.setflags(write=False)
    return {"first": count(2), "frozen": leaf, "last": count(1)}
