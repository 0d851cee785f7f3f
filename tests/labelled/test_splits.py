"""Divisions that come out the same for ever, tear nothing apart, and nest; and few labels."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from labelled.tables import refusal, sentence, table_of, understood
from maskwright.base.errors import ConfigError, DataError, UsageError
from maskwright.text.tables import splits
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.splits import SplitOptions
from maskwright.text.tables.survey import survey

TEXTS = [sentence(n) for n in range(600)]
CLASSES = [n % 3 if n < 570 else 3 for n in range(600)]
ALIKE = [0] * 600
TENTHS = SplitOptions(validation=0.1, test=0.2, seed=4)


def parts_of(texts: list[str], classes: list[int], division: SplitOptions) -> dict[str, str]:
    """Text -> its part."""
    found = splits.split_rows(texts, classes, division)
    return {texts[i]: part for part, places in found.items() for i in places}


def test_a_division_does_not_depend_on_the_order_of_rows() -> None:
    before = parts_of(TEXTS, CLASSES, TENTHS)
    order = list(range(600))
    random.Random(1).shuffle(order)
    after = parts_of([TEXTS[i] for i in order], [CLASSES[i] for i in order], TENTHS)
    assert before == after and len(before) == 600


def test_golden_division() -> None:
    """Frozen: a change here gives users other test rows under the same seed."""
    found = splits.split_rows(TEXTS[:30], ALIKE[:30], SplitOptions(validation=0.2, seed=0))
    assert found["validation"] == [0, 6, 12, 14, 19, 27]


def test_rows_added_do_not_move_the_others() -> None:
    more = [sentence(n) for n in range(1000, 1040)]
    before = parts_of(TEXTS, ALIKE, TENTHS)
    after = parts_of(TEXTS + more, ALIKE + [0] * 40, TENTHS)
    assert sum(before[t] != after[t] for t in TEXTS) <= 2 * len(more)
    # One row at a time moves at most one other at each of the two borders.
    before = parts_of(TEXTS, ALIKE, TENTHS)
    for text in more[:10]:
        after = parts_of([*TEXTS, text], [*ALIKE, 0], TENTHS)
        assert sum(before[t] != after[t] for t in TEXTS) <= 2


def test_each_class_gives_its_share() -> None:
    found = splits.split_rows(TEXTS, CLASSES, TENTHS)
    for part, share in (("validation", 0.1), ("test", 0.2), ("train", 0.7)):
        counts = Counter(CLASSES[i] for i in found[part])
        for name, size in Counter(CLASSES).items():
            assert abs(counts[name] - share * size) < (2 if part == "train" else 1)


def test_small_classes_give_their_share_on_average() -> None:
    classes = [n // 3 for n in range(600)]  # 200 classes of three
    found = splits.split_rows(TEXTS, classes, SplitOptions(validation=0.2))
    assert 90 < len(found["validation"]) < 150
    assert {classes[i] for i in found["train"]} == set(classes)


def test_duplicates_and_groups_stay_together() -> None:
    texts = [*TEXTS[:200], *(t.upper() + "  " for t in TEXTS[:200])]
    found = splits.split_rows(texts, [0] * 400, TENTHS)
    place = {i: part for part, places in found.items() for i in places}
    assert all(place[i] == place[i + 200] for i in range(200))
    groups = [f"group {i // 10}" for i in range(400)]
    found = splits.split_rows(texts, [0] * 400, TENTHS, groups)
    place = {i: part for part, places in found.items() for i in places}
    assert all(place[i] == place[i - i % 10] for i in range(400))
    assert all(place[i] == place[i + 200] for i in range(200))


def test_what_cannot_be_divided() -> None:
    most = SplitOptions(validation=0.4, test=0.4)
    error = refusal(DataError, lambda: splits.split_rows(["a", "b", "A "], [0, 0, 0], most))
    error = refusal(ConfigError, lambda: SplitOptions(validation=1.5))
    assert error.where == "validation"
    error = refusal(ConfigError, lambda: SplitOptions(validation=0.6, test=0.5))
    assert error.found == "0.6 and 0.5"
    error = refusal(
        DataError, lambda: splits.split_rows(["a", "b"], [0, 1], SplitOptions(validation=0.1))
    )


def test_labels_that_stand_in_one_row_each_may_be_ids() -> None:
    texts = [f"text {n}" for n in range(30)]
    half = SplitOptions(validation=0.1, test=0.1)
    error = refusal(DataError, lambda: splits.split_rows(texts, list(range(30)), half))
    assert error.what.endswith("30 labels for 30 rows")
    assert "--column label=" in str(error.do)
    same = refusal(DataError, lambda: splits.split_rows(["a", "A "], [0, 0], half))
    assert "labels for" not in same.what and "--column" not in str(same.do)


# ------------------------------------------------------------------------------ few labels
@pytest.mark.parametrize("balanced", [False, True])
def test_few_labels_are_nested(balanced: bool) -> None:
    drawn = {
        n: splits.draw_rows(TEXTS, CLASSES, n, seed=2, balanced=balanced) for n in (50, 200, 600)
    }
    assert drawn[200][:50] == drawn[50] and drawn[600][:200] == drawn[200]
    assert sorted(drawn[600]) == list(range(600))
    counts = Counter(CLASSES[i] for i in drawn[50])
    sizes = Counter(CLASSES)
    for name in range(4):
        ideal = 12.5 if balanced else 50 * sizes[name] / 600
        assert abs(counts[name] - ideal) <= 1.5
    assert drawn[50] != splits.draw_rows(TEXTS, CLASSES, 50, seed=3, balanced=balanced)


def test_few_labels_do_not_depend_on_the_order_of_rows() -> None:
    order = list(range(600))
    random.Random(3).shuffle(order)
    one = splits.draw_rows(TEXTS, CLASSES, 60)
    other = splits.draw_rows([TEXTS[i] for i in order], [CLASSES[i] for i in order], 60)
    assert [TEXTS[i] for i in one] == [TEXTS[order[i]] for i in other]


def test_few_labels_take_copies_last() -> None:
    texts = TEXTS[:20] + TEXTS[:20]
    assert {texts[i] for i in splits.draw_rows(texts, [0] * 40, 20)} == set(TEXTS[:20])


@pytest.mark.parametrize("count", [0, 601])
def test_as_many_labels_as_there_are(count: int) -> None:
    error = refusal(UsageError, lambda: splits.draw_rows(TEXTS, CLASSES, count))
    assert error.wanted == "1 to 600" and error.found == str(count)


# ------------------------------------------------------------------------------ whole tables
def rows(count: int, start: int = 0) -> list[dict[str, object]]:
    return [{"text": sentence(n), "label": n % 2} for n in range(start, start + count)]


def test_missing_parts_are_drawn() -> None:
    made = splits.split_dataset(understood(table_of(*rows(200)))[1], SplitOptions(test=0.25))
    assert {part: len(some) for part, some in made.parts.items()} == {
        "train": 130,
        "validation": 20,
        "test": 50,
    }
    table = table_of(train=rows(100), test=rows(10, 500))
    made = splits.split_dataset(understood(table)[1], SplitOptions(test=0.25))
    assert list(made.parts) == ["train", "validation", "test"]
    assert [len(some) for some in made.parts.values()] == [90, 10, 10]
    made = splits.split_dataset(understood(table_of(train=rows(100)))[1], SplitOptions(test=0.2))
    assert [len(some) for some in made.parts.values()] == [70, 10, 20]
    whole = understood(table_of(train=rows(20), validation=rows(4, 50), test=rows(4, 90)))[1]
    assert splits.split_dataset(whole).parts == whole.parts


def test_groups_stay_whole_and_follow_their_rows() -> None:
    made = [{**row, "author": f"author {n % 25}"} for n, row in enumerate(rows(200))]
    table = table_of(*made)
    task = infer(table, {"group": "author"})
    assert task.columns["group"] == "author" and task.columns["label"] == "label"
    whole = build(table, task)
    parts = splits.split_dataset(whole, SplitOptions(validation=0.2))
    train, validation = (set(parts.groups[part]) for part in ("train", "validation"))
    assert not train & validation and len(train | validation) == 25
    assert [len(parts.groups[p]) for p in parts.parts] == [len(e) for e in parts.parts.values()]
    few = splits.draw_examples(parts, 12)
    assert len(few.parts["train"]) == len(few.groups["train"]) == 12
    assert few.parts["validation"] == parts.parts["validation"]


def test_rows_of_several_labels_give_their_share() -> None:
    """Hardly two rows have all labels in common; each label is in all parts all the same."""
    draw = random.Random(0)
    several = [
        tuple(n for n in range(20) if draw.random() < 0.15 or n == place % 20)
        for place in range(1000)
    ]
    rows = [
        {"text": sentence(n), "label": [f"l{k}" for k in some]} for n, some in enumerate(several)
    ]
    made = build(table := table_of(*rows), infer(table))
    parts = splits.split_dataset(made, SplitOptions(validation=0.1, test=0.1)).parts
    assert len(set(several)) > 800, "the control: nearly all of them differ"
    for part in ("validation", "test"):
        assert 85 <= len(parts[part]) <= 115
        held = Counter(label for row in parts[part] for label in row.label)
        assert len(held) == 20
        mean = sum(held.values()) / len(parts[part])
        assert mean == pytest.approx(sum(map(len, several)) / 1000, rel=0.1)


def test_no_class_leaves_train_with_its_copies() -> None:
    texts = [*TEXTS[:40], "twice", "twice"]
    for seed in range(50):
        found = splits.split_rows(texts, [0] * 40 + [1, 1], SplitOptions(validation=0.4, seed=seed))
        assert {40, 41} <= set(found["train"])


def test_rows_of_no_group_are_by_themselves() -> None:
    groups = ["" if n % 2 else f"g{n // 4}" for n in range(600)]
    found = splits.split_rows(TEXTS, ALIKE, TENTHS, groups)
    alone = sum(not groups[i] for i in found["test"])
    assert 30 <= alone <= 90
    rows = [
        {"text": sentence(n), "label": "ab"[n % 2], "group": None if n % 2 else f"g{n}"}
        for n in range(8)
    ]
    made = build(table := table_of(*rows), infer(table, {"group": "group"}))
    assert made.groups["all"][:3] == ["g0", "", "g2"]


# ------------------------------------------------------------------------------ shared texts
def pairs(count: int, first: int, second: int, names: str = "premise hypothesis") -> list[Any]:
    """Pairs of which `first` rows have one first text, and `second` one second text."""
    one, other = names.split()
    return [
        {
            one: f"the premise number {n // first} is here",
            other: f"a claim {(n * 7 % count) // second} is this",
            "label": "xyz"[n % 3],
        }
        for n in range(count)
    ]


def divided(rows: list[Any], columns: dict[str, str] | None = None) -> Dataset:
    table = table_of(*rows)
    return splits.split_dataset(
        build(table, infer(table, columns)), SplitOptions(validation=0.1, test=0.1)
    )


def shared(examples: Dataset, role: str) -> set[str]:
    """The texts that test has in common with train."""
    train, test = ({getattr(e, role) for e in examples.parts[p]} for p in ("train", "test"))
    return train & test


@pytest.mark.parametrize("names", ["premise hypothesis", "sentence1 sentence2", "question passage"])
def test_pairs_that_share_a_text_stay_together(names: str) -> None:
    made = divided(pairs(300, first=3, second=1, names=names))
    assert made.together == "first" and not shared(made, "first")
    assert [len(rows) for rows in made.parts.values()] == [240, 30, 30]
    assert not [note for note in list(map(str, survey(made).findings)) if "share" in note]
    made = divided(pairs(300, first=1, second=4, names=names))
    assert made.together == "second" and not shared(made, "second")
    # Both come back: what most rows share is kept together, and the other is told.
    made = divided(pairs(300, first=2, second=3, names=names))
    assert made.together == "first" and not shared(made, "first") and shared(made, "second")
    assert any(
        f"group={names.split()[1]}" in note for note in list(map(str, survey(made).findings))
    )


def test_pairs_that_share_nothing_are_divided_as_ever() -> None:
    made = divided(pairs(300, first=1, second=1))
    assert made.together == ""
    rows = made.parts["train"] + made.parts["validation"] + made.parts["test"]
    assert len(rows) == 300 and not [
        n for n in list(map(str, survey(made).findings)) if "share" in n
    ]
    # A few premises that many rows share would leave nothing to divide.
    few = divided(pairs(300, first=60, second=1))
    assert few.together == "" and shared(few, "first")
    assert any("group=premise" in note for note in list(map(str, survey(few).findings)))
    kept = divided(pairs(300, first=30, second=1), {"group": "premise"})
    assert not shared(kept, "first")
    # Of a ranking, a query without all of its texts has another score.
    rows = [{**row, "label": n % 2} for n, row in enumerate(pairs(300, first=60, second=1))]
    queries = build(table := table_of(*rows), infer(table, task="ranking"))
    assert not shared(splits.split_dataset(queries, SplitOptions(test=0.1)), "first")
    queries.parts["train"] = queries.parts.pop("all")
    folds = splits.fold_rows(queries, 3)
    assert sorted(len(rows) for rows in folds) == [60, 120, 120]


def test_aspects_are_no_texts_to_be_shared() -> None:
    rows = [
        {
            "sentence1": f"a long text number {n} here",
            "sentence2": ["food", "staff"][n % 2],
            "label": n % 2,
        }
        for n in range(100)
    ]
    made = divided(rows)
    assert made.together == "" and not [
        n for n in list(map(str, survey(made).findings)) if "share" in n
    ]


@pytest.mark.parametrize("name", ["sentence1", "sentence2"])
def test_a_column_that_groups_keeps_its_role(name: str) -> None:
    rows = pairs(90, first=3, second=3, names="sentence1 sentence2")
    task = infer(table_of(*rows), {"group": name})
    assert task.name == "pair-classification"
    assert task.columns["first"] == "sentence1" and task.columns["second"] == "sentence2"
    assert task.columns["group"] == name
    refusal(UsageError, lambda: infer(table_of(*rows), {"group": "label"}))
    made = [
        {"headline": f"the news {n // 3}", "satz": sentence(n), "label": n % 2} for n in range(90)
    ]
    assert infer(table_of(*made), {"group": "headline"}).columns["text"] == "satz", "the control"


def test_choices_about_one_passage_stay_together() -> None:
    rows = [
        {
            "context": f"the passage {n // 4} is long",
            "question": f"what is {n} of it",
            "choices": ["a", "b"],
            "label": n % 2,
        }
        for n in range(200)
    ]
    made = divided(rows)
    assert made.together == "context" and not shared(made, "context")


def test_a_column_of_what_rows_have_in_common_is_told() -> None:
    def noted(each: int, **columns: str) -> list[str]:
        rows = [
            {"text": sentence(n), "label": n % 2, "url": f"http://a.b/{n // each}"}
            for n in range(100)
        ]
        return [
            n for n in list(map(str, survey(divided(rows, columns)).findings)) if "group=url" in n
        ]

    assert len(noted(4)) == 1
    assert noted(1) == [] and noted(4, group="url") == [], "the controls"
