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
from maskwright import api
from maskwright.base.errors import IncompatibleError
from maskwright.cli.main import main
from maskwright.learn.pretrain import checkpoints, continued_pretraining
from maskwright.learn.recipes.base.find import override, read
from maskwright.learn.recipes.base.recipe import FamilyModel, Folder, ObjectiveChoice
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.opening import folders
from tinyrun import recipe, text_file, train_quietly
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
    "ModernBertForMaskedLM": ("modernbert", "bert", "masked", None),
    "T5ForConditionalGeneration": ("t5", "t5", "span-corruption", None),
    "BartForConditionalGeneration": ("bart", "roberta", "denoising", None),
}


@pytest.mark.parametrize("architecture", CASES)
def test_what_a_folder_goes_on_with(architecture: str, tmp_path: Path) -> None:
    name, style, objective, drawn = CASES[architecture]
    folder = folder_of(name, architecture, style, tmp_path / "lawyer")
    made = continued_pretraining.recipe_of(folder, minutes=3)
    assert made.objective.name == objective and made.name == "lawyer-further"
    assert isinstance(made.model, Folder)
    assert (made.model.path, made.model.architecture) == (str(folder), drawn)
    assert made.training.budget.minutes == 3
    assert made.rows.length <= (pretrained.described(folder).config.longest or 128)
    # A head that is drawn learns alone first, and faster; the control: what has one is one model.
    rate = made.training.optimizer.learning_rate
    body = rate * made.model.body_rate
    assert (made.model.head_first > 0) is (drawn is not None)
    assert rate == pytest.approx(1e-3 if drawn else 1e-4 * 768 / 24)
    assert body == pytest.approx(1e-5 * 768 / 24 if drawn else rate)


def test_a_run_goes_on_as_it_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], findings: list[str]
) -> None:
    text = text_file(tmp_path)
    before = recipe(text, steps=4)
    train_quietly(before, tmp_path / "run")
    first = folders.newest(tmp_path / "run")
    out, other = tmp_path / "further", tmp_path / "other.txt"
    other.write_text(text.read_text().replace("cat", "hat").replace("dog", "mat"))
    settings = ["corpus.held_out=0.1", "training.budget.minutes=none", "training.budget.steps=3"]
    options = [word for setting in settings for word in ("--set", setting)]
    words = ["adapt", str(tmp_path / "run"), "--text", str(other), "--out", str(out), *options]
    assert main(words) == 0
    assert f"from {first}: loaded 100.0%" in (said := capsys.readouterr().out)
    made = read(out / "recipe.toml")
    assert made.name == "test-further" and made.objective == before.objective
    assert made.rows == before.rows and made.training.batch == before.training.batch
    rate = before.training.optimizer.learning_rate
    assert made.training.optimizer.learning_rate == pytest.approx(0.3 * rate)
    ended = folders.newest(out)
    assert ended.name == "step-00000003" and continued_pretraining.WORTH in said
    table = lines(out)
    assert list(table) == ["the new text", "the text before"]
    page = (out / "report.html").read_text()
    assert page.count(f">{continued_pretraining.WORTH}</caption>") == 1
    worse = table["the text before"][-1].startswith("+")
    assert ("worse-on-other-text" in findings) is worse
    numbers = [[float(cell) for cell in row] for row in table.values()]
    assert numbers[0][0] != numbers[1][0], "other documents are held out"
    for loss_before, loss_after, change in numbers:
        assert loss_after - loss_before == pytest.approx(change, abs=2e-4)
    weights = [(path / "model.safetensors").read_bytes() for path in (first, ended)]
    assert weights[0] != weights[1]


SHORT = ["training.budget.minutes=none", "training.budget.steps=1", "corpus.held_out=0.1"]


def lines(out: Path) -> dict[str, list[str]]:
    """What training further was worth, by text."""
    (table,) = json.loads((out / "results.json").read_text())["tables"]
    return {row[0]: row[1:] for row in table["rows"]}


STEPS = 4
LONGER = [*SHORT[:1], f"training.budget.steps={STEPS}", SHORT[2], "checkpoints.every=1"]
LONGER += ["checkpoints.keep=9", "model.head_first=0.5"]


def body_at(out: Path, step: int) -> dict[str, torch.Tensor]:
    model = pretrained.load(out / "checkpoints" / f"step-{step:08d}").model
    return {n: p for n, p in model.named_parameters() if not n.startswith("vocabulary_head.")}


