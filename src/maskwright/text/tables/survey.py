"""Survey labelled data for statistics and problems before training.

Counts rows and classes of each part, lengths, duplicates with equal and with different labels, and
texts that two parts share (ignoring case and white space), and warns of problems by findings. Also
gives tables of texts as `base/report/document.py` shows them: {"title", "head", "rows", "note"}.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from maskwright.base.errors import Finding, Severity
from maskwright.base.terminal import counted, shell_word
from maskwright.text.corpus.reading import Counts
from maskwright.text.tables import splits
from maskwright.text.tables.cell_values import as_number, means_nothing
from maskwright.text.tables.labels import near_misses
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import BETWEEN, UNKNOWN, Example, folded

LISTED, LISTED_FILES = 3, 5
LISTED_CLASSES = 30
# A class with fewer training rows is rare; classes beyond this ratio of sizes are uneven.
RARE = 10
UNEVEN = 10.0


@dataclass(frozen=True)
class Lengths:
    """Lengths of the texts of one part in words; the two texts of a pair count as one."""

    mean: float
    median: float
    high: float
    """The 95th percentile."""
    longest: int


@dataclass(frozen=True)
class PartSurvey:
    """Statistics of one part of the data.

    Attributes:
        rows: number of rows.
        classes: number of rows (of tokens for tagging) of every class of the task.
        classified: what shares of classes are of: tokens, or rows, each with one class or several.
        words: lengths in words.
        copies: number of rows whose text occurred before with the same label.
        contradictions: for each text with different labels, the locations of its rows.
    """

    rows: int
    classes: dict[str, int]
    classified: int
    words: Lengths
    copies: int
    contradictions: list[tuple[str, ...]]


@dataclass(frozen=True)
class Leak:
    """Texts of `part` that also occur in `other`; for questions, their contexts.

    Attributes:
        rows: number of such rows of `part`; relabelled: those with a different label in `other`.
        places: the first few, as (location in `part`, location in `other`).
    """

    part: str
    other: str
    rows: int
    relabelled: int
    places: list[tuple[str, str]]


@dataclass(frozen=True)
class Survey:
    """Statistics of all parts, the texts that they share, and the findings for the user."""

    task: str
    parts: dict[str, PartSurvey]
    leaks: list[Leak]
    findings: list[Finding] = field(default_factory=list)

    def tables(self) -> list[dict[str, Any]]:
        """Return a table of rows and lengths by part and, if the task has classes, one of them."""
        head = ["part", "rows", "words: mean", "median", "95 %", "longest"]
        head += ["copies", "contradictions"]
        rows = [
            [
                name,
                f"{p.rows:,}",
                f"{p.words.mean:.1f}",
                f"{p.words.median:.0f}",
                f"{p.words.high:.0f}",
                f"{p.words.longest:,}",
                f"{p.copies:,}",
                f"{len(p.contradictions):,}",
            ]
            for name, p in self.parts.items()
        ]
        note = "Copies: a text that came before with the same label; contradictions: with another."
        tables = [{"title": f"The data ({self.task})", "head": head, "rows": rows, "note": note}]
        first_split = next(iter(self.parts.values()))
        if first_split.classes:
            tables.append(self._classes(first_split))
        return tables

    def _classes(self, training: PartSurvey) -> dict[str, Any]:
        by_count = sorted(training.classes, key=lambda name: -training.classes[name])
        rows = [
            [name]
            + [
                f"{p.classes.get(name, 0):,} ({p.classes.get(name, 0) / p.classified:.1%})"
                for p in self.parts.values()
            ]
            for name in by_count[:LISTED_CLASSES]
        ]
        unlisted = len(by_count) - LISTED_CLASSES
        note = f"{unlisted:,} smaller classes are not listed." if unlisted > 0 else ""
        return {"title": "Classes", "head": ["class", *self.parts], "rows": rows, "note": note}


def survey(dataset: Dataset) -> Survey:
    """Compute the statistics, shared texts and findings of all parts of a dataset."""
    surveys = {name: _survey_part(dataset, rows) for name, rows in dataset.parts.items()}
    pairs = combinations(dataset.parts, 2)
    leaks = [leak for earlier, name in pairs if (leak := _leak(dataset, name, earlier)).rows]
    dataset_survey = Survey(dataset.task.name, surveys, leaks)
    return replace(dataset_survey, findings=list(_all_findings(dataset, dataset_survey)))


# ------------------------------------------------------------------------------ one part
def _survey_part(dataset: Dataset, rows: Sequence[Example]) -> PartSurvey:
    """Compute the statistics of one part."""
    texts = [e.whole_text for e in rows]
    by_text: dict[str, list[Example]] = defaultdict(list)
    for example, text in zip(rows, texts, strict=True):
        by_text[folded(text)].append(example)
    copies, contradictions = 0, []
    for same_text in by_text.values():
        different = len({e.answer for e in same_text})
        if different > 1 and not same_text[0].answers_may_differ:
            contradictions.append(tuple(e.where for e in same_text))
        copies += len(same_text) - different
    classes = _classes(dataset, rows)
    is_share_of_rows = dataset.task.shape.label == "several"
    return PartSurvey(
        rows=len(rows),
        classes=classes,
        classified=max(1, len(rows) if is_share_of_rows else sum(classes.values())),
        words=_lengths([len(text.replace(BETWEEN, " ").split()) for text in texts]),
        copies=copies,
        contradictions=contradictions,
    )


def _lengths(counts: Sequence[int]) -> Lengths:
    sizes = np.array(counts)
    high = float(np.quantile(sizes, 0.95))
    return Lengths(float(sizes.mean()), float(np.median(sizes)), high, int(sizes.max()))


def _classes(dataset: Dataset, rows: Sequence[Example]) -> dict[str, int]:
    if dataset.labels is None:
        return {}
    counts: Counter[int] = Counter()
    for row in rows:
        label = row.answer
        counts.update(label if isinstance(label, tuple) else [label])
    return {name: counts[class_number] for class_number, name in enumerate(dataset.labels.names)}


# ------------------------------------------------------------------------------ between parts
def _leak(dataset: Dataset, split: str, earlier_split: str) -> Leak:
    """Compare the texts of two parts."""
    earlier_by_text: dict[str, list[Example]] = defaultdict(list)
    for example in dataset.parts[earlier_split]:
        earlier_by_text[folded(example.apart_by)].append(example)
    first_places: list[tuple[str, str]] = []
    count = relabelled = 0
    for example in dataset.parts[split]:
        if not (same_text := earlier_by_text.get(folded(example.apart_by))):
            continue
        count += 1
        if not example.shares_apart_by:
            relabelled += all(e.answer != example.answer for e in same_text)
        if len(first_places) < LISTED:
            first_places.append((example.where, same_text[0].where))
    return Leak(split, earlier_split, count, relabelled, first_places)


# ------------------------------------------------------------------------------ findings
def reading_findings(split: str, counts: Counts) -> Iterator[Finding]:
    """Yield the findings from reading the files of `split`, and their names if it has several."""
    if len(files := list(counts.hashes)) > 1:
        more = len(files) - LISTED_FILES
        listed = ", ".join(files[:LISTED_FILES]) + (f" and {more:,} more files" if more > 0 else "")
        yield Finding("files-of-part", f"{split}: read from {listed}")
    yield from (finding.of(split) for finding in counts.findings)


def left_out_findings(dataset: Dataset) -> Iterator[Finding]:
    """Yield findings on rows that were left out, and on labels and tags that were changed."""
    if dataset.dropped:
        message = f"left out: {counted(len(dataset.dropped), 'bad row')}"
        yield Finding("bad-rows", message, f"the first: {', '.join(dataset.dropped[0])}")
    if dataset.rejects and (dataset.dropped or any(c.rejected for c in dataset.counts.values())):
        yield Finding("list-of-bad-rows", f"rows left out are listed in {dataset.rejects}")
    if dataset.unlabelled:
        message = f"left out: {counted(dataset.unlabelled, 'row')} without a label"
        yield Finding("rows-without-label", message)
    if dataset.folded:
        message = f"{counted(dataset.folded, 'label')} joined with a commoner spelling, which "
        yield Finding("labels-joined", f"{message}differs only by case or blanks")
    if dataset.repaired:
        message = f"{counted(dataset.repaired, 'tag')} changed, so that spans begin with B-"
        yield Finding("tags-changed", message)


def _all_findings(dataset: Dataset, survey: Survey) -> Iterator[Finding]:
    """Yield all findings on the dataset, in the order in which they are shown."""
    for name, counts in dataset.counts.items():
        yield from reading_findings(name, counts)
    for leak in survey.leaks:
        also = f", {leak.relabelled:,} of them with another label" if leak.relabelled else ""
        yield Finding(
            "rows-in-two-parts",
            f"{counted(leak.rows, 'row')} of {leak.part} stand{_s(leak.rows)} in {leak.other}, "
            f"too{also}",
            f"the first: {' and '.join(leak.places[0])}",
        )
    yield from splits.findings(dataset)
    for name, split_survey in survey.parts.items():
        yield from _repetition_findings(name, split_survey, dataset.parts[name])
        yield from dataset.task.columns.layout.findings(name, dataset)
    yield from left_out_findings(dataset)
    yield from _missing_value_findings(dataset)
    if dataset.labels is not None:
        yield from _label_findings(dataset, survey)
        yield from _class_findings(dataset, survey)


def _repetition_findings(
    name: str, survey: PartSurvey, rows: Sequence[Example]
) -> Iterator[Finding]:
    """Yield findings on texts that occur more than once in a part, and on equal answers."""
    if survey.contradictions:
        count = counted(len(survey.contradictions), "text")
        message = f"different labels of the same text in {name}: {count}"
        evidence = f"the first: {' and '.join(survey.contradictions[0][:2])}"
        yield Finding("contradicting-labels", message, evidence)
    if survey.copies:
        message = f"{counted(survey.copies, 'row')} of {name} repeat{_s(survey.copies)} an earlier "
        yield Finding("repeated-rows", f"{message}row, label included")
    equal = [row.where for row in rows if _has_equal_texts(row)]
    if 2 * len(equal) > len(rows):
        message = (
            f"two texts of a row are the same in {len(equal):,} of {len(rows):,} rows of {name}"
        )
        remedy = "where that is not meant, name the columns (--column ROLE=NAME)"
        yield Finding("equal-texts", message, f"the first: {equal[0]}", remedy, "warning")
    yield from same_answer(name, rows)


def _has_equal_texts(row: Example) -> bool:
    """Whether two fields hold the same text, as where a column has been named twice."""
    names: Sequence[str] = row.__slots__
    values = [getattr(row, name) for name in names if name != "where"]
    texts = [value for value in values if type(value) is str and value]
    texts += getattr(row, "negatives", ())
    return len({*texts}) < len(texts)


def same_answer(name: str, rows: Sequence[Example]) -> Iterator[Finding]:
    """Yield a finding if several rows of a part all have the same answer."""
    if len(rows) > 1 and len({row.repeated for row in rows}) == 1:
        message = f"all rows of {name} have the same answer: no figure on them tells answers apart"
        yield Finding("same-answer", message, f"the first: {rows[0].where}", severity="warning")


def _missing_value_findings(dataset: Dataset) -> Iterator[Finding]:
    """Yield findings on labels or targets in any part that may stand for a missing value."""
    columns = dataset.task.columns
    if len(columns.roles[columns.layout.answer_role]) > 1:
        return  # one column of flags for each class
    counts = Counter(
        value
        for rows in dataset.parts.values()
        for row in rows
        for value in _values(row.answer, dataset)
    )
    role = "the name of a class" if dataset.labels is not None else "an answer"
    for value in filter(means_nothing, counts):
        number = as_number(value)
        other_numbers = [
            n
            for other_value in counts
            if other_value != value and (n := as_number(other_value)) is not None
        ]
        if number is None or _is_outlier(number, other_numbers):
            yield Finding(
                "label-like-missing-value",
                f"{value!r} ({counted(counts[value], 'row')}) is read as {role}",
                remedy="where it means that there is none, use --read no_label="
                f"{shell_word(value)}",
            )


def _values(answer: Any, dataset: Dataset) -> Iterator[str]:
    """Yield the distinct classes, the number, or the distinct texts of an answer, as texts."""
    values = answer if isinstance(answer, tuple | frozenset) else (answer,)
    for value in dict.fromkeys(values):
        if dataset.labels is None:
            yield f"{value:g}" if isinstance(value, float) else str(value)
        elif value != UNKNOWN:
            yield dataset.labels.names[value]


def _is_outlier(number: float, other_numbers: Sequence[float]) -> bool:
    """Whether a number is the only negative one, or farther from the others than their range."""
    low, high = min(other_numbers, default=number), max(other_numbers, default=number)
    is_far = max(low - number, number - high) > max(high - low, 1)
    return not other_numbers or number < 0 <= low or (is_far and len(other_numbers) > 1)


def _label_findings(dataset: Dataset, survey: Survey) -> Iterator[Finding]:
    """Yield findings on the names of the classes, and on label sets: whether cells are empty, and
    whether every set has exactly one label."""
    assert dataset.labels is not None
    columns = dataset.task.columns
    yield from columns.layout.label_findings(dataset.labels.names)
    if dataset.task.shape.label == "several":
        names = columns.roles["label"]
        empty = columns.described[names[0]].empty if len(names) == 1 else 0
        if empty:
            message = f"an empty cell in the column {names[0]!r} is read as none of the labels, in "
            remedy = "take out rows whose labels are not known"
            yield Finding("empty-labels", message + counted(empty, "row"), remedy=remedy)
        sets = [row.label for rows in dataset.parts.values() for row in rows]
        if len(sets) >= RARE and all(len(label_set) == 1 for label_set in sets):
            remedy = "where only one can be right, write a column with its name"
            yield Finding("one-label-per-row", "every row has exactly one label", remedy=remedy)
    spaced = [name for name in next(iter(survey.parts.values())).classes if name != name.strip()]
    if spaced:
        message = f"labels begin or end with blanks, such as {spaced[0]!r}, and so will the answers"
        remedy = "take them out of the file if that is not meant"
        yield Finding("blanks-around-labels", message, remedy=remedy)


def _class_findings(dataset: Dataset, survey: Survey) -> Iterator[Finding]:
    """Yield findings on classes that are missing, rare, uneven, or misspelt."""
    first_split = next(iter(survey.parts))
    for name, split_survey in survey.parts.items():
        if empty := [c for c, n in split_survey.classes.items() if n == 0]:
            message = f"{name} has no row of {_listed(empty)}: "
            if name == first_split:
                message += "the model cannot learn what it never sees"
                yield Finding("class-never-seen", message)
            else:
                yield Finding("class-not-scored", f"{message}no score can be given for them")
    sizes = {c: n for c, n in survey.parts[first_split].classes.items() if n}
    rare = [c for c, n in sizes.items() if n < RARE]
    if rare:
        message = f"{first_split} has fewer than {RARE} rows of {_listed(rare)}"
        severity: Severity = "warning" if 2 * len(rare) > len(sizes) else "note"
        yield Finding("rare-classes", message, severity=severity)
    if sizes and max(sizes.values()) > UNEVEN * min(sizes.values()):
        most, fewest = (max(sizes, key=lambda c: sizes[c]), min(sizes, key=lambda c: sizes[c]))
        has_macro = "macro_f1" in dataset.task.shape.metrics
        yield Finding(
            "uneven-classes",
            f"the classes are uneven: {sizes[most]:,} of {most!r} and {sizes[fewest]:,} of "
            f"{fewest!r}",
            remedy="look at macro F1 besides accuracy" if has_macro else "look at each class",
        )
    for misspelt, name in near_misses(sizes):
        yield Finding(
            "misspelt-label",
            f"{misspelt!r} ({counted(sizes[misspelt], 'row')}) may be {name!r} "
            f"({counted(sizes[name], 'row')}) misspelt",
        )


def _s(number: int) -> str:
    """Return the ending of a verb whose subject is `number` things."""
    return "s" if number == 1 else ""


def _listed(names: Sequence[str]) -> str:
    unlisted_count = len(names) - LISTED
    shown_names = ", ".join(map(repr, names[:LISTED]))
    more = f" and {counted(unlisted_count, 'more class', 'more classes')}"
    return shown_names + (more if unlisted_count > 0 else "")
