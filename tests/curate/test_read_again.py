"""What curate writes is what pretraining reads: the text with its metadata, and no more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from curate.folders import write_rows
from maskwright.base.errors import UsageError
from maskwright.base.terminal import quiet
from maskwright.learn.pretrain.prepare import prepare, values_of
from maskwright.learn.recipes.base.recipe import Corpus
from maskwright.text.corpus import saved
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.curation import Options, curate, work_folder
from maskwright.text.curate.recipe import make
from tinyrun import recipe

pytest.importorskip("daft")


def test_a_curated_folder_is_text_with_its_notes(tmp_path: Path) -> None:
    rows = [(f"the {n} dogs and cats ran", str(n), "ab"[n % 3 == 0]) for n in range(90)]
    keys, clean = ("text", "id", "source"), tmp_path / "clean"
    documents = [dict(zip(keys, row, strict=True)) for row in [*rows, *rows[:30]]]
    raw = write_rows(tmp_path / "raw.jsonl", documents)
    options = Options(reading=ReadingOptions(notes=("*",)))
    curate(raw, clean, make(["exact-duplicates"], {}), options)
    read = list(Reader(clean, ReadingOptions(notes=("id", "source"))))
    assert sorted((d.text, d.notes["id"], d.notes["source"]) for d in read) == sorted(rows)
    assert saved.is_curation_work(work_folder(clean))
    with pytest.raises(UsageError):
        Reader(work_folder(clean))
    assert saved.curation_summary(clean)["documents"] == 90
    # And it is mixed by its metadata.
    corpus = Corpus(text=(str(clean),), mix_by="source", temperature=0.5, held_out=0.1)
    prepared = prepare(replace(recipe(clean), corpus=corpus), tmp_path / "run", quiet)
    assert values_of(tmp_path / "run") == ["a", "b"] and len(prepared.train) == 2
    assert prepared.provenance["curated"][0]["sources"] == {"a": 60, "b": 30}
