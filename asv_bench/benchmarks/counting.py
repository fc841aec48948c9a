"""Count what a call allocates, exactly: Python's blocks and NumPy's array data.

What counts is `counters.c`, compiled at its first use with the compiler that built Python, into a folder of the
cache that is named after its source, Python and NumPy.
"""

import gc
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

SOURCE = Path(__file__).with_name("counters.c")
WARM = 20  # calls before the counted ones: caches and free lists are filled
COUNTED = 5


class Allocations(NamedTuple):
    """What a call asked for: how often, and how many bytes, whether given back within the call or not."""

    allocations: int
    bytes: int


@cache
def counters() -> ModuleType:
    """Return the compiled module, built where it is not there yet."""
    path = _built()
    spec = importlib.util.spec_from_file_location("counters", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _built() -> Path:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    mark = hashlib.sha256(SOURCE.read_bytes() + np.__version__.encode()).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = root / "nnflat" / mark / f"counters{suffix}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _compile(path)
    return path


def _compile(path: Path) -> None:
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    include = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [*compiler, "-O2", "-shared", "-fPIC", *include, str(SOURCE), "-o", str(made)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(f"{SOURCE.name} does not compile:\n{run.stderr}")
        made.replace(path)


def allocations(call: Callable[[], Any]) -> Allocations:
    """Return what a warm call allocates: the least of a few calls, so that what is once in a while does not count.

    >>> allocations(lambda: np.empty(1000)).bytes >= 8000
    True
    """
    count = counters().allocations_of
    for _ in range(WARM):
        call()
    gc.collect()
    gc.disable()
    try:
        return min(Allocations(*count(call)) for _ in range(COUNTED))
    finally:
        gc.enable()
