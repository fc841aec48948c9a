"""Moments: count, mean and sum of squared deviations of observations, which merge exactly as one would count."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "Tally"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Of `count` vectors: their mean, and the sum of squared deviations from it.

    References
    ----------
    Chan, Golub, LeVeque, "Algorithms for computing the sample variance", The American Statistician 37, 1983.

    Examples
    --------
    >>> seen = Moments.empty(1)
    >>> for rows in ([[1.0], [2.0]], [[6.0]]):
    ...     tally = seen.tally()
    ...     tally.add(np.array(rows))
    ...     seen = seen.merged(tally.moments())
    >>> int(seen.count), seen.mean, seen.squares
    (3, array([3.]), array([14.]))
    """

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> "Moments":
        """Return the moments of nothing."""
        return cls(np.array(0), np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, arrays: dict[str, NDArray[Any]]) -> "Moments":
        """Return the moments that `arrays` gave."""
        return cls(arrays["count"], arrays["mean"], arrays["squares"])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return them by name."""
        return {"count": self.count, "mean": self.mean, "squares": self.squares}

    def tally(self) -> "Tally":
        """Return an empty tally, which counts from this mean."""
        return Tally(self.mean)

    def merged(self, other: "Moments") -> "Moments":
        """Return the moments of both."""
        count = np.asarray(self.count + other.count)
        if count == 0:
            return self
        apart = other.mean - self.mean
        share = float(other.count / count)
        squares = self.squares + other.squares + apart**2 * (float(self.count) * share)
        return Moments(count, self.mean + apart * share, squares)

    def standardise(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return x less the mean, over the standard deviation; unchanged before the second vector.

        An element that has never varied keeps its scale.
        """
        if self.count < 2:
            return x
        std = np.sqrt(self.squares / float(self.count - 1))
        return (x - self.mean) / np.where(std > 1e-8, std, 1.0)


class Tally:
    """Sums of vectors, of their deviations from a shift near their mean, so that few digits are lost."""

    def __init__(self, shift: NDArray[np.float64]) -> None:
        self._shift = shift
        self._count = 0
        self._sum, self._squares = np.zeros((2, shift.size))

    def add(self, rows: NDArray[Any]) -> None:
        """Count the rows."""
        shifted = rows - self._shift
        self._count += len(rows)
        self._sum += shifted.sum(axis=0)
        self._squares += np.square(shifted).sum(axis=0)

    def moments(self) -> Moments:
        """Return the moments of what was counted."""
        mean = self._sum / max(self._count, 1)
        squares = np.maximum(self._squares - self._sum * mean, 0)
        return Moments(np.array(self._count), self._shift + mean, squares)
