"""Treebanks as they are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.base.errors import DataError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables import files
from maskwright.text.tables.prepare import prepare

SENTENCE = """# sent_id = 1
# text = Sie geht zum Haus
1\tSie\tsie\tPRON\tPPER\t_\t2\tnsubj\t_\t_
2\tgeht\tgehen\tVERB\tVVFIN\t_\t0\troot\t_\t_
3-4\tzum\t_\t_\t_\t_\t_\t_\t_\t_
3\tzu\tzu\tADP\tAPPR\t_\t5\tcase\t_\t_
4\tdem\tder\tDET\tART\t_\t5\tdet\t_\t_
4.1\tgroßen\tgroß\tADJ\tADJA\t_\t_\t_\t5:amod\t_
5\tHaus\tHaus\tNOUN\tNN\t_\t2\tobl\t_\t_

"""
BARE = "1\tHà Nội\t_\tPROPN\t_\t_\t_\t_\t_\t_\n2\t#\t_\tSYM\t_\t_\t_\t_\t_\t_"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_words_with_all_that_is_told_of_them(tmp_path: Path) -> None:
    one, two = files.load(write(tmp_path / "a.conllu", SENTENCE + BARE)).parts["all"]
    assert one.values == {
        "tokens": ["Sie", "geht", "zu", "dem", "Haus"],
        "upos": ["PRON", "VERB", "ADP", "DET", "NOUN"],
        "xpos": ["PPER", "VVFIN", "APPR", "ART", "NN"],
        "deprel": ["nsubj", "root", "case", "det", "obl"],
        "lemma": ["sie", "gehen", "zu", "der", "Haus"],
    }
    assert one.where.endswith("a.conllu, line 3") and two.where.endswith("line 11")
    assert two.values == {"tokens": ["Hà Nội", "#"], "upos": ["PROPN", "SYM"]}


def test_a_treebank_as_it_is_downloaded(tmp_path: Path) -> None:
    for part, count in (("train", 20), ("dev", 4), ("test", 5)):
        text = "".join(SENTENCE.replace("Haus", f"Haus{part}{n}") for n in range(count))
        write(tmp_path / f"de_gsd-ud-{part}.conllu", text)
    write(tmp_path / "LICENSE.txt", "free\n")
    write(tmp_path / "README.md", "# A treebank\n")
    write(tmp_path / "stats.xml", "<treebank/>\n")
    made = prepare(tmp_path)
    assert made.task.name == "tagging" and made.task.columns["tags"] == "upos"
    assert {part: len(rows) for part, rows in made.parts.items()} == {
        "train": 20,
        "validation": 4,
        "test": 5,
    }
    other = prepare(tmp_path, columns={"tags": "xpos"})
    assert other.labels is not None and "VVFIN" in other.labels.names


def test_a_line_that_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conllu", "1\tHaus\tNOUN\n")
    with pytest.raises(DataError, match=r"line 1(.|\n)*3 columns(.|\n)*10"):
        files.load(path)


def test_a_treebank_is_one_by_any_name(tmp_path: Path) -> None:
    for name in ("a.conll", "a.txt", "a.tsv", "a.bio", "b.tsv"):
        text = SENTENCE if name != "b.tsv" else SENTENCE.split("Haus\n", 1)[1]
        (one,) = files.load(write(tmp_path / name, text)).parts["all"]
        assert one.values["tokens"] == ["Sie", "geht", "zu", "dem", "Haus"], name
        assert one.values["upos"][0] == "PRON"
    # The controls: a table of ten columns whose rows are numbered, and columns that are named.
    rows = "".join("\t".join([str(n), f"text {n}", *"abcdefgh"]) + "\n" for n in range(1, 9))
    header = ("id", "text", *"cdefghij")
    made = files.load(write(tmp_path / "c.tsv", rows), header=header).parts["all"]
    assert len(made) == 8 and made[0].values["text"] == "text 1"
    names = ("a", "tokens", "c", "tags", *"efghij")
    plain = SENTENCE.split("Haus\n", 1)[1]
    assert (
        files.load(write(tmp_path / "d.conll", plain), header=names)
        .parts["all"][0]
        .values["tags"][2]
        == "_"
    ), "the words that are written as one are a line of their own"


def test_a_bad_sentence_may_be_left_out(tmp_path: Path) -> None:
    bad = SENTENCE.replace("\tobl\t_\t_", "\tobl"), SENTENCE.replace("\tgeht\t", "\t \t")
    for number, broken in enumerate(bad):
        path = write(tmp_path / f"{number}.conllu", SENTENCE * 150 + broken + SENTENCE)
        with pytest.raises(DataError, match=("CoNLL-U", "blanks")[number]) as refused:
            files.load(path)
        assert "on_bad='skip'" in str(refused.value.do)
        rejects = tmp_path / "rejects.jsonl"
        made = files.load(path, reading=ReadingOptions(on_bad="skip"), rejects=rejects)
        assert len(made.parts["all"]) == 151 and made.counts["all"].rejected == 1
        assert '"line": 1503' in rejects.read_text()
