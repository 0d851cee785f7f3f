"""Extractive question answering: the span of a context that answers a question, or no answer.

    {"score": 0.81, "start": 34, "end": 40, "answer": "Saturn"}

Long contexts are split into overlapping windows (`learn/tasks/windows/answers.py`); the target of a
window without the answer is its first position. An answer has at most 30 tokens, or as many as the
longest of the validation part. If some questions of the validation part have no answer, the
threshold for predicting "no answer" is chosen there.

If only some questions have an answer, F1 prefers a model that never answers to one that is often
wrong. Epoch, seed and threshold are then chosen by `balanced_f1`, which is 0 for such a model,
unless another metric is requested; windows with and without an answer are sampled equally often;
and metrics are also reported for both kinds of questions, as in SQuAD 2.0 (Rajpurkar et al. 2018,
arXiv:1806.03822).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.counted import counted, rounded
from maskwright.base.findings import Finding
from maskwright.base.metrics import squad_score
from maskwright.base.metrics.intervals import Estimate, OfSums, estimate_of_sums
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import (
    ONE_SIDED,
    Answers,
    Encoded,
    Extent,
    Mistake,
    Scores,
    TaskType,
    text,
)
from maskwright.learn.tasks.windows import answer_search
from maskwright.learn.tasks.windows.answer_search import Prediction
from maskwright.learn.tasks.windows.answers import NULL, AnswerRows, AnswerWindows
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.model.objectives.base.sequences import Sequences
from maskwright.text.tables.examples import QuestionExample
from maskwright.text.tables.formats.squad import AnswerSpan, Question
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.layouts.question import QUESTION
from maskwright.text.tables.marked_text import whole_words
from maskwright.text.tables.rows import TRAIN, VALIDATION

BALANCED_F1 = "balanced_f1"  # mean over questions with and without an answer
SHAPES = (
    Shape(
        name="question-answering",
        layout=QUESTION,
        metrics=("f1", "exact"),
        selectable=(BALANCED_F1,),
    ),
)
STRIDE, LONGEST_QUESTION = 128, 64
LONGEST_ANSWER = 30
PORTION = 512  # windows that are framed together
NONE = "(no answer)"
HAS, NO = "has_answer_", "no_answer_"
WITHIN = "within_words"
OFTEN = 0.1  # share of the training answers
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class QuestionAnswering(TaskType):
    """Predicts start and end of an answer (Devlin et al. 2018, sections 4.2 and 4.3)."""

    head = "span"
    longest = 384

    @property
    def num_outputs(self) -> int:
        return 2

    @property
    def pipeline(self) -> str:
        return "question-answering"

    @property
    def counts_places(self) -> bool:
        return True

    @property
    def threshold(self) -> float:
        """The difference of scores above which "no answer" is predicted."""
        value = self.options.get("threshold")
        return np.inf if value is None else float(value)

    @property
    def longest_answer(self) -> int:
        """Maximum number of tokens of an answer."""
        return int(self.options.get("longest", LONGEST_ANSWER))

    @property
    def within_words(self) -> bool:
        """Whether an answer may begin or end within a word; else it is widened to whole words."""
        return bool(self.options.get(WITHIN, False))

    def of_data(self, data: Dataset) -> Self:
        """Set `within_words` if many training answers are not whole words, and the default metric
        to `balanced_f1` if validation questions with and without an answer exist."""
        if WITHIN not in self.options:
            answerable_rows = [row for row in data.parts[TRAIN] if row.answers]
            if sum(map(_cuts_a_word, answerable_rows)) > OFTEN * len(answerable_rows):
                return self.with_options({WITHIN: True}).of_data(data)
        answerable = {bool(row.answers) for row in data.parts[VALIDATION]}
        if "measure" in self.options or len(answerable) < 2:
            return self
        return self.with_options({"measure": BALANCED_F1})

    @property
    def decoding(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold if np.isfinite(self.threshold) else None,
            "longest": self.longest_answer,
            "within_words": self.within_words,
            "stride": STRIDE,
            "longest_question": LONGEST_QUESTION,
        }

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        questions = [
            Question(
                str(n), r.question, r.context, tuple(AnswerSpan(*a) for a in r.answers), r.where
            )
            for n, r in enumerate(rows)
        ]
        length = frame.length
        windows = AnswerWindows(
            frame.tokenizer,
            questions,
            length=length,
            stride=min(STRIDE, length // 3),
            longest_question=length // 2 if frame.refuses else min(LONGEST_QUESTION, length // 3),
            absent="null",
        )
        texts: list[list[int]] = []
        segments, positions, ends = [], [], []
        for batch in _portions(windows):
            texts += [
                ids[real].tolist() for ids, real in zip(batch.tokens, batch.real, strict=True)
            ]
            segments.append(batch.segments[batch.real])
            askable = _answer_places(batch)
            positions += [np.flatnonzero(row) for row in askable]
            rank = askable.cumsum(1) - 1  # index among the window's answer positions
            column = np.arange(len(askable))
            target_columns = [
                np.where(end < 0, -1, rank[column, np.maximum(end, 0)])
                for end in (batch.start, batch.stop)
            ]
            ends.append(np.stack(target_columns, axis=1))
        empty = np.zeros(0, np.int64)
        examples = EncodedExamples(
            framed(texts),
            np.concatenate([np.zeros((0, 2), np.int64), *ends]),
            np.concatenate([empty, *segments]) if frame.segments else None,
            places=Sequences(
                np.concatenate([empty, *positions]), np.array([len(p) for p in positions], np.int64)
            ),
        )
        counts = windows.counts
        incomplete = counts.questions_cut or counts.tokenless or counts.lost
        has_answers = any(row.answers for row in questions)
        is_notable = (
            counts.questions_cut
            or counts.blank
            or (has_answers and (incomplete or len(windows) > len(questions)))
        )
        findings = [Finding("windows-of-answers", counts.render())] if is_notable else []
        if self.within_words and (within := sum(map(_cuts_a_word, rows))):
            message = f"{counted(within, 'row')} with an answer that begins or ends within a word"
            findings.append(Finding("answers-within-words", message, "as predicted answers may"))
        extent = Extent.of(examples.texts.lengths, windows.question_of, cut=windows.question_cut)
        return Encoded(rows, examples, tuple(findings), windows, extent)

    def example(self, values: Sequence[Any], where: str) -> QuestionExample:
        question, context = (text(v, r, where) for v, r in zip(values, self.roles, strict=True))
        return QuestionExample(question, context, (), where)

    def value_of(self, example: Any) -> Any:
        return [example.question, example.context]

    # ------------------------------------------------------------------------ decoding
    def answers(self, encoded: Encoded, outputs: Scores) -> list[str]:
        return [p.answer(self.threshold) for p in self._predictions(encoded, outputs)]

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        return {
            name: float(figure(sums.sum(0, keepdims=True))[0])
            for name, (figure, sums) in self._sums(rows, answers).items()
        }

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return {
            name: estimate_of_sums(figure, sums)
            for name, (figure, sums) in self._sums(rows, answers).items()
        }

    def _sums(
        self, rows: Sequence[Any], answers: Answers
    ) -> dict[str, tuple[OfSums, NDArray[np.float64]]]:
        """Return (function of sums, values (N, 2 or 4) to be summed over rows) of each metric, also
        for questions with and without an answer alone if there are both."""
        row_scores, has_answer = _row_scores(rows, answers), _has_answer(rows)
        sums = np.column_stack([row_scores, np.ones(len(row_scores))])
        figures: dict[str, tuple[OfSums, NDArray[np.float64]]] = {
            name: (_mean, sums[:, [number, 2]]) for number, name in enumerate(self.measures)
        }
        has_both = 0 < has_answer.sum() < len(has_answer)
        by_answerable = np.column_stack([sums * has_answer[:, None], sums * ~has_answer[:, None]])
        if has_both:
            for start, sort in ((0, HAS), (3, NO)):
                figures |= {
                    sort + name: (_mean, by_answerable[:, [start + number, start + 2]])
                    for number, name in enumerate(self.measures)
                }
        if has_both:
            figures[BALANCED_F1] = (_balanced, by_answerable[:, [0, 2, 3, 5]])
        elif self.measure == BALANCED_F1:  # only one kind of questions
            figures[BALANCED_F1] = figures["f1"]
        return figures

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Scores]) -> Self:
        longest = max(LONGEST_ANSWER, encoded.way_back.counts.longest)
        task_type = self if longest == LONGEST_ANSWER else self.with_options({"longest": longest})
        if all(row.answers for row in encoded.rows):
            return task_type
        predictions = task_type._predictions(encoded, outputs())
        # By F1, or by exact match if that is the metric that selects.
        column = int(self.measure == "exact")
        answers = _row_scores(encoded.rows, [prediction.answer() for prediction in predictions])[
            :, column
        ]
        null_scores = _row_scores(encoded.rows, [""] * len(predictions))[:, column]
        differences = np.array([prediction.difference for prediction in predictions])
        has_answer = _has_answer(encoded.rows) if self.measure == BALANCED_F1 else None
        threshold, _ = squad_score.best_threshold(differences, answers, null_scores, has_answer)
        return task_type.with_options({"threshold": _finite(threshold, differences)})

    def one_sided(self, rows: Sequence[Any], answers: Answers) -> Finding | None:
        has_answer, answered = _has_answer(rows), np.array([bool(answer) for answer in answers])
        if not len(has_answer):
            return None
        if not answered.any() and has_answer.any():
            return Finding(
                ONE_SIDED,
                f'"no answer" is predicted for all {counted(len(has_answer), "question")} (with an '
                f"answer: {has_answer.sum():,}): the model is of no use as it is",
                remedy="give it more questions with an answer, or more epochs",
                severity="warning",
            )
        if answered.all() and not has_answer.all():
            return Finding(
                ONE_SIDED,
                f'"no answer" is predicted for none of {counted(len(has_answer), "question")} '
                f"(without an answer: {(~has_answer).sum():,}): its predictions for those are "
                "wrong",
                severity="warning",
            )
        return None

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The sentence of the context that shares most words with the question; and, if a question
        has no answer, always "no answer"."""
        rows = data.parts[eval_part]
        answers: list[tuple[str, Answers]] = [("nearest sentence", [_nearest(row) for row in rows])]
        if any(not row.answers for part_rows in data.parts.values() for row in part_rows):
            answers.append(("never answers", [""] * len(rows)))
        return answers

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[dict[str, Any]]:
        for prediction in self._predictions(encoded, outputs):
            answer = prediction.answer(self.threshold)
            best = prediction.candidates[0] if prediction.candidates else None
            if not answer or best is None:
                yield _pipeline_answer(prediction.null_probability, 0, "")
            else:
                yield _pipeline_answer(best.probability, best.start, answer)

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"score": float, "start": int, "end": int, "answer": str}

    @property
    def wrongness(self) -> str:
        return "F1"

    def mistakes(self, encoded: Encoded, outputs: Scores) -> list[Mistake]:
        predicted = self.answers(encoded, outputs)
        mistakes = [
            Mistake(
                row.where,
                row.question,
                " / ".join(dict.fromkeys(gold for gold, _ in row.answers)) or NONE,
                predicted[number] or NONE,
                float(f1),
            )
            for number, (row, f1) in enumerate(
                zip(encoded.rows, _row_scores(encoded.rows, predicted)[:, 0], strict=True)
            )
            if f1 < 1.0
        ]
        return sorted(mistakes, key=lambda mistake: mistake.weight)

    def ranked(self, encoded: Encoded, outputs: Scores, top: int) -> Iterator[list[dict[str, Any]]]:
        for prediction in self._predictions(encoded, outputs):
            spans = [
                _pipeline_answer(candidate.probability, candidate.start, candidate.text)
                for candidate in prediction.candidates
            ]
            null_answer = _pipeline_answer(prediction.null_probability, 0, "")
            # The predicted answer (or "no answer") comes first, the others by probability.
            if not prediction.answer(self.threshold):
                spans.insert(0, null_answer)
            elif self.threshold < np.inf:
                spans.append(null_answer)
            yield [*spans[:1], *sorted(spans[1:], key=lambda span: -span["score"])][:top]

    def _predictions(self, encoded: Encoded, outputs: Scores) -> list[Prediction]:
        """Return the best answer spans of every question."""

        def scored() -> Iterator[answer_search.Scored]:
            at = 0
            for rows in _portions(encoded.way_back):
                allowed = _answer_places(rows)
                scores = np.full((2, *allowed.shape), -np.inf, np.float64)
                count = int(allowed.sum())
                scores[:, allowed] = outputs[at : at + count].T
                at += count
                yield rows, scores[0], scores[1]

        return answer_search.search(
            encoded.way_back, scored(), longest=self.longest_answer, words=not self.within_words
        )


