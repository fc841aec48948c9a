"""The loops that copy: every memory order, element and cast, compared with NumPy's own copies to the bit."""

import itertools

import numpy as np
import pytest
import reference
import zoo

import nnflat as nf
from nnflat._copy import aligned_empty, extent


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def load(flat: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """Copy a vector into one leaf."""
    nf.Layout.of([leaf]).restructure(flat, out=[leaf])
    return leaf


def store(leaf: np.ndarray, dtype) -> np.ndarray:
    """Copy one leaf into a vector."""
    return nf.destructure([leaf], dtype=dtype)[0]


# ---- casts of half precision -------------------------------------------------------------------------------------

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_every_half_is_widened_exactly(wide):
    expected = HALVES.astype(wide)
    assert reference.same(store(HALVES, wide), expected)
    assert reference.same(load(HALVES, np.zeros(HALVES.size, wide)), expected)
    number = ~np.isnan(HALVES)
    assert np.array_equal(bits(store(HALVES, wide))[number], bits(expected)[number])


def around_halves(wide: type) -> np.ndarray:
    """Return every finite half, the middle between neighbours, and the next numbers on both sides of each."""
    positive = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    positive[-1] = 65536.0  # where infinity would stand
    marks = np.concatenate([positive, (positive[1:] + positive[:-1]) / 2]).astype(wide)
    near = np.concatenate([marks, np.nextafter(marks, wide(0)), np.nextafter(marks, wide(np.inf))])
    return np.concatenate([near, -near])


@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_narrowing_to_half_rounds_as_numpy_does_at_every_boundary(wide):
    values = around_halves(wide)
    expected = reference.cast(values, np.float16)
    assert np.array_equal(bits(store(values, np.float16)), bits(expected))
    assert np.array_equal(bits(load(values, np.zeros(values.size, np.float16))), bits(expected))


@pytest.mark.parametrize("wide", [np.float32, np.float64])
def test_narrowing_to_half_of_extremes_is_numpys(wide):
    info = np.finfo(wide)
    values = np.array([0, info.tiny, info.smallest_subnormal, info.max, 1e5, 65519.99, 65520, np.inf, np.nan], wide)
    values = np.concatenate([values, -values])
    assert reference.same(store(values, np.float16), reference.cast(values, np.float16))


def test_narrowing_to_half_of_random_bits_is_numpys():
    rng = np.random.default_rng(0)
    for word, wide in ((np.uint32, np.float32), (np.uint64, np.float64)):
        values = rng.integers(0, np.iinfo(word).max, 100_000, word, endpoint=True).view(wide)
        assert reference.same(store(values, np.float16), reference.cast(values, np.float16))


def test_a_double_is_rounded_to_half_once():
    value = np.array([1 + 2.0**-11 + 2.0**-40])  # through a single it would round to even, to 1
    assert store(value, np.float16)[0] == np.float16(1 + 2.0**-10)


@pytest.mark.parametrize("kind", ["e", "f", "d"])
def test_a_nan_stays_a_nan_in_every_precision(kind):
    nans = {"e": (0x7C01, 0xFFFF), "f": (0x7F800001, 0xFFC00000), "d": (0x7FF0000000000001, 0xFFF8000000000000)}
    values = np.array(nans[kind], f"u{np.dtype(kind).itemsize}").view(kind)
    for to in "efdg":
        assert np.all(np.isnan(store(values, to)))
        assert np.all(np.isnan(load(values, np.zeros(2, to))))


@pytest.mark.parametrize("kind", ["e", "f", "d"])
def test_the_payload_of_a_nan_survives_a_move(kind):
    values = np.array([0x7C01, 0xFDAB], np.uint16).view("e") if kind == "e" else np.array([np.nan, -np.nan], kind)
    assert np.array_equal(bits(store(values, kind)), bits(values))


def test_narrowing_to_single_of_random_bits_is_numpys():
    values = np.random.default_rng(1).integers(0, 2**64 - 1, 100_000, np.uint64, endpoint=True).view(np.float64)
    assert reference.same(store(values, np.float32), reference.cast(values, np.float32))


# ---- orders and sizes --------------------------------------------------------------------------------------------

ORDERS = {
    "C": lambda a: a.copy(),
    "Fortran": lambda a: a.copy("F"),
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "rows apart": lambda a: np.concatenate([a, a], axis=1)[:, : a.shape[1]],
    "columns apart": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "columns far apart": lambda a: np.repeat(a, 5, axis=1)[:, ::5],
    "transposed with gaps": lambda a: np.repeat(np.asfortranarray(a), 2, axis=0)[::2].T.copy("F").T,
    "reversed Fortran": lambda a: np.asfortranarray(a[::-1, ::-1])[::-1, ::-1],
    "reversed columns": lambda a: a[:, ::-1].copy()[:, ::-1],
    "reversed transposed": lambda a: np.asfortranarray(a[::-1])[::-1],
}
SIDES = [1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 130]


@pytest.mark.parametrize("dtype", ["e", "f", "d", "F", "D", "g", "G", ">e", ">f", ">d", ">F", ">D", ">g"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_a_matrix_of_any_order_and_element_is_copied_both_ways(order, dtype):
    for rows, columns in [(1, 5), (5, 1), (33, 65), (64, 64), (3, 130), (70, 9)]:
        values = zoo.count(rows, columns) % 2039
        values = values.astype(dtype) if np.dtype(dtype).kind == "f" else (values - 1j * values).astype(dtype)
        leaf = order(values)
        flat = store(leaf, None)
        assert np.array_equal(flat, values.reshape(-1))
        leaf[...] = 0
        load(flat, leaf)
        assert np.array_equal(leaf, values)


@pytest.mark.parametrize("dtype", ["e", "f", "d", "D", "G"])
def test_transposes_around_the_size_of_a_tile_are_right(dtype):
    for rows, columns in itertools.product(SIDES, SIDES):
        values = (np.arange(rows * columns) % 2039).astype(dtype).reshape(rows, columns)
        leaf = values.copy("F")
        assert np.array_equal(store(leaf, dtype), values.reshape(-1))
        assert np.array_equal(load(-values.reshape(-1), leaf), -values)


CASTS = [*itertools.permutations("efdg", 2), ("F", "d"), ("D", "f"), ("F", "e")]


@pytest.mark.parametrize(("leaf", "flat"), CASTS)
def test_transposes_with_a_cast_are_right(leaf, flat):
    for rows, columns in itertools.product([1, 2, 33, 65], [1, 31, 64, 67]):
        values = np.asfortranarray((np.arange(rows * columns) % 2039).astype(leaf).reshape(rows, columns) / 7)
        expected = reference.cast(values.reshape(-1), flat)
        if np.dtype(leaf).kind == "c":
            expected = reference.cast(np.stack([values.real, values.imag], -1).reshape(-1), flat)
        assert reference.same(store(values, flat), expected)
        back = np.zeros_like(values)
        load_pairs = nf.Layout.of([back], dtype=flat)
        load_pairs.restructure(expected, out=[back])
        lanes = expected.reshape(*values.shape, -1)
        wanted = reference.cast(lanes, values.real.dtype)
        assert reference.same(back.real, wanted[..., 0])
        assert np.dtype(leaf).kind != "c" or reference.same(back.imag, wanted[..., 1])


@pytest.mark.parametrize("axes", list(itertools.permutations(range(4))))
def test_four_axes_in_any_order_are_right(axes):
    values = np.arange(3.0 * 5 * 2 * 9).reshape(3, 5, 2, 9)
    leaf = values.transpose(axes)
    assert np.array_equal(store(leaf, float), leaf.reshape(-1))
    expected = -leaf.reshape(-1)
    load(expected, leaf)
    assert np.array_equal(leaf.reshape(-1), expected)


def test_many_axes_are_right():
    values = np.arange(2.0**12).reshape((2,) * 12)
    leaf = values.transpose(range(11, -1, -1))[(slice(None, None, -1),) * 5]
    assert np.array_equal(store(leaf, float), leaf.reshape(-1))
    wide = np.arange(4.0).reshape((1,) * 30 + (2,) + (1,) * 32 + (2,))
    assert store(wide.transpose(range(63, -1, -1)), np.float32).tolist() == [0, 2, 1, 3]
    pairs = (wide + 1j).transpose(range(63, -1, -1))
    assert store(pairs, np.float32).tolist() == [0, 1, 2, 1, 1, 1, 3, 1]


@pytest.mark.parametrize("dtype", ["e", "f", "d", "g", "F", "D"])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (33, 65)])
def test_unaligned_leaves_and_vectors_are_right(dtype, shape):
    leaf = zoo.unaligned(zoo.count(*shape, dtype=dtype))
    flat = zoo.unaligned(-zoo.count(leaf.size, dtype=dtype))
    for target in (leaf, zoo.unaligned(leaf.T.copy()).T):
        layout = nf.Layout.of([target])
        layout.restructure(flat, out=[target])
        assert np.array_equal(target.reshape(-1), flat)
        assert layout.destructure([target], out=flat) is flat
        assert np.array_equal(target.reshape(-1), flat)


@pytest.mark.parametrize("given", [">f8", "<f8", ">f4", "<f4", "f2", ">f2", "g", ">g"])
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_a_vector_of_any_step_and_byte_order_is_read_right(given, step):
    block = np.arange(1.0, 61).astype(given)
    flat = block[::step][:12]
    leaf = np.asfortranarray(np.zeros((3, 4)))
    assert np.array_equal(load(flat, leaf).reshape(-1), flat)


def test_a_leaf_of_more_than_a_gigabyte_is_not_needed_to_see_wide_strides():
    block = np.zeros(1 << 20)
    leaf = block[:: 1 << 18]
    load(np.array([1.0, 2, 3, 4]), leaf)
    assert np.flatnonzero(block).tolist() == [0, 1 << 18, 2 << 18, 3 << 18]


# ---- helpers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["e", "f", "d", "g", "D"])
@pytest.mark.parametrize("size", [0, 1, 3, 1000])
def test_fresh_vectors_are_aligned_to_the_cache_line_and_own_their_elements(size, dtype):
    vectors = [aligned_empty(size, np.dtype(dtype)) for _ in range(20)]
    for vector in vectors:
        assert vector.shape == (size,)
        assert vector.dtype == dtype
        assert vector.__array_interface__["data"][0] % 64 == 0
        assert vector.flags.c_contiguous
        assert vector.flags.writeable
        vector[...] = 1


@pytest.mark.parametrize("make", zoo.ZOO.values(), ids=zoo.ZOO.keys())
def test_the_extent_of_an_array_holds_all_its_elements_tightly(make):
    for _, leaf in reference.items(make()):
        low, high = extent(leaf)
        found = reference.addresses(leaf)
        if leaf.size:
            assert (low, high) == (min(found), max(found) + leaf.itemsize)
        else:
            assert low == high


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_a_vector_that_no_cache_holds_is_copied_whole(shift):
    sizes = [3_000_001, 5, 16_384, 16_383, 6_000_002]
    block = np.zeros(sum(sizes) + shift, np.float32)
    ends = np.cumsum([shift, *sizes])
    model = [block[start:stop] for start, stop in itertools.pairwise(ends)]
    flat, layout = nf.destructure(model)
    assert flat.nbytes > 1 << 25
    bound = layout.bind(model)
    flat[:] = np.arange(flat.size)
    bound.load(flat)
    assert np.array_equal(block[shift:], flat)
    assert not block[:shift].any()
    out = np.zeros(flat.size + 1, np.float32)[1:]
    assert np.array_equal(bound.store(out=out), flat)
    assert np.array_equal(np.concatenate(layout.restructure(flat)), flat)
