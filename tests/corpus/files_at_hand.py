"""Small files and how they are read, for the tests of the readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.base.errors import MaskwrightError
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import Document, ReadingOptions

SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=1.0)


def write(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def documents(path: Path, **choices: object) -> list[Document]:
    return list(Reader(path, ReadingOptions(**choices)))  # type: ignore[arg-type]


def texts(path: Path, **choices: object) -> list[str]:
    return [document.text for document in documents(path, **choices)]


def lines_of(path: Path, **choices: object) -> list[int]:
    """The line numbers in the documents' ids."""
    return [int(d.id.rpartition(":")[2]) for d in documents(path, **choices)]


def refusal(kind: type[MaskwrightError], path: Path, **choices: object) -> MaskwrightError:
    """The error that reading `path` raises; it names the file and a remedy or what is wanted."""
    with pytest.raises(kind) as caught:
        documents(path, **choices)
    error = caught.value
    assert type(error) is kind
    assert error.where and path.name in error.where, error
    assert error.found, error
    assert error.wanted or error.do, error
    return error
