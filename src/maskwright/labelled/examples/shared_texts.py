"""Texts that several rows have in common: a premise with hypotheses, a passage with questions.

A model that has learned a premise knows something of the others that share it. Where parts are
drawn, rows stay together by the text that most of them share; what is left is a finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from maskwright.counted import counted
from maskwright.findings import Finding
from maskwright.labelled.columns.columns import Columns, option
from maskwright.labelled.columns.spellings import plain
from maskwright.labelled.examples.examples import Example, Examples, folded
from maskwright.labelled.formats.parts import TRAIN

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
    best, most = None, 0
    for role, texts in texts_by_role(rows).items():
        counts = Counter(texts)
        sharing = sum(n for n in counts.values() if n > 1)
        if sharing > most and max(counts.values()) <= max(MOST * len(rows), 2):
            best, most = (role, [text if counts[text] > 1 else "" for text in texts]), sharing
    return best


def findings(examples: Examples) -> Iterator[Finding]:
    """One for each text that rows of a part share with the training rows, and for a column by which
    rows of parts that were drawn may belong together."""
    columns = examples.task.columns
    train = texts_by_role(examples.parts.get(TRAIN, []))
    for role, texts in train.items():
        if sum(len(text.split()) for text in texts) < WORDS * len(texts):
            continue
        name = columns.roles[role][0]
        known = set(texts)
        for part, rows in examples.parts.items():
            if part == TRAIN:
                continue
            again = [
                row
                for row, text in zip(rows, texts_by_role(rows)[role], strict=True)
                if text in known
            ]
            if again:
                is_sampled = part in examples.sampled and "group" not in columns.roles
                yield Finding(
                    "text-shared-with-train",
                    f"{counted(len(again), 'row')} of {part} share their {name!r} with rows of "
                    "train, and are easier for it",
                    f"the first: {again[0].where}",
                    f"{option('group', name)} keeps them together" if is_sampled else "",
                )
    if examples.sampled and "group" not in columns.roles and not examples.together:
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
