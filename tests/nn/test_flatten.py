"""Flatten is a reshape in C order."""

import numpy as np
import pytest

from nnflat.nn import Flatten


@pytest.mark.parametrize(
    ("start", "shape", "expected"),
    [
        (1, (5, 2, 3), (5, 6)),
        (1, (5,), (5, 1)),
        (1, (0, 2, 3), (0, 6)),
        (1, (5, 0, 3), (5, 0)),
        (2, (5, 2, 3, 4), (5, 2, 12)),
        (0, (2, 3), (6,)),
        (0, (), (1,)),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_flatten_keeps_the_leading_axes_and_joins_the_rest_in_c_order(start, shape, expected, order):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).copy(order=order)
    out = Flatten(start=start)(x)
    assert out.shape == expected
    np.testing.assert_array_equal(out.ravel(), x.ravel())


def test_flatten_keeps_the_dtype():
    assert Flatten()(np.zeros((2, 3, 4), np.float16)).dtype == np.float16


def test_flatten_takes_lists():
    np.testing.assert_array_equal(Flatten()([[[1, 2]], [[3, 4]]]), [[1, 2], [3, 4]])


def test_too_few_axes_are_refused():
    with pytest.raises(ValueError, match=r"Flatten\(start=2\) needs x of at least 2 axes, got shape \(3,\)"):
        Flatten(start=2)(np.zeros(3))


def test_a_negative_start_is_refused():
    with pytest.raises(ValueError, match="start >= 0, got -1"):
        Flatten(start=-1)
