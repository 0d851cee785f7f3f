"""How fast the steps about duplicates look at text, in one process, and what a document costs.

    python -m benchmarks.duplicates corpus.jsonl [--evaluation test.jsonl]

Processor seconds, so that other work on the machine counts little; the best of three. The figures
are of the passes over all text; what follows them works on what was found only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from maskwright.text.corpus.read import read
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import (
    contamination,
    exact_duplicates,
    near_duplicates,
    repeated_substrings,
)


def batches_of(paths: list[str], characters: int = 1 << 20) -> list[CurationBatch]:
    """The documents in batches of the size that the engine makes."""
    made: list[CurationBatch] = []
    documents: list[Any] = []
    size = 0
    for document in [*read(paths), None]:
        if document is None or size >= characters:
            texts = [one.text for one in documents]
            made.append(CurationBatch(np.arange(len(texts)), [one.id for one in documents], texts))
            documents, size = [], 0
        if document is not None:
            documents.append(document)
            size += len(document.text)
    return made


def seconds(function: Callable[[CurationBatch, Any], Any], batches: list[CurationBatch]) -> float:
    best = float("inf")
    for _ in range(3):
        fresh = [CurationBatch(b.rows, b.ids, b.texts) for b in batches]  # words are made again
        begin = time.process_time()
        for batch in fresh:
            function(batch, None)
        best = min(best, time.process_time() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--evaluation", nargs="*", default=[])
    arguments = parser.parse_args()
    batches = batches_of(arguments.text)
    size = sum(len(text.encode()) for batch in batches for text in batch.texts)
    documents = sum(map(len, batches))
    print(f"{documents:,} documents, {size / 1e6:.1f} MB")
    passes: dict[str, Callable[[CurationBatch, Any], Any]] = {
        "exact-duplicates": exact_duplicates.Settings().hashes,
        "near-duplicates": near_duplicates.Settings().signatures,
        "repeated-substrings": repeated_substrings.Settings().prints,
    }
    if arguments.evaluation:
        step = contamination.Settings(evaluation=tuple(arguments.evaluation))
        step.open()
        passes["contamination"] = step.hits
    _ = batches[0].words  # the tables of characters are made once
    for name, function in passes.items():
        row = sum(function(batch, None).nbytes for batch in batches) / documents
        rate = size / 1e6 / seconds(function, batches)
        print(f"{name:<20} {rate:6.1f} MB/s a core, {row:6.0f} bytes a document")


if __name__ == "__main__":
    main()
