"""A fine-tuned model on labelled rows: the figures that fine-tuning itself tells, and refusals."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.faults.sweep import kill_on_disk

from corpus.test_in_memory import Frame
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict import file as predict_file
from maskwright.ask.predict import predictor as predict
from maskwright.ask.predict.file import write_predictions
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import DataError, UsageError
from maskwright.cli import main as cli
from maskwright.learn.finetune.cross_validation import DIVISION
from maskwright.text.corpus import files
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.reading_options import how_read
from small_tasks import finetuned, results_of, table
from tinyrun import WORDS


def rows_of(path: Path, rows: list[list[str]], head: tuple[str, ...] = ("text", "label")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "new.csv", "classification", 80)


def accuracy(model: Path, data: Path, **options: Any) -> float:
    return evaluate_file(model, data, stream=io.StringIO(), **options)["accuracy"].value


def test_the_figures_are_those_of_the_answers(tuned: Path, data: Path, tmp_path: Path) -> None:
    figures = evaluate_file(tuned, data, stream=(stream := io.StringIO()))
    rows = read(data)
    answers = load(tuned).predict([row["text"] for row in rows])
    right = sum(a["label"] == row["label"] for a, row in zip(answers, rows, strict=True))
    assert figures["accuracy"].value == pytest.approx(right / 80)
    assert figures["accuracy"].low <= right / 80 <= figures["accuracy"].high
    assert "80 rows" in stream.getvalue() and "meow" in stream.getvalue(), "each class, too"
    # Columns of another name, and one class alone, can be asked about.
    other = rows_of(tmp_path / "other.csv", [[*row.values()] for row in rows], ("words", "sound"))
    columns = {"text": ["words"], "label": ["sound"]}
    assert accuracy(tuned, other, columns=columns) == figures["accuracy"].value
    cats = rows_of(tmp_path / "cats.csv", [["the cat sat", "meow"], ["a cat ran", "meow"]])
    alone = evaluate_file(tuned, cats, stream=io.StringIO())
    assert alone["accuracy"].value == 1.0 and alone.verdict.startswith("Not conclusive")


def test_figures_and_mistakes_are_written_where_that_is_asked_for(
    tuned: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "told"
    command = ["evaluate", str(tuned), "--data", str(data), "--out", str(out)]
    assert cli.main(command) == 0
    evaluation = json.loads((out / "evaluation.json").read_text())
    assert evaluation["figures"]["accuracy"]["value"] == accuracy(tuned, data)
    assert evaluation["rows"] == 80 and evaluation["data"].keys() == {data.name}
    page = (out / "report.html").read_text()
    assert "Results by class" in page and "Training curves" not in page
    # What is there is not written over.
    capsys.readouterr()
    assert cli.main(command) == 64 and "there already" in capsys.readouterr().err


def test_killed_anywhere_figures_and_page_are_both_there_or_none(
    tuned: Path, tmp_path: Path, data: Path
) -> None:
    def ask(folder: Path) -> None:
        evaluate_file(tuned, data, out=folder / "out", stream=io.StringIO())

    def both_or_none(folder: Path) -> None:
        with contextlib.suppress(UsageError):  # where all was there, and only remains were left
            ask(folder)
        assert sorted(os.listdir(folder / "out")) == ["evaluation.json", "report.html"]

    assert kill_on_disk(tmp_path, lambda folder: None, ask, both_or_none, last=8) == 8


def test_killed_anywhere_predictions_are_there_or_go_on(
    tuned: Path, tmp_path: Path, data: Path
) -> None:
    def ask(folder: Path) -> None:
        write_predictions(tuned, data, folder / "out.csv")

    def there(folder: Path) -> None:
        with contextlib.suppress(UsageError):
            ask(folder)
        assert os.listdir(folder) == ["out.csv"]

    assert kill_on_disk(tmp_path, lambda folder: None, ask, there) >= 5
    folder = tmp_path / "after"
    folder.mkdir()
    (folder / ".tmp-out.csv.jsonl").write_text("{}")  # answers to the rows of another file
    (folder / "out.csv").write_text("mine")
    (folder / ".tmp-out.csv-12-3").write_text("half")
    with pytest.raises(UsageError):
        ask(folder)
    assert sorted(os.listdir(folder)) == [".tmp-out.csv.jsonl", "out.csv"]
    assert (folder / "out.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "given", [Frame(text="a"), {"text": ["a"], "label": ["b"]}, [{"text": "a"}], 5]
)
def test_a_table_in_memory_is_no_list_of_paths(tuned: Path, data: Path, given: Any) -> None:
    with pytest.raises(UsageError) as caught:
        evaluate_file(tuned, given)
    assert caught.value.found == f"a {type(given).__name__}"
    assert files.listed(data) == files.listed([data]) == files.listed((str(data),)) == [str(data)]


def test_what_it_learned_from_flatters_a_model(model: Path, tmp_path: Path, data: Path) -> None:
    """Whatever the file is called, and where it was moved; the control has other texts."""
    training, out = table(tmp_path / "training.csv", "classification", 60), tmp_path / "out"
    finetuned(model, training, out, epochs=1, stream=(stream := io.StringIO()))
    assert stream.getvalue().count(results_of(out)["verdict"]["sentence"]) == 1
    rows = [[f"{row['text']} a cat", row["label"]] for row in read(data)]
    new = rows_of(tmp_path / "new.csv", rows)
    rows[:5] = [[row["text"], row["label"]] for row in read(training)[:5]]
    some, moved = rows_of(tmp_path / "some.csv", rows), training.with_name("moved.csv")
    for path, expected in ((training, "warning"), (new, ""), (some, "note"), (moved, "warning")):
        if path == moved:
            training.rename(moved)
        evaluate_file(out / "model", path, stream=(stream := io.StringIO()))
        (severity,) = re.findall("(warning|note): the model was trained", stream.getvalue()) or [""]
        assert severity == expected, path
        assert ("Not conclusive: " in stream.getvalue()) is (expected == "warning")
        assert "(as in the training data)" in stream.getvalue()
    evaluate_file(out, data, columns={"text": ["text"]}, stream=stream)
    assert "as text (as given)" in stream.getvalue()


def test_rows_without_labels_are_for_predict(tuned: Path, data: Path, tmp_path: Path) -> None:
    for column, advised in (("text", True), ("label", False), ("", False)):
        rows = [[row[column]] for row in read(data)] if column else []
        path = rows_of(tmp_path / "rows.csv", rows, (column or "text",))
        with pytest.raises(DataError) as caught:
            evaluate_file(tuned, path, stream=io.StringIO())
        assert ("maskwright predict" in str(caught.value.do)) is advised
    assert "1 file, 0 rows" in str(caught.value.found), "a header is no row"


def test_by_the_command_line(
    tuned: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluate(model: Path, path: Path, *options: str) -> str:
        code = cli.main(["evaluate", str(model), "--data", str(path), *options])
        printed = capsys.readouterr()
        assert (code, "error E-" in printed.err) in ((0, False), (64, True))
        return printed.out if code == 0 else "refused"

    folder = tmp_path / "parts"
    folder.mkdir()
    rows = [[*row.values()] for row in read(data)]
    for part, some in (("train", rows[:50]), ("test", rows[50:])):
        rows_of(folder / f"{part}.csv", some)
    assert "accuracy" in evaluate(tuned, data)
    assert "80 rows" in evaluate(tuned, data, "--part", "all")
    assert evaluate(tuned, data, "--part", "test") == "refused", "there are no parts"
    assert "30 rows" in evaluate(tuned / "model", folder)
    assert "50 rows" in evaluate(tuned, folder, "--part", "train")
    assert evaluate(tuned, folder, "--part", "all") == "refused", "not the test part"
    (folder / "train.csv").unlink()  # who only asks needs nothing to learn from
    assert "30 rows" in evaluate(tuned, folder)
    assert cli.main(["finetune", str(tuned), "--data", str(folder)]) == 64, "the control"


@pytest.mark.parametrize("value", ["", "?", "-1", "unlabeled", "-100"])
def test_rows_whose_labels_are_hidden_have_no_figures(
    tuned: Path, tmp_path: Path, value: str
) -> None:
    hidden = rows_of(tmp_path / "test.csv", [[f"some words {n}", value] for n in range(9)])
    with pytest.raises(DataError):
        evaluate_file(tuned, hidden, stream=io.StringIO())


def test_a_label_that_was_not_learned_is_refused_with_its_place(
    tuned: Path, tmp_path: Path
) -> None:
    strange = rows_of(tmp_path / "strange.csv", [["the cat", "meow"], ["the dog", "moo"]])
    with pytest.raises(DataError) as refused:
        evaluate_file(tuned, strange, stream=io.StringIO())
    assert "line 3" in str(refused.value.where) or "row 2" in str(refused.value.where)


ANSWERS = {
    "pair-classification": {"label", "score"},
    "multi-label": {"labels", "scores"},
    "regression": {"score"},
    "similarity": {"score"},
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_other_tasks_say_what_fine_tuning_said(kind: str, model: Path, tmp_path: Path) -> None:
    """The test part alone, as a file, has the figures in results.json; numbers are not compared."""
    source, out, stream = table(tmp_path / "data.csv", kind, 120), tmp_path / "out", io.StringIO()
    finetuned(model, source, out, epochs=1, batch=16, rate=1e-2, stream=stream)
    assert f"task: {kind}" in stream.getvalue()
    test = prepare(source, division=DIVISION).parts["test"]
    places, rows = {int(row.where.rsplit(" ", 1)[1]) for row in test}, read(source)
    chosen = [list(row.values()) for n, row in enumerate(rows, 2) if n in places]
    asked = rows_of(tmp_path / "asked.csv", chosen, tuple(rows[0]))
    figures = evaluate_file(out, asked, stream=io.StringIO())
    (seed,) = results_of(out)["seeds"]
    assert len(test) == len(places) > 9
    for name, estimate in figures.items():
        if seed[name] is not None:
            assert estimate.value == pytest.approx(seed[name], abs=1e-6)
    texts = "a cat" if kind in ("multi-label", "regression") else ("a cat", "the dog")
    (answer,) = load(out).predict([texts])  # type: ignore[list-item]
    assert set(answer) == ANSWERS[kind]


def test_numbers_are_classes_by_the_names_that_come_with_them(
    tuned: Path, data: Path, tmp_path: Path
) -> None:
    """Whatever the order there: nobody else's class 0 need be ours."""
    rows, wanted = read(data), accuracy(tuned, data)
    assert wanted > 0.8
    for names in (["woof", "meow"], ["meow", "woof"]):
        folder = tmp_path / names[0]
        folder.mkdir()
        rows_of(folder / "train.csv", [[r["text"], str(names.index(r["label"]))] for r in rows])
        (folder / "labels.json").write_text(json.dumps(names))
        assert accuracy(tuned, folder) == wanted
    numbered = [[r["text"], str(7 if r["label"] == "meow" else 3), r["label"]] for r in rows]
    named = rows_of(tmp_path / "named.csv", numbered, ("text", "label", "label_name"))
    assert accuracy(tuned, named) == wanted
    bare = rows_of(tmp_path / "bare.csv", [[r["text"], "01"[r["label"] == "woof"]] for r in rows])
    with pytest.raises(DataError):
        evaluate_file(tuned, bare, stream=io.StringIO())


