"""Fault catalogue D, rows of JSON Lines, CSV and parquet: file, line, what, and the policies."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.files_at_hand import SKIP, documents, lines_of, refusal, texts, write
from maskwright.base.catalogue import install_command
from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.strict_json import MAX_DEPTH
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions

GOOD = '{"text": "good"}'

# The damaged row, what is said, and a part of what was found. (More of JSON alone:
# storage/test_strict_json.py.)
DAMAGE = [
    ("{", "not JSON", "the end"),
    ("{}", "the field is missing", "no columns"),
    ("[]", "the row is not an object", "an array"),
    ('"text"', "the row is not an object", "a text"),
    ("text: good", "not JSON", "text"),
    ('{"text": "a\tb"}', "not JSON", "control character"),
    ('{"text": 1}', "the field is not a text", "a number"),
    ('{"text": null}', "the field is not a text", "null"),
    ('{"text": {"a": "b"}}', "the field is not a text", "an object"),
    ('{"texts": "a", "body": "b"}', "the field is missing", "body, texts"),
    ("# comment", "not JSON", "# comment"),
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


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", '{"txt": "a", "id": 1}'), ("a.csv", "id,txt\n1,a\n")]
)
def test_F68_F70_near_names_of_the_field(tmp_path: Path, name: str, content: str) -> None:
    assert "'txt'" in refusal(DataError, write(tmp_path, name, content)).do


@pytest.mark.parametrize(
    "data", ['[{"text": "a"},\n{"text": "b"}]', "[]", '{\n"text": "a"\n}', "[1,2]"]
)
def test_F68_one_large_value_is_refused_with_the_command(tmp_path: Path, data: str) -> None:
    error = refusal(DataError, write(tmp_path, "a.json", data))
    assert "one value" in error.what
    assert ("jq -c '.[]'" if data.startswith("[") else "jq -c '.'") in error.do


def test_a_json_file_of_rows_has_its_faults_told_as_such(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{"text": "é", "n": 1,}\n{"text": "b"}\n')
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 1, column 22" and "one value" not in error.what


@pytest.mark.parametrize(
    "data", ['{\n  "text": "a"\n}\n{\n  "text": "b"\n}\n', '[\n{"text": "a"}\n]']
)
def test_rows_over_several_lines_are_refused_with_the_command(tmp_path: Path, data: str) -> None:
    error = refusal(DataError, write(tmp_path, "a.jsonl", data))
    command = error.do.partition(": ")[2].replace("FILE", "a.jsonl")
    if shutil.which("jq"):
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)
        assert texts(tmp_path / "LINES.jsonl") == ["a", "b"][: data.count("text")]


@given(st.binary(max_size=60))
def test_F68_any_row_is_a_document_or_a_reject(
    tmp_path_factory: pytest.TempPathFactory, row: bytes
) -> None:
    data = b"\n".join([GOOD.encode(), row.replace(b"\n", b""), GOOD.encode()])
    path = write(tmp_path_factory.mktemp("f68"), "a.jsonl", data)
    reader = Reader(path, replace(SKIP, on_nul="strip"))
    try:
        lines = [int(d.id.rpartition(":")[2]) for d in reader]
    except DataError as error:
        assert error.what in ("not a text file", "the file has another encoding")
        return
    assert lines[0] == 1 and lines[-1] == 3
    assert len(lines) + reader.counts.rejected + reader.counts.blank == 3


# ------------------------------------------------------------------------------ F69 traps of JSON
def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


TRAPS = [
    ('{"text": "a", "x": ' + nested(MAX_DEPTH) + "}", "JSON nested too deeply", "64 levels"),
    ('{"text": "a", "x": -%s}' % ("9" * 5000), "a number out of range", "thousands of digits"),
    ('{"text": "a", "x": NaN}', "a number that JSON does not have", "NaN"),
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


# ------------------------------------------------------------------------------ F70 traps of CSV
def test_F70_unclosed_quote(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'id,text\n1,"two\nlines"\n2,"never\n3,c\n4,d\n')
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 4" and "quoting=False" in error.do
    reader = Reader(path, SKIP, tmp_path / "rejects.jsonl")
    assert [d.id for d in reader] == [f"{path}:2"]
    assert reader.counts.rejected == 3  # every row that the quote swallowed
    (listed,) = map(json.loads, (tmp_path / "rejects.jsonl").read_text().splitlines())
    assert (listed["line"], listed["last_line"]) == (4, 6)


@pytest.mark.parametrize(("row", "what"), [("5", "few"), ("5,a,b", "many"), ("5,a,", "many")])
def test_F70_short_and_long_rows(tmp_path: Path, row: str, what: str) -> None:
    path = write(tmp_path, "a.csv", f'id,text\n1,"x\ny\nz"\n\n{row}\n6,b\n')
    error = refusal(DataError, path)
    assert error.what == f"the row has too {what} fields"
    assert error.where == f"{path}, line 6"  # after a field of three lines and a blank one
    assert error.found.startswith(f"{row.count(',') + 1} field") and "2 fields" in error.wanted
    reader = Reader(path, SKIP)
    assert [d.id for d in reader] == [f"{path}:2", f"{path}:7"]
    assert reader.counts.rejected_by == {error.what: 1} and reader.counts.blank == 1


@pytest.mark.parametrize(
    ("content", "line", "remedy", "left"),
    [
        ('id,text\n1,a\n2,"b"c\n3,d\n', 3, {"on_bad": "skip", "max_bad_fraction": 1}, [2, 4]),
        ("id,text\n1,a\rb\n3,d\n", 2, {"on_bad": "skip", "max_bad_fraction": 1}, [3]),
        ("id;text\n1;a\n", 1, {"separator": ";"}, [2]),
        ("\n\nid,text,text\n1,a,b\n", 3, {"column": "id"}, None),  # a name twice
    ],
    ids=["a quote in the middle", "CR in an open field", "another separator", "a name twice"],
)
def test_F70_faults_of_csv_and_their_remedies(
    tmp_path: Path, content: str, line: int, remedy: dict[str, object], left: list[int] | None
) -> None:
    path = write(tmp_path, "a.csv", content)
    assert refusal(DataError, path).where == f"{path}, line {line}"
    if left is not None:
        assert lines_of(path, **remedy) == left


def test_quotes_that_swallow_rows_of_tabs_are_refused(tmp_path: Path) -> None:
    rows = '" the film is old .\t1\nthe actor\t0\nthe film is new "\t1\nso what\t1\n'
    path = write(tmp_path, "a.tsv", "text\tlabel\n" + rows)
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 2" and "3 lines from" in error.found
    assert "quoting=False" in error.do and len(texts(path, quoting=False)) == 4
    # The controls: tabs alone, ends of lines alone, and a csv.
    for number, good in enumerate(('"a\tb"\t1\n', '"a\nb"\t1\n')):
        assert len(texts(write(tmp_path, f"{number}.tsv", "text\tlabel\n" + good))) == 1
    assert len(texts(write(tmp_path, "c.csv", 'text,label\n"a\tb\nc",1\n'))) == 1


def test_the_first_line_may_say_the_separator(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "sep=;\r\nid;text\r\n1;a,b\r\n2;c\r\n")
    note = "columns separated by ';', as a first line sep= says"
    for separator, notes in ((None, [note]), (";", [])):
        reader = Reader(path, ReadingOptions(separator=separator))
        assert [d.text for d in reader] == ["a,b", "c"]
        assert list(map(str, reader.counts.findings)) == notes
    assert texts(write(tmp_path, "b.csv", '"sep=\t"\ntext\tid\na\t1\n')) == ["a"]
    error = refusal(DataError, write(tmp_path, "c.csv", "sep=;\nid;text\n1;a\n2\n"))
    assert error.where.endswith("c.csv, line 4")
    # Only the first line, and only when it says nothing else.
    assert texts(write(tmp_path, "d.csv", "text\nsep=;\n")) == ["sep=;"]
    assert texts(write(tmp_path, "e.csv", "text,sep=;\na,b\n")) == ["a"]


def test_F70_long_fields(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "id,text\n1,%s\n2,b\n" % ("x" * 300_000))
    assert [len(t) for t in texts(path)] == [300_000, 1]
    path = write(tmp_path, "b.csv", 'id,text\n1,"%s"\n2,b\n' % ("xxxxxxx\n" * 1000))
    error = refusal(DataError, path, max_line_bytes=4000)
    assert error.where == f"{path}, line 2"
    assert "4,000 characters" in error.found and "max_line_bytes" in error.wanted


def test_F70_a_row_without_end_is_bounded(tmp_path: Path) -> None:
    rows = '0,a\n1,"b\n",' + '"c\n",' * 1_000_000 + "\n7,d\n"
    path = write(tmp_path, "a.csv", "id,text\n" + rows)
    limit = {"max_document_characters": 1_000_000}
    error = refusal(DataError, path, **limit)
    assert error.where == f"{path}, line 3" and "1,000,000 characters" in error.found
    reader = Reader(path, replace(SKIP, **limit))
    assert next(iter(reader)).text == "a"


def test_F70_numbers_stay_exact_after_bad_lines_and_long_fields(tmp_path: Path) -> None:
    """Against a slow reference: rows of several lines, with lines that are not UTF-8 between."""
    random.seed(11)
    rows, wanted, number = [b"id,text\n"], [], 2
    while number < 220_000:
        more = random.choice((0, 0, 0, random.randrange(1, 40)))
        if random.random() < 0.02:
            rows.append(b"1,bad\xff\n")
            number += 1
        else:
            wanted.append(number)
            rows.append(b'1,"' + b"line\n" * more + b'end"\n')
            number += more + 1
    path = write(tmp_path, "a.csv", b"".join(rows))
    assert path.stat().st_size > 1 << 20
    assert lines_of(path, on_bad="skip", max_bad_fraction=0.1) == wanted


# ------------------------------------------------------------------------------ parquet
def test_parquet_faults(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = write(tmp_path, "a.parquet", b"not parquet at all")
    assert "6e 6f 74 20" in refusal(DataError, path).found
    parquet.write_table(pyarrow.table({"body": ["x"], "text": [1]}), path)
    refusal(DataError, path)
    assert refusal(DataError, path, column="boby").do.endswith("did you mean 'body'?")
    data = path.read_bytes()
    for torn in (data[:-4], data[:20] + b"PAR1"):
        refusal(DataError, write(tmp_path, "torn.parquet", torn), column="body")


def test_parquet_cells_that_are_no_text(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="the extra `data` is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    cells = pyarrow.array([b"ok", b"a\xffb", None, b"a\0b", b"ctl\x1b", b"z"])
    parquet.write_table(pyarrow.table({"text": cells.view(pyarrow.string())}), path)
    error = refusal(DataError, path)
    assert error.where == f"{path}, row 2, byte 1" and "ff" in error.found
    reader = Reader(path, SKIP)
    assert [(d.text, d.id) for d in reader] == [
        ("ok", f"{path}#1"),
        ("ctl", f"{path}#5"),
        ("z", f"{path}#6"),
    ]
    reasons = ["not utf-8", "the field is not a text", "the text has a NUL character"]
    assert reader.counts.rejected_by == dict.fromkeys(reasons, 1)
    mended = Reader(path, replace(SKIP, on_nul="strip", on_undecodable="replace"))
    assert [d.text for d in mended] == ["ok", "a\ufffdb", "ab", "ctl", "z"]
    refusal(DataError, path, max_document_characters=1)


@pytest.mark.parametrize(("name", "module"), [("a.parquet", "pyarrow"), ("a.txt.zst", "zstandard")])
def test_missing_libraries_are_named(
    tmp_path: Path, name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, name, b"PAR1PAR1" if module == "pyarrow" else b"\x28\xb5\x2f\xfd rest")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        documents(path)
    assert caught.value.do == install_command(module)


def test_a_damaged_table_is_refused_also_where_bad_rows_are_skipped(tmp_path: Path) -> None:
    """What cannot be read on is no bad row: the rest of the file would be gone without a word."""
    whole = gzip.compress(b"text,n\n" + b"".join(b"words %d,%d\n" % (n, n) for n in range(2000)))
    path = write(tmp_path, "a.csv.gz", whole[: len(whole) * 3 // 4])
    assert "cut off" in refusal(DataError, path, on_bad="skip", max_bad_fraction=1).what
    assert len(documents(write(tmp_path, "a.csv.gz", whole))) == 2000, "the control"


def test_a_row_of_which_a_line_is_bad_is_dropped_whole(tmp_path: Path) -> None:
    data = b'text,n\n"one\n\xff two\nthree",x\nfour,y\n"five\nsix",z\n'
    reader = Reader(write(tmp_path, "a.csv", data), SKIP)
    assert [document.text for document in reader] == ["four", "five\nsix"]
    assert reader.counts.rejected_by == {"not utf-8": 1, "a line of the row was left out": 1}
    # A bad first line names the columns: the next must not be taken for it.
    path = write(tmp_path, "b.csv", b"te\xffxt,n\nfirst row,1\nsecond,2\n")
    assert "line 2" in refusal(DataError, path, on_bad="skip", max_bad_fraction=1).found


# ------------------------------------------------------------------------------ lone quotes
def _table(columns: str, separator: str = ",") -> list[str]:
    """The lines of a table with these columns of so many rows, the text in "t"."""
    cells = {"t": "the house {n} by the lake", "l": "{label}", "i": "{n}", "s": "and a village {n}"}
    header = separator.join({"t": "text", "l": "label", "i": "id", "s": "more"}[c] for c in columns)
    row = separator.join(cells[c] for c in columns)
    return [header, *(row.format(n=n, label=("good", "bad")[n % 2]) for n in range(30))]


@pytest.mark.parametrize("columns", ["tl", "lt", "itl", "ilt", "it", "ti", "ts"])
@pytest.mark.parametrize("pair", [(1, 4), (5, 15), (5, 6), (26, 30)])
@pytest.mark.parametrize(("separator", "ending"), [(",", "csv"), ("\t", "tsv")])
def test_a_quoted_field_with_what_look_like_rows_is_asked_about(
    columns: str, pair: tuple[int, int], separator: str, ending: str, tmp_path: Path
) -> None:
    if columns in ("it", "ti", "ts") and pair == (5, 6):
        return  # two lines of numbers and texts may be one text
    lines = _table(columns, separator)
    for number, (before, behind) in zip(pair, (('"', ""), ("", '"')), strict=True):
        fields = lines[number].split(separator)
        fields[columns.index("t")] = before + fields[columns.index("t")] + behind
        lines[number] = separator.join(fields)
    path = write(tmp_path, f"a.{ending}", "\n".join(lines) + "\n")
    error = refusal(DataError, path)
    assert error.where == f"{path}, line {pair[0] + 1}"
    assert "quoting=False" in str(error.do) and "quoting=True" in str(error.do)
    swallowed = pair[1] - pair[0]
    assert len(texts(path, quoting=False)) == 30, "what is advised works"
    assert len(texts(path, quoting=True)) == 30 - swallowed
    reader = Reader(path, SKIP)
    assert len(list(reader)) == 30 - swallowed - 1
    assert reader.counts.rejected == swallowed + 1, "lines are counted, not rows"


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
    (note,) = map(str, reader.counts.findings)
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


# ------------------------------------------------------------------------------ CR alone
CR_LINES = {
    "csv": ["text,label", *(f"house {n},x" for n in range(9))],
    "tsv": ["text\tlabel", *(f"house {n}\tx" for n in range(9))],
    "jsonl": [json.dumps({"text": f"house {n}"}) for n in range(9)],
    "txt": [f"house {n}\r" for n in range(9)],
}


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.csv.gz"])
def test_lines_that_end_in_cr_alone(name: str, tmp_path: Path) -> None:
    content = ("\r".join(CR_LINES[name.split(".")[1]]) + "\r").encode()
    path = write(tmp_path, name, gzip.compress(content) if name.endswith("gz") else content)
    reader = Reader(path)
    wanted = [f"house {n}" for n in range(9)]
    assert [document.text for document in reader] == wanted
    assert list(map(str, reader.counts.findings)) == [f"lines end in CR alone (line_ends): {path}"]
    # Where both are there it is asked about, or in plain text told.
    plain = name.removesuffix(".gz")
    mixed = write(tmp_path, f"mixed-{plain}", content.replace(b"\r", b"\n", 4))
    if name == "a.txt":
        reader = Reader(mixed)
        assert len(list(reader)) < 9 and "line_ends='any'" in next(map(str, reader.counts.findings))
    else:
        assert "line_ends='any'" in str(refusal(DataError, mixed).do)
    assert texts(mixed, line_ends="any") == wanted, "what is advised works"
    # The control: lines that end in CRLF.
    reader = Reader(write(tmp_path, f"crlf-{plain}", content.replace(b"\r", b"\r\n")))
    assert len(list(reader)) == 9 and not reader.counts.findings


def test_cr_at_the_border_of_what_is_looked_at(tmp_path: Path) -> None:
    text = "a" * (1 << 16) + "\r\nb\r\n"
    for cut in (0, 1, 2):
        reader = Reader(write(tmp_path, f"{cut}.txt", text[cut:]), ReadingOptions(form="line"))
        assert [d.text[-1] for d in reader] == ["a", "b"] and not reader.counts.findings
    assert texts(write(tmp_path, "q.csv", 'text\n"a\rb"\n')) == ["a\rb"], "CR in a quoted field"
