"""What a strategy asks of its arguments, and of a state that it is to continue from."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "check_state",
    "checked_bounds",
    "checked_chunk",
    "checked_fitness",
    "checked_maximize",
    "checked_noise",
    "checked_optimizer",
    "checked_out",
    "checked_pop",
    "checked_schedule",
    "checked_sigma",
    "checked_theta",
    "checked_utilities",
    "read_only",
]


def read_only(flat: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written."""
    view = flat.view()
    view.flags.writeable = False
    return view


def checked_theta(theta: ArrayLike) -> NDArray[Any]:
    """Return a copy, if it is a vector of a dtype that noise is drawn in."""
    flat = np.array(theta, order="C")
    if flat.ndim != 1 or flat.size == 0:
        raise ValueError(f"theta must be a vector of at least one element; got shape {flat.shape}")
    if flat.dtype not in (np.float16, np.float32, np.float64):
        raise TypeError(f"theta must be float16, float32 or float64; got {flat.dtype}")
    return flat


def checked_maximize(maximize: bool) -> bool:
    """Return it as a bool."""
    if not isinstance(maximize, bool | np.bool_):
        raise TypeError(f"maximize must be True or False; got {maximize!r}")
    return bool(maximize)


def checked_pop(pop: int) -> int:
    """Return it as an int."""
    if operator.index(pop) < 1:
        raise ValueError(f"pop must be at least 1; got {pop}")
    return operator.index(pop)


def checked_chunk(chunk: int) -> int:
    """Return it as an int."""
    if operator.index(chunk) < 1:
        raise ValueError(f"chunk must be at least 1; got {chunk}")
    return operator.index(chunk)


def checked_sigma(sigma: ArrayLike, theta: NDArray[Any]) -> NDArray[Any]:
    """Return a copy: a float64 of shape (), or a vector in theta's dtype."""
    given = np.array(sigma, np.float64 if np.ndim(sigma) == 0 else theta.dtype)
    if given.shape not in ((), theta.shape):
        raise ValueError(f"sigma has shape {given.shape}; it must be () or {theta.shape}")
    if not (np.all((given >= 0) & (given < np.inf)) and given.any()):
        raise ValueError(f"sigma must be a positive number, or a vector of them (0 freezes); got {given}")
    return given


def checked_bounds(
    bounds: tuple[ArrayLike, ArrayLike], theta: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both bounds in theta's dtype, if theta is within them."""
    low, high = (np.asarray(bound, theta.dtype) for bound in bounds)
    for bound in (low, high):
        if bound.shape not in ((), theta.shape):
            raise ValueError(f"a bound has shape {bound.shape}; it must be () or {theta.shape}")
    if not (np.all(low <= theta) and np.all(theta <= high)):
        raise ValueError("theta must start within its bounds, the lower one first")
    return low, high


def checked_schedule(sigma: Any, strategy: Any) -> Callable[[int], float] | None:
    """Return sigma if it is a schedule, which a strategy that adapts sigma cannot follow; else None."""
    if callable(sigma) and strategy.adapts_sigma:
        raise TypeError(f"{type(strategy).__name__} adapts sigma itself; it cannot follow a schedule")
    return sigma if callable(sigma) else None


def checked_noise(noise: Any, strategy: Any) -> Any:
    """Return it, if the strategy can learn what it needs from it."""
    if strategy.adapts_sigma and not noise.varies_in_size:
        raise TypeError(f"{type(strategy).__name__} learns sigma from the size of the noise; {noise} has but one")
    return noise


def checked_optimizer(optimizer: Any, strategy: Any) -> Any:
    """Return it, if the strategy follows a gradient."""
    if not strategy.follows_gradient:
        raise TypeError(f"{type(strategy).__name__} follows no gradient; it takes no optimizer")
    return optimizer


def checked_fitness(fitness: ArrayLike, pop: int) -> NDArray[np.float64]:
    """Return a copy in float64, if it is a real number a candidate."""
    given = np.asarray(fitness)
    if given.shape != (pop,):
        raise ValueError(f"fitness has shape {given.shape}; this population needs ({pop},)")
    if given.dtype.kind not in "biuf":
        raise TypeError(f"fitness must be real numbers; got an array of dtype {given.dtype}")
    return given.astype(np.float64)


def checked_utilities(utilities: ArrayLike, pop: int) -> NDArray[np.float64]:
    """Return them in float64, if they are a finite number a candidate."""
    given = np.asarray(utilities, np.float64)
    if given.shape != (pop,) or not np.isfinite(given).all():
        raise ValueError(f"shaping must give {pop} finite utilities; got {given}")
    return given


def checked_out(out: NDArray[Any], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return it, if candidates can be written into it."""
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(f"out is {out.dtype} of shape {out.shape}; it must be {dtype} of shape {shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writeable")
    return out


def check_state(
    state: dict[str, NDArray[Any]], like: dict[str, NDArray[Any]], optional: dict[str, NDArray[Any]]
) -> None:
    """Raise unless each array of a state is like the strategy's own, and none is missing."""
    required = like.keys() - optional.keys()
    if missing := required - state.keys():
        raise ValueError(f"the state lacks {sorted(missing)}")
    if unknown := state.keys() - required - optional.keys():
        raise ValueError(f"the state has {sorted(unknown)}, which this strategy does not have")
    if ("best" in state) != ("best_fitness" in state):
        raise ValueError("the state must have both best and best_fitness, or neither")
    for name, value in state.items():
        needed = optional[name] if name in optional else like[name]
        if value.shape != needed.shape or value.dtype != needed.dtype:
            raise ValueError(
                f"{name} in the state is {value.dtype} of shape {value.shape}; "
                f"this strategy needs {needed.dtype} of shape {needed.shape}"
            )
