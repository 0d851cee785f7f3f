"""The rows of a file to predict, each with its example.

A file may have the columns of the training data or, for tasks of one text, be plain text with a
line for each; cells of a csv may spell lists.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from maskwright.ask.predict.columns import PREDICTION, name_taken
from maskwright.ask.predict.inputs import LISTS
from maskwright.ask.predict.predictor import BasePredictor
from maskwright.base.errors import DataError, MaskwrightError, UsageError, near
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.csv_file import OTHERS
from maskwright.text.corpus.files import RegularFile, Source, find, shown
from maskwright.text.corpus.growing import GrowingFile, growing
from maskwright.text.corpus.ledger import Counts, Ledger
from maskwright.text.corpus.read import text_blocks
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.column_contents import has_column, row_with_lists
from maskwright.text.tables.formats import class_folders, conll, conllu, unnamed_files
from maskwright.text.tables.raw_text import as_read
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, WHERE, TableReadingOptions
from maskwright.text.tables.rows import TABLE_FILE, Row, read_rows
from maskwright.text.tables.shapes import may_be_joined
from maskwright.text.tables.split_files import separate_class_names

# Names for the column with the file of a row.
FILE = ("file", "source_file", "predicted_from")
AT_MOST = 1000  # first rows without a needed column, after which the file is refused
HEAD = 1 << 16  # bytes of standard input that identify its format


def rows_to_answer(
    source: Path, model: BasePredictor, read: TableReadingOptions, counts: Counts
) -> Iterator[tuple[dict[str, Any], Any]]:
    """(values of the row, the example) of a table, or of lines of plain text; None is the example
    of a bad row, where those are passed over. Of a folder the values say the file, too. `counts`
    takes what the reading met."""
    skips = read.reading.on_bad == "skip"
    every_file, ignored = find(source, unnamed_files.sources)
    counts.ignored.add(ignored)
    files = separate_class_names(every_file)[0]
    names = [name for role in model.columns.values() for name in role]
    lines = [
        file for file in files if file.format == "text" and not _is_labelled(file, read.reading)
    ]
    if class_folders.in_folders(files, lambda name: False):
        lines = []  # each is a text
    if lines and len(lines) < len(files):
        raise UsageError(
            "tables and plain text in one folder",
            where=source,
            found=", ".join(file.shown for file in files[:10]),
            wanted="one or the other",
            do="name the files of one kind",
        )
    if lines:
        if len(names) > 1 and model.task_type.alone:
            names = [model.task_type.alone]
        elif [may_be_joined(role) for role in model.columns] == [True]:
            names = names[:1]
        if len(names) > 1:
            raise UsageError(
                "lines of plain text are one text each",
                where=source,
                wanted=f"a table with the columns {', '.join(names)}",
                do="give a .csv, .tsv or .jsonl file",
            )
        if idle := table_settings(read):
            raise UsageError(
                "option has no effect here",
                where=f"{WHERE} {idle[0]}",
                found="lines of text, one text each",
                do="leave it out, or name a .csv or .tsv file",
            )
        for file in files:
            for position, (number, text) in enumerate(_lines(file, read.reading, counts)):
                where = f"{file.shown}, line {number}"
                if not position:
                    _refuse_header(text, names[0], where)
                values = _with_file({names[0]: text}, file.shown, source)
                value = text if model.task_type.counts_places else as_read(text)
                yield values, _tried(skips, model.task_type.of_value, value, where)
        return
    lacking: list[Row] | None = []  # rows without what is read, before the first that has it
    for row in read_rows(files, read.reading, read.header, counts=counts):
        if PREDICTION in row.values:
            raise name_taken(PREDICTION, row.where)
        if (missing := _missing(row, model)) is not None:
            if not skips or TABLE_FILE.search(row.file):
                raise _not_there(row, missing, model)
            if lacking is None:
                yield _with_file(row.as_given().values, row.file, source), None
                continue
            lacking.append(row)
            if len(lacking) == AT_MOST:  # no row has it
                break
            continue
        yield from (
            (_with_file(lacking_row.as_given().values, lacking_row.file, source), None)
            for lacking_row in lacking or ()
        )
        lacking = None
        yield (
            _with_file(row.as_given().values, row.file, source),
            _tried(skips, _example, model, row),
        )
    if lacking:
        raise _not_there(lacking[0], _missing(lacking[0], model) or "", model)


def _with_file(values: Mapping[str, Any], file: str, source: Path) -> dict[str, Any]:
    """The values of a row, and, where `source` is a folder, in which of its files the row stands;
    under the first name that the row has not."""
    if not source.is_dir():
        return dict(values)
    name = next(name for name in FILE if name not in values)
    return {**values, name: file.removeprefix(shown(source)).lstrip("/")}


def _not_there(row: Row, missing: str, model: BasePredictor) -> DataError:
    single_role = model.task_type.alone
    role = next((role for role, names in model.columns.items() if missing in names), "ROLE")
    advice = f", or --column {single_role}=NAME for the answer to one text" if single_role else ""
    return DataError(
        "a column that the model reads is missing",
        where=row.where,
        found=", ".join(row.values),
        wanted=repr(missing),
        do=f"say which it is: --column {role}=NAME ({near(missing, row.values)}){advice}",
    )


def _is_labelled(file: Source, reading: ReadingOptions) -> bool:
    """Whether a text file holds labelled rows, not one text in each line."""
    if isinstance(file, unnamed_files.ParallelText):
        return True
    with RegularFile(file) as opened:
        first_block = next(text_blocks(opened, file, Ledger(reading, Counts(), None)), None)
    return first_block is not None and (
        first_block.text.lstrip().startswith(class_folders.LABEL)
        or conllu.is_one(first_block.text, may_be_table=True)
        or conll.is_words(first_block.text)
    )


def _missing(row: Row, model: BasePredictor) -> str | None:
    """The name of a column that the model reads and the row lacks, or None. JSON objects leave out
    empty values, so for a text of several columns one of these is enough."""
    columns = row.values.keys()
    for role, names in model.columns.items():
        present = [has_column(name, columns) for name in names]
        if not (
            all(present)
            or (may_be_joined(role) and any(present) and not TABLE_FILE.search(row.file))
        ):
            return names[present.index(False)]
    return None


def table_settings(read: TableReadingOptions) -> list[str]:
    """What is set of `read` that only tables have."""
    usual = ReadingOptions()
    names = [
        n
        for n in ("separator", "quoting", "escapechar")
        if getattr(read.reading, n) != getattr(usual, n)
    ]
    return [*names, *(["header"] if read.header else [])]


def _refuse_header(line: str, name: str, where: str) -> None:
    """Refuse a first line of text that names the column of the texts: a table begins so.

    Raises:
        DataError: it does.
    """
    cells = [cell.strip().strip('"') for mark in OTHERS for cell in line.split(mark)]
    if name in cells:
        raise DataError(
            "the first line names columns, as that of a table",
            where=where,
            found=repr(line[:80]),
            wanted=f'lines of text, one text each, or JSON lines such as {{"{name}": …}}',
            do="name a .csv or .tsv file; of a pipe say what separates the columns: "
            "--read separator=,",
        )


def _example(model: BasePredictor, row: Row) -> Any:
    listed = [model.columns[role] for role in LISTS if role in model.columns]
    single_columns = [names[0] for names in listed if len(names) == 1]
    return model.task_type.of_row(row_with_lists(row, single_columns), model.columns)


def _tried(skips: bool, make_example: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `make_example`; None for a bad row, if `skips`."""
    try:
        return make_example(*arguments)
    except DataError as error:
        if skips:
            return None
        if error.do is not None and "on_bad=skip" not in error.do:
            raise
        # Rows that are learned from would be dropped; here they stay.
        raise error.advising(
            "correct the row, or pass it over (--read on_bad=skip): its prediction is then null"
        ) from None


