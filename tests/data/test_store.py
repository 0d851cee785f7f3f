"""A store is opened only when it is whole, and belongs to the tokenizer it is opened with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.data.toy import Toy, corpus, store_of

from maskwright.base.errors import DataError, IncompatibleError
from maskwright.base.storage.manifest import Manifest
from maskwright.text.store.store import TokenStore, checked_cast, token_type

NAMES = ("tokens", "offsets", "sentences", "document_bytes", "starts_word", "ends_word")
FILES = [f"{name}.bin" for name in NAMES]


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return store_of(tmp_path, corpus(1, 50))


def _rewrite(store: TokenStore, change: dict[str, object], files: bool = True) -> None:
    """A manifest that fits its own hash but not the truth."""
    plain = json.loads((store.path / "manifest.json").read_text())
    made = Manifest(1, {**plain["about"], **change}, plain["files"] if files else {})
    (store.path / "manifest.json").write_bytes(made.render())


def test_what_a_store_says(tmp_path: Path) -> None:
    store = store_of(tmp_path, ["Ab c. De f.", "Gé h."])
    assert store.tokens.dtype == np.uint16 and not store.tokens.flags.writeable
    assert store.document(0).tolist() == [5, 32, 7, 57, 8, 35, 10, 57]
    assert store.document(1).tolist() == [11, 1, 12, 57]
    assert store.offsets.tolist() == [0, 8, 12]
    assert store.sentences.tolist() == [0, 4, 8]
    assert store.document_bytes.tolist() == [11, 6]
    assert (store.num_documents, store.num_tokens, store.largest_id) == (2, 12, 57)
    assert store.special == {"pad": 0, "unknown": 1, "classify": 2, "separator": 3, "mask": 4}
    assert store.starts_word.tolist() == Toy().starts_word.tolist()
    assert TokenStore.open(store.path, verify=True).fingerprint == store.fingerprint


def test_where_words_begin(tmp_path: Path) -> None:
    """At a token that starts one, after one that ends one, and where the text is cut off."""
    store = store_of(tmp_path, ["ab.cd e"])
    tokens = store.document(0)  # a b . c d e, of which c has no mark of its own
    assert tokens.tolist() == [5, 32, 57, 33, 34, 9]
    fresh = np.array([False, True, False, False, False, False])
    assert store.begins_word(tokens, fresh).astype(int).tolist() == [1, 1, 0, 1, 0, 1]
    both = store.begins_word(np.stack([tokens, tokens]), np.zeros((2, 6), dtype=bool))
    assert both.astype(int).tolist() == [[1, 0, 0, 1, 0, 1]] * 2


@pytest.mark.parametrize("name", FILES)
def test_F81_truncated_files_are_found_on_opening(store: TokenStore, name: str) -> None:
    data = (store.path / name).read_bytes()
    for length in {0, 1, len(data) // 2, len(data) - 1}:
        (store.path / name).write_bytes(data[:length])
        with pytest.raises(DataError, match="wrong size") as refusal:
            TokenStore.open(store.path)
        assert name in str(refusal.value) and f"{len(data):,} bytes" in str(refusal.value)


def test_F81_F82_files_of_the_right_size_are_compared_with_the_manifest(store: TokenStore) -> None:
    """One flipped bit, an exchanged file, a missing one. (Manifests: storage/test_manifest.py.)"""
    data = (store.path / "tokens.bin").read_bytes()
    (store.path / "notes.txt").write_text("another file changes nothing")
    for changed in (bytes([data[0] ^ 1]) + data[1:], (store.path / "offsets.bin").read_bytes()):
        (store.path / "tokens.bin").write_bytes(changed)
        with pytest.raises(DataError):
            TokenStore.open(store.path, verify=True)
    (store.path / "tokens.bin").write_bytes(data)
    assert TokenStore.open(store.path, verify=True).fingerprint == store.fingerprint
    (store.path / "offsets.bin").unlink()
    with pytest.raises(DataError, match="not complete"):
        TokenStore.open(store.path)


@pytest.mark.parametrize(
    "change",
    [
        *({"tokens": 1}, {"documents": 3}, {"vocabulary_size": 57}),
        *({"largest_id": 58}, {"largest_id": -2}),
        *({"kind": "cake"}, {"special": []}, {"tokens": True}, {"tokenizer": None}),
        {"vocabulary_size": 1 << 17},  # wider numbers: the file ends inside one
        None,  # no files are listed
    ],
)
def test_F81_facts_that_contradict_the_files(
    store: TokenStore, change: dict[str, object] | None
) -> None:
    _rewrite(store, change or {}, files=change is not None)
    with pytest.raises(DataError):
        TokenStore.open(store.path)


def test_F85_another_tokenizer(store: TokenStore) -> None:
    TokenStore.open(store.path, tokenizer_fingerprint="toy")
    with pytest.raises(IncompatibleError) as refusal:
        TokenStore.open(store.path, tokenizer_fingerprint="bert")
    assert (refusal.value.found, refusal.value.wanted) == ("toy", "bert")


def test_F33_the_fingerprint_follows_the_data(tmp_path: Path) -> None:
    texts = corpus(3, 20)
    changed = [texts[0][:-2] + "z.", *texts[1:]]
    variants = [texts, changed, texts[::-1], texts[:-1], [*texts, texts[0]]]
    prints = [store_of(tmp_path / str(n), t).fingerprint for n, t in enumerate(variants)]
    assert len(set(prints)) == len(prints)
    assert store_of(tmp_path / "same", texts).fingerprint == prints[0]


@pytest.mark.parametrize(
    ("size", "kind"), [(2, "<u2"), (65535, "<u2"), (65536, "<u2"), (65537, "<u4"), (1 << 32, "<u4")]
)
def test_F84_the_type_follows_the_vocabulary(size: int, kind: str) -> None:
    assert token_type(size) == np.dtype(kind)
    ids = np.array([0, size - 1], dtype=np.int64)
    assert checked_cast(ids, size).tolist() == ids.tolist()
    for wrong in (size, -1, 1 << 40):
        with pytest.raises(DataError) as refusal:
            checked_cast(np.array([0, wrong]), size)
        assert refusal.value.found == str(wrong)
    with pytest.raises(DataError):
        token_type((1 << 32) + 1)
