"""Logs of a run: callbacks that write a line, or a point, a generation."""

import json
import math
import os
from os import PathLike
from typing import Any

from nnflat.es.record import Record

__all__ = ["JsonLines", "TensorBoard"]

NAMES = ("generation", "best", "mean", "std", "sigma", "evaluations", "steps", "seconds")


class JsonLines:
    """Append a JSON object a generation to a file; of a resumed run, what was beyond its checkpoint goes first.

    What is not a number is left out, rather than NaN.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from nnflat import es
    >>> strategy = es.OpenAIES(np.ones(3), maximize=False, pop=4, sigma=0.1)
    >>> sphere = es.Batch(lambda population, key: np.sum(population**2, axis=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "log.jsonl")
    ...     _ = es.run(strategy, sphere, generations=2, callbacks=[JsonLines(path)], progress=False)
    ...     with open(path) as file:
    ...         [json.loads(line)["generation"] for line in file]
    [1, 2]
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = path
        self._begun = False

    def __call__(self, record: Record) -> None:
        """Write the line of a generation."""
        if not self._begun:
            self._drop_from(record.generation)
            self._begun = True
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(_numbers(record)) + "\n")

    def _drop_from(self, generation: int) -> None:
        if not os.path.exists(self._path):
            return
        with open(self._path, encoding="utf-8") as file:
            kept = [line for line in file if _generation(line) < generation]
        with open(self._path, "w", encoding="utf-8") as file:
            file.writelines(kept)


class TensorBoard:
    """Write the numbers of each generation for TensorBoard.

    Raises
    ------
    ImportError
        If neither tensorboardX nor torch with tensorboard is installed.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._writer = _summary_writer()(os.fspath(folder))

    def __call__(self, record: Record) -> None:
        """Write the points of a generation."""
        for name, value in _numbers(record).items():
            self._writer.add_scalar(f"es/{name}", value, record.generation)
        self._writer.flush()


def _numbers(record: Record) -> dict[str, float]:
    numbers = {name: getattr(record, name) for name in NAMES}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _generation(line: str) -> float:
    try:
        return json.loads(line)["generation"]
    except (ValueError, KeyError, TypeError):  # the last line of a run that was killed
        return math.inf


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ImportError("TensorBoard needs a writer: pip install tensorboardX") from None
    return SummaryWriter
