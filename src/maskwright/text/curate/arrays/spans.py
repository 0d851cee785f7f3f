"""Spans of words and lines: phrases of lists that occur in texts, and what is cut out of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from maskwright.base.errors import DataError, UsageError
from maskwright.text.curate.arrays.hashes import HashTable, is_first
from maskwright.text.curate.arrays.segmentation import Lines, Words, characters_of, words_of
from maskwright.text.curate.step import Change, CurationBatch
from maskwright.text.store import BoolArray, IntArray

LARGEST = 64 << 20  # bytes of a list
SIEVE_BITS = 16
MOST_NAMED = 5  # lines in a record


def read_entries(path: str, setting: str) -> list[tuple[str, int, str]]:
    """Read the distinct entries of a list as (entry, line, `path`), in the order of the file. A
    comment begins with `#` at the beginning of a line or after a blank.

    Args:
        setting: the name of the setting with the path, for messages.

    Raises:
        UsageError: the file does not exist.
        DataError: the file is not UTF-8, larger than `LARGEST` bytes, or has no entries.
    """
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= LARGEST else b""
    except OSError as error:
        raise UsageError(
            "the list cannot be read",
            where=setting,
            found=f"{path}: {error.strerror or error}",
            wanted="a text file with one entry a line",
            do=f"correct the path that `{setting}` names",
        ) from error
    expected = "a text file in UTF-8 with one entry a line"
    if size > LARGEST:
        raise DataError(
            "the list is too large",
            where=path,
            found=f"{size:,} bytes",
            wanted=f"{expected}, of at most {LARGEST:,} bytes",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            "the list is not UTF-8",
            where=f"{path}:{number}",
            found=f"byte 0x{data[error.start]:02x}",
            wanted=expected,
        ) from None
    entry_lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if entry := re.split(r"(?:^\s*|[ \t])#", line, maxsplit=1)[0].strip():
            entry_lines.setdefault(entry, number)
    if not entry_lines:
        raise DataError(
            "the list has no entries", where=path, found="blank lines and comments", wanted=expected
        )
    return [(entry, number, path) for entry, number in entry_lines.items()]


@dataclass(frozen=True)
class Phrases:
    """Phrases by the hashes of their words.

    Attributes:
        texts: the phrases as written in their list.
        by_length: for each length in words, the largest first, the indices in `texts` of the
            phrases of this length, by the hash of their words.
        sieve: (2**16,) whether the first word of a phrase has these lowest bits.
    """

    texts: Sequence[str]
    by_length: Sequence[tuple[int, HashTable]]
    sieve: BoolArray

    def find(self, words: Words) -> tuple[IntArray, IntArray, IntArray]:
        """Find all occurrences, in the order of the words; of phrases that begin at the same word,
        only the longest. Spans are looked up by one hash, whatever the number of phrases.

        Returns:
            Three (N,) arrays: the first and the last word, and the index of the phrase in `texts`.
        """
        begins = np.flatnonzero(self.sieve[words.hashes & np.uint64(len(self.sieve) - 1)])
        words_left = words.starts[words.texts[begins] + 1] - begins
        empty = np.zeros(0, np.int64)
        occurrences = [(empty, empty, empty)]
        for length, table in self.by_length:
            fits = np.flatnonzero(words_left >= length)
            in_table, numbers = table.find(words.spans.of(begins[fits], begins[fits] + length))
            matched = begins[fits[in_table]]
            occurrences.append((matched, matched + length - 1, numbers))
            unmatched = np.ones(len(begins), np.bool_)
            unmatched[fits[in_table]] = False
            begins, words_left = begins[unmatched], words_left[unmatched]
        firsts, lasts, phrases = map(np.concatenate, zip(*occurrences, strict=True))
        order = np.argsort(firsts)
        return firsts[order], lasts[order], phrases[order]


def phrases_of(listed: Sequence[tuple[str, int, str]]) -> Phrases:
    """Build `Phrases` from tuples (text, line, file), without those that are equal but for case;
    raise a DataError for an entry without a word."""
    words = words_of(characters_of([text for text, _, _ in listed]))
    for (text, line, file), count in zip(listed, words.counts, strict=True):
        if not count:
            raise DataError(
                "an entry of a list has no word",
                where=f"{file}:{line}",
                found=repr(text),
                wanted="letters or digits",
                do="take the line out",
            )
    firsts = words.starts[:-1]
    by_length = []
    for length in np.unique(words.counts)[::-1].tolist():
        same_length = np.flatnonzero(words.counts == length)
        hashes = words.spans.of(firsts[same_length], firsts[same_length] + length)
        hashes, first_rows = np.unique(hashes, return_index=True)
        by_length.append((length, HashTable(hashes, same_length[first_rows])))
    sieve = np.zeros(1 << SIEVE_BITS, np.bool_)
    sieve[words.hashes[firsts] & np.uint64(len(sieve) - 1)] = True
    return Phrases([text for text, _, _ in listed], by_length, sieve)


@dataclass(frozen=True)
class Spans:
    """Spans of words, as three arrays, (R,) int64: the index of the text in its batch, the first
    word and the word after the last, both counted from the first word of the text."""

    texts: IntArray
    begins: IntArray
    ends: IntArray


def merge_spans(spans: Spans) -> Spans:
    """Merge spans that overlap or touch. Return the merged spans in order."""
    if not len(spans.texts):
        return spans
    order = np.lexsort((spans.begins, spans.texts))
    texts, begins, ends = spans.texts[order], spans.begins[order], spans.ends[order]
    # Offsets that separate the texts on one number line, so that one running maximum serves all.
    base = np.cumsum(is_first(texts)) * (int(ends.max()) + 2)
    maxima = np.maximum.accumulate(base + ends)
    opens = np.concatenate([[True], base[1:] + begins[1:] > maxima[:-1]])
    firsts = np.flatnonzero(opens)
    lasts = np.append(firsts[1:], len(texts)) - 1
    return Spans(texts[firsts], begins[firsts], maxima[lasts] - base[firsts])


def character_ranges(words: Words, spans: Spans) -> list[str]:
    """Return the range of characters of each span, in words."""
    firsts = words.starts[spans.texts] + spans.begins
    lasts = words.starts[spans.texts] + spans.ends - 1
    edges = zip(words.begins[firsts].tolist(), words.ends[lasts].tolist(), strict=True)
    return [f"characters {begin} to {end}" for begin, end in edges]


def cut_spans(batch: CurationBatch, spans: Spans) -> list[str]:
    """Cut the words of merged spans out of the texts of a batch. Return all B texts.

    Characters between a span and the next remaining word (a full stop, a blank) are cut as well; of
    the line breaks on both sides, the larger gap is kept.
    """
    words = batch.words
    first_words = words.starts[spans.texts] + spans.begins
    last_words = words.starts[spans.texts] + spans.ends - 1
    begins, ends = words.begins[first_words].tolist(), words.ends[last_words].tolist()
    pieces: dict[int, list[str]] = {}  # by text: the remaining pieces before the current span
    gap_ends: dict[int, int] = {}  # by text: the end of the gap after the last span
    for row, index in enumerate(spans.texts.tolist()):
        text = batch.texts[index]
        next_word = int(last_words[row]) + 1
        gap_end = int(words.begins[next_word]) if next_word < words.starts[index + 1] else len(text)
        before = text[gap_ends.get(index, 0) : begins[row]]
        stripped, removed = before.rstrip(), text[ends[row] : gap_end]
        removed_gap = removed[len(removed.rstrip()) :]
        if removed_gap.count("\n") > before.count("\n", len(stripped)):
            before = stripped + removed_gap
        pieces.setdefault(index, []).append(before)
        gap_ends[index] = gap_end
    texts = list(batch.texts)
    for index, remaining in pieces.items():
        texts[index] = "".join(remaining) + texts[index][gap_ends[index] :]
    return texts


def remove_lines(texts: Sequence[str], lines: Lines, cut: BoolArray) -> list[str]:
    """Remove the lines where `cut`, (L,), is true. Return all B texts.

    Blank lines are removed at both ends of a text; a gap has no more than there were before it.
    """
    shortened = list(texts)
    for index in np.unique(lines.texts[cut]).tolist():
        line_range = slice(lines.starts[index], lines.starts[index + 1])
        cut_numbers = set(lines.numbers[line_range][cut[line_range]].tolist())
        rows = texts[index].split("\n")
        remaining: list[str] = []
        blanks, behind_cut = 0, True  # since the last remaining line
        for number, row in enumerate(rows):
            if number in cut_numbers:
                behind_cut = True
            elif row.strip():
                remaining += [*[""] * blanks, row] if remaining else [row]
                blanks, behind_cut = 0, False
            elif not (behind_cut and blanks):
                blanks += 1
        shortened[index] = "\n".join(remaining)
    return shortened


def line_changes(lines: Lines, rule: str, cut: BoolArray) -> list[Change]:
    """Return a change for each text that loses lines: how many, and which, numbered from 1."""
    if not cut.any():
        return []
    changes = []
    cut_lines = np.flatnonzero(cut)
    texts, first_lines = np.unique(lines.texts[cut_lines], return_index=True)
    for text, text_lines in zip(texts.tolist(), np.split(cut_lines, first_lines[1:]), strict=True):
        numbers = (lines.numbers[text_lines] + 1).tolist()
        listed = ", ".join(str(n) for n in numbers[:MOST_NAMED])
        more = len(numbers) - MOST_NAMED
        where = f"line {listed}" if len(numbers) == 1 else f"lines {listed}"
        where += f" and {more} more" if more > 0 else ""
        changes.append(Change(text, rule, len(numbers), where))
    return changes
