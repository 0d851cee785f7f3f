"""Tensors in the safetensors format, in one file or in several with an index; never pickles.

    8 bytes      length of the header, little-endian
    header       JSON: {"__metadata__": {...}, name: {"dtype", "shape", "data_offsets"}, ...}
    data         the tensors, contiguous

The header is checked more strictly than by the format's own library (duplicate keys, gaps, bytes
that belong to no tensor, overflowing counts) before data is read, so that shapes can be compared
with a config before allocation. Writing streams one tensor at a time, without a second copy of the
model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError, StorageError
from maskwright.base.storage.strict_json import parse_object
from maskwright.model.checkpoint.safe_read import (
    plain,
    read_json,
    reading,
    regular_file,
    write_json,
)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
LARGEST_HEADER = 64 << 20
LARGEST_SHARD = 5_000_000_000
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# The other dtypes of the format: valid in a file, but not supported here.
UNREAD = {
    *("F4", "F6_E2M3", "F6_E3M2", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
    *("U16", "U32", "U64", "C64"),
}

Chunks = Iterator[bytes | memoryview]
Content = bytes | Callable[[], Chunks]
"""The content of a file: its bytes, or a function that yields them in chunks."""


@dataclass(frozen=True)
class Entry:
    """The location of one tensor: its file, first byte and number of bytes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    file: Path
    begin: int
    bytes: int


@dataclass(frozen=True)
class Tensors:
    """The tensors of a file or folder by name; only the headers have been read and checked."""

    entries: dict[str, Entry]
    files: tuple[Path, ...]

    def read(self, name: str) -> Tensor:
        """Read one tensor into new memory.

        Raises:
            StorageError: the file was truncated meanwhile, or cannot be read.
        """
        entry = self.entries[name]
        data = bytearray(entry.bytes)
        with reading(entry.file), open(entry.file, "rb") as file:
            file.seek(entry.begin)
            count = file.readinto(data)
        if count != entry.bytes:
            raise StorageError(
                "the weights file is cut short",
                where=entry.file,
                found=f"{count} bytes of {name!r}",
                wanted=entry.bytes,
                do="copy or download the file again",
            )
        if not data:
            return torch.empty(entry.shape, dtype=entry.dtype)
        return torch.frombuffer(data, dtype=entry.dtype).reshape(entry.shape)


# ------------------------------------------------------------------------------ reading
def open_file(path: Path) -> Tensors:
    """Read and check the header of one safetensors file.

    Raises:
        CheckpointError: truncated, damaged or not a safetensors file.
        StorageError: it cannot be read.
    """
    with reading(path), open(path, "rb") as file:
        size = path.stat().st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise _damaged(path, "the header's length", f"{length} of {size} bytes in the file")
        text = file.read(length)
    header = parse_object(text, f"{path}: header", error=CheckpointError, largest=LARGEST_HEADER)
    about = header.pop("__metadata__", {})
    if not isinstance(about, dict) or not all(isinstance(v, str) for v in about.values()):
        raise _damaged(path, "the header's __metadata__", repr(about))
    data_begin = 8 + length
    entries = {name: _entry(path, name, value, data_begin) for name, value in header.items()}
    end = data_begin
    for entry in sorted(entries.values(), key=lambda e: (e.begin, e.bytes)):
        if entry.begin != end:
            raise _damaged(path, "the order of tensors", f"byte {entry.begin}, expected {end}")
        end += entry.bytes
    if end != size:
        raise _damaged(path, "the length of the file", f"{size} bytes, by its header {end}")
    return Tensors(entries, (path,))


def open_folder(folder: Path) -> Tensors:
    """Open the weights of a model folder: `model.safetensors`, or the files in its index.

    Raises:
        CheckpointError: there are none, only pickles, or they are damaged.
        StorageError: they cannot be read.
    """
    with reading(folder):
        if (folder / WEIGHTS).exists():
            return open_file(regular_file(folder, WEIGHTS))
        if (folder / INDEX).exists():
            return _open_shards(folder)
        names = sorted(path.name for path in folder.iterdir())
    if any(name.endswith(PICKLED) for name in names):
        raise CheckpointError(
            "the weights are pickled, and reading a pickle can run code",
            where=folder,
            found=", ".join(name for name in names if name.endswith(PICKLED)),
            wanted=WEIGHTS,
            do="save the model again as safetensors with the tool that made it",
        )
    raise CheckpointError(
        "the folder has no weights",
        where=folder,
        found=", ".join(names),
        wanted=f"{WEIGHTS} or {INDEX}",
    )


