"""Labelled files of every kind become the same rows, each with its place; bad files are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, sentence, sizes, write, write_parquet, write_rows
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.files import load
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.rows import Table

ROWS = [{"text": sentence(n), "label": n % 2} for n in range(6)]
SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=1.0)


def values(table: Table, part: str = "all") -> list[tuple[str, str]]:
    return [(row.values["text"], str(row.values["label"])) for row in table.parts[part]]


EXPECTED = [(str(row["text"]), str(row["label"])) for row in ROWS]


@pytest.mark.parametrize(
    ("name", "unit", "first"),
    [
        ("a.csv", "line", 2),
        ("a.csv.zst", "line", 2),
        ("a.tsv", "line", 2),
        ("a.jsonl", "line", 1),
        ("a.jsonl.gz", "line", 1),
        ("lines.json", "line", 1),
        ("a.json", "item", 1),
        ("a.parquet", "row", 1),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str, unit: str, first: int) -> None:
    path = tmp_path / name
    lines = "\n".join(["text,label", *(f"{row['text']},{row['label']}" for row in ROWS)])
    if name == "a.csv.zst":
        zstandard = pytest.importorskip("zstandard")
        path.write_bytes(zstandard.compress(lines.encode()))
    elif unit == "line" and first == 2:
        write(path, lines.replace(",", "\t") if name == "a.tsv" else lines)
    elif name == "a.json":
        write(path, json.dumps(ROWS, indent=1))
    elif name == "a.parquet":
        write_parquet(path, ROWS)
    else:
        write_rows(path, ROWS)
    table = load(path)
    assert values(table) == EXPECTED
    assert [row.number for row in table.parts["all"]] == list(range(first, first + 6))
    assert table.first[0].where == f"{path}, {unit} {first}"
    assert table.counts["all"].documents == 6 and len(table.counts["all"].hashes) == 1


def test_lines_are_those_of_the_file_after_a_field_of_several_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one\ntwo",pos\nthree,neg\n')
    assert [row.number for row in load(path).parts["all"]] == [2, 4]


def test_a_folder_knows_its_parts_and_its_names(tmp_path: Path) -> None:
    for name in ("train-00", "train-01", "dev", "test"):
        write_rows(tmp_path / f"{name}.jsonl.gz", ROWS if "train" in name else ROWS[:2])
    write(tmp_path / "labels.json", '["bad", "good"]')
    write(tmp_path / "languages.json", '{"en": "English"}')
    table = load(tmp_path)
    assert sizes(table) == {"train": 12, "validation": 2, "test": 2}
    assert table.names == {"label": {0: "bad", 1: "good"}}
    assert table.columns == ["text", "label"]


def test_parts_by_folder(tmp_path: Path) -> None:
    root = tmp_path / "set"
    for part in ("training", "val"):
        write_rows(root / part / "part.jsonl", ROWS)
    table = load(root)
    assert list(table.parts) == ["train", "validation"]
    assert values(table, "train") == EXPECTED


def test_a_folder_without_parts_is_one_table(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        write_rows(tmp_path / f"{name}.jsonl", ROWS[:3])
    assert sizes(load(tmp_path)) == {"all": 6}


def test_names_that_a_parquet_file_notes(tmp_path: Path) -> None:
    named = {"names": ["bad", "good"], "_type": "ClassLabel"}
    listed = {"feature": named, "_type": "List"}
    noted = {"info": {"features": {"label": named, "tags": listed, "text": {"dtype": "string"}}}}
    write_parquet(tmp_path / "a.parquet", ROWS, {"huggingface": json.dumps(noted)})
    names = {0: "bad", 1: "good"}
    assert load(tmp_path / "a.parquet").names == {"label": names, "tags": names}


def test_a_csv_without_a_header_is_named_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"1,{sentence(1)}\n0,{sentence(2)}\n")
    error = refusal(DataError, lambda: load(path))
    assert error.where == f"{path}, line 1" and "--read header=" in str(error.do)
    table = load(path, header=("label", "text"))
    assert values(table) == [(sentence(1), "1"), (sentence(2), "0")]
    error = refusal(UsageError, lambda: load(path, header=("label",)))
    assert "1 names for 2 columns" in str(error.found)


def test_a_value_on_one_line_may_be_longer_than_a_line_of_text(tmp_path: Path) -> None:
    paragraph = {"context": "Ada came.", "qas": [{"id": "q1", "question": "Who?", "answers": []}]}
    path = write(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    (row,) = load(path, reading=ReadingOptions(max_line_bytes=20)).first
    assert row.values["context"] == "Ada came." and row.where == f"{path}, item 1"


def test_columns_of_words_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "-DOCSTART- -X- O\n\nKalomi NNP B-PER\nsat VBD O\r\n\n\nTion NNP B-LOC"
    one, two = load(write(tmp_path / "a.conll", text)).first
    tags = {"tags": ["B-PER", "O"], "column 2": ["NNP", "VBD"]}
    assert one.values == {"tokens": ["Kalomi", "sat"], **tags}
    assert two.values == {"tokens": ["Tion"], "tags": ["B-LOC"], "column 2": ["NNP"]}
    assert one.where.endswith("a.conll, line 3") and two.where.endswith("line 7")
    (bare,) = load(write(tmp_path / "b.conll", "New\nYork\n")).first
    assert bare.values == {"tokens": ["New", "York"]}
    # Files are read in blocks, and the last line may lack its end.
    monkeypatch.setattr("maskwright.text.corpus.files.STEP", 1000)
    rows = load(write(tmp_path / "long.conll", "a O\nb O\nc O\n\n" * 2000 + "x O\ny O")).first
    assert {len(row.values["tokens"]) for row in rows[:-1]} == {3}
    assert rows[-1].values["tokens"] == ["x", "y"] and len(rows) == 2001


# ------------------------------------------------------------------------------ refusals


def test_one_list_has_the_rejects_of_all_parts(tmp_path: Path) -> None:
    for part in ("train", "dev"):
        write(tmp_path / f"{part}.jsonl", '{"text": "a", "label": 1}\nnonsense\n')
    load(tmp_path, reading=SKIP, rejects=tmp_path / "out" / "rejects.jsonl")
    (listed,) = (tmp_path / "out").iterdir()
    files = [json.loads(line)["file"] for line in listed.read_text().splitlines()]
    assert listed.name == "rejects.jsonl"
    assert files == [str(tmp_path / "train.jsonl"), str(tmp_path / "dev.jsonl")]


def test_F58_nothing_to_read_is_said(tmp_path: Path) -> None:
    for name, text in (("a.csv", "text,label\n"), ("a.jsonl", ""), ("a.jsonl", "\n\n")):
        path = write(tmp_path / name, text)
        error = refusal(DataError, lambda path=path: load(path))
        assert "a." in str(error.where)


def test_what_is_not_clear_about_the_paths(tmp_path: Path) -> None:
    write_rows(tmp_path / "a" / "train.jsonl", ROWS)
    with pytest.raises(UsageError) as missing:
        load(tmp_path / "a" / "tran.jsonl")
    assert "'train.jsonl'" in str(missing.value.wanted)
    write(tmp_path / "b" / "text.txt", "only text\n")
    write(tmp_path / "a" / "train.csv", "text,label\na,1\n")
    for name in ("c/dev", "c/test", "d/train_dev", "d/x"):
        write_rows(tmp_path / f"{name}.jsonl", ROWS)
    for name in ("a", "b/text.txt", "c", "d"):
        refusal(UsageError, lambda name=name: load(tmp_path / name))


def test_F74_parts_with_other_columns(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", ROWS)
    write_rows(tmp_path / "dev.jsonl", [{"satz": "ein", "klasse": 1}])
    error = refusal(DataError, lambda: load(tmp_path))
    assert error.found == "validation: klasse, satz" and error.wanted == "text, label"


def test_two_tables_of_one_part_have_the_same_columns(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "text,label\none,1\n")
    write(tmp_path / "test.csv", "id,text\n1,one\n")
    write(tmp_path / "test_labels.csv", "id,label\n1,0\n")
    error = refusal(DataError, lambda: load(tmp_path))
    assert "test_labels.csv" in str(error.where) and "test.csv" in str(error.wanted)


def test_a_comma_in_the_header_of_tabs_hides_no_separator(tmp_path: Path) -> None:
    rows = "main\t2012\t5.0\tA man, a plan.\tA plan.\n" * 5
    error = refusal(DataError, lambda: load(write(tmp_path / "sts.csv", rows)))
    assert "--read separator=" in str(error.do)
    # The control: other signs stand in many a text.
    some = write(tmp_path / "b.csv", "3,one; two; three | four | five\n4,six\n")
    assert len(load(some, header=["label", "text"]).parts["all"]) == 2


def test_rows_that_an_annotator_rejected_are_left_out(tmp_path: Path) -> None:
    said = ("accept", "reject", "ignore")
    rows = [{"text": sentence(n), "label": "ab"[n % 2], "answer": said[n % 3]} for n in range(30)]
    table = load(write_rows(tmp_path / "a.jsonl", rows))
    assert len(table.first) == 10
    assert [finding.name for finding in table.counts["all"].findings] == ["not-accepted"]
    rows[0]["answer"] = "yes"  # a column of another kind
    assert len(load(write_rows(tmp_path / "b.jsonl", rows)).first) == 30


# ------------------------------------------------------------------------------ formats × bad rows
QUESTION = {"id": "{n}", "question": "who?", "answers": [{"text": "Ann", "answer_start": 0}]}
SQUAD = json.dumps({"context": "Ann {n}", "qas": [QUESTION]})
# What a file begins with, a good row (with {n} in it), what stands between two, what it ends with;
# then bad rows.
FORMATS: dict[str, tuple[str, str, str, str, list[str]]] = {
    "a.csv": ("text,label\n", "a{n},x", "\n", "\n", ["a", "a,b,c", '"a" b,x', '"a']),
    "a.tsv": ("text\tlabel\n", "a{n}\tx", "\n", "\n", ["a", "a\tb\tc", '"a\tx\nb"\tx']),
    "a.jsonl": (
        "",
        '{"text": "a{n}", "label": "x"}',
        "\n",
        "\n",
        ["{", "[]", "3", '{"text": NaN}', '{"text": "\\ud800"}', '{"a": 1, "a": 2}'],
    ),
    "a.json": (
        "[",
        '{"text": "a{n}", "label": "x"}',
        ", ",
        "]",
        ["[]", "3", "null", '"a"', '{"text": "\\ud800"}', '{"text": "\\u0000"}'],
    ),
    "lines.json": ('{"data": [', '{"text": "a{n}", "label": "x"}', ",\n", "]}", ["3", "[1]"]),
    "squad.json": (
        '{"data": [{"title": "t", "paragraphs": [',
        SQUAD,
        ", ",
        "]}]}",
        [
            *("3", "{}", '{"context": "a"}', '{"qas": []}', SQUAD.replace("{n}", "1")),
            '{"context": 3, "qas": []}',
            '{"context": "a", "qas": 3}',
            '{"context": "a", "qas": [3]}',
            '{"context": "a", "qas": [{"id": "x"}]}',
            '{"context": "a", "qas": [{"id": "x", "question": "q", "answers": 3}]}',
        ],
    ),
    "articles.json": (
        '{"data": [',
        '{"paragraphs": [' + SQUAD + "]}",
        ", ",
        "]}",
        ["3", "{}", '{"paragraphs": 3}', '{"paragraphs": [3]}'],
    ),
    "a.conll": (
        "",
        "a{n} O\nb B-X",
        "\n\n",
        "\n",
        ["a", "a O\nb", " O\nb O", "a O\n\t O", "a O\nb O x", "a O\rb O"],
    ),
    "a.bio": ("", "a{n}\tO\nb\tB-X", "\n\n", "\n", ["a\tO\nb", "\tO\nb\tO"]),
    "a.conllu": (
        "# text = a\n",
        "1\ta{n}\t_\tX\t_\t_\t0\troot\t_\t_",
        "\n\n",
        "\n\n",
        ["1\ta", "1\t \t_\tX\t_\t_\t0\troot\t_\t_", "a"],
    ),
    "words.csv": ("sentence,word,tag\n", "{n},a,O", "\n", "\n", ["7, ,O", "7,a", "7,a,O,O"]),
    "a.txt": ("", "__label__x a{n}", "\n", "\n", ["a", "a __label__x"]),
}


@pytest.mark.parametrize(
    ("name", "bad"), [(name, bad) for name, each in FORMATS.items() for bad in each[-1]]
)
def test_F77_a_bad_row_stops_or_is_left_out_in_every_format(
    name: str, bad: str, tmp_path: Path
) -> None:
    begin, good, between, end, _ = FORMATS[name]
    path = tmp_path / name
    place, count = (5, 9) if bad != '"a' else (8, 8)  # an open quote takes all that follows
    rows = [good.replace("{n}", str(n)) for n in range(9)]
    line = (begin + between.join([*rows[:place], ""])).count("\n") + 1
    rows.insert(place, bad)
    write(path, begin + between.join(rows) + end)
    error = refusal(DataError, lambda: load(path))
    assert str(error.where).startswith(str(path)) and error.found and error.wanted
    assert "on_bad" in str(error.do)
    rejects = tmp_path / "rejects.jsonl"
    made = load(path, reading=SKIP, rejects=rejects)
    assert len(made.parts["all"]) == count, [row.values for row in made.parts["all"]]
    (listed,) = map(json.loads, rejects.read_text().splitlines())
    assert listed["file"] == str(path) and listed["reason"] == error.what
    assert listed["line"] == (line if not name.endswith("json") else 6)
    assert made.counts["all"].rejected >= 1
    # The control: nothing is left out of good rows.
    del rows[place]
    write(path, begin + between.join(rows) + end)
    made = load(path, reading=SKIP, rejects=rejects)
    assert len(made.parts["all"]) == 9 and made.counts["all"].rejected == 0


def test_few_bad_rows_of_one_long_line_are_few(tmp_path: Path) -> None:
    """The share of bad rows is one of the rows, however many of them stand on a line."""
    rows = [json.dumps(row) for row in ROWS * 50]
    few = write(tmp_path / "few.json", f"[{', '.join([*rows[:7], '3', *rows[7:]])}]")
    many = write(tmp_path / "many.json", f"[{', '.join([*rows[:7], *'3456789'])}]")
    skip = ReadingOptions(on_bad="skip")
    assert len(load(few, reading=skip).first) == 300
    assert "7 of 14 rows" in str(refusal(DataError, lambda: load(many, reading=skip)).found)


# ------------------------------------------------------------------------------ parquet
def _odd_columns() -> dict[str, Any]:
    pyarrow = pytest.importorskip("pyarrow")
    big = [253402300800000] * 12  # the year 10000
    whole = range(12)
    stamps = pyarrow.array([1700000000123456789] * 12, pyarrow.timestamp("ns"))
    texts = [b"\xff\xfe", *[b"a"] * 11]
    return {
        "nanoseconds": stamps,
        "durations": pyarrow.array(whole, pyarrow.duration("ns")),
        "odd durations": pyarrow.array([2**62] * 12, pyarrow.duration("s")),
        "zone": pyarrow.array([0] * 12, pyarrow.timestamp("ms", "Mars/Olympus")),
        "later": pyarrow.array(big, pyarrow.timestamp("ms")),
        "earlier": pyarrow.array([-62167219200001] * 12, pyarrow.timestamp("ms")),
        "one of them": pyarrow.array([0] * 11 + big[:1], pyarrow.timestamp("ms")),
        "dates": pyarrow.array([2**31 - 1] * 12, pyarrow.date32()),
        "times": pyarrow.array([123456789] * 12, pyarrow.time64("ns")),
        "decimals": pyarrow.array(whole).cast(pyarrow.decimal128(30, 2)),
        "bytes": pyarrow.array(texts, pyarrow.binary()),
        "texts": pyarrow.array(texts, pyarrow.binary()).view(pyarrow.string()),
        "in a struct": pyarrow.StructArray.from_arrays([stamps, pyarrow.array(whole)], ["a", "b"]),
        "in a list": pyarrow.ListArray.from_arrays(range(13), stamps),
        "in a dictionary": pyarrow.DictionaryArray.from_arrays([0] * 12, stamps[:1]),
        "maps": pyarrow.array([[("a", 1)]] * 12, pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    }


def _parquet(path: Path, columns: dict[str, Any]) -> Path:
    pyarrow, parquet = (pytest.importorskip(n) for n in ("pyarrow", "pyarrow.parquet"))
    texts = [f"the house {n} by the lake" for n in range(12)]
    labels = ["good", "bad"] * 6
    parquet.write_table(pyarrow.table({"text": texts, "label": labels, **columns}), path)
    return path


def test_a_parquet_column_that_nobody_reads_may_hold_anything(tmp_path: Path) -> None:
    odd = _odd_columns()
    made = prepare(_parquet(tmp_path / "a.parquet", odd))
    assert made.task.name == "classification" and sum(sizes(made).values()) == 12
    for name, column in odd.items():
        path = _parquet(tmp_path / "b.parquet", {name: column})
        assert prepare(path).task.columns["text"] == "text"
        for role in ("label", "text"):
            columns = {role: name}
            refusal(DataError, lambda path=path, columns=columns: prepare(path, columns=columns))
    plain = prepare(_parquet(tmp_path / "c.parquet", {}))
    assert plain.parts == {
        part: [replace(row, where=row.where.replace("a.parquet", "c.parquet")) for row in rows]
        for part, rows in made.parts.items()
    }
