"""Lines that were decoded with the wrong encoding, found fast and repaired by ftfy.

UTF-8 that was decoded with a single-byte encoding leaves a trace: the character of a leading byte,
followed by those of its continuation bytes. ftfy's detection of mojibake is slow and sees only
texts with this trace or with C1 control characters.

A line that ftfy detects is repaired only if the whole line can be decoded again, since a wrong
encoding affects every letter of a line, and only if it has a trace that is not also correct text:
`Ã…` begins `Ã…lesund`, and ends `IRMÃ…`. Other lines stay as they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.characters import Characters

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


def find_suspicious(characters: Characters) -> NDArray[np.bool_]:
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


def _traces(positions: NDArray[np.int64], bits: NDArray[np.uint8]) -> NDArray[np.bool_]:
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