def _pipeline_answer(probability: float, start: int, answer: str) -> dict[str, Any]:
    """Return an answer in the form of a transformers `pipeline`."""
    end = start + len(answer)
    return {"score": rounded(probability), "start": start, "end": end, "answer": answer}


def _portions(windows: AnswerWindows) -> Iterator[AnswerRows]:
    for begin in range(0, len(windows), PORTION):
        yield windows.rows(np.arange(begin, min(begin + PORTION, len(windows))))


def _answer_places(rows: AnswerRows) -> NDArray[np.bool_]:
    """Return a mask of the tokens where an answer may begin or end, or that mean "no answer"."""
    allowed = rows.allowed.copy()
    allowed[:, NULL] = True
    return allowed


def _cuts_a_word(row: Any) -> bool:
    """Whether an answer of the row begins or ends within a word."""
    return any(
        whole_words(row.context, begin, begin + len(answer)) != (begin, begin + len(answer))
        for answer, begin in row.answers
    )


def _row_scores(rows: Sequence[Any], answers: Answers) -> NDArray[np.float64]:
    """Return F1 and exact match (N, 2) of each answer with the best matching true answer."""
    scores = [
        squad_score.best(mine, [gold for gold, _ in row.answers])
        for row, mine in zip(rows, answers, strict=True)
    ]
    return np.array(scores, np.float64).reshape(-1, 2)[:, ::-1]


