"""Where in a context the answer to a question stands, or that it does not.

    {"score": 0.81, "start": 34, "end": 40, "answer": "Saturn"}

Long contexts become windows that overlap (`tasks/answers.py`); a window without the answer learns
to point at its first place. An answer has 30 tokens at most, or as many as one of the validation
part. Where some questions of the validation part have no answer, the score
above which "no answer" is said is chosen there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.finetune.examples import Examples, framed
from maskwright.finetune.frame import Frame
from maskwright.finetune.kind import Answers, Encoded, Kind, Mistake, Scores, text
from maskwright.objectives.sequences import Sequences
from maskwright.tasks import answer_search, squad_score
from maskwright.tasks import examples as labelled
from maskwright.tasks.answer_search import Prediction
from maskwright.tasks.answers import NULL, AnswerRows, AnswerWindows
from maskwright.tasks.estimate import Estimate, estimates_of_means
from maskwright.tasks.examples import Answered
from maskwright.tasks.squad_file import Answer, Question

TASKS = ("question-answering",)
STRIDE, LONGEST_QUESTION = 128, 64
LONGEST_ANSWER = 30
PORTION = 512  # windows that are framed together
NONE = "(no answer)"
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class QuestionAnswering(Kind):
    """Begin and end of an answer in its context (Devlin et al. 2018, sections 4.2 and 4.3)."""

    head = "span"
    longest = 384

    @property
    def num_outputs(self) -> int:
        return 2

    @property
    def pipeline(self) -> str:
        return "question-answering"

    @property
    def roles(self) -> tuple[str, ...]:
        return ("question", "context")

    @property
    def measures(self) -> tuple[str, ...]:
        return ("f1", "exact")

    @property
    def threshold(self) -> float:
        """The difference of scores above which there is no answer."""
        value = self.settled.get("threshold")
        return np.inf if value is None else float(value)

    @property
    def longest_answer(self) -> int:
        """How many tokens an answer may have."""
        return int(self.settled.get("longest", LONGEST_ANSWER))

    # ------------------------------------------------------------------------ the way there
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        questions = [
            Question(str(n), r.question, r.context, tuple(Answer(*a) for a in r.answers), r.where)
            for n, r in enumerate(rows)
        ]
        length = frame.length
        windows = AnswerWindows(
            frame.tokenizer, questions, length=length, stride=min(STRIDE, length // 3),
            longest_question=min(LONGEST_QUESTION, length // 3), absent="null",
        )  # fmt: skip
        texts: list[list[int]] = []
        segments, places, ends = [], [], []
        for part in _portions(windows):
            texts += [ids[real].tolist() for ids, real in zip(part.tokens, part.real, strict=True)]
            segments.append(part.segments[part.real])
            asked = _asked(part)
            places += [np.flatnonzero(row) for row in asked]
            rank = asked.cumsum(1) - 1  # the number of each place among those of its window
            column = np.arange(len(asked))
            both = [
                np.where(end < 0, -1, rank[column, np.maximum(end, 0)])
                for end in (part.start, part.stop)
            ]
            ends.append(np.stack(both, axis=1))
        empty = np.zeros(0, np.int64)
        examples = Examples(
            framed(texts),
            np.concatenate([np.zeros((0, 2), np.int64), *ends]),
            np.concatenate([empty, *segments]) if frame.segments else None,
            places=Sequences(
                np.concatenate([empty, *places]), np.array([len(p) for p in places], np.int64)
            ),
        )
        counts = windows.counts
        odd = counts.questions_cut or counts.tokenless or counts.lost
        known = any(row.answers for row in questions)
        worth = (
            counts.questions_cut
            or counts.blank
            or (known and (odd or len(windows) > len(questions)))
        )
        cut = counts.render() if worth else ""
        return Encoded(rows, examples, cut, windows)

    def example(self, values: Sequence[Any], where: str) -> Answered:
        question, context = (text(v, r, where) for v, r in zip(values, self.roles, strict=True))
        return Answered(question, context, (), where)

    # ------------------------------------------------------------------------ the way back
    def answers(self, encoded: Encoded, outputs: Scores) -> list[str]:
        return [
            found.answer(self.threshold) for found in _found(encoded, outputs, self.longest_answer)
        ]

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        found = squad_score.score(
            {str(n): answer for n, answer in enumerate(answers)},
            {str(n): [gold for gold, _ in row.answers] for n, row in enumerate(rows)},
        )
        return {"f1": found.f1, "exact": found.exact}

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        return estimates_of_means(self.measures, _each(rows, answers))

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Scores]) -> Self:
        longest = max(LONGEST_ANSWER, encoded.way_back.counts.longest)
        made = self if longest == LONGEST_ANSWER else self.with_settled({"longest": longest})
        if all(row.answers for row in encoded.rows):
            return made
        found = _found(encoded, outputs(), longest)
        said = _each(encoded.rows, [prediction.answer() for prediction in found])[:, 0]
        none = _each(encoded.rows, [""] * len(found))[:, 0]
        differences = np.array([prediction.difference for prediction in found])
        threshold, _ = squad_score.best_threshold(differences, said, none)
        # JSON has no infinity: no number is "always answer", the least number "never".
        least = float(np.finfo(np.float64).min)
        kept = None if threshold == np.inf else max(threshold, least)
        return made.with_settled({"threshold": kept})

    def baselines(self, data: labelled.Examples, asked: str) -> list[tuple[str, Answers]]:
        """The sentence of the context that has most of the question's words."""
        return [("nearest sentence", [_nearest(row) for row in data.parts[asked]])]

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[dict[str, Any]]:
        for found in _found(encoded, outputs, self.longest_answer):
            answer = found.answer(self.threshold)
            best = found.candidates[0] if found.candidates else None
            if not answer or best is None:
                share = 1.0 - sum(each.probability for each in found.candidates)
                yield {"score": round(share, 6), "start": 0, "end": 0, "answer": ""}
                continue
            yield {"score": round(best.probability, 6), "start": best.start,
                   "end": best.start + len(answer), "answer": answer}  # fmt: skip

    @property
    def wrongness(self) -> str:
        return "F1"

    def mistakes(self, encoded: Encoded, outputs: Scores) -> list[Mistake]:
        mine = self.answers(encoded, outputs)
        found = [
            Mistake(
                row.where,
                row.question,
                " / ".join(dict.fromkeys(gold for gold, _ in row.answers)) or NONE,
                mine[number] or NONE,
                float(right),
            )
            for number, (row, right) in enumerate(
                zip(encoded.rows, _each(encoded.rows, mine)[:, 0], strict=True)
            )
            if right < 1.0
        ]
        return sorted(found, key=lambda mistake: mistake.weight)

    def ranked(self, encoded: Encoded, outputs: Scores, top: int) -> Iterator[list[dict[str, Any]]]:
        for found in _found(encoded, outputs, self.longest_answer):
            spans: list[dict[str, Any]] = [
                {"score": round(each.probability, 6), "start": each.start,
                 "end": each.start + len(each.text), "answer": each.text}
                for each in found.candidates
            ]  # fmt: skip
            none = {"score": round(1.0 - sum(c.probability for c in found.candidates), 6),
                    "start": 0, "end": 0, "answer": ""}  # fmt: skip
            # "No answer" comes first where it is the answer, and else where its share puts it.
            if not found.answer(self.threshold):
                spans.insert(0, none)
            elif self.threshold < np.inf:
                spans = [spans[0], *sorted([*spans[1:], none], key=lambda s: -s["score"])]
            yield spans[:top]


