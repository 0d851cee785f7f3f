"""From a csv to a model that answers, as a user does it: what is said, written, and answered."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import maskwright
from checkpoint.small import saved
from finetune.old_results import as_before
from maskwright.ask.predict import write as write_module
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import load
from maskwright.ask.predict.rows import stdin_file
from maskwright.ask.predict.write import _model, write_predictions
from maskwright.base import catalogue
from maskwright.base.errors import (
    CheckpointError,
    DataError,
    IncompatibleError,
    MaskwrightError,
    OutputError,
    StoppedError,
    UsageError,
)
from maskwright.base.report import document
from maskwright.base.storage import files as storage
from maskwright.base.storage.lock import Lock
from maskwright.cli.main import main
from maskwright.learn.finetune import command as finetune_command
from maskwright.learn.finetune import learner, result
from maskwright.learn.finetune import recipe as recipe_of
from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.finetune.cross_validation import DIVISION
from maskwright.learn.finetune.label_curve import (
    NOT_KNOWN,
    SCRATCH,
    LabelCurve,
    judge_curve,
    strategy,
)
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.recipe import hashes
from maskwright.learn.finetune.run import require_unfinished
from maskwright.learn.finetune.tune import Settings, TrainingResult
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import FamilyModel
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_weights
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.reading_options import TableReadingOptions
from small_tasks import finetuned
from tinyrun import WORDS, recipe, text_file


def table(path: Path, kind: str, count: int = 200) -> Path:
    """Texts with a cat or a dog in them, and what their label says of that."""
    draw = np.random.default_rng(0)
    plain = [word for word in WORDS if word not in ("cat", "dog")]
    rows = []
    for _ in range(count):
        about = draw.integers(0, 2, 2)
        texts = []
        for each in about:
            words = draw.choice(plain, draw.integers(2, 9)).tolist()
            words.insert(int(draw.integers(0, len(words))), ("cat", "dog")[each])
            texts.append(" ".join(words))
        first, second = (("meow", "woof")[each] for each in about)
        rows.append(
            {
                "classification": [texts[0], first],
                "pair-classification": [*texts, ("other", "same")[int(about[0] == about[1])]],
                "multi-label": [" ".join(texts), "|".join(sorted({first, second}))],
                "regression": [texts[0], f"{about[0] + 0.1 * draw.random():.3f}"],
                "similarity": [*texts, f"{3.5 * (about[0] == about[1]) + draw.random():.3f}"],
            }[kind]
        )
    names = ["text", "label"] if len(rows[0]) == 2 else ["sentence1", "sentence2", "label"]
    if kind in ("regression", "similarity"):
        names[-1] = "score"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder, said = tmp_path_factory.mktemp("tuned"), io.StringIO()
    finetune_file(
        model,
        table(folder / "data.csv", "classification"),
        folder / "out",
        seeds=2,
        folds=0,
        epochs=8,
        batch=16,
        rate=1e-2,
        stream=said,
    )
    return folder / "out", said.getvalue()


def test_what_is_said_and_written(tuned: tuple[Path, str]) -> None:
    out, said = tuned
    for part in (
        "task: classification",
        "using column 'text' as text",
        "The data (classification)",
        "new: heads.classifier",
        "seed 1 · epoch 8 of 8",
        "majority",
        "words",
        "all 2 seeds",
        "next: maskwright predict",
    ):
        assert part in said, part
    found = json.loads((out / "results.json").read_text())
    assert found["asked"] == "test" and len(found["seeds"]) == 2
    chosen = found["seeds"][found["chosen"]]
    assert chosen["accuracy"] > 0.9 and max(chosen["validation"]) > 0.9
    assert json.loads((out / "task.json").read_text())["labels"] == ["meow", "woof"]


@pytest.mark.parametrize("curve", [(), (20,)])
def test_a_folder_of_somebody_elses_is_left_alone(
    model: Path, tmp_path: Path, curve: tuple[int, ...]
) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(OutputError):
        finetune_file(model, data, tmp_path, **BRIEFLY, curve=curve, stream=io.StringIO())
    assert (tmp_path / "adapter").is_dir() and (tmp_path / "report.html").read_text() == "mine"


def test_a_dry_run_says_all_and_writes_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path / "data.csv", "pair-classification", 60)
    command = ["finetune", str(model), "--data", str(data), "--out", str(tmp_path / "out")]
    for more in ([], ["--method", "lora"], ["--curve", "10,all", "--method", "full,probe"]):
        before = {path.name for path in tmp_path.iterdir()}
        more = [*more, "--epochs", "2", "--seeds", "1", "--folds", "0"]
        assert main([*command, "--dry-run", *more]) == 0
        said = capsys.readouterr().out
        for part in (
            "task: pair-classification",
            "using column 'sentence1'",
            "train",
            "test",
            "cost: 1 seed of 4 steps each: 2 × 1 pass over",
            "time: about",
            "disk: ",
        ):
            assert part in said, part
        assert {path.name for path in tmp_path.iterdir()} == before
    assert main([*command[:-3], str(tmp_path / "nothing.csv"), "--dry-run"]) == 64


def test_epochs_that_are_named_are_passes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(table(tmp_path / "data.csv", "pair-classification", 60))
    out = tmp_path / "out"
    command = ["finetune", str(model), "--data", data, "--seeds", "1", "--threads", "1"]
    command += ["--folds", "0"]
    assert main([*command, "--epochs", "1", "--patience", "1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "seed 0 · 2 steps" in said and "passes" not in said
    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert "- threads: 1" in card
    # A row of two texts is shown as one.
    assert "predict([('first …', 'second …')])" in card
    assert "ask({'text': 'first …', 'text_pair': 'second …'}" in card
    assert recipe_of.read(out / "finetune.toml").threads == 1
    # What an earlier release wrote is made again as it was; naming epochs makes them passes.
    old = recipe_of.FinetuneRecipe(model=str(model), data=data, epochs=3, least_steps=100, folds=0)
    assert old.passes == (3, 100)
    assert recipe_of.FinetuneRecipe(model="m", data="d").passes == (3, 100)
    assert recipe_of.FinetuneRecipe(model="m", data="d", epochs=5).passes == (5, 0)
    (tmp_path / "old.toml").write_text(recipe_of.render(old))
    assert main(["finetune", str(tmp_path / "old.toml"), "--dry-run", "--epochs", "1"]) == 0
    assert ": 1 × 1 pass over" in capsys.readouterr().out
    assert main(["finetune", str(tmp_path / "old.toml"), "--dry-run"]) == 0
    assert ": 3 × 17 passes over" in capsys.readouterr().out


def test_a_disk_without_room_is_refused_before_the_work(
    model: Path,
    tuned: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    lines = tmp_path / "text.txt"
    lines.write_text("the cat sat\n\n" * 200)
    out = str(tmp_path / "out")
    commands = [
        ["finetune", str(model), "--data", str(data), "--out", out],
        ["predict", str(tuned[0]), str(data), "--out", f"{out}.jsonl"],
        ["tokenizer", "--text", str(lines), "--out", f"{out}-tokenizer"],
        ["pretrain", "tiny", "--text", str(lines), "--out", f"{out}-pretrain"],
        ["adapt", str(model), "--text", str(lines), "--out", f"{out}-adapt"],
        [
            "compare",
            "tiny",
            "--text",
            str(lines),
            "--budget",
            "tokens=1",
            "--out",
            f"{out}-compare",
        ],
    ]
    for free in (0, 900):
        monkeypatch.setattr(storage.FileSystem, "free_bytes", lambda *_, free=free: free)
        for command in commands:
            code = main(command)
            told = capsys.readouterr()
            assert code == 75, told.err
            assert f"{free:,} bytes free" in told.err
            assert "seed 0" not in told.out and "step 1" not in told.out
    assert not Path(f"{out}.jsonl").exists()
    monkeypatch.undo()
    assert main(commands[1]) == 0


def test_the_model_card(tuned: tuple[Path, str]) -> None:
    text = (tuned[0] / "model" / "README.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in front.splitlines())
    (index,) = json.loads(keys["model-index"])
    figures = {m["type"]: m["value"] for m in index["results"][0]["metrics"]}
    found = json.loads((tuned[0] / "results.json").read_text())
    chosen = found["seeds"][found["chosen"]]
    assert figures["accuracy"] == pytest.approx(chosen["accuracy"], abs=1e-6)
    assert json.loads(keys["pipeline_tag"]) == "text-classification"
    for part in ("`meow`, `woof`", "majority", "train 160", "data.csv", "seeds tried: 2"):
        assert part in body, part
    assert "None" not in text and "nan" not in text and "needed" not in text.lower()


def test_long_texts(model: Path, tmp_path: Path) -> None:
    """Evidence at the end is not seen by what reads the beginning, but by what reads the rest."""
    draw = np.random.default_rng(0)
    plain = [word for word in WORDS if word not in ("cat", "dog")]
    data = tmp_path / "data.csv"
    with data.open("w", newline="", encoding="utf-8") as file:
        rows = []
        for number in range(240):
            animal, label = (("cat", "meow"), ("dog", "woof"))[number % 2]
            rows.append([" ".join([*draw.choice(plain, 12), animal]), label])
        csv.writer(file).writerows([["text", "label"], *rows])
    found = {}
    in_pieces = ("pieces-max", "vectors-max", "hierarchical")
    for long in ("head", "tail", "head-and-tail", *in_pieces):
        said = io.StringIO()
        out = tmp_path / long
        finetuned(
            model,
            data,
            out,
            epochs=6,
            batch=16,
            rate=1e-2,
            length=12,
            least_steps=0,
            long=long,
            stream=said,
        )  # type: ignore[arg-type]
        assert (
            "in pieces" if long in in_pieces else "100.0% of 192 rows truncated"
        ) in said.getvalue()
        found[long] = json.loads((out / "results.json").read_text())["seeds"][0]["accuracy"]
        (answer,) = load(out).predict([rows[1][0]])
        assert long == "head" or answer["label"] == "woof"
        if long == "hierarchical":
            assert load(out / "model").frame.long == long, "which the model alone says, too"
    assert min(value for long, value in found.items() if long != "head") > 0.9
    assert found["head"] < 0.75, "the control: there is nothing to be seen in the head"
    with pytest.raises(UsageError, match="--long"):
        finetune_file(model, data, tmp_path / "odd", long="middle", stream=said)  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_what_is_read_of_a_text(pooling: str, model: Path, tmp_path: Path) -> None:
    """A folder that transformers would read otherwise is none of its own."""
    data, out = table(tmp_path / "data.csv", "classification"), tmp_path / "out"
    finetuned(model, data, out, epochs=8, batch=16, rate=1e-2, pooling=pooling)
    found = json.loads((out / "results.json").read_text())["seeds"][0]["accuracy"]
    assert found > 0.9
    config = json.loads((out / "model" / "config.json").read_text())
    assert (config["model_type"] == "bert") is (pooling == "cls")
    loaded = load(out)
    assert loaded.model.config.heads[0].pooling == {"cls": "place"}.get(pooling, pooling)
    assert loaded.predict(["the cat"])[0]["label"] == "meow"


def test_the_figure_that_chooses(model: Path, tmp_path: Path) -> None:
    data, out, said = (
        table(tmp_path / "data.csv", "classification"),
        tmp_path / "out",
        io.StringIO(),
    )
    finetuned(model, data, out, epochs=2, measure="matthews", stream=said)
    assert "validation matthews" in said.getvalue()
    found = json.loads((out / "results.json").read_text())
    assert found["measure"] == "matthews" and "accuracy" in found["seeds"][0]
    assert load(out).predict(["the cat"])[0]["label"] in ("meow", "woof")
    for wrong in ("mathews", "squared_error"):
        with pytest.raises(UsageError, match=r"select by(.|\n)*matthews"):
            finetune_file(model, data, tmp_path / "no", measure=wrong, stream=io.StringIO())


@pytest.mark.parametrize("is_trained", [False, True])
def test_the_pooling_of_a_folder_is_the_default(
    model: Path, tmp_path: Path, is_trained: bool
) -> None:
    """And a pooler that was never trained is left out and reported."""
    loaded, folder = open_weights(model), tmp_path / "means"
    config = replace(loaded.config, pooler=True, vocabulary_head=None)
    network = transfer(loaded.network, config).model
    network.pooler.bias.data.fill_(0.1 if is_trained else 0.0)
    data, said = table(tmp_path / "data.csv", "classification", 60), io.StringIO()
    common: dict[str, Any] = {"epochs": 1, "least_steps": 1, "stream": said}
    plain = finetuned(
        saved(folder, network, loaded.tokenizer, "bert"), data, tmp_path / "plain", **common
    )
    (folder / "1_Pooling").mkdir()
    modules = [
        {"idx": n, "name": f"{n}", "path": path, "type": f"sentence_transformers.models.{name}"}
        for n, (path, name) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    pooling = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    chosen = finetuned(folder, data, tmp_path / "chosen", pooling="cls", **common)
    means = finetuned(folder, data, tmp_path / "out", **common)
    heads = [load(path).model.config.heads[0].pooling for path in (plain, chosen, means)]
    assert heads == ["place", "place", "mean"]
    assert load(means).model.config.pooler is is_trained and load(plain).model.config.pooler
    opened = open_weights(folder)
    findings = finetune_command._findings_of_pooling(opened, [Method("probe")], "mean")
    assert [finding.name for finding in findings] == ["untrained-pooler"] * (not is_trained)
    assert finetune_command._usual_pooling(None, [Method("full")]) == {}


def test_a_pooling_that_is_none(model: Path, tmp_path: Path) -> None:
    data, out = table(tmp_path / "data.csv", "classification"), tmp_path / "out"
    with pytest.raises(UsageError, match="--pooling"):
        finetune_file(model, data, out, pooling="median", stream=io.StringIO())
    tags = tmp_path / "tags.conll"
    texts = (f"{one}\tN\n{two}\tV\n\n" for one in WORDS for two in WORDS)
    tags.write_text("".join(texts), encoding="utf-8")
    with pytest.raises(UsageError, match="--pooling"):
        finetune_file(model, tags, out, pooling="mean", stream=io.StringIO())


def test_the_package_loads_what_was_tuned(tuned: tuple[Path, str]) -> None:
    texts = ["the cat sat on the mat", "a dog"]
    assert maskwright.load(tuned[0]).predict(texts) == load(tuned[0]).predict(texts)
    card = (tuned[0] / "model" / "README.md").read_text(encoding="utf-8")
    assert "import maskwright\nmaskwright.load(" in card
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        maskwright.lode  # noqa: B018


def test_the_reference_library_says_the_same(tuned: tuple[Path, str]) -> None:
    transformers = pytest.importorskip("transformers")
    texts = ["the cat sat on the mat", "a dog", "one big red dog ran and saw a hat", "tree"] * 9
    ours = load(tuned[0]).predict(texts)
    path = tuned[0] / "model"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    with torch.no_grad():
        given = tokenizer(texts, padding=True, return_tensors="pt")
        shares = theirs.eval()(**given).logits.softmax(-1)
    assert [a["label"] for a in ours] == [
        theirs.config.id2label[i] for i in shares.argmax(-1).tolist()
    ]
    assert [a["score"] for a in ours] == pytest.approx(shares.amax(-1).tolist(), abs=1e-5)
    assert {a["label"] for a in ours} == {"meow", "woof"}


def test_the_reference_library_reads_rows_together_where_no_token_pads(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    small, plain = find("gpt2-mini"), recipe(text_file(tmp_path), steps=2)
    assert isinstance(small.model, FamilyModel)
    sizes = {"n_embd": 32, "n_layer": 1, "n_positions": 64}
    made = replace(
        plain,
        tokenizer=replace(small.tokenizer, vocabulary=400),
        model=replace(small.model, settings={**small.model.settings, **sizes}),
        objective=small.objective,
    )
    run.pretrain(made, tmp_path / "run", stream=io.StringIO())
    data = table(tmp_path / "data.csv", "classification")
    finetuned(tmp_path / "run", data, tmp_path / "out", epochs=1)
    texts = ["the cat sat on the mat", "a dog", "one big red dog ran and saw a hat"]
    texts += ["the cat <|endoftext|> a dog"]  # what spells a special token is text to both
    ours = load(tmp_path / "out").predict(texts)
    path = str(tmp_path / "out" / "model")
    theirs = transformers.pipeline("text-classification", model=path)(texts, batch_size=3)
    assert [a["label"] for a in ours] == [a["label"] for a in theirs]
    assert [a["score"] for a in ours] == pytest.approx([a["score"] for a in theirs], abs=1e-5)
    alone = [load(tmp_path / "out").predict([text])[0]["score"] for text in texts]
    assert alone == pytest.approx([a["score"] for a in ours], abs=1e-6)


def test_a_file_is_answered_row_by_row(tuned: tuple[Path, str], tmp_path: Path) -> None:
    asked = table(tmp_path / "new.csv", "classification", 70)
    stream = io.StringIO()
    assert predict_file(tuned[0], asked, stream) == 70
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    with asked.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [line["text"] for line in lines] == [row["text"] for row in rows]
    right = [
        line["prediction"]["label"] == row["label"] for line, row in zip(lines, rows, strict=True)
    ]
    assert np.mean(right) > 0.9
    plain = tmp_path / "new.txt"
    plain.write_text("".join(f"{row['text']}\n" for row in rows), encoding="utf-8")
    again = io.StringIO()
    predict_file(tuned[0], plain, again)
    assert [json.loads(line)["prediction"] for line in again.getvalue().splitlines()] == [
        line["prediction"] for line in lines
    ]


def test_other_weights_are_another_model(tuned: tuple[Path, str], tmp_path: Path) -> None:
    """However its folder is named: what was answered before is not gone on with."""
    for name in ("", "model"):
        other = shutil.copytree(tuned[0], tmp_path / f"other{name}")
        here, there = _model(tuned[0] / name), _model(other / name)
        assert here == there
        weights = other / "model" / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        assert _model(other / name) != here
    assert _model(tuned[0] / "model") == _model(tuned[0])
    alone = shutil.copytree(tuned[0] / "model", tmp_path / "alone")
    assert any("safetensors" in name for name in _model(alone))


def test_an_answer_that_was_given_outlives_a_full_disk(
    tuned: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, out = table(tmp_path / "new.csv", "classification", 20), tmp_path / "told.csv"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(write_module, "_as_table", full)
        with pytest.raises(OutputError):
            write_predictions(tuned[0], asked, out)
    staged = tmp_path / ".tmp-told.csv.jsonl"
    marked = staged.read_text().replace('"label": "', '"label": "kept ')
    staged.write_text(marked)
    # A slip in the command that was to go on is refused, and costs nothing.
    with pytest.raises(DataError, match="column"):
        write_predictions(tuned[0], asked, out, columns={"text": ["txt"]})
    assert staged.read_text() == marked
    assert write_predictions(tuned[0], asked, out) == 20
    assert out.read_text().count("kept ") == 40, "in the row's own label, too"


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_stop_while_the_result_is_written_is_gone_on_with(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 80), tmp_path / "out"

    def stopped(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(result.page, "render", stopped)
        with pytest.raises(KeyboardInterrupt):
            finetuned(model, data, out, epochs=1, method=method)
    assert (out / "model").is_dir() and not (out / "report.html").exists()
    said = io.StringIO()
    finetuned(model, data, out, epochs=1, method=method, stream=said)
    assert "finished before" in said.getvalue() and (out / "report.html").is_file()
    for name in ("unfinished", ".del-unfinished"):  # of kills while what is finished is removed
        (out / name / "seed-0").mkdir(parents=True)
        (out / name / "seed-0" / "weights.safetensors").write_bytes(b"heavy")
    (out / ".tmp-report.html-12-3").write_text("half a page")
    there = sorted(p.name for p in out.iterdir())
    with pytest.raises(UsageError, match="there already"):
        finetuned(model, data, out, epochs=1, method=method, stream=said)
    removed = {*there} - {p.name for p in out.iterdir()}
    assert removed == {"unfinished", ".del-unfinished", ".tmp-report.html-12-3"}
    assert load(out).predict(["the cat"])


def test_a_refused_folder_of_another_keeps_all_that_it_holds(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in ("probe-1.csv", ".tmp-a.csv.jsonl", ".tmp-notes", ".del-notes"):
        (tmp_path / name).write_text("mine")
    there = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(UsageError, match="there already"):
        require_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == there


def test_no_stop_leaves_a_result_without_its_recipe(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 80), tmp_path / "out"
    write = document.write

    def stopped(path: Path, text: str) -> Path:
        if path.name == "finetune.toml":
            raise KeyboardInterrupt
        return write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(document, "write", stopped)
        with pytest.raises(KeyboardInterrupt):
            finetuned(model, data, out, epochs=1)
    assert (out / "report.html").is_file(), "the control: all else had been written"
    finetuned(model, data, out, epochs=1)
    assert (out / "finetune.toml").is_file() and not (out / "unfinished").exists()


def test_two_do_not_write_one_file(tuned: tuple[Path, str], tmp_path: Path) -> None:
    asked, out = table(tmp_path / "new.csv", "classification", 20), tmp_path / "told.jsonl"
    with Lock(tmp_path / ".tmp-told.jsonl.lock"), pytest.raises(StoppedError):
        write_predictions(tuned[0], asked, out)
    assert not out.exists()
    assert write_predictions(tuned[0], asked, out) == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "told.jsonl"]


def test_rows_that_cannot_be_read_are_told(tuned: tuple[Path, str], tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "a cat"}\n{"text": "b"\n{"text": null}\n{"text": "a dog"}\n')
    lax = TableReadingOptions(ReadingOptions(on_bad="skip", max_bad_fraction=0.9))
    said: list[str] = []
    stream = io.StringIO()
    assert predict_file(tuned[0], path, stream, read=lax, say=said.append) == 3
    assert len(said) == 2 and "line 2" in said[1]
    said.clear()
    write_predictions(tuned[0], path, tmp_path / "told.csv", read=lax, say=said.append)
    assert any("line 2" in line for line in said)
    plain = tmp_path / "plain.txt"
    plain.write_text("a cat\na dog\n")
    said.clear()
    predict_file(tuned[0], plain, io.StringIO(), read=lax, say=said.append)
    assert said == [], "the control"


def test_predictions_go_on_after_a_kill(tuned: tuple[Path, str], tmp_path: Path) -> None:
    asked, out = table(tmp_path / "new.csv", "classification", 70), tmp_path / "told.csv"
    assert write_predictions(tuned[0], asked, tmp_path / "told.jsonl") == 70
    whole = (tmp_path / "told.jsonl").read_bytes().splitlines(keepends=True)
    about = json.dumps({"model": _model(tuned[0]), "source": hashes(asked)})
    marked = json.loads(whole[0]) | {"prediction": {"label": "kept", "score": 1.0}}
    staged = tmp_path / ".tmp-told.csv.jsonl"
    torn = [f"{about}\n".encode(), f"{json.dumps(marked)}\n".encode(), *whole[1:5], whole[5][:9]]
    staged.write_bytes(b"".join(torn))
    assert write_predictions(tuned[0], asked, out) == 70
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 70 and rows[0]["predicted_label"] == "kept"
    assert [r["text"] for r in rows] == [json.loads(line)["text"] for line in whole]
    assert [r["predicted_label"] for r in rows[1:]] == [
        json.loads(line)["prediction"]["label"] for line in whole[1:]
    ]
    # The control: what was answered about another file is not gone on with.
    out.unlink()
    torn[0] = torn[0].replace(b"new.csv", b"old.csv")
    staged.write_bytes(b"".join(torn))
    write_predictions(tuned[0], asked, out)
    assert "kept" not in out.read_text() and not list(tmp_path.glob(".tmp-*"))


def test_values_that_json_has_not_are_written_as_text(
    tuned: tuple[Path, str], tmp_path: Path
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"text": ["a cat"], "seen": [datetime.date(2024, 5, 17)]}
    parquet.write_table(arrow.table(columns), tmp_path / "new.parquet")
    stream = io.StringIO()
    assert predict_file(tuned[0], tmp_path / "new.parquet", stream) == 1
    assert json.loads(stream.getvalue())["seen"] == "2024-05-17"


def test_answers_do_not_depend_on_who_is_asked_beside(tuned: tuple[Path, str]) -> None:
    predictor = load(tuned[0])
    draw = np.random.default_rng(1)
    texts = [" ".join(draw.choice(WORDS, draw.integers(1, 12))) for _ in range(64)]
    whole = predictor.predict(texts)
    for size in (1, 7, 32):
        parts = [a for i in range(0, 64, size) for a in predictor.predict(texts[i : i + size])]
        assert [a["label"] for a in parts] == [a["label"] for a in whole]
        assert [a["score"] for a in parts] == pytest.approx([a["score"] for a in whole], abs=2e-6)


@pytest.mark.parametrize("kind", ["pair-classification", "multi-label", "regression", "similarity"])
def test_other_tasks(kind: str, model: Path, tmp_path: Path) -> None:
    said = io.StringIO()
    data = table(tmp_path / "data.csv", kind)
    finetuned(
        model, data, tmp_path / "out", epochs=2, batch=16, rate=1e-2, least_steps=0, stream=said
    )
    assert f"task: {kind}" in said.getvalue()
    texts = "a cat" if kind in ("multi-label", "regression") else ("a cat", "the dog")
    (answer,) = load(tmp_path / "out").predict([texts])  # type: ignore[list-item]
    wanted = {"pair-classification": {"label", "score"}, "multi-label": {"labels", "scores"}}
    assert set(answer) == wanted.get(kind, {"score"})


@pytest.mark.parametrize("method", catalogue.names("adapters"))
def test_methods_that_train_little(method: str, model: Path, tmp_path: Path) -> None:
    """What is read back answers as what was trained did."""
    said, data = io.StringIO(), table(tmp_path / "data.csv", "classification")
    out = finetuned(
        model, data, tmp_path / "out", method=method, epochs=6, batch=16, rate=2e-2, stream=said
    ).parent
    assert f"method: {method}; " in said.getvalue()
    found = json.loads((out / "results.json").read_text())
    asked = prepare(data, division=DIVISION).parts["test"]
    names = json.loads((out / "task.json").read_text())["labels"]
    predictor = load(out)
    answers = predictor.predict([row.text for row in asked])
    alone = [predictor.predict([row.text])[0]["score"] for row in asked]
    assert [a["score"] for a in answers] == pytest.approx(alone, abs=1e-5), "neighbours are heard"
    told = [names.index(a["label"]) for a in answers]
    right = np.mean([a == row.label for a, row in zip(told, asked, strict=True)])
    figure = found["seeds"][0]["accuracy"]  # in bfloat16, where it trained
    assert right == pytest.approx(figure, abs=0.06)
    losses = found["seeds"][0]["loss"]
    assert losses[-1] < losses[0]
    # A head alone is saved as that, and not beside a copy of the model that it stands on.
    assert (out / "adapter").is_dir()
    assert (out / "model").is_dir() is (method not in ("head", "probe"))


def test_the_verbs(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 60), tmp_path / "out"
    learn = (
        f"finetune {model} --data {data} --out {out} --seeds 1 --epochs 1 --column text=text"
    ).split()
    assert main(learn) == 0
    ask = ["predict", str(out), str(data), "--out", str(tmp_path / "told.jsonl")]
    assert main(ask) == 0 and "60 predictions" in capsys.readouterr().out
    assert len((tmp_path / "told.jsonl").read_text().splitlines()) == 60
    assert main(ask) == 64 and "there already" in capsys.readouterr().err
    assert main(learn) == 64 and "there already" in capsys.readouterr().err
    learn[5] = str(tmp_path / "other")
    assert main([*learn[:-1], "text=review"]) != 0
    assert "review" in capsys.readouterr().err
    assert main([*learn[:-1], "review"]) == 64


def test_the_folder_of_the_model_answers_as_the_one_around_it(model: Path, tmp_path: Path) -> None:
    """With what lies beside the model; and where the model alone is another one, it is said."""
    data, texts = table(tmp_path / "data.csv", "classification", 60), ["a cat", "the big dog"]
    for method in ("prefix", "lora"):
        out = tmp_path / method
        finetuned(model, data, out, method=method, epochs=2, rate=2e-2, batch=16)
        assert load(out / "model").predict(texts) == load(out).predict(texts)
    assert "prefix/adapter" in (tmp_path / "prefix" / "model" / "README.md").read_text()
    assert folders.model_folder(tmp_path / "lora") == tmp_path / "lora" / "model"
    with pytest.raises(IncompatibleError):
        folders.model_folder(tmp_path / "prefix")
    told = as_before(tmp_path / "lora") / "task.json"
    told.write_text('{"kind": "classification"}')
    with pytest.raises(CheckpointError, match="labels"):
        load(tmp_path / "lora")


def test_one_example_by_itself(tuned: tuple[Path, str], model: Path, tmp_path: Path) -> None:
    predictor = load(tuned[0])
    assert predictor.predict("the cat") == predictor.predict(["the cat"])
    assert predictor.predict({"text": "the cat"}) == predictor.predict(["the cat"])
    with pytest.raises(DataError, match="no examples"):
        predictor.predict(None)  # type: ignore[arg-type]
    (both,) = predictor.predict("the cat", top=5)
    assert [both[0]] == predictor.predict("the cat") and len(both) == 2
    assert {each["label"] for each in both} == {"meow", "woof"}
    assert sum(each["score"] for each in both) == pytest.approx(1, abs=1e-5)
    with pytest.raises(UsageError, match="--top"):
        predictor.predict("the cat", top=0)
    data = table(tmp_path / "pairs.csv", "pair-classification", 60)
    finetuned(model, data, tmp_path / "out", epochs=1)
    pairs = load(tmp_path / "out")
    by_column = pairs.predict({"sentence1": "a cat", "sentence2": "the dog"})
    assert by_column == pairs.predict([("a cat", "the dog")])
    assert by_column == pairs.predict({"text": "a cat", "text_pair": "the dog"})


def test_files_that_are_read_as_told(
    tuned: tuple[Path, str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"die {a} im Café {n};{a}\n" for n in range(30) for a in ("Kätze", "Hunde"))
    odd = tmp_path / "odd.csv"
    odd.write_text(rows + ";Hunde\n", encoding="latin-1")
    learn = (
        f"finetune {model} --data {odd} --out {tmp_path / 'out'} --seeds 1 "
        "--epochs 1 --column text=what --column label=who --read "
        "encoding=latin-1 --read separator=; --read header=what,who --read "
        "max_bad_fraction=0.1"
    ).split()
    assert main(learn) != 0 and "--read on_bad=skip" in capsys.readouterr().err
    assert main([*learn, "--read", "on_bad=skip"]) == 0
    assert "left out: 1 bad row" in capsys.readouterr().out
    ask = ["predict", str(tuned[0]), str(odd), "--column", "text=what", *learn[14:20]]
    assert main([*ask, "--out", str(tmp_path / "told.tsv")]) != 0, "before anything is computed"
    assert "odd.csv, line 61" in capsys.readouterr().err
    assert main([*ask, "--read", "on_bad=skip", "--out", str(tmp_path / "told.tsv")]) == 0
    with (tmp_path / "told.tsv").open(encoding="utf-8", newline="") as file:
        told = list(csv.DictReader(file, delimiter="\t"))
    assert len(told) == 61 and told[0]["what"] == "die Kätze im Café 0"
    assert told[0]["predicted_label"] in ("meow", "woof") and not told[-1]["predicted_label"]
    for wrong in ("encodng=latin-1", "on_bad", "on_bad=perhaps"):
        assert main([*ask, "--read", wrong]) == 64
    assert main([*ask[:3], "--column", "txt=what"]) == 64
    assert main([*ask, "--out", str(tmp_path / "told.xlsx")]) == 64
    assert ".jsonl, .csv, .tsv" in capsys.readouterr().err


@pytest.mark.parametrize("lines", ["a cat\nthe dog\n", '{"text": "a cat"}\n{"text": "the dog"}\n'])
def test_a_pipe_is_answered(lines: str, tuned: tuple[Path, str]) -> None:
    said = io.StringIO()
    with stdin_file(io.BytesIO(lines.encode())) as path:
        assert predict_file(tuned[0], path, said) == 2
    told = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [row["text"] for row in told] == ["a cat", "the dog"]
    assert [row["prediction"] for row in told] == load(tuned[0]).predict(["a cat", "the dog"])


def test_a_hole_in_a_parquet_column_is_null(tuned: tuple[Path, str], tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"text": ["a cat", "the dog"], "stars": [2.5, float("nan")]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    said = io.StringIO()
    assert predict_file(tuned[0], tmp_path / "rows.parquet", said) == 2
    assert "NaN" not in said.getvalue()
    assert [json.loads(line)["stars"] for line in said.getvalue().splitlines()] == [2.5, None]


def test_refusals(tuned: tuple[Path, str], model: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError):
        load(next((model / "checkpoints").glob("step-*")))
    with pytest.raises(DataError, match="example 1"):
        load(tuned[0]).predict([("one", "two")])
    again = tmp_path / "again.csv"
    again.write_text("text,prediction\na cat,meow\n", encoding="utf-8")
    with pytest.raises(UsageError):
        predict_file(tuned[0], again, io.StringIO())
    again.write_text("text,predicted_label\na cat,meow\n", encoding="utf-8")
    with pytest.raises(UsageError):
        write_predictions(tuned[0], again, tmp_path / "again-told.csv")
    again.write_text("text,predicted_price\na cat,7\n", encoding="utf-8")
    assert write_predictions(tuned[0], again, tmp_path / "fine.csv") == 1
    (tmp_path / "both").mkdir()
    for name in ("a.csv", "b.txt"):
        (tmp_path / "both" / name).write_text("text\na cat\n", encoding="utf-8")
    with pytest.raises(UsageError, match="both"):
        predict_file(tuned[0], tmp_path / "both", io.StringIO())
    pairs = table(tmp_path / "pairs.csv", "similarity")
    with pytest.raises(UsageError, match="--long"):
        finetune_file(model, pairs, tmp_path / "tail", long="tail", stream=io.StringIO())
    other = tmp_path / "other.csv"
    other.write_text("review,stars\nfine,5\n", encoding="utf-8")
    with pytest.raises(DataError, match="'text'") as caught:
        predict_file(tuned[0], other, io.StringIO())
    assert "line 2" in str(caught.value.where) and "'text'" in str(caught.value)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\nbroken \xff\xfe\x80 bytes\n")
    with pytest.raises(DataError, match=r"bad\.txt"):
        predict_file(tuned[0], bad, io.StringIO())
    hollow = tmp_path / "hollow.jsonl"
    hollow.write_text('{"text": "a cat"}\n{"text": null}\n', encoding="utf-8")
    with pytest.raises(DataError, match="line 2") as caught:
        write_predictions(tuned[0], hollow, tmp_path / "told.jsonl")
    assert "line 2" in str(caught.value.where)
    assert not list(tmp_path.glob("*told*")) and not list(tmp_path.glob(".tmp-*"))
    with pytest.raises(OutputError, match="nowhere"):
        write_predictions(tuned[0], hollow, tmp_path / "nowhere" / "told.jsonl")
    rewrites = tmp_path / "rewrites.jsonl"
    rows = ({"source": f"a{n} cat", "target": f"a dog of {n}"} for n in range(40))
    rewrites.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(IncompatibleError, match="cannot write"):
        finetune_file(model, rewrites, tmp_path / "out", stream=io.StringIO())
    with pytest.raises(UsageError, match="there already"):
        finetune_file(
            model, table(tmp_path / "data.csv", "classification"), tuned[0], stream=io.StringIO()
        )
    data = table(tmp_path / "data.csv", "classification")
    for settings, says in (
        ({"length": 0}, "--length"),
        ({"layer_decay": 2.0}, "--layer-decay"),
        ({"rate": -1.0}, "--rate"),
        ({"rate": math.nan}, "--rate"),
        ({"patience": 0}, "--patience"),
        ({"warmup": 1.0}, "--warmup"),
        ({"weight_decay": -0.1}, "--weight-decay"),
        ({"columns": {"group": ["text", "label"]}}, "one column holds the group"),
    ):
        with pytest.raises(UsageError, match=says):
            finetune_file(model, data, tmp_path / "out", stream=io.StringIO(), **settings)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--prompt"):
        finetune_file(
            model, rewrites, tmp_path / "out", prompt="short: {sorce}", stream=io.StringIO()
        )
    with pytest.raises(UsageError, match="--seeds"):
        finetune_file(model, rewrites, tmp_path / "out", seeds=0)
    with pytest.raises(MaskwrightError):
        finetune_file(model, tmp_path / "nothing.csv", tmp_path / "out", stream=io.StringIO())


def test_weight_decay_and_warm_up_are_those_asked_for(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    tune = learner.tune

    def noted(
        objective: Any, train: Any, how: Any, settings: Settings, **more: Any
    ) -> TrainingResult:
        seen.append(settings)
        return tune(objective, train, how, settings, **more)

    monkeypatch.setattr(learner, "tune", noted)
    data = table(tmp_path / "data.csv", "classification", 60)
    for number, given in enumerate(({}, {"weight_decay": 0.1, "warmup": 0.06})):
        finetuned(model, data, tmp_path / str(number), epochs=1, **given)  # type: ignore[arg-type]
    assert [(s.optimizer.decay, s.schedule.warmup) for s in seen] == [(0.01, 0.1), (0.1, 0.06)]
    card = (tmp_path / "1" / "model" / "README.md").read_text(encoding="utf-8")
    assert "0.06" in card


def test_a_curve(model: Path, tmp_path: Path) -> None:
    data, out, said = (
        table(tmp_path / "data.csv", "classification"),
        tmp_path / "out",
        io.StringIO(),
    )

    def ask() -> None:
        finetune_file(
            model,
            data,
            out,
            method="full,probe",
            curve=[20, 0],
            seeds=2,
            epochs=1,
            batch=16,
            rate=1e-2,
            least_steps=4,
            stream=said,
        )

    ask()
    found = json.loads((out / "curve.json").read_text())["figures"]
    assert set(found) == {
        "majority (no pretraining)",
        "words (no pretraining)",
        "full",
        "probe",
        "from scratch",
    }
    assert all(set(by) == {"20", "160"} for by in found.values())
    assert (out / "report.html").read_text().count("<table") == 2
    # Gone on with, nothing is trained again: a figure that was changed by hand stays.
    lines = (out / "curve.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 2 * 2 * 3
    row = json.loads(lines[1])
    (out / "curve.jsonl").write_text(
        "\n".join([lines[0], json.dumps({**row, "value": 0.125})]) + "\n"
    )
    ask()
    again = json.loads((out / "curve.json").read_text())["figures"]
    assert again[row["way"]][str(row["labels"])][str(row["seed"])] == 0.125
    with pytest.raises(UsageError, match="--curve"):
        finetune_file(model, data, tmp_path / "other", curve=[9999], stream=said)
    with pytest.raises(UsageError, match="--method"):
        finetune_file(model, data, tmp_path / "other", method="full,lora", stream=said)
    with pytest.raises(UsageError, match=r"curve\.jsonl"):
        finetune_file(
            model,
            table(tmp_path / "pairs.csv", "pair-classification"),
            out,
            curve=[20],
            stream=said,
        )
    for odd in ("5,few", "5²"):
        assert main(["finetune", str(model), "--data", str(data), "--curve", odd]) == 64


def test_where_no_seed_changes_anything_there_is_no_verdict() -> None:
    """One row of eight between figures that are the same for every seed is no proof."""
    for ours, apart in (
        ({0: 0.875, 1: 0.875}, None),
        ({0: 1.0, 1: 1.0}, None),
        ({0: 0.99, 1: 1.02}, False),
        ({0: 0.85, 1: 0.86}, True),  # the control
        ({0: 0.875}, None),
    ):
        known = LabelCurve("accuracy", [20])
        for seed, value in ours.items():
            for way, figure in (("full", value), ("words", 1.0), (SCRATCH, 0.5)):
                known.put(way, 20, seed, figure)
        assert known.apart("full", "words", 20) is apart


def test_the_strategy_names_what_nobody_can_tell_apart() -> None:
    known = LabelCurve("accuracy", [20])
    for way, values in (("full", [0.8, 0.82]), ("probe", [0.5, 0.5]), ("lora", [0.79, 0.83])):
        for seed, value in enumerate(values):
            known.put(way, 20, seed, value)
    assert strategy(known)["rows"][0][3] == "lora"
    # No seed changes either: not known, which is not the same.
    known.put("full", 20, 1, 0.8, validation=0.9)
    assert strategy(known)["rows"][0][3] == "lora; not known: probe"
    alone = LabelCurve("accuracy", [20])
    alone.put("full", 20, 0, 0.8)
    alone.put("probe", 20, 0, 0.5)
    assert strategy(alone)["rows"][0][3] == NOT_KNOWN


def test_a_curve_tells_what_was_cut(model: Path, tmp_path: Path) -> None:
    """Once for each number of rows, however many trainings read them; and only what was."""
    data = table(tmp_path / "data.csv", "classification")
    wanted = [
        "note: train: 100.0% of 20",
        "note: validation: 100.0% of 20",
        "note: test: 100.0% of 20",
        "note: train: 100.0% of 160",
    ]
    for length, seeds, told in ((4, 2, wanted), (None, 1, [])):
        said = io.StringIO()
        finetune_file(
            model,
            data,
            tmp_path / str(length),
            method="probe",
            curve=[20, 0],
            seeds=seeds,
            epochs=1,
            batch=16,
            least_steps=0,
            length=length,
            stream=said,
        )
        lines = [line for line in said.getvalue().splitlines() if " tokens cut" in line]
        assert [line.split(" rows")[0] for line in lines] == told, lines


# ---------------------------------------------------------------------- stopped and begun again
BRIEFLY = {"seeds": 3, "folds": 0, "epochs": 2, "batch": 16, "rate": 1e-2, "least_steps": 0}


@pytest.fixture(scope="module")
def stopped(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """(file, what was begun, what was said): stopped in the second of three seeds."""
    folder, said = tmp_path_factory.mktemp("stopped"), io.StringIO()
    data = table(folder / "data.csv", "classification", 60)
    whole = learner.tune

    def stop(*given: Any, **named: Any) -> Any:
        if given[3].seed == 1:
            raise KeyboardInterrupt
        return whole(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "tune", stop)
        with pytest.raises(KeyboardInterrupt):
            finetune_file(model, data, folder / "out", **BRIEFLY, stream=said)
    return data, folder / "out", said.getvalue()


def test_a_stop_before_the_first_seed_counts_no_seeds(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(learner, "tune", stop)
    data, said = table(tmp_path / "data.csv", "classification", 60), io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        finetune_file(model, data, tmp_path / "out", **BRIEFLY, stream=said)
    last = said.getvalue().splitlines()[-1]
    assert " 0 of " not in last and "kept" not in last and f"--out {tmp_path / 'out'}" in last


def test_a_stop_keeps_the_finished_seeds(
    model: Path, stopped: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out, said = stopped
    assert "1 of 3" in said and (out / "unfinished" / "seed-0").is_dir()
    again = Path(shutil.copytree(out, tmp_path / "again"))
    seeds, whole = [], learner.tune

    def note(*given: Any, **named: Any) -> Any:
        seeds.append(given[3].seed)
        return whole(*given, **named)

    monkeypatch.setattr(learner, "tune", note)
    finetune_file(model, data, again, **BRIEFLY, stream=io.StringIO())
    assert seeds == [1, 2] and not (again / "unfinished").exists()
    finetune_file(model, data, tmp_path / "alone" / "whole", **BRIEFLY, stream=io.StringIO())
    assert seeds[2:] == [0, 1, 2]
    for name in ("model/model.safetensors", "model/config.json", "task.json"):
        assert (again / name).read_bytes() == (tmp_path / "alone" / "whole" / name).read_bytes()
    ours, theirs = (
        json.loads((folder / "results.json").read_text())
        for folder in (again, tmp_path / "alone" / "whole")
    )
    for each in (*ours["seeds"], *theirs["seeds"]):
        each.pop("seconds")
    assert ours == theirs


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epochs": 1}, ("--epochs 2", "--epochs 1")),
        ({"batch": 4}, ("--batch 16", "--batch 4")),
        ({"pooling": "mean"}, ("--pooling not given", "--pooling mean")),
        ({"method": "probe"}, ("--method full", "--method probe")),
    ],
)
def test_the_seeds_of_another_fine_tuning_are_not_taken_up(
    model: Path,
    stopped: tuple[Path, Path, str],
    change: dict[str, Any],
    named: tuple[str, str],
) -> None:
    """The setting is named, with both values."""
    data, out, _ = stopped
    with pytest.raises(UsageError, match="seed-0") as refused:
        finetune_file(model, data, out, **{**BRIEFLY, **change}, stream=io.StringIO())
    assert named[0] in str(refused.value.found) and named[1] in str(refused.value.wanted)
    assert (out / "unfinished/seed-0").is_dir()


def test_other_rows_are_another_fine_tuning(
    model: Path, stopped: tuple[Path, Path, str], tmp_path: Path
) -> None:
    _, out, _ = stopped
    other = table(tmp_path / "data.csv", "classification", 61)
    with pytest.raises(UsageError, match="seed-0") as refused:
        finetune_file(model, other, out, **BRIEFLY, stream=io.StringIO())
    assert "--data" in str(refused.value.found)


def test_two_do_not_learn_into_one_folder(
    model: Path, stopped: tuple[Path, Path, str], tmp_path: Path
) -> None:
    data, _, _ = stopped
    with Lock(tmp_path / "out" / "run.lock"), pytest.raises(StoppedError):
        finetune_file(model, data, tmp_path / "out", **BRIEFLY, stream=io.StringIO())


@pytest.mark.parametrize(("method", "new"), [("prefix", True), ("full", False)])
def test_a_head_that_was_learned_beside_the_model_is_new_without_it(
    model: Path, tmp_path: Path, method: str, new: bool
) -> None:
    data = table(tmp_path / "data.csv", "classification")
    folder = finetuned(model, data, tmp_path / "out", method=method, epochs=1, length=32)
    told = task_for("classification", ("meow", "woof"))
    assert learner.Learner.of(folder, told, Method("full")).head_is_new is new


@pytest.mark.parametrize(
    ("full", "words", "state"),
    [
        ([0.9, 0.91, 0.89], [0.8, 0.81, 0.79], "good"),
        ([0.81, 0.83, 0.79], [0.8, 0.81, 0.79], "no better"),
        ([0.7, 0.71, 0.69], [0.8, 0.81, 0.79], "no better"),
        ([0.5, 0.51, 0.49], [0.8, 0.81, 0.79], "unusable"),
        ([0.9], [0.8], "no better"),
    ],
)
def test_a_curve_is_judged_by_the_method_that_validation_chose(
    full: list[float], words: list[float], state: str
) -> None:
    """The control: lora, whose test figure is by chance the best, is not chosen."""
    known = LabelCurve("accuracy", [20])
    for seed, (value, other) in enumerate(zip(full, words, strict=True)):
        known.put("full", 20, seed, value, validation=0.9)
        known.put("lora", 20, seed, 0.99 + seed / 100, validation=0.2)
        known.put("words (no pretraining)", 20, seed, other, validation=0.8)
        known.put("majority (no pretraining)", 20, seed, 0.55)
        known.put(SCRATCH, 20, seed, 0.3)
    assert known.best(20) == "full" and strategy(known)["rows"][0][1] == "full"
    assert judge_curve(known).state == state
