"""Tensors and plain values in one safetensors file, with a checksum and without pickle.

The format is that of the library of this name: eight bytes with the length of a header, the header
in JSON, and the bytes of all tensors.  The plain values are JSON in its metadata, and the last
tensor is the SHA-256 of everything before it.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unsplit.data.saving import replacing
from unsplit.data.swap import to_disk
from unsplit.errors import InputError

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

CHECKSUM = "sha256"
_CHECKSUM_BYTES = 32
# The library reads no longer headers.
_LONGEST_HEADER = 100_000_000


def save_state(path: str | os.PathLike[str], kind: str, state: Any) -> None:
    """Write a nested state: mappings, lists, tuples, plain values, tensors and NumPy arrays.

    The file appears when it is complete and on the disk, and then replaces an older one.

    Parameters
    ----------
    path : str or path
    kind : str
        What the file holds and in which version, such as "unsplit.training/1".
    state : mapping, list, tuple, plain value, Tensor or ndarray

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save_state(path, "unsplit.example/1", {"step": 3, "weights": [torch.ones(2)]})
    >>> load_state(path, "unsplit.example/1", "make it again")
    {'step': 3, 'weights': [tensor([1., 1.])]}
    """
    tensors: dict[str, Tensor] = {}
    plain = _packed(state, "state", tensors)
    metadata = {"format": kind, "state": json.dumps(plain)}
    header = _header(metadata, tensors)
    with replacing(path) as new, new.open("wb") as file:
        found = hashlib.sha256()
        parts = (_bytes_of(tensor) for tensor in tensors.values())
        for part in chain((len(header).to_bytes(8, "little"), header), parts):
            file.write(part)
            found.update(part)
        file.write(found.digest())
    to_disk(Path(path).parent)


def load_state(path: str | os.PathLike[str], kind: str, advice: str) -> Any:
    """Return the state that :func:`save_state` wrote; a damaged or changed file is refused.

    Parameters
    ----------
    path : str or path
    kind : str
        What the file must hold; another kind or version is an error.
    advice : str
        What to do about a file that is refused.

    Examples
    --------
    See :func:`save_state`.
    """
    return _loaded(path, kind, advice, with_tensors=True)


def plain_state(path: str | os.PathLike[str], kind: str, advice: str) -> Any:
    """Return a state quickly, with None instead of tensors and without testing the checksum.

    Parameters
    ----------
    path, kind, advice
        As for :func:`load_state`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "state.safetensors"
    >>> save_state(path, "unsplit.example/1", {"step": 3, "weights": [torch.ones(2)]})
    >>> plain_state(path, "unsplit.example/1", "make it again")
    {'step': 3, 'weights': [None]}
    """
    return _loaded(path, kind, advice, with_tensors=False)


def _loaded(path: str | os.PathLike[str], kind: str, advice: str, with_tensors: bool) -> Any:
    try:
        with open(path, "rb") as file:
            start, header, entries = _read_header(file)
            metadata = entries.pop("__metadata__")
            named = metadata["format"]
            plain = json.loads(metadata["state"])
            found = _read_tensors(file, start + header, entries) if with_tensors else None
            state = _unpacked(plain, found) if named == kind else None
    except FileNotFoundError:
        raise
    except MemoryError:
        raise InputError(f"{path} does not fit into memory; {advice}.") from None
    except Exception:  # damaged files make json and torch raise nearly anything
        raise InputError(f"{path} is damaged or was not written by unsplit; {advice}.") from None
    if named != kind:
        raise InputError(
            f"{path} has format {named!r}, this version reads {kind!r}; use the version of unsplit "
            f"that wrote it, or {advice}."
        )
    return state


def _header(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = _entry(_NAMES[tensor.dtype], list(tensor.shape), start, end)
    entries[CHECKSUM] = _entry("U8", [_CHECKSUM_BYTES], end, end + _CHECKSUM_BYTES)
    text = json.dumps(entries).encode()
    return text + b" " * (-len(text) % 8)


def _entry(dtype: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def _bytes_of(tensor: Tensor) -> bytes | memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    # Not of nothing, which cannot be viewed as bytes.
    return flat.view(torch.uint8).numpy().data if len(flat) else b""


def _read_header(file: BufferedReader) -> tuple[bytes, bytes, dict[str, Any]]:
    start = file.read(8)
    n_header = int.from_bytes(start, "little")
    _require(len(start) == 8 and n_header <= min(_size_of(file) - 8, _LONGEST_HEADER))
    header = file.read(n_header)
    return start, header, json.loads(header)


def _read_tensors(
    file: BufferedReader, before: bytes, entries: dict[str, Any]
) -> dict[str, Tensor]:
    """Read what follows the header; memory is only taken for bytes that are really there."""
    found = hashlib.sha256(before)
    size = _size_of(file) - len(before)
    _require(entries.pop(CHECKSUM)["data_offsets"] == [size - _CHECKSUM_BYTES, size])
    tensors = {}
    for name, entry in _in_order(entries, size - _CHECKSUM_BYTES):
        data = np.empty(entry["data_offsets"][1] - entry["data_offsets"][0], np.uint8)
        _require(file.readinto(data.data) == len(data))
        found.update(data.data)
        dtype = DTYPES[entry["dtype"]]
        flat = torch.from_numpy(data).view(dtype) if len(data) else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    _require(file.read() == found.digest())
    return tensors


def _size_of(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _in_order(entries: Mapping[str, Any], size: int) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in the order of their bytes, which must be all there are."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = entry["data_offsets"]
        _require(start == at and all(type(n) is int and n >= 0 for n in entry["shape"]))
        _require(end - start == math.prod(entry["shape"]) * DTYPES[entry["dtype"]].itemsize)
        at = end
        _require(at <= size)
        yield name, entry
    _require(at == size)


def _packed(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Turn a state into plain JSON, and collect its tensors by their names."""
    if isinstance(value, np.ndarray):
        tensors[name] = torch.from_numpy(np.ascontiguousarray(value))
        return {"array": name}
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        # As pairs, because keys may be numbers.
        return {"map": [[k, _packed(v, f"{name}.{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_packed(v, f"{name}.{i}", tensors) for i, v in enumerate(value)]}
    return value.item() if isinstance(value, np.generic) else value


def _unpacked(plain: Any, tensors: Mapping[str, Tensor] | None) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, value),) = plain.items()
    if kind in ("array", "tensor"):
        if tensors is None:
            return None
        return tensors[value].numpy() if kind == "array" else tensors[value]
    if kind == "map":
        return {key: _unpacked(item, tensors) for key, item in value}
    return {"list": list, "tuple": tuple}[kind](_unpacked(item, tensors) for item in value)


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError
