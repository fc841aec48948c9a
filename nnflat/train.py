"""fit: minibatches shuffled by key, run natively, epoch after epoch, until something says stop.

Invariants:

 F1  Where a run is (epoch, batch), its weights, the state of its rule and its seed decide all that follows, to the
     bit: not the chunks in which batches are run, nor whether it was interrupted and resumed.
 F2  A loss that is not finite ends the run with the last weights whose loss was.
 F3  Where a run is changes in one assignment, wherever Ctrl-C comes: what is saved then goes on to the same bits.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np

from nnflat import files, random
from nnflat._figure import empty_figure
from nnflat.compile import CACHE, compile
from nnflat.grad import value_and_grad
from nnflat.layout import Layout, destructure
from nnflat.optim.rule import Rule
from nnflat.repeat import scan

__all__ = ["Epoch", "History", "fit"]

CHUNK = 128                 # batches of one native run: what Ctrl-C may have to wait for
SAVE_EVERY = 30.0           # seconds between two checkpoints inside an epoch
MOST_KEPT = 32              # settings under which the traces of a loss are kept
INTERVAL = 1.0              # seconds between two plain lines of progress


@dataclass(frozen=True)
class Epoch:
    """What callbacks are told after each epoch: its number from 1, mean loss, validation loss, and seconds so far."""

    number: int
    loss: float
    validation: float | None
    seconds: float


class History(dict):
    """A dict of arrays, a value an epoch: `epoch`, `loss`, `validation` (if there is one) and `seconds`.

    Attributes
    ----------
    best_epoch : int
        The epoch, from 1, whose weights the model has now; 0 where none was finished.
    stopped_by : str
        "epochs", "patience", "interrupted", or "nan".
    """

    def __init__(self, columns: dict[str, np.ndarray], best_epoch: int, stopped_by: str) -> None:
        super().__init__(columns)
        self.best_epoch, self.stopped_by = best_epoch, stopped_by

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Draw the losses by epoch, and the best one, as a matplotlib Figure; save it where `path` is given."""
        figure, axes = empty_figure()
        for name in ("loss", "validation"):
            if name in self:
                axes.plot(self["epoch"], self[name], label=name)
        if self.best_epoch:
            axes.axvline(self.best_epoch, color="grey", linestyle=":", label=f"best: epoch {self.best_epoch}")
        axes.set(xlabel="epoch", ylabel="loss")
        axes.legend(edgecolor="none")
        if path is not None:
            figure.savefig(path)
        return figure


def fit(
    model: Any,
    data: Any,
    *,
    loss: Callable[..., Any],
    optimizer: Rule,
    epochs: int,
    batch_size: int = 32,
    validation: Any = None,
    patience: int | None = None,
    callbacks: Iterable[Callable[[Epoch], object]] = (),
    checkpoint: str | PathLike[str] | None = None,
    resume: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> History:
    """Train a model in place on minibatches; return how it went.

    Parameters
    ----------
    model : tree
        Its arrays are written; at the end they are the best weights: those after the epoch with the lowest
        validation loss, or the lowest mean loss where there is no validation.
    data : array or tuple of arrays
        The examples, along the first axis of each.
    loss : callable
        `loss(model, *batch)`, or `loss(model, *batch, key=)` where it draws: a real number. Pure, in NumPy.
    optimizer : Rule
        From `nnflat.optim`.
    epochs : int
        At most so many passes over the data.
    batch_size : int
        The last batch of an epoch has what is left.
    validation : array or tuple of arrays, optional
        Like `data`.
    patience : int, optional
        Stop after so many epochs without a new best.
    callbacks : iterable of callables
        Called with an `Epoch` after each one.
    checkpoint : path, optional
        A .npz or .safetensors file, written after each epoch and now and then inside one.
    resume : bool
        Go on from the checkpoint, if the file is there, to the bit as if there had been no break.
    seed : int
        Of the order of the examples, and of the keys.
    progress : bool
        Whether to show progress on stderr.

    Returns
    -------
    History

    Raises
    ------
    ValueError, TypeError
        Where data, labels or settings do not fit; nothing has been written then.

    Warns
    -----
    RuntimeWarning
        Where the loss is not finite: the run ends, with the last weights whose loss was.

    Examples
    --------
    >>> from nnflat import nn, optim
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((64, 3)).astype(np.float32)
    >>> model = nn.Dense(3, 1, rng=rng)
    >>> def loss(model, x, y):
    ...     return nn.mse(model(x), y)
    >>> history = fit(model, (x, x[:, :1] - 2), loss=loss, optimizer=optim.Adam(0.1), epochs=200, progress=False)
    >>> history.stopped_by, bool(history["loss"][-1] < 1e-4)
    ('epochs', True)
    """
    check_counts(epochs=epochs, batch_size=batch_size, patience=1 if patience is None else patience)
    examples = as_columns(data, "data")
    held_out = None if validation is None else as_columns(validation, "validation")
    flat, layout = destructure(model)
    if layout.size == 0:
        raise ValueError("the model has no parameters to train")
    steps = Steps(layout, loss, optimizer)
    for columns in [examples] if held_out is None else [examples, held_out]:
        try_loss(steps, flat, columns, batch_size, seed)
    run = Run(flat, optimizer.init(flat), flat)
    if resume and checkpoint is not None and os.path.exists(checkpoint):
        run = load_run(checkpoint, run, settings(examples, held_out, batch_size, seed))
    trainer = Trainer(steps, run, examples, held_out, batch_size, seed, checkpoint)
    try:
        trainer.stopped_by = trainer.train(epochs, patience, tuple(callbacks), shown(epochs, enabled=progress))
    except KeyboardInterrupt:
        trainer.stopped_by = "interrupted"
        if checkpoint is not None:
            trainer.save()
    run = trainer.run
    layout.restructure(run.best if run.best_epoch else run.flat, out=model)
    return History({name: np.array(column) for name, column in run.columns.items()}, run.best_epoch, trainer.stopped_by)


# --- data --------------------------------------------------------------------------------------------------

def check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int | np.integer):
            raise TypeError(f"{name} needs an int; got {value!r}")
        if value < 1:
            raise ValueError(f"{name} needs to be at least 1; got {value}")


