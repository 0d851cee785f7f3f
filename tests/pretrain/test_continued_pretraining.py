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
from maskwright.learn.pretrain import continued_pretraining as further
from maskwright.learn.pretrain import journal, run
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
    "T5ForConditionalGeneration": ("t5", "t5", "span-corruption", None),
    "BartForConditionalGeneration": ("bart", "roberta", "denoising", None),
}


@pytest.mark.parametrize("architecture", CASES)
def test_what_a_folder_goes_on_with(architecture: str, tmp_path: Path) -> None:
    name, style, objective, drawn = CASES[architecture]
    folder = folder_of(name, architecture, style, tmp_path / "lawyer")
    made = further.recipe_of(folder, minutes=3)
    assert made.objective.name == objective and made.name == "lawyer-further"
    assert isinstance(made.model, Folder)
    assert (made.model.path, made.model.architecture) == (str(folder), drawn)
    assert made.training.budget.minutes == 3
    # A head that is drawn learns alone first, and faster; the control: what has one is one model.
    rate = made.training.optimizer.learning_rate
    body = rate * made.model.body_rate
    assert (made.model.head_first > 0) is (drawn is not None)
    assert rate == pytest.approx(1e-3 if drawn else 1e-4 * 768 / 24)
    assert body == pytest.approx(1e-5 * 768 / 24 if drawn else rate)


def test_a_run_goes_on_as_it_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = text_file(tmp_path)
    before = recipe(text, steps=4)
    train_quietly(before, tmp_path / "run")
    first = folders.newest(tmp_path / "run")
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
    ended = folders.newest(out)
    assert ended.name == "step-00000003"
    assert "What training further was worth" in said
    (table,) = (t for t in json.loads((out / "results.json").read_text())["tables"])
    assert [row[0] for row in table["rows"]] == ["the new text", "the text before"]
    assert (out / "report.html").read_text().count(
        ">What training further was worth</caption>"
    ) == 1
    worse = table["rows"][1][-1].startswith("+")
    assert ("warning: something was lost on the text before" in said) is worse
    old, new = (float(row[1]) for row in table["rows"])
    assert old != new, "other documents are held out"
    assert all(
        float(row[2]) - float(row[1]) == pytest.approx(float(row[3]), abs=2e-4)
        for row in table["rows"]
    )
    weights = [(path / "model.safetensors").read_bytes() for path in (first, ended)]
    assert weights[0] != weights[1]


SHORT = ["training.budget.minutes=none", "training.budget.steps=1", "corpus.held_out=0.1"]


def lines(out: Path) -> dict[str, list[str]]:
    """What training further was worth, by text."""
    (table,) = json.loads((out / "results.json").read_text())["tables"]
    return {row[0]: row[1:] for row in table["rows"]}


STEPS = 4
LONGER = [
    *SHORT[:1],
    f"training.budget.steps={STEPS}",
    SHORT[2],
    "checkpoints.every=1",
    "checkpoints.keep=9",
    "model.head_first=0.5",
]


