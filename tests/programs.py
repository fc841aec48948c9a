"""Random programs of NumPy, for the law: compiled equals eager, to the bit.

A program is a list of steps, each made of earlier values. It is built by running it: a step that NumPy refuses, or
whose result is large, is left out.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import nnflat as nf

FLOATS = "efd"
DTYPES = "?bBhHiIlLefdFD"
SHAPES = [(), (1,), (7,), (0,), (3, 4), (4, 3), (1, 4), (3, 1), (5, 5), (2, 3, 4), (0, 3), (2, 1, 3), (33,), (130,),
          (20, 30), (4, 1, 1, 2), (2500,)]
LAYOUTS = ["C", "F", "strided", "reversed", "transposed", "unaligned", "swapped"]
UFUNCS = sorted({value for value in vars(np).values() if isinstance(value, np.ufunc) and value.signature is None
                 and any("O" not in types and "M" not in types and "m" not in types for types in value.types)},
                key=lambda ufunc: ufunc.__name__)
UNARY = [ufunc for ufunc in UFUNCS if ufunc.nin == 1]
BINARY = [ufunc for ufunc in UFUNCS if ufunc.nin == 2 and ufunc is not np.copysign]      # it shows the sign of a NaN
COMMON = [np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.divide]
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.lt, operator.ge,
             operator.eq, operator.floordiv, operator.mod, operator.and_, operator.or_]
NUMBERS = [2, 1, 0, -1, 3, 0.5, 2.0, -1.5, 1e-3, 3.7, 1j, True]
REDUCERS = ["sum", "prod", "min", "max", "any", "all", "mean", "var", "std"]
PRODUCTS = [np.matmul, np.dot, np.inner, np.vecdot, np.outer, np.tensordot, np.kron]


def array(rng: Any, dtype: str, shape: tuple[int, ...], layout: str, seed: int) -> np.ndarray:
    """Make an array of special and ordinary values in one of the layouts."""
    values = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    wide = tuple(2 * n for n in shape)
    if kind == "b":
        x = values.random(wide) < 0.5
    elif kind in "iu":
        x = values.integers(0 if kind == "u" else -5, 6, wide)
    else:
        x = np.asarray(values.standard_normal(wide) * 2)
        x = np.where(values.random(wide) < 0.1, values.choice([0.0, -0.0, 1.0, np.inf, np.nan, -2.0], wide), x)
        if kind == "c":
            x = x + 1j * values.standard_normal(wide)
    return lay_out(np.asarray(x).astype(dtype), shape, layout)


def lay_out(x: np.ndarray, shape: tuple[int, ...], layout: str) -> np.ndarray:
    small = np.array(x[tuple(slice(0, n) for n in shape)])
    if layout == "F":
        return np.asfortranarray(small)
    if layout == "strided":
        return x[tuple(slice(None, None, 2) for _ in shape)]
    if layout == "reversed":
        return small[tuple(slice(None, None, -1) for _ in shape)]
    if layout == "transposed":
        return np.ascontiguousarray(small.T).T if small.ndim else small
    if layout == "unaligned":
        memory = np.empty(small.nbytes + 1, np.uint8)[1:]
        odd = np.frombuffer(memory.data, small.dtype, small.size).reshape(shape) if small.size else small
        if small.size:
            odd[...] = small
        return odd
    if layout == "swapped":
        return small.astype(small.dtype.newbyteorder())
    return small


REFUSALS = (TypeError, ValueError, IndexError, AttributeError, ArithmeticError, np.linalg.LinAlgError)


class Program:
    """Steps over values; `program(*arguments)` gives a tuple of some of them."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, Callable[..., Any], tuple[int, ...]]] = []
        self.results: tuple[int, ...] = ()

    def __call__(self, *arguments: Any) -> tuple[Any, ...]:
        values = list(arguments)
        for _, function, operands in self.steps:
            values.append(function(*[values[i] for i in operands]))
        return tuple(values[i] for i in self.results)

    def __repr__(self) -> str:
        return "; ".join(f"{name}{operands}" for name, _, operands in self.steps) + f" -> {self.results}"


def make_program(rng: Any, arguments: list[Any], length: int) -> Program:
    """Build a program of up to `length` steps on the arguments; `rng` is a `random.Random`."""
    program, values = Program(), list(arguments)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(4 * length):
            if len(program.steps) == length:
                break
            name, function, arity = step(rng)
            operands = tuple(pick(rng, len(values)) for _ in range(arity))
            try:
                value = function(*[values[i] for i in operands])
            except REFUSALS:
                continue
            if acceptable(value):
                program.steps.append((name, function, operands))
                values.append(value)
    last = len(values) - 1
    return finish(rng, program, values, last)


