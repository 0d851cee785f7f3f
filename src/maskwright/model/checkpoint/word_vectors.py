"""word2vec's text format: a line with the numbers of words and of dimensions, then a line per word.

    3 2
    the 0.1 -0.25
    bank 1.5 2
    river 1 0.5

Numbers are written with as many digits as a float32 needs, so that reading gives the same vectors.
Files of GloVe, which have no first line with the numbers, are read, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError, shorten

LONGEST_HEADER = 64
ROWS = 4096  # lines that are read or written at once


@dataclass(frozen=True)
class WordVectors:
    """`vectors` (V, D) float32 of the `words`."""

    words: list[str]
    vectors: NDArray[np.float32]

    def text(self) -> Iterator[bytes]:
        """Yield the content of a file in blocks.

        Raises:
            DataError: a word is empty or has white space in it, which the format cannot hold.
        """
        for word in self.words:
            if word.split() != [word]:
                raise DataError(
                    "the format has no place for such a word",
                    where=repr(word),
                    found="white space, or nothing",
                    wanted="words without white space",
                )
        yield f"{len(self.words)} {self.vectors.shape[1]}\n".encode()
        for begin in range(0, len(self.words), ROWS):
            rows = zip(self.words[begin : begin + ROWS], self.vectors[begin:], strict=False)
            yield "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows).encode()


def read(path: Path) -> WordVectors:
    """Read a file in word2vec's text format.

    Raises:
        DataError: the header, a line or the number of lines is wrong; the message has the line.
    """
    with path.open("rb") as file:
        header = file.readline(LONGEST_HEADER)
        sizes = header.split()
        fix_file, fix_line = "take a whole copy of the file", "correct the line, or remove it"
        if is_headless := len(sizes) > 2:
            file.seek(0)
            width = file.readline().rstrip().count(b" ")
            count = 1 + sum(1 for _ in file)
            file.seek(0)
        elif len(sizes) == 2 and all(size.isdigit() and int(size) for size in sizes):
            count, width = map(int, sizes)
            fix_file += ", or correct its first line"
            fix_line += " and lower the number in line 1"
        else:
            expected = "the numbers of words and of dimensions, such as 400000 300"
            raise _wrong(path, 1, header, expected, fix_file)
        size = path.stat().st_size
        if count * (2 * width + 1) > size:  # a digit and a blank for each number
            fitting = f"a file of {count * (2 * width + 1):,} bytes or more"
            raise _wrong(path, 1, header, f"{fitting}, and this one has {size:,}", fix_file)
        words, vectors = list[str](), np.empty((count, width), np.float32)
        numbers: dict[str, int] = {}
        for number, line in enumerate(file):
            where = number + 2 - is_headless
            word, *values = line.rstrip().split(b" ")
            if number == count:
                raise _wrong(path, where, line, f"{count:,} lines", fix_file)
            if len(values) != width or not word:
                do = fix_line if is_headless else fix_file
                raise _wrong(path, where, line, f"a word and {width} numbers", do)
            try:
                words.append(word.decode())
                vectors[number] = np.array(values, np.float32)
            except ValueError:
                expected = f"a word in UTF-8 and {width} numbers"
                raise _wrong(path, where, line, expected, fix_line) from None
            if not np.isfinite(vectors[number]).all():
                raise _wrong(path, where, line, "finite numbers", fix_line)
            if (earlier := numbers.setdefault(words[-1], where)) != where:
                expected = f"each word once, and line {earlier} has this one"
                raise _wrong(path, where, line, expected, fix_line)
    if len(words) != count:
        raise _wrong(path, len(words) + 1, b"the end of the file", f"{count:,} words", fix_file)
    return WordVectors(words, vectors)


BINARY = re.compile(rb"[\0-\x08]")
PACKED = (b"PK\x03\x04", b"\x1f\x8b")  # zip, gzip


def _wrong(path: Path, line: int, content: bytes, expected: str, do: str) -> DataError:
    if content.startswith(PACKED):
        do = "unpack it"
    elif BINARY.search(content):
        do = "write text, such as with gensim: vectors.save_word2vec_format(FILE, binary=False)"
    return DataError(
        "not word vectors in word2vec's text format",
        where=f"{path}, line {line}",
        found=shorten(content.decode(errors="replace").strip()) or "nothing",
        wanted=expected,
        do=do,
    )
