"""Divisions that come out the same for ever, tear nothing apart, and nest; and few labels."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from labelled.tables import findings, refusal, sentence, sizes, table_of, understood
from maskwright.base.errors import DataError, UsageError
from maskwright.text.tables import splits
from maskwright.text.tables.infer import infer
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import build
from maskwright.text.tables.splits import SplitOptions

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
    texts, classes = [TEXTS[i] for i in order], [CLASSES[i] for i in order]
    assert before == parts_of(texts, classes, TENTHS) and len(before) == 600
    few, other = splits.draw_rows(TEXTS, CLASSES, 60), splits.draw_rows(texts, classes, 60)
    assert [TEXTS[i] for i in few] == [texts[i] for i in other]


def test_golden_division() -> None:
    """Frozen: a change here gives users other test rows under the same seed."""
    found = splits.split_rows(TEXTS[:30], ALIKE[:30], SplitOptions(validation=0.2, seed=0))
    assert found["validation"] == [0, 6, 12, 14, 19, 27]


def test_rows_added_do_not_move_the_others() -> None:
    more = [sentence(n) for n in range(1000, 1040)]
    before = parts_of(TEXTS, ALIKE, TENTHS)
    # One row at a time moves at most one other at each of the two borders.
    for added in (more, *([text] for text in more[:10])):
        after = parts_of(TEXTS + added, ALIKE + [0] * len(added), TENTHS)
        assert sum(before[t] != after[t] for t in TEXTS) <= 2 * len(added)


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
    for groups in (None, [f"group {i // 10}" for i in range(400)]):
        parts = splits.split_rows(texts, [0] * 400, TENTHS, groups)
        part_of = {i: part for part, places in parts.items() for i in places}
        assert all(part_of[i] == part_of[i + 200] for i in range(200))
        assert groups is None or all(part_of[i] == part_of[i - i % 10] for i in range(400))


def test_what_cannot_be_divided() -> None:
    most, tenth = SplitOptions(validation=0.4, test=0.4), SplitOptions(validation=0.1)
    refusal(DataError, lambda: splits.split_rows(["a", "b", "A "], [0, 0, 0], most))
    refusal(DataError, lambda: splits.split_rows(["a", "b"], [0, 1], tenth))


def test_labels_that_stand_in_one_row_each_may_be_ids() -> None:
    texts = [f"text {n}" for n in range(30)]
    half = SplitOptions(validation=0.1, test=0.1)
    error = refusal(DataError, lambda: splits.split_rows(texts, list(range(30)), half))
    assert error.what.endswith("30 labels for 30 rows")
    assert "--column label=" in str(error.do)
    same = refusal(DataError, lambda: splits.split_rows(["a", "A "], [0, 0], half))
    assert "labels for" not in same.what and "--column" not in str(same.do)


# ------------------------------------------------------------------------------ few labels
def test_few_labels_are_nested() -> None:
    def draw(count: int, seed: int = 2) -> list[int]:
        return splits.draw_rows(TEXTS, CLASSES, count, seed=seed)

    assert draw(200)[:50] == draw(50) and draw(600)[:200] == draw(200)
    assert sorted(draw(600)) == list(range(600))
    counts, sizes = Counter(CLASSES[i] for i in draw(50)), Counter(CLASSES)
    for name in range(4):
        assert abs(counts[name] - 50 * sizes[name] / 600) <= 1.5
    assert draw(50) != draw(50, seed=3)


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


@pytest.mark.parametrize(
    ("parts", "test", "drawn"),
    [
        ({"all": rows(200)}, 0.25, {"train": 130, "validation": 20, "test": 50}),
        ({"train": rows(100)}, 0.2, {"train": 70, "validation": 10, "test": 20}),
        (
            {"train": rows(100), "test": rows(10, 500)},
            0.25,
            {"train": 90, "validation": 10, "test": 10},
        ),
        (
            {"train": rows(20), "validation": rows(4, 50), "test": rows(4, 90)},
            0.2,
            {"train": 20, "validation": 4, "test": 4},
        ),
    ],
)
def test_missing_parts_are_drawn(parts: Any, test: float, drawn: dict[str, int]) -> None:
    made = splits.split_dataset(understood(table_of(**parts))[1], SplitOptions(test=test))
    assert sizes(made) == drawn and list(made.parts) == list(drawn)


def test_groups_stay_whole_and_follow_their_rows() -> None:
    table = table_of(*({**row, "author": f"author {n % 25}"} for n, row in enumerate(rows(200))))
    task = infer(table, {"group": "author"})
    assert task.columns["group"] == "author" and task.columns["label"] == "label"
    made = splits.split_dataset(build(table, task), SplitOptions(validation=0.2))
    train, validation = (set(made.groups[part]) for part in ("train", "validation"))
    assert not train & validation and len(train | validation) == 25
    assert {part: len(groups) for part, groups in made.groups.items()} == sizes(made)
    few = splits.draw_examples(made, 12)
    assert len(few.parts["train"]) == len(few.groups["train"]) == 12
    assert few.parts["validation"] == made.parts["validation"]


def test_rows_of_several_labels_give_their_share() -> None:
    """Hardly two rows have all labels in common; each label is in all parts all the same."""
    draw = random.Random(0)
    several = [
        tuple(k for k in range(20) if draw.random() < 0.15 or k == n % 20) for n in range(1000)
    ]
    assert len(set(several)) > 800, "the control: nearly all of them differ"
    table = [{"text": sentence(n), "label": [f"l{k}" for k in s]} for n, s in enumerate(several)]
    parts = divided(table).parts
    for part in ("validation", "test"):
        assert 85 <= len(parts[part]) <= 115
        counts = Counter(label for row in parts[part] for label in row.label)
        mean = counts.total() / len(parts[part])
        assert len(counts) == 20
        assert mean == pytest.approx(sum(map(len, several)) / 1000, rel=0.1)


def test_no_class_leaves_train_with_its_copies() -> None:
    texts = [*TEXTS[:40], "twice", "twice"]
    for seed in range(50):
        found = splits.split_rows(texts, [0] * 40 + [1, 1], SplitOptions(validation=0.4, seed=seed))
        assert {40, 41} <= set(found["train"])


def test_rows_of_no_group_are_by_themselves() -> None:
    groups = ["" if n % 2 else f"g{n // 4}" for n in range(600)]
    alone = [i for i in splits.split_rows(TEXTS, ALIKE, TENTHS, groups)["test"] if not groups[i]]
    assert 30 <= len(alone) <= 90
    table = table_of(*({**row, "group": [f"g{n}", None][n % 2]} for n, row in enumerate(rows(8))))
    made = build(table, infer(table, {"group": "group"}))
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


def shares(examples: Dataset, words: str) -> list[str]:
    return [note for note in findings(examples) if words in note]


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
    assert sizes(made) == {"train": 240, "validation": 30, "test": 30}
    assert not shares(made, "share")
    made = divided(pairs(300, first=1, second=4, names=names))
    assert made.together == "second" and not shared(made, "second")
    # Both come back: what most rows share is kept together, and the other is told.
    made = divided(pairs(300, first=2, second=3, names=names))
    assert made.together == "first" and not shared(made, "first") and shared(made, "second")
    assert shares(made, f"group={names.split()[1]}")


@pytest.mark.parametrize("second", ["a text of its own", "an aspect"])
def test_pairs_that_share_no_texts_are_divided_as_ever(second: str) -> None:
    rows = pairs(100, first=1, second=1)
    if second == "an aspect":
        rows = [{**row, "hypothesis": ("food", "staff")[n % 2]} for n, row in enumerate(rows)]
    made = divided(rows)
    assert made.together == "" and sum(sizes(made).values()) == 100 and not shares(made, "share")


def test_a_few_texts_that_many_pairs_share_are_told() -> None:
    """To keep them together would leave nothing to divide."""
    few = divided(pairs(300, first=60, second=1))
    assert few.together == "" and shared(few, "first") and shares(few, "group=premise")
    kept = divided(pairs(300, first=30, second=1), {"group": "premise"})
    assert not shared(kept, "first")


def test_a_query_of_a_ranking_stays_with_all_of_its_texts() -> None:
    rows = [{**row, "label": n % 2} for n, row in enumerate(pairs(300, first=60, second=1))]
    queries = build(table := table_of(*rows), infer(table, task="ranking"))
    assert not shared(splits.split_dataset(queries, SplitOptions(test=0.1)), "first")
    queries.parts["train"] = queries.parts.pop("all")
    folds = splits.fold_rows(queries, 3)
    assert sorted(len(rows) for rows in folds) == [60, 120, 120]


@pytest.mark.parametrize("name", ["sentence1", "sentence2"])
def test_a_column_that_groups_keeps_its_role(name: str) -> None:
    table = table_of(*pairs(90, first=3, second=3, names="sentence1 sentence2"))
    task = infer(table, {"group": name})
    roles = {"first": "sentence1", "second": "sentence2", "group": name}
    assert task.name == "pair-classification"
    assert {role: task.columns[role] for role in roles} == roles
    refusal(UsageError, lambda: infer(table, {"group": "label"}))
    news = [{**row, "headline": f"the news {n // 3}"} for n, row in enumerate(rows(90))]
    assert infer(table_of(*news), {"group": "headline"}).columns["text"] == "text", "the control"


def test_choices_about_one_passage_stay_together() -> None:
    questions = [
        {"context": sentence(n // 4), "question": sentence(500 + n), "label": n % 2}
        for n in range(200)
    ]
    made = divided([{**row, "choices": ["a", "b"]} for row in questions])
    assert made.together == "context" and not shared(made, "context")


def test_a_column_of_what_rows_have_in_common_is_told() -> None:
    def noted(rows_of_each: int, **columns: str) -> list[str]:
        pages = [f"http://a.b/{n // rows_of_each}" for n in range(100)]
        made = [{**row, "url": page} for row, page in zip(rows(100), pages, strict=True)]
        return shares(divided(made, columns), "group=url")

    assert len(noted(4)) == 1
    assert noted(1) == [] and noted(4, group="url") == [], "the controls"
