"""Read the kept figures: asv's results of several commits, the table of peers, the table of copies.

`reference/` holds one run of a named machine: `bench.json` of `nnflat bench`, `peers.json` of `peers.py`, and asv's
own files below `asv/`, one a commit.
"""

import json
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).with_name("reference")


@dataclass(frozen=True)
class Commit:
    """What asv measured at one commit."""

    hash: str
    date: int
    columns: list[str]
    results: dict[str, list[Any]]

    @classmethod
    def read(cls, path: Path) -> "Commit":
        held = json.loads(path.read_text(encoding="utf-8"))
        return cls(held["commit_hash"], held["date"], held["result_columns"], held["results"])

    def values(self, benchmark: str) -> dict[tuple[str, ...], float | None]:
        """Return the value of every case of a benchmark, parameters as text; no case where it was not run."""
        if benchmark not in self.results:
            return {}
        found = dict(zip(self.columns, self.results[benchmark], strict=False))
        params = found.get("params") or []
        values = found.get("result") or [None] * prod(map(len, params))
        return dict(zip(product(*params), values, strict=True))


@dataclass(frozen=True)
class Figures:
    """All that is kept: commits in the order of their dates, peers, copies."""

    commits: list[Commit]
    peers: dict[str, Any]
    copies: dict[str, Any]

    @classmethod
    def read(cls, folder: Path = REFERENCE) -> "Figures":
        paths = [path for path in (folder / "asv").glob("*/*.json") if path.name != "machine.json"]
        commits = sorted(map(Commit.read, paths), key=lambda commit: commit.date)
        peers, copies = (json.loads((folder / name).read_text()) for name in ("peers.json", "bench.json"))
        return cls(commits, peers, copies)

    def value(self, benchmark: str, case: tuple[Any, ...]) -> float | None:
        """Return the last value of a benchmark; of `peers`, the peer's least time by ours."""
        if benchmark == "peers":
            return self._peer(*case)
        return self.values(benchmark).get(tuple(map(repr, case)))

    def values(self, benchmark: str) -> dict[tuple[str, ...], float | None]:
        """Return the values of a benchmark at the last commit at which it was run."""
        return next(filter(None, (commit.values(benchmark) for commit in reversed(self.commits))), {})

    def _peer(self, case: str, peer: str) -> float | None:
        for result in self.peers["peers"]:
            for row in result["rows"] if result["peer"] == peer else []:
                if row["case"] == case and "seconds" in row:
                    return row["seconds"][peer]["min"] / row["seconds"]["nnflat"]["min"]
        return None
