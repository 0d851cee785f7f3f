"""The safetensors form, read strictly and written as the format's own library does."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.base.errors import CheckpointError, MaskwrightError, StorageError
from maskwright.base.storage.strict_json import parse_object
from maskwright.model.checkpoint import files, safe_read

TENSORS = {
    "a.weight": torch.arange(6.0).reshape(2, 3),
    "half": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).bfloat16(),
    "ids": torch.arange(4),
    "flags": torch.tensor([True, False, True]),
    "nothing": torch.zeros(0, 4),
    "one": torch.tensor(2.5, dtype=torch.float64),
    "turned": torch.arange(12.0).reshape(3, 4).T,
}


def written(path: Path, tensors: dict[str, torch.Tensor] = TENSORS) -> Path:
    path.write_bytes(b"".join(files.chunks(tensors)))
    return path


def with_header(path: Path, header: Any, data: bytes = b"\0" * 8) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


# ------------------------------------------------------------------------------ both ways
def test_the_library_reads_what_we_write(tmp_path: Path) -> None:
    path = written(tmp_path / "m.safetensors")
    theirs = safetensors.torch.load_file(path)
    assert theirs.keys() == TENSORS.keys()
    assert all(torch.equal(theirs[name], TENSORS[name]) for name in TENSORS)
    with safetensors.safe_open(path, "pt") as opened:
        assert opened.metadata() == {"format": "pt"}


def test_we_read_what_the_library_writes(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    plain = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    safetensors.torch.save_file(plain, path)
    opened = files.open_file(path)
    assert opened.entries.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert torch.equal(opened.read(name), tensor) and opened.read(name).dtype == tensor.dtype


def test_equal_tensors_give_equal_bytes() -> None:
    turned = dict(reversed(TENSORS.items()))
    assert b"".join(files.chunks(TENSORS)) == b"".join(files.chunks(turned))


def test_shards_and_index_hold_the_same(tmp_path: Path) -> None:
    tensors = {f"t{i}": torch.full((10,), float(i)) for i in range(7)}
    made = files.weight_files(tensors, largest=100)
    for name, content in made.items():
        data = content if isinstance(content, bytes) else b"".join(content())
        (tmp_path / name).write_bytes(data)
    assert sorted(made)[0] == "model-00001-of-00004.safetensors"
    assert json.loads((tmp_path / files.INDEX).read_text())["metadata"] == {"total_size": 280}
    opened = files.open_folder(tmp_path)
    assert all(torch.equal(opened.read(name), tensors[name]) for name in tensors)
    assert len(opened.files) == 4


# ------------------------------------------------------------------------------ F89: damage
GOOD = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
BAD_HEADERS: dict[str, Any] = {
    "no object": [],
    "unknown dtype": {"w": {"dtype": "F31", "shape": [2], "data_offsets": [0, 8]}},
    "dtype no text": {"w": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}},
    "negative size": {"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
    "bool size": {"w": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}},
    "text size": {"w": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}},
    "fraction": {"w": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}},
    "overflow": {"w": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 8]}},
    "wraps to zero": {"w": {"dtype": "F32", "shape": [1 << 32, 1 << 32], "data_offsets": [0, 0]}},
    "offsets beyond": {"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    "offsets turned": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
    "negative offset": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}},
    "three offsets": {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}},
    "no offsets": {"w": {"dtype": "F32", "shape": [2]}},
    "further key": {"w": {**GOOD["w"], "offset": 3}},
    "no entry": {"w": None},
    "hole at the start": {"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
    "bytes without owner": {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
    "overlap": {**GOOD, "v": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    "many axes": {"w": {"dtype": "F32", "shape": [1] * 9 + [2], "data_offsets": [0, 8]}},
    "metadata no table": {"__metadata__": 3, **GOOD},
    "metadata no text": {"__metadata__": {"format": 3}, **GOOD},
    "key twice": b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{}}',
    "not UTF-8": b'{"\xff":1}',
    "not a number": b'{"w":NaN}',
    "too large a number": b'{"w":1e999}',
    "too many digits": b'{"w":' + b"9" * 5000 + b"}",
    "too deep": b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "broken off": b'{"w":',
}


def test_the_header_that_is_varied_is_good(tmp_path: Path) -> None:
    assert files.open_file(with_header(tmp_path / "m", GOOD)).entries["w"].shape == (2,)


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_F89_a_header_that_cannot_be_right(tmp_path: Path, header: Any) -> None:
    path = with_header(tmp_path / "m.safetensors", header)
    with pytest.raises(CheckpointError) as refused:
        files.open_file(path)
    assert "m.safetensors" in str(refused.value)


@pytest.mark.parametrize(
    "header",
    [
        {**GOOD, "v": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
    ],
)
def test_F89_a_hole_and_an_overlap_of_equal_size(tmp_path: Path, header: Any) -> None:
    data = b"\0" * 8 * len(header)
    with pytest.raises(CheckpointError):
        files.open_file(with_header(tmp_path / "m", header, data))


@pytest.mark.parametrize("length", [0, 1, 9, 1 << 30, (1 << 64) - 1])
def test_F89_a_header_length_that_cannot_be_right(tmp_path: Path, length: int) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="length"):
        files.open_file(path)


def test_F89_every_truncation_is_noticed(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").read_bytes()
    cut = tmp_path / "cut"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            files.open_file(cut)
    cut.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError):
        files.open_file(cut)


def test_F89_flipped_bits_give_a_file_or_a_refusal(tmp_path: Path) -> None:
    whole = written(tmp_path / "whole").read_bytes()
    draw, path, refused = random.Random(0), tmp_path / "flipped", 0
    for _ in range(600):
        data = bytearray(whole)
        data[draw.randrange(8 + int.from_bytes(whole[:8], "little"))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        try:
            opened = files.open_file(path)
        except MaskwrightError:
            refused += 1
        else:
            assert sum(entry.bytes for entry in opened.entries.values()) <= len(whole)
            for name in opened.entries:
                opened.read(name)
    assert refused > 200


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F4", "U16", "C64"])
def test_a_type_of_the_format_that_is_not_read_is_no_damage(tmp_path: Path, dtype: str) -> None:
    header = {"w": {"dtype": dtype, "shape": [2], "data_offsets": [0, 8]}}
    with pytest.raises(CheckpointError) as refused:
        files.open_file(with_header(tmp_path / "m.safetensors", header))
    assert refused.value.found == dtype and "m.safetensors: 'w'" in str(refused.value.where)
    assert refused.value.wanted == ", ".join(files.DTYPES)


def forbidden(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_weights_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read all, so the system's answer is made here."""
    path = written(tmp_path / files.WEIGHTS)
    opened = files.open_folder(tmp_path)
    monkeypatch.setattr(files, "open", forbidden, raising=False)
    for act in (lambda: files.open_folder(tmp_path), lambda: opened.read("one")):
        with pytest.raises(StorageError, match="Permission denied") as refused:
            act()
        assert refused.value.where == str(path)
    path.unlink()
    monkeypatch.setattr(Path, "iterdir", forbidden)
    with pytest.raises(StorageError, match="Permission denied") as refused:
        files.open_folder(tmp_path)
    assert refused.value.where == str(tmp_path)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "m")
    opened = files.open_file(path)
    os.truncate(path, 200)
    with pytest.raises(StorageError):
        opened.read("turned")


