"""Checkpoint: all that a run needs to go on, to the bit, as arrays and JSON in one file."""

import os
from dataclasses import dataclass
from datetime import timedelta
from os import PathLike
from time import monotonic
from typing import Any

import numpy as np

from nnflat import files
from nnflat.es.history import History

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """A file, written whole or not at all, for one strategy, evaluator and chunk."""

    path: str | PathLike[str] | None
    strategy: Any
    evaluator: Any
    chunk: int

    def save(self, history: History) -> None:
        """Write the file, if there is a path."""
        if self.path is None:
            return
        tree = {
            "strategy": self.strategy.state(),
            "evaluator": _state(self.evaluator),
            "history": history.arrays(),
        }
        files.save(self.path, tree, meta={"run": self._identity() | {"generations": len(history)}})

    def load(self) -> History:
        """Restore strategy and evaluator from the file; return the history. Without a file, an empty one.

        Raises
        ------
        ValueError
            If the file is of another run: nothing is changed.
        """
        if self.path is None or not os.path.exists(self.path):
            return History()
        self._check(files.info(self.path).meta.get("run", {}))
        tree = files.load(self.path)
        self.strategy.restore(_arrays(tree["strategy"]))
        if hasattr(self.evaluator, "restore"):
            self.evaluator.restore(_arrays(tree["evaluator"]))
        return History(tree["history"])

    def _identity(self) -> dict[str, Any]:
        return {
            "strategy": type(self.strategy).__name__,
            "size": int(self.strategy.theta.size),
            "dtype": str(self.strategy.theta.dtype),
            "maximize": self.strategy.maximize,
            "chunk": self.chunk,
        }

    def _check(self, found: dict[str, Any]) -> None:
        for name, value in self._identity().items():
            if found.get(name) != value:
                raise ValueError(
                    f"{os.fspath(self.path or '')}: {name} is {found.get(name)} in the checkpoint, {value} in this run"
                )


class Due:
    """Says when the next checkpoint is due: every so many generations, or every so long."""

    def __init__(self, every: int | timedelta) -> None:
        if not (every.total_seconds() if isinstance(every, timedelta) else every) > 0:
            raise ValueError(f"every must be a number of generations, or a timedelta, above 0; got {every}")
        self._every = every
        self._last = monotonic()

    def __call__(self, generation: int) -> bool:
        if not isinstance(self._every, timedelta):
            return generation % self._every == 0
        if monotonic() - self._last < self._every.total_seconds():
            return False
        self._last = monotonic()
        return True


def _state(evaluator: Any) -> dict[str, Any]:
    return evaluator.state() if hasattr(evaluator, "state") else {}


def _arrays(state: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value) for name, value in state.items()}
