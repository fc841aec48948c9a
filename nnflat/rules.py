"""The derivative rules of ufuncs and reductions, in plain NumPy: on traced values they land on the tape.

A rule of a ufunc has an entry an operand, `(g, y, *xs) -> cotangent`, where g is the cotangent of the result y and xs
are the operands. It may have the shape and dtype of y: sums over broadcast axes and casts are made by the caller.
None stands for a derivative that is zero.

Conventions. Complex: `g * dy/dx` with no conjugate (a real loss has the gradient du/dx - i du/dy, as in JAX and HIPS
autograd). Kinks: ties of maximum and minimum share equally; abs'(0) = sign(0) = 0; hypot and arctan2 have 0 at the
origin; clip has 1 at its bounds; x ** 0 has 0; a root of a sum of squares (norm, std) has 0 at 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy._core.umath as umath

Rule = Callable[..., Any] | None
CLIP: Any = vars(umath)["clip"]                # the ufunc behind np.clip
LN2, LN10 = math.log(2.0), math.log(10.0)


def defvjp(ufunc: np.ufunc, *rules: Rule) -> None:
    """Give a ufunc its derivative: a rule an operand, `(g, y, *xs) -> cotangent`, or None for a zero.

    Parameters
    ----------
    ufunc : numpy.ufunc
        With one output; SciPy's, say, or one of your own.
    *rules : callable or None
        g is the cotangent of the result y, xs are the operands. Plain NumPy, so that it can be differentiated again.

    Examples
    --------
    >>> import nnflat as nf
    >>> from scipy.special import erf
    >>> nf.defvjp(erf, lambda g, y, x: g * (2 / np.sqrt(np.pi)) * np.exp(-np.square(x)))
    >>> nf.grad(lambda x: erf(x))(0.0)
    np.float64(1.1283791670955126)
    """
    if not isinstance(ufunc, np.ufunc) or ufunc.nout != 1:
        raise TypeError(f"defvjp needs a ufunc with one output; got {ufunc!r}")
    if len(rules) != ufunc.nin:
        raise ValueError(f"{ufunc.__name__} has {ufunc.nin} operands; got {len(rules)} rules")
    RULES[ufunc] = rules


def safe(x: Any) -> Any:
    """Return x with ones for its zeros, to divide by."""
    return np.where(x == 0, 1, x)


def is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, np.ndarray | np.generic | bool)


# --- elementwise -------------------------------------------------------------------------------------------

def power_base(g: Any, y: Any, x: Any, p: Any) -> Any:
    if is_number(p):
        return g * (p * x ** (p - 1)) if p != 0 else g * 0
    return g * np.where(p == 0, 0, p * np.power(x, np.where(p == 0, 1, p - 1)))


def power_exponent(g: Any, y: Any, x: Any, p: Any) -> Any:
    return g * (y * np.log(safe(x)))


def larger(g: Any, y: Any, x: Any, other: Any) -> Any:
    return np.where(x > other, g, np.where(x == other, 0.5 * g, 0))


def smaller(g: Any, y: Any, x: Any, other: Any) -> Any:
    return np.where(x < other, g, np.where(x == other, 0.5 * g, 0))


def larger_number(g: Any, y: Any, x: Any, other: Any) -> Any:
    return np.where((x > other) | np.isnan(other), g, np.where(x == other, 0.5 * g, 0))


def smaller_number(g: Any, y: Any, x: Any, other: Any) -> Any:
    return np.where((x < other) | np.isnan(other), g, np.where(x == other, 0.5 * g, 0))


def absolute(g: Any, y: Any, x: Any) -> Any:
    if np.iscomplexobj(x):
        return g * (np.conjugate(x) / safe(y))
    return g * np.sign(x)


def sign(g: Any, y: Any, x: Any) -> Any:
    """That of a real number is constant; that of a complex one turns."""
    if not np.iscomplexobj(x):
        return None
    return (g - np.real(g * y) * np.conjugate(y)) / safe(np.abs(x))


def share(exp: np.ufunc) -> Callable[..., Any]:
    """Return how an operand of logaddexp takes part; the larger of two infinities does in full."""
    return lambda g, y, x, other: g * np.where(x == y, 1, exp(x - y))


def second(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of the second operand, from the first one's of a symmetric ufunc."""
    return lambda g, y, x, other: rule(g, y, other, x)


