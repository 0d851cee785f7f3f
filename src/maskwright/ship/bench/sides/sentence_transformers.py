"""The sentence-transformers library: its `encode` of the folders that are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maskwright.ship.bench.side import BATCH, Side
from maskwright.ship.bench.work import Work

LABEL = "sentence-transformers"
NEEDS = ("sentence_transformers",)
PRECISION = "float32"
GRAPH = False


def refusal(work: Work) -> str | None:
    """Why it does not answer this work."""
    if work.kind != "vector":
        return "it makes vectors"
    if not (Path(work.model) / "modules.json").is_file():
        return "not its form: maskwright export MODEL --to sentence-transformers --out FOLDER"
    return None


def open(work: Work, threads: int) -> Side:
    """The folder in its own class."""
    import sentence_transformers
    import torch

    torch.set_num_threads(threads)
    model = sentence_transformers.SentenceTransformer(
        work.model, device="cpu", local_files_only=True
    )

    def ask(texts: list[Any]) -> list[Any]:
        found = model.encode(texts, batch_size=BATCH, show_progress_bar=False)
        return [each.tolist() for each in found]

    return Side(ask, PRECISION)
