"""Ties are decided by memory cells: the same window or a permutation of it; any other overlap is an error."""

import numpy as np
import pytest
import reference
from zoo import count

import nnflat as nf

TIED = {
    "the same object": lambda a: a,
    "a full slice": lambda a: a[:],
    "an ellipsis": lambda a: a[...],
    "a view": lambda a: a.view(),
    "a transpose": lambda a: a.T,
    "transposed twice": lambda a: a.T.T,
    "swapped axes": lambda a: a.swapaxes(0, 1),
    "moved axis": lambda a: np.moveaxis(a, 0, -1),
    "permuted": lambda a: a.transpose(2, 0, 1),
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "reshaped to itself": lambda a: a.reshape(a.shape),
    "as strided": lambda a: np.lib.stride_tricks.as_strided(a, a.shape, a.strides),
    "from its buffer": lambda a: np.frombuffer(a.data, a.dtype).reshape(a.shape) if a.flags.c_contiguous else a,
}
OWNERS = {
    "C": lambda: count(2, 3, 4),
    "Fortran": lambda: np.asfortranarray(count(2, 3, 4)),
    "strided": lambda: count(4, 6, 8)[::2, ::2, ::2],
    "negative": lambda: count(2, 3, 4)[::-1, :, ::-1],
    "equal sides": lambda: count(3, 3, 3),
    "unit axes": lambda: count(1, 3, 1),
    "one element": lambda: count(1, 1, 1),
}


@pytest.mark.parametrize("own", OWNERS.values(), ids=OWNERS.keys())
@pytest.mark.parametrize("alias", TIED.values(), ids=TIED.keys())
def test_the_same_window_or_a_permutation_of_it_is_a_tie(own, alias):
    owner = own()
    model = {"one": owner, "other": alias(owner)}
    flat, layout = nf.destructure(model)
    assert flat.tolist() == owner.reshape(-1).tolist()
    assert layout.ties == {("other",): ("one",)}
    assert layout["other"] == layout["one"]
    again = layout.restructure(flat)
    assert np.array_equal(again["one"], model["one"])
    assert np.array_equal(again["other"], model["other"])
    again["other"][...] = -again["other"]
    assert np.array_equal(again["one"], -owner)
    assert nf.Layout.of(again) == layout


UNTIED = {
    "half": lambda a: a[:1],
    "shifted": lambda a: a.reshape(-1)[1:13].reshape(2, 2, 3),
    "reversed": lambda a: a[::-1],
    "reversed along the last axis": lambda a: a[..., ::-1],
    "reshaped": lambda a: a.reshape(4, 3, 2),
    "ravelled": lambda a: a.reshape(-1),
    "with a new axis": lambda a: a[np.newaxis],
    "an element": lambda a: a[0, 0, 0, ...],
    "a row": lambda a: a[1, 2],
    "real view of other precision": lambda a: a.view(np.float32),
    "other byte order": lambda a: a.view(">f8"),
    "complex view": lambda a: a.view(np.complex128),
    "a diagonal": lambda a: a[0].diagonal(),
    "every second": lambda a: a[..., ::2],
    "an unaligned part": lambda a: a.reshape(-1).view(np.uint8)[4:12].view(np.float64),
}


@pytest.mark.parametrize("part", UNTIED.values(), ids=UNTIED.keys())
@pytest.mark.parametrize("first", [True, False])
def test_any_other_overlap_is_an_error_that_names_both_paths(part, first):
    whole = count(2, 3, 4)
    model = {"one": whole, "between": count(2), "other": part(whole)}
    if not first:
        model = dict(reversed(model.items()))
    with pytest.raises(ValueError, match=r"(one and other|other and one) overlap in memory"):
        nf.destructure(model)


APART = {
    "columns": lambda a: [a[:, 0], a[:, 1], a[:, 2]],
    "interleaved": lambda a: [a[:, ::2], a[:, 1::2]],
    "checkerboard": lambda a: [a[::2, ::2], a[1::2, 1::2], a[::2, 1::2], a[1::2, ::2]],
    "neighbours": lambda a: [a[:2], a[2:]],
    "reversed halves": lambda a: [a[1::-1], a[:1:-1]],
    "real and imaginary": lambda a: [(z := a + 1j).real, z.imag],
    "fields": lambda a: [(s := np.zeros(3, "f8, f4"))["f0"], s["f1"]],
}


