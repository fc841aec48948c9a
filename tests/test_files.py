"""Trees in files: what comes back, what is refused, and what a damaged file can do (nothing)."""

import json
import os
import stat
from collections import OrderedDict, defaultdict, namedtuple
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from nnflat import Layout, destructure, files, load, nn, save, tree

SUFFIXES = (".safetensors", ".npz")
DTYPES = ("f2", "f4", "f8", "c8", "c16", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "bool")


@tree.register(static="mean")
class Scaler:
    def __init__(self):
        self.scale, self.mean = np.full(2, 2.0), np.full(2, 0.5)


@dataclass
class Point:
    x: np.ndarray


class Affine(nn.Layer):
    def __init__(self, n):
        self.weight = np.arange(float(n))


Pair = namedtuple("Pair", "a b")


def own_function(x):
    return x


def network():
    rng = np.random.default_rng(0)
    return nn.Chain(nn.Dense(3, 4, "relu", rng=rng), nn.Dense(4, 2, np.tanh, rng=rng))


TREES = {
    "network": network(),
    "array": np.arange(3.0),
    "zero dimensions": {"a": np.array(2.0), "b": np.array(1 + 2j)},
    "empty": {"a": np.zeros((0, 3)), "b": np.zeros((2, 0), np.complex128), "c": {}},
    "nothing": None,
    "dtypes": {dtype: np.arange(6).reshape(2, 3).astype(dtype) for dtype in DTYPES},
    "fortran": [np.arange(6.0).reshape(3, 2).T, np.ones((2, 3, 4), np.complex128, order="F")],
    "strided": [np.arange(12.0).reshape(3, 4)[:, 1:2], np.arange(6.0)[::-1], np.arange(8.0)[::2]],
    "containers": OrderedDict(b=[np.ones(1)], a=(np.ones(2), defaultdict(list, {"z": np.ones(3)}))),
    "keys": {0: np.ones(1), "0": np.ones(2), (1, "a"): np.ones(3), "a.b": np.ones(4), "a": {"b": np.ones(5)}},
    "statics": {"none": None, "yes": True, "n": 3, "x": 0.1, "z": 1j, "name": "é\0", "none too": ()},
    "odd numbers": [-np.inf, np.nan, -0.0, 10**30, np.float32(0.1), np.int8(3), np.bool(1), np.complex64(1j)],
    "integers": {"index": np.array([2, 0]), "mask": np.array([True, False])},
    "functions": [nn.relu, nn.gelu, np.tanh, nn.identity],
    "registered": Scaler(),
    "own layer": Affine(3),
}  # fmt: skip


def spell(value):
    """Describe a tree in plain values that compare: structure, dtypes, orders and bits."""
    kind = tree.node_type(type(value))
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.flags.f_contiguous, value.tobytes()
    if kind is None:
        return type(value), repr(value)
    children = tree.children_of(value, kind)
    return type(value), kind.aux(value), [(key, spell(child)) for key, child in children.items()]


def parts(path):
    """Return the header of a safetensors file and its body."""
    data = path.read_bytes()
    stop = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:stop]), data[stop:]


def write(path, header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + body)
    return path


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return tmp_path / f"tree{request.param}"


@pytest.fixture
def tensors(tmp_path):
    return tmp_path / "tree.safetensors"


# ---- what comes back


@pytest.mark.parametrize("name", TREES)
def test_a_loaded_tree_equals_the_saved_one(name, path):
    save(path, TREES[name])
    wanted = spell(TREES[name])
    if name == "strided":  # a file keeps C or Fortran order, as a layout does
        wanted = spell([leaf.copy() for leaf in TREES[name]])
    assert spell(load(path)) == wanted


def test_the_loaded_network_computes_the_same_bits(path):
    model = network()
    save(path, model)
    x = np.random.default_rng(1).standard_normal((5, 3), np.float32)
    assert load(path)(x).tobytes() == model(x).tobytes()


def test_the_body_is_the_flat_vector(tensors):
    model = network()
    save(tensors, model)
    assert parts(tensors)[1] == destructure(model)[0].tobytes()


