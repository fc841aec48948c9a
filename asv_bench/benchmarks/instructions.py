"""Count the instructions of calls under callgrind: a measure of overhead that noise does not touch.

    valgrind --tool=callgrind ... python -m benchmarks.instructions FOLDER      (what `counts` runs)

One process counts all calls, since Python and NumPy take seconds to start under valgrind.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from .counting import WARM, counters
from .gated import GATED
from .measure import Call

REPEATS = 20


def missing() -> str | None:
    """Return what is missing to count instructions, as a sentence, or None."""
    if shutil.which("valgrind") is None:
        return "instructions are not counted: valgrind is not installed (Debian: apt install valgrind)"
    if not counters().HAVE_CALLGRIND:
        return "instructions are not counted: valgrind/callgrind.h was not there when the counters were compiled"
    return None


def counts(module: str = __name__) -> dict[str, float]:
    """Return instructions a call, by name, of the calls that a module runs: by default, of all in `gated`."""
    if missing():
        raise NotImplementedError(missing())
    path = [str(Path(__file__).parents[1]), *map(os.path.abspath, filter(None, sys.path))]
    fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        command = [*valgrind, sys.executable, "-m", module]
        run = subprocess.run(command, env=os.environ | fixed, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(f"valgrind ended with {run.returncode}:\n{run.stderr[-2000:]}")
        return dict(_read(path) for path in sorted(Path(folder).glob("out.*")))


def _read(path: Path) -> tuple[str, float]:
    """Return the label and the instructions a call of one dump of callgrind."""
    lines = path.read_text().splitlines()
    label = next(line.partition("Client Request: ")[2] for line in lines if line.startswith("desc: Trigger:"))
    total = next(line.partition(":")[2] for line in lines if line.startswith("summary:"))
    return label, int(total) / REPEATS


def run(named: Mapping[str, Callable[[], Call]]) -> None:
    """Make and warm each call, and run it between two marks that callgrind sees."""
    for name, make in named.items():
        call = make()
        for _ in range(WARM):
            call()
        counters().instructions_of(call, name, REPEATS)


if __name__ == "__main__":
    run(GATED)
