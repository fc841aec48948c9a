"""Schedules: the learning rate as a function of the number of steps taken, in functions that can be traced."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Schedule = Callable[[Any], Any]


@dataclass(frozen=True)
class constant:
    """The same rate at every step.

    >>> constant(0.1)(7)
    0.1
    """

    value: float

    def __call__(self, step: Any) -> Any:
        """Return the rate."""
        return self.value


@dataclass(frozen=True)
class step:
    """A rate that is multiplied by `factor` every `every` steps.

    >>> step(1.0, every=10, factor=0.5)(25)
    np.float64(0.25)
    """

    initial: float
    every: int
    factor: float

    def __post_init__(self) -> None:
        check_steps("every", self.every)

    def __call__(self, step: Any) -> Any:
        """Return the rate."""
        return self.initial * np.power(float(self.factor), np.floor(np.true_divide(step, self.every)))


@dataclass(frozen=True)
class exponential:
    """A rate that is multiplied by `factor` over `every` steps, smoothly.

    >>> exponential(1.0, factor=0.25, every=2)(1)
    np.float64(0.5)
    """

    initial: float
    factor: float
    every: int = 1

    def __post_init__(self) -> None:
        check_steps("every", self.every)

    def __call__(self, step: Any) -> Any:
        """Return the rate."""
        return self.initial * np.power(float(self.factor), np.true_divide(step, self.every))


@dataclass(frozen=True)
class cosine:
    """A rate that falls to `final` in `steps` steps, along half a cosine (Loshchilov, Hutter 2017).

    >>> cosine(1.0, steps=10)(5).round(3)
    np.float64(0.5)
    """

    initial: float
    steps: int
    final: float = 0.0

    def __post_init__(self) -> None:
        check_steps("steps", self.steps)

    def __call__(self, step: Any) -> Any:
        """Return the rate."""
        share = np.minimum(np.true_divide(step, self.steps), 1.0)
        return self.final + (self.initial - self.final) * (0.5 + 0.5 * np.cos(math.pi * share))


@dataclass(frozen=True)
class warmup:
    """Another schedule, or a rate, that is reached from 0 along a line in `steps` steps.

    The other schedule counts from the first step, the ones of the line included.

    >>> warmup(0.4, steps=4)(0), warmup(0.4, steps=4)(9)
    (np.float64(0.1), np.float64(0.4))
    """

    then: float | Schedule
    steps: int

    def __post_init__(self) -> None:
        check_steps("steps", self.steps)

    def __call__(self, step: Any) -> Any:
        """Return the rate."""
        rate = self.then(step) if callable(self.then) else self.then
        return np.minimum(np.true_divide(np.add(step, 1), self.steps), 1.0) * rate


@dataclass(frozen=True)
class one_cycle:
    """A rate that rises to `peak` and falls again, along half cosines (Smith, Topin 2018).

    It starts at `peak / start`, is at the peak after `rise` of the steps, and ends at `peak / start / end`.

    >>> one_cycle(1.0, steps=100)(30)
    np.float64(1.0)
    """

    peak: float
    steps: int
    rise: float = 0.3
    start: float = 25.0
    end: float = 1e4

    def __post_init__(self) -> None:
        check_steps("steps", self.steps)
        if not 0 < self.rise < 1:
            raise ValueError(f"rise must be between 0 and 1; got {self.rise}")

    def __call__(self, step: Any) -> Any:
        """Return the rate."""
        low, top = self.peak / self.start, self.rise * self.steps
        up = np.minimum(np.true_divide(step, top), 1.0)
        down = np.minimum(np.maximum(np.true_divide(np.subtract(step, top), self.steps - top), 0.0), 1.0)
        rising = low + (self.peak - low) * (0.5 - 0.5 * np.cos(math.pi * up))
        falling = low / self.end + (self.peak - low / self.end) * (0.5 + 0.5 * np.cos(math.pi * down))
        return np.where(up < 1, rising, falling)[()]


def check_steps(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above 0; got {value}")
