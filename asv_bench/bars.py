"""The bars that the project set itself, and the benchmark that measures each: the one truth of docs/benchmarks.md.

A bar is on a benchmark of asv (`benchmark`, and the values of its parameters) or on a row of the table of peers (its
case and the peer): there the value is the peer's time by nnflat's. `at_most` and `at_least` are in the unit that
the text names; `scale` brings seconds to it.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bar:
    """What was promised, where, and what measures it."""

    issue: int
    text: str
    benchmark: str
    case: tuple[Any, ...] = ()
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    scale: float = 1.0

    @property
    def name(self) -> str:
        """Return the benchmark with its parameters, as one looks it up."""
        return f"{self.benchmark}({', '.join(map(str, self.case))})"

    @property
    def limit(self) -> str:
        """Return the bar as text."""
        sign, value = ("<=", self.at_most) if self.at_least is None else (">=", self.at_least)
        return f"{sign} {value:.3g}{self.unit}"

    def ratio(self, value: float) -> float:
        """Return how far inside the bar a value is: 1 or more is met."""
        return self.at_most / value if self.at_least is None else value / self.at_least

    def met(self, value: float) -> bool:
        """Return whether a value keeps the bar."""
        return value <= self.at_most if self.at_least is None else value >= self.at_least


def copies(issue: int, model: str, verbs: tuple[str, ...], limit: float) -> list[Bar]:
    """Return bars on ratios to `np.copyto`."""
    suite = "flat.Copies" if model in MAIN else "flat.Orders"
    return [
        Bar(issue, f"{verb}, {model}".replace("_out", "(out=)"), f"{suite}.{field}", (model, verb), limit, unit="x")
        for verb in verbs
        for field in ("track_ratio", "track_mean_ratio")
    ]


def peer(issue: int, case: str, name: str, limit: float) -> Bar:
    """Return a bar on the ratio of a peer's time to ours."""
    return Bar(issue, f"{case}, against {name}", "peers", (case, name), at_least=limit, unit="x")


MAIN = ("784-1024-10", "784-100-10", "4-32-2", "1000 x 16, tuple")
IN_PLACE = ("load", "store", "restructure_out")
GROWTH = "flat.TenTimes.track_growth"
TIMES = {"unit": "x"}
NS, US, MS = {"unit": " ns", "scale": 1e9}, {"unit": " us", "scale": 1e6}, {"unit": " ms", "scale": 1e3}
POLICY, DEEP, BATCH = "policy 4-32-2", "policy 24-64-64-4", "forward 64-32-10, batch 32"
TRAIN = "step {}, batch {}".format
ES_SMALL, ES_LARGE = "20 generations, n = 226", "20 generations, n = 6020"

