"""Compare and time one peer, beside nnflat and NumPy by hand, in one process; print rows as JSON.

    python -m workers.run PEER [--cases TEXT]

Each case is first run by all and the results compared; then the calls take turns.
"""

import argparse
import importlib
import json
import sys
from importlib.metadata import version

import numpy as np
from benchmarks import measure
from threadpoolctl import threadpool_limits

from workers import by_numpy, cases

TOLERANCE = {cases.DIGITS: 0.01}
WHOLE = {cases.DIGITS: 5}  # cases of seconds: so many calls in all


def results_of(case, works):
    """Run each work, and return its result, by worker."""
    results = {}
    for name, work in works.items():
        for _ in range(calls_before(case)):
            work.call()
        results[name] = np.asarray(work.result(), float)
    return results


def differing(case, results):
    """Return why results are not to be compared, as a sentence, or None."""
    base, *others = results
    wrong = [name for name in others if not close(results[base], results[name], TOLERANCE.get(case, 2e-3))]
    return f"{', '.join(wrong)} gives another result than {base}" if wrong else None


def calls_before(case):
    return WHOLE.get(case, cases.COMPARED_STEPS)


def close(one, other, tolerance):
    """Return whether two results are the same but for rounding, relative to the largest element."""
    return one.shape == other.shape and np.abs(one - other).max() <= tolerance * max(1e-6, np.abs(one).max())


def timed(case, works):
    """Return (min, mean) in seconds a call, by worker."""
    if case in WHOLE:
        with_seconds = [measure.Seconds(*whole(work.call)) for work in works.values()]
    else:
        with_seconds = measure.seconds(*(work.call for work in works.values()))
    return {name: spent._asdict() for name, spent in zip(works, with_seconds, strict=True)}


def whole(call):
    spent = [measure.once(call, 1) for _ in range(2)]
    return min(spent), sum(spent) / len(spent)


def row(case, makers):
    """Return what a case gave: times by worker, or the reason why there are none."""
    works = {name: made[case](case) for name, made in makers.items() if case in made}
    results = results_of(case, works)
    if reason := differing(case, results):
        return {"case": case, "differs": reason}
    numbers = {name: float(result) for name, result in results.items() if result.ndim == 0}
    return {"case": case, "results": numbers, "seconds": timed(case, works)}


def workers(peer):
    """Return the makers of nnflat, NumPy and the peer; nnflat first, the base of comparison."""
    own = importlib.import_module("workers.by_nnflat").MAKERS
    return {"nnflat": own, "numpy": by_numpy.MAKERS, peer: importlib.import_module(f"workers.by_{peer}").MAKERS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("--packages", nargs="*", default=[])
    parser.add_argument("--cases", default="", help="only cases whose name has this in it")
    options = parser.parse_args()
    rows = []
    with threadpool_limits(1):
        makers = workers(options.peer)
        for case in makers[options.peer]:
            if options.cases in case and case in makers["nnflat" if options.peer != "numpy" else "numpy"]:
                print(f"{options.peer}: {case}", file=sys.stderr, flush=True)
                rows.append(row(case, makers))
    versions = {package: version(package) for package in ("nnflat", "numpy", *options.packages)}
    print(json.dumps({"peer": options.peer, "versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()
