"""Search for answer spans by start and stop scores: the best of each window, then of each question.

The score of a span is the sum of the scores of its first and last token; it may have at most
`longest` tokens. The same characters found in several windows count once, with their best score.
The null score of a question is the lowest sum at position 0 over its windows, since the answer need
only stand in one of them; its difference to the best span's score decides whether there is an
answer (Devlin et al. 2019, section 4.3). Ties go to the earlier span, then to the shorter one.

The probability of a span is that of its start times that of its stop, each a softmax over the
context's places and position 0 of its window, as the pipeline of transformers has it; that of no
answer is the lowest of its windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from maskwright.base.errors import ConfigError, DataError, IncompatibleError
from maskwright.learn.tasks.windows.answers import NULL, AnswerRows, AnswerWindows
from maskwright.text.tables.marked_text import whole_words

SCORES_AT_ONCE = 1 << 20  # of spans: 8 MB, some 90 rows of 384 starts and 30 lengths

Scored = tuple[AnswerRows, NDArray[np.floating], NDArray[np.floating]]


@dataclass(frozen=True)
class AnswerCandidate:
    """A slice of the context, its score, and its probability in the window of that score."""

    text: str
    start: int
    score: float
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The predicted answers to a question.

    Attributes:
        candidates: the best spans, the best first; empty if the context has no token.
        null_score, null_probability: score and probability of "no answer".
    """

    id: str
    candidates: tuple[AnswerCandidate, ...]
    null_score: float
    null_probability: float = 1.0

    @property
    def difference(self) -> float:
        """Null score minus the best span's score; infinite without a span."""
        return self.null_score - self.candidates[0].score if self.candidates else math.inf

    def answer(self, threshold: float = math.inf) -> str:
        """Return the text of the best span, or "" if `difference` is above the threshold."""
        if not self.candidates or self.difference > threshold:
            return ""
        return self.candidates[0].text


def best_spans(
    start: NDArray[np.floating],
    stop: NDArray[np.floating],
    allowed: NDArray[np.bool_],
    longest: int,
    count: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return (first, last, score), each (B, K), of the best spans of each row, the best first.

    Args:
        start, stop: (B, T) scores.
        allowed: (B, T) where a span may begin and end.
        longest: maximum number of tokens of a span.
        count: maximum number K of spans. Entries of the result without a span have the score
            -inf.
    """
    begin = np.where(allowed, start, -np.inf).astype(np.float64)
    end = np.where(allowed, stop, -np.inf).astype(np.float64)
    rows, width = begin.shape
    longest = min(longest, width)
    end = np.concatenate([end, np.full((rows, longest - 1), -np.inf)], axis=1)
    # total[b, i, n]: the span of n + 1 tokens that begins at i.
    total = begin[:, :, None] + sliding_window_view(end, longest, axis=1)
    flat = total.reshape(rows, width * longest)
    count = min(count, flat.shape[1])
    index = _largest(flat, count)
    score = np.take_along_axis(flat, index, axis=1)
    first_token = index // longest
    return first_token, first_token + index % longest, score


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the indices (B, K) of the largest values of each row, descending; ties by index."""
    least = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    above, equal = values > least, values == least
    spare = count - above.sum(axis=1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= spare))
    index = np.nonzero(chosen)[1].reshape(-1, count)
    order = np.argsort(-np.take_along_axis(values, index, axis=1), axis=1, kind="stable")
    return np.take_along_axis(index, order, axis=1)


