"""Rows of a file to predict, each with its example, and the columns of their predictions.

A file has the columns of the training data, or columns named as their roles (first, second), or,
for tasks of one text, is plain text with one text per line. Cells of a csv may contain lists as
JSON. It must not have the columns of a prediction:

    prediction                         in JSON Lines, the prediction itself
    predicted_label, predicted_score   in a table, a column for each field; with --top
                                       predicted_label_1, predicted_score_1, …_2, …
    prediction_windows                 the number of windows the row was read in (`--long
                                       windows`); in a table predicted_windows

Columns of several models follow each other.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from maskwright.ask.predict.inputs import LISTS
from maskwright.base.errors import DataError, MaskwrightError, UsageError, near
from maskwright.base.storage.strict_json import parse
from maskwright.learn.tasks.base.task_type import SECOND, UNTOLD, TaskType, example_of_row, task_for
from maskwright.model.checkpoint.fine_tuned import read_task, require_finished
from maskwright.text.corpus.csv_file import OTHERS
from maskwright.text.corpus.files import GrowingFile, RegularFile, Source, find, growing, shown
from maskwright.text.corpus.read import text_blocks
from maskwright.text.corpus.reading import Counts, Ledger, ReadingOptions
from maskwright.text.tables.cell_values import row_with_lists
from maskwright.text.tables.files import separate_class_names
from maskwright.text.tables.formats import conll
from maskwright.text.tables.formats import text_files as text_formats
from maskwright.text.tables.labelled_images import find_images
from maskwright.text.tables.marked_text import as_read
from maskwright.text.tables.read import read_rows
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, WHERE, TableReadingOptions
from maskwright.text.tables.rows import TABLE_FILE, Row, has_column
from maskwright.text.tables.shapes import may_be_joined

if TYPE_CHECKING:
    from maskwright.ask.predict.predictor import BasePredictor

PREDICTION, PREDICTED = "prediction", "predicted_"
NUMBER = re.compile(r"_[0-9]+\Z")  # the suffix of columns of the best predictions
WINDOWS, PREDICTED_WINDOWS = "prediction_windows", "predicted_windows"
# Names for the column with the source file of a row; the first unused one is taken.
FILE = ("file", "source_file", "predicted_from")
AT_MOST = 1000  # the file is rejected if this many first rows lack a needed column
HEAD = 1 << 16  # bytes of standard input that identify its format


@dataclass(frozen=True)
class RowReader:
    """How rows of files become examples of a task.

    Attributes:
        columns: the names of the columns that are read, by role.
        read: the options of reading; with `on_bad=skip` the example of a bad row is None.
        named: whether the user named columns; no others are read then.
    """

    task_type: TaskType
    columns: Mapping[str, Sequence[str]]
    read: TableReadingOptions = DEFAULT_OPTIONS
    named: bool = False

    def with_named_columns(self, named_columns: Mapping[str, Sequence[str]]) -> Self:
        """Return a copy that reads the columns that the user names, by role.

        Raises:
            UsageError: the model does not read such a role, or not so many columns of it.
        """
        task_type, named = self.task_type, bool(named_columns)
        single_role, roles = task_type.alone, {*task_type.roles}
        if single_role and named_columns.keys() in ({single_role}, roles):
            return replace(self, columns=named_columns, named=named)
        pairs = task_type.head == "sequence" and task_type.options.get(UNTOLD)
        roles = roles if single_role else {*self.columns, *([SECOND] if pairs else [])}
        for role, names in named_columns.items():
            is_other_number = len(names) != len(self.columns.get(role, names[:1]))
            if role not in roles or (is_other_number and not may_be_joined(role)):
                raise UsageError(
                    "not a column that the model reads",
                    where="--column",
                    found=f"{role}={', '.join(names)}",
                    wanted=", ".join(sorted(roles))
                    + (f"; or {single_role} alone" if single_role else ""),
                    do="name one of these: --column ROLE=NAME",
                )
        return replace(self, columns={**self.columns, **named_columns}, named=named)


def require_readable(
    folder: Path,
    source: Path,
    read: TableReadingOptions,
    named_columns: Mapping[str, Sequence[str]],
) -> None:
    """Read the first row of `source` for the result in `folder`, without its model: what is wrong
    with columns or separator is reported before torch is imported, which takes longer. Folders
    without a record are not checked.

    Raises:
        UsageError, DataError: as `RowReader.with_named_columns` and `rows_to_answer`.
    """
    home = require_finished(folder)
    record = None if home is None else read_task(home)
    if record is None:
        return
    try:
        task_type = task_for(record.kind, record.labels, record.settled)
    except UsageError:  # reported with the model
        return
    columns = record.columns or {role: (role,) for role in task_type.roles}
    reader = RowReader(task_type, columns, read).with_named_columns(named_columns)
    next(rows_to_answer(source, reader, Counts()), None)


def rows_to_answer(
    source: Path, reader: RowReader, counts: Counts
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield (values of the row by column, example) for a table or lines of plain text. For a
    folder, the values include the file of the row. `counts` is updated with statistics of the
    reader."""
    read, task_type = reader.read, reader.task_type
    skips = read.reading.on_bad == "skip"
    if (images := find_images(source)) is not None and task_type.reads_images:
        counts.ignored.add(images[1])
        for row in itertools.chain(*images[0].values()):
            yield dict(row.values), _tried(skips, _example, reader, row)
        return
    every_file, ignored = find(source, text_formats.sources)
    counts.ignored.add(ignored)
    files = separate_class_names(every_file)[0]
    names = [name for role in reader.columns.values() for name in role]
    text_files = [
        file for file in files if file.format == "text" and not _is_labelled(file, read.reading)
    ]
    if text_formats.in_folders(files, lambda name: False):
        text_files = []  # each file is one text
    if text_files and len(text_files) < len(files):
        raise UsageError(
            "tables and plain text in one folder",
            where=source,
            found=", ".join(file.shown for file in files[:10]),
            wanted="one or the other",
            do="name the files of one kind",
        )
    if text_files:
        if len(names) > 1 and task_type.alone:
            names = [task_type.alone]
        elif [may_be_joined(role) for role in reader.columns] == [True]:
            names = names[:1]
        if len(names) > 1:
            raise UsageError(
                "lines of plain text are one text each",
                where=source,
                wanted=f"a table with the columns {', '.join(names)}",
                do="give a .csv, .tsv or .jsonl file",
            )
        if unused := table_settings(read):
            raise UsageError(
                "option has no effect here",
                where=f"{WHERE} {unused[0]}",
                found="lines of text, one text each",
                do="leave it out, or name a .csv or .tsv file",
            )
        for file in files:
            for index, (number, text) in enumerate(_lines(file, read.reading, counts)):
                where = f"{file.shown}, line {number}"
                if not index:
                    _refuse_header(text, names[0], where)
                values = _with_file({names[0]: text}, file.shown, source)
                value = text if task_type.counts_places else as_read(text)
                yield values, _tried(skips, task_type.of_value, value, where)
        return
    # The values of the first rows that lack a needed column, until a row has all of them.
    incomplete: list[dict[str, Any]] = []
    error: DataError | None = None
    is_complete = False
    by_role = replace(reader, columns={role: (role,) for role in reader.columns})
    for row in read_rows(files, read.reading, read.header, counts=counts):
        if PREDICTION in row.values:
            raise name_taken(PREDICTION, row.where)
        values = _with_file(row.as_given().values, row.file, source)
        missing, row_reader = _missing_column(row, reader), reader
        if missing is not None and not reader.named and _missing_column(row, by_role) is None:
            missing, row_reader = None, by_role
        if missing is None:
            is_complete = True
            yield from ((earlier_values, None) for earlier_values in incomplete)
            incomplete = []
            yield values, _tried(skips, _example, row_reader, row)
        elif not skips or TABLE_FILE.search(row.file):
            raise _column_error(row, missing, reader)
        elif is_complete:
            yield values, None
        else:
            error = error or _column_error(row, missing, reader)
            incomplete.append(values)
            if len(incomplete) == AT_MOST:
                break
    if incomplete and error is not None:
        raise error


