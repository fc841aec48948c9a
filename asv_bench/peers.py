"""Run the same work by other libraries, each in an environment of its own, and by nnflat beside each of them.

    python asv_bench/peers.py --cache FOLDER [--only jax,torch] [--cases TEXT] [--out FILE]

Environments are made below FOLDER at the first run and kept; nnflat is built from this checkout into each. All run on
one thread, warm, compiled where the library compiles, in float32; in each environment the results are compared
before anything is timed, and the calls take turns, so a ratio is one of one process. Prints the table, losses as
losses; `--out` keeps the figures as JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from nnflat.bench import machine

SUITE = Path(__file__).parent
PEERS = {  # name: what pip installs, its own package first
    "numpy": ["numpy"],
    "jax": ["jax", "jaxlib"],
    "torch": ["torch"],
    "onnxruntime": ["onnxruntime", "onnx"],
    "autograd": ["autograd"],
    "optree": ["optree"],
    "sklearn": ["scikit-learn"],
    "numexpr": ["numexpr"],
    "evosax": ["evosax"],
    "evotorch": ["evotorch", "torch"],
    "pycma": ["cma"],
}
HEAD = ("case", "peer", "nnflat", "peer's", "ratio by min", "by mean", "")
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


def build_wheel(folder: Path) -> Path:
    """Build nnflat from this checkout, and return the wheel."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(SUITE.parent)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def environment(peer: str, cache: Path, wheel: Path) -> Path:
    """Return the Python of a peer's environment, made where it is not there, with the wheel in it."""
    folder = cache / peer
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [str(python), "-m", "pip", "install", "-q"]
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([*pip, "numpy", "threadpoolctl", *PEERS[peer]], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(wheel)], check=True)
    return python


def run(peer: str, python: Path, cases: str) -> dict[str, Any]:
    """Return what a peer's process printed, or why it failed."""
    command = [str(python), "-m", "workers.run", peer, "--cases", cases, "--packages", *PEERS[peer]]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | ONE_THREAD
    done = subprocess.run(command, cwd=SUITE, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"peer": peer, "versions": {}, "rows": [], "failed": f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def measured(names: list[str], cache: Path, cases: str) -> dict[str, Any]:
    """Run the peers one after the other."""
    cache.mkdir(parents=True, exist_ok=True)
    load = busy()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        peers = [run(peer, environment(peer, cache, wheel), cases) for peer in names]
    return {"machine": machine() | load, "peers": peers}


def busy() -> dict[str, str]:
    """Return how many processes wanted a core, on average, in the minute before: above 1, times are noisy."""
    return {"load": f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"} if hasattr(os, "getloadavg") else {}


def table(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of the table as text, the header first: what is not nnflat, and how much longer it takes.

    The ratio is the peer's time by nnflat's, so below 1 is a loss, and says so.
    """
    rows = [_cells(result["peer"], row) for result in results["peers"] for row in result["rows"]]
    order = {case: place for place, case in enumerate(dict.fromkeys(row[0] for row in rows))}
    failed = [
        ("", result["peer"], "", "", "", "", f"did not run: {result['failed']}")
        for result in results["peers"]
        if "failed" in result
    ]
    return [HEAD, *sorted(rows, key=lambda row: order[row[0]]), *failed]


def _cells(peer: str, row: dict[str, Any]) -> tuple[str, ...]:
    if "differs" in row:
        return row["case"], peer, "", "", "", "", row["differs"]
    own, other = row["seconds"]["nnflat"], row["seconds"][peer]
    low, mean = other["min"] / own["min"], other["mean"] / own["mean"]
    return (
        row["case"],
        peer,
        f"{duration(own['min'])} ({duration(own['mean'])})",
        f"{duration(other['min'])} ({duration(other['mean'])})",
        f"{low:.2f}",
        f"{mean:.2f}",
        "lost" if low < 1 else "",
    )


def duration(seconds: float) -> str:
    """Return seconds in a unit that people read.

    >>> duration(2.5e-7), duration(0.0123)
    ('250 ns', '12.3 ms')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def markdown(rows: list[tuple[str, ...]]) -> str:
    """Return rows, the first of them the header, as a Markdown table."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="the folder of the environments")
    parser.add_argument("--only", help="peers, commas between (default: all)")
    parser.add_argument("--cases", default="", help="only cases whose name has this in it")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PEERS)
    if unknown := set(names) - set(PEERS):
        parser.error(f"no peer is called {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    results = measured(names, options.cache, options.cases)
    print("\n".join(f"{name}: {value}" for name, value in results["machine"].items()))
    for result in results["peers"]:
        print(", ".join(f"{package} {number}" for package, number in result["versions"].items()))
    print(markdown(table(results)))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all("failed" not in result for result in results["peers"]) else 1


if __name__ == "__main__":
    sys.exit(main())
