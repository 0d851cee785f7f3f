"""`maskwright adapt`: a run goes on as it was trained, any other model as what it is."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.checkpoint import pretrained
from maskwright.cli import main
from maskwright.errors import IncompatibleError
from maskwright.families.family import family
from maskwright.pretrain import checkpoints, further, journal, run
from maskwright.recipes.find import read
from maskwright.recipes.override import override
from maskwright.recipes.recipe import FamilyModel, Folder, ObjectiveChoice
from tinyrun import recipe, text_file
from tokenizer.toy_tokenizers import trained


def folder_of(name: str, architecture: str, style: str, out: Path) -> Path:
    """A small model of that class with a tokenizer of that style."""
    tokenizer = trained("wordpiece" if style == "bert" else "unigram", style)
    config = small(family(name), architecture, vocab_size=tokenizer.vocabulary_size)
    pretrained.save(model_of(config), tokenizer, out)
    return out


CASES = {
    "BertModel": ("bert", "bert", "masked", "BertForMaskedLM"),
    "BertForMaskedLM": ("bert", "bert", "masked", None),
    "GPT2LMHeadModel": ("gpt2", "gpt2", "causal", None),
    "T5ForConditionalGeneration": ("t5", "t5", "span-corruption", None),
    "BartForConditionalGeneration": ("bart", "roberta", "denoising", None),
}


@pytest.mark.parametrize("architecture", CASES)
def test_what_a_folder_goes_on_with(architecture: str, tmp_path: Path) -> None:
    name, style, objective, drawn = CASES[architecture]
    folder = folder_of(name, architecture, style, tmp_path / "lawyer")
    made = further.recipe_of(folder, minutes=3)
    assert made.objective.name == objective and made.name == "lawyer-further"
    assert made.model == Folder(path=str(folder), architecture=drawn)
    assert made.training.budget.minutes == 3
    assert made.training.optimizer.learning_rate == pytest.approx(1e-4 * 768 / 24)


def test_a_run_goes_on_as_it_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_file(tmp_path)
    before = recipe(text, steps=4)
    run.pretrain(before, tmp_path / "run", stream=io.StringIO())
    first = checkpoints.newest(tmp_path / "run")
    out, other = tmp_path / "further", tmp_path / "other.txt"
    other.write_text(text.read_text().replace("cat", "hat").replace("dog", "mat"))
    settings = ["corpus.held_out=0.1", "training.budget.minutes=none", "training.budget.steps=3"]
    given = [part for setting in settings for part in ("--set", setting)]
    status = main(["adapt", str(tmp_path / "run"), "--text", str(other), "--out", str(out), *given])
    assert status == 0
    said = capsys.readouterr().out
    assert f"from {first}: loaded 100.0%, new: nothing" in said
    made = read(out / "recipe.toml")
    assert made.name == "test-further" and made.objective == before.objective
    assert made.rows == before.rows and made.training.batch == before.training.batch
    rate = before.training.optimizer.learning_rate
    assert made.training.optimizer.learning_rate == pytest.approx(0.3 * rate)
    ended = checkpoints.newest(out)
    assert ended.name == "step-00000003"
    assert "What training further was worth" in said
    (table,) = (t for t in json.loads((out / "results.json").read_text())["tables"])
    assert [row[0] for row in table["rows"]] == ["the new text", "the text before"]
    assert (out / "report.html").read_text().count("What training further was worth") == 1
    old, new = (float(row[1]) for row in table["rows"])
    assert old != new, "other documents are held out"
    assert all(float(row[2]) - float(row[1]) == pytest.approx(float(row[3]), abs=2e-4)
               for row in table["rows"])  # fmt: skip
    weights = [(path / "model.safetensors").read_bytes() for path in (first, ended)]
    assert weights[0] != weights[1]


SHORT = ["training.budget.minutes=none", "training.budget.steps=1", "corpus.held_out=0.1"]


def lines(out: Path) -> dict[str, list[str]]:
    """What training further was worth, by text."""
    (table,) = json.loads((out / "results.json").read_text())["tables"]
    return {row[0]: row[1:] for row in table["rows"]}


def test_what_a_model_without_scores_was_worth(tmp_path: Path) -> None:
    """There is a loss after, and none before."""
    folder = folder_of("bert", "BertModel", "bert", tmp_path / "bare")
    text, out, said = text_file(tmp_path), tmp_path / "out", io.StringIO()
    further.adapt(folder, [str(text)], out, settings=SHORT, stream=said)
    ((name, (before, after, change)),) = lines(out).items()
    assert name == "the new text" and before == change == "–" and float(after) > 1
    assert "no loss before" in said.getvalue()


def test_replaced_tokens_have_a_loss_before_and_after(tmp_path: Path) -> None:
    """That of the generator, which went on with the discriminator."""
    text = text_file(tmp_path)
    shape = recipe(text).model
    assert isinstance(shape, FamilyModel)
    model = replace(shape, family="electra", architecture="ElectraForPreTraining", size=None)
    made = replace(recipe(text, steps=2), model=model,
                   objective=ObjectiveChoice(name="replaced-token", options={}))  # fmt: skip
    run.pretrain(made, tmp_path / "run", stream=io.StringIO())
    said = io.StringIO()
    further.adapt(tmp_path / "run", [str(text)], tmp_path / "out", settings=SHORT, stream=said)
    assert "beside it, from there: generator" in said.getvalue()
    found = lines(tmp_path / "out")
    assert list(found) == ["the new text", "the text before"]
    assert all(float(before) > 1 and float(after) > 1 for before, after, _ in found.values())


def test_a_student_goes_on_from_itself(tmp_path: Path) -> None:
    """Not from its teacher, and its losses before and after are its own."""
    text = text_file(tmp_path)
    run.pretrain(recipe(text, steps=2), tmp_path / "teacher", stream=io.StringIO())
    made = replace(recipe(text, steps=4), objective=ObjectiveChoice(
        name="distillation", options={"teacher": str(tmp_path / "teacher")}))  # fmt: skip
    made = override(made, [f"tokenizer.folder={tmp_path / 'teacher'}"])
    run.pretrain(made, tmp_path / "run", stream=io.StringIO())
    # A step at a rate of next to nothing leaves the student where it was.
    still = [*SHORT, "training.optimizer.learning_rate=1e-12"]
    further.adapt(tmp_path / "run", [str(text)], tmp_path / "out", settings=still,
                  stream=io.StringIO())  # fmt: skip
    folders = [checkpoints.newest(tmp_path / name) for name in ("run", "out", "teacher")]
    own, after, teacher = (pretrained.load(folder).model.tokens.weight for folder in folders)
    assert torch.allclose(own, after, atol=1e-6) and not torch.allclose(teacher, after, atol=1e-6)
    evaluations = [r for r in journal.read(tmp_path / "run") if r["kind"] == "evaluation"]
    before, later, _ = lines(tmp_path / "out")["the text before"]
    assert float(before) == pytest.approx(evaluations[-1]["loss"], abs=1e-4)
    assert float(later) == pytest.approx(float(before), abs=1e-4)


def test_a_run_that_began_with_a_folder_needs_it_no_more(tmp_path: Path) -> None:
    text = text_file(tmp_path)
    run.pretrain(recipe(text, steps=2), tmp_path / "a", stream=io.StringIO())
    for before, after in (("a", "b"), ("b", "c")):
        further.adapt(tmp_path / before, [str(text)], tmp_path / after, settings=SHORT,
                      stream=io.StringIO())  # fmt: skip
        shutil.rmtree(tmp_path / before)
    assert checkpoints.newest(tmp_path / "c").name == "step-00000001"


def test_an_old_text_that_lacks_what_the_rows_ask_for_is_left_out(tmp_path: Path) -> None:
    text = text_file(tmp_path)
    run.pretrain(recipe(text, steps=2), tmp_path / "run", stream=io.StringIO())
    further.adapt(tmp_path / "run", [str(text)], tmp_path / "out", stream=io.StringIO(),
                  settings=[*SHORT, "rows.kind=sentences"])  # fmt: skip
    assert list(lines(tmp_path / "out")) == ["the new text"]


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = folder_of("bart", "BartForConditionalGeneration", "gpt2", tmp_path / "bart")
    with pytest.raises(IncompatibleError, match="no mark for what is cut out"):
        further.recipe_of(bare)
    alone = folder_of("t5", "T5EncoderModel", "t5", tmp_path / "alone")
    with pytest.raises(IncompatibleError, match="learns by filling masks"):
        further.recipe_of(alone)
    assert main(["adapt", str(bare)]) == 64
    assert "no text to train on" in capsys.readouterr().err
    assert main(["adapt", str(tmp_path / "brat"), "--text", str(bare)]) == 64
    assert "no such model" in capsys.readouterr().err
