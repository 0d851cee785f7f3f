"""The tokens of a few texts as a store that lies in memory: for what is shown, not for training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from maskwright.config import fingerprint
from maskwright.data.sentences import sentence_starts
from maskwright.data.store import TokenStore, checked_cast
from maskwright.data.tokenize import ROLES, Encoder


class TextStore(TokenStore):
    """A `TokenStore` of `texts`, one document each, with their sentences; texts without tokens are
    left out.

    Raises:
        TokenizerError: a text that the tokenizer cannot cut.
        DataError: the tokenizer gives an id outside its own vocabulary.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Encoder) -> None:
        found = tokenizer.encode_marked(texts, [sentence_starts(text) for text in texts])
        kept = [
            (text, ids, marks) for text, (ids, marks) in zip(texts, found, strict=True) if len(ids)
        ]
        sizes = [len(ids) for _, ids, _ in kept]
        flat = np.concatenate([np.zeros(0, np.int64), *(ids for _, ids, _ in kept)])
        self.path = Path("text")
        self.vocabulary_size = tokenizer.vocabulary_size
        self.tokens = checked_cast(flat.astype(np.int64), self.vocabulary_size)
        self.offsets = np.cumsum([0, *sizes])
        starts = [
            start + marks[marks < len(ids)].astype(np.int64)
            for start, (_, ids, marks) in zip(self.offsets, kept, strict=False)
        ]
        self.sentences = np.unique(np.concatenate([np.zeros(0, np.int64), *starts]))
        self.document_bytes = np.array([len(text.encode()) for text, *_ in kept], np.int64)
        self.starts_word = np.asarray(tokenizer.starts_word, dtype=bool)
        self.ends_word = np.asarray(tokenizer.ends_word, dtype=bool)
        roles = {role: getattr(tokenizer, role, None) for role in ROLES}
        self.special = {role: int(id) for role, id in roles.items() if id is not None}
        self.largest_id = int(flat.max()) if len(flat) else -1
        self.tokenizer_fingerprint = tokenizer.fingerprint
        self.num_tokens, self.num_documents = len(flat), len(kept)
        self.fingerprint = fingerprint(["texts", list(texts), tokenizer.fingerprint])
