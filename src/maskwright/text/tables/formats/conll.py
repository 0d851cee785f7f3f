"""Read sentences of tagged words: CoNLL columns, treebanks in CoNLL-U, tables of words.

Kalomi NNP B-PER                      CoNLL columns: a word on each line, an empty line between
sat    VBD O                          sentences; -DOCSTART- lines and comments before a sentence,
                                      such as "# id 7", are skipped
Tion   NNP B-LOC

1   The   the   DET    DT   …   2   det   _   _        CoNLL-U, the format of Universal
2   cat   cat   NOUN   NN   …   3   nsubj _   _        Dependencies: ten columns

In CoNLL columns, a first line such as "word ner" or the user (`header`) can name the columns; the
user has to if the first column does not hold words, or if another column looks like tags and the
last does not. Columns are separated by tabs if a line has one, so that words may contain spaces;
otherwise by spaces.

Of multiword tokens of a treebank ("zum": "zu", "dem"; numbered 3-4) the words are read; empty nodes
(8.1) are left out. A column that has only "_" in a sentence is left out of its row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import OR_SKIP, Counts, Ledger, ReadingOptions, line_in
from maskwright.text.tables.columns import NAMES
from maskwright.text.tables.rows import plain

# ------------------------------------------------------------------------------ tables of words
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
        next((name_by_spelling[s] for s in spellings if s in name_by_spelling), None)
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


# ------------------------------------------------------------------------------ roles of columns
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


# ------------------------------------------------------------------------------ CoNLL columns
DOCUMENT = "-DOCSTART-"
# Comments of CoNLL-U and MultiCoNER; "#" alone may be the first word of a tweet.
COMMENT = re.compile(
    r"#\s*([\w.:]+\s*=|(id|newdoc|newpar|doc(ument)?|sent(ence)?|(begin|end) document)\b)", re.I
)
LOOKED_AT = 200  # lines
LAST = re.compile(r"O|[BIESLUM](-\w.*)?")  # of one entity type, which has no name
NumberedLines = list[tuple[int, str]]


def is_header(columns: Sequence[str]) -> bool:
    """Whether a line has the names of the columns: of words, of tags, and each once."""
    names = [plain(column) for column in columns]
    named_roles = not {*WORDS}.isdisjoint(names) and not {*NAMES["tags"]}.isdisjoint(names)
    return named_roles and len(set(names)) == len(names)


def _roles_in(header: Sequence[str]) -> list[str]:
    """Return the names of the columns as they are without a header, if only one may hold tags."""
    tags = [name for name in header if plain(name) in NAMES["tags"]]
    roles = dict.fromkeys(tags, TAGS) if len(tags) == 1 else {}
    return [TOKENS if plain(name) in WORDS else roles.get(name, name) for name in header]


def is_tsv_of_words(text: str) -> bool:
    """Whether a .tsv file that begins with `text` holds tagged words and is not a table with a
    header: up to the first empty line, all lines have equal width and one column holds tags."""
    lines = text.replace("\r\n", "\n").lstrip("\n").partition("\n\n")
    words = [line.split("\t") for line in lines[0].split("\n")]
    if len(words) > 1 and words[0][0].startswith("#") and len(words[0]) != len(words[1]):
        words = words[1:]  # a comment
    words = words[is_header(words[0]) :]
    width = len(words[0]) if words else 0
    if not lines[1] or width < 2 or any(len(columns) != width for columns in words):
        return False
    return all(len(columns[0].split()) <= 1 for columns in words) and any(
        all(LAST.fullmatch(columns[index]) for columns in words) for index in range(width)
    )


def is_text_of_words(text: str) -> bool:
    """Whether a file that begins with `text` holds tagged words and not prose: it has empty lines,
    and columns of which one holds entity or chunk tags in every line."""
    lines = text.split("\n")[:LOOKED_AT]
    if lines and lines[0].startswith(DOCUMENT):
        return True
    if "" not in (line.strip() for line in lines):
        return False  # no sentence ends
    words = [_split_columns(line) for line in lines if line.strip() and not COMMENT.match(line)]
    words = words[is_header(words[0]) :] if words else words
    width = len(words[0]) if words else 0
    if width < 2 or any(len(columns) != width for columns in words):
        return False
    columns = [{line[index] for line in words} for index in range(width)]
    return any(values != {"O"} and all(map(TAG.fullmatch, values)) for values in columns)


def rows(
    blocks: Iterable[TextBlock], file: str, header: Sequence[str], ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row `{"tokens": […], "tags": […]}`, its first line) for each sentence of a file.

    The first column is the word (a column before it that numbers the words is skipped), the last
    its tag, if there are several; columns between are named by position, `column 2`. With the
    policy skip, a sentence with a bad line is dropped as a whole.

    Raises:
        DataError: the roles of the columns are unclear; when the policy is strict, a line with a
            different number of columns, or a blank word.
        UsageError: more or fewer names than columns.
    """
    blocks = iter(blocks)
    first_block = next(blocks, None)
    if first_block is None:
        return
    any_line = Ledger(ReadingOptions(on_bad="skip", max_bad_fraction=1), Counts(), None)
    sample = list(_sentences([first_block], file, any_line, 0))
    lines = (_split_columns(line) for _, line in first_block.lines() if not COMMENT.match(line))
    first_line = next((c for c in lines if c[:1] not in ([], ["\r"], [DOCUMENT])), [])
    widths = [len(words[0]) for words, _ in sample]
    usual_width = max(set(widths), key=widths.count, default=0)
    if not header and is_header(first_line) and len(first_line) == usual_width:
        header = _roles_in(first_line)
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
    blocks: Iterable[TextBlock], file: str, ledger: Ledger, usual_width: int
) -> Iterator[tuple[list[list[str]], int]]:
    """Yield (list of the columns of each line, number of the first line) for each sentence;
    `usual_width` is the number of columns of most sentences."""
    for number_of_sentence, lines in enumerate(_lines_by_sentence(blocks, ledger)):
        lines = list(itertools.dropwhile(lambda line: COMMENT.match(line[1]), lines))
        words = [_split_columns(line) for _, line in lines]
        if number_of_sentence == 0 and words and is_header(words[0]):
            del words[0], lines[0]
        # A comment may also be a source: "#", "http://…".
        while len(words) > 1 and words[0][0][0] == "#" and len(words[0]) != len(words[1]):
            del words[0], lines[0]
        if not words:
            continue
        ledger.counts.rows += 1
        first_line, width = lines[0][0], len(words[0])
        for (number, line), columns in zip(lines, words, strict=True):
            if error := _line_error(line, columns, width, usual_width, line_in(file, number)):
                _reject_sentence(error, first_line, lines, file, ledger)
                break
        else:
            yield words, first_line