def finish(rng: Any, program: Program, values: list[Any], last: int) -> Program:
    """Choose the results, and drop the steps that nobody reads: a tape drops them, too, with their warnings."""
    wanted = {last, *[rng.randrange(len(values)) for _ in range(rng.randrange(3))]}
    first = len(values) - len(program.steps)
    needed = set(wanted) | set(range(first))
    for i in reversed(range(len(program.steps))):
        if first + i in needed:
            needed.update(program.steps[i][2])
    number = {old: new for new, old in enumerate(sorted(needed))}
    program.steps = [(name, function, tuple(number[k] for k in operands))
                     for i, (name, function, operands) in enumerate(program.steps) if first + i in needed]
    program.results = tuple(sorted(number[k] for k in wanted))
    return program


def pick(rng: Any, count: int) -> int:
    return max(rng.randrange(count), rng.randrange(count))


def acceptable(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.char in DTYPES and value.size < 20_000


def step(rng: Any) -> tuple[str, Callable[..., Any], int]:
    return rng.choice(STEPS)(rng)


def unary(rng: Any) -> tuple[str, Callable[..., Any], int]:
    ufunc = rng.choice(UNARY)
    if ufunc.nout == 2:
        k = rng.randrange(2)
        return f"{ufunc.__name__}[{k}]", lambda x: ufunc(x)[k], 1
    return ufunc.__name__, ufunc, 1


def binary(rng: Any) -> tuple[str, Callable[..., Any], int]:
    ufunc = rng.choice(BINARY + 6 * COMMON)
    if ufunc.nout == 2:
        return f"{ufunc.__name__}[1]", lambda x, y: ufunc(x, y)[1], 2
    return ufunc.__name__, ufunc, 2


def with_operator(rng: Any) -> tuple[str, Callable[..., Any], int]:
    function = rng.choice(OPERATORS)
    return f"operator.{function.__name__}", function, 2


def with_number(rng: Any) -> tuple[str, Callable[..., Any], int]:
    function, number = rng.choice(OPERATORS), rng.choice(NUMBERS)
    told_apart = type(number) is not complex or function not in (operator.eq, operator.ne)
    if rng.randrange(2) or not told_apart:      # 1j == x asks x, as x == 1j does; of a float64 it gives a Python bool
        return f"{function.__name__} {number}", lambda x: function(x, number), 1
    return f"{number} {function.__name__}", lambda x: function(number, x), 1


def axis_of(rng: Any) -> Any:
    return rng.choice([None, 0, -1, 1, (0, 1), (0, -1)])


def reduction(rng: Any) -> tuple[str, Callable[..., Any], int]:
    name, axis, keepdims = rng.choice(REDUCERS), axis_of(rng), rng.randrange(2) == 1
    if rng.randrange(2):
        return f"np.{name} {axis} {keepdims}", lambda x: getattr(np, name)(x, axis=axis, keepdims=keepdims), 1
    return f"x.{name} {axis} {keepdims}", lambda x: getattr(x, name)(axis=axis, keepdims=keepdims), 1


def ufunc_reduction(rng: Any) -> tuple[str, Callable[..., Any], int]:
    ufunc, axis = rng.choice(BINARY), rng.choice([0, -1, 1])
    method = rng.choice(["reduce", "accumulate"])
    return f"{ufunc.__name__}.{method} {axis}", lambda x: getattr(ufunc, method)(x, axis=axis), 1


def outer(rng: Any) -> tuple[str, Callable[..., Any], int]:
    ufunc = rng.choice(COMMON)
    return f"{ufunc.__name__}.outer", ufunc.outer, 2


def product(rng: Any) -> tuple[str, Callable[..., Any], int]:
    function = rng.choice([np.matmul] * 6 + PRODUCTS)
    if function is np.matmul and rng.randrange(2):
        return "x @ x.T", lambda x: x @ x.T, 1
    return function.__name__, function, 2


def view(rng: Any) -> tuple[str, Callable[..., Any], int]:
    k = rng.randrange(3)
    return rng.choice([
        ("T", lambda x: x.T, 1),
        ("reshape -1", lambda x: x.reshape(-1), 1),
        ("reshape F", lambda x: np.reshape(x, -1, order="F"), 1),
        ("ravel", np.ravel, 1),
        ("x[None]", lambda x: x[None], 1),
        ("x[::-1]", lambda x: x[::-1], 1),
        ("x[..., ::2]", lambda x: x[..., ::2], 1),
        ("x[..., ::-1]", lambda x: x[..., ::-1], 1),
        ("x[1:]", lambda x: x[1:], 1),
        ("x[0]", lambda x: x[0], 1),
        ("x[-1, ...]", lambda x: x[-1, ...], 1),
        ("swapaxes", lambda x: np.swapaxes(x, 0, -1), 1),
        ("moveaxis", lambda x: np.moveaxis(x, 0, -1), 1),
        ("expand_dims", lambda x: np.expand_dims(x, -1), 1),
        ("squeeze", np.squeeze, 1),
        ("broadcast_to", lambda x: np.broadcast_to(x, (2, *x.shape)), 1),
        ("flip", np.flip, 1),
        ("diagonal", np.diagonal, 1),
        ("real", np.real, 1),
        ("imag", np.imag, 1),
        ("split", lambda x: np.split(x, 2)[1], 1),
        ("atleast_2d", np.atleast_2d, 1),
        ("windows", lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=0), 1),
        (f"iterate {k}", lambda x: list(x)[k], 1),
    ])


