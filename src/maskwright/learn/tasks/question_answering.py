"""Extractive question answering: the span of a context that answers a question, or no answer.

    {"score": 0.81, "start": 34, "end": 40, "answer": "Saturn"}

Long contexts are split into overlapping windows; the target of a window without the answer is its
first position. An answer has at most 30 tokens, or as many as the longest of the validation part.
If some questions of that part have no answer, the threshold of "no answer" is chosen there.

If only some questions have an answer, F1 prefers a model that never answers to one that is often
wrong. Epoch, seed and threshold are then chosen by `balanced_f1`, which is 0 for such a model,
unless another metric is requested; windows with and without an answer are sampled equally often;
and metrics are also reported for both kinds of questions, as in SQuAD 2.0 (Rajpurkar et al. 2018,
arXiv:1806.03822).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import Finding
from maskwright.base.metrics import squad_score
from maskwright.base.metrics.intervals import OfSums
from maskwright.base.metrics.row_metrics import ratio
from maskwright.base.terminal import counted, rounded
from maskwright.learn.tasks.base.choices import (
    IMPOSSIBLE,
    INPUT_LENGTH,
    OVERLAP,
    QUESTION_LENGTH,
    WITHIN,
)
from maskwright.learn.tasks.base.encode import Frame, inked, windows
from maskwright.learn.tasks.base.span_search import Prediction, search
from maskwright.learn.tasks.base.task_type import (
    ONE_SIDED,
    TOP,
    Answers,
    Encoded,
    Extent,
    Mistake,
    ReadOutputs,
    Scores,
    TaskMetrics,
    TaskReport,
    TaskType,
    metrics_of_sums,
    text,
)
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.text.tables import marked_text
from maskwright.text.tables.cell_values import as_integer, is_empty, missing, require_field, text_in
from maskwright.text.tables.columns import NAMES, TEXTLIKE, ColumnSearch, nearly_all
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Shape, Task
from maskwright.text.tables.marked_text import as_read, cause_of_place, whole_words
from maskwright.text.tables.rows import (
    FIX_ROW,
    TABLE_FILE,
    TAKE_OUT,
    TRAIN,
    VALIDATION,
    QuestionExample,
    Row,
    cell_error,
    plain,
    value_of,
)
from maskwright.text.tokenizer.tokenizer import Tokenizer

YES_OR_NO = {"yes", "no", "true", "false", "y", "n", "maybe", "0", "1"}
TRUE, FALSE = {"1", "1.0", "true"}, {"0", "0.0", "false"}
NO_ANSWERS = '{"text": [], "answer_start": []}'
UNANSWERABLE = ("isimpossible", "impossible", "unanswerable")


class QuestionLayout(Layout):
    """{"question": "…", "context": "…", "answers": {"text": ["…"], "answer_start": [34]}}

    Offsets count characters as in Python, and the context must contain the answer at its offset.
    """

    name = "question"
    roles = ("question", "context", "answers")
    joined = ("question",)
    lists = ("answers",)
    learned = "answers"
    rank = 20

    def find(self, search: ColumnSearch) -> None:
        if "answers" not in search.roles and (_has_verdicts(search) or _is_yes_or_no(search)):
            return
        search.by_name("context", lambda c: c.kind in TEXTLIKE)
        search.by_name(
            "answers",
            lambda c: (
                c.kind in ("object", "texts", "text", "mixed")
                or (c.kind in TEXTLIKE and not c.has_classes and _is_in_contexts(search, c.name))
            ),
        )
        if "context" in search.roles:
            search.by_name("question", lambda c: c.kind in TEXTLIKE)

    def answers(self, row: Row, columns: Columns) -> list[Any]:
        value = value_of(row, columns["answers"])
        texts = value.get("text") if type(value) is dict else value
        if type(texts) is not list or not texts:
            return [texts]
        return [answer.get("text") if type(answer) is dict else answer for answer in texts]

    def reason(self, columns: Columns) -> str:
        return "each row has a question, a context and answers in it"

    def inputs(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Sequence[str]:
        return super().inputs(row.as_given(), columns)

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> QuestionExample:
        columns = task.columns
        question = text_in(row, columns.roles["question"])
        text_in(row, columns.roles["context"])  # the cleaned text must not be empty
        context = text_in(row.as_given(), columns.roles["context"])
        answers = _parse_answers(row, columns["answers"], context)
        impossible = _is_unanswerable(row)
        if impossible is not None and impossible == bool(answers):
            raise cell_error(
                "the answers and the mark of an unanswerable question contradict each other",
                row,
                columns["answers"],
                "answers, or that mark",
                shown=f"{counted(len(answers), 'answer')}, marked as "
                f"{'unanswerable' if impossible else 'answerable'}",
            )
        return QuestionExample(question, context, answers, row.where)

    def findings(self, split: str, dataset: Dataset) -> Iterator[Finding]:
        """Yield findings on questions of a part without an answer."""
        rows = dataset.parts[split]
        unanswered = [row for row in rows if not row.answers]
        if unanswered:
            yield Finding(
                "questions-without-answer",
                f"{counted(len(unanswered), 'question')} of {len(rows):,} in {split} "
                f"({len(unanswered) / len(rows):.0%}) without an answer in the context",
                f"the first: {unanswered[0].where}",
            )
        columns = dataset.task.columns
        empty = columns.column("answers").empty if unanswered else 0
        if empty and TABLE_FILE.search(
            unanswered[0].where.rpartition(",")[0]
        ):  # else null is refused
            yield Finding(
                "empty-answers",
                f"an empty cell in the column {columns['answers']!r} is read as no answer",
                remedy="take out rows whose answers are not known",
            )


def _has_verdicts(search: ColumnSearch) -> bool:
    """Whether there is a text column `answer` and a column `label` of classes that rate it."""
    answer, label = search.by_plain.get("answer"), search.by_plain.get("label")
    return (
        bool(answer and label)
        and search.described[str(answer)].kind == "text"
        and (search.described[str(label)].has_classes)
    )


def _is_in_contexts(search: ColumnSearch, name: str) -> bool:
    """Whether a column is named like answers, and nearly all its numbers occur in the contexts."""
    context = search.roles.get("context", ("",))[0]
    cells = ((str(value_of(r, name)).strip(), str(value_of(r, context))) for r in search.rows)
    hits = (bool(n and re.search(rf"(?<!\d){re.escape(n)}(?!\d)", text)) for n, text in cells)
    return plain(name) in NAMES["answers"] and nearly_all(sum(hits), search.described[name].rows)


def _is_yes_or_no(search: ColumnSearch) -> bool:
    """Whether all answers are yes or no, which need not occur in the text."""
    name = next((n for s in NAMES["answers"] if (n := search.by_plain.get(s))), None)
    answers = {str(value_of(row, name)).strip().lower() for row in search.rows} if name else set()
    return bool(answers) and answers <= YES_OR_NO


def _parse_answers(row: Row, name: str, context: str) -> tuple[tuple[str, int], ...]:
    """Return the answers as (text, offset in `context`); without offset they must occur once."""
    value = value_of(row, name)
    starts: list[Any] = []
    if value is None and _is_unanswerable(row):
        return ()
    require_field(row, "answers", name, NO_ANSWERS)
    if value is None:
        raise cell_error("null in the place of answers", row, name, f"answers, or {NO_ANSWERS}")
    if type(value) is dict:  # {"text": ["…"], "answer_start": [0]}, as in SQuAD
        if "text" not in value:
            raise cell_error("an answer without a text", row, name, "the field 'text'")
        texts, starts = value["text"], value.get("answer_start", [])
    elif type(value) is list and value and all(type(answer) is dict for answer in value):
        texts, starts = [v.get("text") for v in value], [v.get("answer_start") for v in value]
    else:  # the offsets, if any, are in a column of their own
        texts = value if type(value) is list else [] if is_empty(value) else [value]
        start = value_of(row, "answer_start")
        starts = start if type(start) is list else [start]
        starts = [] if not texts or is_empty(start) else starts
    if type(texts) in (str, int, float):
        texts, starts = [texts], [starts]
    if type(texts) is not list or not all(type(t) in (str, int, float) for t in texts):
        raise missing(row, name, "answer", '{"text": ["…"], "answer_start": [0]}')
    if type(starts) is not list or (starts and len(starts) != len(texts)):
        raise missing(row, name, "place of an answer", "as many answer_start as text")
    offsets = [as_integer(start) for start in starts] if starts else [None] * len(texts)
    answers = zip(texts, offsets, strict=True)
    return tuple(_locate(str(text), offset, context, row, name) for text, offset in answers)


def _is_unanswerable(row: Row) -> bool | None:
    """Whether the row is marked as unanswerable; None without such a mark."""
    name = next((name for name in row.values if plain(name) in UNANSWERABLE), None)
    value = "" if name is None else str(row.values[name]).strip().lower()
    return True if value in TRUE else False if value in FALSE else None


def _locate(text: str, start: int | None, context: str, row: Row, name: str) -> tuple[str, int]:
    """Locate an answer and return (its text in the context, its offset); raise DataError if it is
    not at `start`, or without `start` not exactly once in the context."""
    count = context.count(text) if text.strip() else 0
    shown, cause = repr(text), None
    if start is not None:
        text_at_start = context[max(0, start) : max(0, start) + len(text)]
        if start >= 0 and text_at_start == text and text.strip():
            return text, start
        if (slice_ := marked_text.raw_slice(context, text, start)) is not None:
            return context[slice_], slice_.start
        shown += f", at character {start}: {text_at_start!r}"
        cause = cause_of_place(context, text, start)
    elif count == 1:
        return text, context.index(text)
    message = "the answer is not in the context at its place"
    condition, remedy = "context[start : start + len(answer)] == answer, in characters", "correct"
    if start is None:
        message = f"an answer without a position is in the context {counted(count, 'time')}"
        condition, remedy = "an answer that is there once, or its position", "add"
    starts = [match.start() for match in re.finditer(re.escape(text), context)] if count else []
    tip = f"{remedy} answer_start: it stands at {', '.join(map(str, starts[:5]))}, or {TAKE_OUT}"
    do = "; ".join(filter(None, [tip if starts else FIX_ROW, cause]))
    raise cell_error(message, row, name, condition, do, shown=shown)


BALANCED_F1 = "balanced_f1"  # mean over questions with and without an answer
SHAPES = (
    Shape(
        name="question-answering",
        layout=QuestionLayout(),
        metrics=("f1", "exact"),
        selectable=(BALANCED_F1,),
    ),
)
STRIDE, LONGEST_QUESTION = 128, 64
LONGEST_ANSWER = 30
NONE = "(no answer)"
HAS, NO = "has_answer_", "no_answer_"
OFTEN = 0.1  # share of the training answers
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class AnswerCounts:
    """Counts of questions, windows and what was truncated or could not be encoded."""

    questions: int
    answerable: int  # questions with a true answer
    windows: int
    questions_cut: int  # truncated questions
    blank: int  # questions without a token, of which only the context is encoded
    exact: int  # answerable questions whose first answer is exactly restored from its tokens
    tokenless: int  # answerable questions whose answers have no token
    lost: int  # answerable questions of which no answer lies completely in a window
    longest: int  # tokens of the longest target, which the search should allow

    def findings(self) -> list[Finding]:
        """Return a finding with the counts if something is notable."""
        divided = self.windows > self.questions
        incomplete = self.answerable and (self.tokenless or self.lost or divided)
        if not (self.questions_cut or self.blank or incomplete):
            return []
        answers = (
            f"of {self.answerable:,} answers {self.exact:,} come back exactly, "
            f"{self.tokenless:,} have no token, {self.lost:,} fit in no window; "
        )
        message = (
            f"{self.questions:,} questions in {self.windows:,} windows; "
            f"{answers * bool(self.answerable)}{self.questions_cut:,} questions truncated"
            + f", {self.blank:,} without a token"
            * bool(self.blank)
        )
        return [Finding("windows-of-answers", message)]


class AnswerWindows:
    """Questions with contexts as windows of at most `length` tokens, each `stride` tokens after the
    one before; or with `overlap` so that neighbours share so many tokens.

        [CLS] question [SEP] a piece of the context [SEP]      start, stop: places in this row
          ^ the first place stands for "no answer here"        (Devlin et al. 2019, 4.2 and 4.3)

    The target of a window is the first true answer that lies completely in it, else "no answer
    here"; -1 if no window of the question has its answer.

    Attributes:
        rows: the questions.
        question_of: (W,) index of each window's question.
        question_cut: (Q,) number of tokens that each question lost.
        texts, segments: the ids of each window, and the segments of all ids.
        places: positions in each window where an answer may begin or end, after the first place:
            those of context tokens except whitespace.
        characters: (M, 2) character span in the context of the token at each place.
        targets: (W, 2) indices of the first and last place of the answer.
        counts: statistics of the encoding.

    Raises:
        ConfigError: no room for a context.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[QuestionExample],
        *,
        length: int,
        stride: int,
        overlap: int | None = None,
        longest_question: int,
    ) -> None:
        self.rows = rows
        whole_questions = tokenizer.encode_batch(as_read(row.question) for row in rows)
        questions = [ids[:longest_question].tolist() for ids in whole_questions]
        self.question_cut = np.array(
            [len(ids) - len(cut) for ids, cut in zip(whole_questions, questions, strict=True)],
            np.int64,
        )
        contexts = list(dict.fromkeys(row.context for row in rows))
        encoded = marked_text.encode_raw(tokenizer, contexts)
        tokens_of = {
            context: (ids.tolist(), inked(context, spans))
            for context, (ids, spans) in zip(contexts, encoded, strict=True)
        }
        margins = tokenizer.frame_margins(pair=True)
        self.texts: list[list[int]] = []
        self.segments: list[int] = []
        owners: list[int] = []
        positions = [np.zeros(0, np.int64)]
        characters, targets = [np.zeros((0, 2), np.int64)], [np.zeros((0, 2), np.int64)]
        exact = tokenless = lost = longest = 0
        for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
            ids, spans = tokens_of[row.context]
            room = length - sum(margins) - len(question)
            # As in BERT's script, the stride is at most the room that the question leaves.
            step = stride if overlap is None else room - overlap
            divided = windows(len(ids), room, max(1, min(step, room)))
            before = sum(margins[:2]) + len(question)
            is_ink = spans[:, 0] < spans[:, 1]
            for start, stop in divided.tolist():
                window_ids, kinds = tokenizer.frame(question, ids[start:stop])
                self.texts.append(window_ids)
                self.segments += kinds
                owners.append(number)
                inked_tokens = np.flatnonzero(is_ink[start:stop])
                positions.append(np.concatenate([[0], before + inked_tokens]))
                characters.append(np.concatenate([[[0, 0]], spans[start + inked_tokens]]))
            answers = [_tokens_of(row, spans, answer, begin) for answer, begin in row.answers]
            golds = [tokens for tokens, _ in answers if tokens is not None]
            window_targets, sizes = _window_targets(divided, is_ink, golds)
            if answers:
                exact += answers[0][1]
                tokenless += not golds
                lost += bool(golds) and not sizes.any()
                longest = max(longest, int(sizes.max()))
                if not sizes.any():
                    window_targets[:] = -1
            targets.append(window_targets)
        self.question_of = np.array(owners, np.int64)
        lengths = np.array([len(window_places) for window_places in positions[1:]], np.int64)
        self.places = Sequences(np.concatenate(positions), lengths)
        self.characters, self.targets = np.concatenate(characters), np.concatenate(targets)
        self.counts = AnswerCounts(
            questions=len(rows),
            answerable=sum(bool(row.answers) for row in rows),
            windows=len(self.texts),
            questions_cut=int(np.count_nonzero(self.question_cut)),
            blank=sum(not ids for ids in questions),
            exact=exact,
            tokenless=tokenless,
            lost=lost,
            longest=longest,
        )


