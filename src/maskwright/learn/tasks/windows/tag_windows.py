"""Convert tagged words to windows of tokens with labels, and predictions back to tags of words.

    words    Kalomi           sat    in  ␁      Po
    tokens   Ka   ##lo ##mi   sat    in         Po
    labels   B-P  -    -      O      O          B-L        - is IGNORE

Only the first token of a word has a label (Devlin et al. 2019, section 5.3). A word has no token if
the tokenizer removes it, or if it begins inside a token (such as `not` of "cannot", if the text of
the sentence is known); such words are counted. Long sentences are divided into overlapping windows;
a word is labelled, and later predicted, only in the window where its first token is central.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, near
from maskwright.learn.tasks.windows.answers import IGNORE
from maskwright.learn.tasks.windows.offsets import inked
from maskwright.learn.tasks.windows.windows import central, padded, room_of, windows
from maskwright.text.tables.formats.conll import Sentence
from maskwright.text.tables.raw_text import encode
from maskwright.text.tables.tags import OUTSIDE
from maskwright.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagCounts:
    """Statistics of the encoding; `dropped` is the number of words without a token."""

    sentences: int
    words: int
    dropped: int
    windows: int
    divided: int

    def render(self) -> str:
        return (
            f"{counted(self.words, 'word')} of {counted(self.sentences, 'sentence')} in "
            f"{counted(self.windows, 'window')}; without a token: {counted(self.dropped, 'word')}, "
            f"divided: {counted(self.divided, 'sentence')}"
        )


@dataclass(frozen=True)
class TagRows:
    """A batch of windows; T is the length of the longest.

    windows  (B,)   int64   indices of the windows
    tokens   (B, T) int64   padded at the end
    segments (B, T) int64
    real     (B, T) bool    not padding
    words    (B, T) int64   index, over all sentences, of the word labelled at this token, or -1
    labels   (B, T) int64   its label, else IGNORE
    """

    windows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    segments: NDArray[np.int64]
    real: NDArray[np.bool_]
    words: NDArray[np.int64]
    labels: NDArray[np.int64]


class TagWindows:
    """Sentences as a sequence of windows of at most `length` tokens.

    Attributes:
        sentences, labels: as passed.
        sentence_of: (W,) index of each window's sentence.
        counts: statistics of the encoding.

    Raises:
        ConfigError: no room for a token, or a stride below 1.
        DataError: a tag is not among the labels.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sentences: Sequence[Sentence],
        labels: Sequence[str],
        *,
        length: int = 256,
        stride: int = 128,
    ) -> None:
        self.sentences, self.labels = tuple(sentences), tuple(labels)
        self._tokenizer = tokenizer
        self._margin = tokenizer.frame_margins()[0]
        sizes = [len(sentence.words) for sentence in self.sentences]
        self._origin = np.cumsum([0, *sizes])
        self._wanted = self._numbers()
        encoded = encode(tokenizer, (s.text for s in self.sentences))
        self._ids = [ids for ids, _ in encoded]
        room = room_of(tokenizer, length)
        window_spans = [np.zeros((0, 3), np.int64)]
        self._words: list[NDArray[np.int64]] = []  # by window, then by token
        dropped = 0
        for number, (sentence, (ids, raw)) in enumerate(zip(self.sentences, encoded, strict=True)):
            word_tokens = first_tokens(sentence, raw)
            dropped += int((word_tokens < 0).sum())
            if sentence.tags is not None:  # words without a tag are ignored
                has_tag = self._wanted[self._origin[number] : self._origin[number + 1]] != IGNORE
                word_tokens = np.where(has_tag, word_tokens, -1)
            divided = windows(len(ids), room, min(stride, max(1, room)))
            window_spans.append(np.insert(divided, 0, number, axis=1))
            self._words += self._owned(number, word_tokens, divided)
        self.sentence_of, self._first, self._stop = np.concatenate(window_spans).T
        self.counts = TagCounts(
            sentences=len(self.sentences),
            words=int(self._origin[-1]),
            dropped=dropped,
            windows=len(self),
            divided=int((np.bincount(self.sentence_of, minlength=1) > 1).sum()),
        )

    def __len__(self) -> int:
        return len(self.sentence_of)

    def rows(self, indices: NDArray[np.integer] | Sequence[int]) -> TagRows:
        """Return the windows with these `indices`, in that order."""
        numbers = np.asarray(indices, np.int64)
        framed, words = [], []
        for number in numbers.tolist():
            ids = self._ids[self.sentence_of[number]][self._first[number] : self._stop[number]]
            framed.append(self._tokenizer.frame(ids.tolist()))
            row = np.full(len(framed[-1][0]), -1, np.int64)
            row[self._margin : self._margin + len(ids)] = self._words[number]
            words.append(row)
        tokens = padded([np.array(ids, np.int64) for ids, _ in framed], self._tokenizer.pad or 0)
        lengths = np.array([len(ids) for ids, _ in framed], np.int64)
        read = padded(words, -1)
        return TagRows(
            windows=numbers,
            tokens=tokens,
            segments=padded([np.array(row_segments, np.int64) for _, row_segments in framed], 0),
            real=np.arange(tokens.shape[1]) < lengths[:, None],
            words=read,
            labels=np.append(self._wanted, IGNORE)[read],  # word -1 is the last, IGNORE
        )

    def by_sentence(
        self,
        words: NDArray[np.integer],
        best: NDArray[np.integer],
        *,
        missing: str = OUTSIDE,
    ) -> list[list[str]]:
        """Return the tags of each sentence's words: for the word indices `words` (M,) those of the
        label indices `best` (M,), for all other words `missing`."""
        padded = np.full(self._origin[-1] + 1, len(self.labels), np.int64)
        padded[words] = best
        return self._named(padded, missing)

    def _named(self, best: NDArray[np.integer], missing: str) -> list[list[str]]:
        names = np.array([*self.labels, missing], dtype=object)[best]
        edges = zip(self._origin[:-1], self._origin[1:], strict=True)
        return [names[start:stop].tolist() for start, stop in edges]

    def _numbers(self) -> NDArray[np.int64]:
        """Return the label index of each word of all sentences; IGNORE if its tag is unknown."""
        number = {label: i for i, label in enumerate(self.labels)}
        word_labels = np.full(self._origin[-1], IGNORE, np.int64)
        for start, sentence in zip(self._origin, self.sentences, strict=False):
            for index, tag in enumerate(sentence.tags or ()):
                if tag is None:
                    continue
                if tag not in number:
                    raise DataError(
                        "a tag that is not among the labels",
                        where=f"{sentence.where}, word {index + 1}".removeprefix(", "),
                        found=repr(tag),
                        wanted=near(tag, self.labels),
                    )
                word_labels[start + index] = number[tag]
        return word_labels

    def _owned(
        self, number: int, word_tokens: NDArray[np.int64], divided: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        """Return, for each window of a sentence, the word labelled at each token, or -1."""
        word = np.full(int(divided[-1, 1]), -1, np.int64)
        (word_numbers,) = np.nonzero(word_tokens >= 0)
        word[word_tokens[word_numbers]] = self._origin[number] + word_numbers
        owner = central(divided)
        return [
            np.where(owner[a:b] == window, word[a:b], -1)
            for window, (a, b) in enumerate(divided.tolist())
        ]


def first_tokens(sentence: Sentence, spans: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the index of each word's first token (words,), -1 if it has none.

    A token belongs to the word that contains its first non-whitespace character.
    """
    owner = np.full(len(sentence.text) + 1, -1, np.int64)
    for number, (begin, end) in enumerate(sentence.spans):
        owner[begin:end] = number
    ink = inked(sentence.text, spans)
    word = np.where(ink[:, 0] < ink[:, 1], owner[ink[:, 0]], -1)
    word_tokens = np.full(len(sentence.words), -1, np.int64)
    words_found, token_index = np.unique(word, return_index=True)
    word_tokens[words_found[words_found >= 0]] = token_index[words_found >= 0]
    return word_tokens