def test_numbers_of_the_training_data_are_remembered(
    model: Path, data: Path, tmp_path: Path
) -> None:
    rows = [[r["text"], str(4 + 3 * (r["label"] == "woof")), r["label"]] for r in read(data)]
    named = rows_of(tmp_path / "named.csv", rows, ("text", "label", "label_name"))
    out = tmp_path / "out"
    finetuned(model, named, out, epochs=1)
    task = json.loads((out / "task.json").read_text())
    assert task["labels"] == ["meow", "woof"] and task["values"] == [4, 7]
    bare = rows_of(tmp_path / "bare.csv", [row[:2] for row in rows])
    assert accuracy(out, named) == accuracy(out, bare)


def test_spellings_are_folded_onto_the_classes_of_the_model(
    tuned: Path, data: Path, tmp_path: Path
) -> None:
    loud = rows_of(tmp_path / "loud.csv", [[r["text"], r["label"].upper()] for r in read(data)])
    with pytest.raises(DataError):
        evaluate_file(tuned, loud, stream=io.StringIO())
    folding = how_read(["fold_labels=true"])
    assert accuracy(tuned, loud, read=folding) == accuracy(tuned, data)


def test_a_label_column_that_is_missing_is_not_all_zeros(
    model: Path, data: Path, tmp_path: Path
) -> None:
    texts = [row["text"] for row in read(data)]
    rows = [[text, *(str(int(animal in text)) for animal in ("cat", "dog"))] for text in texts]
    whole, out = rows_of(tmp_path / "whole.csv", rows, ("text", "cat", "dog")), tmp_path / "out"
    finetuned(model, whole, out, columns={"label": ["cat", "dog"]}, epochs=1)
    assert evaluate_file(out, whole, stream=io.StringIO())
    part = rows_of(tmp_path / "part.csv", [row[:2] for row in rows], ("text", "cat"))
    with pytest.raises(DataError) as refused:
        evaluate_file(out, part, stream=io.StringIO())
    assert refused.value.wanted == "dog"