def as_columns(data: Any, name: str) -> tuple[np.ndarray, ...]:
    columns = tuple(np.asarray(x) for x in (data if isinstance(data, tuple | list) else (data,)))
    if any(x.ndim == 0 for x in columns):
        raise ValueError(f"{name} needs arrays with an axis of examples; got a number")
    lengths = {len(x) for x in columns}
    if len(lengths) != 1:
        raise ValueError(f"{name} has arrays of different lengths: {', '.join(str(len(x)) for x in columns)}")
    if lengths == {0}:
        raise ValueError(f"{name} is empty: at least one example is needed")
    return columns


def try_loss(steps: Steps, flat: np.ndarray, columns: Sequence[np.ndarray], batch_size: int, seed: int) -> None:
    """Evaluate the loss in plain NumPy, once an example: what does not fit raises where it can be understood."""
    model, size = steps.rebuild(flat), batch_size if steps.draws else max(batch_size, 1024)
    keys = {"key": random.fold(seed, 0)} if steps.draws else {}
    with np.errstate(all="ignore"):
        for start in range(0, len(columns[0]), size):
            value = steps.loss(model, *[x[start:start + size] for x in columns], **keys)
            if np.ndim(value) != 0:
                raise TypeError(f"the loss needs to be one number; it is an array of shape {np.shape(value)}")


# --- steps -------------------------------------------------------------------------------------------------

class Steps:
    """The loss, and runs of steps, as compiled functions of a flat vector. Their traces are kept with the loss."""

    def __init__(self, layout: Layout, loss: Callable[..., Any], optimizer: Rule) -> None:
        self.loss = loss
        self.draws = "key" in inspect.signature(loss).parameters
        of_flat = FlatLoss(loss, layout, self.draws)
        self.rebuild = of_flat.rebuild
        self.evaluate = compile(of_flat)
        self.run = compile(Steepest(loss, of_flat.layout, self.draws, optimizer))
        forget_old_traces(loss)


@dataclass(frozen=True)
class FlatLoss:
    """The loss of a flat vector; equal where loss and layout are, so that a second `fit` finds its traces."""

    fn: Callable[..., Any]
    layout: Layout
    draws: bool

    def rebuild(self, flat: Any) -> Any:
        uniform = all(dtype == self.layout.dtype for dtype in self.layout.dtypes)
        return self.layout.view(flat) if uniform else self.layout.restructure(flat)

    def __call__(self, flat: Any, key: Any, batch: tuple[Any, ...]) -> Any:
        return self.fn(self.rebuild(flat), *batch, **({"key": key} if self.draws else {}))


@dataclass(frozen=True)
class Steepest:
    """Steps down the loss, one a batch."""

    fn: Callable[..., Any]
    layout: Layout
    draws: bool
    optimizer: Rule

    def __call__(self, flat: Any, state: Any, keys: Any, batches: Any) -> Any:
        """Return flat vector, state, and the losses before each step."""
        loss = FlatLoss(self.fn, self.layout, self.draws)

        def step(carry: Any, x: Any) -> Any:
            flat, state = carry
            key, batch = x
            value, gradient = value_and_grad(loss)(flat, key, batch)
            return self.optimizer.step(flat, gradient, state), value

        return scan(step, (flat, state), (keys, batches))


