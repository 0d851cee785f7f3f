"""Texts of files that a step learns from, besides the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from maskwright.corpus.read import Reader
from maskwright.curate.parts.batch import Batch
from maskwright.errors import MaskwrightError

SIZE = 1000


def reference_batches(paths: Sequence[str], where: str, most_words: int) -> Iterator[Batch]:
    """The documents of these files in their order, until so many words were read.

    Raises:
        UsageError, DataError: as the reader, `where` put before the place.
    """
    words, texts, ids = 0, list[str](), list[str]()
    try:
        for document in Reader(list(paths)):
            texts.append(document.text)
            ids.append(document.id)
            if len(texts) == SIZE:
                batch = Batch(np.arange(SIZE), ids, texts)
                words += int(batch.words.counts.sum())
                yield batch
                texts, ids = [], []
                if words >= most_words:
                    return
    except MaskwrightError as error:
        raise error.under(f"{where}: ") from None
    if texts:
        yield Batch(np.arange(len(texts)), ids, texts)