def _with_file(values: Mapping[str, Any], file: str, source: Path) -> dict[str, Any]:
    """Return the values of a row; if `source` is a folder, add the file of the row under the first
    name of `FILE` that is not a column."""
    if not source.is_dir():
        return dict(values)
    name = next(name for name in FILE if name not in values)
    return {**values, name: file.removeprefix(shown(source)).lstrip("/")}


def _column_error(row: Row, missing: str, reader: RowReader) -> DataError:
    """Return the error about a row without the column `missing`."""
    single_role = reader.task_type.alone
    role = next((role for role, names in reader.columns.items() if missing in names), "ROLE")
    advice = ""
    if single_role and role != single_role:
        advice = f", or --column {single_role}=NAME for the answer to one text"
    elif single_role:
        roles = " ".join(f"--column {role}=NAME" for role in reader.task_type.roles)
        advice = f", or {roles} for two texts"
    return DataError(
        "a column that the model reads is missing",
        where=row.where,
        found=", ".join(row.values),
        wanted=repr(missing),
        do=f"say which it is: --column {role}=NAME ({near(missing, row.values)}){advice}",
    )


def _is_labelled(file: Source, reading: ReadingOptions) -> bool:
    """Whether a text file has labelled rows (fastText, CoNLL, CoNLL-U), not one text per line."""
    if isinstance(file, text_formats.ParallelText):
        return True
    with RegularFile(file) as stream:
        first_block = next(text_blocks(stream, file, Ledger(reading, Counts(), None)), None)
    return first_block is not None and (
        first_block.text.lstrip().startswith(text_formats.LABEL)
        or conll.is_treebank(first_block.text, may_be_table=True)
        or conll.is_text_of_words(first_block.text)
    )


