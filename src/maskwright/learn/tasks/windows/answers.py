"""Extractive question answering: questions into windows with two targets, scores into answers.

    [CLS] question [SEP] a piece of the context [SEP]      start, stop: positions in this row
      ^ null: position 0 stands for "no answer here"       (Devlin et al. 2019, sections 4.2, 4.3)

A long context is divided into windows, each `stride` tokens after the one before. The target of a
window is the first true answer that lies completely in it. A window of an answerable question that
does not contain the answer is ignored in training (`absent="ignore"`), or has the target "no answer
here" as in BERT's script (`absent="null"`). Answers are slices of the original context, by the
offsets of the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, near
from maskwright.learn.tasks.windows.offsets import covering, inked
from maskwright.learn.tasks.windows.windows import padded, windows
from maskwright.text.tables.formats.squad import Question
from maskwright.text.tables.raw_text import as_read, encode
from maskwright.text.tokenizer.tokenizer import Tokenizer

IGNORE = -100  # target that a loss ignores
NULL = 0  # the position that stands for "no answer"
Absent = Literal["ignore", "null"]


@dataclass(frozen=True)
class AnswerCounts:
    """Counts of questions, windows and what was truncated or could not be encoded.

    Attributes:
        questions, answerable: number of questions, and of those with a true answer.
        windows, ignored: number of windows, and of those without a target.
        questions_cut, tokens_cut: number of truncated questions, and of the tokens they lost.
        blank: questions without a token, of which only the context is encoded.
        exact: answerable questions whose first answer is exactly restored from its tokens.
        tokenless: answerable questions whose answers have no token.
        lost: answerable questions of which no answer lies completely in a window.
        longest: number of tokens of the longest target, which the search should allow.
    """

    questions: int
    answerable: int
    windows: int
    ignored: int
    questions_cut: int
    tokens_cut: int
    blank: int
    exact: int
    tokenless: int
    lost: int
    longest: int

    def render(self) -> str:
        return (
            f"{self.questions:,} questions in {self.windows:,} windows; "
            + (
                f"of {self.answerable:,} answers {self.exact:,} come back exactly, "
                f"{self.tokenless:,} have no token, {self.lost:,} fit in no window; "
            )
            * bool(self.answerable)
            + f"{self.questions_cut:,} questions truncated"
            + f", {self.blank:,} without a token" * bool(self.blank)
        )


@dataclass(frozen=True)
class AnswerRows:
    """A batch of windows; T is the length of the longest.

    windows  (B,)   int64   indices of the windows
    tokens   (B, T) int64   padded at the end
    segments (B, T) int64
    real     (B, T) bool    not padding
    allowed  (B, T) bool    where an answer may begin or end: context tokens except whitespace
    start, stop (B,) int64  first and last position of the answer, NULL for none, or IGNORE
    """

    windows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    segments: NDArray[np.int64]
    real: NDArray[np.bool_]
    allowed: NDArray[np.bool_]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]


class AnswerWindows:
    """Questions with contexts as a sequence of windows of at most `length` tokens.

    Attributes:
        questions: the questions, as passed.
        counts: statistics of the encoding.
        question_of: (W,) index of each window's question.
        question_cut: (Q,) number of tokens that each question lost.
        start, stop: (W,) targets, as in `AnswerRows`.

    Raises:
        ConfigError: no room for a context, a stride below 1, an unknown value of `absent`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        questions: Sequence[Question],
        *,
        length: int = 384,
        stride: int = 128,
        longest_question: int = 64,
        absent: Absent = "ignore",
    ) -> None:
        if absent not in ("ignore", "null"):
            raise ConfigError(
                "unknown treatment of windows without the answer",
                where="absent",
                found=repr(absent),
                wanted=near(absent, ("ignore", "null")),
            )
        self.questions = tuple(questions)
        self._tokenizer = tokenizer
        self._margins = tokenizer.frame_margins(pair=True)
        self._ask = [
            ids.astype(np.int64)
            for ids in tokenizer.encode_batch(as_read(q.question) for q in questions)
        ]
        full_lengths = [len(ids) for ids in self._ask]
        self._ask = [ids[:longest_question] for ids in self._ask]
        cut = [before - len(ids) for before, ids in zip(full_lengths, self._ask, strict=True)]
        self.question_cut = np.array(cut, np.int64)
        self._read_contexts()
        question_lengths = np.array([len(ids) for ids in self._ask], np.int64)
        self._before = sum(self._margins[:2]) + question_lengths
        self._divide(length - sum(self._margins) - question_lengths, stride)
        exact, tokenless, lost = self._aim(absent)
        self.counts = AnswerCounts(
            questions=len(self.questions),
            answerable=sum(bool(q.answers) for q in self.questions),
            windows=len(self),
            ignored=int((self.start == IGNORE).sum()),
            questions_cut=int(np.count_nonzero(cut)),
            blank=int((question_lengths == 0).sum()),
            tokens_cut=sum(cut),
            exact=exact,
            tokenless=tokenless,
            lost=lost,
            longest=int((self.stop - self.start + 1)[self.start > NULL].max(initial=0)),
        )

    def __len__(self) -> int:
        return len(self.question_of)

    def rows(self, indices: NDArray[np.integer] | Sequence[int]) -> AnswerRows:
        """Return the windows with these `indices`, in that order."""
        numbers = np.asarray(indices, np.int64)
        framed = [self._row(number) for number in numbers.tolist()]
        pad = self._tokenizer.pad or 0
        tokens = padded([np.array(ids, np.int64) for ids, _, _ in framed], pad)
        column = np.arange(tokens.shape[1])
        lengths = np.array([len(ids) for ids, _, _ in framed], np.int64)
        return AnswerRows(
            windows=numbers,
            tokens=tokens,
            segments=padded([np.array(row_segments, np.int64) for _, row_segments, _ in framed], 0),
            real=column < lengths[:, None],
            allowed=padded([allowed for _, _, allowed in framed], 0).astype(bool),
            start=self.start[numbers],
            stop=self.stop[numbers],
        )

    def characters(
        self, numbers: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the character spans (…, 2) in the original context of the tokens at `positions` of
        the windows with the indices `numbers`. The positions must be of context tokens."""
        question = self.question_of[numbers]
        token = positions - self._before[question] + self._first[numbers]
        return self._spans[self._origin[self._context_of[question]] + token]

    def _row(self, number: int) -> tuple[list[int], list[int], NDArray[np.int64]]:
        question = int(self.question_of[number])
        context = int(self._context_of[question])
        start, stop = int(self._first[number]), int(self._stop[number])
        context_ids = self._ids[context][start:stop].tolist()
        ids, segments = self._tokenizer.frame(self._ask[question].tolist(), context_ids)
        allowed = np.zeros(len(ids), np.int64)
        spans = self._spans[self._origin[context] :][start:stop]
        begin = int(self._before[question])
        allowed[begin : begin + len(context_ids)] = spans[:, 0] < spans[:, 1]
        return ids, segments, allowed

    def _read_contexts(self) -> None:
        """Tokenize each distinct context once."""
        context_numbers: dict[str, int] = {}
        self._context_of = np.array(
            [context_numbers.setdefault(q.context, len(context_numbers)) for q in self.questions],
            np.int64,
        )
        encoded = encode(self._tokenizer, context_numbers)
        self._ids = [ids for ids, _ in encoded]
        spans = [inked(text, s) for text, (_, s) in zip(context_numbers, encoded, strict=True)]
        self._spans = np.concatenate([np.zeros((0, 2), np.int64), *spans])
        self._origin = np.cumsum([0, *(len(ids) for ids in self._ids)])

    def _divide(self, room: NDArray[np.int64], stride: int) -> None:
        window_parts = [np.zeros((0, 3), np.int64)]
        for number, (space, context) in enumerate(zip(room, self._context_of, strict=True)):
            # As in BERT's script, the stride is at most the room that the question leaves.
            spans = windows(len(self._ids[context]), int(space), min(stride, max(1, int(space))))
            window_parts.append(np.insert(spans, 0, number, axis=1))
        columns = np.concatenate(window_parts)
        self.question_of, self._first, self._stop = columns.T

    def _aim(self, absent: Absent) -> tuple[int, int, int]:
        """Set the targets of all windows; return the counts (exact, tokenless, lost)."""
        self.start = np.full(len(self), NULL, np.int64)
        self.stop = np.full(len(self), NULL, np.int64)
        exact = tokenless = lost = 0
        bounds = np.searchsorted(self.question_of, np.arange(len(self.questions) + 1))
        for number, question in enumerate(self.questions):
            if not question.answers:
                continue
            token_spans = [self._tokens_of(number, a.start, a.stop) for a in question.answers]
            golds = [tokens for tokens, _ in token_spans if tokens is not None]
            exact += token_spans[0][1]
            tokenless += not golds
            window_range = slice(bounds[number], bounds[number + 1])
            start, stop = self._targets(number, window_range, golds)
            lost += bool(golds) and not (start != IGNORE).any()
            if absent == "null" and (start != IGNORE).any():
                start[start == IGNORE] = stop[stop == IGNORE] = NULL
            self.start[window_range], self.stop[window_range] = start, stop
        return exact, tokenless, lost

    def _tokens_of(self, number: int, begin: int, end: int) -> tuple[tuple[int, int] | None, bool]:
        """Return (first, stop) tokens of a slice of the context, or None without a token, and
        whether they restore it exactly."""
        context = int(self._context_of[number])
        spans = self._spans[self._origin[context] : self._origin[context + 1]]
        text = self.questions[number].context[begin:end]
        begin, end = begin + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())
        tokens = covering(spans, begin, end)
        if tokens is None:
            return None, False
        characters = int(spans[tokens[0], 0]), int(spans[tokens[1] - 1, 1])
        return tokens, characters == (begin, end) and len(text) == end - begin

    def _targets(
        self, number: int, window_range: slice, golds: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        window_start, stop = self._first[window_range], self._stop[window_range]
        start, last_token = np.full_like(window_start, IGNORE), np.full_like(window_start, IGNORE)
        for begin, end in reversed(golds):  # so that the first answer takes precedence
            inside = (window_start <= begin) & (end <= stop)
            start[inside] = (begin - window_start + self._before[number])[inside]
            last_token[inside] = (end - 1 - window_start + self._before[number])[inside]
        return start, last_token
