"""What goes wrong on the way: said in words, with advice that works, and nothing left behind."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from curate.test_engine import OPTIONS, content, rows_of
from maskwright.ask.evaluate.prove_curation import prove
from maskwright.base.errors import ConfigError, DataError, OutputError, UsageError
from maskwright.base.storage.manifest import MANIFEST
from maskwright.cli.main import main
from maskwright.text.corpus.read import Reader
from maskwright.text.curate.curation import Options, curate, work_folder
from maskwright.text.curate.engine import daft_engine
from maskwright.text.curate.recipe import CurationRecipe, make
from maskwright.text.curate.why import why

pytest.importorskip("daft")
UPDATE = Options(reading=OPTIONS.reading, update=True)


def recipe() -> CurationRecipe:
    return make(["normalise", "exact-duplicates"], {})


def write_texts(folder: Path, count: int = 12) -> Path:
    folder.mkdir()
    rows = [
        {"id": f"d{n}", "text": f"This is document number {n % 9} of them."} for n in range(count)
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]
    ]


def test_a_damaged_piece_is_said_and_made_again_once_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, clean = write_texts(tmp_path / "text"), tmp_path / "clean"
    curate(text, clean, recipe(), OPTIONS)
    whole, work = content(clean), work_folder(clean)
    pieces = [path for path in sorted(work.rglob("*")) if path.is_file()]
    pieces = [path for path in pieces if path.parent.name != "known"]
    assert {path.relative_to(work).parts[0] for path in pieces} == {
        "reading",
        "segments",
        "passes",
        "packed",
    }
    for path in pieces:
        monkeypatch.setattr(daft_engine, "_INTACT", set())
        data = path.read_bytes()
        folder = next(above for above in path.parents if (above / MANIFEST).is_file())
        if path.name == "facts.json":
            path.unlink()
        else:
            middle = len(data) // 2
            path.write_bytes(
                data[:middle] + bytes([(data + b"x")[middle] ^ 1]) + data[middle + 1 :]
            )
        shutil.rmtree(clean)
        with pytest.raises(DataError) as caught:
            curate(text, clean, recipe(), OPTIONS)
        assert f"{folder};" in str(caught.value.do) and not clean.exists()
        shutil.rmtree(folder)
        curate(text, clean, recipe(), OPTIONS)
        assert content(clean) == whole


def test_a_damaged_table_of_what_is_known_is_written_anew(tmp_path: Path) -> None:
    text, clean = write_texts(tmp_path / "text"), tmp_path / "clean"
    curate(text, clean, recipe(), OPTIONS)
    whole, work = content(clean), work_folder(clean)
    for path in (work / "known").iterdir():
        path.write_bytes(b"PAR1")
    shutil.rmtree(work / "segments")
    shutil.rmtree(clean)
    curate(text, clean, recipe(), OPTIONS)
    assert content(clean) == whole


def test_a_result_inside_what_is_read_is_refused(tmp_path: Path) -> None:
    text = write_texts(tmp_path / "text")
    (tmp_path / "link").symlink_to(text)
    before = content(tmp_path)
    for out in (text / "clean", tmp_path / "link" / "clean"):
        with pytest.raises(OutputError):
            curate(text, out, recipe(), OPTIONS)
    assert content(tmp_path) == before and sorted(os.listdir(text)) == ["a.jsonl"]
    clean = tmp_path / "clean"
    curate(text, clean, recipe(), OPTIONS)
    for path in (clean, clean / "text", work_folder(clean)):
        with pytest.raises(OutputError):
            curate(path, clean, recipe(), UPDATE)
    curate(clean, tmp_path / "again", recipe(), OPTIONS)  # beside it is fine
    assert len(rows_of(tmp_path / "again", "text")) == len(rows_of(clean, "text")) == 9


def test_columns_of_any_name_come_out_as_they_came(tmp_path: Path) -> None:
    notes = {"row": 5, "document": "d", "note.x": "n", "source": "s", "read_at": "theirs:1"}
    notes |= {"": "no name", "step": "b", "rows": None, "bytes": 10**30, "file": "f", "line": 3}
    notes |= {"language": "Klingon"}
    rows = [
        {"id": name, "text": f"A text of its own, number {n}.", **notes}
        for n, name in enumerate(["a\nb", 7, 7, "\x1b[2J", "\u2028", "", None])
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curate(tmp_path / "a.jsonl", tmp_path / "clean", recipe(), OPTIONS)
    found = rows_of(tmp_path / "clean", "text")
    assert len(found) == len(rows)
    wanted = {n: value for n, value in notes.items() if value is not None and n != "read_at"}
    for row in found:
        assert {name: row[name] for name in wanted} == wanted
        assert row["read_at_before"] == "theirs:1"
    assert [row.get("read_at", row["id"])[-2:] for row in found] == [f":{n}" for n in range(1, 8)]
    assert [row["id"] for row in found[:3]] == ["a\nb", 7, 7]
    assert [fate.place[-2:] for fate in why(tmp_path / "clean", "7").fates] == [":2", ":3"]
    # Values of a column that a step writes, too, do not go unnoticed.
    card = curate(tmp_path / "a.jsonl", tmp_path / "noted", make(["language"]), OPTIONS)
    (said,) = card["steps"][0]["findings"]
    assert said["name"] == "column-replaced" and " 7 " in said["what"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--tokenizer", "text"], "tokenizer.json"),
        (["--write-recipe", "text/a.jsonl"], "choose another name"),
        (["--write-recipe", "none/recipe.toml"], "no such folder"),
        (["--steps", ","], "--steps"),
        (["--steps", "toxicity", "--set", 'toxicity.words=["none.txt"]'], "none.txt, which does"),
        (["--steps", "toxicity", "--set", 'toxicity.words=["text"]'], "text, a folder"),
        (["--steps", "language", "--set", 'language.keep=["english"]'], "does not know"),
        (
            ["--steps", "classifier", "--set", "classifier.examples=text/a.jsonl"],
            "roles of the columns",
        ),
        (["--steps", "perplexity", "--set", 'perplexity.good=["text/b"]'], "which does not exist"),
    ],
)
def test_what_is_known_before_the_work_is_said_before_it(
    asked: list[str],
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_texts(tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    assert main(["curate", "text", "--out", "clean", *asked]) != 0
    assert said in capfd.readouterr().err
    assert os.listdir(tmp_path) == ["text"] and os.listdir("text") == ["a.jsonl"]


def test_a_changed_list_of_words_counts_in_the_same_process(tmp_path: Path) -> None:
    text, words = write_texts(tmp_path / "text"), tmp_path / "words.txt"
    removes = make(["toxicity"], {"toxicity": {"words": [str(words)]}})
    words.write_text("nothing\n")
    assert curate(text, tmp_path / "clean", removes, OPTIONS)["left"]["documents"] == 12
    words.write_text("number 3\n")
    assert curate(text, tmp_path / "clean", removes, UPDATE)["left"]["documents"] == 11


def test_web_pages_are_documents_and_what_is_not_read_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = write_texts(tmp_path / "text")
    page = "<html><body><p>A page &amp; its\n\n\nwords.</p><p>More.</p></body></html>"
    (text / "page.HTML").write_text(page)
    (text / "b.htm.gz").write_bytes(gzip.compress(page.replace("A", "Another").encode()))
    for name in ("c.pdf", "d.pdf", "e"):
        (text / name).write_text("x")
    assert main(["curate", str(text), "--out", str(tmp_path / "clean"), "--steps", "html"]) == 0
    (left,) = (tmp_path / "clean/text").glob("*")
    found = {
        row["id"].rpartition("/")[2]: row["text"] for row in lines_of(left) if "/" in row["id"]
    }
    assert len(found) == 2 and found["page.HTML:1"].split()[:3] == ["A", "page", "&"]
    assert capfd.readouterr().err.count(".pdf 2") == 1, "told once"
    with pytest.raises(UsageError) as refusal:
        Reader(text / "page.HTML")
    assert "maskwright curate" in str(refusal.value.do)


def test_pieces_that_are_damaged_or_lost_prove_nothing(tmp_path: Path) -> None:
    text, clean = write_texts(tmp_path / "text"), tmp_path / "clean"
    curate(text, clean, recipe(), OPTIONS)
    (piece,) = (work_folder(clean) / "reading").iterdir()
    (piece / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError) as caught:
        prove(clean, held_out=[text])
    assert "--out" in str(caught.value.do)
    with pytest.raises(ConfigError):
        prove(clean, budget="much")
    assert not clean.with_name("clean.proof").exists()


def test_a_damaged_corpus_is_said(tmp_path: Path) -> None:
    text, clean = write_texts(tmp_path / "text"), tmp_path / "clean"
    curate(text, clean, recipe(), OPTIONS)
    for name in ("card.json", "text/00000.jsonl.gz", "removed/exact-duplicates.jsonl.gz"):
        data = (clean / name).read_bytes()
        (clean / name).write_bytes(b"{}")
        for look_up in (lambda: prove(clean, held_out=[text]), lambda: why(clean, "nobody")):
            with pytest.raises(DataError, match=name):
                look_up()
        (clean / name).unlink()
        with pytest.raises(DataError):
            why(clean, "nobody")
        (clean / name).write_bytes(data)


def test_what_a_killed_process_had_open_goes(tmp_path: Path) -> None:
    text, clean = write_texts(tmp_path / "text"), tmp_path / "clean"
    curate(text, clean, recipe(), OPTIONS)
    work = work_folder(clean)
    (work / "reading" / "somebody's own").mkdir()
    before = {str(path) for path in work.rglob("*")}
    for room in ("reading", "segments", "packed", "passes/exact-duplicates.hashes"):
        (work / room / ".tmp-1").mkdir()
        (work / room / ".tmp-1" / "text.parquet").touch()
    curate(text, clean, recipe(), UPDATE)
    assert {str(path) for path in work.rglob("*")} == before


def test_links_and_pipes_in_a_folder_are_left_out_only_where_that_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = write_texts(tmp_path / "text")
    (text / "again.jsonl").symlink_to("a.jsonl")
    (text / "gone.txt").symlink_to("nowhere")
    (text / "round").symlink_to(".", target_is_directory=True)
    os.mkfifo(text / "pipe.txt")
    asked = ["curate", str(text), "--out", str(tmp_path / "clean"), "--steps", "normalise"]
    assert main(asked) != 0
    assert "gone.txt" in capfd.readouterr().err and not (tmp_path / "clean").exists()
    assert main([*asked, "--skip-unreadable"]) == 0
    rows = lines_of(tmp_path / "clean/unreadable.jsonl.gz")
    names = {Path(row["file"]).name: row["reason"] for row in rows}
    assert set(names) == {"again.jsonl", "gone.txt", "round", "pipe.txt"}
    assert len(rows_of(tmp_path / "clean", "text")) == 12
    with pytest.raises(UsageError) as caught:
        why(tmp_path / "clean", f"{text}/gone.txt")
    assert str(caught.value.where).endswith("gone.txt")


def test_a_file_that_changes_behind_its_size_and_time_is_read_again(tmp_path: Path) -> None:
    text = write_texts(tmp_path / "text")
    curate(text, tmp_path / "clean", recipe(), OPTIONS)
    file = text / "a.jsonl"
    before = file.stat()
    file.write_text(file.read_text().replace("This", "That"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns and file.stat().st_size == before.st_size
    curate(text, tmp_path / "clean", recipe(), UPDATE)
    assert all(row["text"].startswith("That") for row in rows_of(tmp_path / "clean", "text"))
