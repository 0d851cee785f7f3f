"""Sentences with tags: checks, and where their words stand. (Files: test_table.py.)"""

from __future__ import annotations

import pytest

from maskwright.base.errors import DataError, UsageError
from maskwright.text.corpus.lines import TextBlock
from maskwright.text.corpus.reading import Counts, Ledger, ReadingOptions
from maskwright.text.tables.formats.conll import is_one, rows


def _read(text: str) -> list[dict[str, object]]:
    return [row for row, _ in rows([TextBlock(text, 1)], "a.conll")]


def test_comments_before_a_sentence_are_no_words() -> None:
    text = "# id 5239d808-f3\tdomain=en\nanna _ _ B-PER\nsat _ _ O\n\n"
    text += "# text = x y\n# sent_id = 2\nx O\n"
    assert _read(text) == [
        {
            "tokens": ["anna", "sat"],
            "tags": ["B-PER", "O"],
            "column 2": ["_", "_"],
            "column 3": ["_", "_"],
        },
        {"tokens": ["x"], "tags": ["O"]},
    ]
    # The control: a tweet may begin with the sign, and within a sentence it is a word.
    assert _read("# O\nfun O\n# O\n") == [{"tokens": ["#", "fun", "#"], "tags": ["O"] * 3}]
    assert _read("a O\n# id\n") == [{"tokens": ["a", "#"], "tags": ["O", "id"]}]


def test_sources_and_numbers_of_words_are_no_words() -> None:
    """As GermEval 2014 has them."""
    text = "#\thttp://a.b [2009]\n1\tanna\tB-PER\tO\n2\tsat\tO\tO\n\n"
    assert _read(text) == [
        {"tokens": ["anna", "sat"], "tags": ["O", "O"], "column 3": ["B-PER", "O"]}
    ]
    assert _read("# Document 12\nanna NNP B-PER\n") == [
        {"tokens": ["anna"], "tags": ["B-PER"], "column 2": ["NNP"]}
    ]
    assert _read("1 O\n2 O\n")[0]["tokens"] == ["1", "2"], "the control: there is nothing else"


def test_a_first_column_without_words_is_refused() -> None:
    """As CoNLL-2012 has the name of the document."""
    begin = "#begin document (bc/a); part 000\n"
    words = [f"bc/a 0 {n} {word} NN * - -" for n, word in enumerate(["the", "cat", "sat"])]
    with pytest.raises(DataError) as refused:
        _read(begin + "\n".join(words) + "\n\n#end document\n")
    assert "--read header=" in str(refused.value.do) and refused.value.where == "a.conll, line 2"
    names = ("document", "part", "id", "token", "pos", "parse", "a", "b")
    ((row, _),) = rows([TextBlock(begin + "\n".join(words), 1)], "a.conll", names)
    assert row["token"] == ["the", "cat", "sat"]
    assert len(_read("a b c d e O\na b c d e O\n")) == 1, "the control: two words may be alike"


def test_the_columns_may_be_named() -> None:
    """As GermEval 2014 has outer and inner entities."""
    text = "1\tanna\tB-PER\tO\n2\tsat\tO\tO\n\n1\tx\tO\tB-LOC\n"
    one, two = (
        row for row, _ in rows([TextBlock(text, 1)], "a.conll", ("id", "token", "outer", "in"))
    )
    assert one == {
        "id": ["1", "2"],
        "token": ["anna", "sat"],
        "outer": ["B-PER", "O"],
        "in": ["O", "O"],
    }
    assert two["in"] == ["B-LOC"]
    with pytest.raises(UsageError) as refused:
        list(rows([TextBlock(text, 1)], "a.conll", ("token", "tag")))
    assert refused.value.where == "a.conll, line 1" and "2 names for 4" in str(refused.value.found)
    with pytest.raises(UsageError, match="same name"):
        list(rows([TextBlock(text, 1)], "a.conll", ("id", "token", "in", "in")))


def test_a_tsv_may_be_one() -> None:
    words = 'Ann\tB-PER\n"\tO\n\nRome\tB-LOC\n'
    assert is_one(words) and is_one("\n" + words) and is_one(words.replace("\t", "\tNN\t"))
    tables = [
        "text\tlabel\n" + words,
        words.replace("\n\n", "\n"),
        "Ann\nLee\n\nRome\n",
        words.replace('"', "two words"),
        "good film\tpos\n\nbad film\tneg\n",
        "",
    ]
    assert is_one("#\thttp://a.b\n1\tAnn\tB-PER\tO\n\n") and is_one("Ann\tB\nsat\tO\n\n")
    for table in tables:
        assert not is_one(table)


def test_tags_before_the_words_are_refused() -> None:
    with pytest.raises(DataError) as refused:
        _read("x O\n\nB-PER\tanna\nO\tmet\nO\tbob\n")
    assert refused.value.where == "a.conll, line 1"
    assert _read("B-52 NN\nflew VB\nby RB\n")[0]["tags"] == ["NN", "VB", "RB"]


