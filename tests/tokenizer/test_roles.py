"""Special tokens by role, frames around texts, and where words begin."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import KINDS, from_files, trained

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(
    ("kind", "style", "roles", "frame", "segments"),
    [
        ("wordpiece", "bert", (0, 1, 2, 3, 4, None, None), [2, 9, 3, 7, 6, 3], [0, 0, 0, 1, 1, 1]),
        ("byte-bpe", "roberta", (1, 3, 0, 2, 4, 0, 2), [0, 9, 2, 2, 7, 6, 2], [0] * 7),
        ("byte-bpe", "gpt2", (None, None, None, None, None, 0, 0), [9, 7, 6], [0] * 3),
    ],
)
def test_frames_and_roles(
    kind: str, style: str, roles: tuple[int | None, ...], frame: list[int], segments: list[int]
) -> None:
    t = trained(kind, style)
    assert (t.pad, t.unknown, t.classify, t.separator, t.mask, t.begin, t.end) == roles
    assert t.special_ids == {number for number in roles if number is not None}
    assert t.frame([9], [7, 6]) == (frame, segments)
    begin, end = (frame[:1], frame[-1:]) if style != "gpt2" else ([], [])
    assert t.frame([9, 8]) == ([*begin, 9, 8, *end], [0] * len([*begin, 9, 8, *end]))


def closed_by(token: str, number: int) -> dict[str, Any]:
    """A frame that puts a token behind each text."""
    sentence, end = {"Sequence": {"id": "A", "type_id": 0}}, {"id": token, "type_id": 0}
    return {
        "type": "TemplateProcessing",
        "single": [sentence, {"SpecialToken": end}],
        "pair": [sentence, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": end}],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def test_padding_is_named_where_it_cannot_be_mistaken() -> None:
    t = trained("byte-bpe", "gpt2")
    padded = t.padding()
    assert t.pad is None and padded.pad == padded.end == 0
    assert padded.special_ids == t.special_ids and padded.fingerprint == t.fingerprint
    assert from_files(padded.files()).pad == 0
    named = trained("byte-bpe", "roberta")
    assert named.padding() is named
    plain = json.loads(t.files()["tokenizer.json"])
    closed = Tokenizer({**plain, "post_processor": closed_by("<|endoftext|>", 0)})
    assert closed.frame([9])[0] == [9, 0] and closed.padding() is closed


def test_frames_of_roberta_and_t5_are_read_from_the_file() -> None:
    plain = json.loads(trained("byte-bpe").files()["tokenizer.json"])
    roberta = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    tokenizer = Tokenizer({**plain, "post_processor": roberta})
    assert tokenizer.frame([9], [8]) == ([2, 9, 3, 3, 8, 3], [0] * 6)
    tokenizer = Tokenizer({**plain, "post_processor": closed_by("[SEP]", 3)})
    assert tokenizer.frame([9])[0] == [9, 3] and tokenizer.frame([9], [8])[0] == [9, 8, 3]


# ------------------------------------------------------------------------------ words
@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("wordpiece", "Kalomi sat, tion2!", ["Kalomi", "sat", ",", "tion2", "!"]),
        ("bpe", "Kalomi sat, tion2!", ["Kalomi", "sat", ",", "tion2", "!"]),
        ("byte-bpe", "Kalomi, (po) café", ["Kalomi", ",", " ", "(", "po", ")", " café"]),
        ("unigram", "Kalomi sat, (tion)", ["Kalomi", "sat", ",", "(", "tion", ")"]),
        ("character", "Kalomi sat, (tion)", ["Kalomi", " sat", ",", " ", "(", "tion", ")"]),
    ],
)
def test_words_begin_where_the_tables_say(kind: str, text: str, words: list[str]) -> None:
    tokenizer = trained(kind)
    ids = np.array(tokenizer.encode(text))
    begins = tokenizer.starts_word[ids] | np.append(True, tokenizer.ends_word[ids[:-1]])
    places = [*np.flatnonzero(begins).tolist(), len(ids)]
    parts = [ids[a:b].tolist() for a, b in itertools.pairwise(places)]
    texts = [tokenizer.decode(part) for part in parts]
    if kind in ("unigram", "wordpiece", "bpe"):
        texts = [text.strip().removeprefix("##") for text in texts if text.strip()]
    assert texts == words


@every_kind
def test_special_tokens_are_words_of_their_own(kind: str) -> None:
    tokenizer = trained(kind)
    for number in tokenizer.special_ids - {tokenizer.unknown}:
        assert tokenizer.starts_word[number] and tokenizer.ends_word[number]
    assert tokenizer.starts_word.shape == tokenizer.ends_word.shape == (tokenizer.vocabulary_size,)


def test_sentinels_come_in_the_order_of_their_numbers() -> None:
    assert trained("wordpiece").sentinels == ()
    marks = ("<extra_id_10>", "<extra_id_2>", "<extra_id_x>", "<extra_id_0>")
    choice = TokenizerChoice(kind="wordpiece", vocabulary=60, specials=("<pad>", "<unk>", *marks))
    t = train(["some words to learn from, <extra_id_7> among them"] * 4, choice)
    assert t.tokens(t.sentinels) == ["<extra_id_0>", "<extra_id_2>", "<extra_id_10>"]
    assert from_files(t.files()).sentinels == t.sentinels