def body_at(out: Path, step: int) -> dict[str, torch.Tensor]:
    model = pretrained.load(out / "checkpoints" / f"step-{step:08d}").model
    return {n: p for n, p in model.named_parameters() if not n.startswith("vocabulary_head.")}


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run in which a model without scores over the vocabulary learned further; what it said."""
    folder, said = tmp_path_factory.mktemp("adapted"), io.StringIO()
    bare = folder_of("bert", "BertModel", "bert", folder / "bare")
    (bare / "modules.json").write_text("[]")
    further.adapt(bare, [str(text_file(folder))], folder / "out", settings=LONGER, stream=said)
    return folder / "out", said.getvalue()


def test_a_new_head_learns_alone_first(adapted: tuple[Path, str]) -> None:
    """And then everything, the rest more slowly; the control: without that, all moves at once."""
    out, said = adapted
    assert "these learn alone for the first 50%" in said
    begun = dict(pretrained.load(out.parent / "bare").model.named_parameters())
    for step in range(1, STEPS + 1):
        there = body_at(out, step)
        still = [n for n, p in there.items() if torch.equal(p, begun[n])]
        assert (len(still) == len(there)) is (step <= 2), step
        if step > 2:
            assert len(still) < len(there) / 2
    heads = [
        pretrained.load(out / "checkpoints" / f"step-0000000{n}").model.vocabulary_head
        for n in (1, 2)
    ]
    weights = [head.transform.weight for head in heads if head and head.transform]
    assert not torch.equal(*weights), "the head learns from the first step on"
    at_once = out.parent / "at-once"
    further.adapt(
        out.parent / "bare",
        [str(out.parent / "text.txt")],
        at_once,
        settings=[*LONGER[:-1], "model.head_first=0"],
        stream=io.StringIO(),
    )
    moved = body_at(at_once, 2)  # the rate of the first step is 0
    assert any(not torch.equal(p, begun[n]) for n, p in moved.items())


def test_what_a_model_without_scores_was_worth(adapted: tuple[Path, str]) -> None:
    """Its loss before is that of the new head above the model as it was."""
    out, said = adapted
    found, left = json.loads((out / "results.json").read_text())["tables"]
    named = {row[0]: [float(cell) for cell in row[1:]] for row in found["rows"]}
    assert list(named) == ["the new text", "general text"]
    assert all(before != after for before, after, _ in named.values())
    assert "the new head above the model as it was" in said
    assert left["title"] == "What is left of the vectors of texts"
    assert 0 < float(left["rows"][0][2]) <= 1
    assert "made for vectors of texts" in said and "--task embedding" in said


def test_stopped_in_either_stage_it_ends_alike(adapted: tuple[Path, str], tmp_path: Path) -> None:
    """By bytes, and with the same tables: they are made when it is complete, and not twice."""
    out, _ = adapted
    wanted = (out / "checkpoints" / f"step-0000000{STEPS}" / "model.safetensors").read_bytes()
    tables = json.loads((out / "results.json").read_text())
    for kept in (1, 3):
        again = tmp_path / f"again-{kept}"
        shutil.copytree(out, again)
        for number in range(kept + 1, STEPS + 1):
            shutil.rmtree(again / "checkpoints" / f"step-0000000{number}")
        for name in ("results.json", "report.html"):
            (again / name).unlink()
        if kept == 1:
            shutil.rmtree(again / "head-first")
        said = io.StringIO()
        api.resume(again, stream=said)
        last = again / "checkpoints" / f"step-0000000{STEPS}" / "model.safetensors"
        assert last.read_bytes() == wanted
        assert json.loads((again / "results.json").read_text()) == tables
        assert further.WORTH in said.getvalue()
        assert further.WORTH in (again / "report.html").read_text()
    # What is complete and has its table makes it no second time; nor does a run from nothing.
    api.resume(again, stream=(later := io.StringIO()))
    assert further.WORTH not in later.getvalue()
    (again / "results.json").unlink()
    (out.parent / "bare").rename(out.parent / "moved")
    api.resume(again, stream=(gone := io.StringIO()))
    (out.parent / "moved").rename(out.parent / "bare")
    assert "is not there any more" in gone.getvalue() and further.WORTH not in gone.getvalue()


def test_replaced_tokens_have_a_loss_before_and_after(tmp_path: Path) -> None:
    """That of the generator, which went on with the discriminator."""
    text = text_file(tmp_path)
    shape = recipe(text).model
    assert isinstance(shape, FamilyModel)
    model = replace(shape, family="electra", architecture="ElectraForPreTraining", size=None)
    made = replace(
        recipe(text, steps=2),
        model=model,
        objective=ObjectiveChoice(name="replaced-token", options={}),
    )
    train_quietly(made, tmp_path / "run")
    said = io.StringIO()
    further.adapt(tmp_path / "run", [str(text)], tmp_path / "out", settings=SHORT, stream=said)
    assert "also loaded from the folder: generator" in said.getvalue()
    found = lines(tmp_path / "out")
    assert list(found) == ["the new text", "the text before"]
    assert all(float(before) > 1 and float(after) > 1 for before, after, _ in found.values())


def test_a_student_goes_on_from_itself(tmp_path: Path) -> None:
    """Not from its teacher, and its losses before and after are its own."""
    text = text_file(tmp_path)
    train_quietly(recipe(text, steps=2), tmp_path / "teacher")
    made = replace(
        recipe(text, steps=4),
        objective=ObjectiveChoice(
            name="distillation", options={"teacher": str(tmp_path / "teacher")}
        ),
    )
    made = override(made, [f"tokenizer.folder={tmp_path / 'teacher'}"])
    train_quietly(made, tmp_path / "run")
    # A step at a rate of next to nothing leaves the student where it was.
    still = [*SHORT, "training.optimizer.learning_rate=1e-12"]
    further.adapt(
        tmp_path / "run", [str(text)], tmp_path / "out", settings=still, stream=io.StringIO()
    )
    newest = [folders.newest(tmp_path / name) for name in ("run", "out", "teacher")]
    own, after, teacher = (pretrained.load(folder).model.tokens.weight for folder in newest)
    assert torch.allclose(own, after, atol=1e-6) and not torch.allclose(teacher, after, atol=1e-6)
    evaluations = [r for r in journal.read(tmp_path / "run") if r["kind"] == "evaluation"]
    before, later, _ = lines(tmp_path / "out")["the text before"]
    assert float(before) == pytest.approx(evaluations[-1]["loss"], abs=1e-4)
    assert float(later) == pytest.approx(float(before), abs=1e-4)


def test_a_run_that_began_with_a_folder_needs_it_no_more(tmp_path: Path) -> None:
    text = text_file(tmp_path)
    train_quietly(recipe(text, steps=2), tmp_path / "a")
    for before, after in (("a", "b"), ("b", "c")):
        further.adapt(
            tmp_path / before, [str(text)], tmp_path / after, settings=SHORT, stream=io.StringIO()
        )
        shutil.rmtree(tmp_path / before)
    assert folders.newest(tmp_path / "c").name == "step-00000001"


def test_an_old_text_that_lacks_what_the_rows_ask_for_is_left_out(tmp_path: Path) -> None:
    text = text_file(tmp_path)
    train_quietly(recipe(text, steps=2), tmp_path / "run")
    further.adapt(
        tmp_path / "run",
        [str(text)],
        tmp_path / "out",
        stream=io.StringIO(),
        settings=[*SHORT, "rows.kind=sentences"],
    )
    assert list(lines(tmp_path / "out")) == ["the new text"]


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = folder_of("bart", "BartForConditionalGeneration", "gpt2", tmp_path / "bart")
    with pytest.raises(IncompatibleError, match="stands for a gap"):
        further.recipe_of(bare)
    alone = folder_of("t5", "T5EncoderModel", "t5", tmp_path / "alone")
    with pytest.raises(IncompatibleError, match="needs a mask token"):
        further.recipe_of(alone)
    assert main(["adapt", str(bare)]) == 64
    assert "no text to train on" in capsys.readouterr().err
    assert main(["adapt", str(tmp_path / "brat"), "--text", str(bare)]) == 64
    assert "no such model" in capsys.readouterr().err


def test_a_refused_adapt_does_not_stop_the_corrected_one(tmp_path: Path) -> None:
    text, empty, out = text_file(tmp_path), tmp_path / "empty.txt", str(tmp_path / "out")
    empty.touch()
    train_quietly(recipe(text, steps=2), tmp_path / "run")
    command = ["adapt", "--out", out, "--minutes", "0.01", "--threads", "1"]
    command += [f"--set={setting}" for setting in SHORT]
    assert main([*command, "--text", str(empty), str(tmp_path / "run")]) == 65
    assert not Path(out).exists()
    assert main([*command, "--set", "rows.length=999", str(tmp_path / "run"), "--text", str(text)])
    assert main([*command, str(tmp_path / "run"), "--text", str(text)]) == 0
    assert run.read(Path(out) / run.RECIPE).training.threads == 1
