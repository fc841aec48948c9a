from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from typing_extensions import disjoint_base

@disjoint_base
class Way:
    def __init__(
        self,
        nodes: list[
            tuple[type, str, Callable | None, Callable | None, list[tuple[Hashable, str, int, type | None]]]
        ],
    ) -> None: ...
    def follow(self, tree: Any) -> list[np.ndarray] | None: ...
    def build(self, leaves: list[Any], statics: list[Any]) -> Any: ...

@disjoint_base
class Watch:
    def __init__(self, links: list[tuple[Any, int, Hashable, Any, Callable | None]]) -> None: ...
    def changed(self) -> int: ...
