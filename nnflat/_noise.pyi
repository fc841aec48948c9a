from typing import Any

from numpy.typing import NDArray

def fill_normal_rows(keys: NDArray[Any], out: NDArray[Any]) -> None: ...
def fill_sign_rows(keys: NDArray[Any], out: NDArray[Any]) -> None: ...
def add_normals(
    keys: NDArray[Any],
    weights: NDArray[Any],
    out: NDArray[Any],
    square_weights: NDArray[Any] | None = None,
    squares: NDArray[Any] | None = None,
) -> None: ...
def add_signs(
    keys: NDArray[Any],
    weights: NDArray[Any],
    out: NDArray[Any],
    square_weights: NDArray[Any] | None = None,
    squares: NDArray[Any] | None = None,
) -> None: ...
def add_windows(table: NDArray[Any], offsets: NDArray[Any], weights: NDArray[Any], out: NDArray[Any]) -> None: ...
def add_held_rows(
    rows: NDArray[Any],
    weights: NDArray[Any],
    out: NDArray[Any],
    square_weights: NDArray[Any] | None = None,
    squares: NDArray[Any] | None = None,
) -> None: ...
def write_pairs(noise: NDArray[Any], theta: NDArray[Any], sigma: float, out: NDArray[Any]) -> None: ...
