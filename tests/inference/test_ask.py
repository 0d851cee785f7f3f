"""What the commands say of a finished run whose model is not asked as others are."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright import api
from maskwright.ask.evaluate import text as evaluate_text_module
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import IncompatibleError
from maskwright.cli.main import main
from maskwright.cli.show import show
from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import Evaluation, FamilyModel, ObjectiveChoice, Recipe
from maskwright.model.inference.fill_mask import fill
from maskwright.model.objectives import masked
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_model
from tinyrun import recipe, text_file

ELECTRA = {"embedding_size": 16, "summary_last_dropout": 0.0}
PROMPT = "The big [MASK] sat."


def chosen(text: Path, name: str, **options: Any) -> Recipe:
    base = recipe(text, steps=6)
    assert isinstance(base.model, FamilyModel)
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
    text = text_file(folder)
    for name in ("hybrid", "replaced-token"):
        run.pretrain(chosen(text, name), folder / name, stream=io.StringIO())
    return {name: folder / name for name in ("hybrid", "replaced-token")}


def held_out_loss(out: Path) -> float:
    return float(
        next(r["loss"] for r in checkpoints.read_journal(out) if r["kind"] == "evaluation")
    )


@pytest.mark.parametrize("name", ["hybrid", "replaced-token"])
def test_a_run_is_measured_as_it_was_trained(name: str, runs: dict[str, Path]) -> None:
    figures = evaluate_text(runs[name], []).figures
    assert figures.loss == pytest.approx(held_out_loss(runs[name]), abs=1e-4)


def test_a_lost_generator_would_be_seen(runs: dict[str, Path], tmp_path: Path) -> None:
    """The figures need the generator's trained weights: without them there are none."""
    run_folder = runs["replaced-token"]
    kept = checkpoints.OTHERS
    checkpoints.OTHERS = "elsewhere"
    try:
        with pytest.raises(IncompatibleError, match="elsewhere"):
            evaluate_text(run_folder, [])
    finally:
        checkpoints.OTHERS = kept


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
    """A copy of the checkpoint without what was trained beside it, or without its conventions."""
    alone, text = tmp_path / "alone", [str(runs["hybrid"].parent / "text.txt")]
    shutil.copytree(folders.newest(runs["replaced-token"]), alone)
    (alone / checkpoints.OTHERS).unlink()
    with pytest.raises(IncompatibleError, match=r"objective\.safetensors") as caught:
        evaluate_text(alone, text)
    assert "whole copy" in str(caught.value)
    said = json.loads((alone / "config.json").read_text())
    del said["maskwright"]
    (alone / "config.json").write_text(json.dumps(said))
    (alone / "MANIFEST.json").unlink()
    with pytest.raises(IncompatibleError, match="alone") as caught:
        evaluate_text(alone, text)
    assert "--data" in str(caught.value)


def test_the_page_of_a_discriminator_says_how_it_loads(runs: dict[str, Path]) -> None:
    page = (runs["replaced-token"] / "report.html").read_text(encoding="utf-8")
    assert "fill-mask" not in page
    page = (runs["hybrid"] / "report.html").read_text(encoding="utf-8")
    assert "answers wrongly" in page and "fill-mask" in page


def test_a_config_in_two_families_is_shown_as_what_it_is_saved_as(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    base = chosen(runs["hybrid"].parent / "text.txt", "masked")
    assert isinstance(base.model, FamilyModel)
    model = FamilyModel(
        family="electra",
        architecture="ElectraForMaskedLM",
        settings={**base.model.settings, **ELECTRA},
    )
    training = replace(base.training, budget=replace(base.training.budget, steps=0))
    last = run.pretrain(
        replace(base, model=model, training=training), tmp_path / "run", stream=io.StringIO()
    )
    assert "family      electra; its config is that of bert too" in show(str(last), [])
    lines = show(str(runs["replaced-token"]), []).splitlines()
    assert "(masked " in lines[2] and "replaced " in lines[2]


def test_a_prompt_has_one_space_on_each_side_of_its_hole(tmp_path: Path) -> None:
    base = chosen(text_file(tmp_path), "masked")
    tokenizer = replace(base.tokenizer, kind="byte-bpe", vocabulary=330)  # type: ignore[type-var]
    out = tmp_path / "run"
    run.pretrain(replace(base, tokenizer=tokenizer), out, stream=io.StringIO())
    prompt = next(r["prompt"] for r in checkpoints.read_journal(out) if r["kind"] == "sample")
    assert " [MASK] " in prompt and "  " not in prompt


def test_a_text_that_the_tokenizer_does_not_know_is_shown_and_noted(runs: dict[str, Path]) -> None:
    said: list[str] = []
    first, last = api.fill_mask(
        runs["hybrid"], "天気 117 [MASK] 天気 [MASK]", top=3, note=said.append
    )
    for each in last.candidates:
        joined = each.token.startswith("##")
        word = each.token.removeprefix("##") if joined else f" {each.token}"
        assert each.text == f"天気 117 [MASK] 天気{word}"
    assert all(c.text.startswith("天気 117") for c in first.candidates)
    assert len(said) == 1 and said[0].name == "unknown-characters"
    api.fill_mask(runs["hybrid"], "the [MASK] sat", note=said.append)
    assert len(said) == 1, "nothing is said of what it knows"


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({}, True),
        ({"rate": 0.15, "static": True}, True),
        ({"rate": 0.3, "final_rate": 0.15}, True),
        ({"rate": 0.3}, False),
        ({"unit": "span"}, False),
        ({"mask_rate": 1.0, "random_rate": 0.0}, False),
        ({"rate": 0.15, "final_rate": 0.4}, False),
    ],
)
def test_it_is_noted_where_a_run_learned_by_other_questions(
    options: dict[str, Any], same: bool
) -> None:
    made = replace(find("bert-mini"), objective=ObjectiveChoice(name="masked", options=options))
    member, usual = usual_for("encoder"), masked.Options()
    assert (evaluate_text_module._other_objective(member, usual, made) is None) is same


def test_a_text_in_the_place_of_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    text = "the cat sat on the [MASK] " * 30
    for command in (["fill-mask", text, "runs/mine"], ["show", text], ["resume", text]):
        assert main(command) == 64
        assert "E-BUG" not in capsys.readouterr().err


def test_a_hybrid_run_writes_and_tells_its_losses_apart(runs: dict[str, Path]) -> None:
    written = api.generate_text(runs["hybrid"], "the cat", tokens=5, temperature=0.0)
    assert written.startswith("the cat") and len(written) > len("the cat")
    assert "[CLS]" not in written
    assert api.generate_text(runs["hybrid"], "", tokens=3, temperature=0.0)
    told = evaluate_text(runs["hybrid"]).render()
    assert re.search(r"loss by sort of target: masked \d", told)
    with pytest.raises(IncompatibleError, match="replaced-token"):  # was not taught so
        api.generate_text(runs["replaced-token"], "the cat", tokens=5)
