"""What cannot be traced: the reason, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

VALUES = "its shape depends on values"
ANSWER = "its answer is a Python bool"
REFUSED: dict[Callable[..., Any], tuple[str, str]] = {
    **dict.fromkeys((np.array_equal, np.array_equiv), (ANSWER, "np.all(a == b), in np.where")),
    np.allclose: (ANSWER, "np.all(np.isclose(a, b)), in np.where"),
    **dict.fromkeys((
        np.nonzero, np.flatnonzero, np.argwhere, np.extract, np.compress, np.unique, np.unique_values,
        np.unique_counts, np.unique_inverse, np.unique_all, np.trim_zeros, np.union1d, np.intersect1d, np.setdiff1d,
        np.setxor1d, np.bincount, np.histogram), (VALUES, "np.where(condition, a, b)")),
    **dict.fromkeys((np.copyto, np.put, np.putmask, np.place, np.put_along_axis, np.fill_diagonal),
                    ("it writes in place", "np.where")),
    **dict.fromkeys((np.array2string, np.array_repr, np.array_str, np.save, np.savez, np.savetxt, np.savez_compressed),
                    ("it makes text or files", "the array itself")),
    np.isfortran: (ANSWER, "nothing: the order of a traced value is in x.flags"),
}

REFUSED_METHODS = {
    "item": ("item() of a traced value", "the array itself; results of the function may be scalars"),
    "tolist": ("tolist() of a traced value", "the array itself"),
    "fill": ("fill() writes in place", "np.full_like"),
    "sort": ("x.sort() writes in place", "np.sort(x)"),
    "put": ("put() writes in place", "np.where"),
    "resize": ("resize() writes in place", "np.reshape"),
    "nonzero": ("nonzero() cannot be traced: its shape depends on values", "np.where(condition, a, b)"),
    "view": ("view() with another dtype", "x.astype(dtype), or x.real and x.imag"),
    "flat": ("x.flat", "x.ravel()"),
}
