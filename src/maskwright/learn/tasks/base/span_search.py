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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from maskwright.model.objectives.base.corruption import Sequences, first_places
from maskwright.text.tables.marked_text import whole_words

SCORES_AT_ONCE = 1 << 20  # of spans: 8 MB, some 90 rows of 384 starts and 30 lengths


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
    start: NDArray[np.float64], stop: NDArray[np.float64], longest: int, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return (first, last, score), each (B, K), of the best spans of each row, the best first.

    Args:
        start, stop: (B, T) scores; -inf where a span may not begin or end.
        longest: maximum number of tokens of a span.
        count: maximum number K of spans. Entries of the result without a span have the score
            -inf.
    """
    rows, width = start.shape
    longest = min(longest, width)
    stop = np.concatenate([stop, np.full((rows, longest - 1), -np.inf)], axis=1)
    # total[b, i, n]: the span of n + 1 tokens that begins at i.
    total = start[:, :, None] + sliding_window_view(stop, longest, axis=1)
    flat = total.reshape(rows, width * longest)
    index = _largest(flat, min(count, flat.shape[1]))
    first_token = index // longest
    return first_token, first_token + index % longest, np.take_along_axis(flat, index, axis=1)


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
    scores: NDArray[np.floating],
    positions: Sequences,
    characters: NDArray[np.int64],
    question_of: NDArray[np.int64],
    contexts: Sequence[str],
    *,
    longest: int,
    num_best: int = 20,
    words: bool,
) -> list[Prediction]:
    """Return the predictions for all questions, in their order.

    Args:
        scores: (M, 2) scores of starts and stops at the positions in all windows.
        positions: where an answer may begin or end, increasing in each of W windows, the first of
            which stands for "no answer".
        characters: (M, 2) begin and end, in its context, of the token at each position.
        question_of: (W,) question of each window.
        contexts: the context of each question.
        longest: maximum number of tokens of an answer.
        num_best: maximum number of spans of each window, and of each question. The end of a list
            may be incomplete if several tokens form one character, since equal spans are merged.
        words: extend spans to whole words.
    """
    null, null_log = np.full(len(contexts), np.inf), np.zeros(len(contexts))
    all_spans, all_scores = [np.zeros((0, 3), np.int64)], [np.zeros((0, 2))]
    begins = first_places(positions.lengths)
    width = int(positions.tokens.max(initial=0)) + 1
    portion = max(1, SCORES_AT_ONCE // (width * longest))
    for begin_window in range(0, len(question_of), portion):
        windows = slice(begin_window, begin_window + portion)
        lengths, question = positions.lengths[windows], question_of[windows]
        flat = begins[begin_window] + np.arange(lengths.sum())
        rows, columns = np.repeat(np.arange(len(lengths)), lengths), positions.tokens[flat]
        start, stop = np.full((2, len(lengths), width), -np.inf)
        start[rows, columns], stop[rows, columns] = scores[flat].T
        index_at = np.zeros(start.shape, np.int64)
        index_at[rows, columns] = flat
        # Log-sum-exp over the places of each window.
        total = np.logaddexp.reduce(start, axis=1) + np.logaddexp.reduce(stop, axis=1)
        nothing = start[:, 0] + stop[:, 0]
        np.minimum.at(null, question, nothing)
        np.minimum.at(null_log, question, nothing - total)
        start[:, 0] = stop[:, 0] = -np.inf
        first_token, last_token, score = best_spans(start, stop, longest, num_best)
        row, rank = np.nonzero(score > -np.inf)
        begin = characters[index_at[row, first_token[row, rank]], 0]
        end = characters[index_at[row, last_token[row, rank]], 1]
        rising = begin < end  # normalisation may reorder tokens
        spans = np.stack([question[row], begin, end], axis=1)[rising]
        if words:
            widened = [(q, *whole_words(contexts[q], *span)) for q, *span in spans.tolist()]
            spans = np.array(widened, np.int64).reshape(-1, 3)
        all_spans.append(spans)
        span_scores = np.stack([score[row, rank], score[row, rank] - total[row]], axis=1)
        all_scores.append(span_scores[rising])
    spans, span_scores = _ranked(np.concatenate(all_spans), np.concatenate(all_scores), num_best)
    bounds = np.searchsorted(spans[:, 0], np.arange(len(contexts) + 1))
    predictions = []
    for number, context in enumerate(contexts):
        chosen = slice(bounds[number], bounds[number + 1])
        candidates = tuple(
            AnswerCandidate(context[begin:end], begin, span_score, float(np.exp(log)))
            for (_, begin, end), (span_score, log) in zip(
                spans[chosen].tolist(), span_scores[chosen].tolist(), strict=True
            )
        )
        predictions.append(
            Prediction(candidates, float(null[number]), float(np.exp(null_log[number])))
        )
    return predictions


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
