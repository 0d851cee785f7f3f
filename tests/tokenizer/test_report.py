"""The report: figures counted by hand, in total and by source."""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.text.tokenizer.report import report
from maskwright.text.tokenizer.training.train import TokenizerChoice, train


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
