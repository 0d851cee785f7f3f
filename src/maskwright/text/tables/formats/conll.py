"""Read sentences of tagged words from files in CoNLL columns or tables with a word in each row.

{"tokens": ["Kalomi", "sat"], "tags": ["B-PER", "O"]}        a row of JSON Lines

Kalomi NNP B-PER                                             CoNLL columns: a word on each
sat    VBD O                                                 line, an empty line between
                                                             sentences; -DOCSTART- lines and
Tion   NNP B-LOC                                             comments before a sentence, such
                                                             as "# id 7", are skipped

The user can name the columns (`header`), and has to if the first column does not hold words, or if
another column looks like tags and the last does not. Columns are separated by tabs if a line has
one, so that words may contain spaces; otherwise by spaces.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import OR_SKIP, Counts, Ledger, ReadingOptions, line_in
from maskwright.text.tables.formats.conllu import blank_word, sentence_lines
from maskwright.text.tables.rows import plain

WORDS = ("word", "words", "token", "tokens")
SENTENCES = (
    *("sentence", "sentenceid", "sentenceidx", "sentenceno", "sentencenumber", "sentid"),
    *("sentno", "sentidx", "sent"),
)
NUMBERED = re.compile(r"(sent(ence)?)?\W*\d+(\.0)?", re.IGNORECASE)


def columns_of(names: Sequence[str], first_row: Sequence[str]) -> tuple[str, str] | None:
    """Return (column of sentence numbers, column of words) of a table with a word in each row, by
    its header and first row; None for other tables."""
    name_by_spelling = {plain(name): name for name in names}
    number, word = (
        next(
            (name_by_spelling[spelling] for spelling in spellings if spelling in name_by_spelling),
            None,
        )
        for spellings in (SENTENCES, WORDS)
    )
    if number is None or word is None:
        return None
    first_values = dict(zip(names, first_row, strict=True))
    single = len(first_values[word].split()) == 1 and not first_values[word].lstrip().startswith(
        "["
    )
    return (number, word) if single and NUMBERED.fullmatch(first_values[number].strip()) else None


def sentences(
    rows: Iterable[tuple[Mapping[str, str], int]], number: str, word: str, file: str, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (sentence as lists of values by column, its first line) of a table of words.

    Raises:
        DataError: a row without a word, when the policy is strict.
    """
    sentence: dict[str, Any] = {}
    start_line = 0
    for values, line in rows:
        if not values[word].strip():
            ledger.reject(
                DataError(
                    "the word is missing",
                    where=line_in(file, line),
                    found=repr(values[word]),
                    wanted=f"one in the column {word!r}",
                    do="correct the row",
                ),
                file=file,
                line=line,
            )
            continue
        sentence_id = values[number].strip() or sentence.get(number, "")
        if sentence_id != sentence.get(number):
            if sentence:
                yield sentence, start_line
            sentence, start_line = {number: sentence_id}, line
        for name, value in values.items():
            if name != number:
                sentence.setdefault(name, []).append(value)
    if sentence:
        yield sentence, start_line


# Entity tags in several spellings: B-PER, b-per, B_PER, PER-B.
TAG = re.compile(r"O|o|[BIESLUMW][-_]\w.*|[bieslumw]-\w.*|[A-Z]\w+[-_][BIESLUMW]")
NUMBER = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+([.,]\d+)?[eE][-+]?\d+)")
SAMPLED_LINES = 20_000  # lines
# Words needed to decide whether a column has one value for all words of a sentence.
MIN_VALUES = 3
# The most distinct values of a column of classes; the fewest words to judge by their number.
CLASSES, MANY = 60, 20
SHOWN = 8
MOSTLY = 0.95
TOKENS, TAGS = "tokens", "tags"


