"""What `import nnflat` costs, in a process of its own, beside the import of NumPy, which it contains."""


class Import:
    """The import of a package by a fresh interpreter."""

    params = ("numpy", "nnflat")
    param_names = ("package",)

    def timeraw_import(self, package: str) -> str:
        return f"import {package}"
