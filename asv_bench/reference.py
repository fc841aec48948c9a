"""Measure everything that is kept, in some fifteen minutes, and write the pages made from it.

    python asv_bench/reference.py --cache FOLDER [--machine NAME]
    python asv_bench/reference.py --history CHECKOUT        add an earlier commit to the history of the suites

Run it on a quiet machine, with nothing uncommitted: the figures are kept below reference/ as those of HEAD.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import REFERENCE

SUITE = Path(__file__).parent
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def environment(checkout: Path) -> dict[str, str]:
    """Return the variables under which the package of a checkout is measured, on one BLAS thread."""
    path = str(checkout.resolve())
    return os.environ | {"OPENBLAS_NUM_THREADS": "1", "ASV_PYTHONPATH": path, "PYTHONPATH": path}


def run(*command: str, checkout: Path = SUITE.parent) -> None:
    """Run a command in the folder of the suite; what it prints is progress."""
    subprocess.run(command, cwd=SUITE, env=environment(checkout), check=True, stdout=sys.stderr)


def output(*command: str, folder: Path = SUITE) -> str:
    """Return what a command prints."""
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def python(*arguments: str) -> None:
    run(sys.executable, *arguments)


def copies() -> None:
    """Keep the table of `nnflat bench`."""
    held = json.loads(output(sys.executable, "-m", "nnflat", "bench", "--json", folder=SUITE.parent))
    (REFERENCE / "bench.json").write_text(json.dumps(held, indent=1) + "\n")


def suites(machine: str, checkout: Path, bench: str) -> None:
    """Keep asv's results of the commit that is checked out there, measured by the suites here."""
    commit = output("git", "rev-parse", "HEAD", folder=checkout).strip()
    asv = (sys.executable, "-m", "asv")
    run(*asv, "machine", "--yes", "--machine", machine, "--os", platform.system())
    config = SUITE / "reference.conf.json"
    settings = json.loads("".join(plain_lines(SUITE / "asv.conf.json")))
    with tempfile.TemporaryDirectory() as folder:
        config.write_text(json.dumps(settings | {"results_dir": folder}))
        options = ("--config", config.name, "-E", "existing:same", "--machine", machine, "--set-commit-hash", commit)
        options += ("--bench", bench)
        try:
            run(*asv, "run", *options, checkout=checkout)
        except subprocess.CalledProcessError as error:  # what did run is kept
            print(f"asv ended with {error.returncode}: some benchmarks failed", file=sys.stderr)
        finally:
            config.unlink()
        for path in (Path(folder) / machine).glob("*.json"):
            keep(path, REFERENCE / "asv" / machine)


def keep(path: Path, folder: Path) -> None:
    """Keep one of asv's files, without where Python stands here, beside what is kept of the same commit already."""
    folder.mkdir(parents=True, exist_ok=True)
    held = json.loads(path.read_text())
    if path.name == "machine.json":
        held["os"], name = platform.system(), path.name
    else:
        held |= {"env_name": f"python{PYTHON}", "python": PYTHON}
        held["params"] |= {"python": PYTHON, "os": platform.system()}
        name = f"{held['commit_hash'][:8]}-python{PYTHON}.json"
        if (folder / name).exists():
            held["results"] = json.loads((folder / name).read_text())["results"] | held["results"]
    (folder / name).write_text(json.dumps(held, separators=(",", ":")) + "\n")


def plain_lines(path: Path) -> list[str]:
    """Return the lines of a configuration without its comments."""
    return [line for line in path.read_text().splitlines() if not line.lstrip().startswith("//")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", help="the folder of the peers' environments")
    parser.add_argument("--machine", default="reference", help="the name under which asv keeps the results")
    parser.add_argument("--history", type=Path, help="only run the suites, on this built checkout of another commit")
    parser.add_argument("--bench", default="", help="only the suites whose name matches (default: all)")
    options = parser.parse_args()
    if not (options.cache or options.history):
        parser.error("--cache FOLDER is needed, for the environments of the peers")
    REFERENCE.mkdir(exist_ok=True)
    suites(options.machine, options.history or SUITE.parent, options.bench)
    if not options.history:
        copies()
        python("peers.py", "--cache", options.cache, "--out", str(REFERENCE / "peers.json"))
    python("document.py")
    python("report.py", str(SUITE.parent / "docs" / "report.html"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
