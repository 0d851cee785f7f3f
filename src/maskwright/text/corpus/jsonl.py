"""Read documents from JSON Lines: one object per line, the text in one of its fields.

A `.json` file is read in the same way if it holds JSON Lines; a single large value is refused, with
the command that converts it to lines, because it cannot be read in bounded memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from maskwright.base.errors import DataError
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.files import Source
from maskwright.text.corpus.lines import NOT_STRIPPED, STRIPPED, TextBlock, strip_controls
from maskwright.text.corpus.reading import (
    OR_SKIP,
    Document,
    Ledger,
    as_text,
    line_in,
    missing_column,
    note_columns,
    nul_error,
)

LONE = re.compile("[\ud800-\udfff]")
# Characters that JSON allows only as escapes; it allows DEL unescaped.
ESCAPES = {code: f"\\u{code:04x}" for code in STRIPPED if code < 32}
RAW = re.compile("[" + "".join(map(chr, ESCAPES)) + "]")
JSON_TYPES = {
    dict: "an object",
    list: "an array",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


def documents(blocks: Iterator[TextBlock], source: Source, ledger: Ledger) -> Iterator[Document]:
    """Yield the documents of a file of JSON Lines.

    Raises:
        DataError: a bad row, when the policy is strict; a `.json` file that is one value.
    """
    file, counts = source.shown, ledger.counts
    column, note_names = ledger.reading.column, ledger.reading.notes
    has_alternatives = "," in column
    for block in blocks:
        if block.line == 1:
            _refuse_one_value(block.text, file, lines=source.suffix != ".json")
        for number, line in block.lines():
            if not line or line.isspace():
                counts.blank += 1
                continue
            try:
                row = parse(line)
                if has_alternatives and type(row) is dict:
                    column = ledger.reading.column_of(row)
                text = row[column] if type(row) is dict and column in row else None
                if type(text) is not str:
                    raise _no_text_error(row, column)
                if "\\" in line:  # only escapes can hold control characters or lone surrogates
                    text = _check_text(text, ledger)
                notes = _notes(row, line, ledger) if note_names else {}
            except DataError as error:
                ledger.reject(_in_line(error, line, line_in(file, number)), file=file, line=number)
                continue
            if not text or text.isspace():
                counts.blank += 1
            else:
                yield Document(text, file, f"{file}:{number}", notes)


def objects(
    blocks: Iterator[TextBlock],
    source: Source,
    ledger: Ledger,
    made_of: Callable[[Any], Any] = lambda value: value,
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (object, line number) of a file of JSON Lines. Texts are checked but keep their control
    characters. `made_of` converts each parsed value, for files whose lines are not objects.

    Raises:
        DataError: a bad row, when the policy is strict.
    """
    file = source.shown
    for block in blocks:
        for number, line in block.lines():
            if not line or line.isspace():
                ledger.counts.blank += 1
                continue
            try:
                value = parse(with_escapes(line))
                needs_check = "\\" in line or "\0" in line
                row = made_of(check_texts(value, ledger) if needs_check else value)
                if not isinstance(row, dict):
                    raise _no_text_error(row, ledger.reading.column)
            except DataError as error:
                ledger.reject(_in_line(error, line, line_in(file, number)), file=file, line=number)
                continue
            yield row, number


def _notes(row: dict[str, Any], line: str, ledger: Ledger) -> dict[str, str]:
    """Return the values of the columns kept as notes, by name."""
    reading, notes = ledger.reading, {}
    ledger.meet(row)
    for name in note_columns(reading.notes, row, reading.column_of(row)):
        value = as_text(row[name])
        if value is not None:
            if "\\" in line:
                try:
                    name = _check_text(name, ledger)
                    value = type(value)(_check_text(value, ledger))
                except DataError as error:
                    raise with_place(error, f"field {name!r}") from None
            notes[name] = value
    return notes


