"""Labelled files of every kind become the same rows, each with its place; bad files are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import refusal, sentence, write, write_parquet, write_rows
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
    "name",
    ["a.csv", "a.tsv", "a.jsonl", "a.jsonl.gz", "a.json", "lines.json", "a.parquet", "a.csv.zst"],
)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = [f"{row['text']},{row['label']}" for row in ROWS]
    if name == "a.tsv":
        write(path, "text\tlabel\n" + "\n".join(line.replace(",", "\t") for line in lines))
    elif name == "a.csv":
        write(path, "text,label\n" + "\n".join(lines))
    elif name == "a.csv.zst":
        zstandard = pytest.importorskip("zstandard")
        path.write_bytes(zstandard.compress(("text,label\n" + "\n".join(lines)).encode()))
    elif name == "a.json":
        write(path, json.dumps(ROWS, indent=1))
    elif name == "a.parquet":
        write_parquet(path, ROWS)
    else:
        write_rows(path, ROWS)
    table = load(path)
    assert values(table) == EXPECTED
    first = 2 if ".csv" in name or ".tsv" in name else 1
    assert [row.number for row in table.parts["all"]] == list(range(first, first + 6))
    unit = {"a.json": "item", "a.parquet": "row"}.get(name, "line")
    assert table.parts["all"][0].where == f"{path}, {unit} {first}"
    assert table.counts["all"].documents == 6 and len(table.counts["all"].hashes) == 1


def test_lines_are_those_of_the_file_after_a_field_of_several_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"one\ntwo",pos\nthree,neg\n')
    assert [row.number for row in load(path).parts["all"]] == [2, 4]


def test_a_folder_knows_its_parts_and_its_names(tmp_path: Path) -> None:
    for part, name in (
        ("train", "train-00"),
        ("train", "train-01"),
        ("dev", "dev"),
        ("test", "test"),
    ):
        write_rows(tmp_path / f"{name}.jsonl.gz", ROWS if part == "train" else ROWS[:2])
    write(tmp_path / "labels.json", '["bad", "good"]')
    write(tmp_path / "languages.json", '{"en": "English"}')
    table = load(tmp_path)
    assert {part: len(rows) for part, rows in table.parts.items()} == {
        "train": 12,
        "validation": 2,
        "test": 2,
    }
    assert table.names == {"label": {0: "bad", 1: "good"}}
    assert table.columns == ["text", "label"]


def test_parts_by_folder_and_parts_by_path(tmp_path: Path) -> None:
    for part in ("training", "val"):
        write_rows(tmp_path / "set" / part / "part.jsonl", ROWS)
    assert list(load(tmp_path / "set").parts) == ["train", "validation"]
    given = load(train=tmp_path / "set" / "training", validation=tmp_path / "set/val/part.jsonl")
    assert list(given.parts) == ["train", "validation"]
    assert values(given, "train") == EXPECTED


def test_a_folder_without_parts_is_one_table(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        write_rows(tmp_path / f"{name}.jsonl", ROWS[:3])
    assert list(load(tmp_path).parts) == ["all"] and len(load(tmp_path).parts["all"]) == 6


def test_names_that_a_parquet_file_notes(tmp_path: Path) -> None:
    named = {"names": ["bad", "good"], "_type": "ClassLabel"}
    deeper = {"feature": named, "_type": "List"}
    noted = {"info": {"features": {"label": named, "tags": deeper, "text": {"dtype": "string"}}}}
    write_parquet(tmp_path / "a.parquet", ROWS, {"huggingface": json.dumps(noted)})
    assert load(tmp_path / "a.parquet").names == {
        "label": {0: "bad", 1: "good"},
        "tags": {0: "bad", 1: "good"},
    }


def test_a_csv_without_a_header_is_named_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"1,{sentence(1)}\n0,{sentence(2)}\n")
    error = refusal(DataError, lambda: load(path))
    assert error.where == f"{path}, line 1" and "--read header=" in str(error.do)
    table = load(path, header=("label", "text"))
    assert values(table) == [(sentence(1), "1"), (sentence(2), "0")]
    error = refusal(UsageError, lambda: load(path, header=("label",)))
    assert "1 names for 2 columns" in str(error.found)


def test_squad_becomes_flat_rows(tmp_path: Path) -> None:
    asked = {"id": "q1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
    squad = {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": "Ada came.", "qas": [asked]}]}],
    }
    (row,) = load(write(tmp_path / "a.json", json.dumps(squad))).parts["all"]
    assert row.values["answers"] == {"text": ["Ada"], "answer_start": [0]}
    assert row.values["context"] == "Ada came." and row.where.endswith("a.json, item 1")
    # It stands on one line, which may be longer than lines of text are allowed to be.
    assert (
        len(load(tmp_path / "a.json", reading=ReadingOptions(max_line_bytes=20)).parts["all"]) == 1
    )
    del asked["question"]
    path = write(tmp_path / "b.json", json.dumps(squad))
    error = refusal(DataError, lambda: load(path))
    assert error.where == f"{path}, article 1, paragraph 1, question q1"
    assert '"question"' in str(error)


def test_columns_of_words_and_tags(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O\n\nKalomi NNP B-PER\nsat VBD O\r\n\n\nTion NNP B-LOC"
    one, two = load(write(tmp_path / "a.conll", text)).parts["all"]
    assert one.values == {
        "tokens": ["Kalomi", "sat"],
        "tags": ["B-PER", "O"],
        "column 2": ["NNP", "VBD"],
    }
    assert two.values == {"tokens": ["Tion"], "tags": ["B-LOC"], "column 2": ["NNP"]}
    assert one.where.endswith("a.conll, line 3") and two.where.endswith("line 7")
    (bare,) = load(write(tmp_path / "b.conll", "New\nYork\n")).parts["all"]
    assert bare.values == {"tokens": ["New", "York"]}
    # Files are read in blocks of about 1 MiB, and the last line may lack its end.
    long = "a O\nb O\nc O\n\n" * 200_000 + "x O\ny O"
    rows = load(write(tmp_path / "long.conll", long)).parts["all"]
    assert {len(row.values["tokens"]) for row in rows[:-1]} == {3}
    assert rows[-1].values["tokens"] == ["x", "y"] and len(rows) == 200_001
    path = write(tmp_path / "c.conll", "lo O\n\nKalomi B-PER\nsat\n")
    error = refusal(DataError, lambda: load(path))
    assert error.where == f"{path}, line 4" and error.wanted == "2"


# ------------------------------------------------------------------------------ refusals
def test_a_wrong_separator_is_guessed_in_the_message(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text;label\none;1\ntwo;0\n")
    error = refusal(DataError, lambda: load(path))
    assert error.where == f"{path}, line 1" and "separator=';'" in str(error.do)
    assert values(load(path, reading=ReadingOptions(separator=";"))) == [("one", "1"), ("two", "0")]


def test_one_list_has_the_rejects_of_all_parts(tmp_path: Path) -> None:
    for part in ("train", "dev"):
        write(tmp_path / f"{part}.jsonl", '{"text": "a", "label": 1}\nnonsense\n')
    load(tmp_path, reading=SKIP, rejects=tmp_path / "out" / "rejects.jsonl")
    (listed,) = (tmp_path / "out").iterdir()
    files = [json.loads(line)["file"] for line in listed.read_text().splitlines()]
    assert listed.name == "rejects.jsonl"
    assert files == [str(tmp_path / "train.jsonl"), str(tmp_path / "dev.jsonl")]


def test_F70_a_name_twice_in_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label,label\none,1,0\n")
    error = refusal(DataError, lambda: load(path))
    assert error.found == "'label'"


def test_F58_nothing_to_read_is_said(tmp_path: Path) -> None:
    for name, text in (("a.csv", "text,label\n"), ("a.jsonl", ""), ("a.jsonl", "\n\n")):
        path = write(tmp_path / name, text)
        error = refusal(DataError, lambda path=path: load(path))
        assert "a." in str(error.where)


def test_what_is_not_clear_about_the_paths(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a" / "train.jsonl", ROWS)
    assert "both" in str(refusal(UsageError, lambda: load(path, train=path)).found)
    assert refusal(UsageError, load).found == "no path"
    assert "train=FILE" in str(refusal(UsageError, lambda: load(test=path)).do)
    assert "'train.jsonl'" in str(refusal_of_missing(tmp_path / "a" / "tran.jsonl").wanted)
    text = write(tmp_path / "b.txt", "only text\n")
    refusal(UsageError, lambda: load(text))
    write(tmp_path / "a" / "train.csv", "text,label\na,1\n")
    refusal(UsageError, lambda: load(tmp_path / "a"))
    write_rows(tmp_path / "c" / "dev.jsonl", ROWS)
    write_rows(tmp_path / "c" / "test.jsonl", ROWS)
    refusal(UsageError, lambda: load(tmp_path / "c"))
    write_rows(tmp_path / "d" / "train_dev.jsonl", ROWS)
    write_rows(tmp_path / "d" / "x.jsonl", ROWS)
    refusal(UsageError, lambda: load(tmp_path / "d"))


def refusal_of_missing(path: Path) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load(path)
    return caught.value


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
            "3",
            "{}",
            '{"context": "a"}',
            '{"context": "a", "qas": 3}',
            '{"context": "a", "qas": [3]}',
            '{"context": 3, "qas": []}',
            '{"qas": []}',
            '{"context": "a", "qas": [{"id": "x"}]}',
            '{"context": "a", "qas": [{"id": "x", "question": 3, "answers": []}]}',
            '{"context": "a", "qas": [{"id": "x", "question": "q", "answers": 3}]}',
            '{"context": "a", "qas": [{"id": "x", "question": "q", "answers": [3]}]}',
            SQUAD.replace("{n}", "1"),
            SQUAD.replace('"answer_start": 0', '"answer_start": "0"'),
            SQUAD.replace('"answers"', '"is_impossible": true, "answers"'),
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
    count = 9 if bad != '"a' else 8
    rows = [good.replace("{n}", str(n)) for n in range(9)]
    rows.insert(5 if bad != '"a' else 8, bad)  # an open quote takes all that follows
    write(path, begin + between.join(rows) + end)
    error = refusal(DataError, lambda: load(path))
    assert str(error.where).startswith(str(path)) and error.found and error.wanted
    assert "on_bad" in str(error.do)
    rejects = tmp_path / "rejects.jsonl"
    made = load(path, reading=SKIP, rejects=rejects)
    assert len(made.parts["all"]) == count, [row.values for row in made.parts["all"]]
    (listed,) = map(json.loads, rejects.read_text().splitlines())
    assert listed["file"] == str(path) and listed["line"] and listed["reason"] == error.what
    assert made.counts["all"].rejected >= 1
    # The control: nothing is left out of good rows.
    del rows[5 if bad != '"a' else 8]
    write(path, begin + between.join(rows) + end)
    made = load(path, reading=SKIP, rejects=rejects)
    assert len(made.parts["all"]) == 9 and made.counts["all"].rejected == 0


def test_few_bad_rows_of_one_long_line_are_few(tmp_path: Path) -> None:
    """The share of bad rows is one of the rows, however many of them stand on a line."""
    rows = [json.dumps(row) for row in ROWS * 50]
    path = write(tmp_path / "a.json", f"[{', '.join([*rows[:7], '3', *rows[7:]])}]")
    assert len(load(path, reading=ReadingOptions(on_bad="skip")).parts["all"]) == 300
    error = refusal(
        DataError,
        lambda: load(
            write(path, f"[{', '.join([*rows[:7], *'3456789'])}]"),
            reading=ReadingOptions(on_bad="skip"),
        ),
    )
    assert "7 of 14 rows" in str(error.found)


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
    made = prepare(_parquet(tmp_path / "a.parquet", _odd_columns()))
    assert made.task.name == "classification" and sum(map(len, made.parts.values())) == 12
    for name in _odd_columns():
        path = _parquet(tmp_path / "b.parquet", {name: _odd_columns()[name]})
        assert prepare(path).task.columns["text"] == "text"
        for role in ("label", "text"):
            error = refusal(
                DataError,
                lambda path=path, role=role, name=name: prepare(path, columns={role: name}),
            )
            assert error.do, (name, role)
    plain = prepare(_parquet(tmp_path / "c.parquet", {}))
    assert plain.parts == {
        part: [replace(row, where=row.where.replace("a.parquet", "c.parquet")) for row in rows]
        for part, rows in made.parts.items()
    }


def test_what_can_be_read_of_a_nested_cell_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    spans = pyarrow.array(
        [[{"start": 4, "end": 9, "label": "X", "at": 1700000000123456789}]] * 12,
        pyarrow.list_(
            pyarrow.struct(
                [
                    ("start", pyarrow.int64()),
                    ("end", pyarrow.int64()),
                    ("label", pyarrow.string()),
                    ("at", pyarrow.timestamp("ns")),
                ]
            )
        ),
    )
    path = _parquet(tmp_path / "a.parquet", {"entities": spans})
    made = prepare(path, columns={"tokens": "text", "tags": "entities"})
    assert made.parts["train"][0].tags[:2] == (0, 1)


def test_names_of_parquet_columns(tmp_path: Path) -> None:
    pyarrow, parquet = (pytest.importorskip(n) for n in ("pyarrow", "pyarrow.parquet"))
    path = _parquet(tmp_path / "a.parquet", {"secret": ["a"] * 12})
    path.write_bytes(path.read_bytes().replace(b"secret", b"s\xb9cret"))
    error = refusal(DataError, lambda: load(path))
    assert "73 b9 63" in str(error.found)
    assert error.do and str(error.where) == str(path)
    twice = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 2, ["text", "text"])
    parquet.write_table(twice, path)
    error = refusal(DataError, lambda: load(path))
    assert error.found == "'text'" and error.do


# ------------------------------------------------------------------------------ CR alone
def test_words_and_tags_whose_lines_end_in_cr(tmp_path: Path) -> None:
    text = "Ann B-PER\rsat O\r\rBob B-PER\r"
    path = tmp_path / "a.conll"
    path.write_bytes(text.encode())
    made = load(path)
    assert [row.values["tokens"] for row in made.parts["all"]] == [["Ann", "sat"], ["Bob"]]
    assert [row.number for row in made.parts["all"]] == [1, 4]
    assert "CR alone" in next(map(str, made.counts["all"].findings))
    path.write_bytes(text.replace("\r", "\n", 3).encode())
    error = refusal(DataError, lambda: load(path))
    assert "line_ends='any'" in str(error.do)
    assert len(load(path, reading=ReadingOptions(line_ends="any")).parts["all"]) == 2