@pytest.mark.parametrize("split", APART.values(), ids=APART.keys())
def test_windows_of_one_block_that_share_no_cell_are_separate(split):
    model = split(count(4, 6))
    flat, layout = nf.destructure(model)
    assert layout.ties == {}
    assert layout.size == sum(leaf.size for leaf in model)
    assert reference.same(flat, reference.destructure(model))
    layout.restructure(-flat, out=model)
    assert reference.same(layout.destructure(model), -flat)


SELF = {
    "broadcast": (lambda: np.broadcast_to(count(3), (4, 3)), "stride 0"),
    "broadcast number": (lambda: np.broadcast_to(1.0, 3), "stride 0"),
    "windows": (lambda: np.lib.stride_tricks.sliding_window_view(count(5), 3), "overlaps itself"),
    "as strided": (lambda: np.lib.stride_tricks.as_strided(count(8), (2, 3), (16, 8)), "overlaps itself"),
    "in bytes": (lambda: np.lib.stride_tricks.as_strided(count(8), (3,), (4,)), "overlaps itself"),
    "negative": (lambda: np.lib.stride_tricks.as_strided(count(8)[4:], (2, 3), (-8, 8)), "overlaps itself"),
}


@pytest.mark.parametrize(("make", "word"), SELF.values(), ids=SELF.keys())
def test_a_leaf_that_overlaps_itself_is_refused_with_its_path(make, word):
    with pytest.raises(ValueError, match=f"a.b .*{word}"):
        nf.destructure({"a": {"b": make()}, "c": count(1)})


STRANGE = {
    "stride 0 along one": lambda: np.broadcast_to(count(3), (1, 3)),
    "strides not nested": lambda: np.lib.stride_tricks.as_strided(count(16), (2, 3), (24, 16)),
    "stride 0 and empty": lambda: np.broadcast_to(count(3), (0, 3)),
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE.keys())
def test_strange_strides_without_an_overlap_are_fine(make):
    leaf = make()
    flat, _ = nf.destructure([leaf])
    assert flat.tolist() == leaf.reshape(-1).tolist()


def test_equal_arrays_are_not_tied():
    assert nf.destructure([count(3), count(3)])[0].size == 6


def test_empty_leaves_are_never_tied_and_overlap_nothing():
    empty = np.zeros((0, 3))
    flat, layout = nf.destructure([empty, empty, count(4)[2:2], count(2)])
    assert layout.ties == {}
    assert flat.tolist() == [1, 2]
    assert [leaf.shape for leaf in layout.restructure(flat)] == [(0, 3), (0, 3), (0,), (2,)]


def test_the_owner_is_the_first_in_the_order_of_the_tree():
    weight = count(2, 3)
    _, layout = nf.destructure([weight.T, {"a": weight, "b": weight.T}])
    assert layout.paths == ((0,),)
    assert layout.shapes == ((3, 2),)
    assert layout.ties == {(1, "a"): (0,), (1, "b"): (0,)}
    assert ".T" in str(layout)


def test_statics_do_not_tie_to_parameters():
    weight = count(4)
    flat, layout = nf.destructure([weight, weight.view(np.int64)])
    assert flat.tolist() == [1, 2, 3, 4]
    assert layout.ties == {}


def test_many_columns_of_one_matrix_are_separate_leaves():
    matrix = count(3, 200)
    flat, _ = nf.destructure([matrix[:, index] for index in range(200)])
    assert flat.tolist() == matrix.T.reshape(-1).tolist()


def test_a_window_that_cannot_fit_its_cells_overlaps_itself_without_being_counted():
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(2_000_000), 100, writeable=True)
    with pytest.raises(ValueError, match="overlaps itself"):
        nf.Layout.of([windows])


def test_what_where_leaves_out_may_overlap_and_repeat():
    cells = np.zeros(6)
    model = {"w": np.ones(2), "m": np.broadcast_to(0.0, 3), "a": cells[:4], "b": cells[2:], "i": np.arange(4)[::-1]}
    layout = nf.Layout.of(model, where=lambda path, leaf: path == ("w",))
    assert list(layout) == ["w"]


def test_what_where_leaves_out_may_not_share_memory_with_what_it_takes():
    cells = np.zeros(6)
    for left in (cells, cells[1:3], cells[:4].reshape(2, 2).T):
        with pytest.raises(ValueError, match="take both or none"):
            nf.Layout.of({"taken": cells[:4], "left": left}, where=lambda path, leaf: path == ("taken",))
