"""Tracer: a traced value, which carries the array that eager NumPy gave, and where it stands on the tape."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat.context import current
from nnflat.tape import Window

SERIAL = itertools.count()


@dataclass(eq=False, slots=True)
class Node:
    """How traced values were made of others: what a derivative rule needs. Nodes are numbered as they are made."""

    kind: str
    serial: int
    outputs: tuple[Tracer, ...]
    operands: tuple[Any, ...]
    settings: dict[str, Any]


FROZEN = ("or, where the value is part of the program, name the argument in static=, make the captured array "
          "read-only (flags.writeable = False)")


class Tracer:
    """A traced value: to NumPy and to `isinstance` what its eager value is."""

    __slots__ = ("__weakref__", "node", "owner", "value", "window")
    __array_priority__ = 1000.0
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, owner: Any, value: Any, window: Window) -> None:
        self.owner, self.value, self.window = owner, value, window
        self.node: Node | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def __repr__(self) -> str:
        return f"<traced {type(self.value).__name__}, shape {self.shape}, dtype {self.dtype}>"

    shape = property(lambda self: np.shape(self.value))
    ndim = property(lambda self: np.ndim(self.value))
    size = property(lambda self: np.size(self.value))
    dtype = property(lambda self: as_array(self.value).dtype)
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: as_array(self.value).nbytes)
    strides = property(lambda self: as_array(self.value).strides)
    flags = property(lambda self: as_array(self.value).flags)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from nnflat.handlers import ufunc_method

        return ufunc_method(current(), ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        from nnflat.handlers import numpy_function

        return numpy_function(current(), function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        from nnflat.methods import method_of

        return method_of(self, name)

    def __getitem__(self, index: Any) -> Any:
        from nnflat.methods import getitem

        return getitem(current(), self, index)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise current().fail("a traced value was made into a plain array",
                                 "np.stack([a, b]) for np.array([a, b]), np.take(x, i) for x[i], x.astype(dtype) for "
                                 "np.asarray(x, dtype); keep traced values out of lists given to NumPy")

    def __bool__(self) -> bool:
        raise current().fail("a branch on a traced value",
                                 f"np.where(condition, a, b); {FROZEN}")

    def __float__(self) -> float:
        raise current().fail("a traced value as a Python number",
                                 "np.sin(x) for math.sin(x), x.astype(float) for float(x)")

    __complex__ = __int__ = __float__

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None or isinstance(self.value, np.ndarray):
            raise current().fail("round() of a traced value", "np.round(x)")
        return current().call(round, (self, digits), {})

    def __index__(self) -> int:
        raise current().fail("a traced value as an index or a size",
                                 f"np.take(x, i) for x[i]; {FROZEN}")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise current().fail("an assignment to elements of a traced value", "np.where or np.concatenate")

    def __copy__(self) -> Any:
        return self.copy("K") if isinstance(self.value, np.ndarray) else self

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __contains__(self, value: Any) -> bool:
        raise current().fail("`in` on a traced value", "np.any(x == value) with np.where")


def in_place(name: str) -> Callable[[Tracer, Any], Any]:
    def method(self: Tracer, other: Any) -> Any:
        raise current().fail(f"an assignment in place ({name}) to a traced value", f"x = x {name[:-1]} y")

    return method


for _name, _symbol in {"add": "+=", "sub": "-=", "mul": "*=", "truediv": "/=", "floordiv": "//=", "mod": "%=",
                       "pow": "**=", "matmul": "@=", "and": "&=", "or": "|=", "xor": "^=", "lshift": "<<=",
                       "rshift": ">>="}.items():
    setattr(Tracer, f"__i{_name}__", in_place(_symbol))


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
          "floordiv": np.floor_divide, "mod": np.remainder, "divmod": np.divmod, "matmul": np.matmul,
          "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
          "lshift": np.left_shift, "rshift": np.right_shift}
COMPARE = {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal, "gt": np.greater,
           "ge": np.greater_equal}
UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
OPERATORS = {"divmod": divmod, "and": operator.and_, "or": operator.or_}


def binary(name: str, ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any]]:
    python = OPERATORS.get(name) or getattr(operator, name)

    def method(self: Tracer, other: Any) -> Any:
        return operate(current(), python, ufunc, (self, other))

    def reflected(self: Tracer, other: Any) -> Any:
        return operate(current(), python, ufunc, (other, self))

    return method, reflected


def operate(trace: Any, python: Callable[..., Any], ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """Record an operator. Scalars have arithmetic of their own in NumPy; Python numbers have Python's."""
    from nnflat.scalars import compute, own_arithmetic

    if all(not isinstance(value_of(x), np.ndarray) for x in inputs) and own_arithmetic(ufunc, inputs):
        return compute(trace, python, ufunc, inputs)
    if any(isinstance(x, list | tuple) for x in inputs):
        inputs = tuple(np.asarray(x) if isinstance(x, list | tuple) else x for x in inputs)
    return trace.ufunc(ufunc, inputs)


def power(self: Tracer, other: Any, modulo: Any = None) -> Any:
    """`x ** n` has shortcuts for exact Python numbers, on arrays of numbers; take the same ones."""
    trace = current()
    shortcut = POWERS.get((type(other), other)) if type(other) in (int, float) else None
    if shortcut and isinstance(self.value, np.ndarray) and self.value.dtype.kind in shortcut[1]:
        return trace.ufunc(shortcut[0], (self,))
    if self.dtype == bool:
        return trace.call(operator.pow, (self, other), {})
    return operate(trace, operator.pow, np.power, (self, other))


POWERS = {(int, 2): (np.square, "iufc"), (int, -1): (np.reciprocal, "fc"), (float, 0.5): (np.sqrt, "fc")}


def reflected_power(self: Tracer, other: Any, modulo: Any = None) -> Any:
    return operate(current(), operator.pow, np.power, (other, self))


for _name, _ufunc in BINARY.items():
    _method, _reflected = binary(_name, _ufunc)
    setattr(Tracer, f"__{_name}__", _method)
    setattr(Tracer, f"__r{_name}__", _reflected)
for _name, _ufunc in COMPARE.items():
    setattr(Tracer, f"__{_name}__", binary(_name, _ufunc)[0])
setattr(Tracer, "__pow__", power)  # noqa: B010
setattr(Tracer, "__rpow__", reflected_power)  # noqa: B010


def unary(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    python = getattr(operator, name)

    def method(self: Tracer) -> Any:
        return operate(current(), python, ufunc, (self,))

    return method


for _name, _ufunc in UNARY.items():
    setattr(Tracer, f"__{_name}__", unary(_name, _ufunc))


def is_traced(x: Any) -> bool:
    return type(x) is Tracer


def value_of(x: Any) -> Any:
    return x.value if type(x) is Tracer else x


def as_array(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def kind_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "array"
    return "scalar" if isinstance(value, np.generic) else "number"