def movement(rng: Any) -> tuple[str, Callable[..., Any], int]:
    k = rng.randrange(-2, 3)
    return rng.choice([
        ("roll", lambda x: np.roll(x, k), 1),
        ("repeat", lambda x: np.repeat(x, 2, axis=0), 1),
        ("x.repeat", lambda x: x.repeat(2), 1),
        ("tile", lambda x: np.tile(x, 2), 1),
        ("pad", lambda x: np.pad(x, 1), 1),
        ("tril", lambda x: np.tril(x, k), 1),
        ("triu", lambda x: np.triu(x, k), 1),
        ("copy", lambda x: x.copy(), 1),
        ("np.copy", np.copy, 1),
        ("concatenate", lambda x, y: np.concatenate([x, y]), 2),
        ("concatenate -1", lambda x, y: np.concatenate([x, y], axis=-1), 2),
        ("stack", lambda x, y: np.stack([x, y], axis=k), 2),
        ("hstack", lambda x, y: np.hstack([x, y]), 2),
        ("vstack", lambda x, y: np.vstack([x, y]), 2),
        ("take", lambda x: np.take(x, [0, -1, 0], axis=0), 1),
        ("x[[0, 0]]", lambda x: x[[0, 0]], 1),
        ("x[:, [0, -1]]", lambda x: x[:, [0, -1]], 1),
        ("x[np.array]", lambda x: x[np.array([0, -1])], 1),
        ("take argmax", lambda x: x[np.argmax(x)], 1),
        ("take_along_axis", lambda x: np.take_along_axis(x, np.argsort(x, axis=0), axis=0), 1),
        ("flatten", lambda x: x.flatten(), 1),
        ("rot90", np.rot90, 1),
    ])


def other(rng: Any) -> tuple[str, Callable[..., Any], int]:
    dtype = rng.choice(DTYPES)
    return rng.choice([
        (f"astype {dtype}", lambda x: x.astype(dtype), 1),
        (f"astype f {dtype}", lambda x: x.astype(np.float32), 1),
        ("where", lambda c, x, y: np.where(c, x, y), 3),
        ("where > 0", lambda x: np.where(x > 0, x, 0), 1),
        ("where numbers", lambda x, y: np.where(x > y, 1.0, y), 2),
        ("clip", lambda x: np.clip(x, -1, 1), 1),
        ("x.clip", lambda x: x.clip(0.25, None), 1),
        ("clip arrays", lambda x, y, z: np.clip(x, y, z), 3),
        ("cumsum", lambda x: np.cumsum(x, axis=0), 1),
        ("cumsum None", lambda x: x.cumsum(), 1),
        ("cumprod", lambda x: np.cumprod(x, axis=-1), 1),
        ("argmax", lambda x: np.argmax(x, axis=0), 1),
        ("argmin", lambda x: x.argmin(), 1),
        ("argmin -1", lambda x: x.argmin(axis=-1), 1),
        ("normal", lambda x: nf.random.normal(np.argmax(x).astype(np.uint64), (2, 3)), 1),
        ("fold", lambda x: nf.random.fold(np.uint64(3), np.argmin(x, axis=0)), 1),
        ("sort", lambda x: np.sort(x, axis=0), 1),
        ("norm", np.linalg.norm, 1),
        ("norm axis", lambda x: np.linalg.norm(x, axis=0), 1),
        ("round", lambda x: np.round(x, 2), 1),
        ("zeros_like", lambda x: x + np.zeros_like(x), 1),
        ("einsum", lambda x: np.einsum("i...->...", x), 1),
        ("sum float", lambda x: np.sum(x, axis=0, dtype=float), 1),
        ("sum where", lambda x: np.sum(x, where=x > 0), 1),
        ("max initial", lambda x: np.max(x, axis=0, initial=0), 1),
        ("ptp", np.ptp, 1),
        ("diff", np.diff, 1),
        ("nan_to_num", np.nan_to_num, 1),
        ("softmax", lambda x: np.exp(x - x.max(axis=-1, keepdims=True)) / np.exp(x).sum(axis=-1, keepdims=True), 1),
        ("var ddof", lambda x: np.var(x, axis=0, ddof=1), 1),
        ("x[0] += scalar", lambda x: x.ravel()[0] * x, 1),
        ("logical", lambda x: ~(x > 0), 1),
        ("divmod", lambda x, y: divmod(x, y)[0], 2),
        ("abs", abs, 1),
        ("neg", operator.neg, 1),
    ])