def test_what_did_not_fit_is_told_portion_by_portion(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, so that a stop does not take it along; and by the rows that it is of."""
    monkeypatch.setattr(predict, "PORTION", 2)
    monkeypatch.setattr(predict_file, "PORTION", 2)
    source = rows_of(tmp_path / "new.csv", [["the cat sat " * 200]] * 9, ("text",))
    notes: list[str] = []
    write_predictions(tuned, source, tmp_path / "told.csv", say=notes.append)
    portions = [f"note: of the rows {n} to {n + 1}" for n in (1, 3, 5)]
    assert [line.partition(": 100.0%")[0] for line in notes[:3]] == portions
    assert notes[3:] == ["note: and so on, in 2 more portions of 2 rows"]


def test_rows_that_are_passed_over_are_listed_in_the_folder(
    tuned: Path, model: Path, tmp_path: Path
) -> None:
    data, out, figures = (tmp_path / name for name in ("data", "out", "figures"))
    data.mkdir()
    rows = [[f"{WORDS[n % 7]} {WORDS[n % 5]} {n}", ("meow", "woof")[n % 2]] for n in range(30)]
    for part in ("train", "test"):
        rows_of(data / f"{part}.csv", [*rows, ["no label", ""]])
    skip, stream = how_read(["on_bad=skip", "max_bad_fraction=0.5"]), io.StringIO()

    def listed(folder: Path) -> list[str]:
        assert f"listed in {folder}" in stream.getvalue()
        lines = (folder / "rejects.jsonl").read_text().splitlines()
        return [Path(json.loads(line)["file"]).name for line in lines]

    finetuned(model, data, out, epochs=1, read=skip, stream=stream)
    assert listed(out) == ["train.csv", "test.csv"]
    evaluate_file(tuned, data, out=figures, read=skip, stream=stream)
    assert listed(figures) == ["test.csv"]


def test_labels_in_one_cell_are_parted_as_in_the_training_data(model: Path, tmp_path: Path) -> None:
    """A small file may have the sign in one cell alone, or another sign beside it."""
    labelled = [["a cat a dog", "sea;town"], ["a dog", "town"], ["a cat", "sea"]] * 20
    rows = [[f"{text} {n}", label] for n, (text, label) in enumerate(labelled)]
    out, few = tmp_path / "out", rows_of(tmp_path / "few.csv", labelled[:2])
    finetuned(model, rows_of(tmp_path / "data.csv", rows), out, epochs=1)
    assert 0.0 <= evaluate_file(out, few, stream=io.StringIO())["micro_f1"].value <= 1.0
