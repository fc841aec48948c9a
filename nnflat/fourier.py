"""The derivatives of numpy.fft: the complex transform along one axis has a rule, all others are written in it.

The matrix of a transform is symmetric, so what it is multiplied by on the way back is itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

INVERSE = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def along(axis: int, ndim: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * (axis % ndim), part)


def resized(x: Any, n: int, axis: int) -> Any:
    """Return x with n elements along an axis: cut, or with zeros at its end."""
    missing = n - x.shape[axis]
    if missing <= 0:
        return x[along(axis, x.ndim, slice(0, n))]
    shape = [missing if each == axis % x.ndim else size for each, size in enumerate(x.shape)]
    return np.concatenate([x, np.zeros(shape, x.dtype)], axis=axis)


def pull_transform(transform: Callable[..., Any]) -> Callable[..., list[Any]]:
    def pull(cotangents: list[Any], outputs: Sequence[Any], x: Any, n: Any = None, axis: int = -1,
             norm: Any = None) -> list[Any]:
        return [resized(transform(cotangents[0], None, axis, norm), x.shape[axis], axis)]

    return pull


def rfft(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    n = x.shape[axis] if n is None else n
    return np.fft.fft(x, n, axis, norm)[along(axis, x.ndim, slice(0, n // 2 + 1))]


def irfft(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    n = 2 * (x.shape[axis] - 1) if n is None else n
    half = resized(x, n // 2 + 1, axis)
    mirrored = np.conjugate(np.flip(half[along(axis, x.ndim, slice(1, (n + 1) // 2))], axis))
    return np.real(np.fft.ifft(np.concatenate([half, mirrored], axis=axis), n, axis, norm))


def hfft(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    return irfft(np.conjugate(x), n, axis, INVERSE[norm])


def ihfft(x: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
    return np.conjugate(rfft(x, n, axis, INVERSE[norm]))


def sizes_of(x: Any, s: Any, axes: Any) -> list[tuple[Any, int]]:
    """Return a number of elements (or None) and an axis for each transform."""
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(s), 0)
    return list(zip([None] * len(axes) if s is None else s, axes, strict=True))


def each_axis(first: Callable[..., Any], rest: Callable[..., Any], default: Any = None) -> Callable[..., Any]:
    """Return the transform of many axes: `first` along the last of them, `rest` along the others."""

    def transform(x: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        steps = sizes_of(x, s, axes)
        for i, (n, axis) in enumerate(reversed(steps)):
            x = (first if i == 0 else rest)(x, n, axis, norm)
        return x

    return transform


def last_axis_at_last(rest: Callable[..., Any], last: Callable[..., Any], default: Any = None) -> Callable[..., Any]:
    def transform(x: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        steps = sizes_of(x, s, axes)
        for n, axis in steps[:-1]:
            x = rest(x, n, axis, norm)
        return last(x, *steps[-1], norm)

    return transform


TRANSFORMS: dict[Any, Callable[..., list[Any]]] = {
    np.fft.fft: pull_transform(np.fft.fft), np.fft.ifft: pull_transform(np.fft.ifft),
}
FOURIER: dict[Any, Callable[..., Any]] = {
    np.fft.rfft: rfft, np.fft.irfft: irfft, np.fft.hfft: hfft, np.fft.ihfft: ihfft,
    np.fft.fftn: each_axis(np.fft.fft, np.fft.fft), np.fft.fft2: each_axis(np.fft.fft, np.fft.fft, (-2, -1)),
    np.fft.ifftn: each_axis(np.fft.ifft, np.fft.ifft), np.fft.ifft2: each_axis(np.fft.ifft, np.fft.ifft, (-2, -1)),
    np.fft.rfftn: each_axis(rfft, np.fft.fft), np.fft.rfft2: each_axis(rfft, np.fft.fft, (-2, -1)),
    np.fft.irfftn: last_axis_at_last(np.fft.ifft, irfft),
    np.fft.irfft2: last_axis_at_last(np.fft.ifft, irfft, (-2, -1)),
}
