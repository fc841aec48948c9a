"""Dense: the fully connected layer."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from nnflat.nn import init
from nnflat.nn.activations import Activation, resolve
from nnflat.nn.layer import Layer, brief, cast


class Dense(Layer):
    """Fully connected layer `activation(x @ weight + bias)`, (..., n_in) -> (..., n_out).

    Parameters
    ----------
    n_in, n_out : int
        Number of features that come in and go out.
    activation : str or function
        The name of a function of `nnflat.nn`, such as `"relu"`, or any function of an array.
    rng : numpy.random.Generator, optional
        Draws the weight (`init.glorot_uniform`); the bias is zero. A fresh generator by default.
    dtype : dtype
        Of weight and bias; the layer computes in it.

    Attributes
    ----------
    weight : ndarray, (n_in, n_out)
    bias : ndarray, (n_out,)
    activation : function

    Examples
    --------
    >>> layer = Dense(3, 2, "relu", rng=np.random.default_rng(0))
    >>> layer
    Dense(3, 2, relu)
    >>> layer(np.zeros((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        activation: str | Activation = "identity",
        *,
        rng: np.random.Generator | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.weight = init.glorot_uniform((n_in, n_out), rng=rng, dtype=dtype)
        self.bias = init.zeros((n_out,), dtype=dtype)
        self.activation = resolve(activation)

    def __call__(self, x: ArrayLike, *, key: object = None) -> NDArray[Any]:
        x = cast(x, self.weight)
        try:
            product = x @ self.weight
        except ValueError:
            if x.shape[-1:] == self.weight.shape[:1]:
                raise
            raise ValueError(f"{self!r} needs x of shape (..., {len(self.weight)}), got {x.shape}") from None
        return self.activation(product + self.bias)

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.weight.shape))
        activation = brief(self.activation)
        return f"Dense({sizes})" if activation == "identity" else f"Dense({sizes}, {activation})"
