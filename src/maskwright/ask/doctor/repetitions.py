"""Texts that stand in the data more than once: copies, near copies, contradictions, and rows or
groups of rows on both sides of a split.

Two texts are near copies if they have the same words (case and punctuation aside), or if their sets
of three consecutive words have a Jaccard similarity of 0.7 or more; two texts of a pair each have
to be. They are compared exactly, without hashing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.doctor.check import Check, Subject, percent, severity, texts_of, words_of
from maskwright.base.errors import Finding
from maskwright.base.terminal import counted
from maskwright.text.tables.cell_values import group_name
from maskwright.text.tables.columns import GROUPS
from maskwright.text.tables.rows import TRAIN, Example, plain, value_of

COMPARED = 100_000  # rows that are compared for near copies
SHINGLE, SIMILAR = 3, 0.7
AT_ONCE = 500  # texts that are compared with all others at a time
# Test rows that were learned raise a score by at most their share: from here on by half of the
# width of the 95 % interval of an accuracy of 0.8 on 6,000 rows. Near copies are often minimal
# pairs, or short texts of one form: 4 % in CoLA and Banking77.
ACROSS, NEARLY_ACROSS = 0.01, 0.05
# Contradictions lower the best possible accuracy by half of their share.
CONTRADICTORY = 0.01
COPIES = 0.1  # copies in training change the weights of rows, and little else
SPREAD = 0.5  # numbers contradict each other if they differ by this many standard deviations


def near_copies(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return (N,) a number for each text; texts that are near copies of each other, directly or
    through others, have the same."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    words = [words_of(text) for text in texts]
    distinct = {text: number for number, text in enumerate(dict.fromkeys(words))}
    numbers: dict[tuple[str, ...], int] = {}
    indices, starts = list[int](), [0]
    for text in distinct:
        shingles = {text[i : i + SHINGLE] for i in range(max(1, len(text) - SHINGLE + 1))}
        indices += sorted(numbers.setdefault(shingle, len(numbers)) for shingle in shingles)
        starts.append(len(indices))
    size = len(distinct)
    sets = sparse.csr_array(
        (np.ones(len(indices), np.float32), indices, starts), shape=(size, len(numbers))
    )
    lengths = np.diff(starts)
    links = [np.zeros((2, 0), np.int64)]
    for begin in range(0, size, AT_ONCE):
        common = (sets[begin : begin + AT_ONCE] @ sets.T).tocoo()
        first, second = common.row + begin, common.col
        similar = common.data >= SIMILAR * (lengths[first] + lengths[second] - common.data)
        links.append(np.stack([first[similar], second[similar]]))
    pairs = np.concatenate(links, axis=1)
    graph = sparse.coo_array((np.ones(pairs.shape[1], np.int8), tuple(pairs)), shape=(size, size))
    component = connected_components(graph, directed=False)[1]
    return np.asarray(component[[distinct[text] for text in words]], np.int64)


def check_repetitions(subject: Subject) -> Check:
    """Count copies, near copies and contradictions, and rows that two parts share."""
    rows, parts = subject.rows, subject.parts
    # Many questions are about one passage; the two texts of a pair may be swapped.
    shares_all_text = rows[0].shares_apart_by
    exact = [words_of(row.whole_text if shares_all_text else row.apart_by) for row in rows]
    near: list[Any] = exact
    is_compared = len(rows) <= COMPARED
    if is_compared:
        fields = zip(*map(texts_of, rows), strict=True)
        near = list(zip(*(near_copies(texts).tolist() for texts in fields), strict=True))
    num_copies, num_near = (len(rows) - len(set(keys)) for keys in (exact, near))
    contradictory = list(_contradictions(rows))
    figures: dict[str, Any] = {
        "copies": num_copies,
        "near_copies": max(0, num_near - num_copies),
        "contradictory_rows": sum(map(len, contradictory)),
    }
    findings = [*_rows_across(rows, parts, exact, near), *_groups_across(subject)]
    if contradictory:
        share = figures["contradictory_rows"] / len(rows)
        num_texts = counted(len(contradictory), "text")
        message = f"{num_texts} with different labels ({percent(share)} of the rows)"
        evidence = f"the first: {' and '.join(row.where for row in contradictory[0][:2])}"
        remedy, grade = "keep one label for each text", severity(share, CONTRADICTORY)
        findings.append(Finding("contradicting-labels", message, evidence, remedy, grade))
    inside = [len(rows) - len({*zip(parts, keys, strict=True)}) for keys in (exact, near)]
    if (share := max(inside) / len(rows)) >= COPIES:
        message = f"{percent(share)} of the rows repeat an earlier row of their part"
        evidence = f"{counted(inside[0], 'copy', 'copies')}, {max(0, inside[1] - inside[0]):,} near"
        remedy = "take them out, unless they are as frequent where the model will be used"
        findings.append(Finding("repeated-rows", message, evidence, remedy, "warning"))
    near_text = f"{figures['near_copies']:,} near copies"
    if not is_compared:
        near_text = f"near copies unknown (more than {COMPARED:,} rows)"
    summary = f"{counted(num_copies, 'copy', 'copies')}, {near_text}, "
    summary += f"{counted(len(contradictory), 'text')} with different labels"
    return Check("repetitions", summary, figures, findings)


def _contradictions(rows: Sequence[Example]) -> Iterator[list[Example]]:
    """Yield the rows of each text, case and punctuation aside, that has different labels."""
    by_text: dict[Hashable, list[Example]] = defaultdict(list)
    for row in rows:
        by_text[tuple(map(words_of, texts_of(row)))].append(row)
    numbers = [row.answer for row in rows if isinstance(row.answer, float)]
    limit = SPREAD * float(np.std(numbers)) if numbers else 0.0
    for same_text in by_text.values():
        answers = [row.answer for row in same_text]
        differ = max(answers) - min(answers) > limit if numbers else len(set(answers)) > 1
        if differ and not same_text[0].answers_may_differ:
            yield same_text


def _rows_across(
    rows: Sequence[Example], parts: Sequence[str], exact: Sequence[Hashable], near: Sequence[Any]
) -> Iterator[Finding]:
    """Yield a finding for each part with copies or near copies of training rows."""
    learned = [
        {key: row.where for key, row, side in zip(keys, rows, parts, strict=True) if side == TRAIN}
        for keys in (exact, near)
    ]
    for split in dict.fromkeys(parts) if learned[0] else ():
        held_out = [i for i, side in enumerate(parts) if side == split != TRAIN]
        copies = [i for i in held_out if exact[i] in learned[0]]
        either = [i for i in held_out if exact[i] in learned[0] or near[i] in learned[1]]
        shares = [len(held) / max(1, len(held_out)) for held in (copies, either)]
        is_grave = shares[0] >= ACROSS or shares[1] >= NEARLY_ACROSS
        if copies or is_grave:
            number = (copies or either)[0]
            where = learned[0].get(exact[number]) or learned[1][near[number]]
            yield Finding(
                "rows-in-two-parts",
                f"{counted(len(either), 'row')} of {split} ({percent(shares[1])}) stand in train, "
                "too, or nearly so",
                f"{len(copies):,} with the same words; the first: {rows[number].where} and {where}",
                f"take them out of train or {split}: a score on them is too high",
                "warning" if is_grave else "note",
            )


def _groups_across(subject: Subject) -> Iterator[Finding]:
    """Yield findings on groups of rows (a patient, an author) of which training rows and rows of
    another part are members."""
    columns = subject.dataset.task.columns
    names = [name for name in columns.left_out if plain(name) in GROUPS]
    raw_rows = {row.where: row for row in subject.table.rows}
    for name in [columns["group"]] if "group" in columns.roles else names:
        groups = [group_name(value_of(raw_rows[row.where], name)) for row in subject.rows]
        learned = {
            group for group, side in zip(groups, subject.parts, strict=True) if side == TRAIN
        } - {""}
        if len(learned) < 2 or len(learned) > 0.9 * subject.parts.count(TRAIN):
            continue
        for split in dict.fromkeys(subject.parts):
            held_out = [i for i, side in enumerate(subject.parts) if side == split != TRAIN]
            shared = [i for i in held_out if groups[i] in learned]
            if shared and len(shared) >= ACROSS * len(held_out):
                share = len(shared) / len(held_out)
                yield Finding(
                    "groups-in-two-parts",
                    f"{percent(share)} of {split} share their {name!r} with rows of train",
                    f"the first: {subject.rows[shared[0]].where}",
                    f"split by {name!r}, or give one table and --column group={name}",
                    "warning",
                )