def test_the_body_of_a_tied_tree_is_the_flat_vector(tensors):
    weight = np.arange(6.0).reshape(2, 3)
    model = {"in": weight, "out": weight.T, "again": weight}
    save(tensors, model)
    assert parts(tensors)[1] == destructure(model)[0].tobytes()


def test_the_safetensors_package_reads_every_array(tensors):
    arrays = {dtype: np.arange(6).reshape(2, 3).astype(dtype) for dtype in DTYPES if dtype != "c16"}
    save(tensors, arrays)
    found = safetensors.numpy.load_file(tensors)
    assert {name: (a.dtype, a.tolist()) for name, a in found.items()} == {
        name: (a.dtype, a.tolist()) for name, a in arrays.items()
    }


def test_what_the_safetensors_package_wrote_loads_as_arrays_by_name(tensors):
    arrays = {"a.weight": np.ones((2, 3), np.float32), "b": np.arange(3)}
    safetensors.numpy.save_file(arrays, tensors, metadata={"by": "another"})
    assert spell(load(tensors)) == spell(dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize)))


def test_numpy_reads_an_npz_file_without_pickle(tmp_path):
    save(tmp_path / "a.npz", {"w": np.ones(2)})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as found:
        assert found["w"].tolist() == [1.0, 1.0]


def test_what_numpy_saved_loads_as_arrays_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.ones(2), v=np.arange(3))
    assert spell(load(tmp_path / "a.npz")) == spell({"w": np.ones(2), "v": np.arange(3)})


def test_a_tie_comes_back_as_a_tie(path):
    weight = np.arange(6.0).reshape(2, 3)
    save(path, {"in": weight, "out": weight.T, "again": weight})
    found = load(path)
    found["in"][0, 1] = 9
    assert found["out"][1, 0] == found["again"][0, 1] == 9
    assert Layout.of(found).size == 6


def test_a_tied_array_is_stored_once(tensors):
    weight = np.ones(1000)
    save(tensors, {"a": weight, "b": weight})
    assert len(parts(tensors)[1]) == weight.nbytes


def test_loaded_arrays_are_writeable_and_apart_from_one_another(path):
    save(path, [np.ones(3), np.ones(3)])
    a, b = load(path)
    a[:] = 0
    assert b.tolist() == [1, 1, 1]


def test_big_endian_arrays_come_back_in_native_order(path):
    save(path, [np.arange(3.0).astype(">f8")])
    assert spell(load(path)) == spell([np.arange(3.0)])


def test_meta_comes_back_in_info(path):
    meta = {"environment": "CartPole-v1", "fitness": 0.1, "sizes": [1, {"a": None}]}
    save(path, network(), meta=meta)
    assert files.info(path).meta == meta


def test_info_tells_names_shapes_and_ties(path):
    weight = np.ones((2, 3))
    save(path, {"a": weight, "b": weight.T})
    info = files.info(path)
    assert [(entry.name, entry.shape) for entry in info.entries] == [("a", (2, 3))]
    assert info.aliases == {"b": ["a", [1, 0]]}


def test_info_gives_the_bytes_of_an_array_in_the_file(tensors):
    save(tensors, [np.arange(3.0), np.arange(4.0)])
    entry = files.info(tensors).entries[1]
    assert np.frombuffer(tensors.read_bytes()[entry.start : entry.stop]).tolist() == [0, 1, 2, 3]


# ---- what only into= gives back


@pytest.mark.parametrize("value", [own_function, len, object(), b"bytes", np.array(["a"])], ids=repr)
def test_what_json_cannot_hold_is_refused_with_its_path(value, tensors):
    save(tensors, {"w": np.ones(2), "deep": [value]})
    with pytest.raises(ValueError, match=r"deep\[0\].*into="):
        load(tensors)


@pytest.mark.parametrize("value", [Point(np.ones(2)), Pair(np.ones(1), 2)], ids=["dataclass", "namedtuple"])
def test_a_class_that_is_not_registered_is_refused_with_its_path(value, path):
    save(path, {"deep": [value]})
    with pytest.raises(ValueError, match=rf"deep\[0\] is a .*{type(value).__name__}.*into="):
        load(path)


