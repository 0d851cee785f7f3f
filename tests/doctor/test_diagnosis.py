"""Planted problems are found, and clean data of each kind has none (the controls)."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelled.tables import write_rows
from maskwright import api
from maskwright.ask.doctor.doctor import NAME, Diagnosis, doctor
from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.cli import main as cli
from maskwright.text.tables.reading_options import how_read
from report.test_page import opens_with

Rows = list[dict[str, Any]]
NAMES = ["sport", "finance", "travel"]


def words(generator: np.random.Generator, topic: int, count: int) -> str:
    """A text in which a fifth of the words are of the topic and the others of all topics."""
    of_topic = generator.random(count) < 0.2
    own = 1000 * (topic + 1) + generator.integers(60, size=count)
    common = generator.integers(400, size=count)
    return " ".join(f"w{number}" for number in np.where(of_topic, own, common))


def clean(count: int = 400, classes: int = 2, seed: int = 0) -> Rows:
    generator = np.random.default_rng(seed)
    topics = generator.integers(classes, size=count)
    return [
        {"text": words(generator, topic, 20), "label": NAMES[topic]} for topic in topics.tolist()
    ]


def examined(path: Path, *arguments: Any, **options: Any) -> Diagnosis:
    return doctor(path, *arguments, stream=io.StringIO(), **options)


def of_rows(folder: Path, **parts: Rows) -> Diagnosis:
    for name, rows in parts.items():
        write_rows(folder / "data" / f"{name}.jsonl", rows)
    return examined(folder / "data")


def problems(diagnosis: Diagnosis) -> set[str]:
    return {finding.name for finding in diagnosis.problems}


def pairs() -> Rows:
    generator = np.random.default_rng(3)
    texts = [[words(generator, 0, 12) for _ in range(2)] for _ in range(300)]
    return [
        {"sentence1": one, "sentence2": two, "label": ("no", "yes")[n % 2]}
        for n, (one, two) in enumerate(texts)
    ]


def untidy(path: Path) -> Path:
    """A table of a spreadsheet: semicolons, labels in two spellings, an empty label."""
    rows = [f"{row['text']};{row['label']}" for row in clean()]
    rows[7], rows[9] = rows[7].title(), rows[9].rpartition(";")[0] + ";"
    path.write_text("\n".join(["text;label", *rows]) + "\n")
    return path


def test_all_that_keeps_rows_from_being_read_is_seen_at_once(tmp_path: Path) -> None:
    """And the command that it ends with reads them. The control: with that nothing is left."""
    seen = examined(untidy(tmp_path / "rows.csv"))
    assert [finding.name for finding in seen.problems] == ["unreadable-rows"] * 3
    assert len(clean()) - seen.num_rows == 1
    words = shlex.split(seen.command)
    settings = [setting for option, setting in pairwise(words) if option == "--read"]
    assert not examined(tmp_path / "rows.csv", read=how_read(settings)).problems


def test_what_cannot_be_tried_is_refused_with_what_was(tmp_path: Path) -> None:
    path = untidy(tmp_path / "rows.csv")
    path.write_text(path.read_text().replace("text;label", "text;one;two").replace(";", ";x;"))
    with pytest.raises(MaskwrightError) as failure:
        examined(path)
    assert failure.value.do is not None and "separator=;" in failure.value.do


CLEAN: dict[str, Callable[[], Rows]] = {
    "two classes": clean,
    "three uneven classes": lambda: [
        row for n, row in enumerate(clean(900, 3)) if row["label"] == "sport" or n % 4 == 0
    ],
    "several labels": lambda: [
        {"text": f"{a['text']} {b['text']}", "labels": sorted({a["label"], b["label"]})}
        for a, b in zip(clean(400, 3, 4), clean(400, 3, 5), strict=True)
    ],
    "pairs": pairs,
    "numbers": lambda: [{**row, "label": n % 97 / 7} for n, row in enumerate(clean())],
    "labels without relation": lambda: [
        {**row, "label": other["label"]}
        for row, other in zip(clean(400), clean(400, seed=9), strict=True)
    ],
    "tags": lambda: [
        {"tokens": row["text"].split(), "tags": ["O"] * 19 + [f"B-{row['label']}"]}
        for row in clean()
    ],
}


@pytest.mark.parametrize("kind", CLEAN)
def test_clean_data_has_no_problem(kind: str, tmp_path: Path) -> None:
    diagnosis = examined(write_rows(tmp_path / "data.jsonl", CLEAN[kind]()))
    assert diagnosis.problems == [] and diagnosis.rows == []
    assert diagnosis.num_rows >= 300 and str(diagnosis.num_rows) in diagnosis.verdict


def test_clean_parts_have_no_problem(tmp_path: Path) -> None:
    train, test = clean(400), clean(150, seed=1)
    for n, row in enumerate([*train, *test]):
        row["author"] = f"a{n // 8}"
    assert of_rows(tmp_path, train=train, test=test).problems == []


def test_flipped_labels_are_listed(tmp_path: Path) -> None:
    rows = clean(800, 3)
    flipped = range(0, 800, 20)
    for n in flipped:
        rows[n]["label"] = NAMES[(NAMES.index(rows[n]["label"]) + 1 + n % 2) % 3]
    diagnosis = examined(write_rows(tmp_path / "data.jsonl", rows))
    assert problems(diagnosis) == {"wrong-labels"}
    lines = [int(row.where.rpartition(" ")[2]) - 1 for row in diagnosis.rows]
    right = [n for n in lines if n in flipped]
    assert len(right) >= 0.75 * len(lines) and len(right) >= 0.6 * len(flipped)
    assert [row.score for row in diagnosis.rows] == sorted(r.score for r in diagnosis.rows)[::-1]
    figures = {check.name: check.figures for check in diagnosis.checks}["label errors"]
    assert 0.03 < figures["estimated_share"] < 0.08


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (lambda row, n: f"topic: {row['label']}. {row['text']}", "label-in-text"),
        (lambda row, n: f"{row['text']} {row['label'] if n % 3 else ''}", "label-in-text"),
        (lambda row, n: row["text"] + "!" * (row["label"] == "sport"), "sign-decides-label"),
        (lambda row, n: row["text"].upper() if row["label"] == "sport" else row["text"], ""),
    ],
)
def test_a_text_that_gives_its_label_away(
    written: Callable[..., str], name: str, tmp_path: Path
) -> None:
    rows = [{**row, "text": written(row, n)} for n, row in enumerate(clean())]
    found_names = problems(examined(write_rows(tmp_path / "data.jsonl", rows)))
    assert (name or "sign-decides-label") in found_names


@pytest.mark.parametrize("sign", ["", "x "])
def test_texts_without_a_common_sign_are_examined(sign: str, tmp_path: Path) -> None:
    """The control has a sign that all texts share, and that tells nothing."""
    titles = [f"{sign}{chr(0x4E00 + n)}{chr(0x5E00 + n)}" for n in range(120)]
    rows = [{"text": title, "label": NAMES[n % 2]} for n, title in enumerate(titles)]
    figures = examined(write_rows(tmp_path / "data.jsonl", rows)).checks[0].figures
    assert figures["one_sign_decides"] < 0.1 and bool(figures["best_sign"]) is bool(sign)


def test_a_frequent_sign_of_uneven_classes_decides_nothing(tmp_path: Path) -> None:
    """The control: nearly all texts of nearly the only class end with a full stop."""
    rows = [{"text": f"{r['text']}.", "label": NAMES[n % 20 == 0]} for n, r in enumerate(clean())]
    assert problems(examined(write_rows(tmp_path / "data.jsonl", rows))) == set()


def test_rows_and_groups_in_two_parts(tmp_path: Path) -> None:
    train, test = clean(400), clean(150, seed=1)
    test[:5] = [{**row, "text": row["text"].upper() + " !"} for row in train[:5]]
    assert problems(of_rows(tmp_path, train=train, test=test)) == {"rows-in-two-parts"}
    near = clean(150, seed=1)
    near[:15] = [{**row, "text": f"{row['text']} indeed"} for row in train[:15]]
    assert problems(of_rows(tmp_path / "near", train=train, test=near)) == {"rows-in-two-parts"}
    test = clean(150, seed=1)
    for n, row in enumerate([*train, *test]):
        row["patient"] = f"p{n % 90}"
    diagnosis = of_rows(tmp_path / "groups", train=train, test=test)
    assert problems(diagnosis) == {"groups-in-two-parts"}
    one_table = examined(write_rows(tmp_path / "one.jsonl", [*train, *test]))
    assert one_table.problems == [] and "--column group=patient" in one_table.command


def test_contradictions_copies_and_misspelt_labels(tmp_path: Path) -> None:
    rows = clean()
    rows[:3] = [
        {"text": f"{row['text']}.", "label": NAMES[row["label"] == "sport"]} for row in rows[50:53]
    ]
    assert problems(examined(write_rows(tmp_path / "a.jsonl", rows))) == {"contradicting-labels"}
    rows = clean()
    rows[:60] = rows[100:160]
    assert problems(examined(write_rows(tmp_path / "b.jsonl", rows))) == {"repeated-rows"}
    rows = clean()
    rows[7]["label"] = "finnance"
    assert problems(examined(write_rows(tmp_path / "c.jsonl", rows))) == {"misspelt-label"}


def test_a_wrong_column_and_few_rows_are_a_problem(tmp_path: Path) -> None:
    wrong_column = [{**row, "label": NAMES[n % 2]} for n, row in enumerate(clean(2_000))]
    of_chance = examined(write_rows(tmp_path / "chance.jsonl", wrong_column))
    assert problems(of_chance) == {"labels-not-predicted"}
    few = of_rows(tmp_path, train=clean(400), test=clean(12, seed=1))
    assert problems(few) == {"few-scored-rows"}


def test_rows_are_compared_with_a_model(model: Path, tmp_path: Path) -> None:
    rows = [
        {"text": f"the cat {'sat on the mat ' * (n % 50)}{n}", "label": NAMES[n % 2]}
        for n in range(300)
    ]
    diagnosis = examined(write_rows(tmp_path / "long.jsonl", rows), model)
    assert "truncated" in problems(diagnosis) and "--long head-and-tail" in diagnosis.command
    rows = [{"text": f"the 漢字 of 仮名 {n}", "label": NAMES[n % 2]} for n in range(300)]
    diagnosis = examined(write_rows(tmp_path / "foreign.jsonl", rows), model)
    assert "unknown-characters" in problems(diagnosis)


def test_the_report_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_rows(tmp_path / "my data.jsonl", clean()), tmp_path / "out"
    assert cli.main(["doctor", str(data), "--read", "on_bad=skip", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    told = json.loads((out / NAME).read_text())
    assert shown.startswith(told["verdict"]) and told["command"] in shown
    assert told["command"].endswith(f"--data '{data}' --read on_bad=skip")
    assert {"leakage", "label_errors", "repetitions", "model", "score"} == told["checks"].keys()
    assert opens_with((out / "report.html").read_text(), told["verdict"])
    with pytest.raises(UsageError):
        doctor(data, out=out, stream=io.StringIO())


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    rows = [{"text": row["text"], "label": "same"} for row in clean(50)]
    with pytest.raises(DataError, match=r"data\.jsonl"):
        api.doctor(write_rows(tmp_path / "data.jsonl", rows), stream=io.StringIO())
    with pytest.raises(DataError, match=r"data\.jsonl"):
        api.doctor(write_rows(tmp_path / "data.jsonl", rows[:1]), stream=io.StringIO())
    (tmp_path / "run.json").write_text("{}")
    for path in (tmp_path / "nowhere.csv", tmp_path):
        assert cli.main(["doctor", str(path)]) == 64
