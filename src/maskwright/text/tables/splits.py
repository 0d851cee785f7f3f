"""Parts of one table, and few labels out of many: drawn by keys of the texts, so for ever the same.

A row's place follows from the seed and a hash of its text (case and blanks aside), not from its
place in the file. So rows may be shuffled, duplicates always stay together, and so does everything
of one group. Each class gives its share, and one row more moves at most one other at each border.
Few-label subsets are beginnings of one order: the 50 lie within the 200, those within the 1,000.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import counted
from maskwright.base.errors import ConfigError, DataError, UsageError
from maskwright.base.findings import Finding
from maskwright.base.randomness import key, uniforms
from maskwright.text.tables.examples import Example, folded
from maskwright.text.tables.labels import group_by_shared_keys
from maskwright.text.tables.layout import Columns, Dataset
from maskwright.text.tables.shapes import option
from maskwright.text.tables.spellings import plain
from maskwright.text.tables.split_files import ALL, PARTS, TEST, TRAIN, VALIDATION

# No group has more than this share of the rows: else hardly anything is left to draw.
MOST = 0.1
# Texts of fewer words, such as the aspect of a review, are no texts to be learned by heart.
WORDS = 3
# What rows that belong together often have in common.
GROUPS = {
    *("url", "doc", "docid", "document", "documentid", "articleid", "passageid", "contextid"),
    *("premiseid", "promptid", "captionid", "patient", "patientid", "user", "userid", "username"),
    *("author", "authorid", "speaker", "speakerid", "sessionid", "conversationid", "dialogid"),
    *("dialogueid", "threadid", "group", "groupid", "subject", "subjectid", "productid"),
}


def texts_by_role(rows: Sequence[Example]) -> dict[str, list[str]]:
    """The texts of the rows that others may share, by role; empty where a row has one text:
    equal ones stay in one part anyway."""
    by_role: dict[str, list[str]] = {}
    for role in rows[0].shared_texts if rows else ():
        texts = [folded(row.shared_texts[role]) for row in rows]
        if any(texts):
            by_role[role] = texts
    return by_role


def shared_text(rows: Sequence[Example]) -> tuple[str, list[str]] | None:
    """The role of the text that most rows share with others, and it of each of these rows, "" of
    one with a text of its own; None where there is none to keep rows together by."""
    best, most_rows = None, 0
    for role, texts in texts_by_role(rows).items():
        counts = Counter(texts)
        count = sum(n for n in counts.values() if n > 1)
        if count > most_rows and max(counts.values()) <= max(MOST * len(rows), 2):
            most_rows = count
            best = role, [text if counts[text] > 1 else "" for text in texts]
    return best


def findings(dataset: Dataset) -> Iterator[Finding]:
    """One for each text that rows of a part share with the training rows, and for a column by which
    rows of parts that were drawn may belong together."""
    columns = dataset.task.columns
    train = texts_by_role(dataset.parts.get(TRAIN, []))
    for role, texts in train.items():
        if sum(len(text.split()) for text in texts) < WORDS * len(texts):
            continue
        name = columns.roles[role][0]
        training_texts = set(texts)
        for split, rows in dataset.parts.items():
            if split == TRAIN:
                continue
            sharing = [
                row
                for row, text in zip(rows, texts_by_role(rows)[role], strict=True)
                if text in training_texts
            ]
            if sharing:
                is_sampled = split in dataset.sampled and "group" not in columns.roles
                yield Finding(
                    "text-shared-with-train",
                    f"{counted(len(sharing), 'row')} of {split} share their {name!r} with rows of "
                    "train, and are easier for it",
                    f"the first: {sharing[0].where}",
                    f"{option('group', name)} keeps them together" if is_sampled else "",
                )
    if dataset.sampled and "group" not in columns.roles and not dataset.together:
        for name in _of_groups(columns):
            yield Finding(
                "possible-groups",
                f"rows that share their {name!r} may be in different parts",
                remedy=f"{option('group', name)} keeps them together",
            )


def _of_groups(columns: Columns) -> list[str]:
    """Unused columns that are called as what rows have in common, and whose values come back."""
    return [
        name
        for name in columns.left_out
        if plain(name) in GROUPS
        and 2 < columns.described[name].distinct < 0.9 * columns.described[name].rows
    ]


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How one table is divided; checked when it is made.

    Raises:
        ConfigError: naming the field.
    """

    validation: float = 0.1
    """Share of the rows to choose by."""
    test: float = 0.0
    """Share of the rows to report on."""
    seed: int = 0
    """Another seed, another division."""

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(
                    "the share is out of range",
                    where=name,
                    found=getattr(self, name),
                    wanted="at least 0 and below 1",
                )
        if self.validation + self.test >= 1:
            raise ConfigError(
                "nothing is left for training",
                where="validation, test",
                found=f"{self.validation} and {self.test}",
                wanted="a sum below 1",
            )


