from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

class Way:
    def __init__(
        self, nodes: list[tuple[type, str, Callable | None, list[tuple[Hashable, int, type | None]]]]
    ) -> None: ...
    def follow(self, tree: Any) -> list[np.ndarray] | None: ...

class Watch:
    def __init__(self, links: list[tuple[Any, int, Hashable, Any, Callable | None]]) -> None: ...
    def changed(self) -> int: ...
