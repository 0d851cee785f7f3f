"""Split a table into parts and sample few-label subsets, reproducibly by hashes of the texts.

The part of a row depends on the seed and a hash of its text (ignoring case and white space), not on
its position in the file. Rows may therefore be shuffled, and duplicates and groups always stay
together. Splits are stratified by class; an added row moves at most one other row per border.
Few-label subsets are nested: the 50 rows are among the 200, and these among the 1,000. Folds of
cross-validation are stratified by class, by each of several labels, or by quantiles of numbers.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError, Finding, UsageError
from maskwright.base.randomness import key, uniforms
from maskwright.base.terminal import counted
from maskwright.text.tables.columns import GROUPS
from maskwright.text.tables.labels import group_by_shared_keys
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import ALL, PARTS, TEST, TRAIN, VALIDATION, Example, folded, plain
from maskwright.text.tables.shapes import option

# A group has at most this share of the rows: otherwise too few units remain to sample from.
MOST = 0.1
# Texts with fewer words on average, such as the aspect of a review, cannot be memorised.
WORDS = 3


def texts_by_role(rows: Sequence[Example]) -> dict[str, list[str]]:
    """Return the folded texts that rows may share (one for each row) by role. Empty if a row has
    only one text: rows with equal texts stay in one part anyway."""
    texts_of_role: dict[str, list[str]] = {}
    for role in rows[0].shared_texts if rows else ():
        texts = [folded(row.shared_texts[role]) for row in rows]
        if any(texts):
            texts_of_role[role] = texts
    return texts_of_role


def shared_text(rows: Sequence[Example], group: str = "") -> tuple[str, list[str]] | None:
    """Return (role, texts) for the role `group`, or the one whose text most rows share with others,
    with one text for each row, "" if no other row has it; None if no role groups the rows."""
    best, most_rows = None, 0
    for role, texts in texts_by_role(rows).items():
        if role == group:
            return role, texts
        counts = Counter(texts)
        shared_rows = sum(n for n in counts.values() if n > 1)
        if shared_rows > most_rows and max(counts.values()) <= max(MOST * len(rows), 2):
            most_rows = shared_rows
            best = role, [text if counts[text] > 1 else "" for text in texts]
    return best


def findings(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding for each role whose texts other parts share with the training rows, and for
    each column by which rows of a sampled split may belong together."""
    columns, may_group = dataset.task.columns, "group" not in dataset.task.columns.roles
    for role, texts in texts_by_role(dataset.parts.get(TRAIN, [])).items():
        if sum(len(text.split()) for text in texts) < WORDS * len(texts):
            continue
        name, training_texts = columns.roles[role][0], set(texts)
        for split, rows in dataset.parts.items():
            if split == TRAIN:
                continue
            pairs = zip(rows, texts_by_role(rows)[role], strict=True)
            if sharing := [row for row, text in pairs if text in training_texts]:
                message = f"{counted(len(sharing), 'row')} of {split} share their {name!r} with "
                remedy = f"{option('group', name)} keeps them together"
                yield Finding(
                    "text-shared-with-train",
                    f"{message}rows of train, and are easier for it",
                    f"the first: {sharing[0].where}",
                    remedy if split in dataset.sampled and may_group else "",
                )
    if dataset.sampled and may_group and not dataset.together:
        for name in columns.left_out:
            column = columns.described[name]
            if plain(name) in GROUPS and 2 < column.distinct < 0.9 * column.rows:
                message = f"rows that share their {name!r} may be in different parts"
                remedy = f"{option('group', name)} keeps them together"
                yield Finding("possible-groups", message, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How one table is divided."""

    validation: float = 0.1
    """Share of the rows to choose by."""
    test: float = 0.0
    """Share of the rows to report on."""
    seed: int = 0
    """Another seed, another division."""


DEFAULT = SplitOptions()


def split_dataset(dataset: Dataset, division: SplitOptions = DEFAULT) -> Dataset:
    """Return the dataset divided into train and validation and, if requested, test parts.

    Parts that came as files stay as they are; missing parts are sampled from `all` or `train`. If
    there are no groups, rows that share a premise or a passage stay together.

    Args:
        division: shares and seed; groups (a column given as `group`) stay whole.

    Raises:
        DataError: too few rows for a part.
    """
    parts = dict(dataset.parts)
    source = ALL if ALL in parts else TRAIN
    rows = parts.pop(source)
    missing_shares = replace(
        division,
        validation=0.0 if VALIDATION in parts else division.validation,
        test=0.0 if TEST in parts else division.test,
    )
    texts, classes = [e.apart_by for e in rows], _classes_of(rows)
    groups = dict(dataset.groups)
    shared, own_groups = None, groups.pop(source, None)
    if own_groups is None and (missing_shares.validation or missing_shares.test):
        shared = shared_text(rows, dataset.task.shape.group)
    sampled = split_rows(texts, classes, missing_shares, shared[1] if shared else own_groups)
    parts |= {split: [rows[i] for i in indices] for split, indices in sampled.items()}
    if own_groups is not None:
        groups |= {split: [own_groups[i] for i in indices] for split, indices in sampled.items()}
    return replace(
        dataset,
        parts={split: parts[split] for split in PARTS if split in parts},
        groups=groups,
        sampled=tuple(split for split in PARTS if split in sampled and split != TRAIN),
        together=shared[0] if shared else "",
    )


def draw_examples(dataset: Dataset, count: int, seed: int = 0) -> Dataset:
    """Return the dataset with only `count` of the training rows; see `draw_rows`.

    Raises:
        UsageError: `count` is below 1 or above the number of training rows.
    """
    rows = dataset.parts[TRAIN]
    texts, classes = [e.whole_text for e in rows], _classes_of(rows)
    indices = draw_rows(texts, classes, count, seed)
    groups = dict(dataset.groups)
    if TRAIN in groups:
        groups[TRAIN] = [groups[TRAIN][i] for i in indices]
    return replace(
        dataset, parts=dataset.parts | {TRAIN: [rows[i] for i in indices]}, groups=groups
    )


def split_rows(
    texts: Sequence[str],
    classes: Sequence[Hashable],
    division: SplitOptions = DEFAULT,
    groups: Sequence[str] | None = None,
) -> dict[str, list[int]]:
    """Return the row indices of each part in ascending order; parts with share 0 are left out.

    Args:
        texts: the text of each row; rows with equal texts are assigned to the same part.
        classes: the class of each row, for stratification; all equal if there are no classes.
        division: shares and seed.
        groups: the group of each row; rows of one group are assigned to the same part, rows with
            "" independently.

    Raises:
        DataError: a part of the division would be empty.
    """
    units = _group_rows(texts, groups)
    unit_hashes = [min(hash_of(texts[i]) for i in unit) for unit in units]
    if groups is not None:
        unit_hashes = [min(hash_of(groups[i] or texts[i]) for i in unit) for unit in units]
    unit_numbers = _uniform_numbers("split", division.seed, unit_hashes)
    shares = {TEST: division.test, VALIDATION: division.validation}
    split_of_unit = _assign_units(units, classes, unit_numbers, shares, division.seed)
    split_names = [TRAIN, *(split for split, share in shares.items() if share)]
    assigned: dict[str, list[int]] = {split: [] for split in split_names}
    for unit, split in zip(units, split_of_unit, strict=True):
        assigned[split] += unit
    for split, rows in assigned.items():
        if not rows:
            share = shares.get(split, 1 - sum(shares.values()))
            raise _empty_part_error(split, share, texts, classes, len(units))
    return {split: sorted(assigned[split]) for split in PARTS if split in assigned}


def _empty_part_error(
    split: str, share: float, texts: Sequence[str], classes: Sequence[Hashable], units: int
) -> DataError:
    distinct = len({name for name in classes if name is not None})
    problem, do = f"no rows are left for {split}", ""
    if distinct > 1 and 2 * distinct > len(texts):
        problem += f": {distinct:,} labels for {len(texts):,} rows"
        do = "if they are no names of classes, name another column (--column label=…); or "
    return DataError(
        problem,
        found=f"{len(texts):,} rows that make {units:,} after joining duplicates and groups",
        wanted=f"enough rows for a share of {share:g}",
        do=f"{do}add rows, or give the parts as files of their own: a folder with train.csv, "
        "validation.csv and test.csv",
    )


def draw_rows(
    texts: Sequence[str], classes: Sequence[Hashable], count: int, seed: int = 0
) -> list[int]:
    """Sample the indices of `count` rows in proportion to the classes; for a smaller count the
    result is a prefix of this one.

    Args:
        texts, classes: the text and the class of each training row.

    Raises:
        UsageError: `count` is below 1 or above the number of rows.
    """
    if not 1 <= count <= len(texts):
        raise UsageError(
            "no such number of labels to draw", found=f"{count:,}", wanted=f"1 to {len(texts):,}"
        )
    row_numbers = _uniform_numbers("draw", seed, [hash_of(t) for t in texts])
    by_class: dict[Hashable, list[int]] = defaultdict(list)
    text_counts: Counter[str] = Counter()
    copy_numbers = []
    for text in texts:
        copy_numbers.append(text_counts[folded(text)])
        text_counts[folded(text)] += 1
    for index, name in enumerate(classes):
        by_class[name].append(index)
    ranked = []
    for name, indices in by_class.items():
        start = float(_uniform_numbers("draw", seed, [hash_of(f"class {name}")])[0])
        indices.sort(key=lambda i: (copy_numbers[i], row_numbers[i]))  # repeated texts come last
        for rank, i in enumerate(indices):
            ranked.append(((rank + start) / len(indices), str(name), i))
    return [index for _, _, index in sorted(ranked)[:count]]


def hash_of(text: str) -> int:
    """Return 64 bits of the SHA-256 of the text, ignoring case and white space."""
    return int.from_bytes(hashlib.sha256(folded(text).encode()).digest()[:8], "little")


# ------------------------------------------------------------------------------ folds
def fold_rows(dataset: Dataset, num_folds: int, seed: int = 0) -> list[list[int]]:
    """Divide the training rows into folds, for cross-validation.

    Rows with equal texts, of one group, or with a shared premise or passage are in one fold. Folds
    are stratified iteratively (Sechidis et al. 2011, doi 10.1007/978-3-642-23808-6_10): the rarest
    label first, each row to the fold that lacks its label most.

    Args:
        dataset: its training part is divided, and its `groups` are kept together.
        num_folds: the number of folds, 2 or more.

    Returns:
        The row indices of each fold in ascending order. Rows with the only example of a class are
        in no fold: if they were held out, nothing would be left to learn the class from. Folds
        without rows are left out.

    Raises:
        DataError: there are fewer rows than folds, duplicates and groups counted once; or all
            folds but one are empty.
    """
    rows = dataset.parts[TRAIN]
    texts, groups = [e.apart_by for e in rows], dataset.groups.get(TRAIN)
    if groups is None and (shared := shared_text(rows, dataset.task.shape.group)) is not None:
        groups = shared[1]
    units = _group_rows(texts, groups)
    if len(units) < num_folds:
        raise DataError(
            "there are fewer rows than folds of the cross-validation",
            where="--folds",
            found=f"{counted(len(rows), 'row')} that {'makes' if len(rows) == 1 else 'make'} "
            f"{len(units):,} after joining duplicates and groups, and {num_folds} folds",
            wanted=f"at least {num_folds} different rows",
            do="add rows, or choose fewer folds",
        )
    strata = _strata_of(rows, num_folds)
    labels_of_unit = [Counter(label for i in unit for label in strata[i]) for unit in units]
    units_of_label: dict[Hashable, list[int]] = defaultdict(list)
    numbers = _uniform_numbers("fold", seed, [min(hash_of(texts[i]) for i in u) for u in units])
    for unit in sorted(range(len(units)), key=lambda u: (-len(units[u]), numbers[u])):
        for label in labels_of_unit[unit] or {None: 1}:
            units_of_label[label].append(unit)
    by_rarity = sorted(units_of_label, key=lambda label: (len(units_of_label[label]), str(label)))
    is_class = dataset.labels is not None
    fold_of_unit: dict[int, int | None] = {}
    lacking = {
        label: np.full(num_folds, sum(labels[label] for labels in labels_of_unit) / num_folds)
        for label in by_rarity
    }
    lacking_rows = np.full(num_folds, len(rows) / num_folds)
    for label in by_rarity:
        for unit in units_of_label[label]:
            if unit in fold_of_unit:
                continue
            if is_class and label is not None and len(units_of_label[label]) == 1:
                fold_of_unit[unit] = None
                continue
            fold = int(np.lexsort((-lacking_rows, -lacking[label]))[0])
            fold_of_unit[unit] = fold
            lacking_rows[fold] -= len(units[unit])
            for other, count in labels_of_unit[unit].items():
                lacking[other][fold] -= count
    folds = [
        sorted(i for u, unit in enumerate(units) if fold_of_unit[u] == fold for i in unit)
        for fold in range(num_folds)
    ]
    if sum(map(bool, folds)) < 2:
        raise DataError(
            "no rows can be held out, as nearly every row is the only example of its class",
            where="--folds",
            found=f"{counted(len(rows), 'row')} of {len(by_rarity):,} classes",
            wanted="several classes with two rows or more",
            do="name another column (--column label=NAME); or add rows of these classes",
        )
    return [fold for fold in folds if fold]


def _strata_of(rows: Sequence[Example], num_folds: int) -> list[tuple[Hashable, ...]]:
    """Return the labels of each example by which folds are stratified: its classes, the quantile of
    its number, or none. A quantile has at least as many rows as there are folds, and at most ten
    are distinguished."""
    strata = [e.stratum for e in rows]
    if all(isinstance(value, float) for value in strata):
        num_quantiles = max(1, min(10, len(rows) // num_folds))
        ranks = np.argsort(np.argsort(np.array(strata), kind="stable"), kind="stable")
        return [(int(rank),) for rank in ranks * num_quantiles // len(rows)]
    return [
        value if isinstance(value, tuple) else () if value is None else (value,) for value in strata
    ]


# ------------------------------------------------------------------------------ sampling
def _classes_of(examples: Sequence[Example]) -> list[Hashable]:
    """Return the stratum of each example: its class, the rarest of several labels, or None."""
    labels = [e.stratum for e in examples]
    label_counts = Counter(index for label in labels if isinstance(label, tuple) for index in label)
    return [
        min(label, key=lambda n: (label_counts[n], n), default=None)
        if isinstance(label, tuple)
        else label
        if isinstance(label, int)
        else None
        for label in labels
    ]


def _uniform_numbers(purpose: str, seed: int, names: Sequence[int]) -> NDArray[np.float64]:
    """Return (rows,) uniform numbers in [0, 1), determined by the seed and the hash of each row."""
    return uniforms(key(purpose, seed, np.array(names, np.uint64)), 1)[:, 0]


def _group_rows(texts: Sequence[str], groups: Sequence[str] | None) -> list[list[int]]:
    """Return lists of row indices that must stay together: same text or same group."""
    group_names = groups or [""] * len(texts)
    return group_by_shared_keys(
        [("text", folded(text)), *([("group", name)] if name else [])]
        for text, name in zip(texts, group_names, strict=True)
    )


def _assign_units(
    units: Sequence[list[int]],
    classes: Sequence[Hashable],
    keys: NDArray[np.float64],
    shares: dict[str, float],
    seed: int,
) -> list[str]:
    """Return the part of each unit. Each class gives its share, rounded by a random number of the
    class: totals are right on average for small classes, and no class depends on another."""
    units_by_class: dict[Hashable, list[int]] = defaultdict(list)
    for unit_index, unit in enumerate(units):
        counts = Counter(classes[i] for i in unit)
        units_by_class[min(counts, key=lambda c: (-counts[c], str(c)))].append(unit_index)
    split_of_unit = [TRAIN] * len(units)
    for name, unit_indices in units_by_class.items():
        class_rows = sum(len(units[n]) for n in unit_indices)
        rounding_offset = float(_uniform_numbers("split", seed, [hash_of(f"class {name}")])[0])
        # At least one row of a class stays in train: the model must have seen it.
        remaining: dict[str, int] = {}
        assignable_rows = movable_rows = class_rows - 1
        for split, share in shares.items():
            remaining[split] = min(int(share * class_rows + rounding_offset), assignable_rows)
            assignable_rows -= remaining[split]
        unit_indices.sort(key=lambda n: keys[n])
        for unit_index in unit_indices:
            count = len(units[unit_index])
            for split in shares:
                if remaining[split] >= count / 2 and remaining[split] > 0 and count <= movable_rows:
                    split_of_unit[unit_index] = split
                    remaining[split] -= count
                    movable_rows -= count
                    break
    return split_of_unit
