"""What `import nnflat` costs, in a process of its own, beside the import of NumPy, which it contains."""

import subprocess
import sys
import time

RUNS = 7


class Import:
    """The import of a package by a fresh interpreter."""

    params = ("numpy", "nnflat")
    param_names = ("package",)

    def timeraw_import(self, package: str) -> str:
        return f"import {package}"


def run(code: str) -> float:
    """Return the seconds that a fresh interpreter takes for some code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


class Beyond:
    """The import of nnflat less that of NumPy: least by least, of interpreters that take turns."""

    def track_import(self) -> float:
        pairs = [(run("import numpy"), run("import nnflat")) for _ in range(RUNS)]
        numpy, nnflat = map(min, zip(*pairs, strict=True))
        return max(0.0, nnflat - numpy)

    track_import.unit = "seconds"