def _has_answer(rows: Sequence[Any]) -> NDArray[np.bool_]:
    """Return (N,) whether a row has an answer that is not empty after normalisation."""
    return np.array([squad_score.real([g for g, _ in row.answers]) != [""] for row in rows], bool)


def _mean(sums: NDArray[Any]) -> NDArray[Any]:
    """Divide sums by counts: (N, 2) -> (N,); NaN where the count is 0."""
    return np.divide(sums[:, 0], sums[:, 1], out=np.full(len(sums), np.nan), where=sums[:, 1] > 0)


def _balanced(sums: NDArray[Any]) -> NDArray[Any]:
    """Return `squad_score.balanced` of (N, 4) sums and counts by kind; one kind: its mean."""
    with_answer, without_answer = _mean(sums[:, :2]), _mean(sums[:, 2:])
    return np.where(
        np.isnan(with_answer),
        without_answer,
        np.where(
            np.isnan(without_answer), with_answer, squad_score.balanced(with_answer, without_answer)
        ),
    )


def _finite(threshold: float, differences: NDArray[np.float64]) -> float | None:
    """Return a finite threshold that JSON can represent: an infinite one becomes a bound of the
    `differences`, with the same predictions for them. None if none of these is finite."""
    finite_differences = differences[np.isfinite(differences)]
    if np.isfinite(threshold) or not len(finite_differences):
        return float(threshold) if np.isfinite(threshold) else None
    return float(
        finite_differences.max()
        if threshold > 0
        else np.nextafter(finite_differences.min(), -np.inf)
    )


def _nearest(row: QuestionExample) -> str:
    question_words = Counter(squad_score.normalise(row.question).split())
    sentences = [sentence for sentence in SENTENCE_END.split(row.context) if sentence.strip()] or [
        row.context
    ]
    shared = [
        (Counter(squad_score.normalise(sentence).split()) & question_words).total()
        for sentence in sentences
    ]
    return sentences[int(np.argmax(shared))]


TYPE = QuestionAnswering
