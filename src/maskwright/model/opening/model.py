"""The content of an opened model folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.base import config
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.findings import Finding
from maskwright.base.storage.manifest import hash_file
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.checkpoint.conventions import Conventions
from maskwright.model.checkpoint.fine_tuned import ADAPTER, TaskRecord
from maskwright.model.checkpoint.layout import About
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.text.tokenizer import folder as tokenizer_folder
from maskwright.text.tokenizer.tokenizer import Tokenizer


def fingerprint(
    folder: Path, hashes: Mapping[str, str] | None = None, beside: Sequence[Path] = ()
) -> str:
    """Return a hash of the config, weights and tokenizer of a model folder.

    Args:
        hashes: file name -> known SHA-256; these files are not read again.
        beside: folders of adapters and heads to include; if there are some, `folder` may have no
            weights.
    """
    without_weights = bool(beside) and not any(folder.glob("*.safetensors"))
    digest_of_folder = "" if without_weights else _of_files(folder, hashes or {})
    if not beside:
        return digest_of_folder
    digest = hashlib.sha256(digest_of_folder.encode())
    for other in beside:
        for file in sorted((*other.glob("*.safetensors"), *other.glob("*.json"))):
            digest.update(file.name.encode())
            digest.update(bytes.fromhex(hash_file(file)))
    return digest.hexdigest()


def _of_files(folder: Path, hashes: Mapping[str, str]) -> str:
    weights = [file.name for file in files.open_folder(folder).files]
    names = [pretrained.CONFIG, *weights, *tokenizer_folder.NAMES]
    present = [path for path in (folder / name for name in names) if path.is_file()]
    return config.fingerprint({p.name: hashes.get(p.name) or hash_file(p) for p in present})


@dataclass(frozen=True, kw_only=True)
class Model:
    """An open model.

    Attributes:
        network: the network in evaluation mode, with the adapter of the folder attached, if any.
        words: the tokenizer; None if the folder has none (`tokenizer` then raises).
        config: the config of the network.
        model_type: the family's name, or `maskwright`.
        conventions: conventions of its use.
        folder: the path as given by the caller: a run, fine-tuning, adapter or model.
        home: the fine-tuning folder that the model belongs to, else the given folder.
        path: the folder of the weights.
        is_adapter: whether it is an adapter that was opened with its base.
        task: the content of `task.json`; None if it was not fine-tuned here.
        about: label names and other information of the folder.
        extra: keys of config.json that are not determined by the config.
        positions: number of positions that an adapter puts before a text.
        findings: assumptions made when the folder was opened.
        hashes: file name -> SHA-256, for the files that were compared with a manifest.
    """

    network: Transformer
    words: Tokenizer | None
    config: TransformerConfig
    model_type: str
    conventions: Conventions
    folder: Path
    home: Path
    path: Path
    is_adapter: bool = False
    task: TaskRecord | None = None
    about: About = field(default_factory=About)
    extra: Mapping[str, Any] = field(default_factory=dict)
    positions: int = 0
    findings: tuple[Finding, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            IncompatibleError: the folder has none.
        """
        if self.words is None:
            raise IncompatibleError(
                "the model has no tokenizer",
                where=self.path,
                wanted="tokenizer.json beside the weights",
                do="copy the tokenizer of the model into the folder",
            )
        return self.words

    @property
    def num_stacks(self) -> int:
        """Number of stacks: 2 for an encoder-decoder, else 1."""
        return len(self.config.stacks)

    @property
    def writes_for_texts(self) -> bool:
        """Whether it is a text-to-text encoder-decoder from another library."""
        ours = self.about.conventions or self.conventions.measure or self.task
        return ours is None and self.num_stacks == 2 and self.config.vocabulary_head is not None

    @property
    def decoder_start(self) -> int | None:
        """The decoder start id of an encoder-decoder; None without a trained decoder beside it.

        Raises:
            CheckpointError: config.json does not have it.
        """
        if self.num_stacks == 1 or not self.conventions.decoder_trained:
            return None
        token = self.extra.get("decoder_start_token_id")
        if type(token) is not int or not 0 <= token < self.config.tokens.vocabulary:
            raise CheckpointError(
                "the folder does not say what its decoder begins with",
                where=f"{self.path}: config.json: decoder_start_token_id",
                found=repr(token),
                wanted="the id of a token",
            )
        return token

    @cached_property
    def fingerprint(self) -> str:
        """The hash of config, weights and tokenizer, and of an adapter or separate head."""
        beside = [self.home] if self.is_adapter else []
        beside.append(self.home / ADAPTER)
        return fingerprint(
            self.path, self.hashes, [candidate for candidate in beside if candidate.is_dir()]
        )
