"""A function of a tree as a function of a flat vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnflat.layout import Layout


@dataclass(frozen=True, slots=True)
class Lifted:
    """A function of a tree as a function of a flat vector; equal where layout, function and argnum are."""

    layout: Layout
    fn: Callable
    argnum: int

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function with a view of the flat vector in the place of the tree."""
        if not -len(args) <= self.argnum < len(args):
            raise TypeError(f"the flat vector is argument {self.argnum}, by position; got {len(args)} arguments")
        arguments = list(args)
        arguments[self.argnum] = self.layout.view(args[self.argnum])
        return self.fn(*arguments, **options)