class _Column:
    """The values of one column in the sampled sentences."""

    def __init__(self, sentences: Sequence[Sequence[Sequence[str]]], index: int) -> None:
        self.index = index
        self.by_sentence = [[columns[index] for columns in words] for words in sentences]
        self.values = [value for values in self.by_sentence for value in values]
        self.distinct = set(self.values)
        self.tags = sum(bool(TAG.fullmatch(value)) for value in self.values)
        self.names = {value for value in self.distinct if any(map(str.isalpha, value))}
        self.is_number = all(map(str.isdecimal, self.distinct))
        are_fractions = all(NUMBER.fullmatch(v) or v.isdecimal() for v in self.distinct)
        self.is_fraction = are_fractions and not self.is_number

    @property
    def has_tags(self) -> bool:
        return self.tags >= MOSTLY * len(self.values)

    @property
    def tag_rank(self) -> int:
        """How surely the column holds tags: 3 for entity tags, and not only O; 2 for entity types
        such as PER without a scheme, and O; 1 for few names that repeat, such as parts of speech;
        0 for other values."""
        types = self.distinct - {"O"}
        if self.has_tags and types:
            return 3
        if "O" in self.distinct and 0 < len(types) <= CLASSES and types <= self.names:
            return 2
        repeat_values = 1 < len(self.distinct) <= min(CLASSES, len(self.values) // 2)
        return int(repeat_values and 2 * len(self.names) > len(self.distinct))

    @property
    def counts_words(self) -> bool:
        """Whether the column numbers the words of each sentence consecutively."""
        return (
            self.is_number
            and max(map(len, self.by_sentence)) > 1
            and all(
                [int(value) - int(values[0]) for value in values] == list(range(len(values)))
                for values in self.by_sentence
            )
        )

    @property
    def is_of_sentence(self) -> bool:
        """Whether the column has one value for all words of a sentence, such as a document id."""
        longer = [values for values in self.by_sentence if len(values) > 1]
        is_constant = all(len(set(values)) == 1 for values in longer)
        return is_constant and sum(map(len, longer)) >= MIN_VALUES

    @property
    def is_lettered(self) -> bool:
        """Whether most values consist of letters only, as words do."""
        return sum(value.isalpha() for value in self.values) * 2 > len(self.values)


def column_names(
    sentences: Sequence[Sequence[Sequence[str]]], where: str, header: Sequence[str]
) -> tuple[str | None, ...]:
    """Return the name of each column, or None for a column that is left out.

    Args:
        sentences: sample of sentences of equal width, each a list of lines, each a list of columns.

    Raises:
        DataError: the roles of the columns are unclear.  UsageError: a wrong number of names.
    """
    width = len(sentences[0][0])
    if header:
        require_names(header, sentences[0][0], where)
        return tuple(header)
    sampled = list(_sample(sentences))
    columns = [_Column(sampled, index) for index in range(width)]
    first_word_column = 0
    if width > 1 and columns[0].counts_words and not (width == 2 and columns[1].has_tags):
        first_word_column = 1  # numbers of the words
    names: list[str | None] = [f"column {index + 1}" for index in range(width)]
    names[0], names[first_word_column] = None, TOKENS
    if width - first_word_column > 1:
        _require_words_and_tags(columns[first_word_column:], where, width)
        names[-1] = TAGS
    return tuple(names)


def require_names(header: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Check that the names given by the user match the `columns` of a row.

    Raises:
        UsageError: more or fewer names than columns, or a duplicate name.
    """
    if len(header) != len(columns):
        raise UsageError(
            "the names given do not fit the file",
            where=where,
            found=f"{len(header)} names for {len(columns)} columns: {', '.join(columns)}",
            wanted=f"{len(columns)} names",
            do="name every column: --read header=NAME,NAME,…",
        )
    if twice := [name for name in header if header.count(name) > 1]:
        raise UsageError(
            "two columns have the same name",
            where="--read header",
            found=twice[0],
            wanted="every name once",
            do="rename one of them",
        )


def _sample(sentences: Sequence[Sequence[Sequence[str]]]) -> Iterator[Sequence[Sequence[str]]]:
    lines = 0
    for words in sentences:
        lines += len(words)
        if lines <= SAMPLED_LINES or lines == len(words):
            yield words


def _require_words_and_tags(columns: Sequence[_Column], where: str, width: int) -> None:
    """Raise DataError unless the first column may hold the words, and the last one their tags."""
    head, *others = columns
    tail, between = others[-1], others[:-1]
    tags = next((c for c in others[::-1] if c.tag_rank == 3), tail)
    enough_values = len(head.values) >= MIN_VALUES
    may_have_tags = 2 * head.tags > len(head.values) and head.distinct != {"O"}
    if enough_values and may_have_tags and not tail.has_tags:  # the tags stand before the words
        words = next((c for c in others if c.is_lettered), others[0])
        raise _unclear_error("words", head, words, head, where, width)
    if between:
        words = next((c for c in others if not (c.is_of_sentence or c.is_number)), others[0])
        is_id = head.is_of_sentence and not words.is_of_sentence
        is_number = head.is_number and enough_values and words.is_lettered
        if is_id or is_number:
            raise _unclear_error("words", head, words, tags, where, width)
        lettered = (c for c in between if c.is_lettered and not c.is_of_sentence)
        least = MIN_VALUES * len(head.distinct)
        richer = next((c for c in lettered if len(c.distinct) > least), None)
        if richer is not None and head.tag_rank > 0 and len(head.values) >= MANY:
            raise _unclear_error("words", head, richer, tags, where, width)
    if tail.has_tags:
        return
    better = max(between[::-1], key=lambda column: column.tag_rank, default=tail)
    count = len(tail.distinct)
    # Lemmas have nearly as many distinct values as words, and many more than the other column.
    many_more = count > MIN_VALUES * len(better.distinct)
    are_lemmas = 2 * count > len(head.distinct) and many_more
    no_names = tail.is_fraction or not tail.names or count == 1
    is_better = better.tag_rank > max(tail.tag_rank, 1)
    if is_better or tail.is_fraction or (better.tag_rank and (no_names or are_lemmas)):
        raise _unclear_error("tags", tail, head, better, where, width)


def _unclear_error(
    role: str, column: _Column, words: _Column, tags: _Column, where: str, width: int
) -> DataError:
    names = [f"column{number}" for number in range(1, width + 1)]
    names[tags.index], names[words.index] = TAGS, TOKENS
    values = list(dict.fromkeys(column.values))
    shown = ", ".join(map(repr, values[:SHOWN])) + (", …" if len(values) > SHOWN else "")
    return DataError(
        f"the {'first' if role == 'words' else 'last'} column seems to hold no {role}",
        where=where,
        found=f"column {column.index + 1} of {width}: {shown}",
        wanted="words in the first column and their tags in the last, or the names of the columns",
        do=f"name all columns in their order, words as {TOKENS} and tags as {TAGS}, perhaps "
        f"--read header={','.join(names)}",
    )


DOCUMENT = "-DOCSTART-"
# Comments of CoNLL-U and MultiCoNER; "#" alone may be the first word of a tweet.
COMMENT = re.compile(
    r"#\s*([\w.:]+\s*=|(id|newdoc|newpar|doc(ument)?|sent(ence)?|(begin|end) document)\b)", re.I
)
LOOKED_AT = 200  # lines
LAST = re.compile(r"O|[BIESLUM](-\w.*)?")  # of one entity type, which has no name


# ------------------------------------------------------------------------------ files
def is_one(text: str) -> bool:
    """Whether a .tsv file that begins with `text` holds tagged words and is not a table with a
    header: up to the first empty line, all lines have equal width and one column holds tags."""
    lines = text.replace("\r\n", "\n").lstrip("\n").partition("\n\n")
    words = [line.split("\t") for line in lines[0].split("\n")]
    if len(words) > 1 and words[0][0].startswith("#") and len(words[0]) != len(words[1]):
        words = words[1:]  # a comment
    width = len(words[0])
    if not lines[1] or width < 2 or any(len(columns) != width for columns in words):
        return False
    return all(len(columns[0].split()) <= 1 for columns in words) and any(
        all(LAST.fullmatch(columns[index]) for columns in words) for index in range(width)
    )


def is_words(text: str) -> bool:
    """Whether a file that begins with `text` holds tagged words and not prose: it has empty lines,
    and columns of which one holds entity or chunk tags in every line."""
    lines = text.split("\n")[:LOOKED_AT]
    if lines and lines[0].startswith(DOCUMENT):
        return True
    if "" not in (line.strip() for line in lines):
        return False  # no sentence ends
    words = [_split_columns(line) for line in lines if line.strip() and not COMMENT.match(line)]
    width = len(words[0]) if words else 0
    if width < 2 or any(len(columns) != width for columns in words):
        return False
    columns = [{line[index] for line in words} for index in range(width)]
    return any(values != {"O"} and all(map(TAG.fullmatch, values)) for values in columns)


def rows(
    blocks: Iterable[TextBlock], file: str, header: Sequence[str] = (), ledger: Ledger | None = None
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row `{"tokens": […], "tags": […]}`, its first line) for each sentence of a file.

    The first column is the word (a column before it that numbers the words is skipped), the last
    its tag, if there are several; columns between are named by position, `column 2`. With the
    policy skip, a sentence with a bad line is dropped as a whole.

    Args:
        ledger: receives bad sentences; with None, a bad line raises.

    Raises:
        DataError: the roles of the columns are unclear; when the policy is strict, a line with a
            different number of columns, or a blank word.
        UsageError: more or fewer names than columns.
    """
    blocks, ledger = iter(blocks), ledger or Ledger(ReadingOptions(), Counts(), None)
    first_block = next(blocks, None)
    if first_block is None:
        return
    sample = list(_sentences(iter([first_block]), file, None, 0))
    widths = [len(words[0]) for words, _ in sample]
    usual_width = max(set(widths), key=widths.count, default=0)
    names: dict[int, tuple[str | None, ...]] = {}  # by the number of columns of a sentence
    blocks = itertools.chain([first_block], blocks)
    for words, line in _sentences(blocks, file, ledger, usual_width):
        width = len(words[0])
        if width not in names:
            same_width = [s for s in sample if len(s[0][0]) == width] or [(words, line)]
            where = line_in(file, same_width[0][1])
            names[width] = column_names([words for words, _ in same_width], where, header)
        yield (
            {
                name: [columns[index] for columns in words]
                for index, name in enumerate(names[width])
                if name is not None
            },
            line,
        )


def _sentences(
    blocks: Iterator[TextBlock], file: str, ledger: Ledger | None, usual: int
) -> Iterator[tuple[list[list[str]], int]]:
    """Yield (list of the columns of each line, number of the first line) for each sentence; `usual`
    is the number of columns of most sentences. With `ledger` None, bad sentences are skipped."""
    words: list[list[str]] = []
    start_line, fault = 0, None
    for number, line in sentence_lines(blocks, ledger):
        columns = _split_columns(line) if line is not None else []
        if line is None or not columns or columns[0] == DOCUMENT:
            if ledger is not None:
                ledger.counts.rows += start_line > 0
            if fault is not None and ledger is not None:
                ledger.reject(fault, file=file, line=start_line, last_line=number - 1, rows=1)
            elif words and fault is None:
                yield words, start_line
            words, start_line, fault = [], 0, None
            continue
        if not words and COMMENT.match(line):
            continue
        if len(words) == 1 and words[0][0].startswith("#") and len(columns) != len(words[0]):
            words, fault = [], None  # it was a comment, such as a source: "#", "http://…"
        start_line = start_line if words else number
        width = len(words[0]) if words else len(columns)
        fault = fault or _fault(line, columns, width, usual, line_in(file, number))
        if fault is not None and ledger is not None and ledger.reading.on_bad == "strict":
            raise fault
        words.append(columns)


def _fault(line: str, columns: list[str], width: int, usual: int, where: str) -> DataError | None:
    if "\r" in line:
        return DataError(
            "a carriage return within a line",
            where=where,
            found=repr(line[:60]),
            wanted="lines that end with LF or CRLF",
            do=f"do lines end in CR? then read with line_ends='any', {OR_SKIP}",
        )
    if len(columns) < max(width, usual) and len(columns) == usual - 1 and line[:1] in " \t":
        return blank_word(where, line)
    if len(columns) == width and not width == 1 < usual:
        return None
    return DataError(
        "a line with another number of columns than the one before",
        where=where,
        found=f"{len(columns)}: {line[:60]!r}",
        wanted=f"{max(width, usual) if width == 1 else width}",
        do=f"correct the line (between sentences is an empty one), {OR_SKIP}",
    )


def _split_columns(line: str) -> list[str]:
    pieces = line.split("\t") if "\t" in line else line.split(" ")
    return [column.strip(" ") for column in pieces if column.strip(" ")]
