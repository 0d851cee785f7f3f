"""From a csv to a model that answers, as a user does it: what is said, written, and answered."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint.small import saved
from labelled.tables import write_rows
from maskwright.api import finetune_file
from maskwright.ask.predict import file as write_module
from maskwright.ask.predict.file import _model_hashes, predict_file, write_predictions
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import (
    DataError,
    MaskwrightError,
    OutputError,
    StoppedError,
    UsageError,
)
from maskwright.base.storage import files as storage
from maskwright.base.storage.lock import Lock
from maskwright.cli.main import main
from maskwright.learn.finetune import command as finetune_command
from maskwright.learn.finetune import learner, result
from maskwright.learn.finetune import recipe as recipe_of
from maskwright.learn.finetune.cross_validation import DIVISION
from maskwright.learn.finetune.label_curve import (
    NOT_KNOWN,
    SCRATCH,
    LabelCurve,
    judge_curve,
    strategy,
)
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.tune import Settings
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.opening.open import open_weights
from maskwright.text.tables.prepare import prepare
from small_tasks import finetuned, results_of, table, write_pooling
from tinyrun import WORDS

LEARNING: dict[str, Any] = {"batch": 16, "rate": 1e-2, "least_steps": 0}
BRIEFLY: dict[str, Any] = {"seeds": 3, "folds": 0, "epochs": 2, **LEARNING}


def test_what_is_said_and_written(tuned: Path) -> None:
    printed = (tuned.parent / "printed.txt").read_text(encoding="utf-8")
    for part in ("task: classification", "new: heads.classifier", "seed 1 · epoch 8 of 8"):
        assert part in printed, part
    results = results_of(tuned)
    names = [row[0] for row in results["table"]["rows"]]
    assert {"majority", "words", "all 2 seeds"} <= {*names}
    assert results["asked"] == "test" and len(results["seeds"]) == 2
    chosen = results["seeds"][results["chosen"]]
    assert chosen["accuracy"] > 0.9 and max(chosen["validation"]) > 0.9
    assert json.loads((tuned / "task.json").read_text())["labels"] == ["meow", "woof"]


@pytest.mark.parametrize("curve", [(), (20,)])
@pytest.mark.parametrize("folder", ["adapter", "model"])
def test_a_folder_of_somebody_elses_is_left_alone(
    model: Path, tmp_path: Path, curve: tuple[int, ...], folder: str
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 60), tmp_path / "out"
    (out / folder).mkdir(parents=True)
    names = ("report.html", "probe-1.csv", ".tmp-a.csv.jsonl", ".tmp-notes", ".del-notes")
    for name in names:
        (out / name).write_text("mine")
    with pytest.raises((OutputError, UsageError)):
        finetune_file(model, data, out, **BRIEFLY, curve=curve, stream=io.StringIO())
    assert {path.name for path in out.iterdir()} == {folder, *names}
    assert (out / "report.html").read_text() == "mine"


def test_a_dry_run_says_all_and_writes_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = table(tmp_path / "data.csv", "pair-classification", 60)
    command = ["finetune", str(model), "--data", str(data), "--out", str(tmp_path / "out")]
    for more in ([], ["--method", "lora"], ["--curve", "10,all", "--method", "full,probe"]):
        more = [*more, "--epochs", "2", "--seeds", "1", "--folds", "0"]
        assert main([*command, "--dry-run", *more]) == 0
        printed = capsys.readouterr().out
        cost = "cost: 1 seed of 4 steps each: 2 × 1 pass over"
        for part in ("task: pair-classification", cost, "time: about", "disk: "):
            assert part in printed, part
        assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    assert main([*command[:-3], str(tmp_path / "nothing.csv"), "--dry-run"]) == 64


def test_epochs_that_are_named_are_passes(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(table(tmp_path / "data.csv", "pair-classification", 60))
    out, old_file = tmp_path / "out", str(tmp_path / "old.toml")
    command = f"finetune {model} --data {data} --seeds 1 --threads 1 --folds 0 --out {out}"
    assert main([*command.split(), "--epochs", "1", "--patience", "1"]) == 0
    printed = capsys.readouterr().out
    assert "seed 0 · 2 steps" in printed and "passes" not in printed
    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert "- threads: 1" in card
    # A row of two texts is shown as one.
    assert "predict([('first …', 'second …')])" in card
    assert "ask({'text': 'first …', 'text_pair': 'second …'}" in card
    assert recipe_of.read(out / "finetune.toml").threads == 1
    # What an earlier release wrote is made again as it was; naming epochs makes them passes.
    old = recipe_of.FinetuneRecipe(model=str(model), data=data, epochs=3, least_steps=100, folds=0)
    full, usual = Method("full"), recipe_of.FinetuneRecipe(model="m", data="d")
    assert old.passes(full) == usual.passes(full) == (3, 100)
    assert usual.passes(Method("contrastive")) == (3, 25)
    assert replace(usual, epochs=5).passes(full) == (5, 0)
    Path(old_file).write_text(recipe_of.render(old))
    for more, wanted in ((["--epochs", "1"], ": 1 × 1 pass over"), ([], ": 3 × 17 passes over")):
        assert main(["finetune", old_file, "--dry-run", *more]) == 0
        assert wanted in capsys.readouterr().out


def test_a_disk_without_room_is_refused_before_the_work(
    model: Path,
    tuned: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    lines, out = tmp_path / "text.txt", tmp_path / "out"
    lines.write_text("the cat sat\n\n" * 200)
    commands = [
        f"finetune {model} --data {data} --out {out}",
        f"predict {tuned} {data} --out {out}.jsonl",
        f"tokenizer --text {lines} --out {out}-tokenizer",
        f"pretrain tiny --text {lines} --out {out}-pretrain",
        f"adapt {model} --text {lines} --out {out}-adapt",
        f"compare tiny --text {lines} --budget tokens=1 --out {out}-compare",
    ]
    for free in (0, 900):
        monkeypatch.setattr(storage.FileSystem, "free_bytes", lambda *_, free=free: free)
        for command in commands:
            code = main(command.split())
            printed = capsys.readouterr()
            assert code == 75, printed.err
            assert f"{free:,} bytes free" in printed.err
            assert "seed 0" not in printed.out and "step 1" not in printed.out
    assert not Path(f"{out}.jsonl").exists()
    monkeypatch.undo()
    assert main(commands[1].split()) == 0


def test_the_model_card(tuned: Path) -> None:
    text = (tuned / "model" / "README.md").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in front.splitlines())
    (index,) = json.loads(keys["model-index"])
    figures = {m["type"]: m["value"] for m in index["results"][0]["metrics"]}
    results = results_of(tuned)
    chosen = results["seeds"][results["chosen"]]
    assert figures["accuracy"] == pytest.approx(chosen["accuracy"], abs=1e-6)
    assert json.loads(keys["pipeline_tag"]) == "text-classification"
    for part in ("`meow`, `woof`", "majority", "train 160", "data.csv", "seeds tried: 2"):
        assert part in body, part
    assert "None" not in text and "nan" not in text and "needed" not in text.lower()


def test_long_texts(model: Path, tmp_path: Path) -> None:
    """Evidence at the end is not seen by what reads the beginning, but by what reads the rest."""
    draw = np.random.default_rng(0)
    plain = [word for word in WORDS if word not in ("cat", "dog")]
    pairs = (("cat", "meow"), ("dog", "woof")) * 80
    rows = [{"text": " ".join([*draw.choice(plain, 12), a]), "label": label} for a, label in pairs]
    data, accuracies = write_rows(tmp_path / "data.jsonl", rows), {}
    in_pieces = ("vectors-max", "hierarchical")
    for long in ("head", *in_pieces):
        stream, out = io.StringIO(), tmp_path / long
        settings: dict[str, Any] = {"epochs": 4, "batch": 16, "rate": 2e-2, "length": 12}
        finetuned(model, data, out, **settings, long=long, stream=stream)
        printed = "in pieces" if long in in_pieces else "100.0% of 128 rows truncated"
        assert printed in stream.getvalue()
        accuracies[long] = results_of(out)["seeds"][0]["accuracy"]
        (answer,) = load(out).predict([rows[1]["text"]])
        assert long == "head" or answer["label"] == "woof"
    alone = load(tmp_path / "hierarchical" / "model")
    assert alone.frame.long == "hierarchical", "which the model alone says, too"
    assert min(value for long, value in accuracies.items() if long != "head") > 0.9
    assert accuracies["head"] < 0.75, "the control: there is nothing to be seen in the head"


@pytest.mark.parametrize("pooling", ["cls", "mean", "layers"])
def test_what_is_read_of_a_text(pooling: str, tuned: Path, model: Path, tmp_path: Path) -> None:
    """A folder that transformers would read otherwise is none of its own."""
    out = tuned if pooling == "cls" else tmp_path / "out"
    if pooling != "cls":
        data = table(tmp_path / "data.csv", "classification")
        reads = {"layer_mix": True} if pooling == "layers" else {"pooling": pooling}
        finetuned(model, data, out, epochs=4, batch=16, rate=1e-2, **reads)
    assert results_of(out)["seeds"][0]["accuracy"] > 0.9
    config = json.loads((out / "model" / "config.json").read_text())
    assert (config["model_type"] == "bert") is (pooling == "cls")
    loaded = load(out)
    (head,) = loaded.model.config.heads
    assert head.layer_mix is (pooling == "layers")
    assert head.pooling == {"cls": "place", "layers": "place"}.get(pooling, pooling)
    assert loaded.predict(["the cat"])[0]["label"] == "meow"


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
    write_pooling(folder)
    chosen = finetuned(folder, data, tmp_path / "chosen", pooling="cls", **common)
    means = finetuned(folder, data, tmp_path / "out", **common)
    heads = [load(path).model.config.heads[0].pooling for path in (plain, chosen, means)]
    assert heads == ["place", "place", "mean"]
    assert load(means).model.config.pooler is is_trained and load(plain).model.config.pooler
    opened = open_weights(folder)
    findings = finetune_command._findings_of_pooling(opened, [Method("probe")], "mean")
    assert [finding.name for finding in findings] == ["untrained-pooler"] * (not is_trained)
    assert finetune_command._usual_pooling(None, [Method("full")]) == {}


def test_other_weights_are_another_model(tuned: Path, tmp_path: Path) -> None:
    """However its folder is named: what was answered before is not gone on with."""
    for name in ("", "model"):
        other = shutil.copytree(tuned, tmp_path / f"other{name}")
        here, there = _model_hashes(tuned / name), _model_hashes(other / name)
        assert here == there
        weights = other / "model" / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        assert _model_hashes(other / name) != here
    assert _model_hashes(tuned / "model") == _model_hashes(tuned)
    alone = shutil.copytree(tuned / "model", tmp_path / "alone")
    assert any("safetensors" in name for name in _model_hashes(alone))


def test_an_answer_that_was_given_outlives_a_full_disk(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, out = table(tmp_path / "new.csv", "classification", 20), tmp_path / "told.csv"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(write_module, "_as_table", full)
        with pytest.raises(OutputError):
            write_predictions(tuned, asked, out)
    staged = tmp_path / ".tmp-told.csv.jsonl"
    marked = staged.read_text().replace('"label": "', '"label": "kept ')
    staged.write_text(marked)
    # A slip in the command that was to go on is refused, and costs nothing.
    with pytest.raises(DataError, match="column"):
        write_predictions(tuned, asked, out, columns={"text": ["txt"]})
    assert staged.read_text() == marked
    assert write_predictions(tuned, asked, out) == 20
    assert out.read_text().count("kept ") == 40, "in the row's own label, too"


def test_a_stop_while_the_result_is_written_is_gone_on_with(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 60), tmp_path / "out"

    def stopped(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(result.page, "render", stopped)
        with pytest.raises(KeyboardInterrupt):
            finetuned(model, data, out, epochs=1, method="lora")
    assert (out / "model").is_dir() and not (out / "report.html").exists()
    stream = io.StringIO()
    finetuned(model, data, out, epochs=1, method="lora", stream=stream)
    assert "finished before" in stream.getvalue() and (out / "report.html").is_file()
    for name in ("unfinished", ".del-unfinished"):  # of kills while what is finished is removed
        (out / name / "seed-0").mkdir(parents=True)
        (out / name / "seed-0" / "weights.safetensors").write_bytes(b"heavy")
    (out / ".tmp-report.html-12-3").write_text("half a page")
    there = {path.name for path in out.iterdir()}
    with pytest.raises(UsageError, match="there already"):
        finetuned(model, data, out, epochs=1, method="lora")
    removed = there - {path.name for path in out.iterdir()}
    assert removed == {"unfinished", ".del-unfinished", ".tmp-report.html-12-3"}
    assert load(out).predict(["the cat"])


def test_two_do_not_write_one_file(tuned: Path, tmp_path: Path) -> None:
    asked, out = table(tmp_path / "new.csv", "classification", 20), tmp_path / "told.jsonl"
    with Lock(tmp_path / ".tmp-told.jsonl.lock"), pytest.raises(StoppedError):
        write_predictions(tuned, asked, out)
    assert not out.exists()
    assert write_predictions(tuned, asked, out) == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "told.jsonl"]


def test_predictions_go_on_after_a_kill(tuned: Path, tmp_path: Path) -> None:
    asked, out = table(tmp_path / "new.csv", "classification", 70), tmp_path / "told.csv"
    assert write_predictions(tuned, asked, tmp_path / "told.jsonl") == 70
    whole = (tmp_path / "told.jsonl").read_bytes().splitlines(keepends=True)
    hashes = {"model": _model_hashes(tuned), "source": recipe_of.hashes(asked)}
    about = json.dumps(hashes | {"base": None, "also": [], "settings": {}})
    marked = json.loads(whole[0]) | {"prediction": {"label": "kept", "score": 1.0}}
    staged = tmp_path / ".tmp-told.csv.jsonl"
    torn = [f"{about}\n".encode(), f"{json.dumps(marked)}\n".encode(), *whole[1:5], whole[5][:9]]
    staged.write_bytes(b"".join(torn))
    assert write_predictions(tuned, asked, out) == 70
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    answered = [json.loads(line) for line in whole]
    assert len(rows) == 70 and rows[0]["predicted_label"] == "kept"
    assert [r["text"] for r in rows] == [line["text"] for line in answered]
    labels = [line["prediction"]["label"] for line in answered]
    assert [r["predicted_label"] for r in rows[1:]] == labels[1:]
    # The control: what was answered about another file is not gone on with.
    out.unlink()
    torn[0] = torn[0].replace(b"new.csv", b"old.csv")
    staged.write_bytes(b"".join(torn))
    write_predictions(tuned, asked, out)
    assert "kept" not in out.read_text() and not list(tmp_path.glob(".tmp-*"))


def test_values_that_json_has_not_are_written_as_text(tuned: Path, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"text": ["a cat"], "seen": [datetime.date(2024, 5, 17)]}
    parquet.write_table(arrow.table(columns), tmp_path / "new.parquet")
    stream = io.StringIO()
    assert predict_file(tuned, tmp_path / "new.parquet", stream) == 1
    assert json.loads(stream.getvalue())["seen"] == "2024-05-17"


@pytest.mark.parametrize("method", catalogue.names("adapters"))
def test_methods_that_train_little(method: str, model: Path, tmp_path: Path) -> None:
    """What is read back answers as what was trained did."""
    data, out = table(tmp_path / "data.csv", "classification"), tmp_path / "out"
    stream = io.StringIO()
    finetuned(model, data, out, method=method, epochs=2, batch=16, rate=2e-2, stream=stream)
    assert f"method: {method}; " in stream.getvalue()
    asked = prepare(data, division=DIVISION).parts["test"]
    names = json.loads((out / "task.json").read_text())["labels"]
    predictor = load(out)
    answers = predictor.predict([row.text for row in asked])
    alone = [predictor.predict([row.text])[0]["score"] for row in asked[:6]]
    assert [a["score"] for a in answers[:6]] == pytest.approx(alone, abs=1e-5), "neighbours"
    predicted = [names.index(answer["label"]) for answer in answers]
    right = np.mean([a == row.label for a, row in zip(predicted, asked, strict=True)])
    (seed,) = results_of(out)["seeds"]
    assert right == pytest.approx(seed["accuracy"], abs=0.06)  # in bfloat16, where it trained
    assert seed["loss"][-1] < seed["loss"][0]
    # A head alone is saved as that, and not beside a copy of the model that it stands on.
    assert (out / "adapter").is_dir()
    assert (out / "model").is_dir() is (method not in ("head", "probe"))


def test_files_that_are_read_as_told(
    tuned: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"die {a} im Café {n};{a}\n" for n in range(30) for a in ("Kätze", "Hunde"))
    odd, answered, skip = tmp_path / "odd.csv", tmp_path / "told.tsv", ["--read", "on_bad=skip"]
    odd.write_text(rows + ";Hunde\n", encoding="latin-1")
    read = ["--read", "encoding=latin-1", "--read", "separator=;", "--read", "header=what,who"]
    learn = f"finetune {model} --data {odd} --out {tmp_path / 'out'} --seeds 1 --epochs 1".split()
    learn += ["--column", "text=what", "--column", "label=who", *read]
    learn += ["--read", "max_bad_fraction=0.1"]
    assert main(learn) != 0 and "--read on_bad=skip" in capsys.readouterr().err
    assert main([*learn, *skip]) == 0
    assert "left out: 1 bad row" in capsys.readouterr().out
    ask = ["predict", str(tuned), str(odd), "--column", "text=what", *read]
    assert main([*ask, "--out", str(answered)]) != 0, "before anything is computed"
    assert "odd.csv, line 61" in capsys.readouterr().err
    assert main([*ask, *skip, "--out", str(answered)]) == 0
    with answered.open(encoding="utf-8", newline="") as file:
        answers = list(csv.DictReader(file, delimiter="\t"))
    assert len(answers) == 61 and answers[0]["what"] == "die Kätze im Café 0"
    assert answers[0]["predicted_label"] in ("meow", "woof") and not answers[-1]["predicted_label"]
    for wrong in ("encodng=latin-1", "on_bad", "on_bad=perhaps"):
        assert main([*ask, "--read", wrong]) == 64
    assert main([*ask[:3], "--column", "txt=what"]) == 64
    assert main([*ask, "--out", str(tmp_path / "told.xlsx")]) == 64
    assert ".jsonl, .csv, .tsv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("named.csv", b"text,prediction\na cat,meow\n", UsageError),
        ("named.csv", b"text,predicted_label\na cat,meow\n", UsageError),
        ("other.csv", b"review,stars\nfine,5\n", DataError),
        ("bad.txt", b"fine\nbroken \xff\xfe\x80 bytes\n", DataError),
        ("hollow.jsonl", b'{"text": "a cat"}\n{"text": null}\n', DataError),
    ],
)
def test_files_that_cannot_be_answered_are_refused_and_nothing_is_left(
    name: str, content: bytes, error: type[MaskwrightError], tuned: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error) as caught:
        write_predictions(tuned, tmp_path / name, tmp_path / "answers.csv")
    part = name if error is UsageError else "line 2"
    assert part in str(caught.value.where)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("kind", "settings", "where"),
    [
        ("classification", {"length": 0}, "--length"),
        ("classification", {"layer_decay": 2.0}, "--layer-decay"),
        ("classification", {"rate": -1.0}, "--rate"),
        ("classification", {"rate": math.nan}, "--rate"),
        ("classification", {"patience": 0}, "--patience"),
        ("classification", {"warmup": 1.0}, "--warmup"),
        ("classification", {"weight_decay": -0.1}, "--weight-decay"),
        ("classification", {"seeds": 0}, "--seeds"),
        ("classification", {"pooling": "median"}, "--pooling"),
        ("classification", {"long": "middle"}, "--long"),
        ("classification", {"method": "embeddings", "layer_mix": True}, "--layer-mix"),
        ("rewrites", {"layer_mix": True}, "--layer-mix"),
        ("classification", {"columns": {"group": ["text", "label"]}}, "--column"),
        ("similarity", {"long": "tail"}, "--long"),
        ("tags", {"pooling": "mean"}, "--pooling"),
        ("rewrites", {"prompt": "short: {sorce}"}, "--prompt"),
        ("rewrites", {}, "step-"),
        ("nothing", {}, "nothing"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_any_work(
    kind: str, settings: dict[str, Any], where: str, model: Path, tmp_path: Path
) -> None:
    data = tmp_path / f"{kind}.jsonl"
    if kind == "rewrites":
        write_rows(data, [{"source": f"a{n} cat", "target": f"a dog of {n}"} for n in range(40)])
    elif kind == "tags":
        write_rows(data, [{"tokens": ["the", w], "tags": ["N", "V"]} for w in WORDS * 4])
    elif kind != "nothing":
        data = table(tmp_path / f"{kind}.csv", kind, 60)
    with pytest.raises(MaskwrightError) as caught:
        finetune_file(model, data, tmp_path / "out", stream=io.StringIO(), **settings)
    assert where in str(caught.value.where)
    assert not (tmp_path / "out" / "model").exists()


def test_weight_decay_and_warm_up_are_those_asked_for(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noted(objective: Any, train: Any, how: Any, settings: Settings, **_: Any) -> None:
        seen.append((settings.optimizer.decay, settings.schedule.warmup))
        raise KeyboardInterrupt

    monkeypatch.setattr(learner, "tune", noted)
    data = table(tmp_path / "data.csv", "classification", 60)
    for number, settings in enumerate(({}, {"weight_decay": 0.1, "warmup": 0.06})):
        with pytest.raises(KeyboardInterrupt):
            finetuned(model, data, tmp_path / str(number), epochs=1, **settings)
    assert seen == [(0.01, 0.1), (0.1, 0.06)]


def test_a_curve(model: Path, tmp_path: Path) -> None:
    data, out = table(tmp_path / "data.csv", "classification", 100), tmp_path / "out"
    asked: dict[str, Any] = {"method": "full,probe", "curve": [20, 0], "seeds": 1, "epochs": 1}
    asked |= {"batch": 16, "rate": 1e-2, "least_steps": 4, "stream": io.StringIO()}
    finetune_file(model, data, out, **asked)
    figures = json.loads((out / "curve.json").read_text())["figures"]
    words, majority = (f"{name} (no pretraining)" for name in ("words", "majority"))
    assert set(figures) == {majority, words, "full", "probe", "from scratch"}
    assert all(set(by) == {"20", "80"} for by in figures.values())
    assert (out / "report.html").read_text().count("<table") == 2
    # Gone on with, nothing is trained again: a figure that was changed by hand stays.
    lines = (out / "curve.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 2 * 3
    row = json.loads(lines[1])
    changed = f"{lines[0]}\n{json.dumps({**row, 'value': 0.125})}\n"
    (out / "curve.jsonl").write_text(changed)
    finetune_file(model, data, out, **asked)
    figures = json.loads((out / "curve.json").read_text())["figures"]
    assert figures[row["way"]][str(row["labels"])][str(row["seed"])] == 0.125
    pairs = table(tmp_path / "pairs.csv", "pair-classification")
    for settings, path, folder, says in (
        ({"curve": [9999]}, data, "other", "--curve"),
        ({"method": "full,lora"}, data, "other", "--method"),
        ({"curve": [20]}, pairs, "out", r"curve\.jsonl"),
    ):
        with pytest.raises(UsageError, match=says):
            finetuned(model, path, tmp_path / folder, **settings)
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


@pytest.fixture(scope="module")
def stopped(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """(file, what was begun, what was said): stopped in the second of three seeds."""
    folder, stream = tmp_path_factory.mktemp("stopped"), io.StringIO()
    data = table(folder / "data.csv", "classification", 60)
    whole = learner.tune

    def stop(*arguments: Any, **named: Any) -> Any:
        if arguments[3].seed == 1:
            raise KeyboardInterrupt
        return whole(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "tune", stop)
        with pytest.raises(KeyboardInterrupt):
            finetune_file(model, data, folder / "out", **BRIEFLY, stream=stream)
    return data, folder / "out", stream.getvalue()


def test_a_stop_keeps_the_finished_seeds(
    model: Path, stopped: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out, printed = stopped
    assert "1 of 3" in printed and (out / "unfinished" / "seed-0").is_dir()
    again = Path(shutil.copytree(out, tmp_path / "again"))
    whole = tmp_path / "alone" / "whole"
    seeds, tune = [], learner.tune

    def note(*arguments: Any, **named: Any) -> Any:
        seeds.append(arguments[3].seed)
        return tune(*arguments, **named)

    monkeypatch.setattr(learner, "tune", note)
    finetune_file(model, data, again, **BRIEFLY, stream=io.StringIO())
    assert seeds == [1, 2] and not (again / "unfinished").exists()
    finetune_file(model, data, whole, **BRIEFLY, stream=io.StringIO())
    assert seeds[2:] == [0, 1, 2]
    for name in ("model/model.safetensors", "model/config.json", "task.json"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
    ours, theirs = results_of(again), results_of(whole)
    for seed in (*ours["seeds"], *theirs["seeds"]):
        seed.pop("seconds")
    assert ours == theirs


@pytest.mark.parametrize(
    ("change", "before", "now"),
    [
        ({"epochs": 1}, "--epochs 2", "--epochs 1"),
        ({"batch": 4}, "--batch 16", "--batch 4"),
        ({"pooling": "mean"}, "--pooling not given", "--pooling mean"),
        ({"method": "probe"}, "--method full", "--method probe"),
        ({}, "--data", ""),  # other rows
    ],
)
def test_the_seeds_of_another_fine_tuning_are_not_taken_up(
    model: Path,
    stopped: tuple[Path, Path, str],
    tmp_path: Path,
    change: dict[str, Any],
    before: str,
    now: str,
) -> None:
    """The setting is named, with both values."""
    data, out, _ = stopped
    data = data if change else table(tmp_path / "data.csv", "classification", 61)
    with pytest.raises(UsageError, match="seed-0") as refused:
        finetune_file(model, data, out, **{**BRIEFLY, **change}, stream=io.StringIO())
    assert before in str(refused.value.found) and now in str(refused.value.wanted)
    assert (out / "unfinished/seed-0").is_dir()


def test_two_do_not_learn_into_one_folder(model: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    with Lock(tmp_path / "out" / "run.lock"), pytest.raises(StoppedError):
        finetuned(model, data, tmp_path / "out", epochs=1)


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
