"""A file of word vectors as a model folder, which all verbs take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from maskwright.base.errors import Finding, Note, ignore
from maskwright.base.storage.commit import require_new
from maskwright.model.checkpoint import pretrained, word_vectors
from maskwright.model.nn.config import Embeddings, Stack, Tokens, TransformerConfig
from maskwright.model.nn.initialise import build
from maskwright.text.tokenizer.file import pipeline
from maskwright.text.tokenizer.tokenizer import Tokenizer

SPECIALS = ("<|endoftext|>", "<unk>")


def import_vectors(file: Path | str, out: Path | str, note: Note = ignore) -> Path:
    """Write the word vectors of a `file` in word2vec's text format as a model into the new folder
    `out`; returns it. Texts are split at blanks and punctuation, and lowered if all words are.

    Raises:
        DataError: the file is not in that format.
        OutputError: `out` exists.
    """
    require_new(Path(out))
    read = word_vectors.read(Path(file))
    of_word = dict(zip(read.words, read.vectors, strict=True))
    words = [*SPECIALS, *(word for word in read.words if word not in SPECIALS)]
    model = pipeline.wordpiece_model(SPECIALS, words, SPECIALS[1])
    lowercase = all(word == word.lower() for word in words)
    document = pipeline.document(
        "word", model, SPECIALS, lowercase=lowercase, single_digits=False, frame=None
    )
    tokenizer, width = Tokenizer(document), read.vectors.shape[1]
    config = TransformerConfig(
        width=width,
        tokens=Tokens(vocabulary=len(words), width=width),
        encoder=Stack(embeddings=Embeddings(), blocks=(), weights_of=()),
    )
    network = build(config)
    zeros = np.zeros(width, np.float32)
    vectors = np.stack([of_word.get(word, zeros) for word in words])
    with torch.no_grad():
        network.tokens.weight.copy_(torch.from_numpy(vectors))
    encoded = tokenizer.encode_batch(words[len(SPECIALS) :])
    numbers = np.arange(len(SPECIALS), len(words))
    unread = [n for n, ids in zip(numbers, encoded, strict=True) if ids.tolist() != [n]]
    if unread:
        note(
            Finding(
                "words-not-in-texts",
                f"{len(unread):,} of {len(read.words):,} words stand in no text as it is split",
                ", ".join(words[n] for n in unread[:5]),
                "their vectors are kept, and looked up by `maskwright neighbours` alone",
            )
        )
    pretrained.save(network, tokenizer, out)
    return Path(out)
