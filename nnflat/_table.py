"""Tables: lines of text with their cells one below the other, and the same as HTML."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return rows of cells as lines: the first `left` columns to the left, the others to the right.

    >>> print(aligned([("name", "bytes"), ("a", "12"), ("weight", "1,024")]))
    name    bytes
    a          12
    weight  1,024
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths, left) for row in rows)


def _line(row: Sequence[str], widths: list[int], left: int) -> str:
    cells = [
        cell.ljust(width) if column < left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells, the first of them the header, as an HTML table.

    >>> html_table([("name",), ("a<b",)])
    '<table><tr><th>name</th></tr><tr><td>a&lt;b</td></tr></table>'
    """
    from html import escape

    lines = [
        "".join(f"<{cell}>{escape(text)}</{cell}>" for text in row)
        for cell, row in zip(("th", *("td",) * len(rows)), rows, strict=False)
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
