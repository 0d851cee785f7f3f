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

from curate.folders import rows_of, write_rows
from curate.in_process import batch_of
from maskwright.base.errors import UsageError
from maskwright.text.corpus import saved
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate import card as card_module
from maskwright.text.curate import recipe as recipes
from maskwright.text.curate.card import _step_facts
from maskwright.text.curate.curation import Options, curate, work_folder
from maskwright.text.curate.engine import segment
from maskwright.text.curate.engine.segment import Flow, Record
from maskwright.text.curate.step import CurationBatch, Outcome, Removal, RuleMeasure

STEPS = ["gopher-quality", "c4", "personal"]
LONG = "The old man went down to the river and sat there with his dog. "
READING = ReadingOptions(notes=("*",), on_bad="skip", max_bad_fraction=1.0)


def curated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus within `folder` of 40 documents, of which some are short, some lose lines and
    some have addresses."""
    rows = []
    for n in range(40):
        text = LONG * (1 + n % 6) + f"He said {n} times that it was good. That is all we know."
        text += "\nHome\nWrite to me at ann@example.org when you have the time." * (n % 2)
        rows.append({"id": f"d{n}", "text": text, "source": "ab"[n % 2]})
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_rows(Path("raw/a.jsonl"), rows[:25])
    write_rows(Path("raw/b.jsonl"), [*rows[25:], '{"id": "broken", "text": 5}'])
    curate("raw", "clean", recipes.make(STEPS), Options(reading=READING))
    return folder / "clean"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return curated(tmp_path_factory.mktemp("card") / "work", patch)


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    return card


def differences(folder: Path) -> list[str]:
    """Where the numbers of the card are not those of the records and texts."""
    card = card_of(folder)
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for r in rows_of(folder, "removed"):
        counts[r["step"], r["rule"]] += 1
        sizes[r["step"], r["rule"]] += r["bytes"]
    changed = Counter((r["step"], r["rule"]) for r in rows_of(folder, "changed"))
    rows = rows_of(folder, "text")
    checks = {}
    documents = card["read"]["documents"]
    for step in card["steps"]:
        name = step["step"]
        checks[f"{name}: came"] = step["documents_in"] == documents
        documents = step["documents_out"]
        gone = sum(r["documents"] for r in step["rules"].values())
        checks[f"{name}: left"] = step["documents_in"] - documents == gone
        for rule, facts in step["rules"].items():
            of_records = counts[name, rule], sizes[name, rule]
            checks[f"{name}: {rule}"] = (facts["documents"], facts["bytes"]) == of_records
            by_source = sum(facts["sources"].values())
            checks[f"{name}: {rule} by source"] = by_source == facts["documents"]
        for rule, count in step["changes"].items():
            checks[f"{name}: {rule} changed"] = count == changed[name, rule]
    checks["left"] = len(rows) == documents == card["left"]["documents"]
    size = sum(len(row["text"].encode()) for row in rows)
    checks["bytes left"] = size == card["left"]["bytes"]
    return [name for name, holds in checks.items() if not holds]


def test_the_numbers_are_those_of_the_records(clean: Path, tmp_path: Path) -> None:
    assert differences(clean) == []
    card = card_of(clean)
    assert card["read"]["documents"] == 40 and card["read"]["rejected"] == 1
    assert {s["step"] for s in card["steps"] if s["rules"]} >= {"gopher-quality"}
    assert any(s["changes"] for s in card["steps"])
    # The control: a record that is gone is found.
    copy = shutil.copytree(clean, tmp_path / "copy")
    path = copy / "removed" / "gopher-quality.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(lines[1:])))
    assert differences(copy) == ["gopher-quality: gopher_short_doc"]


def test_bytes_are_the_same(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = curated(tmp_path / "again", monkeypatch)
    for name in ("MANIFEST.json", "card.json", "card.md", "page.html"):
        assert (clean / name).read_bytes() == (again / name).read_bytes(), name
    text = (clean / "card.md").read_text()
    assert str(clean.parent) not in text, "no place of a machine"
    assert "202" not in text.replace("SHA-256", "").split("| raw/a")[0], "no date"


def test_a_curated_parent(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clean.parent)
    out = tmp_path / "second"
    card = curate("clean", out, recipes.make(["personal"]), Options(reading=READING))
    fingerprint = json.loads((clean / "MANIFEST.json").read_text())["sha256"]
    assert card["parents"] == [{"folder": "clean", "fingerprint": fingerprint}]
    assert fingerprint in (out / "card.md").read_text()
    assert card_of(clean)["parents"] == [], "raw files are no parents"
    # It is read as text with its metadata, without what was removed; its pieces are not.
    texts = [(d.text, d.notes["source"]) for d in Reader(clean, ReadingOptions(notes=("source",)))]
    assert texts == [(row["text"], row["source"]) for row in rows_of(clean, "text")]
    assert saved.curation_summary(clean)["sources"] == card_of(clean)["left"]["sources"]
    assert saved.is_curation_work(work_folder(clean))
    with pytest.raises(UsageError):
        Reader(work_folder(clean))


def test_a_rule_has_the_setting_of_its_limit_and_examples_on_both_sides(clean: Path) -> None:
    steps = {s["step"]: s for s in card_of(clean)["steps"]}
    measures = steps["gopher-quality"]["measures"]
    assert measures["gopher_short_doc"]["settings"] == {"low": "min_doc_words", "high": None}
    assert measures["gopher_long_doc"]["settings"] == {"low": None, "high": "max_doc_words"}
    step = recipes.step_class("gopher-quality")()
    for rule, limit in (("gopher_short_doc", 51), ("gopher_short", 50)):
        assert recipes.setting_of(step, rule, "low", limit) is None
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
    flow = record.take("a-step", Flow.of(batch), outcome)
    assert flow.batch.ids == ["d1"], "what has no value passes"
    assert [r["value"] for r in record.removed] == ["inf", 5.25, 7]
    text = json.dumps([record.removed, record.facts()], allow_nan=False)
    assert [v for _, v in json.loads(text)[1]["steps"]["a-step"]["measures"]["high"]["sample"]]


def facts_of(order: Sequence[int], cuts: int, values: NDArray[np.float64]) -> dict[str, Any]:
    """What the card says of a measure, of documents in an order and in so many shards."""
    shards = []
    for rows in np.array_split(np.array(order), cuts):
        record = Record(["a-step"])
        for numbers in np.array_split(rows, 2):
            names = [f"raw.txt:{n}" for n in numbers]
            batch = CurationBatch(np.arange(len(numbers)), names, [f"text {n}" for n in numbers])
            measure = RuleMeasure("range", values[numbers], low=3.0, high=90.0)
            record.take("a-step", Flow.of(batch), Outcome(measures=[measure]))
        shards.append(record.facts()["steps"]["a-step"])
    return _step_facts("a-step", shards)


def test_examples_and_samples_do_not_depend_on_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (segment, card_module):
        monkeypatch.setattr(module, "SAMPLE", 20)
    generator = np.random.default_rng(1)
    values = np.round(generator.uniform(0, 100, 400))
    values[generator.choice(400, 60, replace=False)] = math.nan
    whole = facts_of(range(400), 1, values)
    measure = whole["measures"]["range"]
    assert len(measure["sample"]) == 20 and len(measure["border"]) >= 12
    for cuts in (2, 7):
        assert facts_of(range(400), cuts, values) == whole
        assert facts_of(generator.permutation(400).tolist(), cuts, values) == whole
    # The control: other values give another card.
    assert facts_of(range(400), 1, values + 1) != whole
