"""A fine-tuned model on labelled rows: the figures that fine-tuning itself tells, and refusals."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.sweep import kill_on_disk

from finetune.test_command import table, tuned  # noqa: F401 - a fixture
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict import file as predict_file
from maskwright.ask.predict import predictor as predict
from maskwright.ask.predict.predictor import load
from maskwright.ask.predict.write import write_predictions
from maskwright.base.errors import CheckpointError, DataError, UsageError
from maskwright.cli import main as cli
from maskwright.learn.finetune.command import finetune_file
from maskwright.text.corpus import files
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.reading_options import how_read
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


def test_the_figures_are_those_of_the_answers(tuned: tuple[Path, str], data: Path) -> None:  # noqa: F811
    said = io.StringIO()
    found = evaluate_file(tuned[0], data, stream=said)
    rows = read(data)
    answers = load(tuned[0]).predict([row["text"] for row in rows])
    right = sum(a["label"] == row["label"] for a, row in zip(answers, rows, strict=True))
    assert found["accuracy"].value == pytest.approx(right / 80)
    assert found["accuracy"].low <= right / 80 <= found["accuracy"].high
    assert "80 rows" in said.getvalue() and "meow" in said.getvalue(), "each class, too"


def test_figures_and_mistakes_are_written_where_that_is_asked_for(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "told"
    command = ["evaluate", str(tuned[0]), "--data", str(data), "--out", str(out)]
    assert cli.main(command) == 0
    told = json.loads((out / "evaluation.json").read_text())
    found = evaluate_file(tuned[0], data, stream=io.StringIO())
    assert told["figures"]["accuracy"]["value"] == found["accuracy"].value
    assert told["rows"] == 80 and told["data"].keys() == {data.name}
    page = (out / "report.html").read_text()
    assert "Class by class" in page and "How it learned" not in page
    # What is there is not written over.
    capsys.readouterr()
    assert cli.main(command) == 64 and "there already" in capsys.readouterr().err


def test_killed_anywhere_figures_and_page_are_both_there_or_none(
    tuned: tuple[Path, str],  # noqa: F811
    tmp_path: Path,
    data: Path,
) -> None:
    def ask(folder: Path) -> None:
        evaluate_file(tuned[0], data, out=folder / "out", stream=io.StringIO())

    def both_or_none(folder: Path) -> None:
        with contextlib.suppress(UsageError):  # where all was there, and only remains were left
            ask(folder)
        assert sorted(os.listdir(folder / "out")) == ["evaluation.json", "report.html"]

    assert kill_on_disk(tmp_path, lambda folder: None, ask, both_or_none, last=8) == 8


def test_killed_anywhere_predictions_are_there_or_go_on(
    tuned: tuple[Path, str],  # noqa: F811
    tmp_path: Path,
    data: Path,
) -> None:
    def ask(folder: Path) -> None:
        write_predictions(tuned[0], data, folder / "out.csv")

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


class _Frame:
    """A table as pandas has it: iterating gives the names of its columns."""

    columns = ("text", "label")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


@pytest.mark.parametrize("given", [_Frame(), {"text": ["a"], "label": ["b"]}, [{"text": "a"}], 5])
def test_a_table_in_memory_is_no_list_of_paths(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    given: Any,
) -> None:
    with pytest.raises(UsageError) as caught:
        evaluate_file(tuned[0], given)
    assert caught.value.found == f"a {type(given).__name__}"
    assert files.listed(data) == files.listed([data]) == files.listed((str(data),)) == [str(data)]


def test_what_it_learned_from_flatters_a_model(model: Path, tmp_path: Path, data: Path) -> None:
    """Whatever the file is called, and where it was moved; the control has other texts."""
    training = table(tmp_path / "training.csv", "classification", 60)
    said = io.StringIO()
    finetune_file(model, training, tmp_path / "out", seeds=1, epochs=1, stream=said)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert said.getvalue().count(results["verdict"]["sentence"]) == 1
    rows = [[f"{row['text']} a cat", row["label"]] for row in read(data)]
    new = rows_of(tmp_path / "new.csv", rows)
    rows[:5] = [[row["text"], row["label"]] for row in read(training)[:5]]
    some, moved = rows_of(tmp_path / "some.csv", rows), training.with_name("moved.csv")
    for path, expected in ((training, "warning"), (new, ""), (some, "note"), (moved, "warning")):
        if path == moved:
            training.rename(moved)
        said = io.StringIO()
        evaluate_file(tmp_path / "out" / "model", path, stream=said)
        (severity,) = re.findall("(.*): the model was trained on", said.getvalue()) or [""]
        assert severity == expected, path
        assert "(as in the training data)" in said.getvalue()
    said = io.StringIO()
    evaluate_file(tmp_path / "out", data, columns={"text": ["text"]}, stream=said)
    assert "as text (as given)" in said.getvalue()


def test_rows_without_labels_are_for_predict(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    tmp_path: Path,
) -> None:
    for column, advised in (("text", True), ("label", False), ("", False)):
        rows = [[row[column]] for row in read(data)] if column else []
        path = rows_of(tmp_path / "rows.csv", rows, (column or "text",))
        with pytest.raises(DataError) as caught:
            evaluate_file(tuned[0], path, stream=io.StringIO())
        assert ("maskwright predict" in str(caught.value.do)) is advised
    assert "1 file, 0 rows" in str(caught.value.found), "a header is no row"


def test_by_the_command_line(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["evaluate", str(tuned[0]), "--data", str(data)]) == 0
    assert "accuracy" in capsys.readouterr().out
    folder = tmp_path / "parts"
    folder.mkdir()
    rows = [[row["text"], row["label"]] for row in read(data)]
    for part, some in (("train", rows[:50]), ("test", rows[50:])):
        rows_of(folder / f"{part}.csv", some)
    assert cli.main(["evaluate", str(tuned[0] / "model"), "--data", str(folder)]) == 0
    assert "30 rows" in capsys.readouterr().out
    assert cli.main(["evaluate", str(tuned[0]), "--data", str(folder), "--part", "train"]) == 0
    assert "50 rows" in capsys.readouterr().out
    assert cli.main(["evaluate", str(tuned[0]), "--data", str(folder), "--part", "all"]) == 64
    assert "error E-" in capsys.readouterr().err, "not the test part by another name"
    assert cli.main(["evaluate", str(tuned[0]), "--data", str(data), "--part", "all"]) == 0
    assert "80 rows" in capsys.readouterr().out
    (folder / "train.csv").unlink()  # who only asks needs nothing to learn from
    assert cli.main(["evaluate", str(tuned[0]), "--data", str(folder)]) == 0
    assert "30 rows" in capsys.readouterr().out
    assert cli.main(["finetune", str(tuned[0]), "--data", str(folder)]) == 64, "the control"
    assert "error E-" in capsys.readouterr().err


def test_a_model_that_is_copied_away(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is read of a text goes with it; and without that, its head says what it is."""
    copy = shutil.copytree(tuned[0] / "model", tmp_path / "copy")
    here, there = load(tuned[0]), load(copy)
    assert (there.frame.length, there.frame.long) == (here.frame.length, here.frame.long)
    assert there.columns == here.columns
    (copy / "task.json").unlink()
    with pytest.raises(CheckpointError, match="not complete"):
        load(copy)
    (copy / "MANIFEST.json").unlink()  # as of others
    assert cli.main(["evaluate", str(copy), "--data", str(data)]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert cli.main(["evaluate", str(copy), "--data", str(data), "--how", "masked"]) == 64
    assert "error E-" in capsys.readouterr().err


def test_columns_of_another_name(tuned: tuple[Path, str], data: Path, tmp_path: Path) -> None:  # noqa: F811
    rows = [[row["text"], row["label"]] for row in read(data)]
    other = rows_of(tmp_path / "other.csv", rows, ("words", "sound"))
    columns = {"text": ["words"], "label": ["sound"]}
    found = evaluate_file(tuned[0], other, columns=columns, stream=io.StringIO())
    assert (
        found["accuracy"].value
        == evaluate_file(tuned[0], data, stream=io.StringIO())["accuracy"].value
    )


def test_one_class_is_enough_to_ask_about(tuned: tuple[Path, str], tmp_path: Path) -> None:  # noqa: F811
    one = rows_of(tmp_path / "one.csv", [["the cat sat", "meow"], ["a cat ran", "meow"]])
    assert evaluate_file(tuned[0], one, stream=io.StringIO())["accuracy"].value == 1.0


@pytest.mark.parametrize("value", ["", "?", "-1", "unlabeled", "-100"])
def test_rows_whose_labels_are_hidden_have_no_figures(
    tuned: tuple[Path, str],  # noqa: F811
    tmp_path: Path,
    value: str,
) -> None:
    hidden = tmp_path / "test.csv"
    hidden.write_text("text,label\n" + "".join(f"some words {n},{value}\n" for n in range(9)))
    with pytest.raises(DataError):
        evaluate_file(tuned[0], hidden, stream=io.StringIO())


def test_refusals(tuned: tuple[Path, str], data: Path, tmp_path: Path) -> None:  # noqa: F811
    strange = rows_of(tmp_path / "strange.csv", [["the cat", "meow"], ["the dog", "moo"]])
    with pytest.raises(DataError) as refused:
        evaluate_file(tuned[0], strange, stream=io.StringIO())
    assert "line 3" in str(refused.value.where) or "row 2" in str(refused.value.where)
    with pytest.raises(UsageError):
        evaluate_file(tuned[0], data, part="test", stream=io.StringIO())


@pytest.mark.parametrize("kind", ["pair-classification", "multi-label", "regression", "similarity"])
def test_other_tasks_say_what_fine_tuning_said(
    kind: str,
    model: Path,
    tmp_path: Path,
) -> None:
    """The test part alone, as a file, has the figures in results.json; numbers are not compared."""
    from maskwright.learn.finetune.command import finetune_file
    from maskwright.learn.finetune.cross_validation import DIVISION

    source = table(tmp_path / "data.csv", kind, 120)
    finetune_file(
        model,
        source,
        tmp_path / "out",
        seeds=1,
        folds=0,
        epochs=1,
        batch=16,
        rate=1e-2,
        least_steps=0,
        stream=io.StringIO(),
    )
    test = prepare(source, division=DIVISION).parts["test"]
    places, rows = {int(row.where.rsplit(" ", 1)[1]) for row in test}, read(source)
    chosen = [list(row.values()) for n, row in enumerate(rows, 2) if n in places]
    asked = rows_of(tmp_path / "asked.csv", chosen, tuple(rows[0]))
    found = evaluate_file(tmp_path / "out", asked, stream=io.StringIO())
    told = json.loads((tmp_path / "out" / "results.json").read_text())["seeds"][0]
    assert len(test) == len(places) > 9
    for name, estimate in found.items():
        if told[name] is not None:
            assert estimate.value == pytest.approx(told[name], abs=1e-6)


def test_numbers_are_classes_by_the_names_that_come_with_them(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    tmp_path: Path,
) -> None:
    """Whatever the order there: nobody else's class 0 need be ours."""
    rows = read(data)
    wanted = evaluate_file(tuned[0], data, stream=io.StringIO())["accuracy"].value
    assert wanted > 0.8
    for number, names in enumerate((["woof", "meow"], ["meow", "woof"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        rows_of(folder / "train.csv", [[r["text"], str(names.index(r["label"]))] for r in rows])
        (folder / "labels.json").write_text(json.dumps(names))
        found = evaluate_file(tuned[0], folder, stream=io.StringIO())["accuracy"].value
        assert found == wanted
    named = rows_of(
        tmp_path / "named.csv",
        [[r["text"], str(7 if r["label"] == "meow" else 3), r["label"]] for r in rows],
        ("text", "label", "label_name"),
    )
    assert evaluate_file(tuned[0], named, stream=io.StringIO())["accuracy"].value == wanted
    bare = rows_of(tmp_path / "bare.csv", [[r["text"], "01"[r["label"] == "woof"]] for r in rows])
    with pytest.raises(DataError):
        evaluate_file(tuned[0], bare, stream=io.StringIO())


def test_numbers_of_the_training_data_are_remembered(
    model: Path, data: Path, tmp_path: Path
) -> None:
    rows = [[r["text"], str(4 + 3 * (r["label"] == "woof")), r["label"]] for r in read(data)]
    named = rows_of(tmp_path / "named.csv", rows, ("text", "label", "label_name"))
    finetune_file(
        model, named, tmp_path / "out", seeds=1, epochs=8, batch=16, rate=1e-2, stream=io.StringIO()
    )
    asked = json.loads((tmp_path / "out" / "task.json").read_text())
    assert asked["labels"] == ["meow", "woof"] and asked["values"] == [4, 7]
    bare = rows_of(tmp_path / "bare.csv", [row[:2] for row in rows])
    both = [
        evaluate_file(tmp_path / "out", each, stream=io.StringIO())["accuracy"].value
        for each in (named, bare)
    ]
    assert both[0] == both[1] > 0.8


def test_spellings_are_folded_onto_the_classes_of_the_model(
    tuned: tuple[Path, str],  # noqa: F811
    data: Path,
    tmp_path: Path,
) -> None:
    loud = rows_of(tmp_path / "loud.csv", [[r["text"], r["label"].upper()] for r in read(data)])
    with pytest.raises(DataError):
        evaluate_file(tuned[0], loud, stream=io.StringIO())
    folded = evaluate_file(
        tuned[0], loud, read=how_read(["fold_labels=true"]), stream=io.StringIO()
    )
    plain = evaluate_file(tuned[0], data, stream=io.StringIO())
    assert folded["accuracy"].value == plain["accuracy"].value


def test_a_label_column_that_is_missing_is_not_all_zeros(
    model: Path, data: Path, tmp_path: Path
) -> None:
    rows = [
        [r["text"], str(int("cat" in r["text"])), str(int("dog" in r["text"]))] for r in read(data)
    ]
    whole = rows_of(tmp_path / "whole.csv", rows, ("text", "cat", "dog"))
    finetune_file(
        model,
        whole,
        tmp_path / "out",
        columns={"label": ["cat", "dog"]},
        seeds=1,
        epochs=1,
        stream=io.StringIO(),
    )
    assert evaluate_file(tmp_path / "out", whole, stream=io.StringIO())
    part = rows_of(tmp_path / "part.csv", [row[:2] for row in rows], ("text", "cat"))
    with pytest.raises(DataError) as refused:
        evaluate_file(tmp_path / "out", part, stream=io.StringIO())
    assert refused.value.wanted == "dog"


def test_what_did_not_fit_is_told_when_predicting(
    tuned: tuple[Path, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    source = rows_of(tmp_path / "new.csv", [["the cat sat " * 200], ["the dog ran"]], ("text",))
    said: list[str] = []
    write_predictions(tuned[0], source, tmp_path / "told.csv", say=said.append)
    (note,) = said
    assert "50.0% of 2 rows truncated" in note
    short = rows_of(tmp_path / "short.csv", [["the dog ran"]], ("text",))
    write_predictions(tuned[0], short, tmp_path / "silent.csv", say=said.append)
    assert len(said) == 1
    blank = tmp_path / "blank.csv"
    blank.write_text("text\nthe cat\n\nthe dog ran\n")
    assert write_predictions(tuned[0], blank, tmp_path / "two.csv", say=said.append) == 2
    assert said[1:] == ["note: 1 blank line passed over; with no line among the predictions"]


def test_what_did_not_fit_is_told_portion_by_portion(
    tuned: tuple[Path, str],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At once, so that a stop does not take it along; and by the rows that it is of."""
    monkeypatch.setattr(predict, "PORTION", 2)
    monkeypatch.setattr(predict_file, "PORTION", 2)
    source = rows_of(tmp_path / "new.csv", [["the cat sat " * 200]] * 9, ("text",))
    said: list[str] = []
    write_predictions(tuned[0], source, tmp_path / "told.csv", say=said.append)
    assert [line.partition(": 100.0%")[0] for line in said[:3]] == [
        "note: of the rows 1 to 2",
        "note: of the rows 3 to 4",
        "note: of the rows 5 to 6",
    ]
    assert said[3:] == ["note: and so on, in 2 more portions of 2 rows"]


def test_texts_of_another_script_are_noted_wherever_they_are_read(
    tuned: tuple[Path, str],  # noqa: F811
    model: Path,
    tmp_path: Path,
) -> None:
    texts = [[f"الطقس جميل {WORDS[n % 7]} {n}", ("meow", "woof")[n % 2]] for n in range(40)]
    data, said = rows_of(tmp_path / "new.csv", texts, ("text", "label")), io.StringIO()
    evaluate_file(tuned[0], data, stream=said)
    assert "\nnote: " in said.getvalue()
    told: list[str] = []
    write_predictions(tuned[0], data, tmp_path / "told.csv", say=told.append)
    assert len(told) == 1 and "byte-level BPE" in told[0]
    finetune_file(model, data, tmp_path / "out", seeds=1, epochs=1, stream=(said := io.StringIO()))
    assert "\nnote: train: " in said.getvalue()
    kept = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert {found["name"] for found in kept["findings"]} >= {"unknown-characters"}


def test_rows_that_are_passed_over_are_listed_in_the_folder(
    tuned: tuple[Path, str],  # noqa: F811
    model: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir()
    rows = [[f"{WORDS[n % 7]} {WORDS[n % 5]} {n}", ("meow", "woof")[n % 2]] for n in range(30)]
    for part in ("train", "test"):
        rows_of(tmp_path / "data" / f"{part}.csv", [*rows, ["no label", ""]])
    skip, said = how_read(["on_bad=skip", "max_bad_fraction=0.5"]), io.StringIO()
    finetune_file(
        model, tmp_path / "data", tmp_path / "out", seeds=1, epochs=1, read=skip, stream=said
    )
    listed = tmp_path / "out" / "rejects.jsonl"
    files = [json.loads(line)["file"] for line in listed.read_text().splitlines()]
    assert [Path(file).name for file in files] == ["train.csv", "test.csv"]
    assert f"rows left out are listed in {listed}" in said.getvalue()
    evaluate_file(
        tuned[0],
        tmp_path / "data",
        out=tmp_path / "figures",
        read=skip,
        stream=(said := io.StringIO()),
    )
    (kept,) = (tmp_path / "figures" / "rejects.jsonl").read_text().splitlines()
    assert json.loads(kept)["file"].endswith("test.csv")
    assert f"listed in {tmp_path / 'figures'}" in said.getvalue()


def test_labels_in_one_cell_are_parted_as_in_the_training_data(model: Path, tmp_path: Path) -> None:
    """A small file may have the sign in one cell alone, or another sign beside it."""
    words = {"sea": "a cat", "town": "a dog"}
    rows = [
        [f"{words['sea']} {words['town']} {n}", "sea;town"]
        if n % 3 == 0
        else [f"{words[('sea', 'town')[n % 2]]} {n}", ("sea", "town")[n % 2]]
        for n in range(60)
    ]
    out = tmp_path / "out"
    finetune_file(
        model, rows_of(tmp_path / "data.csv", rows), out, seeds=1, epochs=1, stream=io.StringIO()
    )
    few = rows_of(tmp_path / "few.csv", [["a cat a dog", "sea;town"], ["a dog", "town"]])
    assert 0.0 <= evaluate_file(out, few, stream=io.StringIO())["micro_f1"].value <= 1.0
