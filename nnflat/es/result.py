"""Result: what a run found, and its reward curve."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

from numpy.typing import NDArray

from nnflat._figure import empty_figure

__all__ = ["Result"]


@dataclass(frozen=True, eq=False)
class Result:
    """What a run found.

    Attributes
    ----------
    theta : ndarray
        The centre of the search at the end (a copy).
    fitness : float
        Its fitness, evaluated afresh: the mean of 100 episodes where the evaluator plays episodes.
    history : dict of arrays
        A value a generation: generation, best, mean, std, sigma, evaluations, steps, seconds. NaN where no
        candidate had a finite fitness; the last three count from the start of the run.
    stopped_by : str
        "generations", "interrupted", or the name of the rule: "Solved", "Stagnation", "MaxSeconds", ...
    generations : int
        Generations of this run.
    evaluations : int
        Candidates evaluated in this run.
    """

    theta: NDArray[Any]
    fitness: float
    history: dict[str, NDArray[Any]]
    stopped_by: str
    generations: int
    evaluations: int

    def __repr__(self) -> str:
        return (
            f"Result(fitness={self.fitness:g}, generations={self.generations}, "
            f"evaluations={self.evaluations}, stopped_by={self.stopped_by!r})"
        )

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """Draw best and mean fitness by generation, and theta's at the end, as a matplotlib Figure.

        The band around the mean is a standard deviation of the generation's fitness on either side.

        Parameters
        ----------
        path : path, optional
            Where to save it; the suffix says the format.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        figure, axes = empty_figure()
        marker = "o" if self.generations == 1 else ""
        for name, colour in (("best", "tab:orange"), ("mean", "tab:blue")):
            axes.plot(self.history["generation"], self.history[name], color=colour, marker=marker, label=name)
        low, high = (self.history["mean"] + sign * self.history["std"] for sign in (-1, 1))
        axes.fill_between(self.history["generation"], low, high, color="tab:blue", alpha=0.2, linewidth=0)
        end = f"theta at the end: {self.fitness:.4g}"
        axes.plot([self.generations], [self.fitness], color="black", marker="*", linestyle="", label=end)
        axes.set(xlabel="generation", ylabel="fitness")
        axes.legend(edgecolor="none")
        if path is not None:
            figure.savefig(path)
        return figure