def with_escapes(text: str) -> str:
    """Replace raw control characters in JSON by escapes, as its grammar requires."""
    return text.translate(ESCAPES) if RAW.search(text) else text


def check_texts(value: Any, ledger: Ledger) -> Any:
    """Check every text in a JSON value for lone surrogates and NUL from escapes, and return the
    value. Control characters are kept, because character offsets count them.

    Raises:
        DataError: half of a surrogate pair, or a NUL, depending on the policy.
    """
    if type(value) is str:
        return _check_text(value, ledger, strip=False)
    if type(value) is list:
        return [check_texts(element, ledger) for element in value]
    if type(value) is dict:
        return {check_texts(k, ledger): check_texts(v, ledger) for k, v in value.items()}
    return value


def _no_text_error(row: Any, column: str) -> DataError:
    if type(row) is not dict:
        return DataError(
            "the row is not an object",
            found=_json_type(row),
            wanted=f'an object such as {{"{column}": "…"}}',
        )
    if column not in row:
        return missing_column(column, sorted(row), None, "the field is missing", of_text=True)
    return DataError(
        "the field is not a text",
        where=f"field {column!r}",
        found=_json_type(row[column]),
        wanted="a text",
    )


def _check_text(text: str, ledger: Ledger, strip: bool = True) -> str:
    """Check a text for lone surrogates and NUL from escapes, and remove its control characters
    (unless `strip` is False)."""
    try:
        if not text.encode().translate(None, NOT_STRIPPED):
            return text
    except UnicodeEncodeError:
        pass  # a lone surrogate; which one is found below
    lone = LONE.findall(text)
    if lone and ledger.reading.on_undecodable != "replace":
        raise DataError(
            "an escape is half of a surrogate pair",
            found=f"\\u{ord(lone[0]):04x} at character {text.index(lone[0]) + 1} of the text",
            wanted="escapes in pairs, such as \\ud83d\\ude00",
            do=f"correct the escape, read with on_undecodable='replace', {OR_SKIP}",
        )
    if "\0" in text and ledger.reading.on_nul == "error":
        raise nul_error(None, f"\\u0000 at character {text.index(chr(0)) + 1} of the text")
    if lone:
        ledger.counts.replaced += len(lone)
        text = LONE.sub("\ufffd", text)
    return strip_controls(text, ledger.counts) if strip else text


def _refuse_one_value(text: str, file: str, *, lines: bool) -> None:
    """Raise DataError for an array or an object over several lines, which the first line leaves
    open. Other faults belong to a row, as does, with `lines`, a first line that is cut off."""
    first_line, _, rest = text.lstrip().partition("\n")
    first_line, rest = first_line.rstrip(), rest.lstrip()
    is_array = first_line.startswith("[") and (
        not lines or (first_line == "[" and rest.startswith("{"))
    )
    cut = first_line.startswith("{") and first_line.endswith(("{", ",", "[", ":")) and bool(rest)
    if is_array or (cut and (not lines or rest.startswith('"'))):
        raise DataError(
            "a .json file with one value in it is not read"
            if not lines
            else "JSON over several lines is not read",
            where=file,
            found="an array" if is_array else "an object over several lines",
            wanted="JSON Lines: one object per line",
            do=f"write a line for each: jq -c '.{'[]' if is_array else ''}' FILE > LINES.jsonl",
        )


def _in_line(error: DataError, line: str, where: str) -> DataError:
    if "\r" in line.rstrip("\r"):
        error.advising(f"do lines end in CR? then read with line_ends='any', {OR_SKIP}")
    return with_place(error, where)


def with_place(error: DataError, where: str) -> DataError:
    """Return the error with the location of its row, and a remedy if it has none."""
    return DataError(
        error.what,
        where=", ".join(text for text in (where, error.where) if text),
        found=error.found,
        wanted=error.wanted,
        do=error.do or f"correct the row, {OR_SKIP}",
    )


def _json_type(value: Any) -> str:
    return JSON_TYPES.get(type(value), "a number")
