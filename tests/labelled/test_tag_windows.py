"""Words to labelled tokens and back: by hand, for every kind, with windows and dropped words."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from maskwright.base.errors import ConfigError, DataError
from maskwright.learn.tasks.windows.answers import IGNORE
from maskwright.learn.tasks.windows.tag_windows import TagWindows, first_tokens
from maskwright.text.tables.formats.conll import Sentence
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

every_kind = pytest.mark.parametrize("kind", KINDS)
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def sentence(words: str, tags: str = "", text: str = "") -> Sentence:
    return Sentence(tuple(words.split(" ")), tuple(tags.split()) if tags else None, text)


def perfect(windows: TagWindows, parts: int = 2) -> list[Any]:
    """Scores that are high at the labels, in batches of mixed order."""
    order = np.random.default_rng(0).permutation(len(windows))
    found = []
    for part in np.array_split(order, parts):
        rows = windows.rows(part)
        scores = np.zeros((*rows.tokens.shape, len(windows.labels)))
        known = np.nonzero(rows.labels != IGNORE)
        scores[(*known, rows.labels[known])] = 1.0
        found.append((rows, scores))
    return found


# ------------------------------------------------------------------------------ by hand
def decoded(windows: TagWindows, batches: list[Any], missing: str = "O") -> list[list[str]]:
    """The best tag of each word by scores (B, T, L) of batches, by sentence."""
    words, best = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows, scores in batches:
        here = rows.words >= 0
        words.append(rows.words[here])
        best.append(scores[here].argmax(axis=-1))
    return windows.by_sentence(np.concatenate(words), np.concatenate(best), missing=missing)


def test_only_first_tokens_have_labels() -> None:
    tokenizer = trained("wordpiece")
    given = sentence("Kalomi sat in \x01 Po", "B-PER O O O B-LOC")
    windows = TagWindows(tokenizer, [given], LABELS)
    rows = windows.rows([0])
    shown = tokenizer.tokens(rows.tokens[0])
    assert shown[2].startswith("##")
    words = [shown[i] for i in np.flatnonzero(rows.labels[0] != IGNORE)]
    assert words[0] == shown[1] and words[-1] == "Po" and len(words) == 4
    kept = rows.labels[0][rows.labels[0] != IGNORE]
    assert kept.tolist() == [1, 0, 0, 3]
    assert rows.words[0][rows.words[0] >= 0].tolist() == [0, 1, 2, 4]
    assert windows.counts.render() == (
        "5 words of 1 sentence in 1 window; without a token: 1 word, divided: 0 sentences"
    )
    assert decoded(windows, perfect(windows, 1)) == [["B-PER", "O", "O", "O", "B-LOC"]]
    assert decoded(windows, perfect(windows, 1), missing="?")[0][3] == "?"


@every_kind
def test_words_that_touch(kind: str) -> None:
    """Words as treebanks cut them: `do` + `n't`; a token belongs to the word it begins in."""
    given = sentence("lo - mi do n't sat .", text="lo-mi don't sat.")
    windows = TagWindows(trained(kind), [given], ["X"])
    rows = windows.rows([0])
    read = rows.words[0][rows.words[0] >= 0].tolist()
    assert set(read) <= set(range(7)) and read == sorted(read)
    assert {0, 1, 2, 3, 5, 6} <= set(read)
    assert windows.counts.dropped == 7 - len(read) <= 1


def test_a_token_belongs_to_the_word_it_begins_in() -> None:
    tokenizer = trained("wordpiece")
    assert tokenizer.tokens(tokenizer.encode("kalomi")) == ["ka", "##lomi"]
    windows = TagWindows(tokenizer, [sentence("ka lo mi", "A B C", "kalomi")], ["A", "B", "C"])
    assert windows.rows([0]).labels[0].tolist() == [IGNORE, 0, 1, IGNORE]
    assert windows.counts.dropped == 1
    assert decoded(windows, perfect(windows, 1), missing="-") == [["A", "B", "-"]]


# ------------------------------------------------------------------------------ there and back
def tagged(count: int, seed: int) -> list[Sentence]:
    rng, found = random.Random(seed), []
    for number in range(count):
        words = tuple(rng.choice(prose()).split()[: rng.randint(1, 70)])
        tags = tuple(rng.choice(LABELS) for _ in words)
        found.append(Sentence(words, tags, where=f"row {number}"))
    return found


@every_kind
@pytest.mark.parametrize("style", ["bert", "t5", "gpt2"])
def test_every_word_is_labelled_once_and_comes_back(kind: str, style: str) -> None:
    sentences = tagged(25, 3)
    windows = TagWindows(trained(kind, style), sentences, LABELS, length=24, stride=7)
    counts = windows.counts
    assert counts.divided > 5 and counts.windows == len(windows) > 25
    rows = windows.rows(range(len(windows)))
    assert rows.tokens.shape[1] <= 24
    read = rows.words[rows.words >= 0]
    assert len(read) == len(set(read.tolist())) == counts.words - counts.dropped
    assert ((rows.labels != IGNORE) == (rows.words >= 0)).all()
    wanted = [list(s.tags or ()) for s in sentences]
    told = decoded(windows, perfect(windows, 4), missing="?")
    dropped = 0
    for ours, gold in zip(told, wanted, strict=True):
        assert all(a in (b, "?") for a, b in zip(ours, gold, strict=True))
        dropped += ours.count("?")
    assert dropped == counts.dropped


def test_labels_on_every_token_are_noticed() -> None:
    """The control: were all tokens labelled, words of many tokens would count more than once."""
    windows = TagWindows(trained("character"), tagged(5, 1), LABELS, length=400)
    rows = windows.rows(range(len(windows)))
    text = rows.real & (rows.segments == 0)
    assert text.sum() > 2 * (rows.labels != IGNORE).sum()


def test_words_are_read_where_they_have_most_context() -> None:
    given = sentence(" ".join(["lo"] * 30))
    windows = TagWindows(trained("wordpiece"), [given], ["X"], length=12, stride=4)
    rows = windows.rows(range(len(windows)))
    inner = rows.words[1:-1]
    places = np.nonzero(inner >= 0)[1]  # a window of 10 tokens after [CLS], each word one token
    assert set(places.tolist()) <= {4, 5, 6, 7, 8}
    assert sorted(rows.words[rows.words >= 0].tolist()) == list(range(30))


@every_kind
def test_first_tokens_equal_a_slow_definition(kind: str) -> None:
    tokenizer = trained(kind)
    texts = [t for t in odd_texts(250, 3) if t.split() and len(t) < 300]
    for text in texts:
        given = Sentence(tuple(text.split()))
        ((_, raw),) = tokenizer.encode_batch([given.text], offsets=True)
        slow = [-1] * len(given.words)
        for token, (begin, end) in reversed(list(enumerate(raw.tolist()))):
            while begin < end and given.text[begin].isspace():
                begin += 1
            for number, (first, stop) in enumerate(given.spans):
                if begin < end and first <= begin < stop:
                    slow[number] = token
        assert first_tokens(given, raw).tolist() == slow, text


def test_batches_of_any_size_answer_alike() -> None:
    windows = TagWindows(trained("unigram"), tagged(20, 5), LABELS, length=20, stride=8)
    scores = np.random.default_rng(2).normal(size=(len(windows), 20, len(LABELS)))

    def told(size: int) -> list[list[str]]:
        batches = []
        for at in range(0, len(windows), size):
            rows = windows.rows(range(at, min(len(windows), at + size)))
            batches.append((rows, scores[at : at + size, : rows.tokens.shape[1]]))
        return decoded(windows, batches)

    assert told(1) == told(7) == told(999)


def test_nothing_to_do() -> None:
    windows = TagWindows(trained("wordpiece"), [], LABELS)
    assert len(windows) == 0 and decoded(windows, []) == []
    windows = TagWindows(trained("wordpiece"), [Sentence((), ())], LABELS)
    assert decoded(windows, perfect(windows, 1)) == [[]]


# ------------------------------------------------------------------------------ refusals
def test_F71_unknown_tags_are_refused() -> None:
    given = Sentence(("a", "b"), ("O", "B-PRE"), where="train.jsonl:3")
    with pytest.raises(DataError, match="not among the labels") as refused:
        TagWindows(trained("wordpiece"), [given], LABELS)
    assert "train.jsonl:3, word 2" in str(refused.value) and "'B-PER'" in str(refused.value)


def test_other_refusals() -> None:
    tokenizer = trained("wordpiece")
    with pytest.raises(ConfigError, match="no room"):
        TagWindows(tokenizer, [sentence("lo")], LABELS, length=2)


def test_words_without_a_tag_have_no_label_and_are_not_read() -> None:
    given = Sentence(("Kalomi", "sat", "Po"), ("B-PER", None, "B-LOC"))
    windows = TagWindows(trained("wordpiece"), [given], LABELS)
    rows = windows.rows([0])
    assert sorted(rows.words[rows.words >= 0].tolist()) == [0, 2]
    assert sorted(rows.labels[rows.labels != IGNORE].tolist()) == [1, 3]
    unknown = TagWindows(trained("wordpiece"), [Sentence(given.words, None)], LABELS)
    assert sorted(unknown.rows([0]).words.max(initial=-1, keepdims=True).tolist()) == [[2]]
