"""F66: one enormous word of each class of characters costs time in proportion to its length."""

from __future__ import annotations

import time

import pytest

from maskwright.tokenizer.pipeline import LONGEST_WORD
from tokenizer.toy_tokenizers import KINDS, trained

CLASSES = {
    "letter": "a",
    "letters": "abcdefghijklmnopqrstuvwxyz",
    "space": " ",
    "digit": "1",
    "punctuation": ".",
    "marker": "<",
    "mark": "\u0301",
    "marks out of order": "\u0301\u0323",
    "emoji": "😀",
    "ideograph": "漢",
}


def word(name: str, size: int) -> str:
    letters = CLASSES[name]
    return (letters * (size // len(letters) + 1))[:size]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_F66_a_word_of_100000(kind: str, name: str) -> None:
    """Anything quadratic would take minutes here and be stopped by the time limit."""
    tokenizer = trained(kind)
    text = word(name, 100_000)
    ids = tokenizer.encode(text)
    if kind == "byte-bpe":
        assert tokenizer.decode(ids) == text
    if kind == "character":
        assert len(ids) == 100_000
    if kind == "wordpiece" and name.startswith("letter"):
        assert ids == [tokenizer.unknown]
        assert tokenizer.unknown not in tokenizer.encode("a" * LONGEST_WORD)


@pytest.mark.proof
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_F66_twice_the_length_takes_twice_the_time(kind: str, name: str) -> None:
    tokenizer = trained(kind)

    def seconds(size: int) -> float:
        text, best = word(name, size), 1e9
        for _ in range(3):
            start = time.process_time()
            tokenizer.encode(text)
            best = min(best, time.process_time() - start)
        return best

    half, whole = seconds(500_000), seconds(1_000_000)
    assert whole < 0.02 or whole <= 3.0 * half
