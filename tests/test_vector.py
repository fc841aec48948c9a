"""The checks of what is given as a flat vector: type, word of the message, and what passes."""

import numpy as np
import pytest

from nnflat._vector import check_array, check_length, check_out


@pytest.mark.parametrize("dtype", ["e", "f", "d", "g", "F", "D", "G", ">f4", ">c16"])
def test_arrays_of_floats_pass_unchanged(dtype):
    array = np.zeros(3, dtype)
    assert check_array(array, "flat") is array


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "x must be a NumPy array; got NoneType"),
        ([1.0], "got list"),
        ((1.0,), "got tuple"),
        ((np.zeros(1), object()), r"destructure returns \(flat, layout\)"),
        (np.float64(1), "got float64"),
        (np.zeros(2, int), "x must hold floats; got int64"),
        (np.zeros(2, bool), "floats; got bool"),
        (np.zeros(2, object), "floats; got object"),
        (np.ma.zeros(2), "got MaskedArray"),
        (memoryview(b"ab"), "got memoryview"),
    ],
)
def test_what_is_no_array_of_floats_is_a_type_error(value, word):
    with pytest.raises(TypeError, match=word):
        check_array(value, "x")


def foreign(module, **attributes):
    return type("Array", (), {"__module__": module, **attributes})()


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (foreign("torch", __array__=None), "torch.Array: take tensor.detach"),
        (foreign("torch.nn.parameter", __dlpack__=None), "detach"),
        (foreign("jax._src.core", __jax_array__=None), r"np.array\(x\)"),
        (foreign("jaxlib._jax", __array__=None), r"np.array\(x\)"),
        (foreign("autograd.numpy.numpy_boxes", _value=None), "autograd cannot see"),
        (foreign("tensorflow.python", __array__=None), "tensor.numpy"),
        (foreign("cupy", __array__=None), "array.get"),
        (foreign("pandas.core", __array__=None), "to_numpy"),
        (foreign("somebody", __array__=None), "np.asarray"),
        (foreign("somebody", __array_interface__=None), "np.asarray"),
    ],
)
def test_an_array_of_another_library_is_named_with_what_to_do(value, word):
    with pytest.raises(TypeError, match=word):
        check_array(value, "flat")


def test_a_class_derived_from_a_foreign_one_is_foreign():
    base = type("Tensor", (), {"__module__": "torch", "__array__": None})
    with pytest.raises(TypeError, match="detach"):
        check_array(type("Mine", (base,), {"__module__": "mine"})(), "flat")


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1), (1, 2), (0,)])
def test_a_wrong_length_says_what_was_needed_and_what_came(shape):
    with pytest.raises(ValueError, match="x must be a vector of 3 elements; got"):
        check_length(np.zeros(shape), 3, "x")


def test_a_population_is_recognised():
    with pytest.raises(ValueError, match=r"population of shape \(5, 3\).*take a row"):
        check_length(np.zeros((5, 3)), 3, "x")


def test_out_must_be_of_exactly_the_dtype():
    out = np.zeros(3)
    assert check_out(out, 3, np.dtype(float)) is out
    for dtype in ("f4", ">f8", "c16", "i8", "g"):
        with pytest.raises(TypeError, match="out must be an array of float64; got"):
            check_out(np.zeros(3, dtype), 3, np.dtype(float))


def test_out_must_be_writeable():
    out = np.zeros(3)
    out.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        check_out(out, 3, np.dtype(float))