def adapt(folder: Path, text: Path, out: Path, settings: list[str]) -> str:
    """Continue the pretraining; returns the output."""
    continued_pretraining.adapt(
        folder, [str(text)], out, settings=settings, stream=(stream := io.StringIO())
    )
    return stream.getvalue()


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in which a model without a vocabulary head learned further."""
    folder = tmp_path_factory.mktemp("adapted")
    bare = folder_of("bert", "BertModel", "bert", folder / "bare")
    (bare / "modules.json").write_text("[]")
    adapt(bare, text_file(folder), folder / "out", LONGER)
    return folder / "out"


def test_a_new_head_learns_alone_first(adapted: Path, findings: list[str]) -> None:
    """And then everything, the rest more slowly; the control: without that, all moves at once."""
    begun = dict(pretrained.load(adapted.parent / "bare").model.named_parameters())
    for step in range(1, STEPS + 1):
        body = body_at(adapted, step)
        still = [n for n, p in body.items() if torch.equal(p, begun[n])]
        assert (len(still) == len(body)) is (step <= 2), step
        assert step <= 2 or len(still) < len(body) / 2
    heads = [
        pretrained.load(adapted / "checkpoints" / f"step-0000000{n}").model.vocabulary_head
        for n in (1, 2)
    ]
    weights = [head.transform.weight for head in heads if head and head.transform]
    assert not torch.equal(*weights), "the head learns from the first step on"
    parent, names = adapted.parent, {"head-learns-first", "model-of-vectors"}
    at_once = [*LONGER[:-1], "model.head_first=0"]
    adapt(parent / "bare", parent / "text.txt", parent / "at-once", at_once)
    moved = body_at(parent / "at-once", 2)  # the rate of the first step is 0
    assert any(not torch.equal(p, begun[n]) for n, p in moved.items())
    assert names & {*findings} == {"model-of-vectors"}
    # Its loss before is that of the new head above the model as it was.
    table, drift = json.loads((adapted / "results.json").read_text())["tables"]
    losses = {row[0]: [float(cell) for cell in row[1:]] for row in table["rows"]}
    assert list(losses) == ["the new text", "general text"]
    assert all(before != after for before, after, _ in losses.values())
    assert 0 < float(drift["rows"][0][2]) <= 1


def test_stopped_in_either_stage_it_ends_alike(
    adapted: Path, tmp_path: Path, findings: list[str]
) -> None:
    """By bytes, and with the same tables: they are made when it is complete, and not twice."""
    last = Path("checkpoints", f"step-0000000{STEPS}", "model.safetensors")
    tables = json.loads((adapted / "results.json").read_text())
    for kept in (1, 3):
        again = shutil.copytree(adapted, tmp_path / f"again-{kept}")
        for number in range(kept + 1, STEPS + 1):
            shutil.rmtree(again / "checkpoints" / f"step-0000000{number}")
        for name in ("results.json", "report.html"):
            (again / name).unlink()
        if kept == 1:
            shutil.rmtree(again / "head-first")
        api.resume(again, stream=(stream := io.StringIO()))
        assert (again / last).read_bytes() == (adapted / last).read_bytes()
        assert json.loads((again / "results.json").read_text()) == tables
        assert continued_pretraining.WORTH in stream.getvalue()
        assert continued_pretraining.WORTH in (again / "report.html").read_text()
    # What is complete and has its table makes it no second time.
    api.resume(again, stream=(later := io.StringIO()))
    assert continued_pretraining.WORTH not in later.getvalue()
    (again / "results.json").unlink()
    (adapted.parent / "bare").rename(adapted.parent / "moved")
    api.resume(again, stream=(gone := io.StringIO()))
    (adapted.parent / "moved").rename(adapted.parent / "bare")
    assert "model-before-is-gone" in findings and continued_pretraining.WORTH not in gone.getvalue()


def test_replaced_tokens_have_a_loss_before_and_after(text: Path, tmp_path: Path) -> None:
    """That of the generator, which went on with the discriminator."""
    shape = recipe(text).model
    assert isinstance(shape, FamilyModel)
    model = replace(shape, family="electra", architecture="ElectraForPreTraining", size=None)
    made = replace(
        recipe(text, steps=2),
        model=model,
        objective=ObjectiveChoice(name="replaced-token", options={}),
    )
    train_quietly(made, tmp_path / "run")
    assert "generator" in adapt(tmp_path / "run", text, tmp_path / "out", SHORT)
    found = lines(tmp_path / "out")
    assert list(found) == ["the new text", "the text before"]
    assert all(float(before) > 1 and float(after) > 1 for before, after, _ in found.values())


def test_a_student_goes_on_from_itself(text: Path, tmp_path: Path) -> None:
    """Not from its teacher, and its losses before and after are its own."""
    train_quietly(recipe(text, steps=2), tmp_path / "teacher")
    options = {"teacher": str(tmp_path / "teacher")}
    objective = ObjectiveChoice(name="distillation", options=options)
    made = replace(recipe(text, steps=4), objective=objective)
    made = override(made, [f"tokenizer.folder={tmp_path / 'teacher'}"])
    train_quietly(made, tmp_path / "run")
    # A step at a rate of next to nothing leaves the student where it was.
    still = [*SHORT, "training.optimizer.learning_rate=1e-12"]
    adapt(tmp_path / "run", text, tmp_path / "out", still)
    newest = [folders.newest(tmp_path / name) for name in ("run", "out", "teacher")]
    own, after, teacher = (pretrained.load(folder).model.tokens.weight for folder in newest)
    assert torch.allclose(own, after, atol=1e-6) and not torch.allclose(teacher, after, atol=1e-6)
    records = checkpoints.read_journal(tmp_path / "run")
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    before, later, _ = lines(tmp_path / "out")["the text before"]
    assert float(before) == pytest.approx(evaluations[-1]["loss"], abs=1e-4)
    assert float(later) == pytest.approx(float(before), abs=1e-4)


def test_an_old_text_that_lacks_what_the_rows_ask_for_is_left_out(
    text: Path, tmp_path: Path
) -> None:
    train_quietly(recipe(text, steps=2), tmp_path / "run")
    adapt(tmp_path / "run", text, tmp_path / "out", [*SHORT, "rows.kind=sentences"])
    assert list(lines(tmp_path / "out")) == ["the new text"]


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for architecture, family_name, style in (
        ("BartForConditionalGeneration", "bart", "gpt2"),
        ("T5EncoderModel", "t5", "t5"),
    ):
        folder = folder_of(family_name, architecture, style, tmp_path / family_name)
        with pytest.raises(IncompatibleError) as error:
            continued_pretraining.recipe_of(folder)
        assert error.value.where == str(folder)
    bart, missing = str(tmp_path / "bart"), str(tmp_path / "brat")
    for words in ([bart], [missing, "--text", bart]):
        assert main(["adapt", *words]) == 64
        assert "'bart'" in capsys.readouterr().err or words == [bart]
