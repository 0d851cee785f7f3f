"""Fault catalogue D, rows of JSON Lines, CSV and parquet: file, line, what, and the policies."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.files_at_hand import SKIP, documents, lines_of, refusal, texts, write
from maskwright.base.errors import ConfigError, DataError, UsageError
from maskwright.base.storage.strict_json import MAX_DEPTH
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions

GOOD = '{"text": "good"}'

# The damaged row, what is said, and a part of what was found.
DAMAGE = [
    ("{", "not JSON", "the end"),
    ("}", "not JSON", "'}'"),
    ("{}", "the field is missing", "(none)"),
    ("[]", "the row is not an object", "an array"),
    ("null", "the row is not an object", "null"),
    ("true", "the row is not an object", "true or false"),
    ("3", "the row is not an object", "a number"),
    ("3.5e2", "the row is not an object", "a number"),
    ('"text"', "the row is not an object", "a text"),
    ("text", "not JSON", "'text'"),
    ("text: good", "not JSON", "text"),
    ('{"text"}', "not JSON", "delimiter"),
    ('{"text":}', "not JSON", "expecting value"),
    ('{"text": "a"', "not JSON", "the end"),
    ('{"text": "a}', "not JSON", "unterminated string"),
    ('{"text": "a",}', "not JSON", "property name"),
    ('{"text": "a" "b"}', "not JSON", "delimiter"),
    ('{"text": "a"}}', "not JSON", "extra data"),
    ('{"text": "a"}{"text": "b"}', "not JSON", "extra data"),
    ("{'text': 'a'}", "not JSON", "property name"),
    ("{text: 1}", "not JSON", "property name"),
    ('{"text": a}', "not JSON", "expecting value"),
    ('{"text": "a\tb"}', "not JSON", "control character"),
    ('{"text": "\\x41"}', "not JSON", "escape"),
    ('{"text": "\\u12"}', "not JSON", "escape"),
    ('{"text": "\\"}', "not JSON", "unterminated string"),
    ('{"text": 1}', "the field is not a text", "a number"),
    ('{"text": 1.5}', "the field is not a text", "a number"),
    ('{"text": null}', "the field is not a text", "null"),
    ('{"text": true}', "the field is not a text", "true or false"),
    ('{"text": ["a"]}', "the field is not a text", "an array"),
    ('{"text": {"a": "b"}}', "the field is not a text", "an object"),
    ('{"Text": "a"}', "the field is missing", "Text"),
    ('{"texts": "a", "body": "b"}', "the field is missing", "body, texts"),
    ('{"text ": "a"}', "the field is missing", "text "),
    ('{"text": "a", "n": 01}', "not JSON", "delimiter"),
    ('{"text": "a", "n": .5}', "not JSON", "expecting value"),
    ('{"text": "a", "n": +1}', "not JSON", "expecting value"),
    ('{"text": "a", "n": 0x10}', "not JSON", "delimiter"),
    ("# comment", "not JSON", "# comment"),
    ("<html>", "not JSON", "<html>"),
    ("---", "not JSON", "---"),
]


@pytest.mark.parametrize(("row", "what", "found"), DAMAGE)
def test_F68_damaged_rows_of_json_lines(tmp_path: Path, row: str, what: str, found: str) -> None:
    for place in (0, 1, 4):
        rows = [GOOD] * 4
        rows.insert(place, row)
        path = write(tmp_path, "a.jsonl", "\n".join(rows) + "\n")
        error = refusal(DataError, path)
        assert error.what == what
        assert error.where.startswith(f"{path}, line {place + 1}")
        assert (", column " in error.where) == (what == "not JSON")
        assert found in error.found
        assert "on_bad='skip'" in error.do or "column=" in error.do
        rejects = tmp_path / "rejects.jsonl"
        reader = Reader(path, SKIP, rejects)
        assert [d.id for d in reader] == [f"{path}:{n + 1}" for n in range(5) if n != place]
        assert reader.counts.rejected_by == {what: 1}
        (listed,) = map(json.loads, rejects.read_text().splitlines())
        assert listed["line"] == place + 1 and listed["reason"] == what


def test_F68_the_column_of_the_fault_is_exact(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", GOOD + '\n{"text": "é", "n": ?}\n')
    assert refusal(DataError, path).where == f"{path}, line 2, column 20"


def test_F68_near_names_of_the_field(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"txt": "a", "id": 1}')
    error = refusal(DataError, path)
    assert error.wanted == "the field 'text'" and "'txt'" in error.do


@pytest.mark.parametrize(
    "data", ['[{"text": "a"},\n{"text": "b"}]', "[]", '{\n"text": "a"\n}', "[1,2]"]
)
def test_F68_one_large_value_is_refused_with_the_command(tmp_path: Path, data: str) -> None:
    error = refusal(DataError, write(tmp_path, "a.json", data))
    assert ("jq -c '.[]'" if data.startswith("[") else "jq -c '.'") in error.do


@pytest.mark.parametrize(
    "data", ['{\n  "text": "a"\n}\n{\n  "text": "b"\n}\n', '[\n{"text": "a"}\n]']
)
def test_rows_over_several_lines_are_refused_with_the_command(tmp_path: Path, data: str) -> None:
    error = refusal(DataError, write(tmp_path, "a.jsonl", data))
    command = error.do.partition(": ")[2].replace("FILE", "a.jsonl")
    if shutil.which("jq") is None:
        return
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert [d.text for d in Reader(tmp_path / "LINES.jsonl")] == ["a", "b"][: data.count("text")]


def test_a_line_above_the_header_is_refused(tmp_path: Path) -> None:
    """And the advice works; one column whose texts have commas is another fault."""
    table = "id,text\n1,a\n2,b\n"
    for above in ("# made in May\n", "# made, in May\n", "// a\n// b\n", "List of May\n\n"):
        path = write(tmp_path, "a.csv", above + table)
        error = refusal(DataError, path)
        line = int(error.do.rpartition(" ")[2])
        lines = path.read_text().split("\n")[line - 1 :]
        assert [d.text for d in Reader(write(tmp_path, "b.csv", "\n".join(lines)))] == ["a", "b"]
    error = refusal(DataError, write(tmp_path, "c.csv", "text\nHello, world\n"))


@given(st.binary(max_size=60))
def test_F68_any_row_is_a_document_or_a_reject(
    tmp_path_factory: pytest.TempPathFactory, row: bytes
) -> None:
    data = GOOD.encode() + b"\n" + row.replace(b"\n", b"") + b"\n" + GOOD.encode() + b"\n"
    path = write(tmp_path_factory.mktemp("f68"), "a.jsonl", data)
    reader = Reader(path, ReadingOptions(on_bad="skip", max_bad_fraction=1, on_nul="strip"))
    try:
        found = lines = [int(d.id.rpartition(":")[2]) for d in reader]
    except DataError as error:
        assert error.what in ("not a text file", "the file has another encoding")
        return
    assert lines[0] == 1 and found[-1] == 3
    assert len(found) + reader.counts.rejected + reader.counts.blank == 3


# ------------------------------------------------------------------------------ F69 traps of JSON
def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


TRAPS = [
    ('{"text": "a", "x": ' + nested(5000) + "}", "JSON nested too deeply", "64 levels"),
    ('{"text": "a", "x": ' + nested(MAX_DEPTH) + "}", "JSON nested too deeply", "64 levels"),
    ("[" * 100_000, "JSON nested too deeply", "64 levels"),
    ('{"a":' * 5000, "JSON nested too deeply", "64 levels"),
    ('{"text": "a", "x": %s}' % ("9" * 5000), "a number out of range", "thousands of digits"),
    ('{"text": "a", "x": -%s}' % ("9" * 5000), "a number out of range", "thousands of digits"),
    ('{"text": "a", "x": 1e999}', "a number out of range", "1e999"),
    ('{"text": "a", "x": -1e999}', "a number out of range", "-1e999"),
    ('{"text": "a", "x": NaN}', "a number that JSON does not have", "NaN"),
    ('{"text": "a", "x": Infinity}', "a number that JSON does not have", "Infinity"),
    ('{"text": "a", "x": [-Infinity]}', "a number that JSON does not have", "-Infinity"),
    ('{"text": "a", "text": "b"}', "a name stands twice in one object", "'text'"),
    ('{"text": "a", "x": {"y": 1, "y": 1}}', "a name stands twice in one object", "'y'"),
    ('{"text": "a", "te\\u0078t": "b"}', "a name stands twice in one object", "'text'"),
]


@pytest.mark.parametrize(("row", "what", "found"), TRAPS)
def test_F69_traps_of_json_are_typed_errors(
    tmp_path: Path, row: str, what: str, found: str
) -> None:
    path = write(tmp_path, "a.jsonl", f"{GOOD}\n{row}\n{GOOD}\n")
    error = refusal(DataError, path)
    assert (error.what, error.where.startswith(f"{path}, line 2")) == (what, True)
    assert found in error.found and error.wanted
    assert lines_of(path, on_bad="skip", max_bad_fraction=1) == [1, 3]


def test_F69_what_is_allowed_stays_allowed(tmp_path: Path) -> None:
    brackets = "[{" * 500  # inside a string they are text
    rows = [
        {"text": brackets + '"' + "\\" + brackets, "x": json.loads(nested(MAX_DEPTH - 1))},
        {"text": "b", "many": [[]] * 1000, "n": 10**300, "f": 1e308},
    ]
    path = write(tmp_path, "a.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    assert texts(path) == [row["text"] for row in rows]


# ------------------------------------------------------------------------------ F70 traps of CSV
def test_F70_unclosed_quote(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,text\n1,"two\nlines"\n2,"never\n3,c\n4,d\n')
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 4"
    assert "quoting=False" in error.do
    rejects = tmp_path / "rejects.jsonl"
    reader = Reader(path, SKIP, rejects)
    assert [d.id for d in reader] == [f"{path}:2"]
    assert reader.counts.rejected == 3  # every row that the quote swallowed
    (listed,) = map(json.loads, rejects.read_text().splitlines())
    assert (listed["line"], listed["last_line"]) == (4, 6)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("5", "the row has too few fields"),
        ("5,a,b", "the row has too many fields"),
        ("5,a,", "the row has too many fields"),
    ],
)
def test_F70_short_and_long_rows(tmp_path: Path, row: str, what: str) -> None:
    path = write(tmp_path, "a.csv", f'id,text\n1,"x\ny\nz"\n\n{row}\n6,b\n')
    error = refusal(DataError, path)
    assert error.what == what
    assert error.where == f"{path}, line 6"  # after a field of three lines and a blank one
    assert error.found.startswith(f"{row.count(',') + 1} field") and "2 fields" in error.wanted
    reader = Reader(path, SKIP)
    assert [d.id for d in reader] == [f"{path}:2", f"{path}:7"]
    assert reader.counts.rejected_by == {what: 1} and reader.counts.blank == 1


def test_F70_quote_in_the_wrong_place(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,text\n1,a\n2,"b"c\n3,d\n')
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 3"
    assert lines_of(path, on_bad="skip", max_bad_fraction=1) == [2, 4]


def test_F70_carriage_return_in_an_open_field(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,text\n1,a\rb\n3,d\n")
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 2"
    assert lines_of(path, on_bad="skip", max_bad_fraction=1) == [3]


def test_F70_duplicate_column(tmp_path: Path) -> None:
    error = refusal(DataError, write(tmp_path, "a.csv", "\n\nid,text,text\n1,a,b\n"))
    assert error.where.endswith("a.csv, line 3") and error.found == "'text'"


def test_F70_wrong_separator_is_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id;text\n1;a\n")
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 1"
    assert texts(path, separator=";") == ["a"]


def test_quotes_that_swallow_rows_of_tabs_are_refused(tmp_path: Path) -> None:
    rows = '" the film is old .\t1\nthe actor\t0\nthe film is new "\t1\nso what\t1\n'
    path = write(tmp_path, "a.tsv", "text\tlabel\n" + rows)
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 2" and "3 lines from" in error.found
    assert "quoting=False" in error.do
    assert len(texts(path, quoting=False)) == 4
    # The controls: tabs alone, ends of lines alone, and a csv.
    for number, good in enumerate(('"a\tb"\t1\n', '"a\nb"\t1\n')):
        assert len(texts(write(tmp_path, f"{number}.tsv", "text\tlabel\n" + good))) == 1
    assert len(texts(write(tmp_path, "c.csv", 'text,label\n"a\tb\nc",1\n'))) == 1


def test_the_first_line_may_say_the_separator(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "sep=;\r\nid;text\r\n1;a,b\r\n2;c\r\n")
    assert texts(path) == texts(path, separator=";") == ["a,b", "c"]
    for separator, said in (
        (None, ["columns separated by ';', as a first line sep= says"]),
        (";", []),
    ):
        reader = Reader(path, ReadingOptions(separator=separator))
        assert len(list(reader)) == 2 and list(map(str, reader.counts.findings)) == said
    assert texts(write(tmp_path, "b.csv", '"sep=\t"\ntext\tid\na\t1\n')) == ["a"]
    error = refusal(DataError, write(tmp_path, "c.csv", "sep=;\nid;text\n1;a\n2\n"))
    assert error.where.endswith("c.csv, line 4")
    # Only the first line, and only when it says nothing else.
    assert texts(write(tmp_path, "d.csv", "text\nsep=;\n")) == ["sep=;"]
    assert texts(write(tmp_path, "e.csv", "text,sep=;\na,b\n")) == ["a"]


def test_F70_missing_column_has_near_names(tmp_path: Path) -> None:
    error = refusal(DataError, write(tmp_path, "a.csv", "id,Text\n1,a\n"))
    assert "'Text'" in error.do


def test_F70_long_fields(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,text\n1,%s\n2,b\n" % ("x" * 300_000))
    assert [len(t) for t in texts(path)] == [300_000, 1]
    path = write(tmp_path, "b.csv", 'id,text\n1,"%s"\n2,b\n' % ("xxxxxxx\n" * 1000))
    error = refusal(DataError, path, max_line_bytes=4000)
    assert error.where == f"{path}, line 2"
    assert "4,000 characters" in error.found and "max_line_bytes" in error.wanted


def test_F70_a_row_without_end_is_bounded(tmp_path: Path) -> None:
    path = write(
        tmp_path, "a.csv", "id,text\n0,a\n" + '1,"b\n",' + '"c\n",' * 1_000_000 + "\n7,d\n"
    )
    error = refusal(DataError, path, max_document_characters=1_000_000)
    assert error.where == f"{path}, line 3"
    assert "1,000,000 characters" in error.found
    reader = Reader(
        path, ReadingOptions(on_bad="skip", max_bad_fraction=1, max_document_characters=1_000_000)
    )
    assert next(iter(reader)).text == "a"


def test_F70_numbers_stay_exact_after_bad_lines_and_long_fields(tmp_path: Path) -> None:
    """Against a slow reference: rows of several lines, with lines that are not UTF-8 between."""
    random.seed(11)
    rows, wanted, number = [b"id,text\n"], [], 2
    for _ in range(50_000):
        kind = random.random()
        if kind < 0.02:
            rows.append(b"1,bad\xff\n")
            number += 1
        elif kind < 0.2:
            more = random.randrange(1, 40)
            wanted.append(number)
            rows.append(b'1,"' + b"line\n" * more + b'end"\n')
            number += more + 1
        else:
            wanted.append(number)
            rows.append(b"1,plain\n")
            number += 1
    path = write(tmp_path, "a.csv", b"".join(rows))
    assert path.stat().st_size > 1 << 20
    assert lines_of(path, on_bad="skip", max_bad_fraction=0.1) == wanted


# ------------------------------------------------------------------------------ parquet
def test_parquet_faults(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"

    error = refusal(DataError, write(tmp_path, "b.parquet", b"not parquet at all"))
    assert "6e 6f 74 20" in error.found

    parquet.write_table(pyarrow.table({"body": ["x"], "text": [1]}), path)
    refusal(DataError, path)
    assert refusal(DataError, path, column="boby").do.endswith("did you mean 'body'?")
    data = path.read_bytes()
    cut = write(tmp_path, "c.parquet", data[:-4])
    refusal(DataError, cut)
    torn = write(tmp_path, "d.parquet", data[:20] + b"PAR1")
    refusal(DataError, torn, column="body")

    binary = pyarrow.array([b"ok", b"a\xffb", None, b"a\0b", b"ctl\x1b", b"z"])
    column = pyarrow.StringArray.from_buffers(
        len(binary), binary.buffers()[1], binary.buffers()[2], binary.buffers()[0]
    )
    parquet.write_table(pyarrow.table({"text": column}), path)
    error = refusal(DataError, path)
    assert error.where == f"{path}, row 2, byte 1" and "ff" in error.found
    reader = Reader(path, SKIP)
    assert [(d.text, d.id) for d in reader] == [
        ("ok", f"{path}#1"),
        ("ctl", f"{path}#5"),
        ("z", f"{path}#6"),
    ]
    assert reader.counts.rejected_by == {
        "not utf-8": 1,
        "the field is not a text": 1,
        "the text has a NUL character": 1,
    }
    mended = ReadingOptions(
        on_bad="skip", max_bad_fraction=1, on_nul="strip", on_undecodable="replace"
    )
    assert [d.text for d in Reader(path, mended)] == ["ok", "a\ufffdb", "ab", "ctl", "z"]
    refusal(DataError, path, max_document_characters=1)


@pytest.mark.parametrize(("name", "module"), [("a.parquet", "pyarrow"), ("a.txt.zst", "zstandard")])
def test_missing_libraries_are_named(
    tmp_path: Path, name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from maskwright.base.catalogue import install_command

    path = write(tmp_path, name, b"PAR1PAR1" if module == "pyarrow" else b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        documents(path)
    assert caught.value.do == install_command(module)


def test_a_damaged_table_is_refused_also_where_bad_rows_are_skipped(tmp_path: Path) -> None:
    """What cannot be read on is no bad row: the rest of the file would be gone without a word."""
    rows = b"text,n\n" + b"".join(b"some words %d,%d\n" % (n, n) for n in range(20_000))
    whole = gzip.compress(rows)
    (tmp_path / "a.csv.gz").write_bytes(whole[: len(whole) * 3 // 4])
    error = refusal(DataError, tmp_path / "a.csv.gz", on_bad="skip", max_bad_fraction=1)
    assert "cut off" in error.what
    (tmp_path / "a.csv.gz").write_bytes(whole)  # the control
    assert len(list(Reader(tmp_path / "a.csv.gz"))) == 20_000


def test_a_row_of_which_a_line_is_bad_is_dropped_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'text,n\n"one\n\xff two\nthree",x\nfour,y\n"five\nsix",z\n')
    reader = Reader(path, ReadingOptions(on_bad="skip", max_bad_fraction=1))
    assert [document.text for document in reader] == ["four", "five\nsix"]
    assert reader.counts.rejected_by == {"not utf-8": 1, "a line of the row was left out": 1}
    # A bad first line names the columns: the next must not be taken for it.
    path.write_bytes(b"te\xffxt,n\nfirst row,1\nsecond,2\n")
    error = refusal(DataError, path, on_bad="skip", max_bad_fraction=1)
    assert "line 2" in error.found


def test_documents_longer_than_the_limit_are_bad_rows_in_every_form(tmp_path: Path) -> None:
    for name, text in (
        ("a.jsonl", '{"text": "hello there"}\n{"text": "ok"}\n'),
        ("a.csv", "text,n\nhello there,1\nok,2\n"),
        ("a.txt", "hello there\nok\n"),
    ):
        (tmp_path / name).write_text(text)
        reading = ReadingOptions(
            on_bad="skip", max_bad_fraction=1, max_document_characters=10, form="line"
        )
        reader = Reader(tmp_path / name, reading)
        assert [document.text for document in reader] == ["ok"], name
        assert reader.counts.rejected == 1


def test_a_json_file_of_rows_has_its_faults_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"text": "hello",}\n{"text": "b"}\n')
    error = refusal(DataError, path)
    assert error.where.startswith(f"{path}, line 1") and "one value" not in error.what
    for value in ('[{"text": "a"}]', '{\n "text": "a"\n}'):
        path.write_text(value)
        assert "one value" in refusal(DataError, path).what


def test_an_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(UsageError, match="empty path"):
        Reader("")


# ------------------------------------------------------------------------------ lone quotes
def _table(columns: str, separator: str = ",") -> list[str]:
    """The lines of a table with these columns of so many rows, the text in "t"."""
    cells = {"t": "the house {n} by the lake", "l": "{label}", "i": "{n}", "s": "and a village {n}"}
    made = [separator.join({"t": "text", "l": "label", "i": "id", "s": "more"}[c] for c in columns)]
    for n in range(30):
        row = separator.join(cells[c] for c in columns)
        made.append(row.format(n=n, label=("good", "bad")[n % 2]))
    return made


@pytest.mark.parametrize("columns", ["tl", "lt", "itl", "ilt", "it", "ti", "ts"])
@pytest.mark.parametrize("pair", [(1, 4), (5, 15), (5, 6), (26, 30)])
def test_a_quoted_field_with_what_look_like_rows_is_asked_about(
    columns: str, pair: tuple[int, int], tmp_path: Path
) -> None:
    if columns in ("it", "ti", "ts") and pair == (5, 6):
        pytest.skip("two lines of numbers and texts may be one text")
    for separator, ending in ((",", "csv"), ("\t", "tsv")):
        lines = _table(columns, separator)
        place = columns.index("t")
        for number, (before, behind) in zip(pair, (('"', ""), ("", '"')), strict=True):
            fields = lines[number].split(separator)
            fields[place] = before + fields[place] + behind
            lines[number] = separator.join(fields)
        path = write(tmp_path, f"a.{ending}", "\n".join(lines) + "\n")
        error = refusal(DataError, path)
        assert error.where == f"{path}, line {pair[0] + 1}"
        assert "quoting=False" in str(error.do) and "quoting=True" in str(error.do)
        assert len(texts(path, quoting=False)) == 30, "what is advised works"
        assert len(texts(path, quoting=True)) == 30 - (pair[1] - pair[0])
        reader = Reader(path, SKIP)
        assert len(list(reader)) == 30 - (pair[1] - pair[0]) - 1
        assert reader.counts.rejected == pair[1] - pair[0] + 1, "lines are counted, not rows"


def test_several_pairs_of_lone_quotes(tmp_path: Path) -> None:
    lines = _table("tl")
    for number in (3, 4, 9, 17, 20):
        lines[number] = '"' + lines[number]
    for number in (7, 12):
        lines[number] = lines[number].replace(",", '",')
    path = write(tmp_path, "a.csv", "\n".join(lines) + "\n")
    error = refusal(DataError, path)
    assert "quote" in error.what and "quoting=False" in str(error.do)
    assert len(texts(path, quoting=False)) == 30


@pytest.mark.parametrize(
    "cell",
    [
        "one line\nand one more",
        "I liked it, really.\nThe end, not so much.\n\nBut go, and see it.",
        "good, bad\nand ugly",
        "a letter:\nDear Ann,\nall is well,\nyours, Bob",
        "a list\n1, one\n2, two",
        "\n".join(f"line {n}, and so on" for n in range(9)),
    ],
)
@pytest.mark.parametrize("columns", ["tl", "lt", "itl", "ilt", "t"])
def test_texts_of_several_lines_are_texts(cell: str, columns: str, tmp_path: Path) -> None:
    """The control of those above."""
    lines = _table(columns)
    for number in (2, 11, 30):
        fields = lines[number].split(",")
        fields[columns.index("t")] = f'"{cell}"'
        lines[number] = ",".join(fields)
    reader = Reader(write(tmp_path, "a.csv", "\n".join(lines) + "\n"))
    found = [document.text for document in reader]
    assert len(found) == 30 and found[1] == found[10] == found[29] == cell
    (note,) = list(map(str, reader.counts.findings))
    assert note.startswith("3 rows of several lines each") and "lines 3 to" in note


# ------------------------------------------------------------------------------ backslashes
ESCAPED = {
    '"she said \\"no\\", then left",bad': 'she said "no", then left',
    "the house\\, by the lake,bad": "the house, by the lake",
    '"two\\nlines \\"so\\"",bad': 'two\nlines "so"',
    "two\\\nlines,bad": "two\nlines",
    '"C:\\\\new\\\\\\"x\\"",bad': 'C:\\new\\"x"',
    '"ends with \\"",bad': 'ends with "',
}


@pytest.mark.parametrize("row", ESCAPED)
def test_backslashes_before_quotes_and_separators_are_read_if_it_is_said(
    row: str, tmp_path: Path
) -> None:
    path = write(tmp_path, "a.csv", "text,label\n" + f"{row}\n" * 3 + "plain,good\n")
    error = refusal(DataError, path)
    assert "escapechar='\\\\'" in str(error.do), "as Python and a shell both take it"
    for said in ("\\", "\\\\", "backslash"):
        assert texts(path, escapechar=said) == [ESCAPED[row]] * 3 + ["plain"]
    # The controls: a backslash that stands for itself, and quotes that are doubled.
    good = write(tmp_path, "b.csv", 'text,label\n"C:\\dir, ""x""",bad\n\\alpha,good\n')
    assert texts(good) == ['C:\\dir, "x"', "\\alpha"]
    assert texts(good, escapechar="^")[0] == 'C:\\dir, "x"', "doubled quotes stay quotes"


