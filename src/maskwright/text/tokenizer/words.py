"""Splitting of text into words for training, and tables of tokens that start or end words.

For training, texts are split by regular expressions that are equivalent to the pipelines in
`pipeline.py` (a test compares them) and ten times as fast.

One table of tokens cannot tell where words begin: `</w>` marks ends, and a letter after a comma
begins a word without a mark. Two tables can, for all kinds: *a word begins at a token that starts
one, and after a token that ends one.*

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
    """Return the body of a character class: punctuation, and numbers if digits are words."""
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
    """Return the pattern of BERT's words: runs without punctuation, and punctuation marks."""
    marks = isolated(single_digits)
    return re.compile(f"[{marks}]|[^{marks}]+")


@functools.cache
def spaced_pattern(single_digits: bool) -> re.Pattern[str]:
    """Return the pattern of words with `▁` for the space before them, and runs of punctuation."""
    marks = isolated(False)
    if not single_digits:
        return re.compile(f"▁[^▁{marks}]*|[^▁{marks}]+|[{marks}]+")
    standalone = isolated(True)
    return re.compile(
        f"(?![{marks}])[{standalone}]|▁[^▁{standalone}]*|[^▁{standalone}]+|[{marks}]+"
    )


def chunks(text: str, spaced: bool) -> list[str]:
    """Split normalised `text` at spaces, which is fast; chunks are counted first.

    Args:
        spaced: whether a space is part of the chunk after it, as `▁` (Unigram).
    """
    if not spaced:
        return text.split()
    if not text:
        return []
    return [SPACE + chunk for chunk in text.removeprefix(" ").split(" ")]


def words_of(chunk: str, spaced: bool, single_digits: bool) -> list[str]:
    """Split a chunk into words like the pipeline of the kind."""
    pattern = spaced_pattern(single_digits) if spaced else word_pattern(single_digits)
    return pattern.findall(chunk)


# ------------------------------------------------------------------------------ tables by id
@dataclass(frozen=True)
class Marks:
    """The marks of edges of words in a vocabulary; empty if not used."""

    continuation: str = ""
    suffix: str = ""
    space: str = ""
    byte_level: bool = False


def word_tables(
    tokens: Sequence[str], marks: Marks, special: Collection[int], unknown: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return (starts, ends), two boolean tables by id; see the module's docstring.

    Special tokens are words. The unknown token is a word in WordPiece and a piece of a word in
    other kinds.
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
    """Return where words begin in `tokens` (..., T): at a token that `starts` one, after a token
    that `ends` one, and where the text is `fresh`, without left context."""
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
    """Return whether a character is part of words; incomplete characters are."""
    if character.isalnum() or character == "\ufffd":
        return True
    return unicodedata.category(character)[0] == "M"


@functools.cache
def byte_alphabet() -> dict[str, int]:
    """Return GPT-2's mapping of printable characters to the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(unprintable)}


@functools.cache
def _byte_characters() -> dict[int, str]:
    return {byte: character for character, byte in byte_alphabet().items()}


def spell_bytes(text: str) -> str:
    """Return the UTF-8 bytes of `text` in GPT-2's spelling; the inverse of `bytes_of`."""
    return "".join(_byte_characters()[byte] for byte in text.encode())


def bytes_of(token: str) -> bytes:
    """Return the bytes of a byte-level token."""
    alphabet = byte_alphabet()
    if all(c in alphabet for c in token):
        return bytes(alphabet[c] for c in token)
    return token.encode()