def symmetric(rule: Callable[..., Any]) -> tuple[Rule, ...]:
    return rule, second(rule)


def square_length(x: Any, y: Any) -> Any:
    return safe(np.square(x) + np.square(y))


# --- products ----------------------------------------------------------------------------------------------

def dense(x: Any) -> Any:
    """Return x, or a copy where axes are broadcast: a product of those leaves the BLAS."""
    return x.copy() if any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True)) else x


def swap(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def matmul_left(g: Any, y: Any, a: Any, b: Any) -> Any:
    if b.ndim == 1:
        return g * b if a.ndim == 1 else g[..., None] * b
    if a.ndim == 1:
        return np.matmul(b, g[..., None])[..., 0]
    return np.matmul(dense(g), swap(b))


def matmul_right(g: Any, y: Any, a: Any, b: Any) -> Any:
    if a.ndim == 1:
        return g * a if b.ndim == 1 else a[:, None] * g[..., None, :]
    if b.ndim == 1:
        return np.matmul(g[..., None, :], a)[..., 0, :]
    if b.ndim == 2 and a.ndim > 2:
        return np.matmul(a.reshape(-1, a.shape[-1]).T, dense(g).reshape(-1, g.shape[-1]))
    return np.matmul(swap(a), dense(g))


def conjugate_of(a: Any, x: Any) -> Any:
    """Return the conjugate of x where a is complex: products of vectors conjugate their first operand."""
    return np.conjugate(x) if np.iscomplexobj(a) else x


def outer_last(g: Any, x: Any) -> Any:
    return g[..., None] * x


RULES: dict[Any, tuple[Rule, ...]] = {
    np.add: (lambda g, y, a, b: g, lambda g, y, a, b: g),
    np.subtract: (lambda g, y, a, b: g, lambda g, y, a, b: -g),
    np.multiply: (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
    np.divide: (lambda g, y, a, b: g / b, lambda g, y, a, b: -(g * y) / b),
    np.power: (power_base, power_exponent),
    np.float_power: (power_base, power_exponent),
    np.negative: (lambda g, y, x: -g,),
    np.positive: (lambda g, y, x: g,),
    np.absolute: (absolute,),
    np.fabs: (absolute,),
    np.conjugate: (lambda g, y, x: np.conjugate(g),),
    np.reciprocal: (lambda g, y, x: -(g * np.square(y)),),
    np.square: (lambda g, y, x: (2 * g) * x,),
    np.sqrt: (lambda g, y, x: g * (0.5 / y),),
    "root": (lambda g, y, x: np.where(y == 0, 0, g * (0.5 / safe(y))),),
    np.cbrt: (lambda g, y, x: g / (3 * np.square(y)),),
    np.exp: (lambda g, y, x: g * y,),
    np.exp2: (lambda g, y, x: g * (y * LN2),),
    np.expm1: (lambda g, y, x: g * (y + 1),),
    np.log: (lambda g, y, x: g / x,),
    np.log2: (lambda g, y, x: g / (x * LN2),),
    np.log10: (lambda g, y, x: g / (x * LN10),),
    np.log1p: (lambda g, y, x: g / (x + 1),),
    np.sin: (lambda g, y, x: g * np.cos(x),),
    np.cos: (lambda g, y, x: -(g * np.sin(x)),),
    np.tan: (lambda g, y, x: g * (np.square(y) + 1),),
    np.arcsin: (lambda g, y, x: g / np.sqrt(1 - np.square(x)),),
    np.arccos: (lambda g, y, x: -g / np.sqrt(1 - np.square(x)),),
    np.arctan: (lambda g, y, x: g / (np.square(x) + 1),),
    np.sinh: (lambda g, y, x: g * np.cosh(x),),
    np.cosh: (lambda g, y, x: g * np.sinh(x),),
    np.tanh: (lambda g, y, x: g * (1 - np.square(y)),),
    np.arcsinh: (lambda g, y, x: g / np.sqrt(np.square(x) + 1),),
    np.arccosh: (lambda g, y, x: g / (np.sqrt(x - 1) * np.sqrt(x + 1)),),
    np.arctanh: (lambda g, y, x: g / (1 - np.square(x)),),
    np.deg2rad: (lambda g, y, x: g * (math.pi / 180),),
    np.radians: (lambda g, y, x: g * (math.pi / 180),),
    np.rad2deg: (lambda g, y, x: g * (180 / math.pi),),
    np.degrees: (lambda g, y, x: g * (180 / math.pi),),
    np.hypot: symmetric(lambda g, y, x, other: g * (x / safe(y))),
    np.arctan2: (lambda g, y, a, b: g * (b / square_length(a, b)), lambda g, y, a, b: -(g * (a / square_length(a, b)))),
    np.logaddexp: symmetric(share(np.exp)),
    np.logaddexp2: symmetric(share(np.exp2)),
    np.maximum: symmetric(larger),
    np.minimum: symmetric(smaller),
    np.fmax: symmetric(larger_number),
    np.fmin: symmetric(smaller_number),
    CLIP: (lambda g, y, x, low, high: np.where((x >= low) & (x <= high), g, 0),
                 lambda g, y, x, low, high: np.where(x < low, g, 0),
                 lambda g, y, x, low, high: np.where(x > high, g, 0)),
    "clip below": (lambda g, y, x, low: np.where(x >= low, g, 0), lambda g, y, x, low: np.where(x < low, g, 0)),
    "clip above": (lambda g, y, x, high: np.where(x <= high, g, 0), lambda g, y, x, high: np.where(x > high, g, 0)),
    np.fmod: (lambda g, y, a, b: g, lambda g, y, a, b: -(g * np.trunc(a / b))),
    np.remainder: (lambda g, y, a, b: g, lambda g, y, a, b: -(g * np.floor(a / b))),
    np.heaviside: (None, lambda g, y, x, half: np.where(x == 0, g, 0)),
    np.ldexp: (lambda g, y, x, n: np.ldexp(g, n), None),
    np.copysign: (lambda g, y, a, b: np.where(np.signbit(a) == np.signbit(b), g, -g), None),
    np.sign: (sign,),
    **dict.fromkeys((np.floor, np.ceil, np.trunc, np.rint, np.spacing), (None,)),
    np.floor_divide: (None, None),
    np.nextafter: (lambda g, y, a, b: g, None),
    np.matmul: (matmul_left, matmul_right),
    np.vecdot: (lambda g, y, a, b: conjugate_of(a, outer_last(g, b)),
                lambda g, y, a, b: outer_last(g, conjugate_of(a, a))),
}
if hasattr(np, "matvec"):
    RULES[np.matvec] = (lambda g, y, a, b: g[..., None] * b[..., None, :],
                        lambda g, y, a, b: np.matmul(g[..., None, :], a)[..., 0, :])
    RULES[np.vecmat] = (lambda g, y, a, b: conjugate_of(a, np.matmul(b, g[..., None])[..., 0]),
                        lambda g, y, a, b: conjugate_of(a, a)[..., None] * g[..., None, :])

# Bounded: a zero cotangent times their derivative is zero. Linear: they let no zero in, either.
LINEAR = {np.add, np.subtract, np.negative, np.positive}
BOUNDED = LINEAR | {np.tanh, np.sin, np.cos, np.arctan, np.maximum, np.minimum, np.fmax, np.fmin, np.absolute, np.fabs,
                    np.sign, np.conjugate, np.hypot, np.logaddexp, np.logaddexp2, CLIP, "clip below",
                    "clip above", np.matmul, np.vecdot, "root"}
