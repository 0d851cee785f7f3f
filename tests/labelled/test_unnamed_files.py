"""Files whose endings say no kind: two languages line by line, texts in the folders of classes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from labelled.tables import loaded, refusal, sentence, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer


def two_languages(root: Path, *stems: str, rows: int = 40) -> Path:
    root.mkdir(exist_ok=True)
    for stem in stems:
        for language in ("de", "en"):
            lines = "".join(f"{language} {sentence(n)}\n" for n in range(rows))
            write(root / f"{stem}.{language}", lines)
    return root


def test_two_languages_are_two_columns_and_their_direction_is_asked(tmp_path: Path) -> None:
    root = two_languages(tmp_path / "text", "train", "dev", "test_2016")
    table = load(root)
    assert {part: len(rows) for part, rows in table.parts.items()} == {
        "train": 40,
        "validation": 40,
        "test": 40,
    }
    assert table.columns == ["de", "en"]
    assert table.first[3].values == {"de": f"de {sentence(3)}", "en": f"en {sentence(3)}"}
    assert table.first[3].where.endswith("train.de, line 4")
    assert len(table.counts["train"].hashes) == 2
    error = refusal(DataError, lambda: loaded(root))
    assert "--column source=de --column target=en" in str(error.do)
    table = load(root)
    task = infer(table, columns={"source": "en", "target": "de"})
    assert task.name == "sequence-to-sequence"


def test_the_name_before_the_language_may_have_dots_and_be_packed(tmp_path: Path) -> None:
    for language in ("pt-BR", "en"):
        text = "".join(f"{language} {n}\n" for n in range(3)).encode()
        (tmp_path / f"Books.pt-en.{language}.gz").write_bytes(gzip.compress(text))
    write(tmp_path / "README.md", "a text of the world")
    table = load(tmp_path)
    assert [row.values for row in table.parts["all"]] == [
        {"en": f"en {n}", "pt-BR": f"pt-BR {n}"} for n in range(3)
    ]
    assert any("README.md" in line for line in list(map(str, table.counts["all"].findings)))


def test_lines_stay_beside_their_translations(tmp_path: Path) -> None:
    write(tmp_path / "train.de", "eins\n\n\nvier\nfünf\n\n")
    (tmp_path / "train.en").write_bytes(b"one\ntwo\n\nf\xffour\nfive\n")
    reading = ReadingOptions(on_bad="skip", max_bad_fraction=0.5)
    table = load(tmp_path, reading=reading)
    assert [(row.number, row.values["de"], row.values["en"]) for row in table.first] == [
        (1, "eins", "one"),
        (2, "", "two"),
        (5, "fünf", "five"),
    ]
    assert table.counts["train"].blank == 1 and table.counts["train"].rejected == 1


def test_files_of_other_lengths_are_refused(tmp_path: Path) -> None:
    two_languages(tmp_path, "train")
    with (tmp_path / "train.en").open("a") as file:
        file.write("one more\n")
    error = refusal(DataError, lambda: load(tmp_path))
    assert "line 41" in str(error.where)


@pytest.mark.parametrize(
    "names",
    [
        ("train.en",),
        ("train.en", "train.de", "train.fr"),
        ("train.en", "test.de"),
        ("run.py", "run.sh"),
        ("polarity.pos", "polarity.neg"),
        ("a.en", "a.de", "b.en", "b.fr"),
    ],
)
def test_other_files_are_no_pairs(names: tuple[str, ...], tmp_path: Path) -> None:
    for name in names:
        write(tmp_path / name, "a line\n")
    refusal(UsageError, lambda: load(tmp_path))
    any(name.endswith(".en") for name in names)


def test_texts_without_endings_in_the_folders_of_their_classes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("sci.med", "rec.autos"):
            folder = tmp_path / f"20news-bydate-{part}" / name
            folder.mkdir(parents=True)
            for number in range(20):
                write(folder / str(59_000 + number), f"Subject: {name}\n\n{part} {number}\n")
    table = load(tmp_path)
    assert {part: len(rows) for part, rows in table.parts.items()} == {"train": 40, "test": 40}
    assert {row.values["label"] for row in table.first} == {"sci.med", "rec.autos"}


def test_what_lies_beside_two_languages_is_left_alone(tmp_path: Path) -> None:
    two_languages(tmp_path, "train")
    for name in ("README.md", "LICENSE", "run.sh", "train.ids", "test.en"):
        write(tmp_path / name, "a line\n")
    table = load(tmp_path)
    assert {part: len(rows) for part, rows in table.parts.items()} == {"train": 40}
    (said,) = [
        line for line in list(map(str, table.counts["train"].findings)) if "not read" in line
    ]
    assert "test.en" in said and "train.ids" in said


def test_a_bad_last_line_takes_its_partner_with_it(tmp_path: Path) -> None:
    write(tmp_path / "train.de", "eins\nzwei\n")
    (tmp_path / "train.en").write_bytes(b"one\ntw\xff\n")
    reading = ReadingOptions(on_bad="skip", max_bad_fraction=0.5)
    assert len(load(tmp_path, reading=reading).first) == 1
    write(tmp_path / "train.de", "eins\nzwei\ndrei\n")
    error = refusal(DataError, lambda: load(tmp_path, reading=reading))
    assert "line 3" in str(error.where) or "line 2" in str(error.where)


CONLL = "-DOCSTART- -X- -X- O\n\n" + "".join(
    f"Berun{n} NNP B-NP B-PER\nwent VBD B-VP O\n\n" for n in range(30)
)
PLAIN = "".join(f"Berun{n}\tB-PER\nwent\tO\n\n" for n in range(30))
TREEBANK = "".join(
    f"# text = Berun{n}\n1\tBerun{n}\t_\tPROPN\t_\t_\t0\troot\t_\t_\n\n" for n in range(30)
)


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
    for name in ("esp.train", "esp.testa", "esp.testb"):
        write(tmp_path / name, CONLL)
    (tmp_path / "esp.testb.gz").write_bytes(gzip.compress(CONLL.encode()))
    (tmp_path / "esp.testb").unlink()
    table = load(tmp_path)
    assert list(table.parts) == ["train", "validation", "test"]
    assert infer(table).name == "tagging"
    assert len(load(tmp_path / "esp.testa").parts["all"]) == 30
    (tmp_path / "esp.train").write_bytes(CONLL.replace("went", "fué").encode("latin-1"))
    error = refusal(DataError, lambda: load(tmp_path / "esp.train"))
    assert "encoding" in str(error.do)
    write(tmp_path / "ned.train", CONLL)
    error = refusal(UsageError, lambda: load(tmp_path))
    refusal(UsageError, lambda: load(write(tmp_path / "esp.testy", CONLL)))