def test_a_word_may_hold_a_blank_where_tabs_part_the_columns() -> None:
    assert _read("Hà Nội\tB-LOC\n10\u00a0000\tO\n") == [
        {"tokens": ["Hà Nội", "10\u00a0000"], "tags": ["B-LOC", "O"]}
    ]
    assert _read("10\u00a0000 O\nword  \t\tO\n") == [
        {"tokens": ["10\u00a0000", "word"], "tags": ["O", "O"]}
    ]


SENTENCES = [
    [
        (name, "B-PER", "NNP"),
        ("went", "O", "VBD"),
        ("to", "O", "TO"),
        (town, "B-LOC", "NNP"),
        (".", "O", "."),
    ]
    for name, town in zip(
        ("Ann", "Bob", "Cy", "Di", "Eve"), ("Rome", "Lund", "Graz", "Ulm", "Po"), strict=True
    )
]


def _file(line: str) -> str:
    """The sentences with such lines: {w}ord, {t}ag, {p}art of speech, {n}umber, {s}entence, and
    {k}ind of the entity."""
    return (
        "\n\n".join(
            "\n".join(
                line.format(w=word, t=tag, p=pos, n=n, s=s, k=tag[2:] or "O", low=word.lower())
                for n, (word, tag, pos) in enumerate(words, 1)
            )
            for s, words in enumerate(SENTENCES)
        )
        + "\n"
    )


@pytest.mark.parametrize(
    ("line", "header"),
    [
        ("{w} {t} +", "tokens,tags,column3"),
        ("{w}\t{t}\tdoc{s}", "tokens,tags,column3"),
        ("{w} {t} 0.{n}", "tokens,tags,column3"),
        ("{w} {t} {s}{n}", "tokens,tags,column3"),
        ("{w}\t{t}\t_", "tokens,tags,column3"),
        ("{w} {t} {p}", "tokens,tags,column3"),
        ("{w} {t} {low}", "tokens,tags,column3"),
        ("{w} {p} {low}", "tokens,tags,column3"),
        ("{w} {k} doc{s}", "tokens,tags,column3"),
        ("{w} {p} {t} {s}.5", "tokens,column2,tags,column4"),
        ("{n} {w} {t} doc{s}", "column1,tokens,tags,column4"),
        ("{t} {w}", "tags,tokens"),
        ("{t}\t{w}\t{p}", "tags,tokens,column3"),
        ("doc{s} {w} {t}", "column1,tokens,tags"),
        ("{s}{n}7 {w} {t}", "column1,tokens,tags"),
        ("{p} {w} {t}", "column1,tokens,tags"),
    ],
)
def test_a_column_that_may_be_another_is_asked_about(line: str, header: str) -> None:
    with pytest.raises(DataError) as refused:
        _read(_file(line))
    assert str(refused.value.do).endswith(f"--read header={header}") and refused.value.found
    # What is advised works: the tags are those of the file.
    made = [row for row, _ in rows([TextBlock(_file(line), 1)], "a.conll", header.split(","))]
    told = [word[2] if "{p} {low}" in line else word[1] for word in SENTENCES[0]]
    wanted = [tag[2:] or "O" for tag in told] if "{k}" in line else told
    assert made[0]["tokens"] == [word for word, _, _ in SENTENCES[0]]
    assert made[0]["tags"] == wanted


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
    assert _read(_file("{w} {p}"))[0]["tags"][0] == "NNP", "parts of speech alone"
    assert _read("Ann B-NP O\nsat O O\n")[0]["tags"] == ["O", "O"], "a slice without an entity"
    with pytest.raises(DataError, match="no tags"):
        _read(_file("{w} 0.{n}"))


def test_a_sentence_with_a_bad_line_is_dropped_whole() -> None:
    good = "Ann B-PER\nsat O\n\n"
    for bad, what in (
        ("to O\n\t O\nme O\n\n", "a word of blanks"),
        (" O\nto O\n\n", "blanks"),
        ("to O\nme\n\n", "number of columns"),
        ("to O\rme O\n\n", "carriage return"),
    ):
        text = good * 150 + bad + good * 50
        with pytest.raises(DataError, match=what) as refused:
            _read(text)
        assert "on_bad='skip'" in str(refused.value.do)
        counts = Counts(rows=text.count("\n"))
        with Ledger(ReadingOptions(on_bad="skip"), counts, None) as ledger:
            made = [row for row, _ in rows([TextBlock(text, 1)], "a.conll", (), ledger)]
        assert len(made) == 200 and {tuple(row["tokens"]) for row in made} == {("Ann", "sat")}
        assert (counts.rejected, counts.rows) == (1, 201), "sentences are the rows"
        assert counts.first_rejected == "a.conll, line 451"
    assert _read("\u00a0 O\nAnn B-PER\n")[0]["tokens"] == ["\u00a0", "Ann"], "the control"
