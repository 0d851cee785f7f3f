"""Cut the lines that a site puts around its texts (menus, notices, footers).

Lines are compared regardless of case and white space, with each number as one digit, so that
"Page 3" and "page 12" are equal. A line is boilerplate if all of these hold:

    frequent   it occurs in enough documents
    at an edge in nearly all of them it is one of the frequent lines that begin or end the document
    in company it repeatedly has the same neighbouring lines there, or it is very frequent
    anywhere   the other texts of these documents differ; they are not copies of each other

The last three exclude common sentences: "Me too." is frequent in dialogues, but inside of them and
alone; the lines of a text with many copies are frequent, but always around the same text. Lines
with a phrase of a notice (cookies, rights reserved) are cut at an edge even if they are rare.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from maskwright.text.curate.arrays.hashes import (
    SpanHashes,
    group_equal,
    is_first,
    mix,
    ranges,
    starts_of,
    true_runs,
)
from maskwright.text.curate.arrays.segmentation import (
    DIGIT,
    LINE_END,
    SPACE,
    Characters,
    Lines,
    case_fold,
    classes_of,
)
from maskwright.text.curate.arrays.spans import line_changes, remove_lines
from maskwright.text.curate.step import (
    ArrowTable,
    Change,
    CorpusHandle,
    CorpusStep,
    CurationBatch,
    Outcome,
    Pass,
    RuleMeasure,
    arrow_table,
    shares,
)
from maskwright.text.store import BoolArray, FloatArray, IntArray, UintArray

SUMMARY = "cuts menus, notices and footers: lines that begin or end many different documents"
# Those of C4, and what stands under texts in the same way.
PHRASES = (
    *("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies"),
    *("use cookies", "enable javascript", "terms of service", "terms and conditions"),
    "all rights reserved",
)
EVERY = 0  # the key of the total over all documents, in place of that of a line
BUCKETS = 256
NEAR = 16  # lines at each edge that may have templates
MOST_WORDS = 24  # of a line with templates
LEAST_REST = 0.2
REACH = 8  # lines on each side of a line that are its companions
RECURS = 0.2  # least share of a line's documents with a recurring companion


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    CHANGES_TEXT: ClassVar[bool] = True

    min_documents: int = 5
    """Fewest documents of a frequent line."""
    min_share: float = 0.0001
    """Least share of all documents of a frequent line."""
    template_words: int = 4
    """Lines of at least so many words that differ in one of them are taken for one line too, where
    they stand near the beginning or end of a document; 0: equal lines only."""
    edge: float = 0.8
    """Least share of a line's documents that it begins or ends, among other frequent lines."""
    company: float = 0.5
    """Fewest companions there, on average: frequent lines that stand beside it again and again."""
    lone_share: float = 0.05
    """Least share of all documents of a line without such company."""
    different: float = 0.5
    """Least share of a line's documents whose other text is no copy of another one's."""
    phrases: tuple[str, ...] = PHRASES
    """A line at an edge that has one of these, without regard to case, is cut."""
    max_line_length: int = 400
    """Most characters of a line that is cut: longer ones are copied paragraphs."""
    inside_words: int = 2
    """A line that is boilerplate at edges is cut inside a text too if it has at least so many
    words; 0: only at edges."""
    min_left: float = 0.1
    """Least share of a document's characters that must be left, else it is removed
    (`boilerplate_left`)."""

    def check(self) -> None:
        self.check_shares("min_share", "edge", "lone_share", "different", "min_left")
        self.check_counts("min_documents", "company", "max_line_length")
        self.check_counts("template_words", "inside_words")

    def first_pass(self) -> tuple[str, Pass]:
        return "lines", self.count_lines

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return the boilerplate lines: document, and key of the line (`line`)."""
        tables = corpus.map("lines", self.count_lines)
        counted = tables.totals(["line"], ["documents"], self.min_documents)
        keys = counted.column("line").to_numpy()
        documents = counted.column("documents").to_numpy()
        document_count = int(documents[keys == EVERY].sum())
        keys = keys[(keys != EVERY) & (documents >= self.min_share * document_count)]
        # Twice, as a line is no boilerplate if its companions turn out to be none.
        for turn in ("first", "second"):
            if not keys.size:
                break
            table = tables.among("line", keys)
            occurrences = corpus.map(f"places-{turn}", self.count_places, table).totals(
                ["line", "other", "bucket"], ["documents", "edge"]
            )
            keys = self._boilerplate(occurrences, document_count)
        return tables.among("line", keys)

    def count_lines(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the keys of the distinct lines and templates of each document, with a count
        of 1, and the number of documents of the batch under the key `EVERY`."""
        line_keys, template_hashes, owner = self._keys(batch.lines)
        texts = batch.lines.texts
        chosen = batch.lines.lengths <= self.max_line_length
        texts = np.concatenate([texts[chosen], texts[owner]])
        keys, first_rows = _distinct(np.concatenate([line_keys[chosen], template_hashes]), texts)
        is_line = keys != EVERY
        keys, rows = keys[is_line], batch.rows[texts[first_rows[is_line]]]
        counts = np.ones(len(keys) + 1, np.int64)
        counts[0] = len(batch)
        return arrow_table(
            row=np.concatenate([batch.rows[:1], rows]),
            line=np.concatenate([[EVERY], keys]),
            documents=counts,
        )

    def count_places(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: count, for each line in `side_input`, the documents (`documents`) and those with
        the line at an edge (`edge`), by `bucket`, a hash of the rest of the document, which is
        mostly equal for copies; and the documents for each companion at an edge (`other`)."""
        batch = batch.mentioned_in(side_input)
        lines = batch.lines
        keys, frequent, _ = self._match_lines(lines, side_input.column("line").to_numpy())
        edge = at_edge(lines, frequent | self._notices(batch))
        line_indices = np.flatnonzero(frequent)
        _, first_rows = _distinct(keys[line_indices], lines.texts[line_indices])
        line_indices = line_indices[np.sort(first_rows)]
        texts = lines.texts[line_indices]
        is_edge = edge[line_indices]
        buckets = np.zeros(len(batch), np.int64)
        has_edge = np.zeros(len(batch), np.bool_)
        has_edge[texts[is_edge]] = True
        if has_edge.any():
            buckets[has_edge] = _rest_buckets(batch.take(has_edge), edge[has_edge[lines.texts]])
        line_rows = np.stack(
            [keys[line_indices], np.full(len(line_indices), EVERY), buckets[texts]]
        )
        pairs = _pairs(keys[line_indices[is_edge]], texts[is_edge])
        rows = np.concatenate([line_rows, pairs], axis=1)
        with np.errstate(over="ignore"):
            line, companion, bucket = rows.view(np.uint64)
            _, chosen_rows, groups = np.unique(
                mix(mix(mix(line) + companion) + bucket), return_index=True, return_inverse=True
            )
        rows = rows[:, chosen_rows]
        size = rows.shape[1]
        edges = np.concatenate([is_edge, np.zeros(pairs.shape[1], np.bool_)])
        return arrow_table(
            row=np.full(size, batch.rows[0]),
            line=rows[0],
            other=rows[1],
            bucket=rows[2],
            documents=np.bincount(groups, minlength=size),
            edge=np.bincount(groups, edges, minlength=size).astype(np.int64),
        )

    def _boilerplate(self, occurrences: ArrowTable, document_count: int) -> IntArray:
        """Return the keys of boilerplate lines, given the totals of `count_places`."""
        line, companion, _, documents_here, edge_here = (
            occurrences.column(name).to_numpy()
            for name in ("line", "other", "bucket", "documents", "edge")
        )
        lines, rows = np.unique(line, return_inverse=True)
        is_total = companion == EVERY

        def total(values: IntArray, chosen: BoolArray) -> NDArray[Any]:
            return np.bincount(rows[chosen], values[chosen].astype(float), len(lines))

        documents, edge = total(documents_here, is_total), total(edge_here, is_total)
        buckets = np.bincount(rows[is_total], minlength=len(lines))
        # The expected number of distinct buckets if all texts differ.
        expected = BUCKETS * (1 - (1 - 1 / BUCKETS) ** documents)
        # Companions in several documents, not those of one conversation.
        recurring = ~is_total & (documents_here >= np.maximum(2, RECURS * documents[rows]))
        company = total(documents_here, recurring)
        lone = max(self.lone_share * document_count, self.min_documents)
        return lines[
            (edge >= self.edge * documents)
            & (buckets >= self.different * expected)
            & ((company >= self.company * documents) | (documents >= lone))
        ]

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        keys, chosen = gathered.column("line").to_numpy(), np.zeros(len(batch), np.bool_)
        chosen[batch.indices_in(gathered)] = True
        chosen[self._phrase_lines(batch.texts)[0]] = True
        indices = np.flatnonzero(chosen)
        texts, changes, remaining_shares = self._cut(batch.take(chosen), keys)
        measured = np.ones(len(batch))
        measured[indices] = remaining_shares
        rewritten = list(batch.texts)
        for index, text in zip(indices.tolist(), texts, strict=True):
            rewritten[index] = text
        return Outcome(
            texts=rewritten if changes else None,
            measures=[RuleMeasure("boilerplate_left", measured, low=self.min_left)],
            changes=[replace(change, index=int(indices[change.index])) for change in changes],
        )

    def _cut(
        self, batch: CurationBatch, boilerplate_keys: IntArray
    ) -> tuple[Sequence[str], list[Change], FloatArray]:
        """Return the texts of a batch without boilerplate, the changes, and the share of each text
        that is left."""
        lines = batch.lines
        _, cut, is_own = self._match_lines(lines, boilerplate_keys)
        inside = np.zeros(len(cut), np.bool_)
        if self.inside_words and cut.any():
            begins, _ = lines.characters.tokens()
            inside = cut & is_own & (lines.count_positions(begins) >= self.inside_words)
        notices = self._notices(batch)
        edge = at_edge(lines, cut | notices)
        cut = (cut & edge) | inside
        notices &= edge & ~cut
        changes = [*line_changes(lines, "line", cut), *line_changes(lines, "phrase", notices)]
        cut |= notices
        sizes = lines.total(lines.lengths)
        remaining_shares = 1.0 - shares(lines.total(cut * lines.lengths), sizes)
        return remove_lines(batch.texts, lines, cut), changes, remaining_shares

    def _phrase_lines(self, texts: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Return the text and the number of each line with a phrase of a notice."""
        lowered = [text.lower() for text in texts]
        joined = "\n".join(lowered)
        # All texts are searched at once, as few have any.
        hits = [hit for phrase in self.phrases for hit in _places_of(phrase.casefold(), joined)]
        if not hits:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        feeds = np.flatnonzero(points == LINE_END)
        begins = np.cumsum([0, *(len(text) + 1 for text in lowered)])[:-1]
        owners = np.searchsorted(begins, hits, "right") - 1
        return owners, np.searchsorted(feeds, hits) - np.searchsorted(feeds, begins[owners])

    def _notices(self, batch: CurationBatch) -> BoolArray:
        """Return (L,) whether each line has a phrase of a notice, and may be cut."""
        lines = batch.lines
        owners, numbers = self._phrase_lines(batch.texts)
        codes = lines.texts << 32 | lines.numbers
        return np.isin(codes, owners << 32 | numbers) & (lines.lengths <= self.max_line_length)

    def _keys(self, lines: Lines) -> tuple[IntArray, IntArray, IntArray]:
        """Return (L,) the key of each line; (T,) the keys of templates, and (T,) their lines."""
        short = lines.lengths <= self.max_line_length
        folded = FoldedCharacters(lines.characters, _covered(lines, short))
        line_keys = folded.hashes(lines.begins, lines.ends).view(np.int64)
        if not self.template_words:
            return line_keys, line_keys[:0], line_keys[:0]
        return line_keys, *template_keys(lines, folded, self.template_words, self.max_line_length)

    def _match_lines(
        self, lines: Lines, boilerplate_keys: IntArray
    ) -> tuple[IntArray, BoolArray, BoolArray]:
        """Return (L,) the boilerplate key of each line: its own, or else the least of its
        templates; (L,) whether it has one; and (L,) whether it is its own."""
        line_keys, template_hashes, owner = self._keys(lines)
        is_own = np.isin(line_keys, boilerplate_keys)
        hit = np.isin(template_hashes, boilerplate_keys) & ~is_own[owner]
        least = np.full(len(line_keys), np.iinfo(np.int64).max)
        np.minimum.at(least, owner[hit], template_hashes[hit])
        has_template = least < np.iinfo(np.int64).max
        is_boilerplate = (is_own | has_template) & (lines.lengths <= self.max_line_length)
        return np.where(has_template, least, line_keys), is_boilerplate, is_own


def _places_of(phrase: str, text: str) -> Iterator[int]:
    """Yield the positions of a phrase; none for one of several lines."""
    position = -1 if "\n" in phrase else text.find(phrase)
    while 0 <= position < len(text):
        yield position
        position = text.find(phrase, position + 1)


def template_keys(
    lines: Lines, folded: FoldedCharacters, least: int, longest: int
) -> tuple[IntArray, IntArray]:
    """Return (T,) hashes of the templates (all words but one) of lines near an edge with at least
    `least` words and at most `longest` characters, and (T,) the line of each."""
    characters = lines.characters
    number = np.arange(len(lines.begins))
    distance = np.minimum(
        number - lines.starts[lines.texts], lines.starts[lines.texts + 1] - 1 - number
    )
    chosen = (distance < NEAR) & (lines.lengths <= longest)
    visible = (characters.classes & SPACE) == 0
    begins, ends = true_runs(visible & _covered(lines, chosen))
    counts = lines.count_positions(begins)
    line = np.repeat(number, counts)
    chosen &= (counts >= least) & (counts <= MOST_WORDS)
    in_chosen = np.repeat(chosen, counts)
    begins, ends, line = begins[in_chosen], ends[in_chosen], line[in_chosen]
    if not line.size:
        return line, line
    hashes = folded.hashes(begins, ends)
    line_begins = np.flatnonzero(is_first(line))
    sizes = np.diff(np.append(line_begins, len(line)))
    word_numbers = ranges(np.zeros_like(sizes), sizes)
    with np.errstate(over="ignore"):
        terms = hashes * _weights()[word_numbers]
        line_sums = np.repeat(np.add.reduceat(terms, line_begins) + sizes.astype(np.uint64), sizes)
        # The position of the missing word is part of the key.
        return mix(line_sums - terms + mix(word_numbers.astype(np.uint64) + np.uint64(1))).view(
            np.int64
        ), line


@functools.cache
def _weights() -> UintArray:
    return mix(np.arange(1, MOST_WORDS + 1, dtype=np.uint64)) | np.uint64(1)


def _covered(lines: Lines, chosen: BoolArray) -> BoolArray:
    """Return (N,) whether each character is in one of the chosen lines."""
    steps = np.zeros(len(lines.characters.points) + 1, np.int8)
    steps[lines.begins[chosen]] = 1
    steps[lines.ends[chosen]] = -1
    return np.cumsum(steps, dtype=np.int8)[:-1].view(np.bool_)


class FoldedCharacters:
    """Hashes of sections without regard to case and white space, with a run of digits as one."""

    def __init__(self, characters: Characters, covered: BoolArray) -> None:
        """Args: covered: (N,) whether a character may be in a section; others are skipped."""
        classes = characters.classes
        digit = (classes & DIGIT) != 0
        keep = covered & ((classes & SPACE) == 0)
        keep[1:] &= ~(digit[1:] & digit[:-1])
        self._place = starts_of(keep)
        self._hashes = SpanHashes(characters.points[keep], _numbers)

    def hashes(self, begins: IntArray, ends: IntArray) -> UintArray:
        """Return the hashes of sections that have white space on both sides."""
        return self._hashes.of(self._place[begins], self._place[ends])


def _numbers(points: NDArray[np.uint32]) -> UintArray:
    """Map each code point to a number that is equal for both cases, and 0 for digits."""
    numbers = case_fold(points)
    numbers *= (classes_of(points) & DIGIT) == 0
    return numbers


def at_edge(lines: Lines, chosen: BoolArray) -> BoolArray:
    """Return (L,) whether a line and all lines before it, or after it, in its text are chosen. One
    other line, such as a title, is passed over if two chosen lines follow it."""
    texts, count = lines.texts, len(chosen)
    padded = np.concatenate([[False] * 2, chosen, [False] * 2])
    text_of = np.concatenate([[-1] * 2, texts, [-1] * 2])

    def beside(step: int) -> BoolArray:
        where = slice(2 + step, 2 + step + count)
        return padded[where] & (text_of[where] == texts)

    begins_text, ends_text = (text_of[where : where + count] != texts for where in (1, 3))
    allowed = chosen | ((beside(-1) | begins_text) & beside(1) & beside(2))
    in_head = _unbroken(allowed, lines.starts, texts, forwards=True)
    allowed = chosen | ((beside(1) | ends_text) & beside(-1) & beside(-2))
    return chosen & (in_head | _unbroken(allowed, lines.starts, texts, forwards=False))


def _unbroken(passed: BoolArray, starts: IntArray, texts: IntArray, forwards: bool) -> BoolArray:
    """Return (L,) whether `passed` is true for all lines of the text up to (or from) this one."""
    running = starts_of(~passed)
    if forwards:
        return running[1:] == running[starts[texts]]
    return running[:-1] == running[starts[texts + 1]]


def _distinct(keys: IntArray, texts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct keys of each text, and their indices in `keys`."""
    with np.errstate(over="ignore"):
        pairs = keys.view(np.uint64) + mix(texts.astype(np.uint64))
    order, opening = group_equal(pairs)
    first_rows = order[opening]
    return keys[first_rows], first_rows


def _pairs(keys: IntArray, texts: IntArray) -> IntArray:
    """Return (3, P) for ordered lines: key, key of a line within `REACH` in the same text, 0."""
    pair_blocks = [np.zeros((2, 0), np.int64)]
    for step in range(1, REACH + 1):
        same_text = texts[step:] == texts[:-step]
        earlier, later = keys[:-step][same_text], keys[step:][same_text]
        pair_blocks += [np.stack([earlier, later]), np.stack([later, earlier])]
    pairs = np.concatenate(pair_blocks, axis=1)
    return np.concatenate([pairs, np.zeros((1, pairs.shape[1]), np.int64)])


def _rest_buckets(batch: CurationBatch, edge: BoolArray) -> IntArray:
    """Return (B,) a bucket below `BUCKETS` of the text without the lines at an edge: of its least
    hash of five words, which is mostly equal for near copies; 0 if little text is left."""
    words, lines = batch.words, batch.lines
    hashes, starts = words.shingles(5)
    counts = np.diff(starts)
    first_words = ranges(words.starts[:-1], counts)
    begins = words.begins[first_words] + batch.characters.offsets[words.texts[first_words]]
    line = np.searchsorted(lines.begins, begins, "right") - 1
    values = np.where(edge[line], np.uint64(2**64 - 1), hashes) if len(hashes) else hashes
    buckets = np.zeros(len(batch), np.int64)
    remaining_shares = 1.0 - shares(lines.total(edge * lines.lengths), lines.total(lines.lengths))
    if counts.any():
        least = np.minimum.reduceat(values, starts[:-1][counts > 0])
        buckets[counts > 0] = (least % np.uint64(BUCKETS)).astype(np.int64)
        buckets[remaining_shares < LEAST_REST] = 0
    return buckets
