"""What a model is, by its bytes: one hash over its config, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from maskwright import config
from maskwright.checkpoint import files, pretrained
from maskwright.storage.manifest import hash_file
from maskwright.tokenizer import folder as tokenizer_folder


def fingerprint(folder: Path, known: Mapping[str, str] | None = None) -> str:
    """The hash of a model folder's config, weights and tokenizer, whatever else lies there.

    Args:
        known: SHA-256 of files by name that were read just now; these are not read again.
    """
    known = known or {}
    weights = [file.name for file in files.open_folder(folder).files]
    names = [pretrained.CONFIG, *weights, *tokenizer_folder.NAMES]
    there = [path for path in (folder / name for name in names) if path.is_file()]
    return config.fingerprint({p.name: known.get(p.name) or hash_file(p) for p in there})
