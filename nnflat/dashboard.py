"""The dashboard of a checkout: what asv measured, commit by commit, as a page that needs no network.

It stands on the folder `asv_bench` of the sources, and so works in a checkout only.
"""

import os
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

SUITE = Path("asv_bench")
HOST = "127.0.0.1"  # never another: the page is for this machine


def find_suite(start: Path | None = None) -> Path:
    """Return the folder of the benchmarks: in the working directory, above it, or beside the package.

    >>> find_suite().name
    'asv_bench'
    """
    start = Path.cwd() if start is None else start.resolve()
    for folder in (start, *start.parents, Path(__file__).parents[1]):
        if (folder / SUITE / "asv.conf.json").is_file():
            return folder / SUITE
    raise ValueError(f"nnflat dashboard needs a checkout of nnflat, with its folder asv_bench; none is above {start}")


def build(suite: Path, *, run: bool = False, quick: bool = False) -> Path:
    """Publish the kept results, and those of a new run where asked, and return the folder of the page.

    Beside the page stands `report.html`, which opens from disk and needs neither server nor script.
    """
    if find_spec("asv") is None:
        raise ImportError("the dashboard needs asv: pip install asv")
    shutil.copytree(suite / "reference" / "asv", suite / "results", dirs_exist_ok=True)
    _measure(suite, None if run else "just-discover", quick=quick)
    _python(suite, "-m", "asv", "publish")
    _python(suite, "report.py", "html/report.html")
    _python(suite, "offline.py")
    return suite / "html"


def _measure(suite: Path, only: str | None, *, quick: bool) -> None:
    """Run the suites on the checked-out commit, or only find out which there are."""
    _python(suite, "-m", "asv", "machine", "--yes")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=suite, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    arguments = ["-E", "existing:same", "--set-commit-hash", commit]
    if only:
        arguments += ["--bench", only]
    _python(suite, "-m", "asv", "run", *arguments, seconds="0.03" if quick else "0.15")


def _python(suite: Path, *arguments: str, seconds: str = "0.15") -> None:
    """Run Python in the folder of the suite, on this package, one BLAS thread; say what failed."""
    here = str(Path(__file__).parents[1])
    settings = {"ASV_PYTHONPATH": here, "PYTHONPATH": here, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    environment = os.environ | settings | {"NNFLAT_BENCH_SECONDS": seconds}
    done = subprocess.run(command, cwd=suite, env=environment, stdout=sys.stderr, check=False)
    if done.returncode:
        raise ValueError(f"{' '.join(arguments)} ended with {done.returncode}")


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a line on the terminal for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def server(page: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server of a folder on this machine's own address; port 0 takes a free one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as served:
    ...     served.server_address[0]
    '127.0.0.1'
    """
    return ThreadingHTTPServer((HOST, port), partial(Quiet, directory=str(page)))