STEPS = [unary, unary, binary, binary, binary, with_operator, with_number, with_number, reduction, reduction,
         ufunc_reduction, outer, product, view, view, view, movement, other, other]


# --- programs to differentiate -----------------------------------------------------------------------------

SMOOTH = [
    lambda m, a, b: m.tanh(a), lambda m, a, b: m.sin(a) * b, lambda m, a, b: a + 0.5 * b, lambda m, a, b: a * b,
    lambda m, a, b: a / (2.0 + m.square(m.tanh(b))), lambda m, a, b: m.exp(-m.abs(a)),
    lambda m, a, b: a @ b.T @ a * 0.1,
    lambda m, a, b: a - m.mean(a, axis=0), lambda m, a, b: m.concatenate([a[1:], b[:1]]), lambda m, a, b: a[::-1],
    lambda m, a, b: a * m.sum(b, axis=1, keepdims=True), lambda m, a, b: m.conj(a) * b,
    lambda m, a, b: m.cumsum(a, axis=1),
    lambda m, a, b: m.transpose(m.transpose(a) * 2.0), lambda m, a, b: m.reshape(m.reshape(a, (-1,))[::-1], (3, 4)),
    lambda m, a, b: a**3 * 0.1, lambda m, a, b: m.real(a) + b,
    lambda m, a, b: m.where(m.real(a) > m.real(b), a, 2.0 * b),
    lambda m, a, b: m.imag(a) * b + a, lambda m, a, b: m.einsum("ij,kj->ik", a, b) @ a * 0.1,
    lambda m, a, b: a[:, [2, 0, 2, 1]],
    lambda m, a, b: m.sqrt(1.0 + m.abs(a) ** 2), lambda m, a, b: m.stack([a, b])[1],
    lambda m, a, b: m.roll(a, 1, axis=1),
]  # fmt: skip
REAL = [
    lambda m, a, b: m.maximum(a, b), lambda m, a, b: a * m.max(b), lambda m, a, b: m.min(a, axis=1, keepdims=True) * b,
    lambda m, a, b: m.log(1.5 + m.cos(a)), lambda m, a, b: m.logaddexp(a, b), lambda m, a, b: m.clip(a, -0.7, 0.9),
    lambda m, a, b: m.prod(m.tanh(a), axis=1, keepdims=True) + b, lambda m, a, b: m.std(a, axis=0) + b,
]  # fmt: skip
KINDS = {"real": ("d", "d"), "complex": ("D", "D"), "mixed": ("f", "D"), "single": ("f", "d")}


def derivable(kind: str, seed: int) -> tuple[Callable[..., Any], tuple[np.ndarray, np.ndarray]]:
    """Return a program of two matrices to a real number, `(module, x, y)`, and its arguments."""
    rng = np.random.default_rng(seed)
    dtypes = KINDS.get(kind, ("d", "d"))
    steps = [*SMOOTH, *REAL] if kind in ("real", "single") else SMOOTH
    choices = [(int(rng.integers(len(steps))), int(rng.integers(9)), int(rng.integers(9)))
               for _ in range(rng.integers(1, 9))]

    def program(module: Any, x: Any, y: Any) -> Any:
        values = [x, y]
        for k, i, j in choices:
            values.append(steps[k](module, values[-1 - i % len(values)], values[j % len(values)]))
        last = module.tanh(values[-1])
        return module.sum(module.real(last)) + 0.5 * module.sum(module.imag(last))

    x, y = ((rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4)) * (c in "FD")) for c in dtypes)
    args = tuple(each.real.astype(c) if c in "fd" else each.astype(c) for each, c in zip((x, y), dtypes, strict=True))
    return program, args
