from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from typing_extensions import disjoint_base

from nnflat._walk import Watch

_Cls = TypeVar("_Cls", bound=type)

ACTIONS: dict[str, int]
BLOCK_SIZE: int
KINDS: dict[str, int]

def tracing_depth(change: int) -> None: ...
def is_plain(structure: Any) -> bool: ...

@disjoint_base
class Form:
    def __new__(
        cls,
        kind: str,
        dtype: np.dtype[Any] | None = None,
        shape: tuple[int, ...] = (),
        strides: tuple[int, ...] | None = None,
        *,
        aligned: bool = True,
        value: Any = None,
    ) -> Form: ...
    @property
    def name(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    def describe(self) -> str: ...

@disjoint_base
class Call:
    def __new__(
        cls, function: Callable[..., Any], inputs: tuple[Form, ...], outputs: tuple[Form, ...]
    ) -> Call: ...

@disjoint_base
class Iterator:
    def __new__(
        cls,
        arrays: list[np.ndarray],
        flags: int,
        op_flags: list[int],
        dtypes: list[np.dtype[Any]],
        op_axes: list[list[int]] | None = None,
        order: str = "K",
    ) -> Iterator: ...

@disjoint_base
class Repeat:
    def __new__(cls, replay: Replay) -> Repeat: ...

@disjoint_base
class Block:
    def __new__(cls, replay: Replay) -> Block: ...

@disjoint_base
class Replay:
    structure: Any
    shape: Any
    constant_results: frozenset[int]
    result_structure: Any
    build: Callable[[list[Any]], Any] | None
    flat: bool
    threads: int
    share: Any
    in_place: tuple[frozenset[int], ...]
    watch: Watch | None
    def __new__(
        cls,
        instructions: list[Any],
        *,
        nbuffers: int,
        arguments: list[tuple[int, Form]],
        captured: list[tuple[int, np.ndarray, Form]],
        constants: list[tuple[int, np.ndarray]],
        temporaries: list[tuple[int, int]],
        nbytes: int,
        results: list[tuple[int, Form]],
        outer: list[tuple[int, Any]] | None = None,
    ) -> Replay: ...
    @property
    def instructions(self) -> list[Any]: ...
    @property
    def temporaries(self) -> list[tuple[int, int]]: ...
    @property
    def constants(self) -> list[tuple[int, np.ndarray]]: ...
    @property
    def captured(self) -> list[tuple[int, np.ndarray, Form]]: ...
    @property
    def outer(self) -> list[tuple[int, Any]]: ...
    @property
    def forms(self) -> tuple[Form, ...]: ...
    @property
    def result_forms(self) -> tuple[Form, ...]: ...
    @property
    def argument_buffers(self) -> list[int]: ...
    @property
    def result_buffers(self) -> list[int]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def work(self) -> int: ...
    def matches(self, leaves: tuple[Any, ...]) -> bool: ...
    def structured(self, results: list[Any]) -> Any: ...
    def run_block(self, block: Block) -> None: ...
    def __call__(self, leaves: tuple[Any, ...], out: tuple[np.ndarray, ...] | None = None) -> list[Any]: ...

@disjoint_base
class Caller:
    replays: list[Replay]
    fn: Callable[..., Any]
    def __new__(cls, *args: Any, **kwargs: Any) -> Caller: ...
    def __call__(self, *args: Any, out: Any = None) -> Any: ...

def vectorcalled(cls: _Cls) -> _Cls: ...
