"""Sampler: what makes the candidates of one generation. Workers are given this, never a strategy.

S1  A candidate is theta + sigma * noise, made afresh wherever it is needed; no evaluation modifies theta.
S2  Noise depends on (seed, generation, direction, element) only, so any candidate can be made anywhere, in
    any order and any number of times, alone or among others: the bits are the same.
S3  Where candidates are mirrored, 2i and 2i + 1 are theta plus and minus the same noise; the last of an odd
    population stands alone.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat._noise import write_pairs
from nnflat.es.noise import Noise

__all__ = ["Sampler"]

GROUP = 65536  # elements of noise that are made at a time: they stay in the second cache


@dataclass(frozen=True, eq=False)
class Sampler:
    """The candidates of one generation.

    Parameters
    ----------
    noise : Noise
    key : uint64
        Of the noise.
    generation, pop : int
    mirrored : bool
        Whether candidates come in pairs of opposite noise.
    arrays : dict of arrays
        `theta`; `sigma`, of shape () or like theta; perhaps `low` and `high`; and what `stretch` needs.
    held : array, optional
        The noise of all directions, where it is in memory already.
    """

    noise: Noise
    key: np.uint64
    generation: int
    pop: int
    mirrored: bool
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    held: NDArray[Any] | None = field(default=None, repr=False)

    def write(self, k: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write candidate `k` into `out` and return it."""
        direction, sign = self.side(k)
        self.direction(direction, out)
        np.multiply(out, sign * self._sigma, out=out)
        np.add(self.centre(k), out, out=out)
        return self._clip(out)

    def side(self, k: int) -> tuple[int, int]:
        """Return the direction of candidate `k`, and its sign (S3)."""
        return (k // 2, -1 if k % 2 else 1) if self.mirrored else (k, 1)

    def rows(self, members: range, out: NDArray[Any]) -> NDArray[Any]:
        """Write consecutive candidates into the rows of `out` and return it: those of `write` to the bit."""
        if not self.mirrored or type(self).centre is not Sampler.centre:
            for k, row in zip(members, out, strict=True):
                self.write(k, row)
            return out
        k = members.start
        while k < members.stop:
            pairs = 0 if k % 2 else min((members.stop - k) // 2, max(GROUP // out.shape[1], 1))
            block = out[k - members.start :]
            if pairs:
                self._write_pairs(k // 2, block[: 2 * pairs])
            else:
                self.write(k, block[0])
            k += max(2 * pairs, 1)
        return out

    def direction(self, direction: int, out: NDArray[Any]) -> NDArray[Any]:
        """Write a direction, as the distribution stretches it, into `out` and return it."""
        if self.held is None:
            self.noise.fill(self.key, self.generation, direction, out)
        else:
            np.copyto(out, self.held[direction])
        self.stretch(out)
        return out

    def stretch(self, noise: NDArray[Any]) -> None:
        """Turn standard noise into a direction of this distribution, in place and linearly."""

    def centre(self, k: int) -> NDArray[Any]:
        """Return the vector that the noise of candidate `k` is added to."""
        return self.arrays["theta"]

    def _write_pairs(self, first: int, out: NDArray[Any]) -> None:
        """Write the candidates of directions `first`, `first` + 1, ... into pairs of rows."""
        theta, sigma, noise = self.arrays["theta"], self._sigma, self._standard(first, out[0::2])
        if type(self).stretch is not Sampler.stretch:
            np.copyto(out[0::2], noise)
            noise = out[0::2]
            for row in noise:
                self.stretch(row)
        if isinstance(sigma, float) and theta.dtype != np.float16:
            write_pairs(noise, theta, sigma, out)
        else:
            np.multiply(noise, sigma, out=out[0::2])
            np.subtract(theta, out[0::2], out=out[1::2])
            np.add(theta, out[0::2], out=out[0::2])
        self._clip(out)

    def _standard(self, first: int, out: NDArray[Any]) -> NDArray[Any]:
        """Return the noise of directions `first`, `first` + 1, ...: in `out`, or where it is in memory already."""
        if self.held is not None:
            return self.held[first : first + len(out)]
        return self.noise.read(self.key, self.generation, first, out)

    @property
    def _sigma(self) -> Any:
        """Sigma in theta's dtype: a number that is weak in NumPy's sense, or a vector."""
        sigma = self.arrays["sigma"]
        return sigma if sigma.ndim else float(sigma)

    def _clip(self, flat: NDArray[Any]) -> NDArray[Any]:
        if "low" not in self.arrays:
            return flat
        return np.clip(flat, self.arrays["low"], self.arrays["high"], out=flat)
