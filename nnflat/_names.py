"""Paths, and their printed names."""

from __future__ import annotations

from collections.abc import Hashable

Path = tuple[Hashable, ...]


def format_path(path: Path) -> str:
    """Return the printed name of a path.

    >>> format_path(("layers", 0, "weight"))
    'layers[0].weight'
    """
    if not path:
        return "<root>"
    return "".join(
        f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]" for key in path
    ).removeprefix(".")


def suggest(name: object, names: list[str]) -> str:
    """Return the end of an error message that names what is there instead of `name`."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), names, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(names[:8]) or 'none'}"