# ------------------------------------------------------------------------------ F88, F90
def test_F88_pickled_weights_are_named_and_not_read(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    payload = b"cposix\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR."
    for name in ("pytorch_model.bin", "model.pt", "weights.pkl"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_bytes(payload)
        with pytest.raises(CheckpointError) as refused:
            files.open_folder(folder)
        assert (refused.value.found, refused.value.wanted) == (name, files.WEIGHTS)
    assert not canary.exists()


def test_a_folder_without_weights_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(CheckpointError) as refused:
        files.open_folder(tmp_path)
    assert refused.value.found == "notes.txt"


# ------------------------------------------------------------------------------ F92: names
TRAVERSALS = [
    *("../secret.safetensors", "/etc/secret.safetensors", "..\\secret.safetensors"),
    *("C:\\secret.safetensors", "sub/m.safetensors", "m\0.safetensors", "..safetensors"),
    *("%2e%2e%2fsecret.safetensors", "-m.safetensors", "", " m.safetensors", "m.safetensors\n"),
    *("ｍ.safetensors", "a" * 200 + ".safetensors"),
]


@pytest.mark.parametrize("name", [*TRAVERSALS, 3, None, ["m.safetensors"]])
def test_F92_an_index_names_plain_files_only(tmp_path: Path, name: Any) -> None:
    written(tmp_path / "secret.safetensors", {"w": torch.zeros(2)})
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / files.INDEX).write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(CheckpointError) as refused:
        files.open_folder(folder)
    assert str(refused.value.found)[:40] in repr(name)


@pytest.mark.parametrize(
    "index",
    [
        {"weight_map": {"w": "config.json"}},
        {"weight_map": {"w": "gone.safetensors"}},
        {"weight_map": {"v": "m.safetensors"}},
        {"weight_map": {}},
        {"weight_map": ["m.safetensors"]},
        {},
    ],
)
def test_an_index_that_does_not_fit(tmp_path: Path, index: Any) -> None:
    written(tmp_path / "m.safetensors", {"w": torch.zeros(2)})
    (tmp_path / files.INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError):
        files.open_folder(tmp_path)


def test_F92_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    outside = written(tmp_path / "secret.safetensors", {"w": torch.zeros(2)})
    (folder / files.WEIGHTS).symlink_to(outside)
    with pytest.raises(CheckpointError):
        files.open_folder(folder)


@pytest.mark.parametrize("blob", ["snapshots/abc/inner.safetensors", "blobs/123"])
def test_a_folder_and_a_download_cache_may_have_blobs_beside(tmp_path: Path, blob: str) -> None:
    cache = tmp_path / "models--x"
    for folder in ("snapshots/abc", "blobs"):
        (cache / folder).mkdir(parents=True)
    written(cache / blob, {"w": torch.ones(2)})
    (cache / "snapshots/abc" / files.WEIGHTS).symlink_to(f"../../{blob}")
    opened = files.open_folder(cache / "snapshots/abc")
    assert torch.equal(opened.read("w"), torch.ones(2))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_regular_files_are_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / files.WEIGHTS)
    with pytest.raises(CheckpointError):
        files.open_folder(tmp_path)


# ------------------------------------------------------------------------------ JSON
def test_json_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"{}" + b" " * 200)
    assert safe_read.read_json(tmp_path, "config.json") == {}
    with pytest.raises(CheckpointError, match="too large"):
        safe_read.read_json(tmp_path, "config.json", largest=100)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_json_comes_back(value: dict[str, Any]) -> None:
    written = safe_read.write_json(value)
    assert parse_object(written, "x", error=CheckpointError, largest=len(written)) == value
