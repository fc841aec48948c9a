"""Write docs/benchmarks.md from the kept figures and the bars.

    python asv_bench/document.py [--check]
"""

import argparse
import sys
from pathlib import Path

from bars import BARS, Bar
from figures import Figures
from peers import markdown, table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
TEXT = """\
# What it costs

Written by `python asv_bench/document.py` from the kept figures of one machine; those of the suites are of the last
commit at which each was run ({commits}):

{machine}.

Where more processes than one wanted its cores, times and their ratios are noisy, means most of all.
[report.html](report.html) has the same with graphs, in one file. The commands:

| to | run |
|---|---|
| see the cost of each copy here | `nnflat bench` |
| run the suites, publish them with their history, and look at them | `nnflat dashboard --run` |
| look at the kept results only | `nnflat dashboard` |
| compare two commits; it fails where one got slower | `cd asv_bench && asv continuous main HEAD` |
| compare with other libraries, each in an environment of its own | `python asv_bench/peers.py --cache FOLDER` |
| check that no call allocates or does more than is kept | `python asv_bench/gates.py` |
| measure all of this page again | `python asv_bench/reference.py --cache FOLDER` |

Times are for people and fail nothing: ratios are of one process, whose calls take turns. What CI fails on are
counts: allocations, bytes, and instructions under callgrind (`gates.json`).

## The bars

{met} of {measured} measured bars are met; {missed} are missed, and {unmeasured} have no figure yet. A bar on means
(`track_mean_ratio`) stands beside that on minima. `inside` is how many times inside its bar a value is.

{bars}

## Beside other libraries

{versions}. One thread each, float32, warm, compiled where the library compiles; before anything is timed the results
are compared. Times are the least of a call and, in brackets, the mean; the ratio is the peer's time by nnflat's.

{peers}
"""
BAR_HEAD = ("issue", "what", "bar", "last value", "inside", "", "benchmark")


def bar_row(bar: Bar, value: float | None) -> tuple[str, ...]:
    """Return the cells of one bar, those of `BAR_HEAD`."""
    start, end = (str(bar.issue), escaped(bar.text), bar.limit), f"`{escaped(bar.name)}`"
    if value is None:
        return *start, "not measured", "", "", end
    scaled = value * bar.scale
    verdict = "met" if bar.met(scaled) else "**missed**"
    return *start, f"{scaled:.3g}{bar.unit}", f"{bar.ratio(scaled):.2f}", verdict, end


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def page(figures: Figures) -> str:
    """Return the page as Markdown."""
    values = [figures.value(bar.benchmark, bar.case) for bar in BARS]
    rows = [bar_row(bar, value) for bar, value in zip(BARS, values, strict=True)]
    verdicts = [row[BAR_HEAD.index("")] for row in rows]
    versions = {name: number for peer in figures.peers["peers"] for name, number in peer["versions"].items()}
    return TEXT.format(
        machine=", ".join(f"{name} {value}" for name, value in figures.peers["machine"].items()),
        commits=", ".join(commit.hash[:8] for commit in reversed(figures.commits)),
        met=verdicts.count("met"),
        missed=verdicts.count("**missed**"),
        measured=len(rows) - verdicts.count(""),
        unmeasured=verdicts.count(""),
        bars=markdown([BAR_HEAD, *rows]),
        versions=", ".join(f"{name} {number}" for name, number in versions.items() if name != "nnflat"),
        peers=markdown(table(figures.peers)),
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail where the page is not what the figures give")
    options = parser.parse_args(argv)
    text = page(Figures.read())
    if options.check:
        current = PAGE.read_text(encoding="utf-8") == text
        print("docs/benchmarks.md " + ("is what the figures give" if current else "is out of date: run document.py"))
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