@pytest.mark.parametrize("said", ["", "ab", '"', "\n", ","])
def test_what_is_no_escape_character(said: str) -> None:
    with pytest.raises(ConfigError):
        ReadingOptions(escapechar=said, separator=",")


# ------------------------------------------------------------------------------ CR alone
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.csv.gz"])
def test_lines_that_end_in_cr_alone(name: str, tmp_path: Path) -> None:
    rows = {
        "csv": ["text,label", *(f"house {n},x" for n in range(9))],
        "tsv": ["text\tlabel", *(f"house {n}\tx" for n in range(9))],
        "jsonl": [json.dumps({"text": f"house {n}"}) for n in range(9)],
        "txt": [f"house {n}\r" for n in range(9)],
    }
    lines = rows[name.split(".")[1]]
    content = ("\r".join(lines) + "\r").encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    reader = Reader(path)
    wanted = [f"house {n}" for n in range(9)]
    assert [document.text for document in reader] == wanted
    assert list(map(str, reader.counts.findings)) == [f"lines end in CR alone (line_ends): {path}"]
    # Where both are there it is asked about, or in plain text told.
    mixed = tmp_path / f"mixed-{name.removesuffix('.gz')}"
    mixed.write_bytes(content.replace(b"\r", b"\n", 4))
    if name == "a.txt":
        reader = Reader(mixed)
        assert len(list(reader)) < 9 and "line_ends='any'" in next(map(str, reader.counts.findings))
    else:
        error = refusal(DataError, mixed)
        assert "line_ends='any'" in str(error.do)
    assert texts(mixed, line_ends="any") == wanted, "what is advised works"
    # The control: lines that end in CRLF, and CR within a quoted field.
    crlf = write(tmp_path, f"crlf-{name.removesuffix('.gz')}", content.replace(b"\r", b"\r\n"))
    reader = Reader(crlf)
    assert len(list(reader)) == 9 and list(map(str, reader.counts.findings)) == []
    assert texts(write(tmp_path, "q.csv", 'text\n"a\rb"\n')) == ["a\rb"]


def test_cr_at_the_border_of_what_is_looked_at(tmp_path: Path) -> None:
    text = "a" * (1 << 16) + "\r\nb\r\n"
    for cut in (0, 1, 2):
        path = write(tmp_path, f"{cut}.txt", text[cut:])
        reader = Reader(path, ReadingOptions(form="line"))
        assert [d.text[-1] for d in reader] == ["a", "b"] and list(
            map(str, reader.counts.findings)
        ) == []