DEFAULT = SplitOptions()


def split_dataset(dataset: Dataset, division: SplitOptions = DEFAULT) -> Dataset:
    """The same examples with a train and a validation part, and a test part where one is wanted.

    Parts that came as files stay as they are; what is missing is drawn from `all` or `train`. Where
    no groups are given, rows that share a premise or a passage stay together.

    Args:
        dataset: of one table.
        division: shares and seed; groups (a column given as `group`) stay whole.

    Raises:
        DataError: too few rows for a part.
    """
    examples_by_split = dict(dataset.parts)
    source_split = ALL if ALL in examples_by_split else TRAIN
    rows = examples_by_split.pop(source_split)
    missing_splits = replace(
        division,
        validation=0.0 if VALIDATION in examples_by_split else division.validation,
        test=0.0 if TEST in examples_by_split else division.test,
    )
    texts, classes = [e.apart_by for e in rows], _classes_of(rows)
    groups = dict(dataset.groups)
    own_groups = groups.pop(source_split, None)
    together = (
        shared_text(rows)
        if own_groups is None and (missing_splits.validation or missing_splits.test)
        else None
    )
    sampled = split_rows(texts, classes, missing_splits, together[1] if together else own_groups)
    examples_by_split |= {split: [rows[i] for i in indices] for split, indices in sampled.items()}
    if own_groups is not None:
        groups |= {split: [own_groups[i] for i in indices] for split, indices in sampled.items()}
    examples_by_split = {
        split: examples_by_split[split] for split in PARTS if split in examples_by_split
    }
    sampled_splits = tuple(
        split for split in examples_by_split if split in sampled and split != TRAIN
    )
    return replace(
        dataset,
        parts=examples_by_split,
        groups=groups,
        sampled=sampled_splits,
        together=together[0] if together else "",
    )


def draw_examples(
    dataset: Dataset, count: int, seed: int = 0, *, balanced: bool = False
) -> Dataset:
    """The same examples with only `count` of the training rows; see `draw_rows`.

    Raises:
        UsageError: more than there are, or fewer than one.
    """
    rows = dataset.parts[TRAIN]
    texts, classes = [e.whole_text for e in rows], _classes_of(rows)
    indices = draw_rows(texts, classes, count, seed, balanced=balanced)
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
    """The places of the rows of each part, ascending; parts of share 0 are left out.

    Args:
        texts: one for each row; rows with equal ones fall into one part.
        classes: one for each row; all alike where there are none.
        division: shares and seed.
        groups: a name for each row; equal ones fall into one part, and of none ("") each row by
            itself.

    Raises:
        DataError: a part of the division would be empty.
    """
    units = _units(texts, groups)
    names = [min(hash_of(texts[i]) for i in unit) for unit in units]
    if groups is not None:
        names = [min(hash_of(groups[i] or texts[i]) for i in unit) for unit in units]
    keys = _draws("split", division.seed, names)
    shares = {TEST: division.test, VALIDATION: division.validation}
    split_of_unit = _by_quota(units, classes, keys, shares, division.seed)
    split_names = [TRAIN, *(split for split, share in shares.items() if share)]
    assigned: dict[str, list[int]] = {split: [] for split in split_names}
    for unit, split in zip(units, split_of_unit, strict=True):
        assigned[split] += unit
    for split, rows in assigned.items():
        if not rows:
            label_counts = Counter(name for name in classes if name is not None)
            may_be_no_classes = len(label_counts) > 1 and 2 * len(label_counts) > len(texts)
            raise DataError(
                f"no rows are left for {split}"
                + f": {len(label_counts):,} labels for {len(texts):,} rows" * may_be_no_classes,
                found=f"{len(texts):,} rows that make {len(units):,} after joining duplicates"
                + (" and groups" if groups is not None else ""),
                wanted="enough rows for a share of "
                f"{shares.get(split, 1 - sum(shares.values())):g}",
                do=(
                    "if they are no names of classes, name another column (--column label=…); or "
                    * may_be_no_classes
                )
                + "add rows, or give the parts as files of their own: a folder with train.csv, "
                "validation.csv and test.csv",
            )
    return {split: sorted(assigned[split]) for split in PARTS if split in assigned}


