"""Unigram: best splits against brute force, expected counts against enumeration, sampling."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections import Counter
from collections.abc import Container, Iterator

import numpy as np
import pytest

from maskwright.base.errors import ConfigError, TokenizerError, UsageError
from maskwright.base.randomness import key, uniforms
from maskwright.text.store.tokenize import sentence_starts
from maskwright.text.tokenizer.splits import (
    SampledTokenizer,
    SubwordSampling,
    encode_sampled,
    sampled_split,
)
from maskwright.text.tokenizer.training import unigram
from maskwright.text.tokenizer.training.unigram import LONGEST_WORD, Lattice, train_unigram
from tokenizer.toy_tokenizers import from_files, prose, trained

WORDS = {"▁hugs": 5, "▁hug": 10, "▁pug": 5, "▁pun": 12, "▁bun": 4, "▁unhug": 3, "▁uuu": 2}


def splits(word: str, known: Container[str]) -> Iterator[tuple[str, ...]]:
    """Every way to cut `word` into known parts."""
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(word)]
        split = tuple(word[a:b] for a, b in itertools.pairwise(places))
        if all(part in known for part in split):
            yield split


def test_best_split_equals_brute_force() -> None:
    """B5: the saved scores, all splits, the largest sum; against what the library encodes."""
    tokenizer = trained("unigram")
    scores = tokenizer.scores
    assert scores is not None
    words = {w for text in prose(40, 3) for w in text.split() if w.isalnum() and len(w) <= 10}
    assert len(words) > 50
    for word in sorted(words):
        best = max(sum(scores[p] for p in split) for split in splits("▁" + word, scores))
        tokens = tokenizer.tokens(tokenizer.encode(word))
        assert "".join(tokens) == "▁" + word
        assert sum(scores[p] for p in tokens) == pytest.approx(best, abs=1e-9), word


def enumerated(scores: dict[str, float]) -> tuple[Counter[str], float]:
    """Expected counts and log-likelihood of WORDS by writing down every split."""
    expected: Counter[str] = Counter()
    likelihood = 0.0
    for word, count in WORDS.items():
        weights = {split: math.exp(sum(scores[p] for p in split)) for split in splits(word, scores)}
        total = sum(weights.values())
        likelihood += count * math.log(total)
        for split, weight in weights.items():
            for piece in split:
                expected[piece] += count * weight / total
    return expected, likelihood


def test_expected_counts_equal_enumeration() -> None:
    lattice = Lattice(WORDS, 60)
    strings = lattice.strings()
    values = np.log(np.arange(2, 2 + lattice.size) / 1000.0)
    expected, likelihood = enumerated(dict(zip(strings, values, strict=True)))
    counts, likelihood_of_lattice = lattice.expected(values)
    assert likelihood_of_lattice == pytest.approx(likelihood)
    assert counts == pytest.approx([expected[piece] for piece in strings], abs=1e-9)
    # Pieces that are forgotten stay forgotten.
    kept = np.flatnonzero((np.arange(lattice.size) % 2 == 0) | (lattice.lengths == 1))
    lattice.keep(kept)
    assert lattice.strings() == [strings[i] for i in kept]
    scores = np.full(lattice.size, -2.0)
    expected, _ = enumerated(dict(zip(lattice.strings(), scores, strict=True)))
    assert lattice.expected(scores)[0] == pytest.approx([expected[s] for s in lattice.strings()])


def test_best_paths_and_losses_equal_enumeration() -> None:
    lattice = Lattice(WORDS, 60)
    strings = lattice.strings()
    values = -np.sqrt(1.0 + np.arange(lattice.size))
    scores = dict(zip(strings, values, strict=True))

    def best(text: str, forbidden: str = "") -> tuple[float, tuple[str, ...]]:
        allowed = splits(text, scores.keys() - {forbidden})
        return max((sum(scores[p] for p in s), s) for s in allowed)

    counts: Counter[str] = Counter()
    for word, count in WORDS.items():
        for piece in best(word)[1]:
            counts[piece] += count
    assert list(lattice.best(values)) == [counts[piece] for piece in strings]
    for piece, without in zip(strings, lattice.without(values), strict=True):
        score = -math.inf if len(piece) == 1 else best(piece, piece)[0]
        assert without == pytest.approx(score), piece


def test_seeds_are_the_substrings_that_can_go_on_differently() -> None:
    lattice = Lattice({"abcabc": 3, "abcx": 2}, 100)
    counts = dict(zip(lattice.strings(), lattice.seed_counts, strict=True))
    assert counts["abc"] == 8
    assert "ab" not in counts  # always followed by c
    assert {"a", "b", "c", "x"} <= set(counts)


def test_every_character_stays_a_piece() -> None:
    pieces = train_unigram(WORDS, tokens=12)
    assert set("▁hugspnb") <= set(pieces) and len(pieces) == 12
    assert math.fsum(math.exp(s) for s in pieces.values()) <= 1.0001
    assert list(pieces.values()) == sorted(pieces.values(), reverse=True)


# ------------------------------------------------------------------------------ large counts
def gigabytes(total: int) -> dict[str, int]:
    """About `total` words of prose, and two times a word of 24 letters of its own."""
    words = Counter("▁" + word for text in prose() for word in text.split())
    rare = "".join(chr(0x250 + n) for n in range(LONGEST_WORD))
    return {word: count * (total // words.total()) for word, count in words.items()} | {rare: 2}


def test_a_rare_word_in_gigabytes_has_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    words = gigabytes(10**9)
    pieces = train_unigram(words, tokens=300)
    assert len(pieces) == 300 and -40 < min(pieces.values()) < max(pieces.values()) < 0
    assert set("".join(words)) <= set(pieces)
    monkeypatch.setattr(unigram, "LIFT", 0)  # the control: the word's probability is 0
    with pytest.raises(TokenizerError):
        train_unigram(words, tokens=300)


def test_counts_that_no_number_can_hold_are_refused() -> None:
    with pytest.raises(TokenizerError):
        train_unigram(gigabytes(10**40), tokens=300)


# ------------------------------------------------------------------------------ sampling
def test_splits_are_drawn_with_their_probability() -> None:
    scores = {"a": -1.0, "b": -1.5, "c": -2.0, "ab": -2.0, "bc": -2.5, "abc": -3.0}
    draws = uniforms(key("sample", 0, np.arange(5_000)), 3)
    for alpha in (0.0, 0.5, 1.0):
        ways = list(splits("abc", scores))
        weights = [math.exp(alpha * sum(scores[p] for p in s)) for s in ways]
        drawn = [sampled_split("abc", scores, alpha, list(row), -9.0, 3) for row in draws]
        counts = Counter(map(tuple, drawn))
        for way, weight in zip(ways, weights, strict=True):
            share = weight / sum(weights)
            assert counts[way] / 5_000 == pytest.approx(share, abs=4 * math.sqrt(share / 5_000))


def test_sampled_ids_spell_the_text_and_repeat() -> None:
    tokenizer = trained("unigram")
    text = prose(1, 5)[0] + " 漢ж"
    sampled = [encode_sampled(tokenizer, text, alpha=0.2, seed=1, counter=n) for n in range(5)]
    again = encode_sampled(tokenizer, text, alpha=0.2, seed=1, counter=0)
    assert sampled[0] == again and len({tuple(s) for s in sampled}) == 5
    for ids in sampled:
        assert tokenizer.decode(ids) == tokenizer.decode(tokenizer.encode(text))
    sharp = encode_sampled(tokenizer, text, alpha=1e4, seed=1, counter=0)
    assert sharp == tokenizer.encode(text)


def test_scores_that_are_kept_can_not_be_changed_and_are_pickled_along() -> None:
    tokenizer = from_files(trained("unigram").files())
    sampled = encode_sampled(tokenizer, "Kalomi sat.", alpha=0.5, seed=0, counter=0)
    with pytest.raises(TypeError):
        tokenizer.scores["lo"] = 0.0  # type: ignore[index]
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.scores == tokenizer.scores
    assert encode_sampled(again, "Kalomi sat.", alpha=0.5, seed=0, counter=0) == sampled
    assert again.fingerprint == tokenizer.fingerprint
    assert trained("bpe").scores is None and trained("bpe").score_limits is None


def test_only_a_unigram_vocabulary_can_be_sampled() -> None:
    with pytest.raises(UsageError, match="wordpiece"):
        encode_sampled(trained("wordpiece"), "a", alpha=1.0, seed=0, counter=0)
    with pytest.raises(UsageError, match="alpha -1"):
        encode_sampled(trained("unigram"), "a", alpha=-1.0, seed=0, counter=0)


TEXT = prose(1, 5)[0] + "  two  spaces.\n\nCafé naïve,\tx 漢ж. So it  ends. "
OPTIONS = {
    "byte-bpe": {"bpe_dropout": 0.3},
    "bpe": {"bpe_dropout": 0.3},
    "unigram": {"unigram_alpha": 0.2},
}


@pytest.mark.parametrize(("kind", "options"), OPTIONS.items())
def test_sampled_training_text_is_the_text(kind: str, options: dict[str, float]) -> None:
    """White space, unknown characters and the places of sentences included."""
    tokenizer, marks = trained(kind), [0, *sentence_starts(TEXT)[1:], TEXT.index("naï") + 2]
    marks.sort()

    def sampled(seed: int = 0, **changed: float) -> tuple[list[int], list[int]]:
        sampling = SubwordSampling(seed=seed, **(changed or options))  # type: ignore[arg-type]
        ((ids, places),) = SampledTokenizer(tokenizer, sampling).encode_marked([TEXT], [marks])
        return ids.tolist(), places.tolist()

    ((usual, usual_places),) = tokenizer.encode_marked([TEXT], [marks])
    seeds = [sampled(seed) for seed in range(5)]
    assert sampled(0) == seeds[0] and len({tuple(ids) for ids, _ in seeds}) == 5
    for ids, places in seeds:
        assert len(ids) > len(usual) and len(places) == len(marks) > 3
        for place, usual_place in zip(places, usual_places, strict=True):
            assert tokenizer.decode(ids[place:]) == tokenizer.decode(usual[usual_place:])
    never = {"unigram_alpha": 1e3} if kind == "unigram" else {"bpe_dropout": 1e-9}
    assert sampled(0, **never) == (usual.tolist(), usual_places.tolist()), "the control"


def test_a_merge_is_left_out_at_its_rate() -> None:
    """Of a word with one merge, and of one whose second merge needs the first."""
    model = {"vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", "ab c"]}
    files = trained("bpe").files()
    plain = json.loads(files["tokenizer.json"])
    plain |= {"added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None}
    plain["model"] = {"type": "BPE", **model}
    tokenizer = from_files({"tokenizer.json": json.dumps(plain).encode()})
    encoder = SampledTokenizer(tokenizer, SubwordSampling(bpe_dropout=0.3))
    texts = [f"{'ab ' * number}abc" for number in range(1, 90)]
    counts = Counter(token for ids in encoder.encode_batch(texts) for token in ids.tolist())
    pairs, total = sum(range(1, 90)), sum(range(1, 91))
    assert total == pairs + 90
    # `abc` is left as `ab c` where its second merge is left out.
    merged = (counts[3] + counts[4]) / (pairs + 89)
    assert merged == pytest.approx(0.7, abs=0.03)
    assert counts[4] / 89 == pytest.approx(0.49, abs=0.16)


@pytest.mark.parametrize(
    ("kind", "options"), [("unigram", OPTIONS["bpe"]), ("wordpiece", OPTIONS["unigram"])]
)
def test_another_kind_is_not_sampled(kind: str, options: dict[str, float]) -> None:
    with pytest.raises(ConfigError) as caught:
        SampledTokenizer(trained(kind), SubwordSampling(**options))  # type: ignore[arg-type]
    assert caught.value.where == f"subwords.{next(iter(options))}"