def _missing_column(row: Row, reader: RowReader) -> str | None:
    """Return the name of a column that the model reads and the row lacks, or None. JSON objects may
    leave out empty values, so one column of a joined text is enough there."""
    columns = row.values.keys()
    for role, names in reader.columns.items():
        is_present = [has_column(name, columns) for name in names]
        if not (
            all(is_present)
            or (any(is_present) and not TABLE_FILE.search(row.file) and may_be_joined(role))
        ):
            return names[is_present.index(False)]
    return None


def table_settings(read: TableReadingOptions) -> list[str]:
    """Return the names of the options in `read` that are set and apply to tables only."""
    usual, names = ReadingOptions(), ("separator", "quoting", "escapechar")
    names_set = [n for n in names if getattr(read.reading, n) != getattr(usual, n)]
    return names_set + ["header"] * bool(read.header)


def _refuse_header(line: str, name: str, where: str) -> None:
    """Raise a `DataError` if the first line of a text file is the header of a table, with a cell
    equal to the column name `name`."""
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


def _example(reader: RowReader, row: Row) -> Any:
    """Convert a row to an example of the task; cells of list columns are parsed."""
    listed = [reader.columns[role] for role in LISTS if role in reader.columns]
    single_columns = [names[0] for names in listed if len(names) == 1]
    return example_of_row(reader.task_type, row_with_lists(row, single_columns), reader.columns)


def _tried(skips: bool, make_example: Callable[..., Any], *arguments: Any) -> Any:
    """Return `make_example(*arguments)`; None if it raises a `DataError` and `skips`."""
    try:
        return make_example(*arguments)
    except DataError as error:
        if skips:
            return None
        if error.do is not None and "on_bad=skip" not in error.do:
            raise
        # In training, bad rows are dropped; here they are kept with a null prediction.
        raise error.advising(
            "correct the row, or pass it over (--read on_bad=skip): its prediction is then null"
        ) from None


