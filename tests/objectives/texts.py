"""What the tests of encoder-decoder objectives share: rows by hand, and batches read back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maskwright.model.batch import Batch
from maskwright.text.store.rows import Rows
from objectives.by_hand import epochs as epochs

PAD, BEGIN, END, MASK = 0, 2, 3, 4
SPECIAL = (PAD, 1, BEGIN, END, MASK)


def rows_of(
    texts: Sequence[Sequence[Sequence[int]]], *, framed: bool = False, width: int | None = None
) -> Rows:
    """A row per entry, which lists the row's documents; a negative id begins a sentence."""
    made = [[[BEGIN, *d, END] if framed else list(d) for d in row] for row in texts]
    width = width or max(sum(map(len, row)) for row in made)
    shape = (len(made), width)
    signed, documents = np.zeros(shape, np.int64), np.zeros(shape, np.int32)
    positions = np.zeros(shape, np.int64)
    for line, row in enumerate(made):
        place = 0
        for number, document in enumerate(row, start=1):
            here = slice(place, place + len(document))
            signed[line, here], documents[line, here] = document, number
            positions[line, here] = np.arange(len(document))
            place += len(document)
    tokens = np.abs(signed)
    special = (documents == 0) | (framed & np.isin(tokens, SPECIAL))
    return Rows(
        tokens=tokens,
        positions=positions,
        documents=documents,
        special=special,
        starts_word=~special,
        starts_sentence=signed < 0,
        ids=np.arange(len(made)),
    )


def blocks(count: int, length: int) -> Rows:
    """Unframed rows of one text each, with ids that tell every position apart."""
    return rows_of((np.arange(count * length).reshape(count, 1, length) + 200).tolist())


def read(batch: Batch) -> list[tuple[list[int], list[int], list[int]]]:
    """(encoder's tokens, decoder's tokens, targets) of every document of a batch, in order."""
    encoder, decoder = batch.documents, batch.decoder_documents
    encoder = (batch.tokens * 0 + 1 if encoder is None else encoder).numpy()
    decoder = (batch.decoder_tokens * 0 + 1 if decoder is None else decoder).numpy()
    targets = np.zeros(decoder.size, dtype=np.int64)
    places = np.arange(decoder.size) if batch.index is None else batch.index.numpy()
    targets[places] = batch.targets.numpy()
    assert np.array_equal(np.sort(places), np.flatnonzero(decoder))
    targets = targets.reshape(decoder.shape)
    found = []
    for line in range(len(decoder)):
        for number in range(1, int(max(encoder[line].max(), decoder[line].max())) + 1):
            mine, wanted = encoder[line] == number, decoder[line] == number
            found.append(
                (
                    batch.tokens.numpy()[line][mine].tolist(),
                    batch.decoder_tokens.numpy()[line][wanted].tolist(),
                    targets[line][wanted].tolist(),
                )
            )
    return found
