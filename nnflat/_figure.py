"""The figure of a curve over epochs or generations: no display, no pyplot, and one look for all."""

from typing import Any


def empty_figure() -> tuple[Any, Any]:
    """Return a matplotlib Figure and its axes, empty, with whole numbers along x.

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> figure, axes = empty_figure()
    >>> figure.axes == [axes]
    True
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'nnflat[demo]'") from None
    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
