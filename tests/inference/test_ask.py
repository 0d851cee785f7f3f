"""What the commands say of a finished run whose model is not asked as others are."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpoint.small import model_of, small
from maskwright import api
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import Finding, IncompatibleError
from maskwright.cli.verbs.show import show
from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.recipes.base.recipe import Evaluation, FamilyModel, ObjectiveChoice, Recipe
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.families.base.family import family
from maskwright.model.inference.fill_mask import fill
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_model
from tinyrun import recipe, text_file

ELECTRA = {"embedding_size": 16, "summary_last_dropout": 0.0}
PROMPT = "The big [MASK] sat."


def chosen(text: Path, name: str, **options: Any) -> Recipe:
    base = recipe(text, steps=6)
    model = base.model
    if name == "replaced-token":
        model = FamilyModel(
            family="electra",
            architecture="ElectraForPreTraining",
            settings={**model.settings, **ELECTRA},
        )
    return replace(
        base,
        model=model,
        objective=ObjectiveChoice(name=name, options=options),
        evaluation=Evaluation(every=0, rows=4096, batch=16),
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    text, names = text_file(folder), ("hybrid", "replaced-token")
    for name in names:
        run.pretrain(chosen(text, name), folder / name, stream=io.StringIO())
    return {name: folder / name for name in names}


@pytest.mark.parametrize("name", ["hybrid", "replaced-token"])
def test_a_run_is_measured_as_it_was_trained(name: str, runs: dict[str, Path]) -> None:
    journal = checkpoints.read_journal(runs[name])
    (held_out,) = [record["loss"] for record in journal if record["kind"] == "evaluation"]
    evaluation = evaluate_text(runs[name], [])
    assert evaluation.figures.loss == pytest.approx(held_out, abs=1e-4)
    said = any(finding.name == "recorded-otherwise" for finding in evaluation.findings)
    assert said == (evaluation.figures.loss != held_out)
    assert ("loss by sort of target: masked" in evaluation.render()) == (name == "hybrid")


def test_holes_of_a_hybrid_model_are_read_one_place_ahead(runs: dict[str, Path]) -> None:
    (told,) = api.fill_mask(runs["hybrid"], PROMPT)
    loaded = open_model(runs["hybrid"])
    tokenizer = loaded.tokenizer
    right, wrong = (
        fill(loaded.network, tokenizer, [PROMPT], shift=shift)[0][0] for shift in (1, 0)
    )
    assert told.candidates == right.candidates
    assert [c.probability for c in right.candidates] != [c.probability for c in wrong.candidates]


def test_a_discriminator_alone_cannot_be_measured(runs: dict[str, Path], tmp_path: Path) -> None:
    alone, text = tmp_path / "alone", [str(runs["hybrid"].parent / "text.txt")]
    shutil.copytree(folders.newest(runs["replaced-token"]), alone)
    (alone / checkpoints.OBJECTIVE).unlink()
    with pytest.raises(IncompatibleError, match=r"objective\.safetensors"):
        evaluate_text(alone, text)
    config = json.loads((alone / "config.json").read_text())
    del config["maskwright"]
    (alone / "config.json").write_text(json.dumps(config))
    (alone / "MANIFEST.json").unlink()
    with pytest.raises(IncompatibleError, match="alone"):
        evaluate_text(alone, text)


def test_a_config_in_two_families_is_shown_as_what_it_is_saved_as(tmp_path: Path) -> None:
    network = model_of(small(family("electra"), "ElectraForMaskedLM", embedding_size=24))
    pretrained.save(network, None, tmp_path / "m", About(family="electra"))
    assert "family      electra; its config is that of bert too" in show(str(tmp_path / "m"), [])


def test_a_text_that_the_tokenizer_does_not_know_is_shown_and_noted(runs: dict[str, Path]) -> None:
    notes: list[Finding] = []
    first, last = api.fill_mask(
        runs["hybrid"], "天気 117 [MASK] 天気 [MASK]", top=3, note=notes.append
    )
    for each in last.candidates:
        joined = each.token.startswith("##")
        word = each.token.removeprefix("##") if joined else f" {each.token}"
        assert each.text == f"天気 117 [MASK] 天気{word}"
    assert all(c.text.startswith("天気 117") for c in first.candidates)
    assert [note.name for note in notes] == ["unknown-characters"]
    api.fill_mask(runs["hybrid"], "the [MASK] sat", note=notes.append)
    assert len(notes) == 1, "nothing is said of what it knows"
