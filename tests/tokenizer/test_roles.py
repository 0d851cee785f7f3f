"""Special tokens by role, frames around texts, and where words begin."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import KINDS, from_files, trained

every_kind = pytest.mark.parametrize("kind", KINDS)


def test_frames_of_bert() -> None:
    t = trained("wordpiece")
    assert (t.pad, t.unknown, t.classify, t.separator, t.mask) == (0, 1, 2, 3, 4)
    assert t.begin is None and t.end is None and t.special_ids == {0, 1, 2, 3, 4}
    assert t.frame([9, 8]) == ([2, 9, 8, 3], [0, 0, 0, 0])
    assert t.frame([9], [7, 6]) == ([2, 9, 3, 7, 6, 3], [0, 0, 0, 1, 1, 1])
    assert t.frame([], []) == ([2, 3, 3], [0, 0, 1])


def test_frames_of_gpt2() -> None:
    t = trained("byte-bpe", "gpt2")
    assert t.begin == t.end == 0 and t.special_ids == {0} and t.mask is None
    assert t.frame([9, 8]) == ([9, 8], [0, 0])
    assert t.frame([9], [7]) == ([9, 7], [0, 0])


def test_padding_is_named_where_it_cannot_be_mistaken() -> None:
    t = trained("byte-bpe", "gpt2")
    padded = t.padding()
    assert t.pad is None and padded.pad == padded.end == 0
    assert padded.special_ids == t.special_ids and padded.fingerprint == t.fingerprint
    assert from_files(padded.files()).pad == 0
    named = trained("byte-bpe", "roberta")
    assert named.padding() is named
    plain = json.loads(t.files()["tokenizer.json"])
    sentence, end = {"Sequence": {"id": "A", "type_id": 0}}, {"id": "<|endoftext|>", "type_id": 0}
    plain["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [sentence, {"SpecialToken": end}],
        "pair": [sentence, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": end}],
        "special_tokens": {end["id"]: {"id": end["id"], "ids": [0], "tokens": [end["id"]]}},
    }
    closed = Tokenizer(plain)
    assert closed.frame([9])[0] == [9, 0] and closed.padding() is closed


def test_frames_of_roberta() -> None:
    t = trained("byte-bpe", "roberta")
    assert (t.begin, t.pad, t.end, t.unknown, t.mask) == (0, 1, 2, 3, 4)
    assert t.classify == t.begin and t.separator == t.end and t.special_ids == {0, 1, 2, 3, 4}
    assert t.frame([9, 8]) == ([0, 9, 8, 2], [0] * 4)
    assert t.frame([9], [7, 6]) == ([0, 9, 2, 2, 7, 6, 2], [0] * 7)


def test_frames_of_roberta_and_t5_are_read_from_the_file() -> None:
    plain = json.loads(trained("byte-bpe").files()["tokenizer.json"])
    roberta = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    plain["post_processor"] = roberta
    assert Tokenizer(plain).frame([9], [8]) == ([2, 9, 3, 3, 8, 3], [0] * 6)
    sentence, end = {"Sequence": {"id": "A", "type_id": 0}}, {"id": "[SEP]", "type_id": 0}
    plain["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [sentence, {"SpecialToken": end}],
        "pair": [sentence, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": end}],
        "special_tokens": {"[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}},
    }
    assert Tokenizer(plain).frame([9])[0] == [9, 3]
    assert Tokenizer(plain).frame([9], [8])[0] == [9, 8, 3]


def test_chosen_special_tokens() -> None:
    """The vocabulary of the character twins: what stands in the text, and [MASK]."""
    text = "".join(chr(c) for c in range(48, 109))
    tokenizer = train([text], TokenizerChoice(kind="character", specials=("[MASK]",)))
    assert tokenizer.vocabulary_size == 62
    assert tokenizer.mask == 0 and tokenizer.special_ids == {0}
    assert tokenizer.encode(text) == list(range(1, 62))


# ------------------------------------------------------------------------------ words
@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("wordpiece", "Kalomi sat, tion2!", ["Kalomi", "sat", ",", "tion2", "!"]),
        ("bpe", "Kalomi sat, tion2!", ["Kalomi", "sat", ",", "tion2", "!"]),
        (
            "byte-bpe",
            "Kalomi sat, (tion) café",
            ["Kalomi", " sat", ",", " ", "(", "tion", ")", " café"],
        ),
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
    found = [tokenizer.decode(part) for part in parts]
    if kind in ("unigram", "wordpiece", "bpe"):
        found = [part.strip().removeprefix("##") for part in found if part.strip()]
    assert found == words


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