BARS = [
    *copies(2, "784-1024-10", ("load", "store"), 1.15),
    *copies(2, "784-100-10", ("load", "store"), 1.2),
    *[Bar(2, f"{v}, 4-32-2", "flat.Copies.track_min", ("4-32-2", v), at_most=0.5, **US) for v in ("load", "store")],
    *copies(2, "1000 x 16, tuple", ("load", "store"), 8),
    Bar(2, "destructure, 10,000 leaves by 1,000", GROWTH, (1000, "destructure"), at_most=12, **TIMES),
    *[Bar(2, f"CartPole-v1, seed {s}", "main_job.CartPole.track_generations", (s,), at_most=40, unit=" generations")
      for s in range(3)],
    *[Bar(2, f"CartPole-v1, seed {s}", "main_job.CartPole.track_cpu", (s,), at_most=10, unit=" CPU s")
      for s in range(3)],
    Bar(2, "import, beyond NumPy's", "imports.Beyond.track_import", (), at_most=30, **MS),
    *copies(3, "784-1024-10", IN_PLACE, 1.05),
    *copies(3, "784-100-10", IN_PLACE, 1.1),
    *copies(3, "784-100-10, nn.Chain", IN_PLACE, 1.1),
    Bar(3, "load, 4-32-2", "flat.Copies.track_min", ("4-32-2", "load"), at_most=0.35, **US),
    *copies(3, "1000 x 16, tuple", ("load",), 5),
    *copies(3, "1000 x 16, list", ("load",), 10),
    *copies(3, "1000 x 16, dict", ("load",), 10),
    *[bar for model in ("Fortran 784 x 1024", "Fortran 1024 x 1024", "Fortran 784 x 1024, float64")
      for bar in copies(3, model, ("load", "store"), 4)],
    *[bar for model in ("[:, ::2] of 784 x 2048", "[:, ::-1] of 784 x 1024", "float64 flat, float32 leaf")
      for bar in copies(3, model, ("load", "store"), 2.5)],
    *copies(3, "40 MB in ten leaves", ("load", "store"), 1.05),
    Bar(3, "new model of 400 leaves by NumPy's", "flat.NewModel.track_ratio", ("restructure",), at_most=1 / 3, **TIMES),
    *[Bar(3, f"{verb}, 100,000 leaves by 10,000", GROWTH, (10_000, verb), at_most=12, **TIMES)
      for verb in ("destructure", "restructure")],
    Bar(4, POLICY, "tape.Policies.track_min", ("4-32-2", "compiled"), at_most=0.8, **US),
    peer(4, POLICY, "numpy", 10),
    peer(4, POLICY, "jax", 20),
    peer(4, POLICY, "torch", 30),
    peer(4, POLICY, "onnxruntime", 5),
    peer(4, DEEP, "numpy", 5),
    peer(4, DEEP, "torch", 25),
    peer(4, BATCH, "numpy", 2),
    peer(4, BATCH, "jax", 3),
    Bar(4, "784-1024-10 by its matmuls", "tape.Products.track_ratio", ("compiled_out",), at_most=1.05, **TIMES),
    Bar(4, "vmap, a candidate", "tape.Candidates.track_min_a_candidate", ("vmap",), at_most=0.4, **US),
    Bar(4, "vmap, two threads by one", "tape.Threads.track_ratio", ("two",), at_most=1 / 1.7, **TIMES),
    Bar(4, "chain of 20 on 10^6 by NumPy's", "tape.Chain.track_ratio", ("compiled",), at_most=1 / 2.2, **TIMES),
    Bar(4, "empty call, `out=` given", "tape.Overhead.track_min", ("compiled_out",), at_most=150, **NS),
    Bar(4, "trace and plan 30 operations", "tape.Tracing.track_min", (), at_most=5, **MS),
    peer(5, TRAIN("64-32-10", 32), "numpy", 4),
    peer(5, TRAIN("64-32-10", 32), "jax", 3.5),
    peer(5, TRAIN("64-32-10", 32), "torch", 20),
    peer(5, TRAIN("4-32-2", 1), "numpy", 15),
    peer(5, TRAIN("4-32-2", 1), "jax", 20),
    peer(5, TRAIN("4-32-2", 1), "torch", 150),
    peer(5, TRAIN("784-128-10", 128), "jax", 1 / 1.1),
    peer(5, TRAIN("784-128-10", 128), "torch", 1 / 1.1),
    *[Bar(5, f"{way} of 784-1024-10 by its matmuls", "training.Products.track_ratio", (way,), at_most=1.15, **TIMES)
      for way in ("gradient", "step")],
    peer(5, "regression, 100 steps", "torch", 20),
    peer(5, "regression, 100 steps", "jax", 2),
    peer(5, "Adam, 800k", "torch", 1 / 1.1),
    peer(5, "Adam, 800k", "numpy", 3),
    peer(5, "fit digits, 200 epochs", "sklearn", 8),
    peer(6, ES_SMALL, "evosax", 1),
    peer(6, ES_SMALL, "evotorch", 10),
    peer(6, ES_LARGE, "evosax", 1.5),
    peer(6, ES_LARGE, "evotorch", 4),
    Bar(6, "table noise, n = 10^6, by a copy", "population.Table.track_ratio", ("generation",), 1.3, **TIMES),
    Bar(6, "Sep-CMA, n = 10,000", "population.SepCMA.track_min", ("generation",), at_most=5, **MS),
    Bar(6, "native CartPole", "population.CartPole.track_rate", (), at_least=2.6, unit=" M steps/s", scale=1e-6),
    *[Bar(6, f"gymnasium CartPole, {pop} policies by their environments", "population.Acting.track_ratio",
          (pop, "policies"), at_most=0.15, **TIMES) for pop in (64, 1024)],
    Bar(6, "a generation of nothing, 2 processes, 1 M float32", "population.Workers.track_min", ("generation",),
        at_most=2, **MS),
    Bar(6, "peak memory of run, n = 10^6, pop 256, by the population", "population.Memory.track_share", (), at_most=1,
        **TIMES),
]