def _lines(file: Source, reading: ReadingOptions, counts: Counts) -> Iterator[tuple[int, str]]:
    """Yield (line number, line) of a text file, in any encoding and compression that the corpus
    reader supports."""
    ledger = Ledger(reading, counts, None)
    with RegularFile(file) as stream:
        for block in text_blocks(stream, file, ledger, as_given=True):
            for number, line in block.lines():
                counts.documents += 1
                yield number, line.removesuffix("\r")
        counts.hashes[file.shown] = stream.finish()
    ledger.finish("the file has 0 lines", "line")


# ------------------------------------------------------------------------------ standard input
@contextlib.contextmanager
def stdin_file(
    stream: BinaryIO, read: TableReadingOptions = DEFAULT_OPTIONS, *, complete: bool = False
) -> Iterator[Path]:
    """Context manager that copies standard input to a temporary file and yields its path: a csv if
    `read` has options of tables, JSON Lines if it begins with a brace, JSON if it is an array,
    else lines of text.

    Args:
        complete: read all of the input first; otherwise the file grows while it is read, so that
            rows can be predicted before the pipe ends.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard-input"
        file.touch()
        head = _read_head(GrowingFile(file, stream))
        path = file.with_suffix(".csv" if table_settings(read) else _extension_for(head))
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


def _read_head(pipe: GrowingFile) -> bytes:
    """Read the first bytes, which identify the format: up to the end of the first non-blank line,
    or up to `HEAD` bytes of what may be a JSON array."""
    head = b""
    while len(head) < HEAD and (data := pipe.more()):
        head += data
        start = head.removeprefix(codecs.BOM_UTF8).lstrip()
        if b"\n" in start and not start.startswith(b"["):
            break
    return head


def _extension_for(head: bytes) -> str:
    """Return the file extension of the format that begins with these bytes."""
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


# -------------------------------------------------------------------- columns of predictions
def flat_row(row: dict[str, Any], top: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a row of JSON Lines into the cells of its columns and those of its prediction. Lists
    become JSON, except the list of the `top` best predictions, which get columns of their own."""
    answer = row.pop(PREDICTION)
    windows = {PREDICTED_WINDOWS: row.pop(WINDOWS)} if WINDOWS in row else {}
    cells = {} if answer is None else dict(_cells(PREDICTED, answer, top))
    cells |= windows
    if clashes := sorted(cells.keys() & row.keys()):
        raise name_taken(", ".join(clashes))
    return _as_text(row), _as_text(cells)


def _as_text(cells: dict[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
        for name, value in cells.items()
    }


def names_of(example: Any, model: BasePredictor, top: int | None, windows: bool) -> list[str]:
    """Return the prediction columns, with that of the number of `windows` if True. They are the
    same for all rows, except that with `top` a row may have fewer of them."""
    ((prediction,), _) = model.answer([example], top)
    names = [name for name, _ in _cells(PREDICTED, prediction, top)]
    return [*names, *([PREDICTED_WINDOWS] if windows else [])]


def clashing(names: Iterable[str], row: Iterable[str], top: int | None) -> list[str]:
    """Return the columns of a row that clash with prediction columns of these `names`."""
    if top is None:
        return sorted({*names} & {*row})
    ranked = {NUMBER.sub("", name) for name in names}
    return sorted(name for name in row if name in names or NUMBER.sub("", name) in ranked)


def _cells(name: str, answer: Any, top: int | None, suffix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (column name, value) for the fields of a prediction, recursively."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from _cells(f"{name}{key}_", value, top, suffix)
    elif top is not None and isinstance(answer, list) and not suffix:
        for number, ranked in enumerate(answer, start=1):
            yield from _cells(name, ranked, top, f"_{number}")
    else:
        yield name.removesuffix("_") + suffix, answer


def name_taken(name: str, where: str | None = None) -> UsageError:
    """Return the error about a file that already has a column called `name`."""
    return UsageError(
        "the file has a column of that name already",
        where=where,
        found=name,
        do="rename it, or the answer would take its place",
    )
