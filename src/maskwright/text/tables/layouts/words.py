"""Layout of words with a tag for each, or of a text with marked spans.

On request, tags that begin a span with I- are rewritten to IOB2: annotation errors, and files in
IOB1, such as those of CoNLL-2003, where B- is only used between two adjacent spans of one class.
Tags of a class O are outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.errors import DataError, UsageError
from maskwright.base.findings import Finding
from maskwright.text.tables import labels, tags
from maskwright.text.tables.cell_values import (
    UnknownTag,
    is_empty,
    is_no_label,
    missing,
    require_field,
    text_of,
)
from maskwright.text.tables.columns import MANY_ROWS
from maskwright.text.tables.examples import UNKNOWN, TaggedExample
from maskwright.text.tables.labels import LabelVocabulary
from maskwright.text.tables.layout import Columns, Dataset, Layout, Task
from maskwright.text.tables.marked_text import tag_words
from maskwright.text.tables.role_search import NAMES, ColumnSearch
from maskwright.text.tables.rows import Row, Table, plain, value_of
from maskwright.text.tables.tags import as_usual, spelling_of

# Offsets are miscounted if another unit fits this many rows and this share of rows with cut words.
MISCOUNTED_ROWS, MISCOUNTED = 3, 0.9


class WordsLayout(Layout):
    """{"tokens": ["Rome", "fell"], "tags": ["B-LOC", "O"]}"""

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
        table, outside = _replace_empty(table, task, classes)
        return table, (
            Finding(
                "tag-read-as-outside",
                f"{counted(count, 'tag')} {tag!r} read as outside: no entity has the type O",
            )
            for tag, count in sorted(outside.items())
        )

    def repair(self, table: Table, task: Task) -> tuple[Table, int]:
        return _repair_tags(table, task)

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
        tags = self.answers(row, columns)
        is_known = [not is_no_label(no_label, tag) for tag in tags]
        if all(is_known):
            return row
        masked = [tag if ok else UnknownTag(tag) for tag, ok in zip(tags, is_known, strict=True)]
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
    if (
        type(tokens) is not list
        or not all(type(t) is str for t in tokens)
        or not any(map(str.strip, tokens))
    ):
        raise missing(row, name, "list of tokens", "a list of texts that are not all blank")
    if len(tokens) != len(tags):
        raise DataError(
            "tokens and tags differ in number",
            where=f"{row.where}, columns {name!r} and {tags_name!r}",
            found=f"{len(tokens)} tokens and {len(tags)} tags",
            wanted="one tag for each token",
            do="correct the row, or take it out (--read on_bad=skip drops and counts it)",
        )
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


def _repair_tags(table: Table, task: Task) -> tuple[Table, int]:
    """Rewrite tags to IOB2 without changing spans or types; return (table, number of changes).

    Raises:
        UsageError: the tags are numbers.
        DataError: a tag that is none of a span.
    """
    name, changed = task.columns["tags"], 0
    names = _all_tags(table, name)
    spelling = spelling_of(names)
    rows_by_split: dict[str, list[Row]] = {}
    for split, rows in table.parts.items():
        rows_by_split[split] = []
        for row in rows:
            row_tags = value_of(row, name)
            repaired_row = row
            if type(row_tags) is list and row_tags:
                known_indices = [n for n, tag in enumerate(row_tags) if type(tag) is not UnknownTag]
                if not all(type(row_tags[n]) is str for n in known_indices):
                    raise UsageError(
                        "tags that are numbers do not mark where a span begins",
                        where=f"{row.where}, column {name!r}",
                        found=row_tags[:5],
                        wanted="tags such as B-LOC",
                        do="leave it out",
                    )
                # If a file has several spellings, each tag is read in its own.
                usual_tags = [
                    spelling.read(tag) if spelling else as_usual(tag, names)
                    for tag in map(row_tags.__getitem__, known_indices)
                ]
                legal = list(row_tags)
                for n, tag in zip(
                    known_indices, tags.repair(usual_tags, "IOB2", row.where)[0], strict=True
                ):
                    legal[n] = spelling.write(tag) if spelling else tag
                changed_in_row = sum(a != b for a, b in zip(row_tags, legal, strict=True))
                changed += changed_in_row
                repaired_row = (
                    replace(row, values={**row.values, name: legal}) if changed_in_row else row
                )
            rows_by_split[split].append(repaired_row)
    return replace(table, parts=rows_by_split), changed


def _replace_empty(
    table: Table, task: Task, model_classes: Collection[str] = ()
) -> tuple[Table, Counter[str]]:
    """Replace tags of the type O, except `model_classes`, by outside; also return their counts."""
    name = task.columns["tags"]
    spelling = spelling_of(_all_tags(table, name))
    empty = spelling.empty - set(model_classes) if spelling is not None else frozenset[str]()
    counts: Counter[str] = Counter()
    if spelling is None or not empty:
        return table, counts
    rows_by_split: dict[str, list[Row]] = {}
    for split, rows in table.parts.items():
        rows_by_split[split] = []
        for row in rows:
            row_tags = value_of(row, name)
            new_row = row
            if type(row_tags) is list and (
                empty_tags := [tag for tag in row_tags if _is_in(tag, empty)]
            ):
                counts.update(empty_tags)
                legal = [spelling.outside if _is_in(tag, empty) else tag for tag in row_tags]
                new_row = replace(row, values={**row.values, name: legal})
            rows_by_split[split].append(new_row)
    return replace(table, parts=rows_by_split), counts


def _is_in(tag: Any, tags: Collection[str]) -> bool:
    return type(tag) is str and tag in tags


def _all_tags(table: Table, name: str) -> set[str]:
    """Return the set of all tags in all parts that are texts."""
    rows = (row for split_rows in table.parts.values() for row in split_rows)
    lists = (value for row in rows if type(value := value_of(row, name)) is list)
    return {tag for tags in lists for tag in tags if type(tag) is str}


def _lengths(rows: Sequence[Row], name: str) -> list[int]:
    values = [value_of(row, name) for row in rows[:MANY_ROWS]]
    return [len(v) if type(v) is list else -1 for v in values]


WORDS = WordsLayout()