def _lines_by_sentence(blocks: Iterable[TextBlock], ledger: Ledger) -> Iterator[NumberedLines]:
    """Yield the numbered lines of each sentence, which an empty line or -DOCSTART- ends. All lines
    are subtracted from the ledger's count of rows, as rows are sentences here."""
    lines: NumberedLines = []
    for number, line in (numbered for block in blocks for numbered in block.lines()):
        ledger.counts.rows -= 1
        if line.strip(" \t\r") and line.split(maxsplit=1)[:1] != [DOCUMENT]:
            lines.append((number, line))
        elif lines:
            yield lines
            lines = []
    if lines:
        yield lines


def _reject_sentence(
    fault: DataError, first_line: int, lines: NumberedLines, file: str, ledger: Ledger
) -> None:
    ledger.reject(fault, file=file, line=first_line, last_line=lines[-1][0], rows=1)


def _line_error(
    line: str, columns: list[str], width: int, usual_width: int, where: str
) -> DataError | None:
    """Return the error of a line in a sentence whose first line has `width` columns, if any."""
    # A sentence that begins with a single column where others have tags lacks the tags.
    expected_width = max(width, usual_width) if width == 1 else width
    if "\r" in line:
        return DataError(
            "a carriage return within a line",
            where=where,
            found=repr(line[:60]),
            wanted="lines that end with LF or CRLF",
            do=f"do lines end in CR? then read with line_ends='any', {OR_SKIP}",
        )
    if len(columns) == usual_width - 1 and line[:1] in " \t":  # the column of the word is blank
        return _blank_word(where, line)
    if len(columns) == expected_width:
        return None
    return DataError(
        "a line with another number of columns than the one before",
        where=where,
        found=f"{len(columns)}: {line[:60]!r}",
        wanted=f"{expected_width}",
        do=f"correct the line (between sentences is an empty one), {OR_SKIP}",
    )