def test_into_reads_what_cannot_be_rebuilt(path):
    save(path, {"deep": [Point(np.arange(2.0))], "fn": own_function})
    target = {"deep": [Point(np.zeros(2))], "fn": own_function}
    assert load(path, into=target) is target
    assert target["deep"][0].x.tolist() == [0, 1]


def test_a_class_is_never_imported_because_a_file_names_it(tensors):
    save(tensors, network())
    header, body = parts(tensors)
    metadata = header["__metadata__"]
    metadata["nnflat"] = metadata["nnflat"].replace("nnflat.nn.dense.Dense", "turtle.Pen")
    with pytest.raises(ValueError, match=r"turtle\.Pen.*into="):
        load(write(tensors, header, body))


@pytest.mark.parametrize(
    "architecture",
    [
        {"function": "numpy.load"},
        {"function": "nnflat.np"},
        {"class": ["builtins.eval", [], None]},
        {"class": ["builtins.dict", 3, None]},
        {"class": ["collections.defaultdict", [], "x"]},
        {"class": ["builtins.dict", [[{"class": ["builtins.list", [], None]}, 1]], None]},
        {"class": ["nnflat.nn.dense.Dense", [[1, 2]]]},
        {"scalar": ["V1", 10**15]},
        {"scalar": ["int8", 300]},
        {"complex": ["a", 1]},
        {"type": "eval"},
        {"array": "nowhere"},
        {"array": []},
        {},
        [1],
        {"what": 1},
    ],
    ids=str,
)
def test_an_architecture_that_makes_no_sense_is_a_value_error(architecture, tensors):
    metadata = {"nnflat": json.dumps({"architecture": architecture})}
    with pytest.raises(ValueError, match="cannot be rebuilt"):
        load(write(tensors, {"__metadata__": metadata}))


def test_a_deep_architecture_is_a_value_error(tensors):
    deep = '{"tuple":[' * 100_000
    with pytest.raises(ValueError, match="not valid JSON"):
        load(write(tensors, {"__metadata__": {"nnflat": '{"architecture":' + deep}}))


# ---- into a tree


def test_into_writes_the_arrays_of_the_tree_in_place(path):
    model, other = network(), network()
    for leaf in tree.leaves(other):
        leaf[...] = 7
    arrays = tree.leaves(other)
    save(path, model)
    assert load(path, into=other) is other
    assert all(a is b for a, b in zip(arrays, tree.leaves(other), strict=True))
    assert spell(other) == spell(model)


def test_into_reads_static_arrays_too(path):
    save(path, Scaler())
    target = Scaler()
    target.scale[:] = target.mean[:] = 0
    load(path, into=target)
    assert (target.scale.tolist(), target.mean.tolist()) == ([2, 2], [0.5, 0.5])


def test_into_keeps_the_order_of_the_target(path):
    save(path, {"w": np.arange(6.0).reshape(2, 3)})
    target = {"w": np.zeros((2, 3), order="F")}
    load(path, into=target)
    assert target["w"].flags.f_contiguous
    assert target["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"a": np.zeros(2), "b": np.zeros(3), "c": np.zeros(1)}, "c is not in the file"),
        ({"a": np.zeros(2)}, "b is in the file, but not in the tree"),
        ({"a": np.zeros(2), "b": np.zeros((3, 1))}, r"b is .* \(3,\) in the file, .* \(3, 1\) in the tree"),
        ({"a": np.zeros(2), "b": np.zeros(3, np.float32)}, "b is float64 .* float32 .* in the tree"),
        ({"a": np.zeros(2), "b": read_only(np.zeros(3))}, "b is read-only"),
        ({"a": np.zeros(2), "B": np.zeros(3)}, "B is not in the file; b is in the file"),
    ],
    ids=["missing", "extra", "shape", "dtype", "read-only", "both"],
)
def test_a_file_that_does_not_fit_writes_nothing(target, message, path):
    save(path, {"a": np.ones(2), "b": np.ones(3)})
    with pytest.raises(ValueError, match=message):
        load(path, into=target)
    assert not any(leaf.any() for leaf in tree.leaves(target))


