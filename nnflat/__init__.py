"""nnflat: a small neural network is one flat vector plus a Layout.

The parameters of a model live in a tree of NumPy arrays (`nnflat.tree`); a `Layout` says where each of them
stands in one contiguous vector, and copies both ways at memory speed.
"""

from importlib import import_module

from nnflat import random, tree
from nnflat.compile import Program, compile
from nnflat.layout import Bound, Layout, StructureChanged, destructure
from nnflat.repeat import scan, vmap

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Layout",
    "Program",
    "StructureChanged",
    "compile",
    "destructure",
    "es",
    "interop",
    "load",
    "nn",
    "optim",
    "random",
    "save",
    "scan",
    "tree",
    "vmap",
]

_ROOMS = frozenset({"es", "interop", "nn", "optim"})
_HOMES = {"load": "nnflat.files", "save": "nnflat.files"}


def __getattr__(name: str) -> object:
    """Load a heavy room, or a function from one, on first use."""
    if name in _ROOMS:
        return import_module(f"nnflat.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'nnflat' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
