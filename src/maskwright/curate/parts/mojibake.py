"""Lines that were decoded with the wrong encoding, found fast and repaired by ftfy.

UTF-8 that was read as one of the encodings of a byte for each character has a trace: a character of
a leading byte and those of its following bytes behind it. Only lines with this trace, or with C1
control characters, are shown to ftfy's judgement of what is mojibake, which is slow, and only those
that it finds bad are changed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from maskwright.curate.parts.characters import Characters
from maskwright.errors import UsageError

# The encodings that ftfy knows. Python reads the Windows ones without their undefined bytes, which
# decode to the C1 control characters of Latin 1.
ENCODINGS = (
    *("latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso8859-2"),
    *("mac-roman", "cp437"),
)
LEAD, FOLLOWS = (1, 2, 4), 8  # bits: leading bytes of two, three and four; a following byte
C1 = 16
LOST = "\ufffd"
# A quotation mark whose last byte, undefined in Windows-1252, was lost.
CLOSING = ("â€" + LOST, "”")


def require() -> None:
    """Refuse where ftfy is missing.

    Raises:
        UsageError: with the command that installs it.
    """
    try:
        import ftfy  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "repairing encodings needs the package ftfy",
            found=error,
            do="pip install 'maskwright[curate]', or set normalise.mojibake=false",
        ) from error


def suspicious(characters: Characters) -> NDArray[np.bool_]:
    """(B,) whether a text has the trace of a wrong encoding."""
    places = np.flatnonzero(characters.points >= 0x80)
    found = np.zeros(len(characters.offsets) - 1, np.bool_)
    if not places.size:
        return found
    points = characters.points
    bits = _bits()[np.minimum(points[places], 0xFFFF)]
    hits = places[_traces(points, places, bits)]
    found[characters.text_of(hits)] = True
    return found


def repaired(text: str) -> tuple[str, Sequence[int]]:
    """The text with its bad lines repaired, and the numbers of these lines, from 1."""
    import ftfy
    from ftfy.badness import is_bad

    rows, numbers = text.split("\n"), []
    for number, row in enumerate(rows):
        if row.isascii() or not is_bad(row):
            continue
        better = ftfy.fix_encoding(row.replace(*CLOSING))
        if better != row:
            rows[number] = better
            numbers.append(number + 1)
    return "\n".join(rows), numbers


def _traces(
    points: NDArray[np.uint32], places: NDArray[np.int64], bits: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Whether at each place a C1 character stands, or a leading byte and all that follow it."""
    found = (bits & C1) != 0
    follows = (bits & FOLLOWS) != 0
    row = np.ones(len(places), np.bool_)
    for more, bit in enumerate(LEAD, 1):
        # The next one more character behind must follow too, and be there.
        shifted = np.zeros(len(places), np.bool_)
        shifted[:-more] = follows[more:] & (places[more:] - places[:-more] == more)
        row &= shifted
        found |= ((bits & bit) != 0) & row
    # `à` as UTF-8 ends in a no-break space, which many make a plain one.
    behind = points[np.minimum(places + 1, len(points) - 1)]
    return found | ((points[places] == 0xC3) & (behind == 0x20))


@functools.cache
def _bits() -> NDArray[np.uint8]:
    """Of the code points below 0x10000 what they may be a byte of."""
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
