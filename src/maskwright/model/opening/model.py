"""Model: what a folder holds, as one value."""

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
    """The hash of a model folder's config, weights and tokenizer, whatever else lies there.

    Args:
        hashes: SHA-256 of files by name that were read just now; these are not read again.
        beside: folders of adapters and heads that stand on it; with one, `folder` may be without
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
        network: in evaluation mode, an adapter attached where the folder has one.
        words: the tokenizer; None where the folder has none (`tokenizer` refuses that).
        config: of the network.
        model_type: the family's name, or `maskwright`.
        conventions: how it is asked.
        folder: as it was named: of a run, a result of fine-tuning, an adapter, a model.
        home: where what belongs to the model lies: the result of a fine-tuning around it.
        path: the folder that the weights were read from.
        is_adapter: it is an adapter that was opened on its base.
        task: what `task.json` says; None where it was not fine-tuned here.
        about: names of labels and the like, as the folder states them.
        extra: keys of config.json that the config does not decide.
        positions: how many positions an adapter puts before a text.
        findings: what was assumed when the folder was opened.
        hashes: SHA-256 of the files that were compared with a manifest, by name.
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
        """1, or 2 of an encoder with a decoder."""
        return len(self.config.stacks)

    @property
    def writes_for_texts(self) -> bool:
        """Whether it is a text-to-text model of two stacks from another library."""
        ours = self.about.conventions or self.conventions.measure or self.task
        return ours is None and self.num_stacks == 2 and self.config.vocabulary_head is not None

    @property
    def decoder_start(self) -> int | None:
        """The id that the decoder of two stacks begins with; None without a trained second stack.

        Raises:
            CheckpointError: config.json does not say it.
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
