"""The cards of a corpus: their numbers are those of the records, and equal input gives equal
bytes."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from curate.cards import card_with
from curate.in_process import batch_of
from curate.test_engine import rows_of
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate import card as card_module
from maskwright.text.curate import recipe as recipes
from maskwright.text.curate.card import (
    _step_facts,
    contamination_lines,
    licence_note,
    render_data_card,
    repeat_command,
)
from maskwright.text.curate.curation import Options, curate
from maskwright.text.curate.engine import segment
from maskwright.text.curate.engine.segment import Flow, Record
from maskwright.text.curate.recipe import setting_of, step_lines
from maskwright.text.curate.step import CurationBatch, Outcome, Removal, RuleMeasure

STEPS = ["gopher-quality", "c4", "personal"]
LONG = "The old man went down to the river and sat there with his dog. "
READING = ReadingOptions(notes=("*",), on_bad="skip", max_bad_fraction=1.0)


def texts() -> list[dict[str, str]]:
    """Documents of which some are short, some lose lines and some have addresses."""
    rows = []
    for n in range(40):
        text = LONG * (1 + n % 6) + f"He said {n} times that it was good. That is all we know."
        text += "\nHome\nWrite to me at ann@example.org when you have the time." * (n % 2)
        rows.append({"id": f"d{n}", "text": text, "source": "ab"[n % 2]})
    return rows


def write_rows(path: Path, rows: list[Any]) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus of `texts`, curated within `folder`."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_rows(Path("raw/a.jsonl"), texts()[:25])
    write_rows(Path("raw/b.jsonl"), [*texts()[25:], '{"id": "broken", "text": 5}'])
    curate("raw", "clean", recipes.make(STEPS), Options(reading=READING))
    return folder / "clean"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return made(tmp_path_factory.mktemp("card") / "work", patch)


def differences(folder: Path) -> list[str]:
    """Where the numbers of the card are not those of the records and texts."""
    card = json.loads((folder / "card.json").read_text())
    found = []
    gone = rows_of(folder, "removed")
    by_rule = Counter((r["step"], r["rule"]) for r in gone)
    sizes: Counter[tuple[str, str]] = Counter()
    for r in gone:
        sizes[r["step"], r["rule"]] += r["bytes"]
    changed = Counter((r["step"], r["rule"]) for r in rows_of(folder, "changed"))
    before = card["read"]["documents"]
    for step in card["steps"]:
        name = step["step"]
        if step["documents_in"] != before:
            found.append(f"{name}: came")
        before = step["documents_out"]
        if step["documents_in"] - before != sum(r["documents"] for r in step["rules"].values()):
            found.append(f"{name}: left")
        for rule, facts in step["rules"].items():
            if (facts["documents"], facts["bytes"]) != (by_rule[name, rule], sizes[name, rule]):
                found.append(f"{name}: {rule}")
            if sum(facts["sources"].values()) != facts["documents"]:
                found.append(f"{name}: {rule} by source")
        for rule, count in step["changes"].items():
            if count != changed[name, rule]:
                found.append(f"{name}: {rule} changed")
    rows = rows_of(folder, "text")
    if {len(rows), before} != {card["left"]["documents"]}:
        found.append("left")
    if sum(len(row["text"].encode()) for row in rows) != card["left"]["bytes"]:
        found.append("bytes left")
    return found


def test_the_numbers_are_those_of_the_records(clean: Path, tmp_path: Path) -> None:
    assert differences(clean) == []
    card = json.loads((clean / "card.json").read_text())
    assert card["read"]["documents"] == 40 and card["read"]["rejected"] == 1
    assert {s["step"] for s in card["steps"] if s["rules"]} >= {"gopher-quality"}
    assert any(s["changes"] for s in card["steps"])
    # The control: a record that is gone is found.
    copy = tmp_path / "copy"
    shutil.copytree(clean, copy)
    path = copy / "removed" / "gopher-quality.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[1:])))
    assert differences(copy) == ["gopher-quality: gopher_short_doc"]


def test_equal_input_gives_equal_bytes(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = made(tmp_path / "again", monkeypatch)
    for name in ("MANIFEST.json", "card.json", "card.md", "page.html"):
        assert (clean / name).read_bytes() == (again / name).read_bytes(), name
    text = (clean / "card.md").read_text()
    assert str(clean.parent) not in text, "no place of a machine"
    assert "202" not in text.replace("SHA-256", "").split("| raw/a")[0], "no date"


def test_the_card_answers_for_the_corpus(clean: Path) -> None:
    text = (clean / "card.md").read_text()
    card = json.loads((clean / "card.json").read_text())
    files = card["read"]["files"]
    assert [f["file"] for f in files] == ["raw/a.jsonl", "raw/b.jsonl"]
    assert all(f["sha256"] in text for f in files) and all(f". {step}" in text for step in STEPS)
    assert "gopher\\_short" not in text and "| gopher_short_doc |" in text
    assert "--recipe recipe.toml --read on_bad=skip" in text
    unreadable = gzip.decompress((clean / "unreadable.jsonl.gz").read_bytes())
    assert json.loads(unreadable)["line"] == 16
    # Of licences, tokens and contamination it says what is known.
    assert licence_note(card) and contamination_lines(card) is None
    other = card_with("CC-BY-4.0")
    assert " 2 " in licence_note(other)
    assert "4 documents" in (contamination_lines(other) or [""])[0]
    other["left"]["licences"] = {"CC-BY-4.0": 6}
    assert licence_note(other) == ""
    assert "'my files/$x'" in repeat_command(card_with("my files/$x"))
    shown = render_data_card(other)
    assert "120 tokens" in shown and "cd" * 32 in shown


def test_a_curated_input_is_named_as_parent(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clean.parent)
    out = tmp_path / "second"
    card = curate("clean", out, recipes.make(["personal"]), Options(reading=READING))
    manifest = json.loads((clean / "MANIFEST.json").read_text())
    assert card["parents"] == [{"folder": "clean", "fingerprint": manifest["sha256"]}]
    assert manifest["sha256"] in (out / "card.md").read_text()
    first = json.loads((clean / "card.json").read_text())
    assert first["parents"] == [], "raw files are no parents"


def test_a_rule_has_the_setting_of_its_limit_and_examples_on_both_sides(clean: Path) -> None:
    steps = {s["step"]: s for s in json.loads((clean / "card.json").read_text())["steps"]}
    measures = steps["gopher-quality"]["measures"]
    assert measures["gopher_short_doc"]["settings"] == {"low": "min_doc_words", "high": None}
    assert measures["gopher_long_doc"]["settings"] == {"low": None, "high": "max_doc_words"}
    step = recipes.settings_of("gopher-quality")()
    assert setting_of(step, "gopher_short_doc", "low", 51) is None, "another value is another limit"
    assert setting_of(step, "gopher_short", "low", 50) is None, "another rule"
    border = measures["gopher_short_doc"]["border"]
    assert all(e["removed"] == (e["value"] < 50) for e in border)
    assert {e["removed"] for e in border} == {True, False}
    values = [e["value"] for e in border if e["removed"]]
    assert len(values) == len(set(values)), "of different values"
    shown = steps["personal"]["change_examples"]["personal-email"][0]
    assert "<EMAIL>" in shown["after"] and "ann@example.org" not in json.dumps(shown)


def test_every_value_is_one_that_json_holds() -> None:
    batch = batch_of(["a text"] * 4)
    values = np.array([math.inf, math.nan, 5.25, 1.0])
    removal = Removal(3, "word", np.int64(7))  # type: ignore[arg-type]
    outcome = Outcome(measures=[RuleMeasure("high", values, high=2.0)], removals=[removal])
    record = Record(["a-step"])
    left = record.take("a-step", Flow.of(batch), outcome)
    assert left.batch.ids == ["d1"], "what has no value passes"
    assert [r["value"] for r in record.removed] == ["inf", 5.25, 7]
    text = json.dumps([record.removed, record.facts()], allow_nan=False)
    assert [v for _, v in json.loads(text)[1]["steps"]["a-step"]["measures"]["high"]["sample"]]


def facts_of(order: Sequence[int], cuts: int, values: NDArray[np.float64]) -> dict[str, Any]:
    """What the card says of a measure, of documents in an order and in so many shards."""
    parts = []
    for places in np.array_split(np.array(order), cuts):
        record = Record(["a-step"])
        for batch in np.array_split(places, 2):  # of a shard
            names = [f"raw.txt:{n}" for n in batch]
            made = CurationBatch(np.arange(len(batch)), names, [f"text {n}" for n in batch])
            measure = RuleMeasure("range", values[batch], low=3.0, high=90.0)
            record.take("a-step", Flow.of(made), Outcome(measures=[measure]))
        parts.append(record.facts()["steps"]["a-step"])
    return _step_facts("a-step", parts)


def test_examples_and_samples_do_not_depend_on_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (segment, card_module):
        monkeypatch.setattr(module, "SAMPLE", 20)
    generator = np.random.default_rng(1)
    values = np.round(generator.uniform(0, 100, 400))
    values[generator.choice(400, 60, replace=False)] = math.nan
    whole = facts_of(range(400), 1, values)
    found = whole["measures"]["range"]
    assert len(found["sample"]) == 20 and len(found["border"]) >= 12
    for cuts in (2, 7):
        assert facts_of(range(400), cuts, values) == whole
        assert facts_of(generator.permutation(400).tolist(), cuts, values) == whole
    # The control: other values give another card.
    assert facts_of(range(400), 1, values + 1) != whole


def test_what_was_not_looked_for_is_said(clean: Path) -> None:
    card = json.loads((clean / "card.json").read_text(encoding="utf-8"))
    ran = [step["step"] for step in card["steps"]]
    assert card["not_done"]
    for name in recipes.step_names():
        words = recipes.settings_of(name).UNLESS
        assert not words or (words in card["not_done"]) == (name not in ran)


def test_steps_are_listed_with_their_settings() -> None:
    lines = list(step_lines())
    assert any(line.startswith("gopher-quality: ") for line in lines)
    assert any(line.strip().startswith("min_doc_words = 50  # ") for line in lines)
