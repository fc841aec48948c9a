"""Lines as inline SVG: enough of a plot for a report that needs no script."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 172, 12, 42
COLOURS = ("#1f77b4", "#d95f02", "#2ca02c", "#9467bd", "#c2185b", "#7f6000", "#17808f", "#777777")
Points = Sequence[tuple[float, float]]


def lines(
    series: Mapping[str, Points],
    *,
    x_label: str,
    y_text: Callable[[float], str] = "{:g}".format,
    logarithmic: bool = False,
    ticks: Sequence[str] = (),
) -> str:
    """Return named lines; the y axis is logarithmic always, the x axis where asked.

    `ticks` names the whole numbers of the x axis from 0 on, `y_text` gives the text of a number of the y axis.

    >>> lines({"load": [(1, 1e-6), (10, 1e-5)]}, x_label="leaves", logarithmic=True).count("<polyline")
    1
    >>> lines({}, x_label="leaves")
    '<p>Nothing was measured yet.</p>'
    """
    if not any(series.values()):
        return "<p>Nothing was measured yet.</p>"
    xs, ys = zip(*(point for points in series.values() for point in points), strict=True)
    across = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, logarithmic)
    up = Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP, True)
    parts = [grid(across, up, ticks, y_text)]
    for number, (name, points) in enumerate(series.items()):
        parts.append(line(name, points, across, up, COLOURS[number % len(COLOURS)], number))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">{"".join(parts)}</svg>'


class Axis:
    """A scale from numbers to places."""

    def __init__(self, low: float, high: float, start: float, end: float, logarithmic: bool) -> None:
        self.map = math.log10 if logarithmic else float
        self.logarithmic = logarithmic
        self.low, self.high = self.map(low), self.map(high)
        if logarithmic:
            self.low, self.high = math.floor(self.low), math.ceil(self.high)
        if self.low == self.high:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self.start, self.end = start, end

    def place(self, value: float) -> float:
        return self.start + (self.map(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def marks(self) -> list[float]:
        """Return the powers of ten, or the whole numbers, that the axis spans."""
        whole = range(math.ceil(self.low), math.floor(self.high) + 1)
        step = max(1, len(whole) // 8)
        return [10.0**n if self.logarithmic else float(n) for n in whole[::step]]


def grid(across: Axis, up: Axis, ticks: Sequence[str], y_text: Callable[[float], str]) -> str:
    parts = []
    for value in up.marks():
        y = up.place(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".15"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(y_text(value))}</text>')
    for value in across.marks():
        text = ticks[int(value)] if ticks else f"{value:g}"
        place = f'x="{across.place(value):.1f}" y="{HEIGHT - BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{escape(text)}</text>')
    return "".join(parts)


def line(name: str, points: Points, across: Axis, up: Axis, colour: str, number: int) -> str:
    places = [(across.place(x), up.place(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places)
    key = f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 12 + 15 * number}" fill="{colour}">{escape(name)}</text>'
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>{dots}{key}'
