"""The long proofs of token stores: memory for a gigabyte, and speed in seconds (make proof)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.data.toy import corpus, store_of

from maskwright.text.corpus import embedded
from maskwright.text.store import rows
from maskwright.text.store.loader import Loader
from maskwright.text.store.pairs import SentencePairs
from maskwright.text.store.rows import PackedDocuments, RowSource, Stream
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import blocks, build_store, sentence_starts
from maskwright.text.tokenizer.training.train import TokenizerChoice, train

pytestmark = pytest.mark.proof

BUILD = """
import resource, sys
from pathlib import Path
from maskwright.text.corpus import embedded
from maskwright.text.corpus.read import Reader
from maskwright.text.store.tokenize import build_store
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
text, store = Path(sys.argv[1]), Path(sys.argv[2])
prose = embedded.documents(limit_bytes=2_000_000)
tokenizer = train(prose, TokenizerChoice(kind="wordpiece", vocabulary=8000))
build_store(Reader([text]), tokenizer, store)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def gigabyte(path: Path) -> None:
    """A text of a gigabyte, one document to a paragraph, no two of them equal."""
    prose = [d.text.replace("\n\n", "\n") for d in embedded.documents(limit_bytes=4_000_000)]
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for number in itertools.count():
            if size > 1_020_000_000:
                return
            size += file.write(f"{prose[number % len(prose)]} {number}\n\n")


def best(work: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    seconds = []
    for _ in range(times):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)


@pytest.mark.timeout(2400)
def test_a_gigabyte_of_text_in_half_a_gigabyte_of_memory(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    gigabyte(tmp_path / "text.txt")
    command = [sys.executable, "-c", BUILD, str(tmp_path / "text.txt"), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert TokenStore.open(tmp_path / "store").document_bytes.sum() >= 1_000_000_000
    peak = int(done.stdout)
    print(f"peak {peak / 1024:.0f} MiB")
    assert peak < 500_000  # kilobytes


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_building_costs_little_beside_tokenizing(tmp_path: Path, kind: str) -> None:
    texts = list(embedded.documents(limit_bytes=12 << 20))
    tokenizer = train(texts[::4], TokenizerChoice(kind=kind, vocabulary=8000))  # type: ignore[arg-type]

    def alone() -> None:
        for block in blocks((d.text, sentence_starts(d.text)) for d in texts):
            tokenizer.encode_marked([text for text, _ in block], [marks for _, marks in block])

    folders = itertools.count()

    def build() -> None:
        build_store(texts, tokenizer, tmp_path / str(next(folders)))

    # Seconds of all cores: the same beside busy neighbours.
    assert best(alone, 5, time.process_time) / best(build, 5, time.process_time) > 0.9


@pytest.mark.parametrize("kind", [PackedDocuments, Stream, SentencePairs])
def test_ten_million_tokens_a_second(
    tmp_path: Path, kind: Callable[[TokenStore, int], RowSource]
) -> None:
    loader = Loader(kind(store_of(tmp_path, corpus(0, 2000, 8)), 128), 64, 0)
    steps = itertools.count()
    assert (
        64
        * 128
        / best(lambda: loader.rows_of(*loader.take(64 * next(steps), 64)), 300, time.perf_counter)
        > 10e6
    )


def test_packing_a_million_documents(tmp_path: Path) -> None:
    """Seconds, not minutes, and next to no padding."""
    draw = np.random.default_rng(0)
    sizes = np.minimum(draw.lognormal(3.6, 0.8, 1_000_000).astype(np.int64) + 1, 126)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    began = time.perf_counter()
    plan = rows._arrange(offsets, 128, 2, 0)
    assert time.perf_counter() - began < 10
    assert (sizes.sum() + 2 * len(sizes)) / (128 * (len(plan.bounds) - 1)) > 0.99
