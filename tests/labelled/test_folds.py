"""Folds of a cross-validation: disjoint, stratified, and groups in one piece."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from maskwright.base.errors import DataError, UsageError
from maskwright.learn.finetune.cross_validation import divide, is_cross_validated
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Task
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION, TextExample
from maskwright.text.tables.shapes import shape_of
from maskwright.text.tables.splits import fold_rows


def dataset(labels, texts=None, groups=None, task="classification", **parts):
    """A dataset of rows with these labels as the part `all`, and as many rows in other parts."""
    shape = shape_of(task)
    columns = Columns(shape.layout, {"text": ("text",), "label": ("label",)}, {}, {})
    texts = texts or [f"text {n}" for n in range(len(labels))]
    rows = [TextExample(t, y, f"f:{n}") for n, (t, y) in enumerate(zip(texts, labels, strict=True))]
    classes = {c for y in labels for c in (y if isinstance(y, tuple) else (y,))}
    names = tuple(f"c{c}" for c in sorted(classes))
    vocabulary = None if task == "regression" else LabelVocabulary(names, names, "label")
    others = {
        p: [TextExample(f"{p} {n}", labels[0], "") for n in range(k)] for p, k in parts.items()
    }
    source = TRAIN if parts else ALL
    kept = {} if groups is None else {source: groups}
    return Dataset(Task(shape, "", columns), {source: rows, **others}, vocabulary, groups=kept)


def folds_of(labels, num_folds=5, seed=0, **kinds):
    return fold_rows(divide(dataset(labels, **kinds), num_folds), num_folds, seed)


def test_each_row_is_in_one_fold_and_classes_are_spread_evenly() -> None:
    labels = [0] * 50 + [1] * 23 + [2] * 5
    folds = folds_of(labels)
    assert sorted(i for fold in folds for i in fold) == list(range(78))
    for cls, low, high in ((0, 10, 10), (1, 4, 5), (2, 1, 1)):
        counts = [sum(labels[i] == cls for i in fold) for fold in folds]
        assert low <= min(counts) and max(counts) <= high
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert folds_of(labels, seed=1) != folds == folds_of(labels)


def test_folds_do_not_depend_on_the_order_of_rows() -> None:
    labels = [n % 3 for n in range(40)]
    order = np.random.default_rng(0).permutation(40)
    shuffled = folds_of([labels[i] for i in order], texts=[f"text {i}" for i in order])
    assert sorted(sorted(order[fold]) for fold in shuffled) == sorted(map(sorted, folds_of(labels)))


@pytest.mark.parametrize("by", ["groups", "texts"])
def test_groups_and_equal_texts_are_in_one_fold(by: str) -> None:
    def torn(**kinds: list[str]) -> int:
        """How many of 20 groups are in several folds."""
        folds = folds_of([n % 2 for n in range(60)], **kinds)
        fold_of = {i: number for number, fold in enumerate(folds) for i in fold}
        return sum(len({fold_of[i] for i in range(n, n + 3)}) > 1 for n in range(0, 60, 3))

    assert torn(**{by: [f"name {n // 3}" for n in range(60)]}) == 0
    assert torn() > 0, "the control"


def test_several_labels_and_numbers_are_spread() -> None:
    label_sets = [(0, 1), (0,), (1, 2), (), (0, 2), (1,)] * 10
    folds = folds_of(label_sets, task="multi-label")
    for label in range(3):
        counts = [sum(label in label_sets[i] for i in fold) for fold in folds]
        assert max(counts) - min(counts) <= 1
    folds = folds_of([float(n) for n in range(100)], task="regression")
    assert np.ptp([np.mean(fold) for fold in folds]) < 8  # random: a standard error of 6.5 each


def test_the_only_row_of_a_class_is_never_held_out() -> None:
    for rare, held_out in ((1, 24), (2, 26)):  # the control: of two rows each can be held out
        folds = folds_of([0] * 12 + [1] * 12 + [2] * rare)
        assert Counter(i for fold in folds for i in fold) == Counter(range(held_out))


def test_folds_without_rows_are_left_out() -> None:
    folds = folds_of([0, 0, 1, 1, *range(2, 20)])
    assert all(folds) and 2 <= len(folds) < 5


@pytest.mark.parametrize(
    ("labels", "texts", "num_folds"), [([*range(20)], None, 5), ([0, 1, 0, 1], [*"abab"], 3)]
)
def test_fewer_rows_than_folds_are_refused(labels, texts, num_folds) -> None:
    with pytest.raises(DataError) as error:
        folds_of(labels, num_folds, texts=texts)
    assert error.value.where == "--folds"


def test_what_is_divided_and_what_is_cross_validated() -> None:
    few, many = [0, 1] * 60, [0, 1] * 500
    assert is_cross_validated(divide(dataset(few)))
    assert set(divide(dataset(few), 0).parts) == {TRAIN, VALIDATION, TEST}
    assert set(divide(dataset(many)).parts) == {TRAIN, VALIDATION, TEST}
    assert is_cross_validated(divide(dataset(many), 10))
    # Parts of files stay; a validation part of fewer than 20 rows is not drawn.
    tested = divide(dataset(few, test=30))
    assert {part: len(rows) for part, rows in tested.parts.items()} == {TRAIN: 120, TEST: 30}
    assert set(divide(dataset([0, 1] * 150, test=30)).parts) == {TRAIN, VALIDATION, TEST}
    assert divide(dataset(few, validation=9, test=30)).sampled == ()
    with pytest.raises(UsageError) as error:
        divide(dataset(few, test=30), 5)
    assert error.value.where == "--folds"
    questions = replace(dataset(few), task=replace(dataset(few).task, shape=shape_of("matching")))
    with pytest.raises(UsageError):
        divide(questions, 5)