@pytest.mark.parametrize("first", ["in", "out"])
def test_equal_values_of_tied_names_are_accepted(first, path):
    weight = np.zeros((2, 3))
    target = {"in": weight, "out": weight.T}
    values = {"in": np.arange(6.0).reshape(2, 3), "out": np.arange(6.0).reshape(2, 3).T.copy()}
    save(path, {first: values[first]} | values)
    load(path, into=target)
    assert weight.tolist() == values["in"].tolist()


def test_different_values_of_tied_names_are_refused_naming_both(path):
    weight = np.zeros((2, 3))
    save(path, {"in": np.ones((2, 3)), "out": np.full((3, 2), 2.0)})
    with pytest.raises(ValueError, match="in and out are tied in the tree, but differ"):
        load(path, into={"in": weight, "out": weight.T})
    assert not weight.any()


def test_one_name_of_a_tied_array_is_enough(path):
    weight = np.zeros((2, 3))
    save(path, {"out": np.arange(6.0).reshape(3, 2)})
    load(path, into={"in": weight, "out": weight.T})
    assert weight.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_tied_file_fills_a_tree_that_is_not_tied(path):
    weight = np.arange(3.0)
    save(path, {"a": weight, "b": weight})
    target = {"a": np.zeros(3), "b": np.zeros(3)}
    load(path, into=target)
    assert target["a"].tolist() == target["b"].tolist() == [0, 1, 2]


# ---- writing


@pytest.mark.parametrize("name", ["tree.pt", "tree", "tree.npy", ".npz"])
def test_another_suffix_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"\.safetensors or \.npz"):
        save(tmp_path / name, network())
    with pytest.raises(ValueError, match=r"\.safetensors or \.npz"):
        load(tmp_path / name)


def test_the_suffix_may_be_in_capitals(tmp_path):
    save(tmp_path / "A.SafeTensors", [np.ones(1)])
    assert load(tmp_path / "A.SafeTensors")[0].tolist() == [1]


def test_a_parameter_that_the_format_cannot_hold_is_refused_by_name(tensors):
    with pytest.raises(ValueError, match="wide"):
        save(tensors, {"wide": np.ones(2, np.longdouble)})
    assert not tensors.exists()


@pytest.mark.parametrize("array", [np.ones(2), np.arange(2)], ids=["parameter", "static"])
def test_the_reserved_name_is_refused(array, path):
    with pytest.raises(ValueError, match="__metadata__"):
        save(path, {"__metadata__": array})


def test_two_paths_of_one_printed_name_are_refused(path):
    class Key(str):
        def __repr__(self):
            return "key"

    with pytest.raises(ValueError, match="two paths"):
        save(path, {Key("a b"): np.ones(1), Key("b a"): np.ones(1)})


@pytest.mark.parametrize("meta", [{"a": object()}, {1: 2}, {"a": np.float32(1)}], ids=str)
def test_meta_that_json_cannot_hold_is_refused(meta, path):
    with pytest.raises(TypeError, match="meta"):
        save(path, [np.ones(1)], meta=meta)
    assert not path.exists()


def test_an_overlap_that_is_no_tie_is_refused(path):
    memory = np.zeros(4)
    with pytest.raises(ValueError, match="overlap"):
        save(path, [memory[:3], memory[1:]])


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_file_and_no_other(step, path, monkeypatch):
    save(path, [np.ones(3)])
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        save(path, [np.zeros(3)])
    assert (path.read_bytes(), os.listdir(path.parent)) == (before, [path.name])


def test_an_interrupted_save_leaves_no_temporary_file(path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(path, [np.ones(3)])
    assert os.listdir(path.parent) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        save(tmp_path / "nowhere" / "a.npz", [np.ones(1)])


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_the_mode_of_the_file_respects_the_umask(path):
    old = os.umask(0o027)
    try:
        save(path, [np.ones(1)])
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.name == "nt", reason="needs the right to make links")
def test_a_link_stays_a_link(path):
    link = path.with_name(f"link{path.suffix}")
    link.symlink_to(path)
    save(link, [np.ones(1)])
    assert link.is_symlink()
    assert load(path)[0].tolist() == [1]


