"""The table that the project started from: what each way between a tree and its flat vector costs here.

All operations of a model are timed in one process and in turn, round after round, so that whatever else the
machine does meets them all alike: the ratios to `np.copyto` hold where the times do not. The mean counts,
too: it includes what an allocation costs later.
"""

import gc
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean as mean
from typing import Any

import numpy as np

from nnflat._table import aligned
from nnflat.layout import destructure

BASELINE = "np.copyto"
ROUNDS = 40
SLOT = 4_000_000  # ns that an operation is repeated for in a round
SAMPLE = 20_000  # ns at least between two looks at the clock, whose own cost is some 50


@dataclass(frozen=True)
class Row:
    """What one operation costs: us a call, and what a call allocates.

    `blocks` are the Python objects still there while the result is held; `bytes` is the most that a call has
    allocated at a time, objects and array data.
    """

    model: str
    operation: str
    min_us: float
    mean_us: float
    blocks: int
    bytes: int
    min_ratio: float
    mean_ratio: float


def models(rng: np.random.Generator) -> dict[str, Any]:
    """Return the models of the table by name, all float32."""
    from nnflat.nn import Chain, Dense

    def perceptron(*sizes: int) -> Chain:
        return Chain(*(Dense(n, m, "relu", rng=rng) for n, m in pairwise(sizes)))

    return {
        "784-1024-10": perceptron(784, 1024, 10),
        "784-100-10": perceptron(784, 100, 10),
        "4-32-2": perceptron(4, 32, 2),
        "1000 leaves of 16": [rng.standard_normal(16, np.float32) for _ in range(1000)],
    }


def operations(model: Any) -> dict[str, Callable[[], Any]]:
    """Return the operations of the table by name, as functions without arguments, the baseline among them."""
    flat, layout = destructure(model)
    out, target = flat.copy(), layout.restructure(flat)
    bound = layout.bind(layout.restructure(flat))
    return {
        "flat.copy()": flat.copy,
        BASELINE: lambda: np.copyto(out, flat),
        "destructure": lambda: destructure(model),
        "restructure": lambda: layout.restructure(flat),
        "restructure(out=)": lambda: layout.restructure(flat, out=target),
        "load": lambda: bound.load(flat),
        "store": lambda: bound.store(out=out),
        "view": lambda: layout.view(flat),
    }


def measure(name: str, model: Any, *, rounds: int = ROUNDS, slot: int = SLOT) -> list[Row]:
    """Time every operation on a model, in turn; then, untimed, count what a call allocates."""
    calls = operations(model)
    repeats = {operation: _repeats(call) for operation, call in calls.items()}
    samples: dict[str, list[float]] = {operation: [] for operation in calls}
    for _ in range(rounds):
        for operation, call in calls.items():
            samples[operation] += _time(call, repeats[operation], slot)
    gc.collect()
    return [_row(name, operation, samples, call) for operation, call in calls.items()]


def _row(name: str, operation: str, samples: dict[str, list[float]], call: Callable[[], Any]) -> Row:
    times, baseline = samples[operation], samples[BASELINE]
    blocks, size = _allocations(call)
    return Row(
        model=name,
        operation=operation,
        min_us=min(times) / 1000,
        mean_us=mean(times) / 1000,
        blocks=blocks,
        bytes=size,
        min_ratio=min(times) / min(baseline),
        mean_ratio=mean(times) / mean(baseline),
    )


def _repeats(call: Callable[[], Any]) -> int:
    """Return how many calls take about SAMPLE."""
    call()
    start = time.perf_counter_ns()
    call()
    return max(1, SAMPLE // (time.perf_counter_ns() - start))


def _time(call: Callable[[], Any], repeats: int, slot: int) -> Iterator[float]:
    """Yield the ns of a call, averaged over some repeats, until `slot` ns are over."""
    clock = time.perf_counter_ns
    end = clock() + slot
    start = 0
    while start < end:
        start = clock()
        for _ in range(repeats):
            call()
        yield (clock() - start) / repeats


def _allocations(call: Callable[[], Any]) -> tuple[int, int]:
    """Return the blocks that the result of a call holds, and the bytes at the peak of a call."""
    return _blocks(call) - _blocks(_nothing), _bytes(call) - _bytes(_nothing)


def _nothing() -> None:
    """Allocate nothing: what counting itself allocates."""


def _blocks(call: Callable[[], Any]) -> int:
    held = []
    for _ in range(5):
        before = sys.getallocatedblocks()
        result = call()
        held.append(sys.getallocatedblocks() - before)
        del result
    return min(held)


def _bytes(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


def machine() -> dict[str, str]:
    """Return what the figures depend on: processor, Python, NumPy and, where threadpoolctl is there, BLAS."""
    return {"cpu": _cpu(), "python": platform.python_version(), "numpy": np.__version__} | _blas()


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _blas() -> dict[str, str]:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return {}
    kernels = [
        f"{library['internal_api']} {library['version']} {library.get('architecture', '')}".strip()
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]
    return {"blas": ", ".join(kernels)} if kernels else {}


def table(rows: list[Row]) -> str:
    """Return rows as text."""
    head = ("model", "operation", "min us", "mean us", "blocks", "bytes", "min ratio", "mean ratio")
    return aligned([head, *map(_cells, rows)], left=2)


def _cells(row: Row) -> tuple[str, ...]:
    times = (f"{row.min_us:,.2f}", f"{row.mean_us:,.2f}")
    ratios = (f"{row.min_ratio:.2f}", f"{row.mean_ratio:.2f}")
    return row.model, row.operation, *times, f"{row.blocks:,}", f"{row.bytes:,}", *ratios


def as_json(rows: list[Row]) -> dict[str, Any]:
    """Return rows, and the machine that they were measured on, as JSON can hold them."""
    return {"machine": machine(), "baseline": BASELINE, "rows": [asdict(row) for row in rows]}