def _portions(windows: AnswerWindows) -> Iterator[AnswerRows]:
    for begin in range(0, len(windows), PORTION):
        yield windows.rows(np.arange(begin, min(begin + PORTION, len(windows))))


def _asked(rows: AnswerRows) -> NDArray[np.bool_]:
    """Where an answer may begin or end, the place for "none" among them."""
    asked = rows.allowed.copy()
    asked[:, NULL] = True
    return asked


def _found(encoded: Encoded, outputs: Scores, longest: int) -> list[Prediction]:
    def scored() -> Iterator[answer_search.Scored]:
        at = 0
        for rows in _portions(encoded.way_back):
            here = _asked(rows)
            both = np.full((2, *here.shape), -np.inf, np.float64)
            count = int(here.sum())
            both[:, here] = outputs[at : at + count].T
            at += count
            yield rows, both[0], both[1]

    return answer_search.search(encoded.way_back, scored(), longest=longest)


def _each(rows: Sequence[Any], answers: Answers) -> NDArray[np.float64]:
    """(N, 2) F1 and exact match of each answer, of its golds the one that suits it best."""
    found = [
        squad_score.best(mine, [gold for gold, _ in row.answers])
        for row, mine in zip(rows, answers, strict=True)
    ]
    return np.array(found, np.float64).reshape(-1, 2)[:, ::-1]


def _nearest(row: Answered) -> str:
    wanted = Counter(squad_score.normalise(row.question).split())
    sentences = [part for part in SENTENCE_END.split(row.context) if part.strip()] or [row.context]
    shared = [(Counter(squad_score.normalise(part).split()) & wanted).total() for part in sentences]
    return sentences[int(np.argmax(shared))]


KIND = QuestionAnswering
