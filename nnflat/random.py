"""Random numbers by key: no state, and value k of a draw is a function of (key, k) alone.

A key is an integer in [0, 2**64); a seed is one. `fold` makes new keys of it (of a generation, a candidate,
a layer), and each key feeds one draw: two draws by one key are made from the same words.

The generator is Philox4x32-10. Integers decide, and the little floating-point arithmetic there is (+ - * /
and sqrt, in a fixed order) is exactly defined by IEEE 754, so a draw has the same bits on every machine. The
head of `_random.pyx` says how each value is made and why that is exact.

>>> from nnflat import random
>>> key = random.fold(7, 0, 3)                  # seed 7, generation 0, candidate 3
>>> random.uniform(key, 4)
array([0.47978508, 0.99103254, 0.36472195, 0.48793262], dtype=float32)
>>> bool((random.normal(key, 1000)[:10] == random.normal(key, 10)).all())
True
"""

from collections.abc import Callable
from functools import wraps
from operator import index
from typing import Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nnflat._random import fill_bits, fill_normal, fill_uniform, fold_key

__all__ = ["bernoulli", "bits", "fold", "normal", "permutation", "uniform"]

Key: TypeAlias = SupportsIndex
Shape: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
Out: TypeAlias = NDArray[Any] | None
Draw = TypeVar("Draw", bound=Callable[..., Any])


def _dispatched(draw: Draw) -> Draw:
    """Let a value that stands for an array or a number (its class is not its type) take the call, as NumPy does."""

    @wraps(draw)
    def call(*args: Any, **kwargs: Any) -> Any:
        for arg in args:
            if type(arg) is not arg.__class__:
                return arg.__array_function__(call, (type(arg),), args, kwargs)
        return draw(*args, **kwargs)

    return call  # type: ignore[return-value]


@_dispatched
def fold(key: Key | NDArray[np.uint64], *ints: SupportsIndex | NDArray[np.integer[Any]]) -> Any:
    """Make a new key of a key and one or more integers.

    A hash, not an addition: neighbouring seeds and neighbouring integers give unrelated keys, so that their
    draws share no window. No draw by `key` itself uses the words that `fold` uses.

    Parameters
    ----------
    key : int or array of uint64
        In [0, 2**64).
    *ints : int or array of int
        Each in [-2**63, 2**64); the order matters: ``fold(key, a, b) == fold(fold(key, a), b)``.

    Returns
    -------
    numpy.uint64, or an array of them
        Arrays of keys and of integers broadcast as in NumPy.

    Examples
    --------
    >>> fold(7, 1)
    np.uint64(12012849991934950074)
    >>> fold(7, np.arange(2))[1] == fold(7, 1)
    np.True_
    """
    if not ints:
        raise TypeError("fold needs at least one integer besides the key; got none")
    for number in ints:
        key = fold_key(key, number)
    return key


@_dispatched
def bits(key: Key, shape: Shape, dtype: DTypeLike = np.uint64, *, out: Out = None) -> NDArray[Any]:
    """Draw integers, uniform over all values of their dtype.

    Parameters
    ----------
    key : int
        In [0, 2**64).
    shape : int or tuple of int
    dtype : uint64 or uint32
        A uint64 is two consecutive uint32 of the same key, the lower half first.
    out : array, optional
        Written and returned: C-contiguous, of that shape and dtype.

    Examples
    --------
    >>> bits(7, 2, np.uint32)
    array([4099963437, 3221879260], dtype=uint32)
    """
    out = _target(shape, dtype, out)
    fill_bits(key, 0, out)
    return out


@_dispatched
def uniform(key: Key, shape: Shape, dtype: DTypeLike = np.float32, *, out: Out = None) -> NDArray[Any]:
    """Draw from the uniform distribution on [0, 1).

    Every multiple of 2**-24 (float32) or 2**-53 (float64) in [0, 1) is equally likely: value k is the upper
    bits of value k of `bits` of the same width. Parameters are those of `bits`, with a float dtype.

    Examples
    --------
    >>> uniform(7, 2, np.float64)
    array([0.75015222, 0.08565787])
    """
    out = _target(shape, dtype, out)
    fill_uniform(key, 0, out)
    return out


@_dispatched
def normal(key: Key, shape: Shape, dtype: DTypeLike = np.float32, *, out: Out = None) -> NDArray[Any]:
    """Draw from the standard normal distribution.

    Value k is the inverse of the normal distribution function at value k of `bits` of the same width: the
    first bit is the sign, the others are a tail probability. So draws are symmetric to the bit and reach 6.3
    (float32) or 9.1 (float64) standard deviations. The inverse is AS 241 [1]_, for float32 interpolated in a
    table made of it. The error is at most 1e-15 times the larger of 1 and the value (float64), or 1.3 units
    in the last place for values beyond 1 and 1.1e-7 for others (float32).

    Parameters are those of `bits`, with a float dtype.

    References
    ----------
    .. [1] M. J. Wichura, "The percentage points of the normal distribution", Applied Statistics 37 (1988).

    Examples
    --------
    >>> normal(7, 3)
    array([-1.6911627 , -0.67496884,  1.2046078 ], dtype=float32)
    """
    out = _target(shape, dtype, out)
    fill_normal(key, 0, out)
    return out


@_dispatched
def bernoulli(key: Key, p: ArrayLike, shape: Shape) -> NDArray[np.bool_]:
    """Draw truth values that are True with probability `p`.

    Value k is ``uniform(key, shape, np.float64)[k] < p``, an exact comparison of a 53-bit integer with
    ``p * 2**53``: `p` = 0 is never True, `p` = 1 always.

    Parameters
    ----------
    key : int
        In [0, 2**64).
    p : float or array
        In [0, 1]; an array is broadcast to `shape`.
    shape : int or tuple of int

    Examples
    --------
    >>> bernoulli(7, [0.0, 0.9, 1.0], (2, 3))
    array([[False,  True,  True],
           [False,  True,  True]])
    """
    p = np.asarray(p, np.float64)
    if not np.all((p >= 0.0) & (p <= 1.0)):
        raise ValueError(f"bernoulli needs 0 <= p <= 1; got {p}")
    draws = uniform(key, shape, np.float64)
    return np.less(draws, p, out=np.empty(draws.shape, np.bool_))


@_dispatched
def permutation(key: Key, n: SupportsIndex) -> NDArray[np.int64]:
    """Draw a permutation of 0 .. n-1, all equally likely.

    It is the order of the words ``bits(key, n)``; should two be equal (probability below n**2 / 2**65), the
    first comes first.

    Examples
    --------
    >>> permutation(7, 5)
    array([4, 1, 0, 2, 3])
    """
    return np.argsort(bits(key, index(n)), kind="stable").astype(np.int64, copy=False)


def _target(shape: Shape, dtype: DTypeLike, out: NDArray[Any] | None) -> NDArray[Any]:
    """Return `out` if it has that shape and dtype, or a new array."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out needs to be an array; got {type(out).__name__}")
    needed = shape if isinstance(shape, tuple) else (shape,)
    if out.shape != needed or out.dtype != dtype:
        raise ValueError(
            f"out needs shape {needed} and dtype {np.dtype(dtype)}; got shape {out.shape}, dtype {out.dtype}"
        )
    return out