def _lines(file: Source, reading: ReadingOptions, counts: Counts) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file of any encoding and compression that the corpus reader
    takes."""
    ledger = Ledger(reading, counts, None)
    with RegularFile(file) as opened:
        for block in text_blocks(opened, file, ledger, as_given=True):
            for number, line in block.lines():
                counts.documents += 1
                yield number, line.removesuffix("\r")
        counts.hashes[file.shown] = opened.finish()
    ledger.finish("the file has 0 lines", "line")


# ------------------------------------------------------------------------------ standard input
@contextlib.contextmanager
def stdin_file(
    stream: BinaryIO, read: TableReadingOptions = DEFAULT_OPTIONS, *, complete: bool = False
) -> Iterator[Path]:
    """Standard input as a temporary file: a table if `read` has settings of tables, JSON Lines if
    it begins with a brace, JSON if it is an array, else lines of text.

    Args:
        complete: the file is whole from the start; else it grows while it is read, so that the rows
            that have come can be answered before the pipe ends.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard-input"
        file.touch()
        head = _head(GrowingFile(file, stream))
        path = file.with_suffix(".csv" if table_settings(read) else _ending(head))
        file.rename(path)
        try:
            with growing(path, stream) as pipe:
                while complete and pipe.more():
                    pass
                yield path
        except MaskwrightError as error:
            if error.where is not None:
                error.where = error.where.replace(str(path), "standard input")
                error.args = (error.render(),)
            raise


def _head(pipe: GrowingFile) -> bytes:
    """The bytes that identify the format: up to the first line that is not blank, or more of what
    may be an array."""
    head = b""
    while len(head) < HEAD and (data := pipe.more()):
        head += data
        start = head.removeprefix(codecs.BOM_UTF8).lstrip()
        if b"\n" in start and not start.startswith(b"["):
            break
    return head


def _ending(head: bytes) -> str:
    """The extension of a file that begins with these bytes."""
    head = head.removeprefix(codecs.BOM_UTF8)
    if head.lstrip()[:1] == b"{":
        return ".jsonl"
    if re.match(rb"\s*\[\s*\{", head):
        return ".json"
    if head.lstrip()[:1] == b"[" and len(head) < HEAD:
        with contextlib.suppress(DataError, UnicodeDecodeError):
            parse(head.decode("utf-8"))
            return ".json"
    return ".txt"
