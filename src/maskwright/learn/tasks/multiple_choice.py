"""Which of several choices answers a question (BERT's SWAG, Devlin et al. 2018, section 4.4).

{"label": 2, "choice": "the cat", "score": 0.71}
"""

from __future__ import annotations

import contextlib
import itertools
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.errors import DataError, Finding
from maskwright.learn.tasks.base.bag_of_words import fit_words
from maskwright.learn.tasks.base.encode import Frame, encode, encode_windows, examples_of
from maskwright.learn.tasks.base.task_type import (
    TOP,
    Answers,
    Encoded,
    Extent,
    Mistake,
    Outputs,
    Scores,
    TaskMetrics,
    TaskReport,
    TaskType,
    alike,
    metrics_of_arrays,
    text,
)
from maskwright.text.tables.cell_values import as_integer, is_empty, missing, text_in, text_of
from maskwright.text.tables.columns import NUMBERED, TEXTLIKE, ColumnSearch
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Shape, Task
from maskwright.text.tables.rows import TRAIN, ChoiceExample, Row, Table, cell_error, value_of

LETTERS = string.ascii_uppercase
MIN_ROWS = 5  # rows; with fewer, a 0 may be missing by chance

# Names of the column with the right choice.
ANSWERING = (
    *("label", "answer", "answerkey", "correct", "correctoption", "correctanswer", "gold"),
    *("target",),
)


class ChoicesLayout(Layout):
    """A question with choices, in one column of lists or one column each, and the right one.

    {"question": "…", "choices": ["…", "…"], "label": 1}
    {"question": "…", "choices": {"text": ["…", "…"], "label": ["A", "B"]}, "answerKey": "B"}
    {"article": "…", "question": "…", "options": ["…", "…"], "answer": "B"}
    """

    name = "choices"
    roles = ("question", "choices", "label")
    multi_column = ("choices",)
    joined = ("question",)
    lists = ("choices",)
    rank = 15  # before questions whose answers occur in a context

    def find(self, search: ColumnSearch) -> None:
        search.by_name("choices", lambda c: c.kind in ("texts", "object"))
        if "choices" not in search.roles:
            columns_by_prefix: dict[str, list[str]] = {}
            for column in search.free():
                match = NUMBERED.fullmatch(column.name.lower())
                if match and column.kind in TEXTLIKE:
                    columns_by_prefix.setdefault(match[1], []).append(column.name)
            letters = [search.by_plain.get(letter) for letter in "abcdefgh"]
            lettered = list(itertools.takewhile(lambda name: name is not None, letters))
            if len(lettered) > 2:
                columns_by_prefix["letters"] = [name for name in lettered if name is not None]
            longest_series = max(columns_by_prefix.values(), key=len, default=[])
            if len(longest_series) >= 2:
                order = sorted(longest_series, key=lambda name: (len(name), name))
                search.take("choices", order, "by their numbered names")
        if "choices" in search.roles:
            search.by_name("context", lambda c: c.kind == "text" and c.words >= 2)
            search.by_name("question", lambda c: c.kind == "text")
            if "question" not in search.roles and "context" in search.roles:
                search.take("question", search.roles.pop("context"), search.why.pop("context"))
            for spelling in ANSWERING:
                name = search.by_plain.get(spelling)
                if "label" in search.roles or name not in {c.name for c in search.free()}:
                    continue
                if spelling != "answer" or not _is_span(search, str(name)):
                    search.take("label", [str(name)], "by its name")

    def reason(self, columns: Columns) -> str:
        return "each row has a question and several choices"

    def prepare(
        self, table: Table, task: Task, classes: Sequence[str]
    ) -> tuple[Table, Iterator[Finding]]:
        _require_from_zero(itertools.chain.from_iterable(table.parts.values()), task.columns)
        return table, iter(())

    def inputs(self, row: Row, columns: Mapping[str, Sequence[str]]) -> tuple[str, tuple[str, ...]]:
        """Return the question, preceded by the text it refers to, if there is one, and the
        choices."""
        options = _options_of(row, columns["choices"])
        text_roles = [role for role in ("context", "question") if role in columns]
        return " ".join(text_in(row, columns[role]) for role in text_roles), options

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> ChoiceExample:
        columns = task.columns
        question, options = self.inputs(row, columns.roles)
        keys = _keys_of(row, columns.roles["choices"])
        right = _right_of(row, columns["label"], options, keys)
        context_columns = columns.roles.get("context", ())
        context = text_in(row, context_columns) if context_columns else ""
        return ChoiceExample(question, options, right, row.where, context)


