"""A csv of reviews, from the path to a baseline: the whole way in one call."""

from __future__ import annotations

from pathlib import Path

from labelled.tables import refusal, sentence, write
from maskwright.base.errors import DataError, UsageError
from maskwright.learn.tasks.base import bag_of_words, baselines
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.splits import SplitOptions
from maskwright.text.tables.survey import survey

LINES = [
    f'"{"good" if n % 3 else "bad"}, {sentence(n)}",{1 if n % 3 else 5},author {n % 40}'
    for n in range(200)
]


def reviews(folder: Path, *more: str) -> Path:
    return write(folder / "reviews.csv", "\n".join(["review,stars,author", *LINES, *more]) + "\n")


def test_a_csv_becomes_a_task_with_parts(tmp_path: Path) -> None:
    made = prepare(reviews(tmp_path), division=SplitOptions(validation=0.2, test=0.2))
    assert made.task.lines() == [
        "task: classification, because 'stars' holds only 2 different whole numbers",
        "using column 'review' as text (by its name)",
        "using column 'stars' as label (by its name)",
        "not used: 'author'",
    ]
    assert made.labels is not None and made.labels.names == ("1", "5")
    assert [len(rows) for rows in made.parts.values()] == [122, 39, 39]
    assert made.parts["train"][0].where.startswith(f"{tmp_path}/reviews.csv, line ")
    assert survey(made).leaks == []
    _, (_, words) = baselines.baselines(made, "test")
    assert (words == bag_of_words.targets(made.parts["test"])).all()


def test_what_is_said_overrules_what_is_found(tmp_path: Path) -> None:
    path = reviews(tmp_path)
    made = prepare(path, task="regression", columns={"group": "author"})
    assert made.task.name == "regression" and {e.label for e in made.parts["train"]} == {1.0, 5.0}
    assert not set(made.groups["train"]) & set(made.groups["validation"])
    refusal(UsageError, lambda: prepare(path, columns={"label": "star"}))


def test_a_slip_in_a_row_is_refused_with_its_line(tmp_path: Path) -> None:
    path = reviews(tmp_path, '"good, but",five,author 3')
    error = refusal(DataError, lambda: prepare(path))
    assert error.found == "'five'"
    assert error.where == f"{path}, line 202, column 'stars'"


def test_what_was_dropped_is_said(tmp_path: Path) -> None:
    path = reviews(tmp_path, "short", '"good, but",,author 3')
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    skip = ReadingOptions(on_bad="skip")
    made = prepare(path, reading=skip, rejects=tmp_path / "rejects.jsonl")
    names = {finding.name for finding in survey(made).findings}
    assert names >= {"rejected-rows", "byte-order-marks", "possible-groups", "bad-rows"}
    assert "list-of-bad-rows" in names
    assert len((tmp_path / "rejects.jsonl").read_text().splitlines()) == 2
