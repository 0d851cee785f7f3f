"""The report: figures counted by hand, by source, and the gain on a domain of one's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

from maskwright.text.tokenizer.report import report
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import prose, trained


@dataclass(frozen=True)
class Note:
    text: str
    source: str


def test_figures_by_hand() -> None:
    tokenizer = train(["ab ab ab abc"] * 2, TokenizerChoice(kind="character", vocabulary=20))
    figures = report(tokenizer, [Note("ab é", "one"), Note("a", "two"), Note("bb", "two")])
    one, two = figures.sources["one"], figures.sources["two"]
    assert (one.documents, one.bytes, one.words, one.tokens, one.unknown) == (1, 5, 2, 4, 1)
    assert (two.documents, two.bytes, two.words, two.tokens, two.unknown) == (2, 3, 2, 3, 0)
    total = figures.total
    assert (total.fertility, total.unknown_rate, total.bytes_per_token) == (7 / 4, 1 / 6, 8 / 7)
    assert two.fertility == 3 / 2 and two.unknown_rate == 0
    assert figures.used_ids == 4


def test_the_table() -> None:
    many = [Note(text, f"source {n}") for n, text in enumerate(prose(30))]
    lines = report(trained("wordpiece"), many).render().splitlines()
    assert "30,522" in lines[0] and "50,257" in lines[0] and "32,000" in lines[0]
    assert len(lines) == 2 + 20 + 2 and "10 more sources" in lines[-2]
    assert lines[-1].startswith("all ") and lines[1].split()[0] == "source"
    sizes = [float(line.split()[2]) for line in lines[2:6]]
    assert sizes == sorted(sizes, reverse=True)


def test_nothing_to_report() -> None:
    for kind, texts, row in (
        ("bpe", [], "all 0 bytes – – –"),
        ("character", ["  "], "all 2 bytes – – 1.00"),
    ):
        figures = report(trained(kind), texts)
        assert math.isnan(figures.total.fertility) and "nan" not in figures.render()
        assert figures.render().splitlines()[-1].split() == row.split()


def test_a_tokenizer_of_the_domain_makes_shorter_sequences() -> None:
    """B7: trained on the user's own text, against one trained on other text."""
    choice = TokenizerChoice(kind="wordpiece", vocabulary=600)
    own = train(prose(300, 11), choice)
    other = train(["quick brown foxes jump over lazy dogs while wizards quiz nymphs"] * 9, choice)
    held_out = prose(50, 11)[-20:]
    assert report(own, held_out).total.fertility < report(other, held_out).total.fertility