# ---- hostile files


def header_of(**changes):
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (header_of(dtype="F33"), "F33"),
        (header_of(dtype=["F32"]), "dtype"),
        (header_of(dtype="BF16", shape=[4]), "NumPy has no type"),
        (header_of(shape=[3]), "needs 12"),
        (header_of(shape=[-2]), "shape"),
        (header_of(shape=[2.0]), "shape"),
        (header_of(shape=[True, 2]), "shape"),
        (header_of(shape=[2**62, 2**62]), "shape"),
        (header_of(shape=[2**61, 2**61, 0], data_offsets=[0, 0]), ""),
        (header_of(shape=[1] * 40), "shape"),
        (header_of(shape=2), "shape"),
        (header_of(data_offsets=[0, 2**40], shape=[2**38]), "describes"),
        (header_of(data_offsets=[8, 16]), "gap"),
        (header_of(data_offsets=[8, 0]), "needs"),
        (header_of(data_offsets=[-8, 0]), "data_offsets"),
        (header_of(data_offsets=[0]), "data_offsets"),
        (header_of(data_offsets="08"), "data_offsets"),
        (header_of() | {"b": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}, "overlaps"),
        ({"a": {"dtype": "F32"}}, "needs dtype, shape and data_offsets"),
        ({"a": 1}, "needs dtype"),
        ({"__metadata__": {"a": 1}}, "strings"),
        ({"__metadata__": []}, "strings"),
        (header_of() | {"__metadata__": {"nnflat": "[]"}}, "JSON object"),
        (header_of() | {"__metadata__": {"nnflat": '{"aliases": 1}'}}, "aliases"),
        (header_of() | {"__metadata__": {"nnflat": '{"aliases": {"b": ["c", [0]]}}'}}, "aliases"),
        (header_of() | {"__metadata__": {"nnflat": '{"aliases": {"b": ["a", [3]]}}'}}, "aliases"),
        (header_of() | {"__metadata__": {"nnflat.arrays": '{"a": {"dtype": "complex128"}}'}}, "complex128"),
        (header_of() | {"__metadata__": {"nnflat.arrays": '{"a": 3}'}}, "note"),
        ({}, "describes"),
        (b"[]", "JSON object"),
        (b'{"a": ', "not valid JSON"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_header_is_a_value_error_that_names_the_file(header, message, tensors):
    with pytest.raises(ValueError, match=rf"tree\.safetensors: .*{message}"):
        load(write(tensors, header, bytes(8)))


@pytest.mark.parametrize("length", [9, 2**31, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_a_value_error(length, tensors):
    with pytest.raises(ValueError, match="the header claims"):
        load(write(tensors, b"{}", length=length))


def test_a_huge_header_is_a_value_error(tensors, monkeypatch):
    monkeypatch.setattr(files._safetensors, "MAX_HEADER", 100)
    with pytest.raises(ValueError, match="at most 100"):
        load(write(tensors, b"{" + b" " * 200 + b"}"))


def test_a_truncated_file_is_a_value_error(path):
    save(path, {"w": np.arange(4.0), "n": np.arange(3)})
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="tree"):
            load(path)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), suffix=st.sampled_from(SUFFIXES))
def test_a_damaged_file_loads_or_is_a_value_error(data, suffix, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    save(path, {"w": np.arange(4.0), "layer": nn.Dense(2, 1, "tanh", rng=np.random.default_rng(0))})
    damaged = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    with suppress(ValueError):
        load(path)


def test_a_compressed_npz_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", w=np.zeros(10**6))
    with pytest.raises(ValueError, match="compressed"):
        load(tmp_path / "a.npz")


def test_an_npz_with_objects_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.array([object()]))
    with pytest.raises(ValueError, match="never unpickled"):
        load(tmp_path / "a.npz")


def test_an_npz_member_that_claims_more_than_it_has_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.zeros(10))
    data = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(data.replace(b"(10,)", b"(99,)"))
    with pytest.raises(ValueError, match=r"a\.npz"):
        load(tmp_path / "a.npz")
