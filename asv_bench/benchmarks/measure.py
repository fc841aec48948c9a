"""Time calls that take turns, and the benchmarks that every suite has: times, ratios to a baseline, allocations.

A suite names its cases and, last, its ways to do the same work; the first way is the baseline, so that both stand in
one graph. No class has a `setup`: with one, asv times a call at a time, which for calls of a microsecond measures
the cache misses and not the call. What a benchmark needs is made at its first call and kept (`functools.cache`).
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .counting import allocations

Call = Callable[[], Any]
SECONDS = float(os.environ.get("NNFLAT_BENCH_SECONDS", 0.15))  # that each call is measured for
SAMPLE = 20e-6  # seconds at least between two looks at the clock, whose own cost is some 50 ns
LEAST, MOST = 3, 2_000  # samples


class Seconds(NamedTuple):
    """What a call takes, in seconds."""

    min: float
    mean: float


def seconds(*calls: Call) -> list[Seconds]:
    """Time calls in turns, so that whatever else the machine does meets them all alike."""
    repeats = [_repeats(call) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    while len(samples[0]) < LEAST or (time.perf_counter() < end and len(samples[0]) < MOST):
        for call, number, spent in zip(calls, repeats, samples, strict=True):
            spent.append(once(call, number))
    return [Seconds(min(spent), sum(spent) / len(spent)) for spent in samples]


def _repeats(call: Call) -> int:
    call()
    spent = once(call, 1)
    if spent < SAMPLE:  # short enough for a cold cache to matter
        spent = once(call, 1)
    return max(1, int(SAMPLE / max(spent, 1e-9)))


def once(call: Call, number: int) -> float:
    """Return seconds a call, over so many calls in a row."""
    clock, turns = time.perf_counter_ns, range(number)
    start = clock()
    for _ in turns:
        call()
    return (clock() - start) / 1e9 / number


class Suite(ABC):
    """A case and a way to do its work are the parameters; `calls` gives what is measured."""

    timeout = 120.0

    @abstractmethod
    def calls(self, *case: Any) -> Mapping[str, Call]:
        """Return the functions to measure for a case, by way, the baseline first."""

    def call(self, *case: Any) -> Call:
        *which, way = case
        return self.calls(*which)[way]


class Timed(Suite):
    """Times for people: asv's own, and the minimum and the mean of calls in a row."""

    def time_call(self, *case: Any) -> None:
        self.call(*case)()

    def track_min(self, *case: Any) -> float:
        return seconds(self.call(*case))[0].min

    def track_mean(self, *case: Any) -> float:
        return seconds(self.call(*case))[0].mean

    time_call.sample_time, time_call.warmup_time = 0.005, 0.02
    time_call.rounds, time_call.repeat = 1, (3, 10, 0.2)
    track_min.unit = track_mean.unit = "seconds"


class Growing(Suite):
    """The minimum alone, for cases whose size is the point: growth is a slope."""

    def track_min(self, *case: Any) -> float:
        return seconds(self.call(*case))[0].min

    track_min.unit = "seconds"


class Compared(Suite):
    """Ratios to the baseline, in one process and in turns: by minima and by means."""

    def _ratio(self, case: tuple[Any, ...], field: str) -> float:
        *which, way = case
        calls = self.calls(*which)
        baseline = next(iter(calls))
        if way == baseline:
            return 1.0
        base, own = seconds(calls[baseline], calls[way])
        return getattr(own, field) / getattr(base, field)

    def track_ratio(self, *case: Any) -> float:
        return self._ratio(case, "min")

    def track_mean_ratio(self, *case: Any) -> float:
        return self._ratio(case, "mean")

    track_ratio.unit = track_mean_ratio.unit = "times the baseline"


class Counted(Suite):
    """Allocations and bytes of a call, exact: the same at every run of the same build."""

    def track_allocations(self, *case: Any) -> int:
        return allocations(self.call(*case)).allocations

    def track_bytes(self, *case: Any) -> int:
        return allocations(self.call(*case)).bytes

    track_allocations.unit, track_bytes.unit = "allocations", "bytes"
