"""A run on a curated folder keeps what its card says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from corpus.test_curated import LICENCES, curate
from maskwright.base.report.say import quiet
from maskwright.cli import main as cli
from maskwright.learn.pretrain.prepare import prepare
from maskwright.learn.recipes.base.recipe import Corpus
from maskwright.text.corpus import curated
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


def test_a_corpus_is_no_run_though_it_has_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (curate(tmp_path / "clean", (3,)) / "recipe.toml").write_text('steps = ["normalise"]\n')
    (tmp_path / "rows.csv").write_text("text,label\n")
    for line, code, said in (
        ("finetune clean --data rows.csv", 65, "a corpus, not a model"),
        ("evaluate clean", 65, "pretrain bert-mini --text clean"),
        ("predict clean rows.csv", 65, "a corpus, not a model"),
        ("adapt clean --text clean", 65, "a corpus, not a model"),
        ("explore clean --no-browser", 65, "a corpus, not a model"),
        ("pretrain clean --text clean", 64, "text, not a recipe"),
        ("resume clean", 64, "not the folder of a run"),
        ("show clean", 64, "clean/card.md"),
        (
            "pretrain clean/recipe.toml",
            64,
            "maskwright curate TEXT --out DIR --recipe clean/recipe",
        ),
        ("finetune clean/recipe.toml --data rows.csv", 64, "this is a recipe of curation"),
    ):
        assert cli.main(line.split()) == code, line
        assert said in capsys.readouterr().err