def _tokens_of(
    row: QuestionExample, spans: NDArray[np.int64], answer: str, begin: int
) -> tuple[tuple[int, int] | None, bool]:
    """Return (first, stop) of the tokens with characters of an answer, or None without one, and
    whether they restore it exactly. All tokens are searched, since normalisation may reorder
    some."""
    text = row.context[begin : begin + len(answer)]
    start, end = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
    ink = spans[:, 0] < spans[:, 1]
    (covered,) = np.nonzero(ink & (spans[:, 0] < end) & (spans[:, 1] > start))
    if not len(covered):
        return None, False
    begin_token, end_token = int(covered[0]), int(covered[-1]) + 1
    restored = int(spans[begin_token, 0]), int(spans[end_token - 1, 1])
    is_exact = restored == (start, end) == (begin, begin + len(text))
    return (begin_token, end_token), is_exact


def _window_targets(
    divided: NDArray[np.int64], is_ink: NDArray[np.bool_], golds: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the targets (W, 2) of the windows of a question, and their numbers of tokens (W,), 0
    where a window does not contain an answer.

    Args:
        divided: (W, 2) first and stop token of each window.
        is_ink: (T,) whether each token of the context is more than whitespace.
        golds: first and stop token of each true answer.
    """
    targets, sizes = np.zeros((len(divided), 2), np.int64), np.zeros(len(divided), np.int64)
    rank = np.concatenate([[0], np.cumsum(is_ink)])  # inked tokens before each
    for begin, end in reversed(golds):  # so that the first answer takes precedence
        inside = (divided[:, 0] <= begin) & (end <= divided[:, 1])
        offsets = 1 - rank[divided[inside, 0]]
        targets[inside] = np.stack([rank[begin] + offsets, rank[end - 1] + offsets], axis=1)
        sizes[inside] = end - begin
    return targets, sizes


class QuestionAnswering(TaskType):
    """Predicts start and end of an answer (Devlin et al. 2018, sections 4.2 and 4.3)."""

    head = "span"
    ranks = True
    pipeline = "question-answering"
    counts_places = True
    longest = 384

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
        length = min(frame.length, self.options.get(INPUT_LENGTH, frame.length))
        longest_question = length // 2 if frame.refuses else min(LONGEST_QUESTION, length // 3)
        windows = AnswerWindows(
            frame.tokenizer,
            rows,
            length=length,
            stride=min(STRIDE, length // 3),
            overlap=self.options.get(OVERLAP),
            longest_question=self.options.get(QUESTION_LENGTH, longest_question),
        )
        examples = EncodedExamples(
            framed(windows.texts),
            windows.targets,
            np.array(windows.segments, np.int64) if frame.segments else None,
            places=windows.places,
        )
        findings = windows.counts.findings()
        if self.within_words and (within := sum(map(_cuts_a_word, rows))):
            message = f"{counted(within, 'row')} with an answer that begins or ends within a word"
            findings.append(Finding("answers-within-words", message, "as predicted answers may"))
        extent = Extent.of(examples.texts.lengths, windows.question_of, cut=windows.question_cut)
        return Encoded(rows, examples, tuple(findings), windows, extent)

    def example(self, values: Sequence[Any], where: str) -> QuestionExample:
        question, context = (text(v, r, where) for v, r in zip(values, self.roles, strict=True))
        return QuestionExample(question, context, (), where)

    # ------------------------------------------------------------------------ decoding
    def answers(self, encoded: Encoded, outputs: Scores) -> list[str]:
        return [p.answer(self.threshold) for p in self._predictions(encoded, outputs)]

    def _predictions(self, encoded: Encoded, outputs: Scores) -> list[Prediction]:
        """Return the best answer spans of every question."""
        windows: AnswerWindows = encoded.way_back
        contexts = [row.context for row in encoded.rows]
        where = windows.places, windows.characters, windows.question_of, contexts
        words = not self.within_words
        return search(outputs, *where, longest=self.longest_answer, words=words)

    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        longest = max(LONGEST_ANSWER, encoded.way_back.counts.longest)
        task_type = self if longest == LONGEST_ANSWER else self.with_options({"longest": longest})
        if all(row.answers for row in encoded.rows):
            return task_type
        predictions = task_type._predictions(encoded, read(self))
        # By F1, or by exact match if that is the metric that selects.
        column = int(self.measure == "exact")
        answers, null_scores = (
            _row_scores(encoded.rows, texts)[:, column]
            for texts in ([p.answer() for p in predictions], [""] * len(predictions))
        )
        differences = np.array([prediction.difference for prediction in predictions])
        has_answer = _has_answer(encoded.rows) if self.measure == BALANCED_F1 else None
        threshold, _ = squad_score.best_threshold(differences, answers, null_scores, has_answer)
        return task_type.with_options({"threshold": _finite(threshold, differences)})

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[Any]:
        top = self.options.get(TOP)
        for prediction in self._predictions(encoded, outputs):
            spans = [
                _pipeline_answer(c.probability, c.start, c.text) for c in prediction.candidates
            ]
            null_answer = _pipeline_answer(prediction.null_probability, 0, "")
            if self.options.get(IMPOSSIBLE):
                spans = sorted([*spans, null_answer], key=lambda span: -span["score"])
                yield spans[0] if top is None else spans[:top]
                continue
            # The predicted answer (or "no answer") comes first, the others by probability.
            if not prediction.answer(self.threshold):
                spans.insert(0, null_answer)
            elif self.threshold < np.inf:
                spans.append(null_answer)
            if top is None:
                yield spans[0]
            else:
                yield [*spans[:1], *sorted(spans[1:], key=lambda span: -span["score"])][:top]

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        return {"score": float, "start": int, "end": int, "answer": str}

    # ------------------------------------------------------------------------ evaluation
    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        """Also for questions with and without an answer alone if there are both."""
        row_scores, has_answer = _row_scores(rows, answers), _has_answer(rows)
        sums = np.column_stack([row_scores, np.ones(len(row_scores))])
        figures: dict[str, tuple[OfSums, NDArray[np.float64]]] = {
            name: (ratio, sums[:, [number, 2]]) for number, name in enumerate(self.measures)
        }
        if 0 < has_answer.sum() < len(has_answer):
            by_answerable = np.column_stack(
                [sums * has_answer[:, None], sums * ~has_answer[:, None]]
            )
            for start, sort in ((0, HAS), (3, NO)):
                figures |= {
                    sort + name: (ratio, by_answerable[:, [start + number, start + 2]])
                    for number, name in enumerate(self.measures)
                }
            figures[BALANCED_F1] = (_balanced, by_answerable[:, [0, 2, 3, 5]])
        elif self.measure == BALANCED_F1:  # only one kind of questions
            figures[BALANCED_F1] = figures["f1"]
        return metrics_of_sums(figures)

    def report(self, encoded: Encoded, outputs: Scores, answers: Answers) -> TaskReport:
        mistakes, all_f1 = [], _row_scores(encoded.rows, answers)[:, 0].tolist()
        for row, answer, f1 in zip(encoded.rows, answers, all_f1, strict=True):
            if f1 < 1.0:
                gold = " / ".join(dict.fromkeys(text for text, _ in row.answers)) or NONE
                mistakes.append(Mistake(row.where, row.question, gold, answer or NONE, f1))
        one_sided = _one_sided(encoded.rows, answers)
        return TaskReport(sorted(mistakes, key=lambda m: m.weight), "F1", one_sided=one_sided)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The sentence of the context that shares most words with the question; and, if a question
        has no answer, always "no answer"."""
        rows = data.parts[eval_part]
        answers: list[tuple[str, Answers]] = [("nearest sentence", [_nearest(row) for row in rows])]
        if any(not row.answers for part_rows in data.parts.values() for row in part_rows):
            answers.append(("never answers", [""] * len(rows)))
        return answers


def _pipeline_answer(probability: float, start: int, answer: str) -> dict[str, Any]:
    """Return an answer in the form of a transformers `pipeline`."""
    end = start + len(answer)
    return {"score": rounded(probability), "start": start, "end": end, "answer": answer}


def _one_sided(rows: Sequence[Any], answers: Answers) -> Finding | None:
    has_answer, answered = _has_answer(rows), np.array([bool(answer) for answer in answers])
    never_answers = not answered.any() and bool(has_answer.any())
    if not never_answers and not (answered.all() and not has_answer.all()):
        return None
    message = (
        f'"no answer" is predicted for {"all" if never_answers else "none of"} '
        f"{counted(len(rows), 'question')}, {has_answer.sum():,} with an answer"
    )
    remedy = "give it more questions with an answer, or more epochs" if never_answers else ""
    return Finding(ONE_SIDED, message, remedy=remedy, severity="warning")


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


def _balanced(sums: NDArray[Any]) -> NDArray[Any]:
    """Return `squad_score.balanced` of (N, 4) sums and counts by kind; one kind: its mean."""
    answered_ratio, second = ratio(sums[:, :2]), ratio(sums[:, 2:])
    balanced = squad_score.balanced(answered_ratio, second)
    return np.where(
        np.isnan(answered_ratio), second, np.where(np.isnan(second), answered_ratio, balanced)
    )


def _finite(threshold: float, differences: NDArray[np.float64]) -> float | None:
    """Return a finite threshold that JSON can represent: an infinite one becomes a bound of the
    `differences`, with the same predictions for them. None if none of these is finite."""
    finite = differences[np.isfinite(differences)]
    if not len(finite):
        return None
    return float(np.clip(threshold, np.nextafter(finite.min(), -np.inf), finite.max()))


def _nearest(row: QuestionExample) -> str:
    question_words = Counter(squad_score.normalise(row.question).split())

    def shared(sentence: str) -> int:
        return (Counter(squad_score.normalise(sentence).split()) & question_words).total()

    sentences = filter(str.strip, SENTENCE_END.split(row.context))
    return max(sentences, key=shared, default=row.context)


TYPE = QuestionAnswering
