"""Texts in the folders of their classes, and lines that begin with their label."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelled.tables import loaded, refusal, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.files import load


def fill(root: Path, *names: str, end: str = "_test") -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        for n in range(30):
            write(root / name / f"{n}{end}.txt", f"text {n} of\n{name}\n")
    return root


def test_folders_are_classes(tmp_path: Path) -> None:
    examples = loaded(fill(tmp_path / "flat", "pos", "neg"))
    assert examples.task.name == "classification" and examples.labels is not None
    assert examples.labels.names == ("neg", "pos")
    assert len(examples.parts["all"]) == 60
    first = examples.parts["all"][0]
    assert first.text == "text 0 of\nneg" and first.where.endswith("neg/0_test.txt, line 1")


def test_folders_of_parts_hold_those_of_classes(tmp_path: Path) -> None:
    root = fill(tmp_path / "imdb", "train/pos", "train/neg", "train/unsup", "test/pos", "test/neg")
    write(root / "train" / "urls_pos.txt", "http://a.b\n")
    table = load(root)
    assert {part: len(rows) for part, rows in table.parts.items()} == {"train": 60, "test": 60}
    assert {row.values["label"] for row in table.first} == {"pos", "neg"}
    (said,) = [
        line for line in list(map(str, table.counts["train"].findings)) if "not read" in line
    ]
    assert "train/unsup/0_test.txt" in said and said.endswith("and 26 more"), (
        "31 files are not read"
    )
    one = load(root / "test", learned=False)  # evaluate names the folder of a part
    assert sum(map(len, one.parts.values())) == 60


@pytest.mark.parametrize(
    "names", [("pos",), ("a/pos", "b/neg"), ("unsup", "pos"), ("train/pos", "test/pos")]
)
def test_other_folders_of_texts_have_no_labels(names: tuple[str, ...], tmp_path: Path) -> None:
    error = refusal(UsageError, lambda: load(fill(tmp_path, *names, end="")))
    assert "folder" in str(error.do)


def test_a_file_of_json_is_no_text(tmp_path: Path) -> None:
    root = fill(tmp_path, "high", "middle")
    write(root / "high" / "7_test.txt", '{"article": "a b", "answers": ["A"]}\n')
    error = refusal(DataError, lambda: load(root))
    assert "JSON" in error.what and "7_test.txt" in str(error.where)
    write(root / "high" / "7_test.txt", "{ what a film }\n")
    assert len(load(root).parts["all"]) == 60


def test_lines_that_begin_with_their_label(tmp_path: Path) -> None:
    good = "__label__pos What a film!\n\n__label__neg __label__long So  long\n"
    rows = load(write(tmp_path / "a.txt", good * 20)).parts["all"]
    assert [row.values for row in rows[:2]] == [
        {"text": "What a film!", "label": ["pos"]},
        {"text": "So  long", "label": ["neg", "long"]},
    ]
    assert rows[1].where.endswith("line 3")
    assert loaded(tmp_path / "a.txt").task.name == "multi-label"
    tabs = write(tmp_path / "t.txt", "__label__pos\tA film\n__label__neg \t __label__b  B\n" * 20)
    assert [tuple(row.values.values()) for row in load(tabs).parts["all"][:2]] == [
        ("A film", ["pos"]),
        ("B", ["neg", "b"]),
    ]
    single = write(tmp_path / "b.txt", "__label__a x y\n__label__b z\n" * 20)
    assert loaded(single).task.name == "classification"
    bad = write(tmp_path / "c.txt", good + "no label __label__pos\n__label__ none\n")
    error = refusal(DataError, lambda: load(bad))
    assert error.where == f"{bad}, line 4"
    late = "__label__a x\n" * 200_000 + "__label__a __label__b x\n"
    error = refusal(DataError, lambda: load(write(tmp_path / "d.txt", late)))
    assert error.where.endswith("line 200001")
    assert (
        len(load(bad, reading=ReadingOptions(on_bad="skip", max_bad_fraction=1)).parts["all"]) == 2
    )


def test_a_class_whose_name_ends_like_a_part(tmp_path: Path) -> None:
    table = load(fill(tmp_path / "a", "x-ray", "mri", "blood-test"))
    assert {row.values["label"] for row in table.first} == {"x-ray", "mri", "blood-test"}
    root = fill(tmp_path / "b", "sales", "law", "training")
    error = refusal(UsageError, lambda: load(root))
    assert "training" in str(error.where) and "rename it" in str(error.do)
    (root / "training").rename(root / "the training")
    assert len({row.values["label"] for row in load(root).first}) == 3


def test_a_text_that_is_bad_may_be_left_out(tmp_path: Path) -> None:
    for name in ("pos", "neg"):
        for n in range(3):
            write(tmp_path / name / f"{n}.txt", f"a {name} film of {n}")
    write(tmp_path / "pos" / "bad.txt", '{"text": "a"}')
    (tmp_path / "neg" / "bad.txt").write_bytes(b"\xff\xfea\0b")
    error = refusal(DataError, lambda: load(tmp_path))
    assert error.do
    (tmp_path / "neg" / "bad.txt").write_bytes(b"a b\xffc\n")
    skip = ReadingOptions(on_bad="skip", max_bad_fraction=1.0)
    made = load(tmp_path, reading=skip, rejects=tmp_path / "out" / "rejects.jsonl")
    (counts,) = made.counts.values()
    assert counts.rejected == 2
    assert (tmp_path / "out" / "rejects.jsonl").read_text().count("bad.txt") == 2
