"""A curated folder as text: its text alone, in order, only if it is whole and finished."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.base.storage.commit import Staging, commit
from maskwright.text.corpus import saved
from maskwright.text.corpus.files import find
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions

LICENCES = {"web": "CC-BY-4.0"}


def curate(folder: Path, sizes: tuple[int, ...] = (2, 1, 3), made: str = saved.MADE) -> Path:
    """A folder as curate writes it: so many documents in each file."""

    def pack(*rows: dict[str, str]) -> bytes:
        return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)

    def write(stage: Staging) -> None:
        for number, size in enumerate(sizes):
            rows = [
                {"id": f"raw.txt:{n}", "text": f"good {number} {n}", "source": "web"}
                for n in range(size)
            ]
            stage.write_bytes(f"text/{number:05}.jsonl.gz", pack(*rows))
        stage.write_bytes("removed/gopher.jsonl.gz", pack({"id": "raw.txt:9", "text": "bad"}))
        left = {"documents": sum(sizes), "licences": LICENCES}
        stage.write_json("card.json", {"steps": [], "left": left})
        stage.write_bytes("card.md", b"# A card\n\nof a corpus\n")
        stage.write_bytes("recipe.toml", b"[gopher]\n")

    commit(folder, write, about={"made": made})
    return folder


def texts(*paths: Path) -> list[str]:
    return [document.text for document in Reader(list(paths))]


GOOD = ["good 0 0", "good 0 1", "good 1 0", "good 2 0", "good 2 1", "good 2 2"]


def test_its_text_alone_is_read_in_order(tmp_path: Path) -> None:
    clean = curate(tmp_path / "data" / "clean")
    reader = Reader(clean, ReadingOptions(notes=("id", "source")))
    assert [document.text for document in reader] == GOOD
    assert not reader.counts.ignored.files and not reader.counts.findings
    assert next(iter(reader)).notes == {"id": "raw.txt:0", "source": "web"}
    (tmp_path / "data" / "a.txt").write_text("further")
    assert texts(tmp_path / "data") == ["further", *GOOD], "below another folder, too"
    assert texts(clean / "text") == GOOD, "named by itself"
    assert texts(clean / "text" / "00002.jsonl.gz") == GOOD[3:]
    # The controls: labelled data are any folder, and so is one that no curation made.
    assert clean / "removed/gopher.jsonl.gz" in [s.path for s in find(clean, lambda paths: [])[0]]
    other = curate(tmp_path / "other", made="something else")
    (other / "MANIFEST.json").rename(tmp_path / "manifest")
    (other / "card.json").unlink()
    assert "bad" in texts(other)


SECOND = "text/00001.jsonl.gz"
CHANGES: dict[str, tuple[str, Callable[[bytes], bytes] | None]] = {
    "missing": (SECOND, None),
    "missing list": ("removed/gopher.jsonl.gz", None),
    "longer": (SECOND, lambda data: data + gzip.compress(b'{"text": "smuggled"}\n')),
    # The time in the header of gzip: the text is the same, and so is the size.
    "same size": (SECOND, lambda data: data[:4] + bytes([data[4] ^ 1]) + data[5:]),
    "added": ("text/more.jsonl", lambda data: b'{"text": "smuggled"}\n'),
    "manifest": ("MANIFEST.json", lambda data: data.replace(b'"bytes": ', b'"bytes": 1', 1)),
}


def change(clean: Path, kind: str) -> None:
    name, changed = CHANGES[kind]
    path = clean / name
    if changed is None:
        path.unlink()
    else:
        path.write_bytes(changed(path.read_bytes() if path.exists() else b""))


@pytest.mark.parametrize("kind", CHANGES)
def test_a_folder_that_is_not_as_it_was_made(tmp_path: Path, kind: str) -> None:
    clean = curate(tmp_path / "clean")
    assert texts(clean) == GOOD, "the control"
    change(clean, kind)
    with pytest.raises(DataError) as error:
        texts(clean)
    assert error.value.where and error.value.do, error.value


def test_a_changed_file_behind_a_limit(tmp_path: Path) -> None:
    clean = curate(tmp_path / "clean")
    assert len(list(Reader(clean, limit_bytes=20))) == 3
    change(clean, "same size")
    with pytest.raises(DataError):
        list(Reader(clean, limit_bytes=20))


def test_the_folder_of_work(tmp_path: Path) -> None:
    work = tmp_path / "clean.work"
    (work / "reading" / "1f").mkdir(parents=True)
    (work / "reading" / "1f" / "0.jsonl").write_text('{"text": "half"}\n')
    assert texts(work) == ["half"], "the control: any folder may have this name"
    (work / "reading" / "1f" / "shards.json").write_text("{}\n")
    for path in (work, tmp_path / "clean"):
        with pytest.raises(UsageError, match="not finished") as error:
            texts(path)
        assert "same curate command again" in str(error.value.do)
        assert str(tmp_path / "clean") in str(error.value.do)
    (tmp_path / "a.txt").write_text("other")
    reader = Reader(tmp_path)
    assert [document.text for document in reader] == ["other"], "passed over below another folder"
    assert reader.counts.ignored.files == [str(work)], "and said"
    clean = curate(tmp_path / "clean")
    assert texts(clean) == GOOD and texts(tmp_path) == ["other", *GOOD]
    with pytest.raises(UsageError) as error:
        texts(work)
    assert error.value.do == f"name {clean}"


def test_what_a_run_keeps_of_its_card(tmp_path: Path) -> None:
    clean = curate(tmp_path / "clean")
    kept, other = map(saved.curation_summary, (clean, curate(tmp_path / "b", (1,))))
    assert kept["licences"] == LICENCES and kept["documents"] == 6 and "steps" not in kept
    assert len(kept["fingerprint"]) == 64 and other["fingerprint"] != kept["fingerprint"]
    card = clean / "card.json"
    card.write_text(card.read_text().replace("CC-BY-4.0", "CC-BY-9.0"))
    with pytest.raises(MaskwrightError, match="not the one"):
        saved.curation_summary(clean)
