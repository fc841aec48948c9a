"""nnflat: a small neural network is one flat vector plus a Layout.

The parameters of a model live in a tree of NumPy arrays (`nnflat.tree`); a `Layout` says where each of them
stands in one contiguous vector, and copies both ways at memory speed.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from nnflat import random, tree
from nnflat.layout import Bound, Layout, StructureChanged, destructure

if TYPE_CHECKING:
    from nnflat.compile import Program, compile
    from nnflat.files import load, save
    from nnflat.grad import grad, hessian, hvp, jacobian, jvp, remat, stop_gradient, value_and_grad, vjp
    from nnflat.repeat import scan, vmap
    from nnflat.rules import defvjp
    from nnflat.train import fit

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Layout",
    "Program",
    "StructureChanged",
    "compile",
    "defvjp",
    "destructure",
    "es",
    "fit",
    "grad",
    "hessian",
    "hvp",
    "interop",
    "jacobian",
    "jvp",
    "load",
    "nn",
    "optim",
    "random",
    "remat",
    "save",
    "scan",
    "stop_gradient",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
]

_ROOMS = frozenset({"es", "interop", "nn", "optim"})
_HOMES = {
    **dict.fromkeys(("Program", "compile"), "nnflat.compile"),
    **dict.fromkeys(
        ("grad", "hessian", "hvp", "jacobian", "jvp", "remat", "stop_gradient", "value_and_grad", "vjp"), "nnflat.grad"
    ),
    **dict.fromkeys(("scan", "vmap"), "nnflat.repeat"),
    **dict.fromkeys(("load", "save"), "nnflat.files"),
    "defvjp": "nnflat.rules",
    "fit": "nnflat.train",
}


def __getattr__(name: str) -> object:
    """Load a heavy room, or a function from one, on first use."""
    if name in _ROOMS:
        return import_module(f"nnflat.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'nnflat' has no attribute {name!r}")


class _Package(ModuleType):
    """The package: where a file is named like its function (compile, grad), the name on the package is the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
