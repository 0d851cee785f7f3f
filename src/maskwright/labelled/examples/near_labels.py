"""Labels that nearly agree.

One value in several spellings is refused, because it is nearly always a slip; `fold` joins them.
Rare labels a letter or two from a common one are findings.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal

from maskwright.counted import counted
from maskwright.errors import DataError
from maskwright.labelled.columns.contents import NO_WIDTH, NUMBER
from maskwright.labelled.columns.flags import WORDS
from maskwright.labelled.examples.cell import Label
from maskwright.labelled.formats.rows import Row

RARE = 20
LONGEST_NUMBER = 40
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:[,.' _]\d{3})+")
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
# Blanks and hyphens within names, and before units.
JOINTS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=\w)|(?<=\w)[\s_-]+(?=[^\W\d_])|\s(?=[%°€$])")
# Yes and no in full, and what they are where numbers stand for them.
IN_FULL = {"true", "false", *(word for word in WORDS if len(word) > 1)}
AS_NUMBERS = {"true": "number 1", "yes": "number 1", "false": "number 0", "no": "number 0"}
Keys = Callable[[str], set[str]]


def near_spellings(
    counts: Counter[Label],
    rows: Mapping[Label, Row],
    column: str,
    fold: bool,
    also: Keys = lambda label: set(),
) -> dict[str, str]:
    """Spelling -> the commonest of those that mean the same.

    Args:
        also: further meanings of a label, beside `meanings`.

    Raises:
        DataError: there are such labels, and `fold` does not join them.
    """
    folded: dict[str, str] = {}
    labels = list(map(str, counts))
    for group in sharing(meanings(label) | also(label) for label in labels):
        spellings = [labels[place] for place in group]
        common, *others = sorted(spellings, key=lambda s: (-counts[s], s))
        if not others:
            continue
        if not fold:
            rare = others[-1]
            # Two forms of one letter look alike: they are shown by their code points.
            forms = len({unicodedata.normalize("NFC", s) for s in spellings}) < len(spellings)
            quoted = ascii if forms else repr
            what = "labels that seem to be one value in several spellings"
            if forms:
                what = "labels that differ only by the form of their letters (Unicode)"
            elif len(set(map(_plain, spellings))) == 1:
                what = "labels that differ only by case or blanks"
            raise DataError(
                what,
                where=f"{rows[rare].where}, column {column!r}",
                found=", ".join(
                    f"{quoted(s)} ({counted(counts[s], 'row')})" for s in (common, *others)
                ),
                wanted=f"one spelling, such as {quoted(common)}",
                do="correct the rows, or join the spellings (--read fold_labels=true)"
                + ", or write all spans alike (--read repair_tags=true)" * bool(also(rare)),
            )
        folded |= dict.fromkeys(others, common)
    return folded


def sharing(keys: Iterable[Iterable[Hashable]]) -> list[list[int]]:
    """The places in `keys`, in groups: those that have a key in common are in one."""
    parent: list[int] = []

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[Hashable, int] = {}
    for i, own in enumerate(keys):
        parent.append(i)
        for key in own:
            a, b = root(first.setdefault(key, i)), root(i)
            parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = defaultdict(list)
    for i in range(len(parent)):
        groups[root(i)].append(i)
    return list(groups.values())


def meanings(label: str) -> set[str]:
    """What a label may mean; two that share a meaning may be one value in two spellings: `Good` and
    `good`, 01 and 1, 1,000 and 1000, `true` and 1, `y` and `yes`."""
    text = _plain(label)
    keys = {text}
    if NUMBER.fullmatch(text) and len(text) <= LONGEST_NUMBER:
        keys.add(_number(text))
    if THOUSANDS.fullmatch(text):
        keys.add(_number(re.sub(r"[^\d+-]", "", text)))
    if DECIMAL_COMMA.fullmatch(text):
        keys.add(_number(text.replace(",", ".")))
    without_accents = "".join(
        sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign)
    )
    if {text, without_accents} & IN_FULL:
        keys |= {without_accents, AS_NUMBERS.get(text, text)}
    if len(text) == 1:
        keys |= {word for word in IN_FULL if word[0] == text}
    return keys


def _number(text: str) -> str:
    value = Decimal(text).normalize()
    return f"number {value if value else 0}"


def fold_onto(names: Sequence[str], spellings: Iterable[str]) -> dict[str, str]:
    """Spelling -> the only one of `names` that may mean the same."""
    known: dict[str, set[str]] = defaultdict(set)
    for name in names:
        for key in meanings(name):
            known[key].add(name)
    folded: dict[str, str] = {}
    for spelling in spellings:
        same = set().union(*(known.get(key, set()) for key in meanings(spelling)))
        if spelling not in names and len(same) == 1:
            folded[spelling] = same.pop()
    return folded


def _plain(label: str) -> str:
    """What labels have in common that differ only by case, blanks or hyphens between words, or
    Unicode's form."""
    seen = re.sub(f"[{NO_WIDTH}]", "", unicodedata.normalize("NFKC", label))
    return JOINTS.sub("", " ".join(seen.split()).casefold())


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