def _open_shards(folder: Path) -> Tensors:
    where = folder / INDEX
    weight_map = read_json(folder, INDEX, LARGEST_HEADER).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            "the index has no weight_map", where=where, do="copy or download the index again"
        )
    for file in weight_map.values():
        if not plain(file, where).endswith(".safetensors"):
            raise CheckpointError(
                "the index names a file that is not safetensors",
                where=where,
                found=file,
                wanted="names that end in .safetensors",
                do="save the model again as safetensors",
            )
    entries: dict[str, Entry] = {}
    files = tuple(regular_file(folder, file) for file in sorted(set(weight_map.values())))
    for path in files:
        listed_names = {name for name, file in weight_map.items() if file == path.name}
        shard_entries = open_file(path).entries
        # The reverse is common: indices also list second names of tied tensors, which the files
        # omit. Tensors that are needed but in no file are detected by `matching.match`.
        if unlisted := sorted(set(shard_entries) - listed_names):
            raise CheckpointError(
                "the file holds tensors that the index does not list for it",
                where=path,
                found=unlisted[:10],
                wanted=f"all of them in {INDEX}",
                do="copy or download the folder again",
            )
        entries |= shard_entries
    return Tensors(entries, files)


def _entry(path: Path, name: str, value: Any, data_begin: int) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"the entry of {name!r}", repr(value))
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if isinstance(dtype, str) and dtype in UNREAD:
        raise CheckpointError(
            "a tensor has an unsupported dtype",
            where=f"{path}: {name!r}",
            found=dtype,
            wanted=", ".join(DTYPES),
            do="save it as float32, float16 or bfloat16",
        )
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _damaged(path, f"the dtype of {name!r}", repr(dtype))
    if not _counts(shape) or len(shape) > 8 or not _counts(offsets) or len(offsets) != 2:
        raise _damaged(path, f"shape or offsets of {name!r}", f"{shape!r}, {offsets!r}")
    count = math.prod(shape) * DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != count:
        raise _damaged(path, f"the bytes of {name!r}", f"{offsets!r} for {count} bytes")
    return Entry(DTYPES[dtype], tuple(shape), path, data_begin + offsets[0], count)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 48 for v in value)


def _damaged(path: Path, field: str, content: str) -> CheckpointError:
    return CheckpointError(
        f"{field} cannot be right", where=path, found=content, do="copy or download the file again"
    )


# ------------------------------------------------------------------------------ writing
def chunks(tensors: Mapping[str, Tensor]) -> Chunks:
    """Yield the bytes of a safetensors file in chunks. Tensors are ordered by decreasing item size,
    then by name, so that data is aligned and equal tensors give equal bytes."""
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.numel() * tensor.dtype.itemsize
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        if tensors[name].numel():
            yield _bytes_of(tensors[name])


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors.values())


def weight_files(tensors: Mapping[str, Tensor], largest: int = LARGEST_SHARD) -> dict[str, Content]:
    """Return the weight files of a model by name: one, or several and an index if they exceed
    `largest` bytes (a single tensor is never split)."""
    shards: list[dict[str, Tensor]] = [{}]
    for name, tensor in tensors.items():
        if shards[-1] and num_bytes(shards[-1]) + num_bytes({name: tensor}) > largest:
            shards.append({})
        shards[-1][name] = tensor
    if len(shards) == 1:
        return {WEIGHTS: lambda: chunks(shards[0])}
    files: dict[str, Content] = {}
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        files[file] = lambda shard=shard: chunks(shard)  # type: ignore[misc]
        weight_map |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": num_bytes(tensors)}, "weight_map": weight_map}
    return {**files, INDEX: write_json(index)}


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
