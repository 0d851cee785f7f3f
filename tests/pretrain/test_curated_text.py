"""A run on a curated folder keeps what its card says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from corpus.test_curated import LICENCES, curate
from maskwright.corpus import curated
from maskwright.pretrain.prepare import prepare
from maskwright.recipes.parts.corpus import Corpus
from maskwright.report.say import quiet
from tinyrun import recipe


def test_provenance_has_the_card(tmp_path: Path) -> None:
    clean = curate(tmp_path / "clean", (30, 30))
    chosen = replace(recipe(clean / "text"), corpus=Corpus(text=(str(clean),), held_out=0.1))
    prepare(chosen, tmp_path / "run", quiet)
    found = json.loads((tmp_path / "run" / "data" / "provenance.json").read_text())
    assert found["curated"] == [curated.summary(clean)]
    assert found["curated"][0]["licences"] == LICENCES
    files = found["read"]["train"]["files"]
    assert [Path(name).name for name in files] == ["00000.jsonl.gz", "00001.jsonl.gz"]
    # The control: its text without the folder.
    prepare(recipe(clean / "text"), tmp_path / "plain", quiet)
    assert "curated" not in json.loads((tmp_path / "plain/data/provenance.json").read_text())
