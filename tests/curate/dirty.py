"""The dirty sample of real texts in MASKWRIGHT_DATA, with the truth about each document."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from maskwright.text.curate.step import CurationBatch


def dirty_texts(real_data: Path) -> tuple[CurationBatch, dict[str, dict[str, Any]]]:
    """All documents in one batch, and the truth by id."""
    folder = real_data / "webcrawl"
    if not folder.is_dir():
        pytest.skip("no webcrawl in MASKWRIGHT_DATA")
    documents, truth = (
        [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for path in (folder / "docs.jsonl.gz", folder / "truth.jsonl.gz")
    )
    ids, texts = ([document[key] for document in documents] for key in ("id", "text"))
    return CurationBatch(np.arange(len(ids)), ids, texts), {row["id"]: row for row in truth}
