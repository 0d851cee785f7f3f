"""Tagging of words: parts of speech, or named entities in a scheme such as BIO.

    [{"entity_group": "LOC", "score": 0.98, "word": "Rome", "start": 17, "end": 21}, …]
    [{"entity": "NOUN", "score": 0.99, "word": "cat", "start": 4, "end": 7}, …]

Entities are scored as in CoNLL (`text/tables/tags.py`), other tags by accuracy. Words are those of
the file; plain text is first split into words and punctuation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import Estimate, OfSums, estimate_of_sums
from maskwright.base.report.tables import Table
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Mistake,
    Scores,
    TaskType,
    alike,
    classes_table,
)
from maskwright.learn.tasks.windows.tag_windows import TagWindows
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.model.objectives.base.sequences import Sequences
from maskwright.text.tables import tags
from maskwright.text.tables.examples import UNKNOWN, TaggedExample
from maskwright.text.tables.formats.conll import Sentence
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.layouts.words import WORDS
from maskwright.text.tables.marked_text import words_in
from maskwright.text.tables.rows import TRAIN, Row, value_of
from maskwright.text.tables.tags import OUTSIDE, Entity, TagScore, as_entities, spelling_of

SHAPES = (Shape(name="tagging", layout=WORDS, label="classes", metrics=("entity_f1", "accuracy")),)
PORTION = 512  # windows that are built together


class Tagging(TaskType):
    """Predicts a tag for each word at its first sub-token (Devlin et al. 2018, section 5.3)."""

    head = "token"

    @property
    def pipeline(self) -> str:
        return "token-classification"

    @property
    def counts_places(self) -> bool:
        return True

    @property
    def decoding(self) -> dict[str, Any]:
        """`read`: each label as (prefix, type) in the usual spelling with the prefixes B, I, E, S
        and O; None if tags mark no entities. `missing`: the label of a word without a token."""
        spelled = as_entities(self.labels, self.labels) if self.marks_entities else None
        tags_read = None if spelled is None else [tags.split_tag(tag) for tag in spelled]
        return {"read": tags_read, "missing": str(self.options.get("missing", OUTSIDE))}

    @property
    def marks_entities(self) -> bool:
        """Whether the tags follow an entity scheme, such as B-LOC."""
        return spelling_of(self.labels) is not None

    def _entities(self, tagged: Sequence[str]) -> list[Entity]:
        """Return the entities of a sentence from its tags, in any supported spelling."""
        return tags.entities(as_entities(tagged, self.labels))

    def _entity_scores(
        self, predicted: Sequence[Sequence[str]], true: Sequence[Sequence[str]]
    ) -> TagScore:
        """Return precision, recall and F1 of entities, in total and by type."""
        predicted_tags, true_tags = (
            [as_entities(sentence_tags, self.labels) for sentence_tags in sentences]
            for sentences in (predicted, true)
        )
        return tags.score(predicted_tags, true_tags)

    @property
    def measures(self) -> tuple[str, ...]:
        return self.shape.metrics[0 if self.marks_entities else 1 :]

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        sentences = [row if isinstance(row, Sentence) else self._sentence(row) for row in rows]
        windows = TagWindows(
            frame.tokenizer,
            sentences,
            self.labels,
            length=frame.length,
            stride=max(1, frame.length // 2),
        )
        texts: list[list[int]] = []
        segments, positions, word_numbers, classes = [], [], [], []
        for begin in range(0, len(windows), PORTION):
            batch = windows.rows(np.arange(begin, min(begin + PORTION, len(windows))))
            texts += [
                ids[real].tolist() for ids, real in zip(batch.tokens, batch.real, strict=True)
            ]
            segments.append(batch.segments[batch.real])
            has_word = batch.words >= 0
            positions += [np.flatnonzero(row) for row in has_word]
            word_numbers.append(batch.words[has_word])
            classes.append(batch.labels[has_word])
        counts = np.array([len(row) for row in positions], np.int64)
        empty = np.zeros(0, np.int64)
        examples = EncodedExamples(
            framed(texts),
            np.maximum(np.concatenate([empty, *classes]), 0),  # unknown labels: not used
            np.concatenate([empty, *segments]) if frame.segments else None,
            places=Sequences(np.concatenate([empty, *positions]), counts),
        )
        counted = windows.counts
        cut = (Finding("windows-of-words", counted.render()),)
        findings = cut if counted.dropped or counted.divided else ()
        extent = Extent.of(examples.texts.lengths, windows.sentence_of)
        way_back = (windows, np.concatenate([empty, *word_numbers]))
        return Encoded(rows, examples, findings, way_back, extent)

    def example(self, values: Sequence[Any], where: str) -> Sentence:
        (value,) = values
        if type(value) is str:
            words = tuple(value[begin:end] for begin, end in words_in(value))
            return Sentence(self._words(words, where), None, value, where)
        if not isinstance(value, list | tuple) or not all(type(word) is str for word in value):
            raise DataError(
                "neither a text nor a list of words",
                where=where,
                found=repr(value)[:80],
                wanted='"a text", or ["a", "text"]',
            )
        return Sentence(self._words(tuple(value), where), None, where=where)

    def of_row(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Sentence:
        return self.example([value_of(row.as_given(), columns["tokens"][0])], row.where)

    def of_value(self, value: Any, where: str) -> Sentence:
        if isinstance(value, Mapping) and set(value) == set(self.roles):
            value = value[self.roles[0]]
        return self.example([value], where)

    def value_of(self, example: Any) -> Any:
        text = example.text
        cut = tuple(text[begin:end] for begin, end in words_in(text))
        return text if cut == example.words else list(example.words)

    def _words(self, words: tuple[str, ...], where: str) -> tuple[str, ...]:
        if not any(word.strip() for word in words):
            raise DataError(
                "a text without a word", where=where, found=repr(words)[:80], wanted="words"
            )
        return words

    def _sentence(self, row: TaggedExample) -> Sentence:
        tags_ = tuple(None if n == UNKNOWN else self.labels[n] for n in row.tags)
        return Sentence(row.tokens, tags_, row.text, row.where)

    # ------------------------------------------------------------------------ decoding
    def answers(self, encoded: Encoded, outputs: Scores) -> list[list[str]]:
        windows, words = encoded.way_back
        missing = str(self.options.get("missing", OUTSIDE))
        return windows.by_sentence(words, outputs.argmax(1), missing=missing)

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Scores]) -> Self:
        """Set the tag of words without a token: "outside", or the most frequent tag if that is no
        label."""
        if OUTSIDE in self.labels:
            return self
        spelling = spelling_of(self.labels)
        if spelling is not None and spelling.outside in self.labels:
            return self.with_options({"missing": spelling.outside})
        counts = Counter(tag for row in encoded.rows for tag in row.tags if tag != UNKNOWN)
        return self.with_options({"missing": self.labels[_most_frequent(counts)]})

    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        sums = self._counts(rows, answers).sum(0, keepdims=True).astype(np.float64)
        return {name: float(figure(sums)[0]) for name, figure in self._metrics().items()}

    def _compared(
        self, rows: Sequence[TaggedExample], answers: Answers
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Return true and predicted tags of each row, without words whose tag is unknown."""
        true = [[self.labels[n] for n in row.tags if n != UNKNOWN] for row in rows]
        predicted = [
            [tag for tag, n in zip(answer, row.tags, strict=True) if n != UNKNOWN]
            for row, answer in zip(rows, answers, strict=True)
        ]
        return true, predicted

    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        counts = self._counts(rows, answers)
        return {name: estimate_of_sums(figure, counts) for name, figure in self._metrics().items()}

    def _metrics(self) -> dict[str, OfSums]:
        figures: dict[str, OfSums] = {"accuracy": _accuracy, "entity_f1": _entity_f1}
        return {name: figures[name] for name in self.measures}

    def _counts(self, rows: Sequence[Any], answers: Answers) -> NDArray[np.int64]:
        """Return (N, 5): words, correct words, true, predicted and correct entities of each row."""
        counts = np.zeros((len(rows), 5), np.int64)
        for n, (true, predicted) in enumerate(zip(*self._compared(rows, answers), strict=True)):
            correct = sum(a == b for a, b in zip(true, predicted, strict=True))
            counts[n, :2] = len(true), correct
            if self.marks_entities:
                truth, output = set(self._entities(true)), set(self._entities(predicted))
                counts[n, 2:] = len(truth), len(output), len(truth & output)
        return counts

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """The most frequent tag, and the most frequent tag of each word in the training part."""
        counts_by_word: dict[str, Counter[int]] = {}
        total: Counter[int] = Counter()
        for row in data.parts[TRAIN]:
            for word, tag in zip(row.tokens, row.tags, strict=True):
                if tag != UNKNOWN:
                    total[tag] += 1
                    counts_by_word.setdefault(word, Counter())[tag] += 1
        usual = _most_frequent(total)
        best = {word: _most_frequent(counts) for word, counts in counts_by_word.items()}
        rows = data.parts[eval_part]
        return [
            ("majority", [[self.labels[usual]] * len(row.tokens) for row in rows]),
            (
                "each word's commonest",
                [[self.labels[best.get(word, usual)] for word in row.tokens] for row in rows],
            ),
        ]

    @property
    def wrongness(self) -> str:
        return "words wrong"

    def one_sided(self, rows: Sequence[Any], answers: Answers) -> Finding | None:
        true, predicted = (
            np.array([tag for sentence in sentences for tag in sentence])
            for sentences in self._compared(rows, answers)
        )
        return alike(true, predicted, str, "word")

    def by_class(self, rows: Sequence[Any], answers: Answers) -> Table | None:
        true, predicted_tags = self._compared(rows, answers)
        if self.marks_entities:
            by_type = self._entity_scores(predicted_tags, true).by_type
            figures = [  # undefined shares are NaN, as in the tables of other tasks
                metrics.ClassFigures(
                    name,
                    scores.precision if scores.predicted else math.nan,
                    scores.recall if scores.gold else math.nan,
                    scores.f1,
                    scores.gold,
                )
                for name, scores in by_type.items()
            ]
            return classes_table(figures, "Rows are the entities of that kind in the file.")
        numbers = {name: n for n, name in enumerate(self.labels)}
        truth, predicted = (
            np.array([numbers[tag] for sentence in sentences for tag in sentence], np.int64)
            for sentences in (true, predicted_tags)
        )
        figures = metrics.per_class(truth, predicted, self.labels)
        return classes_table(figures, "Rows are the words with that tag in the file.")

    def mistakes(self, encoded: Encoded, outputs: Scores) -> list[Mistake]:
        mistakes = []
        for row, answer in zip(encoded.rows, self.answers(encoded, outputs), strict=True):
            true = [answer[w] if n == UNKNOWN else self.labels[n] for w, n in enumerate(row.tags)]
            wrong = [n for n, (a, b) in enumerate(zip(true, answer, strict=True)) if a != b]
            true_words, predicted_words = (
                ", ".join(f"{row.tokens[n]} {row_tags[n]}" for n in wrong)
                for row_tags in (true, answer)
            )
            mistakes.append(
                Mistake(row.where, " ".join(row.tokens), true_words, predicted_words, len(wrong))
            )
        return sorted((m for m in mistakes if m.weight), key=lambda mistake: -mistake.weight)

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[list[dict[str, Any]]]:
        windows, words = encoded.way_back
        shares = np.exp(outputs - outputs.max(1, keepdims=True), dtype=np.float64)
        shares = shares.max(1) / shares.sum(1)
        word_scores = np.zeros(sum(len(s.words) for s in windows.sentences))
        word_scores[words] = shares
        offset = 0
        for sentence, predicted_tags in zip(
            windows.sentences, self.answers(encoded, outputs), strict=True
        ):
            scores = word_scores[offset : offset + len(sentence.words)]
            offset += len(sentence.words)
            if self.marks_entities:
                yield [
                    {"entity_group": e.entity_type, **_span(sentence, e.first, e.stop, scores)}
                    for e in self._entities(predicted_tags)
                ]
                continue
            yield [  # a word without a token may have a tag that is no label
                {"entity": tag, **_span(sentence, number, number + 1, scores)}
                for number, tag in enumerate(predicted_tags)
                if tag in self.labels
            ]

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        types = {entity.entity_type for entity in self._entities(self.labels)}
        name = {"entity_group": types} if self.marks_entities else {"entity": self.labels}
        return [{**name, "score": float, "word": str, "start": int, "end": int}]


def _span(sentence: Sentence, start: int, stop: int, scores: NDArray[np.float64]) -> dict[str, Any]:
    """Return the words `start` to `stop` - 1 with character offsets and mean score."""
    begin, end = sentence.spans[start][0], sentence.spans[stop - 1][1]
    return {
        "score": round(float(scores[start:stop].mean()), 6),
        "word": sentence.text[begin:end],
        "start": begin,
        "end": end,
    }


def _most_frequent(counts: Counter[int]) -> int:
    return min(counts, key=lambda tag: (-counts[tag], tag))


def _accuracy(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return sums[:, 1] / sums[:, 0]


def _entity_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return F1 as in `conlleval`: 0 if there is no correct entity."""
    total = np.maximum(1, sums[:, 2] + sums[:, 3])
    return 2 * sums[:, 4] / total


TYPE = Tagging
