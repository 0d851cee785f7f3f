"""Sentences with tags: checks, and where their words stand. (Files: test_table.py.)"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from labelled.tables import refusal, sizes, write
from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import Counts, Ledger, ReadingOptions
from maskwright.text.tables.files import load
from maskwright.text.tables.formats.conll import columns_of, is_tsv_of_words, rows
from maskwright.text.tables.prepare import prepare


def _read(text: str, names: Sequence[str] = ()) -> list[dict[str, object]]:
    ledger = Ledger(ReadingOptions(), Counts(), None)
    return [row for row, _ in rows([TextBlock(text, 1)], "a.conll", names, ledger)]


def test_comments_before_a_sentence_are_no_words() -> None:
    text = "# id 5239d808-f3\tdomain=en\nanna _ _ B-PER\nsat _ _ O\n\n"
    one, two = _read(text + "# text = x y\n# sent_id = 2\nx O\n")
    assert (one["tokens"], one["tags"]) == (["anna", "sat"], ["B-PER", "O"])
    assert one["column 2"] == one["column 3"] == ["_", "_"]
    assert two == {"tokens": ["x"], "tags": ["O"]}
    # The control: a tweet may begin with the sign, and within a sentence it is a word.
    assert _read("# O\nfun O\n# O\n") == [{"tokens": ["#", "fun", "#"], "tags": ["O"] * 3}]
    assert _read("a O\n# id\n") == [{"tokens": ["a", "#"], "tags": ["O", "id"]}]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (
            "#\thttp://a.b [2009]\n1\tanna\tB-PER\tO\n2\tsat\tO\tO\n\n",  # as GermEval 2014 has it
            {"tokens": ["anna", "sat"], "tags": ["O", "O"], "column 3": ["B-PER", "O"]},
        ),
        (
            "# Document 12\nanna NNP B-PER\n",
            {"tokens": ["anna"], "tags": ["B-PER"], "column 2": ["NNP"]},
        ),
        ("1 O\n2 O\n", {"tokens": ["1", "2"], "tags": ["O", "O"]}),  # there is nothing else
        # Where tabs part the columns, a word may hold a blank.
        (
            "Hà Nội\tB-LOC\n10\u00a0000\tO\n",
            {"tokens": ["Hà Nội", "10\u00a0000"], "tags": ["B-LOC", "O"]},
        ),
        (
            "10\u00a0000 O\nword  \t\tO\n",
            {"tokens": ["10\u00a0000", "word"], "tags": ["O", "O"]},
        ),
    ],
)
def test_what_the_words_are(text: str, row: dict[str, list[str]]) -> None:
    assert _read(text) == [row]


def test_a_first_column_without_words_is_refused() -> None:
    """As CoNLL-2012 has the name of the document."""
    text = "#begin document (bc/a); part 000\n"
    text += "".join(f"bc/a 0 {n} {word} NN * - -\n" for n, word in enumerate(["the", "cat", "sat"]))
    error = refusal(DataError, lambda: _read(text + "\n#end document\n"))
    assert "--read header=" in str(error.do) and error.where == "a.conll, line 2"
    (row,) = _read(text, ("document", "part", "id", "token", "pos", "parse", "a", "b"))
    assert row["token"] == ["the", "cat", "sat"]
    assert len(_read("a b c d e O\na b c d e O\n")) == 1, "the control: two words may be alike"


def test_the_columns_may_be_named() -> None:
    """As GermEval 2014 has outer and inner entities."""
    text = "1\tanna\tB-PER\tO\n2\tsat\tO\tO\n\n1\tx\tO\tB-LOC\n"
    names = ("id", "token", "outer", "in")
    one, two = _read(text, names)
    assert list(one.values()) == [["1", "2"], ["anna", "sat"], ["B-PER", "O"], ["O", "O"]]
    assert tuple(one) == names and two["in"] == ["B-LOC"]
    error = refusal(UsageError, lambda: _read(text, ("token", "tag")))
    assert error.where == "a.conll, line 1" and "2 names for 4" in str(error.found)
    with pytest.raises(UsageError, match="same name"):
        _read(text, ("id", "token", "in", "in"))


TSV = 'Ann\tB-PER\n"\tO\n\nRome\tB-LOC\n'


@pytest.mark.parametrize(
    ("text", "is_words"),
    [
        (TSV, True),
        ("\n" + TSV, True),
        (TSV.replace("\t", "\tNN\t"), True),
        ("#\thttp://a.b\n1\tAnn\tB-PER\tO\n\n", True),
        ("Ann\tB\nsat\tO\n\n", True),
        ("text\tlabel\n" + TSV, False),
        ("token\tlabel\n" + TSV, True),
        ("word\tlabel\n", False),
        (TSV.replace("\n\n", "\n"), False),
        ("Ann\nLee\n\nRome\n", False),
        (TSV.replace('"', "two words"), False),
        ("good film\tpos\n\nbad film\tneg\n", False),
        ("", False),
    ],
)
def test_a_tsv_may_be_one(text: str, is_words: bool) -> None:
    assert is_tsv_of_words(text) is is_words


def test_a_header_names_the_columns_and_is_no_word(tmp_path: Path) -> None:
    text = "ner Word pos\nB-PER Anna NN\nO sat V\n\nB-LOC Rome NN\n"
    wanted = [["Anna", "sat"], ["Rome"]], [["B-PER", "O"], ["B-LOC"]]
    for beginning, names in (("", ()), ("-DOCSTART- O\n\n", ()), ("\n", ("tags", "tokens", "x"))):
        tags, tokens = names[:2] or ("ner", "tokens")
        sentences = _read(beginning + text.replace("pos\n", "pos\n" + "\n" * bool(names)), names)
        assert ([s[tokens] for s in sentences], [s[tags] for s in sentences]) == wanted
    assert len(load(write(tmp_path / "a.txt", text)).first) == 2
    for header in ("Token Tag", "Token Tag more"):
        assert _read(f"{header}\nRome B-LOC\n") == _read("Rome B-LOC\n")
    # The control: below other words, names of columns are words.
    assert _read("the O\nword tag\n") == [{"tokens": ["the", "word"], "tags": ["O", "tag"]}]


def test_tags_before_the_words_are_refused() -> None:
    error = refusal(DataError, lambda: _read("x O\n\nB-PER\tanna\nO\tmet\nO\tbob\n"))
    assert error.where == "a.conll, line 1"
    assert _read("B-52 NN\nflew VB\nby RB\n")[0]["tags"] == ["NN", "VB", "RB"]


TOWNS = ("Ann Rome", "Bob Lund", "Cy Graz", "Di Ulm", "Eve Po")
SENTENCES = [
    [(name, "B-PER", "NNP"), ("went", "O", "VBD"), (town, "B-LOC", "NNP"), (".", "O", ".")]
    for name, town in map(str.split, TOWNS)
]


def _file(line: str) -> str:
    """The sentences with such lines: {w}ord, {t}ag, {p}art of speech, {n}umber, {s}entence, and
    {k}ind of the entity."""
    sentences = [
        "\n".join(
            line.format(w=word, t=tag, p=pos, n=n, s=s, k=tag[2:] or "O", low=word.lower())
            for n, (word, tag, pos) in enumerate(words, 1)
        )
        for s, words in enumerate(SENTENCES)
    ]
    return "\n\n".join(sentences) + "\n"


@pytest.mark.parametrize(
    ("line", "header"),
    [
        ("{w} {t} +", "tokens,tags,column3"),
        ("{w}\t{t}\tdoc{s}", "tokens,tags,column3"),
        ("{w} {t} 0.{n}", "tokens,tags,column3"),
        ("{w} {t} {p}", "tokens,tags,column3"),
        ("{w} {t} {low}", "tokens,tags,column3"),
        ("{w} {p} {low}", "tokens,tags,column3"),
        ("{w} {k} doc{s}", "tokens,tags,column3"),
        ("{w} {p} {t} {s}.5", "tokens,column2,tags,column4"),
        ("{n} {w} {t} doc{s}", "column1,tokens,tags,column4"),
        ("{t} {w}", "tags,tokens"),
        ("{t}\t{w}\t{p}", "tags,tokens,column3"),
        ("doc{s} {w} {t}", "column1,tokens,tags"),
        ("{p} {w} {t}", "column1,tokens,tags"),
    ],
)
def test_a_column_that_may_be_another_is_asked_about(line: str, header: str) -> None:
    error = refusal(DataError, lambda: _read(_file(line)))
    assert str(error.do).endswith(f"--read header={header}")
    # What is advised works: the tags are those of the file.
    first = _read(_file(line), header.split(","))[0]
    tags = [word[2] if "{p} {low}" in line else word[1] for word in SENTENCES[0]]
    assert first["tokens"] == [word for word, _, _ in SENTENCES[0]]
    assert first["tags"] == ([tag[2:] or "O" for tag in tags] if "{k}" in line else tags)


@pytest.mark.parametrize(
    "line",
    [
        "{w} {t}",
        "{w}\t{t}",
        "{w} {p} {t}",
        "{w} {low} {p} {t}",
        "{n} {w} {t}",
        "{w} {p} B-NP {t}",
        "  {w} {t}",
    ],
)
def test_columns_as_they_should_be_are_read(line: str) -> None:
    """The control of the test above."""
    made = _read("-DOCSTART- -X- O O\n\n" + _file(line))
    assert made[0]["tokens"] == [word for word, _, _ in SENTENCES[0]]
    assert made[0]["tags"] == [tag for _, tag, _ in SENTENCES[0]] and len(made) == len(SENTENCES)


def test_tags_of_other_kinds_and_none() -> None:
    assert _read(_file("{w} {p}"))[0]["tags"][0] == "NNP", "parts of speech alone"
    assert _read("Ann B-NP O\nsat O O\n")[0]["tags"] == ["O", "O"], "a slice without an entity"
    with pytest.raises(DataError, match="no tags"):
        _read(_file("{w} 0.{n}"))


def test_the_share_of_bad_rows_is_one_of_sentences() -> None:
    good = "Ann B-PER\nsat O\n\n"
    text = good * 150 + "to O\n\t O\nme O\n\n" + good * 50
    counts = Counts(rows=text.count("\n"))
    with Ledger(ReadingOptions(on_bad="skip"), counts, None) as ledger:
        made = [row for row, _ in rows([TextBlock(text, 1)], "a.conll", (), ledger)]
    assert len(made) == 200 and {tuple(row["tokens"]) for row in made} == {("Ann", "sat")}
    assert (counts.rejected, counts.rows) == (1, 201)
    assert counts.first_rejected == "a.conll, line 451"


def test_a_word_of_a_no_break_space_is_one() -> None:
    assert _read("\u00a0 O\nAnn B-PER\n")[0]["tokens"] == ["\u00a0", "Ann"]


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
PLAIN = SENTENCE.split("Haus\n", 1)[1]
BARE = "1\tHà Nội\t_\tPROPN\t_\t_\t_\t_\t_\t_\n2\t#\t_\tSYM\t_\t_\t_\t_\t_\t_"


def write_parts(folder: Path) -> Path:
    """A treebank as it is downloaded."""
    for part, count in (("train", 20), ("dev", 4), ("test", 5)):
        text = "".join(SENTENCE.replace("Haus", f"Haus{part}{n}") for n in range(count))
        write(folder / f"de_gsd-ud-{part}.conllu", text)
    write(folder / "LICENSE.txt", "free\n")
    write(folder / "README.md", "# A treebank\n")
    write(folder / "stats.xml", "<treebank/>\n")
    return folder


def test_words_with_all_that_is_told_of_them(tmp_path: Path) -> None:
    one, two = load(write(tmp_path / "a.conllu", SENTENCE + BARE)).first
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
    made = prepare(write_parts(tmp_path))
    assert made.task.name == "tagging" and made.task.columns["tags"] == "upos"
    assert sizes(made) == {"train": 20, "validation": 4, "test": 5}
    assert "VVFIN" in prepare(tmp_path, columns={"tags": "xpos"}).labels.names


@pytest.mark.parametrize("name", ["a.conll", "a.txt", "a.tsv", "a.bio"])
@pytest.mark.parametrize("text", [SENTENCE, PLAIN], ids=["with", "without 3-4"])
def test_a_treebank_is_one_by_any_name(text: str, name: str, tmp_path: Path) -> None:
    (row,) = load(write(tmp_path / name, text)).first
    assert row.values["tokens"] == ["Sie", "geht", "zu", "dem", "Haus"]
    assert row.values["upos"][0] == "PRON"


def test_a_table_of_ten_columns_is_no_treebank(tmp_path: Path) -> None:
    rows = "".join("\t".join([str(n), f"text {n}", *"abcdefgh"]) + "\n" for n in range(1, 9))
    made = load(write(tmp_path / "c.tsv", rows), header=("id", "text", *"cdefghij")).first
    assert len(made) == 8 and made[0].values["text"] == "text 1"
    # Where its columns are named, the words that are written as one are a line of their own.
    named = load(write(tmp_path / "d.conll", PLAIN), header=("a", "tokens", "c", "tags", *"efghij"))
    assert named.first[0].values["tags"][2] == "_"


HEAD = "Sentence #,Word,POS,Tag\n"
TWO = "Sentence: 1,Kalomi,NNP,B-PER\n,sat,VBD,O\nSentence: 2,Tion,NNP,B-LOC\n"


def test_sentences_are_put_together(tmp_path: Path) -> None:
    one, two = load(write(tmp_path / "a.csv", HEAD + TWO)).first
    assert list(one.values.values()) == [
        "Sentence: 1",
        ["Kalomi", "sat"],
        ["NNP", "VBD"],
        ["B-PER", "O"],
    ]
    assert two.values["Word"] == ["Tion"] and (one.number, two.number) == (2, 4)
    # The number in every row, as pandas writes it after a gap.
    numbered = "sentence_id,token,ner\n1.0,Kalomi,B-PER\n1.0,sat,O\n2.0,Tion,B-LOC\n"
    rows = load(write(tmp_path / "b.csv", numbered)).first
    assert [row.values["token"] for row in rows] == [["Kalomi", "sat"], ["Tion"]]


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (("sentence", "word", "label"), ("He sat on the bank", "bank", "1")),  # a word in a text
        (("id", "word", "label"), ("1", "sat", "O")),  # nothing says what a sentence is
        (("sentence_id", "tokens", "tags"), ("1", "['He', 'sat']", "['O', 'O']")),
        (("sentence_id", "words", "tags"), ("1", "He sat", "O O")),
        (("sentence", "label"), ("1", "O")),
    ],
)
def test_other_tables_are_none(names: tuple[str, ...], first: tuple[str, ...]) -> None:
    assert columns_of(names, first) is None
    assert columns_of(("sentence_id", "word", "tag"), ("1", "He", "O")) == ("sentence_id", "word")
