"""Fault catalogue D, text that is not what it seems: each row is found, placed exactly, counted."""

from __future__ import annotations

import codecs
import json
import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.files_at_hand import SKIP, documents, lines_of, refusal, texts, write
from maskwright.base.errors import DataError
from maskwright.text.corpus.lines import CONTROLS
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions


# ------------------------------------------------------------------------------ F51 not UTF-8
@pytest.mark.parametrize("byte", [*range(0x80, 0x100, 9), 0xFF])
def test_F51_a_byte_that_is_not_utf8_is_placed_exactly(tmp_path: Path, byte: int) -> None:
    random.seed(byte)
    lines = [f"line {n} " + "é" * random.randrange(30) for n in range(1, 60)]
    number = random.randrange(len(lines))
    before = "".join(line + "\n" for line in lines[:number]).encode()
    place = len(before) + len(b"line ")
    text = "\n".join(lines).encode()
    path = write(tmp_path, "a.txt", text[:place] + bytes([byte]) + text[place:])
    error = refusal(DataError, path, form="line")
    assert error.what == "not utf-8"
    assert error.where == f"{path}, line {number + 1}, byte {place}"
    assert f"the byte {byte:02x}" in error.found
    assert "valid as" in error.found
    assert "encoding=" in error.do and "on_bad='skip'" in error.do


TORN = b"one\ntw\xff\xfeo\nthree\nfo\xe9ur \xef\xbf\xbd\nfive"


def test_F51_bad_lines_are_skipped_and_listed(tmp_path: Path) -> None:
    path, rejects = write(tmp_path, "a.txt", TORN), tmp_path / "out" / "rejects.jsonl"
    reader = Reader(path, ReadingOptions(form="line", on_bad="skip", max_bad_fraction=0.5), rejects)
    documents = [(d.text, d.id) for d in reader]
    assert documents == [("one", f"{path}:1"), ("three", f"{path}:3"), ("five", f"{path}:5")]
    assert reader.counts.rejected == 2 and reader.counts.rejected_by == {"not utf-8": 2}
    listed = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(r["line"], r["offset"]) for r in listed] == [(2, 6), (4, 18)]
    for entry in listed:
        assert (entry["file"], entry["reason"]) == (str(path), "not utf-8")
        assert entry["wanted"] == "text in utf-8"
    assert "the byte ff" in listed[0]["found"]


def test_F51_replaced_characters_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", TORN)
    reader = Reader(path, ReadingOptions(form="line", on_undecodable="replace"))
    wanted = ["one", "tw\ufffd\ufffdo", "three", "fo\ufffdur \ufffd", "five"]
    assert [d.text for d in reader] == wanted
    assert reader.counts.replaced == 3  # the mark that was in the file is not one of ours
    assert "3 characters replaced" in " ".join(map(str, reader.counts.findings))


def test_F51_too_many_bad_rows_stop_the_reading(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"".join(b"good\n" * 90 + b"bad\xff\n" for _ in range(40)))
    options = ReadingOptions(form="line", on_bad="skip")
    with pytest.raises(DataError) as caught:
        list(Reader(path, options, tmp_path / "rejects.jsonl"))
    assert "of 3,640 rows, mostly: not utf-8" in caught.value.found
    assert "0.01" in caught.value.wanted and "rejects.jsonl" in caught.value.do
    assert list(Reader(path, replace(options, max_bad_fraction=0.02)))


@pytest.mark.parametrize("encoding", ["ascii", "shift_jis", "utf-16-le", "gb18030", "cp1252"])
def test_F51_other_encodings_are_placed_exactly_too(tmp_path: Path, encoding: str) -> None:
    bad = {"utf-16-le": b"\x00\xdc", "cp1252": b"\x81"}.get(encoding, b"\x81\x20")
    first, second = "one\ntwo\nab".encode(encoding), "\nfour\n".encode(encoding)
    path = write(tmp_path, "a.txt", first + bad + second)
    error = refusal(DataError, path, form="line", encoding=encoding)
    assert error.what == f"not {encoding}"
    assert error.where == f"{path}, line 3, byte {len(first)}"
    reader = Reader(path, replace(SKIP, form="line", encoding=encoding))
    assert [d.text for d in reader] == ["one", "two", "four"]
    assert reader.counts.rejected_by == {f"not {encoding}": 1}
    mended = texts(path, form="line", encoding=encoding, on_undecodable="replace")
    assert mended[2].startswith("ab\ufffd")


