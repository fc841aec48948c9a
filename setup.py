"""Build the compiled parts of nnflat; everything else is in pyproject.toml.

NNFLAT_DEBUG=1      bounds checks on, and an annotated page beside each generated C file.
NNFLAT_SANITIZE=1   AddressSanitizer and UndefinedBehaviorSanitizer (see CONTRIBUTING.md).
"""

import os

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

DEBUG = os.environ.get("NNFLAT_DEBUG") == "1"
SANITIZE = os.environ.get("NNFLAT_SANITIZE") == "1"

COMPILE = ["-O1", "-g", "-fsanitize=address,undefined"] if SANITIZE else ["-O3", "-g0"]
LINK = ["-fsanitize=address,undefined"] if SANITIZE else []
# Contracting a*b+c into one rounding would change bits between machines.
COMPILE += ["-ffp-contract=off"]
if os.name == "nt":
    COMPILE, LINK = ["/O2", "/fp:precise"], []

NO_COMPILER = (
    "nnflat needs a C compiler and Python's headers to build from source and found none that work. "
    "Install one (Debian, Ubuntu: apt install gcc python3-dev; macOS: xcode-select --install; "
    "Windows: the Visual Studio Build Tools) and run the same command again."
)


class BuildExt(build_ext):
    """Build the extensions; say in one sentence what is missing where there is no compiler."""

    def build_extension(self, ext):
        try:
            super().build_extension(ext)
        except (CompileError, PlatformError, FileNotFoundError) as error:
            if self._compiler_works():
                raise
            raise SystemExit(f"error: {NO_COMPILER} ({error})") from None

    def _compiler_works(self):
        probe = os.path.join(self.build_temp, "probe.c")
        os.makedirs(self.build_temp, exist_ok=True)
        with open(probe, "w", encoding="ascii") as file:
            file.write("#include <Python.h>\nint main(void) { return 0; }\n")
        try:
            self.compiler.compile([probe], output_dir=self.build_temp, include_dirs=self.include_dirs)
        except Exception:
            return False
        return True


def extension(name):
    return Extension(
        f"nnflat.{name}",
        [f"nnflat/{name}.pyx"],
        include_dirs=[np.get_include()],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION")],
        extra_compile_args=COMPILE,
        extra_link_args=LINK,
    )


setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=cythonize(
        [extension(name) for name in ("_copy", "_loops", "_noise", "_random", "_replay", "_walk")],
        annotate=DEBUG,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": DEBUG,
        },
    ),
)
