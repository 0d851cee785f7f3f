"""TokenStore: the tokens of a corpus as one memory-mapped array.

    tokens.bin          every document's ids, one after the other; uint16 or uint32 by vocabulary
    offsets.bin         int64, documents + 1: where each document starts in `tokens`
    sentences.bin       int64: where each sentence starts in `tokens`
    document_bytes.bin  int64: UTF-8 bytes of each document's text, for bits per byte
    starts_word.bin     uint8 per id of the vocabulary: whether the token begins a word
    ends_word.bin       uint8 per id: whether a word begins after the token
    manifest.json       sizes, hashes, special ids, the tokenizer's fingerprint; written last

Special tokens for framing are not stored; rows add them. Numbers are little-endian.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import DataError, IncompatibleError
from maskwright.base.storage.commit import Manifest, read_manifest, verify
from maskwright.text.store import BoolArray
from maskwright.text.tokenizer.words import begins_word

MANIFEST = "manifest.json"
KIND = "token store"
FILES = {
    "offsets.bin": "<i8",
    "sentences.bin": "<i8",
    "document_bytes.bin": "<i8",
    "starts_word.bin": "|u1",
    "ends_word.bin": "|u1",
}


class TokenStore:
    """An opened token store; see `open`.

    Attributes:
        tokens: (num_tokens,) mapped from disk.
        offsets: (num_documents + 1,) positions in `tokens`.
        sentences: positions in `tokens` where a sentence starts, ascending; empty if not recorded.
        document_bytes: (num_documents,) UTF-8 bytes of each text.
        starts_word, ends_word: (vocabulary_size,) bool; see `begins_word`.
        special: ids by role ("classify", "separator", "mask", "pad", "end", …).
        largest_id: the largest id in `tokens`; -1 in an empty store.
        tokenizer_fingerprint: of the tokenizer of the ids.
        fingerprint: of the store: equal if and only if all bytes and facts are.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        about = manifest.about
        self.path = path
        self.manifest = manifest
        self.fingerprint = manifest.sha256
        self.vocabulary_size: int = about["vocabulary_size"]
        self.largest_id: int = about["largest_id"]
        self.special: dict[str, int] = about["special"]
        self.tokenizer_fingerprint: str = about["tokenizer"]
        self.num_tokens: int = about["tokens"]
        self.num_documents: int = about["documents"]
        self.tokens = _map(path / "tokens.bin", token_type(self.vocabulary_size))
        self.offsets = _map(path / "offsets.bin", FILES["offsets.bin"])
        self.sentences = _map(path / "sentences.bin", FILES["sentences.bin"])
        self.document_bytes = _map(path / "document_bytes.bin", FILES["document_bytes.bin"])
        self.starts_word = _map(path / "starts_word.bin", FILES["starts_word.bin"]).astype(bool)
        self.ends_word = _map(path / "ends_word.bin", FILES["ends_word.bin"]).astype(bool)

    @classmethod
    def open(
        cls, path: Path | str, *, verify: bool = False, tokenizer_fingerprint: str | None = None
    ) -> TokenStore:
        """Open the store in the folder `path`; checks sizes, and with `verify` hashes.

        Args:
            tokenizer_fingerprint: refuse a store made by another tokenizer.

        Raises:
            DataError: missing, incomplete, damaged, or not a token store.
            IncompatibleError: made by another tokenizer.
        """
        folder = Path(path)
        manifest = _check(folder, full=verify)
        store = cls(folder, manifest)
        counts = [len(store.tokens), len(store.offsets) - 1, len(store.document_bytes)]
        if (
            counts != [store.num_tokens, store.num_documents, store.num_documents]
            or len(store.starts_word) != store.vocabulary_size
            or len(store.ends_word) != store.vocabulary_size
            or int(store.offsets[0]) != 0
            or int(store.offsets[-1]) != store.num_tokens
            or not -1 <= store.largest_id < store.vocabulary_size
        ):
            raise DataError(
                "the files of a token store do not fit together",
                where=folder,
                do="make it again from the text",
            )
        if tokenizer_fingerprint not in (None, store.tokenizer_fingerprint):
            raise IncompatibleError(
                "the token store was made by another tokenizer",
                where=folder,
                found=store.tokenizer_fingerprint,
                wanted=tokenizer_fingerprint,
                do="tokenize the text again with this tokenizer",
            )
        return store

    def document(self, index: int) -> NDArray[np.integer]:
        """Return the ids of document `index`, a view of `tokens`."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def begins_word(self, tokens: NDArray[np.integer], fresh: BoolArray) -> BoolArray:
        """Return where words begin in `tokens` (..., T), by the tables of the store."""
        return begins_word(tokens, fresh, self.starts_word, self.ends_word)

    def begins_sentence(self, positions: NDArray[np.integer]) -> BoolArray | None:
        """Return whether a sentence starts at each position of `tokens`; None if not recorded."""
        if not len(self.sentences):
            return None
        indices = np.searchsorted(self.sentences, positions)
        starts: BoolArray = (
            self.sentences[np.minimum(indices, len(self.sentences) - 1)] == positions
        )
        return starts

    def require_sentences(self) -> None:
        """Raise an IncompatibleError if the store does not record where sentences start."""
        if not len(self.sentences):
            raise IncompatibleError(
                "the token store does not record where sentences start",
                where=self.path,
                do="make it again with sentences",
            )


def token_type(vocabulary_size: int) -> np.dtype[Any]:
    """Return the smallest dtype for ids below `vocabulary_size`.

    Raises:
        DataError: the vocabulary is too large.
    """
    if vocabulary_size <= 1 << 16:
        return np.dtype("<u2")
    if vocabulary_size <= 1 << 32:
        return np.dtype("<u4")
    raise DataError(
        "the vocabulary is too large",
        found=f"{vocabulary_size:,} ids",
        wanted="at most 4,294,967,296",
        do="train a smaller tokenizer (tokenizer.vocabulary)",
    )


def checked_cast(ids: NDArray[np.integer], vocabulary_size: int) -> NDArray[np.integer]:
    """Convert ids to the dtype of the store.

    Raises:
        DataError: an id outside the vocabulary, which would wrap around.
    """
    if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= vocabulary_size):
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise DataError(
            "a token id is outside the vocabulary",
            found=wrong,
            wanted=f"0 to {vocabulary_size - 1}",
            do="use the tokenizer that the ids come from",
        )
    return ids.astype(token_type(vocabulary_size))


def _check(folder: Path, *, full: bool) -> Manifest:
    manifest = read_manifest(folder, manifest=MANIFEST, error=DataError)
    about = manifest.about
    expected_types = {
        "vocabulary_size": int,
        "largest_id": int,
        "special": dict,
        "tokenizer": str,
        "tokens": int,
        "documents": int,
    }
    is_store = about.get("kind") == KIND
    is_store &= all(type(about.get(name)) is kind for name, kind in expected_types.items())
    missing = ", ".join(sorted({"tokens.bin", *FILES} - set(manifest.files)))
    if not is_store or missing:
        raise DataError(
            "not a token store",
            where=folder / MANIFEST,
            found=f"no {missing}" if is_store else about.get("kind"),
            do="remove the folder; it is made again from the text",
        )
    return verify(folder, manifest=MANIFEST, full=full, error=DataError)


def _map(path: Path, dtype: np.dtype[Any] | str) -> NDArray[Any]:
    size, item = path.stat().st_size, np.dtype(dtype).itemsize
    if size % item:
        raise DataError(
            "a file of a token store ends inside a number",
            where=path,
            found=f"{size:,} bytes",
            wanted=f"a multiple of {item}",
            do="remove the folder of the store; it is made again from the text",
        )
    if size == 0:
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
