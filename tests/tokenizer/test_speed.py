"""Batches come back as arrays at nearly the speed of the library, which leaves them in Rust."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import tokenizers

from tokenizer.toy_tokenizers import prose, trained


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram", "bpe"])
def test_nine_tenths_of_the_library_alone(kind: str) -> None:
    ours = trained(kind)
    alone = tokenizers.Tokenizer.from_str(ours.files()["tokenizer.json"].decode())
    texts = list(prose(5000, 4))
    work: list[Callable[[], object]] = [
        lambda: alone.encode_batch_fast(texts, add_special_tokens=False),
        lambda: ours.encode_batch(texts),
    ]
    best = [1e9, 1e9]
    for _ in range(9):
        for number, run in enumerate(work):
            start = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - start)
    assert best[0] / best[1] >= 0.9
