"""Arrays of other libraries, known by the name of their module: nothing is imported to recognise one."""

from __future__ import annotations

_HINTS = {
    "torch": "take tensor.detach().numpy()",
    "jax": "take np.array(x); inside jax.grad or jax.jit it has no value to copy",
    "jaxlib": "take np.array(x)",
    "autograd": "autograd cannot see a copy into a model, its gradient would be zero; take the plain value (x._value)",
    "tensorflow": "take tensor.numpy()",
    "keras": "take np.array(x)",
    "cupy": "take array.get()",
    "mlx": "take np.array(x)",
    "pandas": "take x.to_numpy()",
    "xarray": "take x.to_numpy()",
}
_MARKS = ("__array__", "__array_interface__", "__dlpack__", "__jax_array__")


def defines(cls: type, name: str) -> bool:
    """Return whether a class or one of its bases defines an attribute; no metaclass is asked.

    >>> defines(dict, "keys"), defines(dict, "__name__")
    (True, False)
    """
    return any(name in base.__dict__ for base in cls.__mro__)


def foreign_array(cls: type) -> str | None:
    """Return how to make a NumPy array of another library's array class, or None where `cls` is not one.

    >>> foreign_array(dict) is None
    True
    """
    roots = [base.__module__.partition(".")[0] for base in cls.__mro__]
    if "numpy" in roots or roots[0] == "nnflat":
        return None
    root = next((root for root in roots if root in _HINTS), None)
    if any(defines(cls, mark) for mark in _MARKS) or (root == "autograd" and defines(cls, "_value")):
        return _HINTS.get(root or "", "take np.asarray(x)")
    return None
