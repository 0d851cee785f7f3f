"""What a model is, by its bytes: one hash over its config, weights and tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from maskwright import config
from maskwright.checkpoint import files, pretrained
from maskwright.storage.manifest import hash_file
from maskwright.tokenizer import folder as tokenizer_folder


def fingerprint(
    folder: Path, known: Mapping[str, str] | None = None, beside: Sequence[Path] = ()
) -> str:
    """The hash of a model folder's config, weights and tokenizer, whatever else lies there.

    Args:
        known: SHA-256 of files by name that were read just now; these are not read again.
        beside: folders of adapters and heads that stand on it; with one, `folder` may be without
            weights.
    """
    alone = bool(beside) and not any(folder.glob("*.safetensors"))
    own = "" if alone else _of_files(folder, known or {})
    if not beside:
        return own
    digest = hashlib.sha256(own.encode())
    for each in beside:
        for file in sorted((*each.glob("*.safetensors"), *each.glob("*.json"))):
            digest.update(file.name.encode())
            digest.update(bytes.fromhex(hash_file(file)))
    return digest.hexdigest()


def _of_files(folder: Path, known: Mapping[str, str]) -> str:
    weights = [file.name for file in files.open_folder(folder).files]
    names = [pretrained.CONFIG, *weights, *tokenizer_folder.NAMES]
    there = [path for path in (folder / name for name in names) if path.is_file()]
    return config.fingerprint({p.name: known.get(p.name) or hash_file(p) for p in there})
