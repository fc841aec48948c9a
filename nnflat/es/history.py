"""History: a row of numbers a generation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnflat.es.record import Record

__all__ = ["History"]

DTYPES = {
    "generation": np.int64,
    "best": np.float64,
    "mean": np.float64,
    "std": np.float64,
    "sigma": np.float64,
    "evaluations": np.int64,
    "steps": np.int64,
    "seconds": np.float64,
}


class History:
    """What is kept of each generation; begins with the arrays of an earlier part of the run."""

    def __init__(self, before: dict[str, NDArray[Any]] | None = None) -> None:
        rows = {} if before is None else before
        self._columns: dict[str, list[Any]] = {name: np.asarray(rows.get(name, ())).tolist() for name in DTYPES}

    def __len__(self) -> int:
        return len(self._columns["generation"])

    @property
    def bests(self) -> list[float]:
        """The best of each generation."""
        return self._columns["best"]

    def last(self, name: str) -> Any:
        """Return the last value of a column; 0 before the first generation."""
        return self._columns[name][-1] if len(self) else 0

    def append(self, record: Record) -> None:
        """Add a generation."""
        for name, column in self._columns.items():
            column.append(getattr(record, name))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a new array a column."""
        return {name: np.array(column, DTYPES[name]) for name, column in self._columns.items()}
