"""BPE with an end-of-word marker of its own: the published example, a slow trainer as oracle."""

from __future__ import annotations

import random

import pytest
import tokenizers

from maskwright.text.tokenizer.training.merging import PairTable, train_bpe
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import LOW, merged, prose, random_words, slow_bpe, words_as_text


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


def test_the_library_glues_the_marker() -> None:
    """Why the trainer is ours: the library never has `est` and `</w>` as neighbours."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.BpeTrainer(end_of_word_suffix="</w>", show_progress=False)
    model.train_from_iterator(words_as_text(LOW), trainer)
    vocabulary = model.get_vocab()
    assert "est" not in vocabulary and "t</w>" in vocabulary


@pytest.mark.parametrize("seed", range(25))
def test_equals_the_slow_trainer(seed: int) -> None:
    rng = random.Random(seed)
    words = random_words(rng)
    least = rng.choice([1, 2, 2, 5])
    merges = train_bpe(words, merges=40, min_frequency=least)
    assert [(m.left, m.right, m.count) for m in merges] == slow_bpe(words, 40, least)


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


def test_counts_stay_true_while_merging() -> None:
    rng = random.Random(3)
    words = [[rng.randint(0, 3) for _ in range(rng.randint(1, 12))] for _ in range(50)]
    counts = [rng.randint(1, 5) for _ in words]
    table = PairTable(words, counts)
    for new in range(4, 20):
        left, right = max(table.pairs, key=lambda p: (table.pairs[p], p))
        table.merge(left, right, new)
        fresh = PairTable(words, counts)
        assert table.pairs == fresh.pairs
        assert {s: n for s, n in table.symbols.items() if n} == fresh.symbols
        assert (left, right) not in table.pairs