# ------------------------------------------------------------------------------ F52 marks
CONTENT = {
    "a.txt": ("one\n\ntwo", ["one", "two"]),
    "a.csv": ("text,id\none,1\ntwo,2\n", ["one", "two"]),
    "a.jsonl": ('{"text": "one"}\n{"text": "two"}\n', ["one", "two"]),
}


@pytest.mark.parametrize("name", CONTENT)
def test_F52_utf8_mark_is_removed_and_reported(tmp_path: Path, name: str) -> None:
    content, wanted = CONTENT[name]
    path = write(tmp_path, name, codecs.BOM_UTF8 + content.encode())
    reader = Reader(path)
    assert [d.text for d in reader] == wanted
    assert reader.counts.byte_order_marks == 1
    assert list(map(str, reader.counts.findings)) == ["1 byte order mark removed"]


def test_marks_of_files_that_were_put_together_are_removed(tmp_path: Path) -> None:
    data = b"\r\n\r\n".join([codecs.BOM_UTF8 + b"one"] * 3) + codecs.BOM_UTF8
    reader = Reader(write(tmp_path, "a.txt", data))
    assert [d.text for d in reader] == ["one", "one", "one\ufeff"]  # within a line it is text
    assert reader.counts.byte_order_marks == 3


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_F52_other_marks_name_the_encoding(tmp_path: Path, name: str, encoding: str) -> None:
    content, wanted = CONTENT[name]
    path = write(tmp_path, name, ("\ufeff" + content).encode(encoding))
    error = refusal(DataError, path, encoding="utf-8")  # what is asked for counts more
    assert error.where == str(path) and error.found == f"a byte order mark of {encoding}"
    assert f"encoding={encoding[:6]!r}" in error.do
    for choices in ({}, {"encoding": encoding[:6]}, {"encoding": encoding}):
        assert texts(path, **choices) == wanted


META = '<html><head><meta http-equiv="Content-Type" content="text/html; charset={}"></head><p>{}'
XML = '<?xml version="1.0" encoding="{}"?>\n<html><p>{}'
DECLARED = [
    ("a.html", META, "windows-1251", "cp1251", "Старый мост"),
    ("a.html", "<!doctype html>\n<META CHARSET={}><p>{}", "KOI8-R", "koi8-r", "Старый мост"),
    ("a.xhtml", XML, "shift_jis", "cp932", "①古い橋"),
    ("a.htm", "<meta charset='{}'><p>{}", "iso-8859-1", "cp1252", "“Größe” – 5 €"),
    ("a.txt", "<!DOCTYPE html><meta charset={}>{}", "iso-8859-2", "iso8859-2", "Příliš žluťoučký"),
    ("a.txt", "# -*- coding: {} -*-\nx = '{}'", "latin-1", "iso8859-1", "Größe"),
    ("a.md", "#!/bin/sh\n# vim: set fileencoding={}\n{}", "cp1250", "cp1250", "žluťoučký"),
]


def pages(path: Path, **choices: object) -> list[str]:
    return [d.text for d in Reader(path, ReadingOptions(form="file", **choices), pages=True)]


@pytest.mark.parametrize(("name", "form", "label", "codec", "word"), DECLARED)
def test_a_declared_encoding_counts(
    tmp_path: Path, name: str, form: str, label: str, codec: str, word: str
) -> None:
    text = form.format(label, word)
    assert pages(write(tmp_path, name, text.encode(codec))) == [text]
    # What is asked for counts more, and a mark more than the words.
    assert pages(write(tmp_path, name, text), encoding="utf-8") == [text]
    assert pages(write(tmp_path, name, codecs.BOM_UTF8 + text.encode())) == [text]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", "<meta charset=ISO-8859-1><p>" + "Größe – “古い橋” " * 999),
        ("a.py.txt", "# -*- coding: latin-1 -*-\nGröße"),
        ("a.md", "# coding: latin-1\nGröße"),
    ],
)
def test_a_stale_declaration_of_what_is_utf8_is_told(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, name, text.strip().encode())
    reader = Reader(path, ReadingOptions(form="file"), pages=True)
    assert [document.text for document in reader] == [text.strip()]
    assert [f.name for f in reader.counts.findings] == ["stale-encoding-declaration"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "# Character encoding: latin-1 or UTF-8?\né"),
        ("a.html", "<!-- <meta charset=latin-1> --><p>é"),
        ("a.html", "<meta name='description' content='a charset of latin-1'><p>é"),
        ("a.txt", "A page says <meta charset=latin-1>. é"),
        ("a.txt", "# Decoding: latin-1 é"),
        ("a.txt", "# coding: unknown é"),
        ("a.csv", "text\n# coding: latin-1 é\n"),
    ],
)
def test_words_that_declare_nothing_do_not_count(tmp_path: Path, name: str, text: str) -> None:
    (found,) = pages(write(tmp_path, name, text.encode()))
    assert found == text.removeprefix("text").strip()


