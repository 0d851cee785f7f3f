"""What goes wrong on the way: said in words, with advice that works, and nothing left behind."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from curate.folders import content, lines_of, rows_of, write_rows
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
UPDATE = Options(update=True)


def recipe() -> CurationRecipe:
    return make(["normalise", "exact-duplicates"], {})


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Twelve texts, nine different ones."""
    rows = [{"id": f"d{n}", "text": f"This is document number {n % 9} of them."} for n in range(12)]
    return write_rows(tmp_path / "text" / "a.jsonl", rows).parent


@pytest.fixture
def clean(text: Path, tmp_path: Path) -> Path:
    curate(text, tmp_path / "clean", recipe())
    return tmp_path / "clean"


def test_a_damaged_piece_is_said_and_made_again_once_it_is_removed(
    text: Path, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, work = content(clean), work_folder(clean)
    files = (path for path in sorted(work.rglob("*")) if path.is_file())
    pieces = [path for path in files if path.parent.name != "known"]
    rooms = {path.relative_to(work).parts[0] for path in pieces}
    assert rooms == {"reading", "segments", "passes", "packed"}
    for path in pieces:
        monkeypatch.setattr(daft_engine, "_INTACT", set())
        folder = next(above for above in path.parents if (above / MANIFEST).is_file())
        if path.name == "facts.json":
            path.unlink()
        else:
            data = bytearray(path.read_bytes() or b"x")
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        shutil.rmtree(clean)
        with pytest.raises(DataError) as refusal:
            curate(text, clean, recipe())
        assert f"{folder};" in str(refusal.value.do) and not clean.exists()
        shutil.rmtree(folder)
        curate(text, clean, recipe())
        assert content(clean) == whole


def test_a_damaged_table_of_what_is_known_is_written_anew(text: Path, clean: Path) -> None:
    whole, work = content(clean), work_folder(clean)
    for path in (work / "known").iterdir():
        path.write_bytes(b"PAR1")
    for folder in (work / "segments", clean):
        shutil.rmtree(folder)
    curate(text, clean, recipe())
    assert content(clean) == whole


def test_a_result_inside_what_is_read_is_refused(text: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(text)
    before = content(tmp_path)
    for out in (text / "clean", tmp_path / "link" / "clean"):
        with pytest.raises(OutputError):
            curate(text, out, recipe())
    assert content(tmp_path) == before and os.listdir(text) == ["a.jsonl"]
    clean = tmp_path / "clean"
    curate(text, clean, recipe())
    for path in (clean, clean / "text", work_folder(clean)):
        with pytest.raises(OutputError):
            curate(path, clean, recipe(), UPDATE)
    curate(clean, tmp_path / "again", recipe())  # beside it is fine
    assert len(rows_of(tmp_path / "again", "text")) == len(rows_of(clean, "text")) == 9


def test_columns_of_any_name_come_out_as_they_came(tmp_path: Path) -> None:
    notes = {"row": 5, "document": "d", "note.x": "n", "source": "s", "read_at": "theirs:1"}
    notes |= {"": "no name", "step": "b", "rows": None, "bytes": 10**30, "file": "f", "line": 3}
    rows = [
        {"id": name, "text": f"A text of its own, number {n}.", **notes}
        for n, name in enumerate(["a\nb", 7, 7, "\x1b[2J", "\u2028", "", None])
    ]
    raw = write_rows(tmp_path / "a.jsonl", rows)
    curate(raw, tmp_path / "clean", recipe())
    result = rows_of(tmp_path / "clean", "text")
    assert len(result) == len(rows)
    values = {n: value for n, value in notes.items() if value is not None and n != "read_at"}
    for row in result:
        assert {name: row[name] for name in values} == values
        assert row["read_at_before"] == "theirs:1"
    assert [row.get("read_at", row["id"])[-2:] for row in result] == [f":{n}" for n in range(1, 8)]
    assert [row["id"] for row in result[:3]] == ["a\nb", 7, 7]
    assert [fate.place[-2:] for fate in why(tmp_path / "clean", "7").fates] == [":2", ":3"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tokenizer text", "tokenizer.json"),
        ("--write-recipe text/a.jsonl", "choose another name"),
        ("--write-recipe none/recipe.toml", "no such folder"),
        ("--steps ,", "--steps"),
        ("--steps toxicity --set toxicity.words=['none.txt']", "none.txt, which does"),
        ("--steps toxicity --set toxicity.words=['text']", "text, a folder"),
        ("--steps language --set language.keep=['english']", "does not know"),
        ("--steps classifier --set classifier.examples=text/a.jsonl", "roles of the columns"),
        ("--steps perplexity --set perplexity.good=['text/b']", "which does not exist"),
    ],
)
def test_what_is_known_before_the_work_is_said_before_it(
    options: str,
    message: str,
    text: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(text.parent)
    assert main(["curate", "text", "--out", "clean", *options.split()]) != 0
    assert message in capfd.readouterr().err
    assert os.listdir() == ["text"] and os.listdir("text") == ["a.jsonl"]


def test_a_changed_list_of_words_counts_in_the_same_process(text: Path, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    removes = make(["toxicity"], {"toxicity": {"words": [str(words)]}})
    words.write_text("nothing\n")
    assert curate(text, tmp_path / "clean", removes)["left"]["documents"] == 12
    words.write_text("number 3\n")
    assert curate(text, tmp_path / "clean", removes, UPDATE)["left"]["documents"] == 11


def test_web_pages_are_documents_and_what_is_not_read_is_said(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page = "<html><body><p>A page &amp; its\n\n\nwords.</p><p>More.</p></body></html>"
    (text / "page.HTML").write_text(page)
    (text / "b.htm.gz").write_bytes(gzip.compress(page.replace("A", "Another").encode()))
    for name in ("c.pdf", "d.pdf", "e"):
        (text / name).write_text("x")
    assert main(["curate", str(text), "--out", str(tmp_path / "clean"), "--steps", "html"]) == 0
    rows = [row for row in rows_of(tmp_path / "clean", "text") if "/" in row["id"]]
    pages = {row["id"].rpartition("/")[2]: row["text"] for row in rows}
    assert len(pages) == 2 and pages["page.HTML:1"].split()[:3] == ["A", "page", "&"]
    assert capfd.readouterr().err.count(".pdf 2") == 1, "told once"
    with pytest.raises(UsageError) as refusal:
        Reader(text / "page.HTML")
    assert "maskwright curate" in str(refusal.value.do)


def test_pieces_that_are_damaged_or_lost_prove_nothing(text: Path, clean: Path) -> None:
    (piece,) = (work_folder(clean) / "reading").iterdir()
    (piece / "00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError) as refusal:
        prove(clean, held_out=[text])
    assert "--out" in str(refusal.value.do)
    with pytest.raises(ConfigError):
        prove(clean, budget="much")
    assert not clean.with_name("clean.proof").exists()


def test_a_damaged_corpus_is_said(text: Path, clean: Path) -> None:
    for name in ("card.json", "text/00000.jsonl.gz", "removed/exact-duplicates.jsonl.gz"):
        data = (clean / name).read_bytes()
        for damaged in (b"{}", data[:-30]):
            (clean / name).write_bytes(damaged)
            for look_up in (lambda: prove(clean, held_out=[text]), lambda: why(clean, "nobody")):
                with pytest.raises(DataError, match=name):
                    look_up()
        (clean / name).unlink()
        with pytest.raises(DataError):
            why(clean, "nobody")
        (clean / name).write_bytes(data)


def test_what_a_killed_process_had_open_goes(text: Path, clean: Path) -> None:
    work = work_folder(clean)
    (work / "reading" / "somebody's own").mkdir()
    before = {str(path) for path in work.rglob("*")}
    for room in ("reading", "segments", "packed", "passes/exact-duplicates.hashes"):
        (work / room / ".tmp-1").mkdir()
        (work / room / ".tmp-1" / "text.parquet").touch()
    curate(text, clean, recipe(), UPDATE)
    assert {str(path) for path in work.rglob("*")} == before


def test_what_cannot_be_read_is_left_out_only_where_that_is_asked_for_and_is_listed(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (text / "again.jsonl").symlink_to("a.jsonl")
    (text / "gone.txt").symlink_to("nowhere")
    (text / "round").symlink_to(".", target_is_directory=True)
    os.mkfifo(text / "pipe.txt")
    (text / "picture.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)
    clean = tmp_path / "clean"
    command = ["curate", str(text), "--out", str(clean), "--steps", "normalise"]
    assert main(command) != 0
    assert "gone.txt" in capfd.readouterr().err and not clean.exists()
    assert main([*command, "--skip-unreadable"]) == 0
    names = {Path(row["file"]).name for row in lines_of(clean / "unreadable.jsonl.gz")}
    links = {"again.jsonl", "gone.txt", "round", "pipe.txt"}
    assert names == {*links, "picture.txt"}
    assert len(rows_of(clean, "text")) == 12
    with pytest.raises(UsageError) as refusal:
        why(clean, f"{text}/gone.txt")
    assert str(refusal.value.where).endswith("gone.txt")
    for name in links:
        (text / name).unlink()
    (text / "table.csv").write_text('text,n\n"one two three",1\n"never closed,2\n')
    with pytest.raises(DataError, match="--skip-unreadable"):
        curate(text, tmp_path / "again", recipe())
    card = curate(text, tmp_path / "again", recipe(), Options(skip_unreadable=True))
    unreadable = [Path(entry["file"]).name for entry in card["read"]["unreadable"]]
    assert sorted(unreadable) == ["picture.txt", "table.csv"]
    assert [Path(entry["file"]).name for entry in card["read"]["files"]] == ["a.jsonl"]


def test_a_file_that_changes_in_secret_is_read_again(text: Path, clean: Path) -> None:
    file = text / "a.jsonl"
    before = file.stat()
    file.write_text(file.read_text().replace("This", "That"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns and file.stat().st_size == before.st_size
    curate(text, clean, recipe(), UPDATE)
    assert all(row["text"].startswith("That") for row in rows_of(clean, "text"))
