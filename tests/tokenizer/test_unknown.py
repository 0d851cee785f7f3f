"""What is unknown of a text: counted in characters, its cause named, and never lost in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from maskwright.base.errors import DataError, IncompatibleError
from maskwright.text.tokenizer import unknown
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import prose, trained

THAI = "แมวกินปลาที่ทะเล"
LONG = {"thai": THAI * 10, "dna": "GATTACA" * 20, "link": "a" * 150, "digits": "31415926535" * 10}


def plain_of(tokenizer: Tokenizer) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(tokenizer.files()["tokenizer.json"])
    return plain


def learned(kind: str) -> Tokenizer:
    """One that knows every character of `LONG`, in short words."""
    texts = [" ".join(word[:9] for word in (*LONG.values(), *"GATC", *"0123456789", *THAI))]
    choice = TokenizerChoice(kind=kind, vocabulary=400, min_frequency=1)  # type: ignore[arg-type]
    return train([*prose(40), *texts * 9], choice)


@pytest.mark.parametrize("name", LONG)
def test_a_word_that_wordpiece_reads_as_one_token_counts_as_many_characters(name: str) -> None:
    tokenizer, word = learned("wordpiece"), LONG[name]
    text = "the cat sat " * 100 + word
    assert tokenizer.encode(text).count(tokenizer.unknown) == 1  # type: ignore[arg-type]
    found = tokenizer.unknown_in([text])
    assert (found.unknown, found.letters) == (len(word), 900 + len(word))
    assert found.in_long_words == len(word) and "more than 100 characters" in str(found.finding())
    short = " ".join(word[n : n + 9] for n in range(0, len(word), 9))
    control = tokenizer.unknown_in([text.replace(word, short)])
    assert control.unknown == 0 and control.finding() is None
    for kind in ("byte-bpe", "unigram"):
        assert learned(kind).unknown_in([text]).unknown == 0, "the advice helps"


def test_other_causes_are_told_apart_and_the_characters_named() -> None:
    for kind in ("wordpiece", "unigram", "bpe", "character"):
        found = trained(kind).unknown_in(["the cat ☃☃☃ sat on the ☃"])
        assert found.unknown == 4 and found.in_long_words == 0, kind
        assert "(☃)" in str(found.finding("a remedy"))
        assert str(found.finding("it")).endswith("remedy: it")


def test_of_much_text_a_sixteenth_stands_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, texts = trained("wordpiece"), ["the ☃ sat", "the cat"] * 320
    for exactly in (unknown.EXACTLY, 0):
        monkeypatch.setattr(unknown, "EXACTLY", exactly)
        counts = tokenizer.unknown_in(texts)
        assert (counts.unknown, counts.letters) == (320, 320 * 7 + 320 * 6)


@pytest.mark.parametrize("name", ["thai", "dna"])
def test_a_text_of_long_words_alone_is_refused_with_the_cause(name: str) -> None:
    texts = [LONG[name]] * 9
    with pytest.raises(DataError, match="more than 100 characters") as caught:
        train(texts, TokenizerChoice(kind="wordpiece", vocabulary=300, min_frequency=1))
    assert "--kind byte-bpe" in str(caught.value.do)
    for kind in ("byte-bpe", "unigram", "bpe"):
        choice = TokenizerChoice(kind=kind, vocabulary=400, min_frequency=1)  # type: ignore[arg-type]
        made = train(texts, choice)
        assert made.unknown_in(texts).unknown == 0
    with pytest.raises(DataError, match="frequent enough"):
        train(["x"], TokenizerChoice(kind="wordpiece", vocabulary=300))


def test_nothing_is_dropped_by_a_model_that_gives_no_unknown_token() -> None:
    """A role `unk_token` in the settings does not help where the model gives none."""
    plain = plain_of(trained("bpe"))
    unknown = plain["model"]["unk_token"]
    plain["model"]["unk_token"] = None
    silent = Tokenizer(plain, {"unk_token": unknown})
    assert silent.unknown is not None and silent.encode("the cat")
    with pytest.raises(IncompatibleError):
        silent.encode("the ☃")


def test_nothing_is_dropped_where_bytes_are_missing() -> None:
    plain = plain_of(trained("byte-bpe"))
    assert Tokenizer(plain).encode("☃"), "the control"
    lost = "\u0122"  # how GPT-2 spells a byte that continues characters
    model = plain["model"]
    kept = [token for token in model["vocab"] if lost not in token]
    merges = [pair for pair in model["merges"] if lost not in "".join(pair)]
    assert len(kept) < len(model["vocab"])
    model |= {"vocab": {token: n for n, token in enumerate(kept)}, "merges": merges}
    pruned = Tokenizer({**plain, "added_tokens": []})
    assert pruned.decode(pruned.encode("the cat")) == "the cat"
    with pytest.raises(IncompatibleError):
        pruned.encode(bytes([0xC3, 0x80]).decode())


def test_special_tokens_that_stand_in_texts_are_counted() -> None:
    texts = ["the cat [SEP] sat [SEP]", "a [MASK] [SEP]", "the [sep] cat", "SEP"]
    tokenizer = trained("wordpiece")
    counts = tokenizer.unknown_in(texts)
    assert counts.spelled == {"[SEP]": 2, "[MASK]": 1}
    (said,) = [found for found in counts.findings() if found.name.startswith("special")]
    assert said.name == "special-tokens-as-text"
    assert [tokenizer.vocabulary[i] for i in tokenizer.encode(texts[1])].count("[SEP]") == 0
    plain = tokenizer.unknown_in(texts[2:])
    assert not plain.spelled and not any("special" in found.name for found in plain.findings())


def test_special_tokens_act_where_that_is_declared() -> None:
    plain = plain_of(trained("wordpiece"))
    texts = ["the cat [SEP] sat", "[MASK]"]
    unlisted = {**plain, "added_tokens": []}  # special by their roles alone
    for document in (plain, unlisted):
        roles = {"sep_token": "[SEP]", "mask_token": "[MASK]"}
        declared = Tokenizer(document, roles).as_declared()
        ids = [declared.encode(text) for text in texts]
        assert ids[0].count(declared.separator) == 1 and ids[1] == [declared.mask]
        assert "special-tokens-act" in [f.name for f in declared.unknown_in(texts).findings()]
        split = Tokenizer(document, {**roles, "split_special_tokens": True})
        assert split.as_declared() is split
        assert declared.separator not in split.encode(texts[0]), "the control"