def search(
    windows: AnswerWindows,
    batches: Iterable[Scored],
    *,
    longest: int = 30,
    num_best: int = 20,
    words: bool = False,
) -> list[Prediction]:
    """Return the predictions for all questions, in their order.

    Args:
        windows: the windows of the questions.
        batches: (rows, start scores, stop scores), the scores (B, T); every window once.
        longest: maximum number of tokens of an answer.
        num_best: maximum number of spans of each window, and of each question. The end of a list
            may be incomplete if several tokens form one character, since equal spans are merged.
        words: extend spans to whole words.

    Raises:
        ConfigError: `longest` or `num_best` is below 1.
        IncompatibleError: scores of another shape, or a window that is missing or repeated.
        DataError: a score is not finite.
    """
    if longest < 1 or num_best < 1:
        raise ConfigError(
            "the limits allow no answer span",
            found=f"longest {longest}, num_best {num_best}",
            wanted="at least 1",
        )
    times_scored = np.zeros(len(windows), np.int64)
    null, null_log = np.full(len(windows.questions), np.inf), np.zeros(len(windows.questions))
    found_spans: list[NDArray[np.int64]] = [np.zeros((0, 3), np.int64)]
    scores: list[NDArray[np.float64]] = [np.zeros((0, 2))]
    for rows, start, stop in _portions(batches, longest):
        np.add.at(times_scored, rows.windows, 1)
        question = windows.question_of[rows.windows]
        nothing = start[:, NULL].astype(np.float64) + stop[:, NULL]
        np.minimum.at(null, question, nothing)
        total = _log_total(start, rows.allowed) + _log_total(stop, rows.allowed)
        np.minimum.at(null_log, question, nothing - total)
        first_token, last_token, score = best_spans(start, stop, rows.allowed, longest, num_best)
        row, rank = np.nonzero(score > -np.inf)
        begin = windows.characters(rows.windows[row], first_token[row, rank])[:, 0]
        end = windows.characters(rows.windows[row], last_token[row, rank])[:, 1]
        rising = begin < end  # normalisation may reorder tokens
        spans = np.stack([question[row], begin, end], axis=1)[rising]
        found_spans.append(_in_whole_words(windows, spans) if words else spans)
        span_scores = np.stack([score[row, rank], score[row, rank] - total[row]], axis=1)
        scores.append(span_scores[rising])
    if (times_scored != 1).any():
        wrong = int(np.argmax(times_scored != 1))
        raise IncompatibleError(
            "every window is scored once",
            where=f"window {wrong}",
            found=f"{times_scored[wrong]} times",
        )
    spans, score = _ranked(np.concatenate(found_spans), np.concatenate(scores), num_best)
    return _predictions(windows, spans, score, null, np.exp(null_log))


def _log_total(scores: NDArray[np.floating], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the log-sum-exp (B,) of the scores of the allowed positions and position 0."""
    positions = allowed.copy()
    positions[:, NULL] = True
    return np.logaddexp.reduce(np.where(positions, scores, -np.inf), axis=1, dtype=np.float64)


def _in_whole_words(windows: AnswerWindows, spans: NDArray[np.int64]) -> NDArray[np.int64]:
    """Extend spans (N, 3), columns question, begin and end, to whole words."""
    widened = [
        (question, *whole_words(windows.questions[question].context, begin, end))
        for question, begin, end in spans.tolist()
    ]
    return np.array(widened, np.int64).reshape(-1, 3)


def _portions(batches: Iterable[Scored], longest: int) -> Iterator[Scored]:
    """Check the batches and divide them into portions of bounded size."""
    for rows, start, stop in batches:
        if not start.shape == stop.shape == rows.allowed.shape:
            raise IncompatibleError(
                "scores and rows differ in shape",
                found=f"{start.shape} and {stop.shape}",
                wanted=rows.allowed.shape,
            )
        bad = np.isnan(start) | np.isnan(stop) | np.isposinf(start) | np.isposinf(stop)
        bad &= rows.real
        if bad.any():
            raise DataError(
                "a score that is not a number",
                where=f"window {rows.windows[np.nonzero(bad)[0][0]]}",
            )
        count = max(1, SCORES_AT_ONCE // max(1, start.shape[1] * longest))
        for at in range(0, len(start), count):
            portion = slice(at, at + count)
            fields = {name: value[portion] for name, value in vars(rows).items()}
            yield AnswerRows(**fields), start[portion], stop[portion]


def _ranked(
    spans: NDArray[np.int64], score: NDArray[np.float64], num_best: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Remove repeated spans, sort by question and score, and keep `num_best` of each question.

    Args:
        spans: (N, 3) question, begin and end.
        score: (N, 2) score and log-probability.
    """
    question, begin, end = spans.T
    order = np.lexsort((-score[:, 0], end, begin, question))
    spans, score = spans[order], score[order]
    new = np.ones(len(score), bool)
    new[1:] = (np.diff(spans, axis=0) != 0).any(axis=1)
    spans, score = spans[new], score[new]
    question, begin, end = spans.T
    order = np.lexsort((end, begin, -score[:, 0], question))
    spans, score = spans[order], score[order]
    rank = np.arange(len(spans)) - np.searchsorted(spans[:, 0], spans[:, 0])
    return spans[rank < num_best], score[rank < num_best]


def _predictions(
    windows: AnswerWindows,
    spans: NDArray[np.int64],
    score: NDArray[np.float64],
    null: NDArray[np.float64],
    null_probability: NDArray[np.float64],
) -> list[Prediction]:
    bounds = np.searchsorted(spans[:, 0], np.arange(len(windows.questions) + 1))
    predictions = []
    for number, question in enumerate(windows.questions):
        span_range = slice(bounds[number], bounds[number + 1])
        candidates = tuple(
            AnswerCandidate(question.context[b:e], b, span_score, float(np.exp(log)))
            for (_, b, e), (span_score, log) in zip(
                spans[span_range].tolist(), score[span_range].tolist(), strict=True
            )
        )
        scores_of_none = float(null[number]), float(null_probability[number])
        predictions.append(Prediction(question.id, candidates, *scores_of_none))
    return predictions