def _keys_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the choices of a row as in {"text": […], "label": ["A", "B"]}, or ()."""
    value = value_of(row, names[0]) if len(names) == 1 else None
    keys = value.get("label") if type(value) is dict else None
    return tuple(str(key).strip() for key in keys) if type(keys) is list else ()


def _options_of(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    """Return the choices from one column of lists, or one column each (the last may be empty)."""
    if len(names) > 1:
        filled = [n for n, name in enumerate(names) if not is_empty(value_of(row, name))]
        count = max(filled, default=-1) + 1
        if count < 2:
            raise missing(row, names[min(count, 1)], "choice", "at least two")
        return tuple(text_of(row, name) for name in names[:count])
    value = value_of(row, names[0])
    if type(value) is dict:
        value = value.get("text")
    texts = [v for v in value if type(v) is str and not is_empty(v)] if type(value) is list else []
    if len(texts) < 2 or texts != value:
        raise missing(row, names[0], "list of choices", "a list of at least two texts")
    return tuple(value)


def _right_of(row: Row, name: str, options: Sequence[str], keys: Sequence[str]) -> int:
    """Return the index of the right choice, given as its name in `keys`, its index from 0, its
    letter, or its text."""
    value = value_of(row, name)
    if len(set(keys)) == len(options) and str(value).strip() in keys:
        return keys.index(str(value).strip())
    index = as_integer(value)
    if type(value) is str:
        option_counts = Counter(options)
        letter = value.strip().upper()
        if option_counts[value] == 1:
            exact = options.index(value)
            if index is not None and index != exact and 0 <= index < len(options):
                shown = f"{value!r}: choice {index} is {options[index]!r}, choice {exact} is it"
                valid_answers = "a place, counted from 0, or the words of a choice"
                do = "write letters, A for the first choice, in all rows"
                message = "the label means two choices of this row"
                raise cell_error(message, row, name, valid_answers, do, shown=shown)
            index = exact
        elif index is None and len(letter) == 1 and letter in LETTERS:
            index = LETTERS.index(letter)
    if index is None or not 0 <= index < len(options):
        valid_answers = f"0 to {len(options) - 1}, a letter from A on, or the choice itself"
        raise cell_error("the label is no choice of this row", row, name, valid_answers)
    return index


def _is_span(search: ColumnSearch, name: str) -> bool:
    """Whether a column "answer" seems to hold spans of the context: located, or rarely a choice."""
    if search.alone or "context" not in search.roles:
        return False
    choices, hits = search.roles["choices"], 0
    for row in search.rows:
        with contextlib.suppress(DataError):
            _right_of(row, name, _options_of(row, choices), _keys_of(row, choices))
            hits += 1
    return "answerstart" in search.by_plain or 2 * hits < len(search.rows)


def _require_from_zero(rows: Iterable[Row], columns: Columns) -> None:
    """Check that indices of choices do not count from 1, which would name the choice after the
    right one: none is 0, and one equals the number of choices."""
    name, choices = columns["label"], columns.roles["choices"]
    row_beyond, count = None, 0
    for row in rows:
        value = value_of(row, name)
        index = as_integer(value)
        if index is None or str(value).strip() in _keys_of(row, choices):
            continue
        if index < 1:
            return
        try:
            options = _options_of(row, choices)
        except DataError:  # reported when the row is read
            continue
        row_beyond = row_beyond or (row if index == len(options) and value not in options else None)
        count += 1
    if row_beyond is not None and count >= MIN_ROWS:
        raise cell_error(
            "the right choices seem to be counted from 1, as there is nowhere a 0",
            row_beyond,
            name,
            "places counted from 0, letters from A on, or the choices themselves",
            "take one from each, or write letters: A for 1",
        )


SHAPES = (Shape(name="multiple-choice", layout=ChoicesLayout(), metrics=("accuracy",)),)


class MultipleChoice(TaskType):
    """Predicts a score for each choice of a row from the pair of question and choice."""

    head = "choice"
    ranks = True
    pipeline = "multiple-choice"
    optional_roles = ("context",)

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        sizes = np.array([len(row.choices) for row in rows], np.int64)
        pairs = [(row.question, choice) for row in rows for choice in row.choices]
        labels = np.array([row.label for row in rows], np.int64)
        owners = np.repeat(np.arange(len(rows)), sizes)
        if frame.in_windows:
            windows, choices = encode_windows(pairs, frame)
            if len(windows) > len(pairs):
                counts = np.bincount(owners[choices], minlength=len(rows))
                examples = examples_of(windows, labels, frame, pieces=counts)
                lost = np.bincount(choices, [row.cut for row in windows], len(pairs))
                extent = Extent.of(examples.texts.lengths, choices, owners, lost.astype(np.int64))
                return Encoded(rows, examples, (), (choices, owners), extent)
        grouping: dict[str, Any] = {"pieces": sizes}
        if (sizes == sizes[:1]).all():
            grouping = {"choices": int(sizes[0]) if len(sizes) else 2}
        examples, cuts, lost = encode(pairs, labels, frame, **grouping)
        findings = cuts.findings(frame.length, "choices")
        extent = Extent.of(examples.texts.lengths, np.arange(len(pairs)), owners, lost)
        return Encoded(rows, examples, findings, None, extent)

    def example(self, values: Sequence[Any], where: str) -> ChoiceExample:
        question, choices = values
        if not isinstance(choices, list | tuple) or len(choices) < 2:
            raise DataError(
                "not two choices or more",
                where=where,
                found=repr(choices)[:80],
                wanted='["one", "another"]',
            )
        choice_texts = tuple(text(choice, "choice", where) for choice in choices)
        return ChoiceExample(text(question, "question", where), choice_texts, 0, where)

    def of_value(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping) and {"context", *self.roles} <= set(value):
            texts = (text(value[role], role, where) for role in ("context", "question"))
            value = {**value, "question": " ".join(texts)}
        return super().of_value(value, where)

    # ------------------------------------------------------------------------ decoding
    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """Return scores (N, max. number of choices): the mean over a choice's windows; -inf where a
        row has fewer choices."""
        if encoded.way_back is None:
            return outputs
        choices, owners = encoded.way_back  # the choice of each window, the row of each choice
        rows = owners[choices]
        column = np.arange(len(rows)) - np.searchsorted(rows, rows)
        means = np.bincount(choices, outputs[rows, column]) / np.bincount(choices)
        sizes = np.bincount(owners, minlength=len(encoded.rows))
        scores = np.full((len(sizes), sizes.max(initial=0)), -np.inf, np.float32)
        scores[owners, np.arange(len(owners)) - np.searchsorted(owners, owners)] = means
        return scores

    def answers(self, encoded: Encoded, outputs: Scores) -> NDArray[np.int64]:
        return np.asarray(self.merged(encoded, outputs).argmax(1))

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[Any]:
        outputs, top = self.merged(encoded, outputs), self.options.get(TOP)
        for row, shares in zip(
            encoded.rows, scipy.special.softmax(outputs.astype(np.float64), 1), strict=True
        ):
            order = np.argsort(-shares, kind="stable")[: min(top or 1, len(row.choices))].tolist()
            ranked = [
                {"label": n, "choice": row.choices[n], "score": round(float(shares[n]), 6)}
                for n in order
            ]
            yield ranked[0] if top is None else ranked

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        choices = example.choices
        return {"label": range(len(choices)), "choice": choices, "score": float}

    # ------------------------------------------------------------------------ evaluation
    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        return metrics_of_arrays(self.measures, _truth(rows), answers)

    def report(self, encoded: Encoded, outputs: Scores, answers: Answers) -> TaskReport:
        mistakes = [
            Mistake(row.where, row.question, row.choices[row.label], best["choice"], best["score"])
            for row, best in zip(encoded.rows, self.as_pipeline(encoded, outputs), strict=True)
            if best["label"] != row.label
        ]
        one_sided = alike(_truth(encoded.rows), answers, lambda number: f"choice {number + 1}")
        return TaskReport(sorted(mistakes, key=lambda m: -m.weight), one_sided=one_sided)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The index that is right most often, and the choice nearest to the question by TF-IDF."""
        rows = data.parts[eval_part]
        most_frequent = int(np.bincount(_truth(data.parts[TRAIN])).argmax())
        tfidf = fit_words(
            [text for row in data.parts[TRAIN] for text in (row.question, *row.choices)]
        )
        near = [
            (tfidf.transform(row.choices) @ tfidf.transform([row.question]).T).toarray()[:, 0]
            for row in rows
        ]
        return [
            ("majority", np.full(len(rows), most_frequent)),
            ("nearest by words", np.array([int(similarities.argmax()) for similarities in near])),
        ]


def _truth(rows: Sequence[Any]) -> NDArray[np.int64]:
    return np.array([row.label for row in rows], np.int64)


TYPE = MultipleChoice
