"""The first look and the plan: a sample of all of a file, shares of the very rules, refusals."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from curate.folders import write_rows
from curate.test_language import TEXTS
from maskwright.base.errors import ResourceError, StoppedError
from maskwright.base.storage.files import DISK
from maskwright.cli.main import main
from maskwright.text.corpus import read
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate import look as looks
from maskwright.text.curate.curation import Options, curate, reading_options
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.engine.shards import BATCH_CHARACTERS
from maskwright.text.curate.look import (
    DOCUMENT_BYTES,
    PROCESS_BYTES,
    look,
    look_lines,
    plan,
    plan_lines,
    require,
)
from maskwright.text.curate.recipe import make

pytest.importorskip("daft")
READING = ReadingOptions(notes=("*",))
STEPS = ["language", "exact-duplicates", "gopher-quality"]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """First English alone, then as many texts in German; every tenth is a copy."""
    texts = [f"{TEXTS[code]} {n - n % 10 // 9}." for code in ("en", "de") for n in range(300)]
    return write_rows(tmp_path_factory.mktemp("raw") / "raw.jsonl", [{"text": t} for t in texts])


def test_a_small_corpus_is_looked_at_whole(raw: Path, tmp_path: Path) -> None:
    engine, recipe = DaftEngine(), make(STEPS)
    engine.start()
    view, settled = look(raw, recipe, READING, engine=engine, propose=True)
    assert settled.steps == recipe.steps and view.part == 1 and view.sampled[1] == 600
    assert view.languages == {"de": 300, "en": 300}
    card = curate(raw, tmp_path / "clean", recipe, Options(reading=READING))
    for share, step in zip(view.shares, card["steps"], strict=True):
        assert share.share == (step["documents_in"] - step["documents_out"]) / 600
        assert share.low <= share.share <= share.high
    assert "0.0 % (0.0 % to" in "\n".join(look_lines(view))


def test_a_sample_is_of_all_of_a_file(raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "SAMPLE_BYTES", 64 << 10)
    monkeypatch.chdir(raw.parent)  # the sample depends on the path as given
    engine = DaftEngine()
    engine.start()
    view, settled = look(raw.name, make(STEPS), READING, engine=engine, propose=True)
    assert 0.3 < view.part < 0.7 and settled.steps["language"] == make(STEPS).steps["language"]
    english, german = view.languages["en"], view.languages["de"]
    assert 0.6 < english / german < 1.6 and english + german == view.sampled[1]
    copies = view.shares[1]
    assert copies.low < 0.1 < copies.high  # the sample holds fewer pairs than the corpus
    # What cannot be carried out is refused before anything is done.
    planned = plan(view, settled, engine)
    assert planned.bytes == pytest.approx(raw.stat().st_size, rel=0.2) and plan_lines(planned)
    require(planned, raw.parent / "clean", engine)
    # A document that is more than a batch takes memory of its own; a small one does not.
    assert view.largest[-1] < BATCH_CHARACTERS and len(view.largest) == looks.LARGEST
    assert plan(replace(view, largest=[5000]), settled, engine) == planned
    large = plan(replace(view, largest=[5000, BATCH_CHARACTERS + (20 << 20)]), settled, engine)
    assert large.memory - planned.memory >= DOCUMENT_BYTES * (20 << 20) - PROCESS_BYTES
    monkeypatch.setattr(type(DISK), "free_bytes", lambda self, place: 1000)
    with pytest.raises(StoppedError):
        require(planned, raw.parent / "clean", engine)
    monkeypatch.undo()
    with pytest.raises(ResourceError):
        require(replace(planned, memory=PROCESS_BYTES << 20), raw.parent / "clean", engine)


def test_one_language_is_kept_by_the_usual_recipe_and_that_is_said(
    raw: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    english = tmp_path / "en.jsonl"
    english.write_text("".join(raw.read_text().splitlines(keepends=True)[:290]))
    written = tmp_path / "recipe.toml"
    assert main(["curate", str(english), "--look", "--write-recipe", str(written)]) == 0
    shown = capfd.readouterr()
    assert "'en'" in shown.err and "sample: 290" in shown.out
    assert 'keep = ["en"]' in written.read_text()
    assert main(["curate", str(english), "--plan", "--set", "language.keep=[]"]) == 0
    shown = capfd.readouterr()
    assert "'en'" not in shown.err and "memory: " in shown.out
    assert sorted(os.listdir(tmp_path)) == ["en.jsonl", "recipe.toml"]


def test_text_files_split_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = list[str]()

    def form(*sizes: int) -> str:
        for path in tmp_path.iterdir():
            path.unlink()
        for n, size in enumerate(sizes):
            (tmp_path / f"{n}.txt").write_text("a" * size)
        (tmp_path / "page.html").write_text("<p>" * 9)
        found = reading_options(tmp_path, [], False, lambda found: notes.append(found.what)).form
        if sizes:  # pretraining reads them so, too
            reader = read.Reader(tmp_path)
            assert reader.reading.form == found
            expected = ["document-form"] if len(sizes) > 1 else []
            assert len(list(reader)) == len(sizes)
            assert [f.name for f in reader.counts.findings if f.name == "document-form"] == expected
        return found

    monkeypatch.setattr(read, "BOOK", 100)
    monkeypatch.setattr(read, "FEWEST_FILES", 3)
    assert form(50, 60) == "blank-line", "one of two documents would be half of the corpus"
    assert form(50, 60, 70) == "file"
    assert form(500, 20, 30) == "blank-line", "most of the text is in a book"
    assert form(150, 90, 90) == "file"
    assert len(notes) == 4 and notes[1] == notes[3] != notes[0] == notes[2]
    assert form() == "auto" and len(notes) == 4


def test_a_look_at_a_step_that_would_remove_all_is_refused(
    raw: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    removes = ["--set", "gopher-quality.min_doc_words=5000"]
    assert main(["curate", str(raw), "--steps", "gopher-quality,html", *removes, "--look"]) == 65
    assert "--without gopher-quality" in capfd.readouterr().err
