"""The progress of a run on stderr: a live line on a terminal, else a plain line about once a second."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nnflat.es.record import Record

__all__ = ["describe", "show"]

INTERVAL = 1.0  # seconds between two plain lines

Update = Callable[[Record], None]


@contextmanager
def show(generations: int, *, enabled: bool = True) -> Iterator[Update]:
    """Give the function that shows a record."""
    live = _rich_live() if enabled and sys.stderr.isatty() else None
    if not enabled:
        yield lambda record: None
    elif live is None:
        yield _plain(generations)
    else:
        with live:
            yield lambda record: live.update(describe(record, generations))


def describe(record: Record, generations: int) -> str:
    """Return the line that describes a record.

    Examples
    --------
    >>> import numpy as np
    >>> from nnflat import es
    >>> strategy = es.OpenAIES(np.zeros(2), maximize=True, pop=2, sigma=1.0)
    >>> record = Record(3, np.array([1.0, 4.0]), strategy, None, evaluations=6, steps=1200, seconds=0.5)
    >>> describe(record, 43)
    'generation 3/43  best 4  mean 2.5  2,400 steps/s  7 s left'
    """
    count, unit = (record.steps, "steps") if record.steps else (record.evaluations, "evaluations")
    speed = count / max(record.seconds, 1e-9)
    left = record.seconds / record.generation * (generations - record.generation)
    return (
        f"generation {record.generation}/{generations}  best {record.best:.4g}  mean {record.mean:.4g}  "
        f"{speed:,.0f} {unit}/s  {_duration(left)} left"
    )


def _duration(seconds: float) -> str:
    """Return seconds as people say them.

    Examples
    --------
    >>> _duration(7.2), _duration(75), _duration(3700)
    ('7 s', '1 min 15 s', '1 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _plain(generations: int) -> Update:
    """Return a function that prints the first record, the last, and one about every second."""
    due = 0.0

    def update(record: Record) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or record.generation == generations:
            due = now + INTERVAL
            print(describe(record, generations), file=sys.stderr, flush=True)

    return update


def _rich_live() -> Any:
    """Return rich's live display on stderr; None if rich is not installed."""
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        return None
    return Live("", console=Console(stderr=True, highlight=False), refresh_per_second=8)
