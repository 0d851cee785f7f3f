"""One way to write the same text: Unicode form, line ends, spaces, control characters, encoding.

    mojibake      lines that were decoded with the wrong encoding, repaired by ftfy
    quotes        curly quotation marks made straight (off)
    references    character references, `&amp;`, made characters (off)
    line-ends     CR LF, CR, and the separators of Unicode made LF
    spaces        no-break and other typographic spaces made spaces
    invisible     byte order marks, soft hyphens and zero-width spaces removed
    controls      control characters but tabulators and line ends removed
    form          normalisation form NFC
    blank-lines   rows of blank lines shortened

The number of changes (for `mojibake`, `quotes`, `references` and `form`: of changed lines) is
recorded. Joiners, direction marks and the ideographic space belong to their scripts and are kept.

UTF-8 that was decoded with a single-byte encoding leaves a trace: the character of a leading byte,
followed by those of its continuation bytes. ftfy's detection of mojibake is slow and sees only
texts with this trace or with C1 control characters. A line that ftfy detects is repaired only if
the whole line can be decoded again, since a wrong encoding affects every letter of a line, and only
if it has a trace that is not also correct text: `Ã…` begins `Ã…lesund`, and ends `IRMÃ…`.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.catalogue import require_packages
from maskwright.text.curate.arrays.segmentation import Characters, characters_of
from maskwright.text.curate.step import Change, CurationBatch, Outcome, Step
from maskwright.text.store import BoolArray, IntArray

SUMMARY = "Unicode form, line ends, spaces, control characters, wrong encodings, blank lines"
LINE_ENDS = "\r\v\f\x85\u2028\u2029"
SPACES = "\u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u202f\u205f"
INVISIBLE = "\u00ad\ufeff\u200b"
# Scripts without spaces, in which the zero-width space parts words.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
CONTROLS = "".join(chr(c) for c in [*range(0x20), 0x7F, *range(0x80, 0xA0)])
CONTROLS = "".join(c for c in CONTROLS if c not in LINE_ENDS + "\t\n")
NONCHARACTERS = "".join(map(chr, [*range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF]))
# Of each rule the characters that are replaced, and by what.
RULES = {
    "line-ends": dict.fromkeys(LINE_ENDS, "\n"),
    "spaces": dict.fromkeys(SPACES, " "),
    "invisible": dict.fromkeys(INVISIBLE, ""),
    "controls": dict.fromkeys(CONTROLS + NONCHARACTERS, ""),
}
# Contexts in which a character is removed; `Ã` with a soft hyphen may be a wrongly decoded `í`.
PLACES = {
    "\u200b": re.compile(rf"\u200b(?:(?<![{UNSPACED}]\u200b)|(?![{UNSPACED}]))"),
    "\u00ad": re.compile("\u00ad(?:(?<![ÂÃ]\u00ad)|(?=\\w))"),
}

# The encodings that ftfy repairs; undefined bytes of the Windows ones are C1 control characters.
ENCODINGS = (
    *("latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso8859-2"),
    *("mac-roman", "cp437"),
)
LEAD, FOLLOWS = (1, 2, 4), 8  # bits: lead bytes of sequences of 2, 3, 4; a continuation byte
C1 = 16
LOST = "\ufffd"
# A closing quotation mark whose last byte, undefined in Windows-1252, was lost.
CLOSING = ("â€" + LOST, "”")
# A capital letter before a space or a sign, which is correct at the end of a word in capitals, or
# as a single letter: not after a small letter or a digit, nor before a sign that begins a word.
SIGNS = "\u00ad…‘’‚“”„–—™®©°«»´·¨¿¡²³¹±†‡"
AMBIGUOUS = re.compile(
    rf"(?!Â[®©°])(?:(?<![a-zß-öø-ÿ0-9.,;:!?)])[À-ÖØ-Þ](?:[ \u00a0]|[{SIGNS}](?![a-zß-öø-ÿ]))|"
    rf"(?<=[A-ZÀ-ÖØ-Þ])[À-ÖØ-Þ][{SIGNS}])"
)
# Wrongly decoded quotation marks and dashes, which no correct text contains.
PUNCTUATION = re.compile("â€.")


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    CHANGES_TEXT: ClassVar[bool] = True

    form: Literal["NFC", "NFKC", "as-is"] = "NFC"
    """Unicode normalisation form. NFKC also makes `ﬁ` and full-width letters plain ones."""
    mojibake: bool = True
    """Whether lines that were decoded with the wrong encoding are repaired, by ftfy."""
    line_ends: bool = True
    """Whether all line ends become line feeds."""
    spaces: bool = True
    """Whether typographic spaces become plain ones."""
    invisible: bool = True
    """Whether byte order marks, soft hyphens and zero-width spaces (but for scripts that part words
    with them) are removed."""
    controls: bool = True
    """Whether control characters are removed."""
    blank_lines: int = 1
    """Most blank lines in a row; -1: any number."""
    quotes: bool = False
    """Whether curly quotation marks become straight ones."""
    references: bool = False
    """Whether character references (`&amp;`) become characters, also in texts about them. The step
    `html` is more careful."""

    def check(self) -> None:
        if self.blank_lines != -1:
            self.check_counts("blank_lines")
        if repairs := [n for n in ("mojibake", "quotes", "references") if getattr(self, n)]:
            off = " ".join(f"--set normalise.{name}=false" for name in repairs)
            require_packages("repairing text", "ftfy", where="normalise", otherwise=f"; or {off}")

    def wordless(self) -> Collection[str]:
        return {*RULES, "blank-lines", *(("form",) if self.form == "NFC" else ())}

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        texts, changes = list(batch.texts), []
        characters = batch.characters
        suspicious = find_suspicious(characters)
        for index in np.flatnonzero(suspicious).tolist() if self.mojibake else ():
            texts[index], numbers = repair(texts[index])
            if numbers:
                where = f"line {numbers[0]}" + (" and further" if len(numbers) > 1 else "")
                changes.append(Change(index, "mojibake", len(numbers), where))
        if changes:
            characters = characters_of(texts)
        if self.quotes or self.references:
            texts = [self._plain_marks(index, text, changes) for index, text in enumerate(texts)]
            characters = characters_of(texts)
        rules = {rule: RULES[rule] for rule in RULES if getattr(self, rule.replace("-", "_"))}
        for index, present in _texts_with(characters, {c for rule in rules.values() for c in rule}):
            texts[index] = _replace(index, texts[index], rules, present, changes)
        for index, text in enumerate(texts):
            if self.form != "as-is" and not unicodedata.is_normalized(self.form, text):
                rows = text.split("\n")
                changed_rows = sum(not unicodedata.is_normalized(self.form, row) for row in rows)
                changes.append(Change(index, "form", changed_rows))
                text = unicodedata.normalize(self.form, text)
            if self.blank_lines >= 0 and ("\n\n" in text or "\n " in text or "\n\t" in text):
                text = self._shortened(index, text, changes)
            texts[index] = text
        return Outcome(texts=texts if changes else None, changes=changes)

    def _shortened(self, index: int, text: str, changes: list[Change]) -> str:
        rows = text.split("\n")
        remaining: list[str] = []
        blank = 0
        for row in rows:
            blank = 0 if row.strip() else blank + 1
            if blank <= self.blank_lines:
                remaining.append(row)
        if len(remaining) < len(rows):
            changes.append(Change(index, "blank-lines", len(rows) - len(remaining)))
        return "\n".join(remaining)

    def _plain_marks(self, index: int, text: str, changes: list[Change]) -> str:
        from ftfy import fixes

        for rule, fix in (("quotes", fixes.uncurl_quotes), ("references", fixes.unescape_html)):
            better = fix(text) if getattr(self, rule) else text
            if better != text:
                rows = zip(text.split("\n"), better.split("\n"), strict=False)
                changes.append(Change(index, rule, sum(old != new for old, new in rows)))
                text = better
        return text


def _texts_with(characters: Characters, sought: set[str]) -> Iterator[tuple[int, set[str]]]:
    """Yield (index, characters) for texts with any of `sought`; characters: those in the batch."""
    table = np.zeros(sys.maxunicode + 1, np.bool_)
    table[[ord(c) for c in sought]] = True
    chosen = table[characters.points]
    chosen[characters.offsets[1:] - 1] = False  # the line ends between the texts
    present = set(map(chr, np.unique(characters.points[chosen]).tolist()))
    for index in np.flatnonzero(characters.count(chosen)).tolist():
        yield index, present


def _replace(
    index: int,
    text: str,
    rules: Mapping[str, Mapping[str, str]],
    present: set[str],
    changes: list[Change],
) -> str:
    """Replace characters by rule and record changes; `str.translate` takes 20 times as long."""
    for rule, table in rules.items():
        before, count = text, 0
        for character in sorted(present & table.keys()):
            if character == "\r":
                count += text.count("\r\n")
                text = text.replace("\r\n", "\n")
            if character in PLACES:
                text, removed = PLACES[character].subn("", text)
                count += removed
            else:
                count += text.count(character)
                text = text.replace(character, table[character])
        if text != before:
            changes.append(Change(index, rule, count))
    return text


# ------------------------------------------------------------------------------ mojibake
def find_suspicious(characters: Characters) -> BoolArray:
    """Return (B,) whether each text has a trace of a wrong encoding."""
    positions = np.flatnonzero(characters.points >= 0x80)
    is_suspicious = np.zeros(len(characters.offsets) - 1, np.bool_)
    if not positions.size:
        return is_suspicious
    bits = _bits()[np.minimum(characters.points[positions], 0xFFFF)]
    hits = positions[_traces(positions, bits)]
    is_suspicious[characters.text_of(hits)] = True
    return is_suspicious


def repair(text: str) -> tuple[str, Sequence[int]]:
    """Repair wrongly decoded lines. Return the text, and the numbers of these lines, from 1."""
    from ftfy import TextFixerConfig, fix_encoding
    from ftfy.badness import is_bad

    config = TextFixerConfig(decode_inconsistent_utf8=False)
    rows, numbers = text.split("\n"), []
    for number, row in enumerate(rows):
        if row.isascii() or not is_bad(row) or AMBIGUOUS.sub("", row).isascii():
            continue
        closed = row.replace(*CLOSING)
        better = fix_encoding(closed, config)
        if better == closed:
            better = PUNCTUATION.sub(lambda match: fix_encoding(match[0]), closed)
        if better != row:
            rows[number] = better
            numbers.append(number + 1)
    return "\n".join(rows), numbers


def _traces(positions: IntArray, bits: NDArray[np.uint8]) -> BoolArray:
    """Return (P,) whether each ascending position of a character, with its bits of `_bits`, has a
    C1 character or begins a sequence of UTF-8 bytes."""
    is_trace = (bits & C1) != 0
    continues = (bits & FOLLOWS) != 0
    complete = np.ones(len(positions), np.bool_)
    for more, bit in enumerate(LEAD, 1):
        # The character `more` positions later must be a continuation byte.
        shifted = np.zeros(len(positions), np.bool_)
        shifted[:-more] = continues[more:] & (positions[more:] - positions[:-more] == more)
        complete &= shifted
        is_trace |= ((bits & bit) != 0) & complete
    return is_trace


@functools.cache
def _bits() -> NDArray[np.uint8]:
    """Return, for each code point below 0x10000, the kinds of UTF-8 bytes that it may represent."""
    bits = np.zeros(0x10000, np.uint8)
    for encoding in ENCODINGS:
        for byte in range(0x80, 0xF5):
            try:
                point = ord(bytes([byte]).decode(encoding))
            except UnicodeDecodeError:
                point = byte
            if byte < 0xC0:
                bits[point] |= FOLLOWS
            elif byte >= 0xC2:
                bits[point] |= LEAD[0 if byte < 0xE0 else 1 if byte < 0xF0 else 2]
    bits[0x80:0xA0] |= C1
    bits[ord(LOST)] |= FOLLOWS
    return bits
