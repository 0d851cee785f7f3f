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


def folds_of(data, num_folds=5, seed=0):
    return fold_rows(divide(data, num_folds), num_folds, seed)


def test_each_row_is_in_one_fold_and_classes_are_spread_evenly() -> None:
    labels = [0] * 50 + [1] * 23 + [2] * 5
    folds = folds_of(dataset(labels))
    assert sorted(i for fold in folds for i in fold) == list(range(78))
    for cls, low, high in ((0, 10, 10), (1, 4, 5), (2, 1, 1)):
        counts = [sum(labels[i] == cls for i in fold) for fold in folds]
        assert low <= min(counts) and max(counts) <= high
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert folds_of(dataset(labels), seed=1) != folds == folds_of(dataset(labels))


def test_folds_do_not_depend_on_the_order_of_rows() -> None:
    labels = [n % 3 for n in range(40)]
    order = np.random.default_rng(0).permutation(40)
    shuffled = dataset([labels[i] for i in order], [f"text {i}" for i in order])
    folds = [sorted(int(order[i]) for i in fold) for fold in folds_of(shuffled)]
    assert sorted(folds) == sorted(folds_of(dataset(labels)))


@pytest.mark.parametrize("by", ["group", "text"])
def test_groups_and_equal_texts_are_in_one_fold(by: str) -> None:
    names = [f"name {n // 3}" for n in range(60)]
    given = {"groups": names} if by == "group" else {"texts": names}
    labels = [n % 2 for n in range(60)]
    owner = {
        i: number for number, fold in enumerate(folds_of(dataset(labels, **given))) for i in fold
    }
    assert all(len({owner[i] for i in range(n, n + 3)}) == 1 for n in range(0, 60, 3))
    free = {i: number for number, fold in enumerate(folds_of(dataset(labels))) for i in fold}
    assert any(len({free[i] for i in range(n, n + 3)}) > 1 for n in range(0, 60, 3))  # control


def test_several_labels_and_numbers_are_spread() -> None:
    label_sets = [(0, 1), (0,), (1, 2), (), (0, 2), (1,)] * 10
    folds = folds_of(dataset(label_sets, task="multi-label"))
    for label in range(3):
        counts = [sum(label in label_sets[i] for i in fold) for fold in folds]
        assert max(counts) - min(counts) <= 1
    numbers = [float(n) for n in range(100)]
    means = [np.mean(fold) for fold in folds_of(dataset(numbers, task="regression"))]
    assert max(means) - min(means) < 8  # random folds: a standard error of 6.5 each


def test_the_only_row_of_a_class_is_never_held_out() -> None:
    folds = folds_of(dataset([0] * 12 + [1] * 12 + [2]))
    assert 24 not in {i for fold in folds for i in fold}
    two = folds_of(dataset([0] * 12 + [1] * 12 + [2] * 2))  # control: each can be held out
    assert Counter(i for fold in two for i in fold) == Counter(range(26))


def test_folds_without_rows_are_left_out_or_refused() -> None:
    folds = folds_of(dataset([0, 0, 1, 1, *range(2, 20)]))
    assert [len(fold) for fold in folds if not fold] == [] and 2 <= len(folds) < 5
    with pytest.raises(DataError) as error:
        folds_of(dataset(list(range(20))))
    assert error.value.where == "--folds"


def test_fewer_rows_than_folds_are_refused() -> None:
    with pytest.raises(DataError) as error:
        folds_of(dataset([0, 1, 0, 1], ["a", "b", "a", "b"]), 3)
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