@pytest.mark.parametrize("label", ["ascii", "utf-8", "shift_jis"])
def test_a_wrong_declaration_is_named(tmp_path: Path, label: str) -> None:
    path = write(tmp_path, "a.txt", f"# coding: {label}\nGr\xfc\xdfe\x81\x00".encode("latin-1"))
    for on_bad in ("strict", "skip"):
        with pytest.raises(DataError) as caught:
            pages(path, on_bad=on_bad, on_nul="strip")
        assert "a.txt" in str(caught.value.where)
        assert on_bad == "skip" or f"# coding: {label}" in str(caught.value.wanted)
    assert len(pages(path, encoding="latin-1", on_nul="strip")) == 1  # the remedy works


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_F52_without_a_mark_the_zero_bytes_tell(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "a.txt", ("plain words, line after line\n" * 5).encode(encoding))
    error = refusal(DataError, path)
    assert encoding in error.found and f"encoding={encoding!r}" in error.do
    assert len(texts(path, encoding=encoding, form="line")) == 5


# ------------------------------------------------------------------------------ F53 controls
@pytest.mark.parametrize(
    ("name", "data", "place"),
    [
        ("a.txt", b"one\ntw\0o\nthree\n", "line 2, byte 6"),
        ("a.csv", b"text\none\nt\0o\n", "line 3, byte 10"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\0"}\n', "line 2, byte 26"),
    ],
)
def test_F53_nul_is_an_error_or_stripped(
    tmp_path: Path, name: str, data: bytes, place: str
) -> None:
    path = write(tmp_path, name, data)
    error = refusal(DataError, path, form="line")
    assert error.where == f"{path}, {place}"
    assert "on_nul='strip'" in error.do and "on_bad='skip'" in error.do
    reader = Reader(path, ReadingOptions(form="line", on_nul="strip"))
    assert "\0" not in "".join(d.text for d in reader)
    assert reader.counts.nul_stripped == 1


def test_F53_nul_written_as_an_escape(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"text": "ok"}\n{"text": "a\\u0000b\\u001bc\\b\\f"}\n')
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 2" and "\\u0000 at character 2" in error.found
    reader = Reader(path, ReadingOptions(on_nul="strip"))
    assert [d.text for d in reader] == ["ok", "abc\f"]
    assert reader.counts.nul_stripped == 1
    assert reader.counts.controls == {"U+0008": 1, "U+001B": 1}


@given(text=st.text(alphabet="ab\n\t é\0\x01\x07\x08\x1b\x1f\x7f\v\f\r", max_size=60))
def test_F53_no_control_character_comes_out_and_all_are_listed(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = write(tmp_path_factory.mktemp("f53"), "a.txt", "first\n" + text)
    reader = Reader(path, ReadingOptions(form="line", on_nul="strip"))
    try:
        found = "\n".join(d.text for d in reader)
    except DataError:  # so many NUL that it is taken for binary
        return
    assert not {chr(c) for c in (0, *CONTROLS)} & set(found)
    assert reader.counts.nul_stripped == text.count("\0")
    listed = {f"U+{c:04X}": text.count(chr(c)) for c in CONTROLS if chr(c) in text}
    assert reader.counts.controls == listed


# ------------------------------------------------------------------------------ F54 lone surrogates
@pytest.mark.parametrize("escape", ["\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\uD83D\\\\ude00"])
@pytest.mark.parametrize("form", ["{}", "a{}", "{}b", "a {} \\ud83d\\ude00"])
def test_F54_half_of_a_pair_is_refused(tmp_path: Path, escape: str, form: str) -> None:
    path = write(tmp_path, "a.jsonl", f'{{"text": "ok"}}\n{{"text": "{form.format(escape)}"}}\n')
    error = refusal(DataError, path)
    assert error.where == f"{path}, line 2" and escape[:6].lower() in error.found
    assert "on_undecodable='replace'" in error.do
    reader = Reader(path, ReadingOptions(on_undecodable="replace"))
    _, text = [document.text for document in reader]
    assert text.encode() and text.endswith("😀") == form.endswith("\\ude00"), "pairs stay intact"
    assert reader.counts.replaced == (2 if escape == "\\ude00\\ud83d" else 1)


# ------------------------------------------------------------------------------ F55 line ends
SEPARATORS = ["\r", "\u2028", "\u2029", "\x85", "\v", "\f"]


@pytest.mark.parametrize(
    ("name", "header", "row"),
    [("a.txt", "", "{}"), ("a.jsonl", "", '{{"text": "{}"}}'), ("a.csv", "text\r\n", '"{}"')],
)
def test_F55_rows_end_at_line_feeds_only(tmp_path: Path, name: str, header: str, row: str) -> None:
    random.seed(5)
    separators = SEPARATORS[1:4] if name == "a.jsonl" else SEPARATORS
    lines = [random.choice(separators).join(["a", f"b{n}"]) for n in range(100)]
    ends = [random.choice(["\n", "\r\n"]) for _ in lines]
    rows = (row.format(line) + end for line, end in zip(lines, ends, strict=True))
    path, first = write(tmp_path, name, header + "".join(rows)), 2 if header else 1
    assert texts(path, form="line") == lines
    assert lines_of(path, form="line") == list(range(first, first + 100))


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["x", " ", "\n", "\r\n", *SEPARATORS]), max_size=40))
def test_F55_line_numbers_equal_those_of_grep(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    path = write(tmp_path_factory.mktemp("f55"), "a.txt", "x first\n" + "".join(parts))
    said = subprocess.run(["grep", "-na", "x", path], capture_output=True, check=True).stdout
    grep = [int(row.partition(b":")[0]) for row in said.split(b"\n") if row]
    found = documents(path, form="line")
    assert [int(d.id.rpartition(":")[2]) for d in found if "x" in d.text] == grep


# ------------------------------------------------------------------------------ F58, F59 emptiness
@pytest.mark.parametrize("data", ["", "\n\n\n", "\ufeff", " \t\n \r\n", "\u2003\u00a0\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_F58_a_corpus_without_documents_is_an_error(tmp_path: Path, data: str, name: str) -> None:
    header = "text\n" if name == "a.csv" and data else ""
    content = data + header if data == "\ufeff" else header + data
    error = refusal(DataError, write(tmp_path, name, content))
    assert error.found.startswith("0 documents from 1 file")
    assert ("empty files" in error.found) == (content in ("", "\ufeff"))


def test_F58_all_rows_rejected_says_why(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"body": "x"}\n' * 120)
    error = refusal(DataError, path, on_bad="skip", max_bad_fraction=1.0)
    assert "120 rows" in error.found


def test_F58_some_empty_files_are_listed_and_allowed(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "")
    write(tmp_path, "b.txt", "text")
    reader = Reader(tmp_path)
    assert [d.text for d in reader] == ["text"]
    assert reader.counts.empty_files == [str(tmp_path / "a.txt")]
    assert [found.name for found in reader.counts.findings] == ["document-form", "empty-files"]


@settings(max_examples=25)
@given(rows=st.lists(st.sampled_from(["", " ", "\u3000", "\u2028", "x", " y "]), min_size=1))
@pytest.mark.parametrize(
    ("name", "header", "row"),
    [
        ("a.txt", "", "{}\n"),
        ("a.jsonl", "", '{{"text": "{}"}}\n'),
        ("a.csv", "text,n\n", '"{}",1\n'),
    ],
)
def test_F59_blank_documents_are_dropped_and_counted(
    tmp_path_factory: pytest.TempPathFactory, name: str, header: str, row: str, rows: list[str]
) -> None:
    content = header + "".join(map(row.format, ["x", *rows]))
    path = write(tmp_path_factory.mktemp("f59"), name, content)
    reader = Reader(path, ReadingOptions(form="line"))
    good = ["x", *(row for row in rows if row.strip())]
    assert [d.text for d in reader] == good
    assert reader.counts.blank == 1 + len(rows) - len(good)
    assert reader.counts.documents == len(good)


# ------------------------------------------------------------------------------ F66 long words
@pytest.mark.parametrize(
    "character", ["a", " ", "7", ".", "\u0301", "😀", "\t", "\r", '"', "\\", "[", "-"]
)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_F66_a_long_run_of_one_character_is_read_in_linear_time(
    tmp_path: Path, character: str, name: str
) -> None:
    word = character * 1_000_000 + "x"
    content = {
        "a.txt": word,
        "a.jsonl": json.dumps({"text": word}) + "\n",
        "a.csv": 'text\nx\n"' + word.replace('"', '""') + '"\n',
    }[name]
    path = write(tmp_path, name, content)
    start = time.process_time()
    text = documents(path)[-1].text
    # Quadratic work on a million characters would take minutes, not a second.
    assert time.process_time() - start < 1.0
    ends = character == "\r" and name == "a.txt"  # of lines, in a file without LF
    assert text == ("x" if ends else word)
