"""What a layer is: a node of a tree that computes in the dtype of its parameters and is frozen once built.

(a) The children of a layer are its attributes, in the order of assignment, statics included. Nothing else is
    among them: the mark that says "built" stands in a slot, outside `__dict__`.
(b) Attributes are set in `__init__` and never re-bound after it: whoever holds the array of a parameter
    holds it for good. Arrays are written in place.
(c) Copies (`copy`, `deepcopy`, `pickle`, `__tree_rebuild__`) never call `__init__`, and are frozen too.
"""

from collections.abc import Callable
from typing import Any, Never, Self

import numpy as np
from numpy import ndarray  # one look-up fewer in `cast`, which every layer calls
from numpy.typing import ArrayLike, NDArray

from nnflat.nn.table import table

_MISSING = object()


class _FrozenOnceBuilt(type):
    """Freeze an instance as soon as its outermost `__init__` is done."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        layer = super().__call__(*args, **kwargs)
        _freeze(layer)
        return layer


class Layer(metaclass=_FrozenOnceBuilt):
    """Base class of the layers, and of models written as classes.

    A subclass sets arrays, statics and other layers in `__init__` and computes in `__call__(x, *, key=None)`,
    no key meaning evaluation. It needs no decorator, no registration and no call of `super().__init__`.

    After `__init__` the attributes are frozen: re-binding one raises, writing into its array is the way to
    change it, `layer.weight -= step` included.

    Examples
    --------
    >>> class Scale(Layer):
    ...     def __init__(self, n):
    ...         self.weight = np.ones(n, np.float32)
    ...
    ...     def __call__(self, x, *, key=None):
    ...         return cast(x, self.weight) * self.weight
    >>> scale = Scale(2)
    >>> scale.weight *= 3
    >>> scale([1.0, 2.0])
    array([3., 6.], dtype=float32)
    >>> scale
    Scale(weight=(2,))
    """

    __slots__ = ("__dict__", "__frozen__", "__weakref__")
    __tree_frozen__ = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("__slots__"):
            raise TypeError(f"{cls.__name__} has __slots__; the parameters of a layer are plain attributes")

    def __tree_children__(self) -> dict[str, Any]:
        """Return the attributes by name, in order of assignment; their arrays are shared."""
        return self.__dict__.copy()

    @classmethod
    def __tree_rebuild__(cls, children: dict[str, Any]) -> Self:
        """Return a frozen layer with these attributes, sharing their arrays; `__init__` is not called."""
        layer = object.__new__(cls)
        layer.__dict__.update(children)
        _freeze(layer)
        return layer

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[dict[str, Any]]]:
        return type(self).__tree_rebuild__, (self.__tree_children__(),)

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "__frozen__", False) and self.__dict__.get(name, _MISSING) is not value:
            _refuse_setting(self, name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if getattr(self, "__frozen__", False):
            attribute = f"{type(self).__name__}.{name}"
            raise AttributeError(f"{attribute} cannot be deleted: a layer is frozen after __init__")
        object.__delattr__(self, name)

    def __repr__(self) -> str:
        children = self.__tree_children__().items()
        return f"{type(self).__name__}({', '.join(f'{name}={brief(value)}' for name, value in children)})"

    def __str__(self) -> str:
        return table(self)


def _freeze(layer: Layer) -> None:
    object.__setattr__(layer, "__frozen__", True)


def _refuse_setting(layer: Layer, name: str) -> Never:
    """Raise the error that says what to do instead of binding `name`."""
    attribute = f"{type(layer).__name__}.{name}"
    if name not in layer.__dict__:
        raise AttributeError(f"{attribute} does not exist; a layer is frozen after __init__, so set it there")
    if isinstance(layer.__dict__[name], ndarray):
        raise AttributeError(f"{attribute} cannot be re-bound; write in place: layer.{name}[...] = value")
    raise AttributeError(f"{attribute} cannot be re-bound: a layer is frozen after __init__; build a new one")


def brief(value: object) -> str:
    """Return a few words for an attribute: the shape of an array, the name of a function.

    >>> brief(np.zeros((2, 3))), brief(np.tanh), brief([1, 2])
    ('(2, 3)', 'tanh', '[1, 2]')
    """
    if isinstance(value, ndarray):
        return str(value.shape)
    if isinstance(value, list | tuple):
        inner = ", ".join(map(brief, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {brief(child)}' for key, child in value.items())}}}"
    return getattr(value, "__name__", None) or repr(value)


def cast(x: ArrayLike, like: NDArray[Any]) -> NDArray[Any]:
    """Return `x` as an array of the dtype of `like`; `x` itself, not a copy, when it has that dtype already.

    Layers call it first, so that they compute in the dtype of their parameters, whatever comes in.

    Parameters
    ----------
    x : array_like
        Numbers of the same or a simpler kind than `like`: bool, integer, float, and complex if `like` is.
    like : ndarray
        The parameter that decides.

    Raises
    ------
    TypeError
        If the cast would lose more than precision: complex to float, float to integer, anything but numbers.

    Examples
    --------
    >>> cast([1, 2], np.zeros(3, np.float32))
    array([1., 2.], dtype=float32)
    """
    if isinstance(x, ndarray) and x.dtype == like.dtype:
        return x
    x = x if isinstance(x, ndarray) else np.asarray(x)
    if not np.can_cast(x.dtype, like.dtype, "same_kind"):
        raise TypeError(f"parameters of dtype {like.dtype} cannot take an input of dtype {x.dtype}")
    return x.astype(like.dtype)


def call(model: Callable[..., Any], *args: Any) -> Any:
    """Return `model(*args)`: calling a model, as a function of the model.

    >>> call(np.sum, np.ones((3, 2)), 0)
    array([3., 3.])
    """
    return model(*args)
