"""`maskwright adapt`: a run goes on as it was trained, any other model as what it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from checkpoint.small import model_of, small
from maskwright.checkpoint import pretrained
from maskwright.cli import main
from maskwright.errors import IncompatibleError
from maskwright.families.family import family
from maskwright.pretrain import checkpoints, further, run
from maskwright.recipes.recipe import Folder, read
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
    out = tmp_path / "further"
    settings = ["corpus.held_out=0.1", "training.budget.minutes=none", "training.budget.steps=3"]
    given = [part for setting in settings for part in ("--set", setting)]
    status = main(["adapt", str(tmp_path / "run"), "--text", str(text), "--out", str(out), *given])
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
    weights = [(path / "model.safetensors").read_bytes() for path in (first, ended)]
    assert weights[0] != weights[1]


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = folder_of("bart", "BartForConditionalGeneration", "gpt2", tmp_path / "bart")
    with pytest.raises(IncompatibleError, match="no mark for what is cut out"):
        further.recipe_of(bare)
    assert main(["adapt", str(bare)]) == 64
    assert "no text to train on" in capsys.readouterr().err
    assert main(["adapt", str(tmp_path / "brat"), "--text", str(bare)]) == 64
    assert "no such model" in capsys.readouterr().err
