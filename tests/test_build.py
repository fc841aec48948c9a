"""Building and importing: what a machine without a compiler is told, what `import nnflat` brings."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIONAL = {"gymnasium", "matplotlib", "rich", "safetensors", "scipy", "threadpoolctl", "Cython"}
FEW = 100


@pytest.fixture
def checkout(tmp_path):
    """What setup.py needs, each compiled module an empty one."""
    (tmp_path / "nnflat").mkdir()
    for source in (ROOT / "nnflat").glob("*.pyx"):
        (tmp_path / "nnflat" / source.name).touch()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def build(checkout, compiler=None):
    environment = os.environ if compiler is None else os.environ | {"CC": compiler, "LDSHARED": compiler}
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def python(code):
    """Return what a fresh interpreter prints."""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def modules_of(statement):
    """Return the modules that a statement adds to those of `import numpy`."""
    code = f"import sys, numpy; old = set(sys.modules); {statement}; print(*set(sys.modules) - old)"
    return python(code).split()


def packages_of(statement):
    return {name.partition(".")[0] for name in modules_of(statement)}


@pytest.mark.skipif(os.name == "nt", reason="CC is not read there")
@pytest.mark.parametrize("compiler", ["/nonexistent/cc", "false"])
def test_without_a_compiler_one_sentence_says_what_to_install(checkout, compiler):
    run = build(checkout, compiler)
    last = run.stderr.splitlines()[-1]
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert last.startswith("error: nnflat needs a C compiler")
    assert "apt install gcc" in last


def test_a_module_that_does_not_compile_is_not_taken_for_a_missing_compiler(checkout):
    broken = next((checkout / "nnflat").glob("*.pyx"))
    broken.write_text('cdef extern from *:\n    """\n    #error broken\n    """\n', encoding="utf-8")
    run = build(checkout)
    assert run.returncode != 0
    assert "broken" in run.stderr
    assert "needs a C compiler" not in run.stderr


def test_import_brings_nothing_optional():
    ours = {name for name in packages_of("import nnflat") if "cython" not in name.lower()}
    assert ours - sys.stdlib_module_names == {"nnflat", "numpy"}


def test_import_adds_few_modules():
    assert len(modules_of("import nnflat")) < FEW


def test_rooms_load_on_first_use():
    rooms = ("nnflat.nn", "nnflat.es", "nnflat.optim", "nnflat.interop", "nnflat.cli", "nnflat.bench")
    assert not set(rooms) & set(modules_of("import nnflat"))
    assert "nnflat.nn" in modules_of("import nnflat; nnflat.nn.Dense")


def test_rooms_bring_nothing_optional_before_it_is_used():
    assert not OPTIONAL & packages_of("import nnflat; from nnflat import bench, cli, es, interop, nn, optim")


def test_the_version_is_that_of_the_package():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert python("import nnflat; print(nnflat.__version__)").strip() == metadata["project"]["version"]
