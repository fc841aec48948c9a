"""Stepper: an optimizer's step in place, compiled, without temporaries and without the interpreter."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from nnflat.compile import compile
from nnflat.context import TraceError
from nnflat.optim import Rule

__all__ = ["Stepper"]


class Stepper:
    """A rule of `optim` and its moments; the bits are those of the plain rule.

    Attributes
    ----------
    moments : dict of arrays
        The rule's state, written in place.
    compiled : bool
        Whether steps are replayed; it becomes False for a rule that no tape can record.

    Examples
    --------
    >>> import numpy as np
    >>> from nnflat import optim
    >>> flat = np.ones(2)
    >>> stepper = Stepper(optim.SGD(0.5), flat)
    >>> stepper.step(flat, np.array([1.0, 2.0]))
    >>> flat
    array([0.5, 0. ])
    """

    def __init__(self, rule: Rule, flat: NDArray[Any]) -> None:
        self.moments = rule.init(flat)
        self.compiled = True
        self._rule = rule
        self._program = compile(_Spread(rule, tuple(self.moments)))

    def step(self, flat: NDArray[Any], grad: NDArray[Any]) -> None:
        """Write the next vector into `flat`, and the next state into `moments`."""
        if self.compiled:
            arrays = tuple(self.moments.values())
            try:
                self._program(flat, grad, *arrays, out=(flat, *arrays))
                return
            except TraceError:
                self.compiled = False
        self._rule.step(flat, grad, self.moments, out=(flat, self.moments))


@dataclass(frozen=True)
class _Spread:
    """The step as a function of arrays alone, which a program takes fastest."""

    rule: Rule
    names: tuple[str, ...]

    def __call__(self, flat: NDArray[Any], grad: NDArray[Any], *moments: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        flat, state = self.rule.step(flat, grad, dict(zip(self.names, moments, strict=True)))
        return flat, *(state[name] for name in self.names)
