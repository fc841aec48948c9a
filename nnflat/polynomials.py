"""Polynomials, convolutions, and functions of points on a line, written in functions that have a derivative rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnflat.views import call

# --- polynomials: the highest power comes first --------------------------------------------------------------

def polyval(p: Any, x: Any) -> Any:
    y = np.zeros(np.shape(x), p.dtype)
    for i in range(len(p)):
        y = y * x + p[i]
    return y


def polynomial_of(roots: Any) -> Any:
    if roots.ndim != 1:
        raise TypeError("np.poly of a matrix has no derivative rule; take the polynomial of its np.linalg.eigvals")
    p = np.ones(1, roots.dtype)
    for i in range(len(roots)):
        p = padded(p, 0, 1) - padded(roots[i] * p, 1, 0)
    return p


def padded(x: Any, before: int, after: int) -> Any:
    return np.concatenate([np.zeros(before, x.dtype), x, np.zeros(after, x.dtype)])


def polyadd(a: Any, b: Any) -> Any:
    n = max(len(a), len(b))
    return padded(a, n - len(a), 0) + padded(b, n - len(b), 0)


def polysub(a: Any, b: Any) -> Any:
    return polyadd(a, -b)


def polyder(p: Any, m: int = 1) -> Any:
    for _ in range(m):
        p = p[:-1] * np.arange(len(p) - 1, 0, -1)
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    constants = np.broadcast_to(np.zeros(m) if k is None else k, m)
    for i in range(m):
        p = np.concatenate([p / np.arange(len(p), 0, -1), constants[i:i + 1]])
    return p


def vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    powers = range(len(x) if N is None else N)
    return np.stack([x ** k if k else np.ones_like(x) for k in (powers if increasing else reversed(powers))], axis=-1)


def polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None, cov: bool = False) -> Any:
    if full or cov:
        raise TypeError("np.polyfit has a derivative rule for its coefficients alone, without full= and cov=")
    rows = vander(x, deg + 1)
    if w is not None:
        rows, y = rows * w[:, None], y * (w if y.ndim == 1 else w[:, None])
    return np.matmul(np.linalg.pinv(rows), y)


def pull_roots(cotangents: list[Any], outputs: Sequence[Any], p: Any) -> list[Any]:
    """A root r of p moves by minus the move of p at r over p'(r)."""
    roots = outputs[0]
    share = cotangents[0] / polyval(polyder(p), roots)
    return [np.stack([-np.sum(share * roots ** k) for k in reversed(range(len(p)))])]


# --- convolutions --------------------------------------------------------------------------------------------

def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = np.atleast_1d(a), np.atleast_1d(v)
    if len(v) > len(a):
        a, v = v, a
    rest = len(v) - 1
    windows = np.lib.stride_tricks.sliding_window_view(padded(a, rest, rest), len(v))
    start, stop = {"full": (0, len(a) + rest), "same": (rest // 2, rest // 2 + len(a)), "valid": (rest, len(a))}[mode]
    return np.matmul(windows[start:stop], v[::-1])


def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    if len(v) > len(a):
        return convolve(np.conjugate(v), a[::-1], mode)[::-1]
    return convolve(a, np.conjugate(v)[::-1], mode)


# --- points on a line ----------------------------------------------------------------------------------------

def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear between points; constant beyond the ends."""
    if period is not None:
        raise TypeError("np.interp with period= has no derivative rule")
    after = np.clip(call(np.searchsorted, xp, x, side="right"), 1, np.size(xp) - 1)
    x0, x1 = call(np.take, xp, after - 1), call(np.take, xp, after)
    y0, y1 = call(np.take, fp, after - 1), call(np.take, fp, after)
    y = y0 + np.clip((x - x0) / (x1 - x0), 0, 1) * (y1 - y0)
    y = y if left is None else np.where(x < xp[0], left, y)
    return y if right is None else np.where(x > xp[-1], right, y)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = np.moveaxis(y, axis, -1)
    if x is not None:
        dx = np.diff(x) if np.ndim(x) == 1 else np.diff(np.moveaxis(x, axis, -1))
    return np.sum(dx * (y[..., 1:] + y[..., :-1]) * 0.5, axis=-1)


def gradient(f: Any, *spacings: Any, axis: Any = None, edge_order: int = 1) -> Any:
    axes = range(f.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    steps = spacings * len(axes) if len(spacings) == 1 else spacings or (1.0,) * len(axes)
    found = tuple(slopes(f, step, each, edge_order) for step, each in zip(steps, axes, strict=True))
    return found if len(found) > 1 else found[0]


def slopes(f: Any, step: Any, axis: int, edge_order: int) -> Any:
    """Weighted differences with the two neighbours; at the ends, of the first two or three elements."""
    f = np.moveaxis(f, axis, -1)
    gaps = np.diff(step) if np.ndim(step) else np.broadcast_to(step, f.shape[-1] - 1)
    change = np.diff(f) / gaps
    h, k = gaps[:-1], gaps[1:]
    middle = (k * change[..., :-1] + h * change[..., 1:]) / (h + k)
    first, last = change[..., :1], change[..., -1:]
    if edge_order == 2:
        bend = (change[..., 1:] - change[..., :-1]) / (h + k)
        first, last = first - gaps[0] * bend[..., :1], last + gaps[-1] * bend[..., -1:]
    return np.moveaxis(np.concatenate([first, middle, last], axis=-1), -1, axis)


def spread(start: Any, stop: Any, num: int, endpoint: bool) -> tuple[Any, Any, Any]:
    """Return shares from 0 to 1 along a new first axis, and both ends in the shape that they have together."""
    div = max(num - 1 if endpoint else num, 1)
    shape = np.broadcast_shapes(np.shape(start), np.shape(stop))
    return (np.arange(num) / div).reshape(-1, *[1] * len(shape)), np.broadcast_to(start, shape), np.broadcast_to(
        stop, shape)


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0) -> Any:
    if retstep:
        raise TypeError("np.linspace has a derivative rule without retstep=")
    share, start, stop = spread(start, stop, num, endpoint)
    return np.moveaxis(start + share * (stop - start), 0, axis)


def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Any:
    return np.power(base, linspace(start, stop, num, endpoint, axis=axis))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    share, start, stop = spread(start, stop, num, endpoint)
    return np.moveaxis(start * (stop / start) ** share, 0, axis)


POLYNOMIALS: dict[Any, Callable[..., Any]] = {
    np.polyval: polyval, np.poly: polynomial_of, np.polyadd: polyadd, np.polysub: polysub,
    np.polymul: convolve, np.polyder: polyder, np.polyint: polyint, np.polyfit: polyfit, np.vander: vander,
    np.convolve: convolve, np.correlate: correlate, np.interp: interp, np.trapezoid: trapezoid, np.gradient: gradient,
    np.linspace: linspace, np.logspace: logspace, np.geomspace: geomspace,
}
