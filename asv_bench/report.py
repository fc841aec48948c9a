"""Write all kept figures as one HTML file, with graphs as inline SVG and no script: it opens from disk.

    python asv_bench/report.py OUT
"""

import argparse
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

from bars import BARS
from document import BAR_HEAD, bar_row
from figures import Figures
from graphs import lines
from peers import duration, table

STYLE = """
:root { color-scheme: light dark; --line: #8884; --faint: #8881; --bad: #c33; }
body { font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.87rem; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { border-bottom-width: 2px; } td.text, th.text { text-align: left; }
tr:hover td { background: var(--faint); }
.bad { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; display: inline-block; max-width: 100%; vertical-align: top; }
figcaption { font-weight: 600; margin-bottom: 0.3rem; }
svg { max-width: 100%; height: auto; font-size: 11px; fill: currentColor; }
"""
SLOPES = {  # benchmark: what its first parameter counts
    "flat.Leaves.track_min": "leaves",
    "flat.Parameters.track_min": "parameters in one leaf",
    "tape.Populations.track_min": "candidates of 4-32-2",
}
TRENDS = {  # benchmark: title and the case, without its last parameter
    "flat.Copies.track_min": ("copies of 4-32-2", ("'4-32-2'",)),
    "tape.Policies.track_min": ("policy 4-32-2", ("'4-32-2'",)),
    "training.Training.track_min": ("training step 4-32-2", ("'4-32-2 batch 1'",)),
    "overhead.Instructions.track_instructions": ("instructions a call", ()),
}


def html_table(rows: list[tuple[str, ...]], *, text: set[int]) -> str:
    """Return rows, the first of them the header, as a table; the columns in `text` stand to the left."""
    lines = []
    for tag, row in zip(("th", *("td",) * len(rows)), rows, strict=False):
        cells = "".join(cell(tag, value, column in text) for column, value in enumerate(row))
        lines.append(f"<tr>{cells}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def cell(tag: str, value: str, left: bool) -> str:
    kinds = ["text"] * left + ["bad"] * (value in ("lost", "missed"))
    mark = f' class="{" ".join(kinds)}"' if kinds else ""
    return f"<{tag}{mark}>{escape(value)}</{tag}>"


def copies(figures: Figures) -> str:
    """Return the table that the project started from, as `@btime` prints it, a table a model."""
    head = ("", "min", "mean", "allocations", "bytes", "by min", "by mean")
    parts = []
    for model in dict.fromkeys(row["model"] for row in figures.copies["rows"]):
        rows = [copy_row(row) for row in figures.copies["rows"] if row["model"] == model]
        parts.append(f"<h3>{escape(model)}</h3>" + html_table([head, *rows], text={0}))
    return "".join(parts)


def copy_row(row: dict[str, Any]) -> tuple[str, ...]:
    times = (duration(row["min_us"] * 1e-6), duration(row["mean_us"] * 1e-6))
    counts = (f"{row['blocks']:,}", f"{row['bytes']:,}")
    return row["operation"], *times, *counts, f"{row['min_ratio']:.2f}", f"{row['mean_ratio']:.2f}"


def bars(figures: Figures) -> str:
    """Return the table of bars."""
    rows = [bar_row(bar, figures.value(bar.benchmark, bar.case)) for bar in BARS]
    plain = [tuple(re.sub(r"[*`\\]", "", value) for value in row) for row in rows]
    return html_table([BAR_HEAD, *plain], text={1, 5, 6})


def slopes(figures: Figures) -> str:
    """Return graphs of growth, both axes logarithmic: a slope of one is linear."""
    parts = []
    for benchmark, label in SLOPES.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for (size, way), value in figures.values(benchmark).items():
            if value:
                series.setdefault(way.strip("'"), []).append((float(size), value))
        parts.append(figure(f"time by {label}", lines(series, x_label=label, y_text=duration, logarithmic=True)))
    return "".join(parts)


def trends(figures: Figures) -> str:
    """Return graphs over the kept commits."""
    parts = []
    for benchmark, (title, case) in TRENDS.items():
        series: dict[str, list[tuple[float, float]]] = {}
        for number, commit in enumerate(figures.commits):
            for key, value in commit.values(benchmark).items():
                if value and key[: len(case)] == case:
                    series.setdefault(key[-1].strip("'"), []).append((number, value))
        names = [commit.hash[:7] for commit in figures.commits]
        text = "{:,.0f}".format if benchmark.endswith("instructions") else duration
        parts.append(figure(title, lines(series, x_label="commits", y_text=text, ticks=names)))
    return "".join(parts)


def figure(title: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"


def report(figures: Figures) -> str:
    """Return the page."""
    machine = ", ".join(f"{name} {value}" for name, value in figures.copies["machine"].items())
    peers = html_table(table(figures.peers), text={0, 1, 6})
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nnflat: what it costs</title><style>{STYLE}</style>
<h1>nnflat: what it costs</h1>
<p>One machine: {escape(machine)}. Times are of warm calls; ratios are of one process, whose calls take turns.</p>
<h2>A tree and its flat vector</h2>
<p>Allocations are the blocks of Python that a result holds, bytes the most that a call has allocated at a time. The
last columns are the ratio to <code>np.copyto</code> of the same bytes.</p>
{copies(figures)}
<h2>Beside other libraries</h2>
<p>The ratio is the peer's time by nnflat's, so below 1 is a loss. One thread each.</p>
{peers}
<h2>The bars</h2>
{bars(figures)}
<h2>Growth</h2>
{slopes(figures)}
<h2>Trends</h2>
{trends(figures)}
</html>
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the HTML file to write")
    options = parser.parse_args()
    options.out.write_text(report(Figures.read()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
