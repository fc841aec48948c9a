"""The safetensors container: named arrays and a dict of strings in one file, in NumPy alone.

The format (https://github.com/huggingface/safetensors, "Format"): the length of the header in 8 bytes,
little-endian; the header, a JSON object padded with spaces, name -> {dtype, shape, data_offsets} and
`__metadata__`, str -> str; the body, tensor after tensor, little-endian, in C order, with no gap or overlap.

 A  What the file says is checked against the size of the file before anything is allocated.
 B  A complex128 array is stored as (re, im) pairs of F64, since the format has no name for it; that, and
    Fortran order, is noted in `__metadata__["nnflat.arrays"]`, so that it reads back.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

NAME = "safetensors"
RESERVED = "__metadata__"
NOTES = "nnflat.arrays"
MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
MAX_DIMENSIONS = 32

# Names of the format, with their widths in bits; NumPy has a dtype for the first group only.
_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
_FOREIGN_BITS = {
    "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6,
    "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
_BITS = {name: 8 * np.dtype(code).itemsize for name, code in _DTYPES.items()} | _FOREIGN_BITS
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """Where one array stands in a file: dtype (as the format names it), shape, bytes [start, stop)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def holds(dtype: np.dtype) -> bool:
    """Say whether the format can hold arrays of `dtype`."""
    return dtype.newbyteorder("<") in _NAMES or dtype.newbyteorder("=") == np.complex128


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write arrays in their order; the body of arrays of one dtype is their flat vector."""
    bodies = {name: _body(array) for name, array in arrays.items()}
    notes = {name: note for name, array in arrays.items() if (note := _note(array))}
    header: dict[str, object] = {RESERVED: dict(metadata) | ({NOTES: json.dumps(notes)} if notes else {})}
    stop = 0
    for name, body in bodies.items():
        start, stop = stop, stop + body.nbytes
        header[name] = {"dtype": _NAMES[body.dtype], "shape": body.shape, "data_offsets": [start, stop]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for body in bodies.values():
        file.write(body.reshape(-1).view(np.uint8).data)


def _body(array: np.ndarray) -> np.ndarray:
    little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    return little.reshape(-1).view("<f8").reshape(*array.shape, 2) if little.dtype == "<c16" else little


def _note(array: np.ndarray) -> dict[str, str]:
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return ({"order": "F"} if fortran else {}) | ({"dtype": "complex128"} if array.dtype.char == "D" else {})


def read(file: BinaryIO) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read every array, into memory of its own, and the metadata."""
    entries, metadata = read_header(file)
    notes = parse(metadata.get(NOTES, "{}"), NOTES)
    return {entry.name: _read_array(file, entry, notes.get(entry.name, {})) for entry in entries}, metadata


def _read_array(file: BinaryIO, entry: Entry, note: object) -> np.ndarray:
    if entry.dtype not in _DTYPES:
        raise ValueError(f"{entry.name} has dtype {entry.dtype}, for which NumPy has no type")
    array = np.empty(entry.shape, _DTYPES[entry.dtype])
    file.seek(entry.start)
    if file.readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:  # type: ignore[attr-defined]
        raise ValueError(f"the file ends inside {entry.name}")
    return _as_noted(array.astype(array.dtype.newbyteorder("="), copy=False), entry.name, note)


def _as_noted(array: np.ndarray, name: str, note: object) -> np.ndarray:
    if note == {}:
        return array
    if not isinstance(note, dict):
        raise ValueError(f"the note on {name} is no JSON object")
    if note.get("dtype") == "complex128":
        if array.dtype != np.float64 or array.shape[-1:] != (2,):
            raise ValueError(f"{name} is noted as complex128, but is {array.dtype} of shape {array.shape}")
        array = array.view(np.complex128).reshape(array.shape[:-1])
    return np.asarray(array, order="F") if note.get("order") == "F" else array


def read_header(file: BinaryIO) -> tuple[list[Entry], dict[str, str]]:
    """Read and check the header: the entries in the order of their bytes, and the metadata."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    if len(prefix) < 8:
        raise ValueError(f"a safetensors file begins with 8 bytes of length; this one has {size} bytes")
    length = int.from_bytes(prefix, "little")
    if length > min(size - 8, MAX_HEADER):
        raise ValueError(
            f"the header claims {length} bytes; the file has {size - 8} after its length, and at most "
            f"{MAX_HEADER} are read"
        )
    header = parse(file.read(length), "the header")
    metadata = strings(header.pop(RESERVED, {}))
    entries = [_entry(name, value, 8 + length) for name, value in header.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    _check_body(entries, 8 + length, size)
    return entries, metadata


def parse(text: str | bytes, what: str) -> dict:
    """Read a JSON object, in which no name may occur twice."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a JSON object, not {type(value).__name__}")
    return value


def strings(metadata: object) -> dict[str, str]:
    """Return the metadata, if it is strings by name."""
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{RESERVED} must hold strings by name")
    return metadata


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return unique


def _entry(name: str, value: object, base: int) -> Entry:
    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
        raise ValueError(f"{name} needs dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"{name} has dtype {dtype!r}; the format knows {', '.join(_BITS)}")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{name} has shape {shape!r}; at most {MAX_DIMENSIONS} sizes >= 0 are needed")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{name} has data_offsets {offsets!r}; [start, stop] is needed")
    start, stop = offsets
    bits = math.prod(shape) * _BITS[dtype]
    if 8 * (stop - start) != bits:
        raise ValueError(f"{name} has {stop - start} bytes; {dtype} of shape {shape} needs {bits // 8}")
    return Entry(name, dtype, tuple(shape), base + start, base + stop)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**62 for n in value)


def _check_body(entries: list[Entry], base: int, size: int) -> None:
    stop = base
    for entry in entries:
        if entry.start != stop:
            kind = "overlaps what is before it" if entry.start < stop else "leaves a gap before it"
            raise ValueError(f"{entry.name} {kind}: it starts at byte {entry.start}, not {stop}")
        stop = entry.stop
    if stop != size:
        raise ValueError(f"the file has {size} bytes; its header describes {stop}")
