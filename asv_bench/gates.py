"""Fail where a call allocates more, or takes more instructions, than what is kept in gates.json.

    python asv_bench/gates.py             compare
    python asv_bench/gates.py --record    keep what is counted now

Counts don't flicker, so they can be gates: allocations and bytes must not grow at all, instructions by no more than
2 %. They hold for one Python, NumPy and machine type, which are kept with them; elsewhere nothing is compared, and
the last line says so.
"""

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import instructions
from benchmarks.counting import allocations
from benchmarks.gated import GATED

KEPT = Path(__file__).with_name("gates.json")
SLACK = 1.02  # of instructions
Counts = Mapping[str, Mapping[str, float]]


def where() -> dict[str, str]:
    """Return what counts depend on."""
    return {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}


def counted() -> dict[str, dict[str, float]]:
    """Return allocations and bytes, and instructions where valgrind is there, by call."""
    counts: dict[str, dict[str, float]] = {name: allocations(make())._asdict() for name, make in GATED.items()}
    if missing := instructions.missing():
        print(missing)
        return counts
    for name, number in instructions.counts().items():
        counts[name]["instructions"] = number
    return counts


def grown(kept: Counts, now: Counts) -> Iterator[str]:
    """Yield a sentence for each count that has grown."""
    for name, counts in now.items():
        if name not in kept:
            yield f"{name}: nothing is kept to compare with; record it"
            continue
        for kind, number in counts.items():
            before = kept[name].get(kind)
            if before is not None and number > before * (SLACK if kind == "instructions" else 1):
                yield f"{name}: {number:,.0f} {kind}, and {before:,.0f} were kept"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="keep what is counted now")
    options = parser.parse_args(argv)
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if not options.record and kept.get("where") != where():
        print(f"gates: nothing compared: counts are kept for {kept.get('where')}, and this is {where()}")
        return 0
    now = counted()
    if options.record:
        KEPT.write_text(json.dumps({"where": where(), "counts": now}, indent=1) + "\n")
        return 0
    failures = list(grown(kept["counts"], now))
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"gates: {len(now)} calls counted, {len(failures)} grown")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
