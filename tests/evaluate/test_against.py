"""A verdict where a model is evaluated, two models on the same rows, slices, and uses of a test."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from finetune.test_command import table, tuned  # noqa: F401 - a fixture
from maskwright.api import evaluate
from maskwright.ask.evaluate import slices
from maskwright.ask.evaluate.against import ModelComparison, evaluate_against
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.paired import Verdict
from maskwright.base.metrics.row_metrics import ArrayMetric
from maskwright.cli.main import main
from maskwright.learn.finetune import conclusion
from maskwright.learn.finetune.tune import TrainingResult
from maskwright.learn.tasks import sequence_to_sequence
from maskwright.learn.tasks.base.task_type import Encoded, Extent, TaskMetrics, task_for
from maskwright.text.tables.rows import Row, TextExample
from small_tasks import finetuned


@pytest.fixture(scope="module")
def pair(
    tuned: tuple[Path, str],  # noqa: F811
    model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, Path]:
    """A good model, one that learned nothing, and rows of two sources, of which one is wrong."""
    folder = tmp_path_factory.mktemp("pair")
    bad = folder / "bad"
    finetuned(model, table(folder / "data.csv", "classification"), bad, epochs=1, rate=1e-7)
    plain = table(folder / "plain.csv", "classification", 80).read_text().splitlines()
    rows = list(csv.reader(plain))
    other = {"meow": "woof", "woof": "meow"}
    with (folder / "test.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "source"])
        for number, (text, label) in enumerate(rows[1:]):
            flipped = number % 4 == 0
            writer.writerow([text, other[label] if flipped else label, ("print", "web")[flipped]])
    return tuned[0], bad, folder / "test.csv"


def compared(pair: tuple[Path, Path, Path], **settings: Any) -> ModelComparison:
    return evaluate_against(*pair, **{"stream": io.StringIO(), **settings})


def test_two_models_are_compared_row_by_row(
    pair: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, data = pair
    command = ["evaluate", str(good), "--against", str(bad), "--data", str(data)]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert content["verdict"]["state"] == "good"
    assert content["verdict"]["sentence"] in capsys.readouterr().out
    assert content["verdict"]["sentence"] in (tmp_path / "out" / "report.html").read_text()
    found, back = compared(pair), compared((bad, good, data))
    assert back.verdict.state == "no better" and back.gaps["accuracy"].value < 0
    counts = [sum(row.right == name for row in found.differing) for name in found.estimates]
    assert counts[0] - counts[1] == pytest.approx(80 * found.gaps["accuracy"].value)
    assert found.p["macro_f1"] >= found.gaps["macro_f1"].p, "adjusted"
    assert content["differing_rows"] == len(found.differing) == len(content["rows"])


def test_models_that_cannot_be_compared_are_refused(
    pair: tuple[Path, Path, Path], small_task: Callable[..., Path]
) -> None:
    good, bad, data = pair
    with pytest.raises(IncompatibleError) as caught:
        compared((good, small_task("regression"), data))
    assert caught.value.where == str(small_task("regression"))
    with pytest.raises(IncompatibleError):
        compared((good, small_task("classification"), data))  # other labels
    with pytest.raises(UsageError):
        compared((good, good, data))
    idle = {"by": "source", "base": bad, "how": "masked", "part": "choosing"}
    for name, value in idle.items():
        with pytest.raises(UsageError) as caught:
            evaluate(good, data, against=bad, **{name: value})  # type: ignore[arg-type]
        assert caught.value.where == f"--{name}"


def test_texts_that_were_not_judged_are_counted(
    small_task: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, copy, data = small_task("sequence-to-sequence"), tmp_path / "m", tmp_path / "d.jsonl"
    shutil.copytree(folder, copy)
    rows = [{"source": f"the cat sat {n}", "target": f"the dog {n}"} for n in range(4)]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for judged, said in ((2, 2), (4, None)):
        monkeypatch.setattr(sequence_to_sequence, "JUDGED", judged)
        assert compared((folder, copy, data)).num_judged == said


def test_values_of_any_type_are_slices() -> None:
    cells = [date(2026, 1, 1)] * 10 + [math.nan, None]
    rows = [Row({"day": cell}, "f", number) for number, cell in enumerate(cells)]
    examples = [TextExample("a", 0, row.where) for row in rows]
    found = slices.values_of("day", examples, rows, ["day"])
    assert Counter(found) == {"2026-01-01": 10, "(empty)": 2}


def test_a_slice_that_is_worse_is_named(pair: tuple[Path, Path, Path], tmp_path: Path) -> None:
    stream, plain_stream = io.StringIO(), io.StringIO()
    evaluate_file(pair[0], pair[2], stream=plain_stream)
    evaluate_file(pair[0], pair[2], by="source", out=tmp_path / "out", stream=stream)
    assert "not used: 'source'" in plain_stream.getvalue()
    assert "not used" not in stream.getvalue()
    content = json.loads((tmp_path / "out" / "evaluation.json").read_text())["slices"]
    standings = {part["value"]: part["standing"] for part in content["slices"]}
    assert standings == {"'web'": "worse", "'print'": "better"}
    for column in ("sourc", "text"):  # not there; different in each row
        with pytest.raises(UsageError) as caught:
            evaluate_file(pair[0], pair[2], by=column, stream=stream)
        assert caught.value.where == "--by"


def test_rows_of_another_domain_are_a_column_of_their_own(
    pair: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    """All labels of the other rows are exchanged; the control is the same file."""
    text, wrong = pair[2].read_text(), tmp_path / "wrong.csv"
    wrong.write_text(text.replace("meow", "?").replace("woof", "meow").replace("?", "woof"))
    out, stream = tmp_path / "out", io.StringIO()
    evaluate_file(pair[0], pair[2], other_data=[wrong, pair[2]], out=out, stream=stream)
    content = json.loads((out / "evaluation.json").read_text())
    ours, others = content["figures"]["accuracy"], content["other_data"]
    assert others[str(wrong)]["accuracy"]["value"] == pytest.approx(1 - ours["value"])
    ours, wrong_figure, same = (
        Estimate(**figures)
        for figures in (ours, others[str(wrong)]["accuracy"], others[str(pair[2])]["accuracy"])
    )
    assert same.minus(ours).low < 0 < same.minus(ours).high
    difference = wrong_figure.minus(ours)
    assert difference.low < difference.value < difference.high < 0
    assert difference.render() in stream.getvalue()
    line = ["evaluate", str(pair[0]), "--data", str(pair[2]), "--other-data"]
    assert main([*line, str(tmp_path / "nowhere.csv")]) == 64
    assert main([*line, str(wrong), "--against", str(pair[1])]) == 64


def test_the_verdict_needs_the_training_data_for_more_than_the_constant_answer(
    pair: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    def evaluated(model: Path, out: str) -> dict[str, Any]:
        evaluate_file(model, pair[2], out=tmp_path / out, stream=io.StringIO())
        content: dict[str, Any] = json.loads((tmp_path / out / "evaluation.json").read_text())
        content["names"] = [finding["name"] for finding in content["findings"]]
        return content

    found = evaluated(pair[0], "a")
    assert found["baselines"].keys() == {"majority", "words"}
    assert "baselines-not-fitted" not in found["names"]
    assert found["verdict"]["rival"] == conclusion.spoken("words")
    assert evaluated(pair[1], "b")["verdict"]["state"] != "good"
    assert evaluated(pair[1], "c")["test"]["other_uses"] == 2
    moved = tmp_path / "moved"
    shutil.copytree(pair[0], moved)
    recipe = moved / "finetune.toml"
    data = table(tmp_path / "other.csv", "classification", 90)
    lines = recipe.read_text().splitlines()
    changed = [f"data = {json.dumps(str(data))}" if x.startswith("data = ") else x for x in lines]
    recipe.write_text("\n".join(changed))
    found = evaluated(moved, "d")
    assert found["baselines"].keys() == {"majority"} and "baselines-not-fitted" in found["names"]
    with pytest.raises(UsageError) as caught:
        evaluate_file(moved, pair[2], generalisation=True, stream=io.StringIO())
    assert caught.value.where == "--generalisation" and str(data) in str(caught.value.found)
    (moved / "results.json").unlink()
    assert evaluated(moved, "e")["baselines"] == {}


def test_rows_have_one_hash_in_any_order() -> None:
    rows = [TextExample(f"text {n}", n % 2, f"line {n}") for n in range(4)]
    found = conclusion.record_test(rows, ["a", "b"], "test")
    assert found == conclusion.record_test(rows[::-1], ["a", "b"], "test")
    others = rows[:3], [*rows[:3], TextExample("text 3", 0, "line 3")]
    assert found["sha256"] not in [
        conclusion.record_test(other, ["a", "b"], "test")["sha256"] for other in others
    ]


def test_answers_drawn_at_random_are_no_reason_to_predict() -> None:
    draw = np.random.default_rng(0)
    truth, *drawn = draw.integers(0, 4, (3, 200))
    answers = {"model": drawn[0], "majority": np.zeros(200, np.int64), "chance": drawn[1]}
    figures = {name: ArrayMetric("macro_f1", truth, given) for name, given in answers.items()}
    compared = {name: TaskMetrics({"macro_f1": figure}) for name, figure in figures.items()}
    assert not conclusion.judge("macro_f1", compared).is_usable
    del compared["chance"]
    assert conclusion.judge("macro_f1", compared).state == "good", "the control"


@pytest.mark.parametrize(
    ("cut", "losses", "rows", "judged", "words"),
    [
        (0.5, [1.0, 0.99], 300, "good", ["--length"]),
        (0.1, [1.0, 0.5], 300, "good", ["--epochs 12"]),
        (0.1, [1.0, 0.5], 50, "no better", ["--epochs 12", "help most."]),
        (0.1, [], 70, "no better", ["--curve 50,all"]),
        (0.1, [1.0, 0.99], 50, "good", []),
        (0.1, [], 300, "no better", []),
        (0.1, [], 300, "no better than a bag of words", ["--method bag-of-words"]),
        (0.1, [], 300, "no better than the model before fine-tuning", ["as it is"]),
    ],
)
def test_advice_comes_from_facts(
    cut: float, losses: list[float], rows: int, judged: str, words: list[str]
) -> None:
    ones = np.ones(rows, np.int64)
    extent = Extent(10 * ones, ones, (np.arange(rows) < cut * rows).astype(np.int64))
    train = Encoded([None] * rows, None, extent=extent)  # type: ignore[arg-type]
    training = TrainingResult(None, [], losses, len(losses), 1.0)
    state, _, rival = judged.partition(" than ")
    sentences = conclusion.advice(
        task_for("classification", ("a", "b")),
        train,
        [training],
        None,
        Verdict(state, "", rival),  # type: ignore[arg-type]
        reads_more=True,
        passes=3,
    )
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True))
