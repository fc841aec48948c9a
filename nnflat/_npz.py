"""The npz container: a zip of .npy members, as `numpy.savez` writes it; the metadata is one string array.

Members must be stored, not compressed: then nothing can unpack to more than the file's own size, and the
sizes are checked against it before anything is allocated. Nothing is ever unpickled.
"""

import io
import json
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from nnflat._safetensors import RESERVED, Entry, parse, strings

NAME = "npz"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_BROKEN = (
    zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, OSError, OverflowError, RuntimeError,
)  # fmt: skip


def holds(dtype: np.dtype) -> bool:
    """Say whether the format can hold arrays of `dtype` without pickling."""
    return not dtype.hasobject


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write arrays in their order, then the metadata."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in (dict(arrays) | {RESERVED: np.array(json.dumps(metadata))}).items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read(file: BinaryIO) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read every array, into memory of its own, and the metadata."""
    arrays = {entry.name: array for entry, array in _members(file)}
    return arrays, _metadata(arrays.pop(RESERVED, None))


def read_header(file: BinaryIO) -> tuple[list[Entry], dict[str, str]]:
    """Read the entries in the order of their bytes, and the metadata."""
    members = _members(file)
    metadata = next((array for entry, array in members if entry.name == RESERVED), None)
    return [entry for entry, _ in members if entry.name != RESERVED], _metadata(metadata)


def _members(file: BinaryIO) -> list[tuple[Entry, np.ndarray]]:
    try:
        return _read_members(file)
    except _BROKEN as error:
        raise ValueError(f"this is no npz file that can be read: {error}") from None


def _read_members(file: BinaryIO) -> list[tuple[Entry, np.ndarray]]:
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        infos = sorted(archive.infolist(), key=lambda info: info.header_offset)
        if len({info.filename for info in infos}) < len(infos):
            raise ValueError("a name occurs twice in the file")
        if packed := [info.filename for info in infos if info.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"{packed[0]} is compressed: numpy.savez stores, numpy.load reads this file")
        if sum(info.file_size for info in infos) > size:
            raise ValueError(f"the members claim more bytes than the file has ({size})")
        return [_member(info, archive.read(info)) for info in infos]


def _member(info: zipfile.ZipInfo, data: bytes) -> tuple[Entry, np.ndarray]:
    name = info.filename.removesuffix(".npy")
    array = _parse_npy(data, name)
    start = info.header_offset
    return Entry(name, array.dtype.name, array.shape, start, start + info.file_size), array


def _parse_npy(data: bytes, name: str) -> np.ndarray:
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"{name} has npy version {version}; {' and '.join(map(str, _HEADERS))} are read")
    shape, fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects, which are never unpickled here")
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes != len(data) - stream.tell():
        raise ValueError(f"{name} has {len(data)} bytes: a header and {n_bytes} are needed ({dtype} {shape})")
    array = np.ndarray(shape, dtype, data, stream.tell(), order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="))


def _metadata(array: np.ndarray | None) -> dict[str, str]:
    return {} if array is None else strings(parse(str(array), RESERVED))