def _blank_word(where: str, line: str) -> DataError:
    """Return the error for a word of white space only."""
    return DataError(
        "a word of blanks",
        where=where,
        found=repr(line[:60]),
        wanted="a word, and its tag behind it",
        do=f"correct or remove the line, {OR_SKIP}",
    )


def _split_columns(line: str) -> list[str]:
    pieces = line.split("\t") if "\t" in line else line.split(" ")
    return [column.strip(" ") for column in pieces if column.strip(" ")]


# ------------------------------------------------------------------------------ treebanks
TREEBANK_COLUMNS = 10
TREEBANK_LOOKED_AT = 1000  # lines
# Number of a word, a multiword token (3-4), or an empty node (8.1).
WORD_NUMBER = re.compile(r"\d+([-.]\d+)?")
WORD, HEAD, NOTHING = 1, 6, "_"
# Names by index; upos is used as tags unless the user names another column.
ANNOTATION_COLUMNS = {3: "upos", 4: "xpos", 7: "deprel", 2: "lemma"}
# (line number of a word, its columns).
NumberedWord = tuple[int, list[str]]


def is_treebank(text: str, may_be_table: bool) -> bool:
    """Whether a file that begins with `text` is CoNLL-U, whatever its name: all lines of the first
    sentences have ten tab-separated columns, and the first numbers the words. If it `may_be_table`
    with numbered rows, separated sentences and numbers of heads are also required."""
    lines = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    last_number, words, ends = 0, 0, 0
    for line in lines[:TREEBANK_LOOKED_AT]:
        if not line.strip() or line.startswith("#"):
            last_number, ends = 0, ends + 1
            continue
        columns = line.split("\t")
        if len(columns) != TREEBANK_COLUMNS or not WORD_NUMBER.fullmatch(columns[0]):
            return False
        if columns[0].isdecimal():
            if int(columns[0]) != last_number + 1:
                return False
            if may_be_table and columns[HEAD] != NOTHING and not columns[HEAD].isdecimal():
                return False
            last_number, words = last_number + 1, words + 1
    return words > 0 and (ends > 0 or not may_be_table)


def treebank_rows(
    blocks: Iterable[TextBlock], file: str, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, line of its first word) for each sentence of a file in CoNLL-U.

    Raises:
        DataError: as `treebank_sentences`.
    """
    for sentence in treebank_sentences(blocks, file, ledger):
        words = [columns for _, columns in sentence]
        row = {"tokens": [word[WORD] for word in words]}
        for column, name in ANNOTATION_COLUMNS.items():
            if any(word[column] != NOTHING for word in words):
                row[name] = [word[column] for word in words]
        yield row, sentence[0][0]


def treebank_sentences(
    blocks: Iterable[TextBlock], file: str, ledger: Ledger
) -> Iterator[list[NumberedWord]]:
    """Yield the words of each sentence; with the policy skip, one with a bad line is dropped.

    Raises:
        DataError: a line without ten columns, or a blank word, when the policy is strict.
    """
    for lines in _lines_by_sentence(blocks, ledger):
        token_lines = [(number, line) for number, line in lines if not line.startswith("#")]
        if not token_lines:
            continue
        ledger.counts.rows += 1
        try:
            tokens = [(number, _word(line, line_in(file, number))) for number, line in token_lines]
        except DataError as fault:
            _reject_sentence(fault, token_lines[0][0], lines, file, ledger)
            continue
        if words := [(number, columns) for number, columns in tokens if columns]:
            yield words


def _word(line: str, where: str) -> list[str] | None:
    """Return the columns of a word; None for a multiword token or an empty node.

    Raises:
        DataError: there are not ten columns, or the word is blank.
    """
    columns = line.split("\t")
    if len(columns) != TREEBANK_COLUMNS:
        raise DataError(
            "not a line of CoNLL-U",
            where=where,
            found=f"{len(columns)} columns: {line[:60]!r}",
            wanted=f"{TREEBANK_COLUMNS}, apart by tabs",
            do=f"correct the line; a file of words and tags alone is called .conll; {OR_SKIP}",
        )
    if not columns[0].isdecimal():
        return None
    if not columns[WORD].strip(" "):
        raise _blank_word(where, line)
    return columns
