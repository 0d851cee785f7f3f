"""A verdict where a model is evaluated, two models on the same rows, slices, and uses of a test."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
from maskwright.learn.tasks.base.task_type import Encoded, Extent, TaskMetrics, task_for
from maskwright.text.tables.rows import Row, TextExample
from report.test_page import opens_with
from small_tasks import finetuned, table

Models = tuple[Path, Path, Path]


@pytest.fixture(scope="module")
def pair(tuned: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Models:
    """A good model, one that learned nothing, and rows of two sources, of which one is wrong."""
    folder = tmp_path_factory.mktemp("pair")
    bad, data = folder / "bad", folder / "test.csv"
    finetuned(model, table(folder / "data.csv", "classification"), bad, epochs=1, rate=1e-7)
    plain = table(folder / "plain.csv", "classification", 80).read_text().splitlines()
    other = {"meow": "woof", "woof": "meow"}
    lines = ["text,label,source"]
    for number, (text, label) in enumerate(csv.reader(plain[1:])):
        lines.append(f"{text},{label},print" if number % 4 else f"{text},{other[label]},web")
    data.write_text("\n".join(lines) + "\n")
    return tuned, bad, data


def compared(pair: Models, **settings: Any) -> ModelComparison:
    return evaluate_against(*pair, **{"stream": io.StringIO(), **settings})


def evaluated(model: Path, data: Path, out: Path, **settings: Any) -> dict[str, Any]:
    evaluate_file(model, data, out=out, **{"stream": io.StringIO(), **settings})
    content: dict[str, Any] = json.loads((out / "evaluation.json").read_text())
    return content


def test_two_models_are_compared_row_by_row(
    pair: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, data = pair
    command = ["evaluate", str(good), "--against", str(bad), "--data", str(data)]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    verdict = content["verdict"]
    assert verdict["state"] == "good" and verdict["sentence"] in capsys.readouterr().out
    assert opens_with((tmp_path / "out" / "report.html").read_text(), verdict["sentence"])
    comparison, back = compared(pair), compared((bad, good, data))
    assert back.verdict.state == "no better" and back.gaps["accuracy"].value < 0
    counts = Counter(row.right for row in comparison.differing)
    first, second = (counts[name] for name in comparison.estimates)
    assert first - second == pytest.approx(80 * comparison.gaps["accuracy"].value)
    assert comparison.p["macro_f1"] >= comparison.gaps["macro_f1"].p, "adjusted"
    assert content["differing_rows"] == len(comparison.differing) == len(content["rows"])


def test_models_that_cannot_be_compared_are_refused(
    pair: Models, small_task: Callable[..., Path]
) -> None:
    good, bad, data = pair
    for other in ("regression", "classification"):  # another task, other labels
        with pytest.raises(IncompatibleError) as caught:
            compared((good, small_task(other), data))
        assert caught.value.where == str(small_task(other))
    with pytest.raises(UsageError):
        compared((good, good, data))
    idle = {"by": "source", "base": bad, "how": "masked", "part": "choosing"}
    for name, value in idle.items():
        with pytest.raises(UsageError) as caught:
            evaluate(good, data, against=bad, **{name: value})  # type: ignore[arg-type]
        assert caught.value.where == f"--{name}"


def test_values_of_any_type_are_slices() -> None:
    cells = [date(2026, 1, 1)] * 10 + [math.nan, None]
    rows = [Row({"day": cell}, "f", number) for number, cell in enumerate(cells)]
    examples = [TextExample("a", 0, row.where) for row in rows]
    found = slices.values_of("day", examples, rows, ["day"])
    assert Counter(found) == {"2026-01-01": 10, "(empty)": 2}


def test_a_slice_that_is_worse_is_named(pair: Models, tmp_path: Path) -> None:
    good, _, data = pair
    stream, plain_stream = io.StringIO(), io.StringIO()
    evaluate_file(good, data, stream=plain_stream)
    content = evaluated(good, data, tmp_path / "out", by="source", stream=stream)
    assert "not used: 'source'" in plain_stream.getvalue()
    assert "not used" not in stream.getvalue()
    standings = {part["value"]: part["standing"] for part in content["slices"]["slices"]}
    assert standings == {"'web'": "worse", "'print'": "better"}
    for column in ("sourc", "text"):  # not there; different in each row
        with pytest.raises(UsageError) as caught:
            evaluate_file(good, data, by=column, stream=io.StringIO())
        assert caught.value.where == "--by"


def test_rows_of_another_domain_are_a_column_of_their_own(pair: Models, tmp_path: Path) -> None:
    """All labels of the other rows are exchanged; the control is the same file."""
    good, bad, data = pair
    wrong, stream = tmp_path / "wrong.csv", io.StringIO()
    text = data.read_text().replace("meow", "?").replace("woof", "meow").replace("?", "woof")
    wrong.write_text(text)
    content = evaluated(good, data, tmp_path / "out", other_data=[wrong, data], stream=stream)
    figures = [content["figures"], *(content["other_data"][str(path)] for path in (wrong, data))]
    ours, theirs, same = (Estimate(**figure["accuracy"]) for figure in figures)
    assert theirs.value == pytest.approx(1 - ours.value)
    assert same.minus(ours).low < 0 < same.minus(ours).high
    difference = theirs.minus(ours)
    assert difference.low < difference.value < difference.high < 0
    assert difference.render() in stream.getvalue()
    line = ["evaluate", str(good), "--data", str(data), "--other-data"]
    assert main([*line, str(tmp_path / "nowhere.csv")]) == 64
    assert main([*line, str(wrong), "--against", str(bad)]) == 64


def test_the_verdict_needs_the_training_data_for_more_than_the_constant_answer(
    pair: Models, tmp_path: Path
) -> None:
    good, bad, data = pair
    content = evaluated(good, data, tmp_path / "a")
    assert content["baselines"].keys() == {"majority", "words"}
    assert "baselines-not-fitted" not in [finding["name"] for finding in content["findings"]]
    assert content["verdict"]["rival"] == conclusion.spoken("words")
    assert evaluated(bad, data, tmp_path / "b")["verdict"]["state"] != "good"
    assert evaluated(bad, data, tmp_path / "c")["test"]["other_uses"] == 2
    moved = shutil.copytree(good, tmp_path / "moved")
    recipe, other = moved / "finetune.toml", table(tmp_path / "other.csv", "classification", 90)
    changed = re.sub("(?m)^data = .*", f"data = {json.dumps(str(other))}", recipe.read_text())
    recipe.write_text(changed)
    content = evaluated(moved, data, tmp_path / "d")
    names = [finding["name"] for finding in content["findings"]]
    assert content["baselines"].keys() == {"majority"} and "baselines-not-fitted" in names
    with pytest.raises(UsageError) as caught:
        evaluate_file(moved, data, generalisation=True, stream=io.StringIO())
    assert caught.value.where == "--generalisation" and str(other) in str(caught.value.found)
    (moved / "results.json").unlink()
    assert evaluated(moved, data, tmp_path / "e")["baselines"] == {}


def test_rows_have_one_hash_in_any_order() -> None:
    rows = [TextExample(f"text {n}", n % 2, f"line {n}") for n in range(4)]

    def digest(rows: list[TextExample]) -> str:
        return str(conclusion.record_test(rows, ["a", "b"], "test")["sha256"])

    assert digest(rows) == digest(rows[::-1])
    assert digest(rows) != digest(rows[:3])
    assert digest(rows) != digest([*rows[:3], TextExample("text 3", 0, "line 3")])


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
    train: Any = Encoded([None] * rows, None, extent=extent)  # type: ignore[arg-type]
    training = TrainingResult(None, [], losses, len(losses), 1.0)
    state, _, rival = judged.partition(" than ")
    verdict: Any = Verdict(state, "", rival)  # type: ignore[arg-type]
    kind = task_for("classification", ("a", "b"))
    sentences = conclusion.advice(kind, train, [training], None, verdict, reads_more=True, passes=3)
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True))
