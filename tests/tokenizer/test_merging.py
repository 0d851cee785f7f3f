"""BPE with an end-of-word marker of its own, and true WordPiece: merges by hand, slow trainers as
oracles, the difference between both."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from maskwright.text.tokenizer.training.merging import train_bpe, train_wordpiece
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import (
    LOW,
    merged,
    prose,
    random_words,
    slow_bpe,
    slow_wordpiece,
    trained,
    words_as_text,
)


@pytest.mark.parametrize("seed", range(25))
def test_merges_equal_those_of_the_slow_trainers(seed: int) -> None:
    rng = random.Random(seed)
    words, least = random_words(rng), rng.choice([1, 2, 2, 5])
    merges = train_bpe(words, merges=40, min_frequency=least)
    assert [(m.left, m.right, m.count) for m in merges] == slow_bpe(words, 40, least)
    merges = train_wordpiece(words, tokens=40, min_frequency=least)
    assert [(m.left, m.right) for m in merges] == slow_wordpiece(words, 40, least)


# ------------------------------------------------------------------------------ BPE
def test_the_published_example() -> None:
    learned = [(m.left, m.right, m.count) for m in train_bpe(LOW, merges=5)]
    est = [("e", "s", 9), ("es", "t", 9), ("est", "</w>", 9)]
    assert learned == [*est, ("l", "o", 7), ("lo", "w", 7)]
    letters = len(set("".join(LOW)) | set("</w>"))
    choice = TokenizerChoice(kind="bpe", vocabulary=5 + letters + 3 + 5)
    tokenizer = train(words_as_text(LOW), choice)
    assert tokenizer.vocabulary_size == choice.vocabulary
    assert tokenizer.tokens(tokenizer.encode("lowest")) == ["low", "est</w>"]
    assert tokenizer.tokens(tokenizer.encode("low")) == ["low", "</w>"]
    assert tokenizer.decode(tokenizer.encode("lowest low")) == "lowest low"


def test_merges_are_applied_in_their_order() -> None:
    """The library's reading of the saved file splits words as the learned merges say."""
    tokenizer = train(prose(), TokenizerChoice(kind="bpe", vocabulary=400))
    saved = [tuple(pair) for pair in tokenizer._plain["model"]["merges"]]
    words = {word for text in prose(20, 1) for word in text.split()}
    for word in sorted(w for w in words if w.isalpha() and w.isascii()):
        pieces: tuple[str, ...] = (*word, *"</w>")
        for pair in saved:
            pieces = merged(pieces, pair, "".join(pair))  # type: ignore[arg-type]
        assert tokenizer.tokens(tokenizer.encode(word)) == list(pieces), word


# ------------------------------------------------------------------------------ WordPiece
# The corpus of the Hugging Face course's account of WordPiece.
HUG = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}


def test_wordpiece_by_hand() -> None:
    """Symbols: h 15, p 17, b 4, ##u 36, ##g 20, ##n 16, ##s 5.

    (##g, ##s) 5/(20*5) = 1/20 is best ((h, ##u) has 15/(15*36) = 1/36, (##u, ##g) 20/(36*20) as
    well). Then ##g 15, ##gs 5: (h, ##u), (p, ##u) 17/(17*36), (b, ##u), (##u, ##g) 15/(36*15),
    (##u, ##n) 16/(36*16) and (##u, ##gs) 5/(36*5) all have 1/36; the most frequent is (p, ##u) 17.
    Then ##u 19, pu 17: (h, ##u) 15/(15*19) = 1/19 ties with (b, ##u) 4/(4*19); h is the more
    frequent. (##u, ##gs) is 5/(19*5), as high, but less frequent still.
    """
    learned = train_wordpiece(HUG, tokens=3)
    merges = [("##g", "##s", "##gs", 5), ("p", "##u", "pu", 17), ("h", "##u", "hu", 15)]
    assert [(m.left, m.right, m.token, m.count) for m in learned] == merges
    # BPE would have merged otherwise: (u, g) stands 20 times, more than any other.
    (merge,) = train_bpe(HUG, merges=1)
    assert (merge.left, merge.right, merge.count) == ("u", "g", 20)


def test_pairs_below_the_floor_are_left_alone() -> None:
    rare = {"xy": 1, "ab": 2, "ac": 2}
    assert {m.token for m in train_wordpiece(rare, tokens=9)} == {"ab", "ac"}
    assert {m.token for m in train_wordpiece(rare, tokens=9, min_frequency=1)} >= {"xy"}


def test_the_falling_floor_prefers_what_is_frequent() -> None:
    """With a fixed floor of 2 the rare word comes first; with the falling floor the frequent."""
    words = {"zq": 2, "the": 500, "them": 300, "then": 400}
    assert train_wordpiece(words, tokens=1)[0].token == "zq"
    falling = train_wordpiece(words, tokens=3, min_frequency=None)
    assert all(m.count >= 250 for m in falling)
    assert falling[0].token != "zq"
    everything = train_wordpiece(words, tokens=99, min_frequency=None)
    assert everything[-1].token == "zq"


def test_encoding_is_longest_match_first() -> None:
    tokenizer = trained("wordpiece")
    known = set(tokenizer.vocabulary)
    words = Counter(w for text in prose(30, 2) for w in text.split() if w.isalpha() and w.isascii())
    for word in words:
        pieces, start = [], 0
        while start < len(word):
            head = "##" if start else ""
            ends = [e for e in range(len(word), start, -1) if head + word[start:e] in known]
            pieces.append(head + word[start : ends[0]])
            start = ends[0]
        assert tokenizer.tokens(tokenizer.encode(word)) == pieces
