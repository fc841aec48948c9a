"""What `nnflat train` learns from: a table of numbers and a target, from scikit-learn or a CSV file.

Features are standardised for training, and the standardisation is folded into the first layer afterwards (that of a
target into the last): the model that is saved takes the numbers of the table as they are.
"""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnflat import nn, random

BUNDLED = ("digits", "breast_cancer", "diabetes")
SMOOTHING = 0.1             # of labels: without it a network goes on to be sure of what it knows, and learns noise
MOST_CLASSES = 20           # integers of more values than that are a quantity, not labels


@dataclass(frozen=True, eq=False)
class Table:
    """Features (n, k) of float32, and a target (n,): labels 0 .. classes - 1, or numbers where `classes` is None."""

    name: str
    features: np.ndarray
    target: np.ndarray
    classes: list[str] | None


def load_table(source: str, target: str | None = None) -> Table:
    """Load a data set by its name, or a CSV file.

    >>> load_table("iris.csvv")
    Traceback (most recent call last):
    ...
    ValueError: iris.csvv is no data set: digits, breast_cancer, diabetes, or a .csv file
    """
    if source in BUNDLED:
        return bundled(source)
    if not source.lower().endswith(".csv"):
        raise ValueError(f"{source} is no data set: {', '.join(BUNDLED)}, or a .csv file")
    return read_csv(source, target)


def bundled(name: str) -> Table:
    try:
        import sklearn.datasets
    except ImportError:
        raise ImportError(f"{name} comes with scikit-learn: pip install 'nnflat[demo]'") from None
    data = getattr(sklearn.datasets, f"load_{name}")()
    classes = None if name == "diabetes" else [str(each) for each in data.target_names]
    target = data.target.astype(np.float32 if classes is None else np.int64)
    return Table(name, data.data.astype(np.float32), target, classes)


def read_csv(path: str, target: str | None) -> Table:
    """Read a CSV file: a header or none, numbers, and the target in a column of that name or number (or the last)."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    if not rows:
        raise ValueError(f"{path} is empty")
    header = None if all(is_number(cell) for cell in rows[0][:-1]) else rows.pop(0)
    width = len(header or rows[0])
    if width < 2 or not rows:
        raise ValueError(f"{path} needs at least two columns, and a row below the header")
    for i, row in enumerate(rows, start=1 if header is None else 2):
        if len(row) != width:
            raise ValueError(f"{path}, row {i}: {len(row)} cells, where {width} are needed")
    column = find_column(path, header, width, target)
    features = np.array([[number(path, header, i, j, cell) for j, cell in enumerate(row) if j != column]
                         for i, row in enumerate(rows, start=1 if header is None else 2)], np.float32)
    cells = [row[column].strip() for row in rows]
    if "" in cells:
        raise ValueError(f"{path}: a cell of the target is empty")
    name = os.path.splitext(os.path.basename(path))[0]
    if is_quantity(cells):
        return Table(name, features, np.array(cells, np.float32), None)
    classes = sorted(set(cells), key=lambda cell: (float(cell), "") if is_number(cell) else (math.inf, cell))
    return Table(name, features, np.array([classes.index(cell) for cell in cells]), classes)


def find_column(path: str, header: list[str] | None, width: int, target: str | None) -> int:
    if target is None:
        return width - 1
    if header is not None and target in header:
        return header.index(target)
    if target.isdecimal() and int(target) < width:
        return int(target)
    raise ValueError(f"{path} has no column {target!r}; it has {', '.join(header) if header else f'0 to {width - 1}'}")


def is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def number(path: str, header: list[str] | None, row: int, column: int, cell: str) -> float:
    if not is_number(cell):
        name = header[column] if header else f"column {column}"
        raise ValueError(f"{path}, row {row}, {name}: {cell!r} is no number")
    return float(cell)


def is_quantity(cells: list[str]) -> bool:
    """Whether a target is a number to be predicted, and no label."""
    if not all(is_number(cell) for cell in cells):
        return False
    whole = all(float(cell).is_integer() for cell in cells)
    return not whole or len(set(cells)) > MOST_CLASSES


# --- training ----------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of a table for training, validation and test."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_rows(n: int, seed: int) -> Parts:
    """Share rows out at random: a fifth for test, a tenth for validation.

    >>> split_rows(10, 0).test.size
    2
    """
    if n < 10:
        raise ValueError(f"at least 10 rows are needed to train, validate and test; got {n}")
    order = random.permutation(random.fold(seed, 4), n)
    held, kept = n // 5, n // 10
    return Parts(order[held + kept:], order[held:held + kept], order[:held])


@dataclass(frozen=True, eq=False)
class Scaling:
    """What is taken off, and what is divided by."""

    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Scaling:
        scale = x.std(axis=0)
        return cls(x.mean(axis=0), np.where(scale == 0, 1, scale).astype(x.dtype))

    @classmethod
    def together(cls, x: np.ndarray) -> Scaling:
        """Scale columns of one unit, pixels say: one that hardly varies is not blown up to the size of the others."""
        typical = np.sqrt(np.mean(x.var(axis=0)))
        return cls(x.mean(axis=0), np.hypot(x.std(axis=0), typical if typical > 0 else 1).astype(x.dtype))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return (x - self.shift) / self.scale


def make_model(table: Table, hidden: tuple[int, ...], rng: np.random.Generator) -> nn.Chain:
    outputs = 1 if table.classes is None else len(table.classes)
    sizes = [table.features.shape[1], *hidden, outputs]
    names = ["relu"] * len(hidden) + ["identity"]
    return nn.Chain(*[nn.Dense(a, b, name, rng=rng) for a, b, name in zip(sizes, sizes[1:], names, strict=False)])


def classification_loss(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Any:
    return nn.cross_entropy(model(x), y, label_smoothing=SMOOTHING)


def regression_loss(model: nn.Chain, x: np.ndarray, y: np.ndarray) -> Any:
    return nn.mse(model(x), y)


def fold_in(model: nn.Chain, features: Scaling, target: Scaling | None) -> None:
    """Write the scalings into the first and the last layer."""
    layers: list[Any] = list(model.layers)
    first, last = layers[0], layers[-1]
    first.weight[...] = first.weight / features.scale[:, None]
    first.bias[...] = first.bias - features.shift @ first.weight
    if target is not None:
        last.weight[...] = last.weight * target.scale
        last.bias[...] = last.bias * target.scale + target.shift


def score(table: Table, model: nn.Chain, rows: np.ndarray) -> tuple[str, float]:
    """Return accuracy, or the share of the variance that is explained (R squared), by name."""
    predicted, target = model(table.features[rows]), table.target[rows]
    if table.classes is not None:
        return "accuracy", float(np.mean(predicted.argmax(axis=1) == target))
    rest = np.sum((predicted[:, 0] - target) ** 2)
    return "R2", float(1 - rest / np.sum((target - target.mean()) ** 2))
