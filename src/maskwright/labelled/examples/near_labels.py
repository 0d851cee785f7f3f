"""Labels that nearly agree.

Those that differ only by case, blanks or Unicode's form are refused, because one of them is nearly
always a slip; `fold` joins them. Rare labels a letter or two from a common one are findings.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from maskwright.counted import counted
from maskwright.errors import DataError
from maskwright.labelled.columns.contents import NO_WIDTH
from maskwright.labelled.examples.one_label import Label
from maskwright.labelled.formats.rows import Row

RARE = 20


def near_spellings(
    counts: Counter[Label], rows: Mapping[Label, Row], column: str, fold: bool
) -> dict[str, str]:
    """Spelling -> the commonest of those that differ from it only by case, blanks or Unicode's
    form.

    Raises:
        DataError: there are such labels, and `fold` does not join them.
    """
    alike: dict[str, list[str]] = defaultdict(list)
    for label in counts:
        alike[_key(label)].append(str(label))
    folded: dict[str, str] = {}
    for spellings in alike.values():
        if len(spellings) == 1:
            continue
        common, *others = sorted(spellings, key=lambda s: (-counts[s], s))
        if not fold:
            rare = others[-1]
            # Two forms of one letter look alike: they are shown by their code points.
            forms = len({unicodedata.normalize("NFC", s) for s in spellings}) < len(spellings)
            quoted = ascii if forms else repr
            raise DataError(
                "labels that differ only by case or blanks"
                if not forms
                else "labels that differ only by the form of their letters (Unicode)",
                where=f"{rows[rare].where}, column {column!r}",
                found=", ".join(
                    f"{quoted(s)} ({counted(counts[s], 'row')})" for s in (common, *others)
                ),
                wanted=f"one spelling, such as {quoted(common)}",
                do="correct the rows, or join the spellings (--read fold_labels=true)",
            )
        folded |= dict.fromkeys(others, common)
    return folded


def fold_onto(names: Sequence[str], spellings: Iterable[str]) -> dict[str, str]:
    """Spelling -> the one of `names` that it differs from only by case or blanks."""
    known: dict[str, list[str]] = defaultdict(list)
    for name in names:
        known[_key(name)].append(name)
    return {
        spelling: known[_key(spelling)][0]
        for spelling in spellings
        if spelling not in names and len(known.get(_key(spelling), ())) == 1
    }


def _key(label: Label) -> str:
    """What labels have in common that differ only by case, blanks or Unicode's form."""
    seen = re.sub(f"[{NO_WIDTH}]", "", unicodedata.normalize("NFC", str(label)))
    return " ".join(seen.split()).casefold()


def near_misses(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """(rare name, common name) that look like one name misspelt: at most a letter in six apart,
    and twenty times as rare."""
    import difflib

    listed = sorted(counts, key=lambda name: counts[name])
    similar = []
    for place, rare in enumerate(listed):
        common = [name for name in listed[place + 1 :] if counts[name] >= RARE * counts[rare]]
        close = difflib.get_close_matches(rare, common, n=1, cutoff=5 / 6)
        similar += [(rare, name) for name in close]
    return similar
