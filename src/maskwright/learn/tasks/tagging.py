"""Tagging of words: parts of speech, or named entities in a scheme such as BIO.

    [{"entity_group": "LOC", "score": 0.98, "word": "Rome", "start": 17, "end": 21}, …]
    [{"entity": "NOUN", "score": 0.99, "word": "cat", "start": 4, "end": 7}, …]

Entities are scored as in CoNLL (`text/tables/tags.py`), other tags by accuracy. Words are those of
the file; plain text is first split into words and punctuation.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.errors import DataError, Finding, UsageError
from maskwright.base.metrics import metrics
from maskwright.base.metrics.row_metrics import ratio
from maskwright.base.report.document import Table as ReportTable
from maskwright.base.terminal import counted
from maskwright.learn.tasks.base.aggregation import TextToken, entities, text_tokens
from maskwright.learn.tasks.base.choices import AGGREGATION, IGNORED_LABELS
from maskwright.learn.tasks.base.encode import Frame, central, inked, room_of, windows
from maskwright.learn.tasks.base.task_type import (
    Answers,
    Encoded,
    Extent,
    Mistake,
    ReadOutputs,
    Scores,
    TaskMetrics,
    TaskReport,
    TaskType,
    alike,
    classes_table,
    metrics_of_sums,
)
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.text.tables import labels, tags
from maskwright.text.tables.cell_values import (
    UnknownTag,
    is_empty,
    is_no_label,
    missing,
    require_field,
    text_of,
)
from maskwright.text.tables.columns import MANY_ROWS, NAMES, ColumnSearch
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Shape, Task
from maskwright.text.tables.marked_text import encode_raw, tag_words, words_in
from maskwright.text.tables.rows import (
    TRAIN,
    UNKNOWN,
    Row,
    Table,
    TaggedExample,
    cell_error,
    plain,
    value_of,
)
from maskwright.text.tables.tags import OUTSIDE, Entity, as_entities, as_usual, spelling_of

# Offsets are miscounted if another unit fits this many rows and this share of rows with cut words.
MISCOUNTED_ROWS, MISCOUNTED = 3, 0.9


class WordsLayout(Layout):
    """Words with a tag for each, or a text with marked spans.

    {"tokens": ["Rome", "fell"], "tags": ["B-LOC", "O"]}

    On request, tags that begin a span with I- are rewritten to IOB2: annotation errors, and files
    in IOB1, such as those of CoNLL-2003, where B- is only used between two adjacent spans of one
    class. Tags of a class O are outside.
    """

    name = "words"
    roles = ("tokens", "tags")
    lists = ("tokens", "tags")
    learned = "tags"
    ignored = ("-100",)  # ignored by torch's cross-entropy, and usual in token data sets
    rank = 10

    def find(self, search: ColumnSearch) -> None:
        spans = [c.name for c in search.free() if c.kind == "parts"]
        spans = [name for name in spans if search.commonest([name, *spans]) == name]
        if len(spans) > 1:  # in spaCy documents, the words have offsets and tags, too
            spans = [name for name in spans if plain(name) not in NAMES["tokens"]]
        if len(spans) == 1 and not {"tokens", "tags"} & set(search.roles):
            texts = {c.name for c in search.free() if c.kind == "text"}
            text = next((n for s in NAMES["text"] if (n := search.by_plain.get(s)) in texts), None)
            if text is not None:
                search.take("tokens", [text], "by its name; it is cut into words")
                search.take("tags", spans, f"each marks parts of {text!r}")
        search.by_name("tokens", lambda c: c.kind == "texts")
        search.by_name("tags", lambda c: c.kind in ("texts", "wholes"))
        if "tokens" in search.roles and "tags" not in search.roles and search.by_content:
            lengths = _lengths(search.rows, search.roles["tokens"][0])
            same_length = [c.name for c in search.free() if c.kind in ("texts", "wholes")]
            same_length = [name for name in same_length if _lengths(search.rows, name) == lengths]
            if len(same_length) == 1:
                search.take("tags", same_length, "as many in each row as there are tokens")

    def reason(self, columns: Columns) -> str:
        if columns.column("tags").kind == "parts":
            return "each row has a text and a list of what is marked in it"
        return "each row has a list of tokens and a list of tags"

    def prepare(
        self, table: Table, task: Task, classes: Sequence[str]
    ) -> tuple[Table, Iterator[Finding]]:
        """Replace tags of a class O by the tag for outside, with a finding for each."""
        name = task.columns["tags"]
        spelling = spelling_of(_all_tags(table, name))
        empty = set() if spelling is None else spelling.empty - set(classes)
        if spelling is None or not empty:
            return table, iter(())
        counts: Counter[str] = Counter()

        def rewrite(row_tags: list[Any], row: Row) -> list[Any]:
            outside = {n for n, tag in enumerate(row_tags) if type(tag) is str and tag in empty}
            counts.update(row_tags[n] for n in outside)
            return [spelling.outside if n in outside else tag for n, tag in enumerate(row_tags)]

        return _rewrite_tags(table, name, rewrite)[0], (
            Finding(
                "tag-read-as-outside",
                f"{counted(count, 'tag')} {tag!r} read as outside: no entity has the type O",
            )
            for tag, count in sorted(counts.items())
        )

    def repair(self, table: Table, task: Task) -> tuple[Table, int]:
        """Rewrite tags to IOB2 without changing spans or types; return (table, number of changes).

        Raises:
            UsageError: the tags are numbers.
            DataError: a tag that is none of a span.
        """
        name = task.columns["tags"]
        names = _all_tags(table, name)
        spelling = spelling_of(names)

        def rewrite(row_tags: list[Any], row: Row) -> list[Any]:
            known_tags = {n: tag for n, tag in enumerate(row_tags) if type(tag) is not UnknownTag}
            if not all(type(tag) is str for tag in known_tags.values()):
                raise UsageError(
                    "tags that are numbers do not mark where a span begins",
                    where=f"{row.where}, column {name!r}",
                    found=row_tags[:5],
                    wanted="tags such as B-LOC",
                    do="leave --read repair_tags out",
                )
            # If a file has several spellings, each tag is read in its own.
            usual_tags = [
                spelling.read(tag) if spelling else as_usual(tag, names)
                for tag in known_tags.values()
            ]
            repaired, _ = tags.repair(usual_tags, "IOB2", row.where)
            new_tags = list(row_tags)
            for n, tag in zip(known_tags, repaired, strict=True):
                new_tags[n] = spelling.write(tag) if spelling else tag
            return new_tags

        return _rewrite_tags(table, name, rewrite)

    def inputs(self, row: Row, columns: Mapping[str, Sequence[str]]) -> list[Any]:
        return [value_of(row.as_given(), columns["tokens"][0])]

    def read(self, row: Row, task: Task, vocabulary: LabelVocabulary | None) -> TaggedExample:
        assert vocabulary is not None
        columns = task.columns
        if (text := _marked_text(row, columns)) is not None:
            tagging = tag_words(text, value_of(row, columns["tags"]), row.where)
            tag_ids = tuple(vocabulary.index(tag, row) for tag in tagging.tags)
            return TaggedExample(
                tagging.words, tag_ids, row.where, text, tagging.widened, tagging.miscounted
            )
        cells = self.answers(row, columns)
        return _tagged_example(row, columns["tokens"], columns["tags"], cells, vocabulary)

    def answers(self, row: Row, columns: Columns) -> list[Any]:
        value = value_of(row, columns["tags"])
        if columns.column("tags").kind == "parts":
            return [value]
        return value if type(value) is list else [] if is_empty(value) else [value]

    def without(self, row: Row, columns: Columns, no_label: Collection[str]) -> Row | None:
        """Return the row with `UnknownTag` for tags equal to `no_label`; None if all tags are."""
        row_tags = self.answers(row, columns)
        is_known = [not is_no_label(no_label, tag) for tag in row_tags]
        if all(is_known):
            return row
        masked = [
            tag if ok else UnknownTag(tag) for tag, ok in zip(row_tags, is_known, strict=True)
        ]
        name = columns["tags"]
        return replace(row, values={**row.values, name: masked}) if any(is_known) else None

    def meanings(self, labels: Collection[Any]) -> Callable[[str], set[str]]:
        return tags.meanings({label for label in labels if type(label) is str})

    def label_cells(self, row: Row, task: Task) -> Iterator[Any]:
        name = task.columns["tags"]
        require_field(row, "tags", name)
        value = value_of(row, name)
        if (text := _marked_text(row, task.columns)) is not None:
            yield from tag_words(text, value, f"{row.where}, column {name!r}").tags
            return
        if value is None:
            raise missing(row, name, "tags", "a list of tags")
        yield from (tag for tag in self.answers(row, task.columns) if type(tag) is not UnknownTag)

    def require_sound(self, examples: Sequence[Any]) -> None:
        """Refuse texts whose spans begin or end within words, but fit words if offsets are counted
        in another unit: widening them to whole words would mark the wrong words."""
        cut = [row for row in examples if row.widened]
        unit_counts = Counter(row.miscounted for row in cut if row.miscounted)
        unit, rows = max(unit_counts.items(), key=lambda item: item[1], default=("", 0))
        if rows >= MISCOUNTED_ROWS and rows >= MISCOUNTED * len(cut):
            first_example = next(row for row in cut if row.miscounted == unit)
            raise DataError(
                f"the places of marked parts seem to be counted in {unit}",
                where=first_example.where,
                found=f"{counted(len(cut), 'row')} with parts that begin or end within a word; so "
                f"counted, none does in {rows:,} of them",
                wanted="places that count characters of the text as given",
                do="count the places in characters",
            )

    def findings(self, split: str, dataset: Dataset) -> Iterator[Finding]:
        """Yield findings on words without a tag, and on spans that begin or end within a word."""
        if unknown := sum(row.tags.count(UNKNOWN) for row in dataset.parts[split]):
            yield Finding(
                "words-without-tag",
                f"{counted(unknown, 'word')} of {split} without a tag: neither learned nor scored",
            )
        widened = [row for row in dataset.parts[split] if row.widened]
        if widened:
            yield Finding(
                "marks-within-words",
                f"{counted(sum(row.widened for row in widened), 'marked part')} of {split} "
                "begin or end within a word, and take the whole of it",
                f"the first: {widened[0].where}",
            )

    def label_findings(self, names: Sequence[str]) -> Iterator[Finding]:
        yield from tags.findings(names)


def _marked_text(row: Row, columns: Columns) -> str | None:
    """Return the original text of a row with marked spans; None for words with tags."""
    if columns.column("tags").kind != "parts":
        return None
    text_of(row, columns["tokens"])  # the cleaned text must not be empty
    return text_of(row.as_given(), columns["tokens"])


def _tagged_example(
    row: Row, name: str, tags_name: str, tags: list[Any], vocabulary: LabelVocabulary
) -> TaggedExample:
    tokens = value_of(row, name)
    is_list = type(tokens) is list and all(type(t) is str for t in tokens)
    if not is_list or not any(map(str.strip, tokens)):
        raise missing(row, name, "list of tokens", "a list of texts that are not all blank")
    if len(tokens) != len(tags):
        shown = f"{len(tokens)} tokens of {name!r} and {len(tags)} tags"
        message = "tokens and tags differ in number"
        raise cell_error(message, row, tags_name, "one tag for each token", shown=shown)
    tag_ids = tuple(
        UNKNOWN if type(tag) is UnknownTag else vocabulary.index(tag, row) for tag in tags
    )
    _check_spans(tag_ids, tokens, row, tags_name, vocabulary)
    return TaggedExample(tuple(tokens), tag_ids, row.where)


def _check_spans(
    tag_ids: Sequence[int], tokens: Sequence[str], row: Row, name: str, vocabulary: LabelVocabulary
) -> None:
    """Raise DataError for spans that are not valid in the scheme of the tags."""
    spelling, scheme = spelling_of(vocabulary.names), tags.scheme_of(vocabulary.names)
    if spelling is None or scheme is None:
        return
    indices = [index for index, number in enumerate(tag_ids) if number != UNKNOWN]
    row_tags = [vocabulary.names[tag_ids[index]] for index in indices]
    read = [spelling.read(tag) for tag in row_tags]
    valid, _ = tags.repair(read, scheme, row.where)
    if not any(spelling.read(name)[0] in "SUW" for name in vocabulary.names):  # a word alone is B
        valid = [f"B{tag[1:]}" if tag.startswith("S") else tag for tag in valid]
    tag_pairs = [
        (tags.split_tag(tag), tags.split_tag(right)) for tag, right in zip(read, valid, strict=True)
    ]
    wrong_index = next((n for n, (tag, right) in enumerate(tag_pairs) if tag != right), None)
    if wrong_index is None:
        return
    raise DataError(
        "a span begins with I-" if scheme == "IOB2" else "two schemes of tags, or a broken span",
        where=f"{row.where}, column {name!r}, token {indices[wrong_index] + 1}",
        found=f"{row_tags[wrong_index]!r} of {tokens[indices[wrong_index]]!r} after "
        f"{row_tags[wrong_index - 1] if wrong_index else labels.OUTSIDE!r}",
        wanted=f"{spelling.write(valid[wrong_index])!r}, as {scheme} writes the span",
        do="correct the row, take it out (--read on_bad=skip drops and counts it), or let "
        "all spans begin with B- and go on with I- (--read repair_tags=true, for files in IOB1, "
        "too)",
    )


def _rewrite_tags(
    table: Table, name: str, rewrite: Callable[[list[Any], Row], list[Any]]
) -> tuple[Table, int]:
    """Return the table with `rewrite` applied to the tags of each row, and the number of changed
    tags."""
    num_changed, rows_by_split = 0, {}
    for split, rows in table.parts.items():
        rows_by_split[split] = list(rows)
        for number, row in enumerate(rows):
            row_tags = value_of(row, name)
            if type(row_tags) is not list or not row_tags:
                continue
            rewritten = rewrite(row_tags, row)
            changed = sum(a != b for a, b in zip(row_tags, rewritten, strict=True))
            num_changed += changed
            if changed:
                rows_by_split[split][number] = replace(row, values={**row.values, name: rewritten})
    return replace(table, parts=rows_by_split), num_changed


def _all_tags(table: Table, name: str) -> set[str]:
    """Return the set of all tags in all parts that are texts."""
    rows = (row for split_rows in table.parts.values() for row in split_rows)
    lists = (value for row in rows if type(value := value_of(row, name)) is list)
    return {tag for row_tags in lists for tag in row_tags if type(tag) is str}


def _lengths(rows: Sequence[Row], name: str) -> list[int]:
    values = [value_of(row, name) for row in rows[:MANY_ROWS]]
    return [len(v) if type(v) is list else -1 for v in values]


SHAPES = (
    Shape(name="tagging", layout=WordsLayout(), label="classes", metrics=("entity_f1", "accuracy")),
)


class Tagging(TaskType):
    """Predicts a tag for each word at its first sub-token (Devlin et al. 2018, section 5.3)."""

    head = "token"
    counts_places = True
    pipeline = "token-classification"

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

    @property
    def measures(self) -> tuple[str, ...]:
        return self.shape.metrics[0 if self.marks_entities else 1 :]

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """Label the first token of each word.

            words    Kalomi           sat    in  ␁      Po
            tokens   Ka   ##lo ##mi   sat    in         Po
            labels   B-P  -    -      O      O          B-L

        A word has no token if the tokenizer removes it, or if it begins inside a token (such as
        `not` of "cannot", if the text of the sentence is known); such words are counted. Long
        sentences are divided into overlapping windows; a word is labelled, and later predicted,
        only in the window where its first token is central.
        """
        tokenizer = frame.tokenizer
        sentences = [row.text or " ".join(row.tokens) for row in rows]
        room, margin = room_of(tokenizer, frame.length), tokenizer.frame_margins()[0]
        stride = max(1, min(frame.length // 2, room))
        texts: list[list[int]] = []
        segments: list[int] = []
        owners: list[int] = []  # the sentence of each window
        all_tokens: list[list[TextToken]] = []  # of each sentence, if each of them gets a label
        empty = np.zeros(0, np.int64)
        positions, word_numbers, classes = [empty], [empty], [empty]
        position_counts: list[int] = []
        num_words = num_dropped = 0
        encoded = encode_raw(tokenizer, sentences)
        for number, (row, text, (ids, spans)) in enumerate(
            zip(rows, sentences, encoded, strict=True)
        ):
            if AGGREGATION in self.options:
                all_tokens.append(text_tokens(tokenizer, text, ids.tolist(), spans))
                word_tokens = np.arange(len(ids))
            else:
                word_tokens = _first_tokens(_word_spans(row.tokens, text), text, spans)
            num_dropped += int((word_tokens < 0).sum())
            # In prediction there are no tags.
            row_tags = np.array(row.tags or [0] * len(word_tokens), np.int64)
            (labelled,) = np.nonzero((word_tokens >= 0) & (row_tags != UNKNOWN))
            word_of_token = np.full(len(ids), -1, np.int64)
            word_of_token[word_tokens[labelled]] = labelled
            divided = windows(len(ids), room, stride)
            owner = central(divided)
            for window, (start, stop) in enumerate(divided.tolist()):
                tokens, kinds = tokenizer.frame(ids[start:stop].tolist())
                texts.append(tokens)
                segments += kinds
                owners.append(number)
                is_read = (owner[start:stop] == window) & (word_of_token[start:stop] >= 0)
                words = word_of_token[start:stop][is_read]
                positions.append(margin + np.flatnonzero(is_read))
                position_counts.append(len(words))
                word_numbers.append(num_words + words)
                classes.append(row_tags[words])
            num_words += len(word_tokens)
        examples = EncodedExamples(
            framed(texts),
            np.concatenate(classes),
            np.array(segments, np.int64) if frame.segments else None,
            places=Sequences(np.concatenate(positions), np.array(position_counts, np.int64)),
        )
        sentence_of = np.array(owners, np.int64)
        num_divided = int((np.bincount(sentence_of, minlength=1) > 1).sum())
        message = (
            f"{counted(num_words, 'word')} of {counted(len(sentences), 'sentence')} in "
            f"{counted(len(texts), 'window')}; without a token: {counted(num_dropped, 'word')}, "
            f"divided: {counted(num_divided, 'sentence')}"
        )
        findings = (Finding("windows-of-words", message),) if num_dropped or num_divided else ()
        extent = Extent.of(examples.texts.lengths, sentence_of)
        way_back = (sentences, np.concatenate(word_numbers))
        if AGGREGATION in self.options:
            return Encoded(rows, examples, (), (*way_back, all_tokens, tokenizer), extent)
        return Encoded(rows, examples, findings, way_back, extent)

    def example(self, values: Sequence[Any], where: str) -> TaggedExample:
        (value,) = values
        words: tuple[str, ...] = ()
        if type(value) is str:
            words, text = tuple(value[begin:end] for begin, end in words_in(value)), value
        elif isinstance(value, list | tuple) and all(type(word) is str for word in value):
            words, text = tuple(value), " ".join(value)
        if not any(map(str.strip, words)):
            value_text, valid_forms = repr(value)[:80], '"a text", or ["a", "text"]'
            raise DataError(
                "neither a text nor words", where=where, found=value_text, wanted=valid_forms
            )
        return TaggedExample(words, (), where, text)

    def of_value(self, value: Any, where: str) -> TaggedExample:
        if isinstance(value, Mapping) and set(value) == set(self.roles):
            value = value[self.roles[0]]
        return self.example([value], where)

    def value_of(self, example: Any) -> Any:
        text = example.text
        words = tuple(text[begin:end] for begin, end in words_in(text))
        return text if words == example.tokens else list(example.tokens)

    # ------------------------------------------------------------------------ decoding
    def answers(self, encoded: Encoded, outputs: Scores) -> list[list[str]]:
        _, word_numbers = encoded.way_back
        bounds = np.cumsum([0, *(len(row.tokens) for row in encoded.rows)])
        numbers = np.full(bounds[-1], len(self.labels), np.int64)
        numbers[word_numbers] = outputs.argmax(1)
        missing_tag = str(self.options.get("missing", OUTSIDE))
        names = np.array([*self.labels, missing_tag], dtype=object)[numbers]
        return [names[start:stop].tolist() for start, stop in itertools.pairwise(bounds)]

    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        """Set the tag of words without a token: "outside", or the most frequent tag if that is no
        label."""
        if OUTSIDE in self.labels:
            return self
        spelling = spelling_of(self.labels)
        if spelling is not None and spelling.outside in self.labels:
            return self.with_options({"missing": spelling.outside})
        counts = Counter(tag for row in encoded.rows for tag in row.tags if tag != UNKNOWN)
        return self.with_options({"missing": self.labels[_most_frequent(counts)]})

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[list[dict[str, Any]]]:
        if AGGREGATION in self.options:
            yield from self._aggregated(encoded, outputs)
            return
        sentences, word_numbers = encoded.way_back  # word_numbers: the word of each output
        word_scores = np.zeros(sum(len(row.tokens) for row in encoded.rows))
        word_scores[word_numbers] = scipy.special.softmax(outputs.astype(np.float64), 1).max(1)
        offset = 0
        answers = self.answers(encoded, outputs)
        for row, text, row_tags in zip(encoded.rows, sentences, answers, strict=True):
            scores = word_scores[offset : offset + len(row.tokens)]
            offset += len(row.tokens)
            if self.marks_entities:
                key, tagged = "entity_group", self._entities(row_tags)
            else:  # a word without a token may have a tag that is no label
                known_tags = [(n, tag) for n, tag in enumerate(row_tags) if tag in self.labels]
                key, tagged = "entity", [Entity(n, n + 1, tag) for n, tag in known_tags]
            spans, answer = _word_spans(row.tokens, text), []
            for entity in tagged:
                begin, end = spans[entity.first][0], spans[entity.stop - 1][1]
                score = round(float(scores[entity.first : entity.stop].mean()), 6)
                named = {key: entity.entity_type, "score": score, "word": text[begin:end]}
                answer.append({**named, "start": begin, "end": end})
            yield answer

    def _aggregated(self, encoded: Encoded, outputs: Scores) -> Iterator[list[dict[str, Any]]]:
        """Yield the entities of each row by the strategy of `options`, without ignored labels."""
        _, numbers, all_tokens, tokenizer = encoded.way_back
        shares = np.zeros(outputs.shape)
        shares[numbers] = scipy.special.softmax(outputs.astype(np.float64), 1)
        ignored = self.options.get(IGNORED_LABELS, [OUTSIDE])
        strategy, begin = self.options[AGGREGATION], 0
        for tokens in all_tokens:
            token_shares = shares[begin : begin + len(tokens)]
            begin += len(tokens)
            yield [
                entity
                for entity in entities(tokens, token_shares, self.labels, strategy, tokenizer)
                if entity.get("entity", entity.get("entity_group")) not in ignored
            ]

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        types = {entity.entity_type for entity in self._entities(self.labels)}
        name = {"entity_group": types} if self.marks_entities else {"entity": self.labels}
        return [{**name, "score": float, "word": str, "start": int, "end": int}]

    # ------------------------------------------------------------------------ evaluation
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

    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        # Words, correct words, true, predicted and correct entities of each row.
        counts = np.zeros((len(rows), 5), np.int64)
        for n, (true, predicted) in enumerate(zip(*self._compared(rows, answers), strict=True)):
            counts[n, :2] = len(true), sum(a == b for a, b in zip(true, predicted, strict=True))
            if self.marks_entities:
                truth, output = set(self._entities(true)), set(self._entities(predicted))
                counts[n, 2:] = len(truth), len(output), len(truth & output)
        figures = {"accuracy": (ratio, counts[:, [1, 0]]), "entity_f1": (_entity_f1, counts)}
        return metrics_of_sums({name: figures[name] for name in self.measures})

    def report(self, encoded: Encoded, outputs: Scores, answers: Answers) -> TaskReport:
        mistakes = []
        for row, answer in zip(encoded.rows, answers, strict=True):
            true = [answer[w] if n == UNKNOWN else self.labels[n] for w, n in enumerate(row.tags)]
            wrong = [n for n, (a, b) in enumerate(zip(true, answer, strict=True)) if a != b]
            if wrong:
                true_words, predicted_words = (
                    ", ".join(f"{row.tokens[n]} {row_tags[n]}" for n in wrong)
                    for row_tags in (true, answer)
                )
                text = " ".join(row.tokens)
                mistakes.append(Mistake(row.where, text, true_words, predicted_words, len(wrong)))
        true_tags, predicted_tags = self._compared(encoded.rows, answers)
        flat_true, flat_predicted = (
            np.array([tag for sentence in sentences for tag in sentence])
            for sentences in (true_tags, predicted_tags)
        )
        return TaskReport(
            sorted(mistakes, key=lambda mistake: -mistake.weight),
            "words wrong",
            classes=self._classes(true_tags, predicted_tags),
            one_sided=alike(flat_true, flat_predicted, str, "word"),
        )

    def _classes(self, true: list[list[str]], predicted: list[list[str]]) -> ReportTable:
        """Return a table of precision, recall and F1 by type of entity, or by tag."""
        if self.marks_entities:
            predicted_entities, true_entities = (
                [as_entities(sentence_tags, self.labels) for sentence_tags in sentences]
                for sentences in (predicted, true)
            )
            figures = [  # undefined shares are NaN, as in the tables of other tasks
                metrics.ClassFigures(
                    name,
                    scores.precision if scores.predicted else math.nan,
                    scores.recall if scores.gold else math.nan,
                    scores.f1,
                    scores.gold,
                )
                for name, scores in tags.score(predicted_entities, true_entities).items()
            ]
            return classes_table(figures, "Rows are the entities of that kind in the file.")
        numbers = {name: n for n, name in enumerate(self.labels)}
        truth, answers = (
            np.array([numbers[tag] for sentence in sentences for tag in sentence], np.int64)
            for sentences in (true, predicted)
        )
        figures = metrics.per_class(truth, answers, self.labels)
        return classes_table(figures, "Rows are the words with that tag in the file.")

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


def _word_spans(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Return the (begin, end) offsets of each word in the text that contains them in order."""
    spans, offset = [], 0
    for word in words:
        begin = text.index(word, offset)
        offset = begin + len(word)
        spans.append((begin, offset))
    return spans


def _first_tokens(
    word_spans: Sequence[tuple[int, int]], text: str, spans: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return the index of each word's first token (words,), -1 if it has none; `spans` are those of
    the tokens.

    A token belongs to the word that contains its first non-whitespace character.
    """
    owner = np.full(len(text) + 1, -1, np.int64)
    for number, (begin, end) in enumerate(word_spans):
        owner[begin:end] = number
    ink = inked(text, spans)
    word = np.where(ink[:, 0] < ink[:, 1], owner[ink[:, 0]], -1)
    word_tokens = np.full(len(word_spans), -1, np.int64)
    words_found, token_index = np.unique(word, return_index=True)
    word_tokens[words_found[words_found >= 0]] = token_index[words_found >= 0]
    return word_tokens


def _most_frequent(counts: Counter[int]) -> int:
    return min(counts, key=lambda tag: (-counts[tag], tag))


def _entity_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return F1 as in `conlleval`: 0 if there is no correct entity."""
    total = np.maximum(1, sums[:, 2] + sums[:, 3])
    return 2 * sums[:, 4] / total


TYPE = Tagging
