"""Where words begin: the cut before training, and the tables by id after it.

For training the text is cut by regular expressions that say the same as the pipelines in
`pipeline.py` (a test compares them); Python's are used because they count ten times as fast as
calling the pipeline for each text.

A token table alone cannot say where words begin: `</w>` marks ends, and a letter after a comma
begins a word without any mark. So there are two tables, and together they are right for all kinds:
*a word begins at a token that starts one, and after a token that ends one.*

                 starts                         ends
    ##           all without ##                 none
    </w>         none                           all with </w>
    Ġ, ▁, char   led by space or punctuation    closed by punctuation
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ASCII_SYMBOLS = "$+<=>^`|~"  # punctuation to BERT, symbols to Unicode
SPACE = "▁"


@functools.cache
def isolated(single_digits: bool) -> str:
    """The body of a character class: punctuation, and numbers where digits stand alone."""
    categories = "PN" if single_digits else "P"
    points = [
        point
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point))[0] in categories or chr(point) in ASCII_SYMBOLS
    ]
    ranges, range_start = [], points[0]
    for before, point in zip(points, [*points[1:], -1], strict=True):
        if point != before + 1:
            ranges.append(f"\\U{range_start:08x}-\\U{before:08x}")
            range_start = point
    return "".join(ranges)


@functools.cache
def word_pattern(single_digits: bool) -> re.Pattern[str]:
    """Words as BERT cuts them: runs without space and punctuation, and each punctuation mark."""
    marks = isolated(single_digits)
    return re.compile(f"[{marks}]|[^{marks}]+")


@functools.cache
def spaced_pattern(single_digits: bool) -> re.Pattern[str]:
    """Words with `▁` for the space before them; punctuation in runs of its own."""
    marks = isolated(False)
    if not single_digits:
        return re.compile(f"▁[^▁{marks}]*|[^▁{marks}]+|[{marks}]+")
    standalone = isolated(True)
    return re.compile(
        f"(?![{marks}])[{standalone}]|▁[^▁{standalone}]*|[^▁{standalone}]+|[{marks}]+"
    )


def chunks(text: str, spaced: bool) -> list[str]:
    """Normalised `text` between its spaces: what is counted first, being quick to cut.

    Args:
        text: one text.
        spaced: whether a space belongs to the chunk after it, as `▁` (Unigram).
    """
    if not spaced:
        return text.split()
    if not text:
        return []
    return [SPACE + chunk for chunk in text.removeprefix(" ").split(" ")]


def words_of(chunk: str, spaced: bool, single_digits: bool) -> list[str]:
    """The words of a chunk, as the pipeline of the kind cuts it."""
    pattern = spaced_pattern(single_digits) if spaced else word_pattern(single_digits)
    return pattern.findall(chunk)


# ------------------------------------------------------------------------------ tables by id
@dataclass(frozen=True)
class Marks:
    """How a vocabulary spells the edges of words; empty where it does not."""

    continuation: str = ""
    suffix: str = ""
    space: str = ""
    byte_level: bool = False


def word_tables(
    tokens: Sequence[str], marks: Marks, special: Collection[int], unknown: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends): two tables of booleans by id; see the module's first lines.

    Special tokens are words of their own. The unknown token is a whole word to WordPiece and a
    piece within a word to the others.
    """
    edges = [_edges(token, marks) for token in tokens]
    starts = np.array([edge[0] for edge in edges], dtype=bool)
    ends = np.array([edge[1] for edge in edges], dtype=bool)
    for number in special:
        starts[number] = ends[number] = number != unknown or bool(marks.continuation)
    return starts, ends


def begins_word(
    tokens: NDArray[np.integer],
    fresh: NDArray[np.bool_],
    starts: NDArray[np.bool_],
    ends: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Where words begin in `tokens` (..., T): at a token that `starts` one, after a token that
    `ends` one, and wherever the text is `fresh`, cut off from what stands before it."""
    word_begins = starts[tokens] | fresh
    word_begins[..., 1:] |= ends[tokens[..., :-1]]
    return np.asarray(word_begins)


def _edges(token: str, marks: Marks) -> tuple[bool, bool]:
    if marks.continuation:
        return not (token.startswith(marks.continuation) and token != marks.continuation), False
    if marks.suffix:
        return False, token.endswith(marks.suffix)
    text = token
    if marks.byte_level:
        text = bytes_of(token).decode(errors="replace")
    elif marks.space:
        text = token.replace(marks.space, " ")
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return False, False
    return not _inside(text[0]), not _inside(text[-1]) and not text[-1].isspace()


def _inside(character: str) -> bool:
    """Whether a character stands inside words; what is not decodable yet does."""
    if character.isalnum() or character == "\ufffd":
        return True
    return unicodedata.category(character)[0] == "M"


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of the 256 bytes as printable characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(unprintable)}


@functools.cache
def _byte_characters() -> dict[int, str]:
    return {byte: character for character, byte in byte_alphabet().items()}


def spell_bytes(text: str) -> str:
    """The UTF-8 bytes of `text` as GPT-2 spells them: the reverse of `bytes_of`."""
    return "".join(_byte_characters()[byte] for byte in text.encode())


def bytes_of(token: str) -> bytes:
    """The bytes that a byte-level token stands for."""
    alphabet = byte_alphabet()
    if all(c in alphabet for c in token):
        return bytes(alphabet[c] for c in token)
    return token.encode()