def forget_old_traces(loss: Callable[..., Any]) -> None:
    """Keep the traces of a loss under the last layouts and optimizers only: a search of rates makes no end of them."""
    try:
        kept = CACHE.get(loss, {})
    except TypeError:                   # a loss that cannot be kept weakly
        return
    for options in list(kept)[:-MOST_KEPT]:
        del kept[options]


@dataclass(frozen=True)
class Run:
    """Where a run is; its arrays are never written.

    `batch` counts the batches done of the epoch after `epoch`; `losses` are theirs.
    """

    flat: np.ndarray
    state: dict[str, np.ndarray]
    best: np.ndarray
    best_value: float = np.inf
    best_epoch: int = 0
    epoch: int = 0
    batch: int = 0
    losses: list[float] = field(default_factory=list)
    columns: dict[str, list[float]] = field(default_factory=dict)


class Trainer:
    """Runs epochs, and keeps the best weights."""

    def __init__(self, steps: Steps, run: Run, data: tuple[np.ndarray, ...], validation: tuple[np.ndarray, ...] | None,
                 batch_size: int, seed: int, checkpoint: str | PathLike[str] | None) -> None:
        self.steps, self.run, self.data, self.validation = steps, run, data, validation
        self.size, self.seed, self.checkpoint = min(batch_size, len(data[0])), seed, checkpoint
        self.settings = settings(data, validation, batch_size, seed)
        self.saved = self.started = time.monotonic()
        self.before = sum(run.columns.get("seconds", [0.0])[-1:])
        self.stopped_by = ""
        self.previous: tuple[Any, ...] | None = None        # what the last native run began with

    def train(self, epochs: int, patience: int | None, callbacks: Sequence[Callable[[Epoch], object]],
              show: Callable[[Epoch], None]) -> str:
        while self.run.epoch < epochs:
            if not self.finish_epoch():
                return "nan"
            record = self.close_epoch()
            if self.checkpoint is not None:
                self.save()
            show(record)
            for callback in callbacks:
                callback(record)
            if patience is not None and self.run.epoch - self.run.best_epoch >= patience:
                return "patience"
        return "epochs"

    def finish_epoch(self) -> bool:
        """Run the batches that are left of an epoch; whether all losses are finite."""
        n, epoch = len(self.data[0]), self.run.epoch
        order = random.permutation(random.fold(self.seed, 1, epoch), n)
        whole, rest = divmod(n, self.size)
        while (batch := self.run.batch) < whole + (rest > 0):
            count = 1 if batch >= whole else min(CHUNK - batch % CHUNK, whole - batch)
            rows = order[batch * self.size:(batch + count) * self.size]
            batches = tuple(x[rows].reshape(count, len(rows) // count, *x.shape[1:]) for x in self.data)
            keys = random.fold(self.seed, 2, epoch, np.arange(batch, batch + count))
            if not self.run_batches(keys, batches):
                return False
            if self.checkpoint is not None and time.monotonic() - self.saved > SAVE_EVERY:
                self.save()
        if np.isfinite(self.run.flat).all():
            return True
        self.step_back(0, np.nan, (self.run.flat, self.run.state, (), ()))
        return False

    def run_batches(self, keys: np.ndarray, batches: tuple[np.ndarray, ...]) -> bool:
        run = self.run
        with np.errstate(all="ignore"):
            (flat, state), losses = self.steps.run(run.flat, run.state, keys, batches)
            bad = np.flatnonzero(~np.isfinite(losses))
            if bad.size:
                self.step_back(int(bad[0]), float(losses[bad[0]]), (run.flat, run.state, keys, batches))
                return False
        self.previous = run.flat, run.state, keys, batches
        self.run = replace(run, flat=flat, state=state, batch=run.batch + len(keys),
                           losses=[*run.losses, *losses.tolist()])      # F3
        return True

    def step_back(self, i: int, value: float, begun: tuple[Any, ...]) -> None:
        """Go to the last weights whose loss was finite: those before the step that led to batch i. # F2"""
        run = self.run
        count, start = i - 1, begun
        if i == 0 and self.previous is not None:
            count, start = len(self.previous[2]) - 1, self.previous
        flat, state, keys, batches = start
        if count > 0:
            (flat, state), _ = self.steps.run(flat, state, keys[:count], tuple(x[:count] for x in batches))
        last_of_best = i == 0 and run.batch == 0 and run.best_epoch == run.epoch
        self.run = replace(run, flat=flat, state=state, best=flat if last_of_best else run.best)
        step = run.epoch * self.steps_of_epoch() + run.batch + i + 1
        warnings.warn(f"the loss is {value} at step {step} (epoch {run.epoch + 1}): training stops, and the model has "
                      "its best weights so far, or else the last whose loss was finite", RuntimeWarning, stacklevel=6)

    def steps_of_epoch(self) -> int:
        return -(-len(self.data[0]) // self.size)

    def close_epoch(self) -> Epoch:
        """Count an epoch, append its values to the columns, and keep the weights where they are the best so far."""
        run = self.run
        sizes = np.full(len(run.losses), self.size)
        sizes[-1] = len(self.data[0]) - self.size * (len(run.losses) - 1)
        loss, number, held = float(np.average(run.losses, weights=sizes)), run.epoch + 1, None
        if self.validation is not None:
            with np.errstate(all="ignore"):
                held = float(self.steps.evaluate(run.flat, random.fold(self.seed, 3, number), self.validation))
        record = Epoch(number, loss, held, self.before + time.monotonic() - self.started)
        values = {"epoch": number, "loss": loss, "seconds": record.seconds}
        values |= {} if held is None else {"validation": held}
        columns = {name: [*run.columns.get(name, []), value] for name, value in values.items()}
        closed = replace(run, epoch=number, batch=0, losses=[], columns=columns)
        value = loss if held is None else held
        self.run = closed if not value < run.best_value else replace(      # F3
            closed, best=run.flat, best_value=value, best_epoch=number)
        return record

    # checkpoints

    def save(self) -> None:
        run = self.run
        tree = {"flat": run.flat, "best": run.best, "state": run.state, "losses": np.array(run.losses, float),
                "columns": {name: np.array(column) for name, column in run.columns.items()}}
        meta = self.settings | {"epoch": run.epoch, "batch": run.batch, "best_epoch": run.best_epoch,
                                "best_value": repr(run.best_value), "names": sorted(run.columns)}
        files.save(os.fspath(self.checkpoint), tree, meta=meta)  # type: ignore[arg-type]
        self.saved = time.monotonic()


def settings(data: Sequence[np.ndarray], validation: Sequence[np.ndarray] | None, batch_size: int,
             seed: int) -> dict[str, Any]:
    """Return what has to be the same for a run to be resumed."""
    held_out = None if validation is None else len(validation[0])
    return {"examples": len(data[0]), "validation": held_out, "batch_size": batch_size, "seed": seed}


def load_run(path: str | PathLike[str], fresh: Run, wanted: dict[str, Any]) -> Run:
    """Return the run that a checkpoint holds; raise ValueError where it is of another one."""
    tree, meta = files.load(path), files.info(path).meta
    for name, value in wanted.items():
        if meta.get(name) != value:
            raise ValueError(f"{os.fspath(path)} is of a run with {name}={meta.get(name)}; this one has {value}")
    state = tree["state"]
    for name, mine, its in (("weights", fresh.flat, tree["flat"]), *(
            (f"state {key}", fresh.state.get(key), state.get(key)) for key in {**fresh.state, **state})):
        if mine is None or its is None or its.shape != mine.shape or its.dtype != mine.dtype:
            raise ValueError(f"{os.fspath(path)} has other {name} than this model and optimizer")
    columns = {name: tree["columns"][name].tolist() for name in meta["names"]}
    return Run(tree["flat"], state, tree["best"], float(meta["best_value"]), meta["best_epoch"], meta["epoch"],
               meta["batch"], tree["losses"].tolist(), columns)


# --- progress ----------------------------------------------------------------------------------------------

def shown(epochs: int, *, enabled: bool) -> Callable[[Epoch], None]:
    """Return what shows an epoch on stderr: in one line that changes on a terminal, else in one about a second."""
    live, due = sys.stderr.isatty(), 0.0

    def show(record: Epoch) -> None:
        nonlocal due
        last = record.number == epochs
        if live:
            print(f"\r{describe(record, epochs)}\033[K", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last or time.monotonic() >= due:
            due = time.monotonic() + INTERVAL
            print(describe(record, epochs), file=sys.stderr, flush=True)

    return show if enabled else lambda record: None


def describe(record: Epoch, epochs: int) -> str:
    """Return the line that describes an epoch.

    >>> describe(Epoch(5, 0.25, 0.5, 2.0), 10)
    'epoch 5/10  loss 0.25  validation 0.5  2 s left'
    """
    held = "" if record.validation is None else f"  validation {record.validation:.4g}"
    left = record.seconds / record.number * (epochs - record.number)
    return f"epoch {record.number}/{epochs}  loss {record.loss:.4g}{held}  {left:.0f} s left"
