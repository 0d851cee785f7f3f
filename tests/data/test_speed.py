"""The long proofs of token stores: memory for a gigabyte, and speed in seconds (make proof)."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from maskwright.text.corpus import embedded
from maskwright.text.store import rows
from maskwright.text.store.store import TokenStore

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


def test_packing_a_million_documents(tmp_path: Path) -> None:
    """Seconds, not minutes, and next to no padding."""
    draw = np.random.default_rng(0)
    sizes = np.minimum(draw.lognormal(3.6, 0.8, 1_000_000).astype(np.int64) + 1, 126)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    began = time.perf_counter()
    plan = rows._arrange(offsets, 128, 2, 0)
    assert time.perf_counter() - began < 10
    assert (sizes.sum() + 2 * len(sizes)) / (128 * (len(plan.bounds) - 1)) > 0.99
