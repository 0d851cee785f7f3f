"""The survey counts what was planted, and finds what a user should know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labelled.tables import loaded, sentence, table_of, understood, write, write_rows
from maskwright.base.report import document
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.survey import Survey, survey


def rows(count: int, start: int = 0, classes: int = 2) -> list[dict[str, Any]]:
    return [
        {"text": sentence(n), "label": "abcdef"[n % classes]} for n in range(start, start + count)
    ]


def of(*some: dict[str, Any], **parts: Any) -> Survey:
    return survey(understood(table_of(*some, **parts))[1])


def said(found: Survey, words: str) -> str:
    (sentence_,) = [w for w in map(str, found.findings) if words in w]
    return sentence_


def test_clean_data_give_counts_and_no_warnings() -> None:
    found = of(train=rows(40), validation=rows(10, 100), test=rows(20, 200))
    assert found.task == "classification" and found.findings == [] and found.leaks == []
    assert {name: p.rows for name, p in found.parts.items()} == {
        "train": 40,
        "validation": 10,
        "test": 20,
    }
    assert found.parts["train"].classes == {"a": 20, "b": 20}
    words = found.parts["train"].words
    assert words.longest == 10 and words.mean == words.median == words.high == 10


def test_F67_planted_leaks_are_counted() -> None:
    train, test = rows(40), rows(20, 100)
    test[3] = {"text": f"  {train[7]['text'].upper()}\n", "label": train[7]["label"]}
    test[9] = {**train[11], "label": "a"}
    found = of(train=train, test=test)
    (leak,) = found.leaks
    assert (leak.part, leak.other, leak.rows, leak.relabelled) == ("test", "train", 2, 1)
    assert leak.places[0] == ("test.jsonl, line 4", "train.jsonl, line 8")
    (planted,) = [each for each in found.findings if each.name == "rows-in-two-parts"]
    assert planted.evidence == "the first: test.jsonl, line 4 and train.jsonl, line 8"


def test_pairs_that_are_nearly_the_same_are_leaks_too(tmp_path: Path) -> None:
    """A pair the other way round, and texts that belong together beside another that does not."""
    pairs = [
        {"sentence1": sentence(n), "sentence2": sentence(500 + n), "score": n / 40}
        for n in range(40)
    ]
    turned = [
        {**row, "sentence1": row["sentence2"], "sentence2": row["sentence1"]} for row in pairs[:7]
    ]
    other = [{**row, "sentence1": sentence(900 + n)} for n, row in enumerate(pairs[:3])]
    found = of(train=pairs, test=[*turned, *other])
    assert [leak.rows for leak in found.leaks] == [7]
    triples = [
        {"anchor": sentence(n), "positive": f"answer {n}", "negative": f"wrong {n} {k}"}
        for n in range(30)
        for k in range(3)
    ]
    parts = {"train": triples[:84:2], "test": [triples[1], triples[89]]}
    assert [leak.rows for leak in of(**parts).leaks] == [1]
    drawn = prepare(write_rows(tmp_path / "triples.jsonl", triples)).parts
    homes: dict[str, set[str]] = {}
    for part, some in drawn.items():
        for row in some:
            homes.setdefault(row.anchor, set()).add(part)
    assert len(drawn) > 1 and {len(each) for each in homes.values()} == {1}


def test_duplicates_with_equal_and_with_other_labels() -> None:
    train = rows(40)
    train += [train[0], train[0], {**train[1], "label": "a"}, {**train[2], "label": "b"}, train[3]]
    part = of(train=train, test=rows(4, 100)).parts["train"]
    assert part.copies == 3 and len(part.contradictions) == 2
    assert part.contradictions[0] == ("train.jsonl, line 2", "train.jsonl, line 43")


def test_classes_that_cannot_be_learned_or_scored() -> None:
    odd = [{"text": sentence(500 + n), "label": "c"} for n in range(3)]
    found = of(train=rows(400) + odd, test=rows(10, 1000))
    assert {"rare-classes", "class-not-scored"} <= {finding.name for finding in found.findings}
    assert "200 of 'a' and 3 of 'c'" in said(found, "uneven")
    same = [{"text": sentence(n), "label": "a"} for n in range(1000, 1004)]
    found = of(train=rows(40), validation=same)
    assert "same-answer" in {each.name for each in found.findings}


def test_a_misspelt_class_is_pointed_at() -> None:
    train = [{"text": sentence(n), "label": ["positive", "negative"][n % 2]} for n in range(600)]
    train[17]["label"] = "negatve"
    found = of(train=train, test=[{**train[0], "text": "x y"}, {**train[1], "text": "y z"}])
    assert said(found, "misspelt") == "'negatve' (1 row) may be 'negative' (299 rows) misspelt"


def test_labels_that_nobody_may_have_given(tmp_path: Path) -> None:
    labels = ("a|b", "", "b", "a", " ")
    lines = "".join(f"{sentence(n)},{labels[n % 5]}\n" for n in range(50))
    found = survey(loaded(write(tmp_path / "several.csv", f"text,labels\n{lines}")))
    assert "empty-labels" in {finding.name for finding in found.findings}
    labels = ("yes", "no", "NA", "None", "none")
    lines = "".join(f"{sentence(n)},{labels[n % 5] if n % 5 < 4 else 'no'}\n" for n in range(50))
    found = survey(loaded(write(tmp_path / "one.csv", f"text,label\n{lines}")))
    told = [w for w in map(str, found.findings) if "the name of a class" in w]
    assert len(told) == 2 and told[0].startswith("'NA' (10 rows)"), told
    emptied = write(tmp_path / "one.csv", f"text,label\n{lines.replace('NA', '')}")
    left = loaded(emptied, reading=ReadingOptions(on_bad="skip", max_bad_fraction=0.3))
    assert left.labels is not None and left.labels.names == ("no", "None", "yes")


def test_numbers_and_pairs() -> None:
    pairs = [{"sentence1": "one two", "sentence2": sentence(n), "score": n / 9} for n in range(30)]
    found = of(*pairs)
    assert found.task == "similarity" and found.parts["all"].classes == {}
    assert found.parts["all"].values == pytest.approx((0.0, 29 / 18, 29 / 9))
    assert found.parts["all"].words.longest == 12


def test_tables_are_those_of_the_report() -> None:
    found = of(train=rows(40), test=rows(8, 100))
    first, second = found.tables()
    assert first["rows"][0][:2] == ["train", "40"]
    assert second["rows"] == [["a", "20 (50.0%)", "4 (50.0%)"], ["b", "20 (50.0%)", "4 (50.0%)"]]
    for table in (first, second):
        assert all(len(row) == len(table["head"]) for row in table["rows"])
        assert table["title"] in document.for_terminal(table)
