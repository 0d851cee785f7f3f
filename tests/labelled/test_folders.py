"""Texts in the folders of their classes, lines that begin with their label, and files whose endings
say no kind: two languages line by line, columns of words."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from labelled.tables import refusal, sentence, sizes, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer

SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=1.0)


def fill(root: Path, *names: str, end: str = "_test") -> Path:
    for name in names:
        for n in range(30):
            write(root / name / f"{n}{end}.txt", f"text {n} of\n{name}\n")
    return root


def test_folders_of_parts_hold_those_of_classes(tmp_path: Path) -> None:
    root = fill(tmp_path / "imdb", "train/pos", "train/neg", "train/unsup", "test/pos", "test/neg")
    write(root / "train" / "urls_pos.txt", "http://a.b\n")
    table = load(root)
    assert sizes(table) == {"train": 60, "test": 60}
    assert {row.values["label"] for row in table.first} == {"pos", "neg"}
    assert table.first[0].values["text"] == "text 0 of\ntrain/neg"
    assert table.first[0].where.endswith("neg/0_test.txt, line 1")
    (left,) = [line for line in map(str, table.counts["train"].findings) if "not read" in line]
    assert "train/unsup/0_test.txt" in left and left.endswith("and 26 more"), "31 are not read"
    flat = load(root / "test", learned=False)  # evaluate names the folder of a part
    assert sizes(flat) == {"all": 60} and infer(flat).name == "classification"


@pytest.mark.parametrize("names", ["pos", "a/pos b/neg", "unsup pos", "train/pos test/pos"])
def test_other_folders_of_texts_have_no_labels(names: str, tmp_path: Path) -> None:
    error = refusal(UsageError, lambda: load(fill(tmp_path, *names.split(), end="")))
    assert "folder" in str(error.do)


def test_a_file_of_json_is_no_text(tmp_path: Path) -> None:
    root = fill(tmp_path, "high", "middle")
    path = write(root / "high" / "7_test.txt", '{"article": "a b", "answers": ["A"]}\n')
    error = refusal(DataError, lambda: load(root))
    assert "JSON" in error.what and "7_test.txt" in str(error.where)
    write(path, "{ what a film }\n")
    assert sizes(load(root)) == {"all": 60}


LABELLED = "__label__pos What a film!\n\n__label__neg __label__long So  long\n"


def test_lines_that_begin_with_their_label(tmp_path: Path) -> None:
    table = load(write(tmp_path / "a.txt", LABELLED * 20))
    first, second = table.first[:2]
    assert first.values == {"text": "What a film!", "label": ["pos"]}
    assert second.values == {"text": "So  long", "label": ["neg", "long"]}
    assert second.where.endswith("line 3") and infer(table).name == "multi-label"
    tabs = "__label__pos\tA film\n__label__neg \t __label__b  B\n"
    rows = load(write(tmp_path / "t.txt", tabs * 20)).first
    assert [tuple(row.values.values()) for row in rows[:2]] == [
        ("A film", ["pos"]),
        ("B", ["neg", "b"]),
    ]
    single = load(write(tmp_path / "b.txt", "__label__a x y\n__label__b z\n" * 20))
    assert infer(single).name == "classification"


def test_lines_without_a_label_among_them_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = write(tmp_path / "c.txt", LABELLED + "no label __label__pos\n__label__ none\n")
    assert refusal(DataError, lambda: load(bad)).where == f"{bad}, line 4"
    assert sizes(load(bad, reading=SKIP)) == {"all": 2}
    monkeypatch.setattr("maskwright.text.corpus.files.STEP", 1000)
    late = write(tmp_path / "d.txt", "__label__a x\n" * 2000 + "__label__a __label__b x\n")
    assert refusal(DataError, lambda: load(late)).where == f"{late}, line 2001"


def test_a_class_whose_name_ends_like_a_part(tmp_path: Path) -> None:
    names = {"x-ray", "mri", "blood-test"}
    assert {row.values["label"] for row in load(fill(tmp_path / "a", *names)).first} == names
    root = fill(tmp_path / "b", "sales", "law", "training")
    error = refusal(UsageError, lambda: load(root))
    assert "training" in str(error.where) and "rename it" in str(error.do)
    (root / "training").rename(root / "the training")
    assert len({row.values["label"] for row in load(root).first}) == 3


def test_a_text_that_is_bad_may_be_left_out(tmp_path: Path) -> None:
    for name in ("pos/1", "pos/2", "neg/1", "neg/2"):
        write(tmp_path / f"{name}.txt", f"a film of {name}")
    write(tmp_path / "pos" / "bad.txt", '{"text": "a"}')
    for data in (b"\xff\xfea\0b", b"a b\xffc\n"):
        (tmp_path / "neg" / "bad.txt").write_bytes(data)
        refusal(DataError, lambda: load(tmp_path))
    rejects = tmp_path / "out" / "rejects.jsonl"
    (counts,) = load(tmp_path, reading=SKIP, rejects=rejects).counts.values()
    assert counts.rejected == 2 and rejects.read_text().count("bad.txt") == 2


def two_languages(root: Path, *stems: str) -> Path:
    for stem in stems:
        for language in ("de", "en"):
            lines = "".join(f"{language} {sentence(n)}\n" for n in range(40))
            write(root / f"{stem}.{language}", lines)
    return root


def test_two_languages_are_two_columns_and_their_direction_is_asked(tmp_path: Path) -> None:
    root = two_languages(tmp_path, "train", "dev", "test_2016")
    table = load(root)
    assert sizes(table) == {"train": 40, "validation": 40, "test": 40}
    assert table.columns == ["de", "en"]
    assert table.first[3].values == {"de": f"de {sentence(3)}", "en": f"en {sentence(3)}"}
    assert table.first[3].where.endswith("train.de, line 4")
    assert len(table.counts["train"].hashes) == 2
    error = refusal(DataError, lambda: infer(table))
    assert "--column source=de --column target=en" in str(error.do)
    task = infer(table, columns={"source": "en", "target": "de"})
    assert task.name == "sequence-to-sequence"


def test_the_name_before_the_language_may_have_dots_and_be_packed(tmp_path: Path) -> None:
    for language in ("pt-BR", "en"):
        packed = gzip.compress(f"{language} 0\n{language} 1\n".encode())
        (tmp_path / f"Books.pt-en.{language}.gz").write_bytes(packed)
    write(tmp_path / "README.md", "a text of the world")
    table = load(tmp_path)
    rows = [{"en": f"en {n}", "pt-BR": f"pt-BR {n}"} for n in range(2)]
    assert [row.values for row in table.parts["all"]] == rows
    assert any("README.md" in line for line in map(str, table.counts["all"].findings))


def test_lines_stay_beside_their_translations(tmp_path: Path) -> None:
    write(tmp_path / "train.de", "eins\n\n\nvier\nfünf\n\n")
    (tmp_path / "train.en").write_bytes(b"one\ntwo\n\nf\xffour\nfive\n")
    table = load(tmp_path, reading=SKIP)
    assert [(row.number, *row.values.values()) for row in table.first] == [
        (1, "eins", "one"),
        (2, "", "two"),
        (5, "fünf", "five"),
    ]
    assert table.counts["train"].blank == 1 and table.counts["train"].rejected == 1


def test_files_of_other_lengths_are_refused(tmp_path: Path) -> None:
    two_languages(tmp_path, "train")
    with (tmp_path / "train.en").open("a") as file:
        file.write("one more\n")
    assert "line 41" in str(refusal(DataError, lambda: load(tmp_path)).where)


@pytest.mark.parametrize(
    "names",
    [
        "train.en",
        "train.en train.de train.fr",
        "train.en test.de",
        "run.py run.sh",
        "polarity.pos polarity.neg",
        "a.en a.de b.en b.fr",
    ],
)
def test_other_files_are_no_pairs(names: str, tmp_path: Path) -> None:
    for name in names.split():
        write(tmp_path / name, "a line\n")
    refusal(UsageError, lambda: load(tmp_path))


def test_a_bad_last_line_takes_its_partner_with_it(tmp_path: Path) -> None:
    write(tmp_path / "train.de", "eins\nzwei\n")
    (tmp_path / "train.en").write_bytes(b"one\ntw\xff\n")
    assert len(load(tmp_path, reading=SKIP).first) == 1
    write(tmp_path / "train.de", "eins\nzwei\ndrei\n")
    error = refusal(DataError, lambda: load(tmp_path, reading=SKIP))
    assert str(error.where).endswith("train.de, line 3")


CONLL = "-DOCSTART- -X- -X- O\n\n" + "".join(
    f"Berun{n} NNP B-NP B-PER\nwent VBD B-VP O\n\n" for n in range(30)
)
PLAIN = "".join(f"Berun{n}\tB-PER\nwent\tO\n\n" for n in range(30))
TREEBANK = "".join(f"# text = a\n1\tBerun{n}\t_\tPROPN\t_\t_\t0\troot\t_\t_\n\n" for n in range(30))


@pytest.mark.parametrize("text", [CONLL, PLAIN, PLAIN.replace("\t", " "), TREEBANK])
def test_words_with_tags_in_a_text_file_are_read_as_such(text: str, tmp_path: Path) -> None:
    for name in ("train.txt", "valid.txt", "test.txt"):
        write(tmp_path / name, text)
    table = load(tmp_path)
    assert list(table.parts) == ["train", "validation", "test"]
    assert len(table.first) == 30 and table.first[0].values["tokens"][0] == "Berun0"
    assert infer(table).name == "tagging"


@pytest.mark.parametrize(
    "text",
    [
        "It was a dark night.\nNobody came.\n\nSo I left.\n" * 9,
        "dark night\ncold house\n\nvitamin O\n" * 9,  # the control: two words a line
        "Blood O\nBlood O\n\nBlood O\n" * 9,
        "",
    ],
)
def test_prose_is_no_file_of_words(text: str, tmp_path: Path) -> None:
    refusal(UsageError, lambda: load(write(tmp_path / "a.txt", text)))


def test_the_names_of_conll_2002_and_2003(tmp_path: Path) -> None:
    for name in ("esp.train", "esp.testa"):
        write(tmp_path / name, CONLL)
    (tmp_path / "esp.testb.gz").write_bytes(gzip.compress(CONLL.encode()))
    table = load(tmp_path)
    assert list(table.parts) == ["train", "validation", "test"]
    assert infer(table).name == "tagging" and sizes(load(tmp_path / "esp.testa")) == {"all": 30}
    (tmp_path / "esp.train").write_bytes(CONLL.replace("went", "fué").encode("latin-1"))
    assert "encoding" in str(refusal(DataError, lambda: load(tmp_path / "esp.train")).do)
    write(tmp_path / "ned.train", CONLL)
    refusal(UsageError, lambda: load(tmp_path))
    refusal(UsageError, lambda: load(write(tmp_path / "esp.testy", CONLL)))
