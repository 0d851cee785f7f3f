"""Documents that wait on the disk come back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.base.errors import StoppedError
from maskwright.text.corpus import read
from maskwright.text.corpus.read import Spool
from maskwright.text.corpus.reading import Document


def documents(count: int) -> list[Document]:
    return [
        Document(text=f"text {n} ☃\n\ttwo\r " + "x" * n, source=f"a{n % 3}", id=f"a:{n}")
        for n in range(count)
    ]


@pytest.mark.parametrize("in_memory", [1 << 20, 100])
def test_they_come_back_in_order_as_often_as_asked(
    in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "IN_MEMORY", in_memory)
    kept, given = Spool(tmp_path / "not" / "there"), documents(60)
    for each in given:
        kept.add(each)
    assert list(kept) == list(kept) == given
    one, two = iter(kept), iter(kept)  # taking turns
    assert [(next(one), next(two)) for _ in given] == [(each, each) for each in given]
    kept.add(given[0])
    assert list(kept) == [*given, given[0]] and kept.complete
    assert not list(tmp_path.iterdir()), "a killed process leaves nothing"


def test_names_of_files_that_are_no_text_come_back(tmp_path: Path) -> None:
    kept, odd = Spool(tmp_path), Document(text="a", source="b\udcff.txt", id="b\udcff.txt:1")
    kept.add(odd)
    assert list(kept) == [odd]


def test_no_more_is_kept_than_was_asked_for(tmp_path: Path) -> None:
    kept = Spool(tmp_path, 200)
    for each in documents(20):
        kept.add(each)
    assert not kept.complete and 0 < len(list(kept)) < 20


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Spool(tmp_path)

    def full(data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept._file, "write", full)
    with pytest.raises(StoppedError, match="full"):
        kept.add(documents(1)[0])