def draw_rows(
    texts: Sequence[str],
    classes: Sequence[Hashable],
    count: int,
    seed: int = 0,
    *,
    balanced: bool = False,
) -> list[int]:
    """`count` rows as if only so many had labels; a smaller count gives a beginning of this list.

    Args:
        texts, classes: of the training rows.
        count: how many.
        seed: another seed, another draw.
        balanced: as many of each class, as long as there are; else in proportion.

    Raises:
        UsageError: more than there are, or fewer than one.
    """
    if not 1 <= count <= len(texts):
        raise UsageError(
            "no such number of labels to draw", found=f"{count:,}", wanted=f"1 to {len(texts):,}"
        )
    keys = _draws("draw", seed, [hash_of(t) for t in texts])
    by_class: dict[Hashable, list[int]] = defaultdict(list)
    text_counts: Counter[str] = Counter()
    copies = []
    for text in texts:
        copies.append(text_counts[folded(text)])
        text_counts[folded(text)] += 1
    for index, name in enumerate(classes):
        by_class[name].append(index)
    ranked = []
    for name, indices in by_class.items():
        start = float(_draws("draw", seed, [hash_of(f"class {name}")])[0])
        indices.sort(key=lambda i: (copies[i], keys[i]))  # a text that came before comes last
        for rank, i in enumerate(indices):
            turn = rank + start
            ranked.append((turn if balanced else turn / len(indices), str(name), i))
    return [index for _, _, index in sorted(ranked)[:count]]


def hash_of(text: str) -> int:
    """64 bits of SHA-256 of the text, case and blanks aside."""
    return int.from_bytes(hashlib.sha256(folded(text).encode()).digest()[:8], "little")


# ------------------------------------------------------------------------------ the drawing
def _classes_of(examples: Sequence[Example]) -> list[Hashable]:
    """The class of each; of several labels the rarest, for hardly two rows have all in common."""
    labels = [e.stratum for e in examples]
    often = Counter(n for label in labels if isinstance(label, tuple) for n in label)
    return [
        min(label, key=lambda n: (often[n], n), default=None)
        if isinstance(label, tuple)
        else label
        if isinstance(label, int)
        else None
        for label in labels
    ]


def _draws(purpose: str, seed: int, names: Sequence[int]) -> NDArray[np.float64]:
    """(rows,) numbers in [0, 1), by the hashes of the rows."""
    return uniforms(key(purpose, seed, np.array(names, np.uint64)), 1)[:, 0]


def _units(texts: Sequence[str], groups: Sequence[str] | None) -> list[list[int]]:
    """Rows that must stay together: those with the same text, and those of the same group."""
    named = groups or [""] * len(texts)
    return group_by_shared_keys(
        [("text", folded(text)), *([("group", name)] if name else [])]
        for text, name in zip(texts, named, strict=True)
    )


def _by_quota(
    units: Sequence[list[int]],
    classes: Sequence[Hashable],
    keys: NDArray[np.float64],
    shares: dict[str, float],
    seed: int,
) -> list[str]:
    """Of each class its share, rounded up or down by a key of the class: the sum is right on
    average however small the classes are, and no class depends on another."""
    by_class: dict[Hashable, list[int]] = defaultdict(list)
    for number, unit in enumerate(units):
        counts = Counter(classes[i] for i in unit)
        by_class[min(counts, key=lambda c: (-counts[c], str(c)))].append(number)
    split_of_unit = [TRAIN] * len(units)
    for name, numbers in by_class.items():
        rows = sum(len(units[n]) for n in numbers)
        rounding = float(_draws("split", seed, [hash_of(f"class {name}")])[0])
        # At least one row of a class stays in train: the model must have seen it.
        remaining: dict[str, int] = {}
        spare = training_left = rows - 1
        for split, share in shares.items():
            remaining[split] = min(int(share * rows + rounding), spare)
            spare -= remaining[split]
        numbers.sort(key=lambda n: keys[n])
        for number in numbers:
            size = len(units[number])
            for split in shares:
                if remaining[split] >= size / 2 and remaining[split] > 0 and size <= training_left:
                    split_of_unit[number] = split
                    remaining[split] -= size
                    training_left -= size
                    break
    return split_of_unit
