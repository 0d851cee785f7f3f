"""F66: one enormous word of each class of characters costs time in proportion to its length."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers

from maskwright.text.tokenizer import backend
from maskwright.text.tokenizer.file.check import LONGEST_TOKEN
from maskwright.text.tokenizer.file.pipeline import LONGEST_WORD
from maskwright.text.tokenizer.training import train as training
from maskwright.text.tokenizer.training.train import TokenizerChoice, cut_runs, train
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, prose, trained

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


class Encoding:
    """The library's answer for a text of `size` tokens of one character, `gap` spaces in between;
    `looks` counts how often a token's place is asked for."""

    def __init__(self, size: int, gap: int) -> None:
        self.size, self.gap, self.looks = size, gap, 0

    def __len__(self) -> int:
        return self.size

    def token_to_chars(self, token: int) -> tuple[int, int]:
        self.looks += 1
        begin = token + (self.gap if token >= self.size // 2 else 0)
        return begin, begin + 1


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_F66_a_mark_costs_a_few_looks_however_long_the_text(size: int) -> None:
    """Also where it stands before a million characters of which no token is left."""
    encoding, middle = Encoding(size, gap=10**6), size // 2
    places = [0, middle - 1, middle, middle + 10**6, size + 10**6 - 1, size + 10**6]
    tokens = backend.first_tokens(encoding, places)
    assert tokens.tolist() == [0, middle - 1, middle, middle, size - 1, size]
    assert encoding.looks <= len(places) * (size.bit_length() + 1)


def test_F66_a_long_run_makes_no_token_that_a_file_may_not_have() -> None:
    texts = [*prose(50), "=" * 20_000, "=" * 20_000]
    tokenizer = train(texts, TokenizerChoice(kind="byte-bpe", vocabulary=700))
    assert 500 < max(map(len, tokenizer.vocabulary)) <= LONGEST_TOKEN
    assert tokenizer.decode(tokenizer.encode("=" * 20_000)) == "=" * 20_000


# ------------------------------------------------------------------------------ learning
LONG = {
    "letters": "ACGT" * 50_000,
    "blanks": " " * 200_000,
    "blanks of all sorts": " \t\n\u3000" * 50_000,
    "a control character that is a blank to Python alone": "\x1c!" * 100_000,
    "letters after a blank": "so " + "a" * 5_000 + " " + "b" * 5_000,
    "one run in ordinary text": "a " * 350 + "漢" * 1_025 + " a" * 350,
}


def longest_word(texts: list[str], pre_tokenizer: Any) -> int:
    words = [end - begin for t in texts for _, (begin, end) in pre_tokenizer.pre_tokenize_str(t)]
    return max(words, default=0)


@pytest.mark.parametrize("single_digits", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_F66_the_library_is_given_no_long_run_to_learn_from(
    name: str, single_digits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the square of a run's length: half a minute for 200,000 letters."""
    choice = TokenizerChoice(kind="byte-bpe", vocabulary=270, single_digits=single_digits)
    built, texts = training._library("byte-bpe", choice), list[str]()
    cut = built.pre_tokenizer

    def learn(stream: Iterator[str], trainer: Any) -> None:
        texts.extend(stream)
        built.train_from_iterator(iter(texts[:1]), trainer)

    recorder = SimpleNamespace(pre_tokenizer=cut, to_str=built.to_str, train_from_iterator=learn)
    monkeypatch.setattr(training, "_library", lambda kind, choice: recorder)
    train([LONG[name]], choice)
    assert longest_word([LONG[name]], cut) > LONGEST_TOKEN  # the control
    assert longest_word(texts, cut) <= LONGEST_TOKEN and "".join(texts) == LONG[name]
    assert len(texts) <= 1 + len(LONG[name]) // (LONGEST_TOKEN - 1)


def test_F66_text_without_long_runs_is_learned_from_as_it_is() -> None:
    choice = TokenizerChoice(kind="byte-bpe", vocabulary=700)
    pre_tokenizer = training._library("byte-bpe", choice).pre_tokenizer
    lines = ["漢字" * 250 + "。" + "a1" * 500, " ".join(["word" * 200] * 3), "=" * 1000]
    texts = [*prose(50), *(t for t in odd_texts(300) if len(t) < 1000), *lines]
    assert list(cut_runs(texts, pre_tokenizer)) == texts


# ------------------------------------------------------------------------------ seconds
def seconds(run: Callable[[], Any]) -> float:
    """Of all cores; the least of three."""
    times = [time.process_time()]
    for _ in range(3):
        run()
        times.append(time.process_time())
    return min(after - before for before, after in itertools.pairwise(times))


@pytest.mark.proof
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_F66_a_million_characters_in_a_second(kind: str, name: str) -> None:
    """Or hardly more than the bare library, which needs longer where every character is a word."""
    tokenizer = trained(kind)
    plain = {**json.loads(tokenizer.files()["tokenizer.json"]), "post_processor": None}
    alone, text = tokenizers.Tokenizer.from_str(json.dumps(plain)), word(name, 1_000_000)
    ours = seconds(lambda: tokenizer.encode(text))
    assert ours <= 1 or ours <= 1.25 * seconds(lambda: alone.encode_batch_fast([text]))


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram", "bpe"])
def test_batches_take_hardly_longer_than_in_the_library_alone(kind: str) -> None:
    ours, texts = trained(kind), list(prose(5000, 4))
    alone = tokenizers.Tokenizer.from_str(ours.files()["tokenizer.json"].decode())
    fast = seconds(lambda: alone.encode_batch_fast(texts, add_special_tokens=False))
    assert fast / seconds(lambda: ours.encode_batch(texts)) >= 0.9
