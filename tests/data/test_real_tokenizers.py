"""Stores made by our own tokenizers hold exactly what these say of each whole document."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from tests.data.toy import corpus, documents, sentence_ranges

from maskwright.text.store import tokenize
from maskwright.text.store.pairs import SentencePairs
from maskwright.text.store.rows import PackedDocuments, Stream
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store, sentence_starts
from maskwright.text.tokenizer.file.pipeline import TokenizerKind
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

TEXTS = [
    *corpus(21, 60),
    "It rained, they said. It did!\n\nThen it stopped.  And so on…",
    "  A title\n\n   Indented text. (So it is.) Really?",
    "12 apples, 3.5 pears; Dr. Who's 2nd. End.",
]


@pytest.fixture(params=get_args(TokenizerKind), scope="module")
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train(TEXTS * 30, TokenizerChoice(kind=request.param, vocabulary=300))


@pytest.fixture
def store(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenStore:
    monkeypatch.setattr(tokenize, "SHARD_BYTES", 3000)
    monkeypatch.setattr(tokenize, "BLOCK_CHARACTERS", 500)
    return build_store(documents(TEXTS), tokenizer, tmp_path / "store")


def test_the_ids_are_those_of_the_whole_documents(tokenizer: Tokenizer, store: TokenStore) -> None:
    for number, text in enumerate(TEXTS):
        assert store.document(number).tolist() == tokenizer.encode(text)
    assert store.tokenizer_fingerprint == tokenizer.fingerprint
    assert store.special["mask"] == tokenizer.mask


def test_sentences_start_where_their_first_token_stands(
    tokenizer: Tokenizer, store: TokenStore
) -> None:
    for number, text in enumerate(TEXTS):
        starts = sentence_starts(text)
        ranges = sentence_ranges(store, number)
        assert len(ranges) == len(starts)
        if tokenizer.unknown in store.document(number):
            continue  # whole words that are unknown come back as no letters
        for (start, stop), begin, end in zip(ranges, starts, [*starts[1:], None], strict=True):
            found = tokenizer.decode(store.tokens[start:stop].tolist())
            assert _letters(found) == _letters(text[begin:end])


def _letters(text: str) -> str:
    """The text without space; one kind of tokenizer writes … as three full stops."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def test_words_begin_where_the_tokenizer_cuts(tokenizer: Tokenizer, store: TokenStore) -> None:
    for number, text in enumerate(TEXTS[:60]):
        tokens = store.document(number)
        fresh = np.arange(len(tokens)) == 0
        begun = int(store.begins_word(tokens, fresh).sum())
        assert begun == len(text.replace(".", " . ").split())


def test_rows_of_every_kind(tokenizer: Tokenizer, store: TokenStore) -> None:
    for source in (PackedDocuments(store, 32), Stream(store, 32), SentencePairs(store, 32)):
        rows = source.rows(np.arange(len(source)), 0)
        assert not rows.starts_word[rows.special].any()
        assert rows.tokens.max() < tokenizer.vocabulary_size
        framing = np.unique(rows.tokens[rows.special & (rows.documents > 0)]).tolist()
        assert set(framing) <= {tokenizer.classify, tokenizer.separator}
