"""Save and load folders with an adapter of any method, without the model.

Methods that `peft` supports are saved in its format (`peft_format`), all others in ours:

    adapter.json             settings of the method, heads trained as well, and the base; for a
                             separate head also the hash of the base, and the config with the head
    adapter.safetensors      values by the names of `Adapter.state`
    MANIFEST.json            written last

The format is detected on loading; the model must have the shape that the adapter was made for.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maskwright.base import catalogue
from maskwright.base.config import fingerprint, from_plain, to_plain
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.storage import commit
from maskwright.model.adapters.base import peft_format
from maskwright.model.adapters.base.adapter import Adapter, attach, head_of
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.checkpoint import files, layout, safe_read
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer

CONFIG = "adapter.json"
WEIGHTS = "adapter.safetensors"
FORMAT = 1
BESIDE = "base"  # a folder or link next to that of a head, which may contain its base


def save(
    adapter: Adapter,
    folder: Path | str,
    *,
    base: str,
    family: str | None = None,
    base_sha256: str | None = None,
    readme: str | None = None,
) -> commit.Manifest:
    """Write the adapter, in the format of `peft` if it supports the method.

    Args:
        base: folder or name of the model it belongs to, which is recorded.
        base_sha256: hash of that folder, for a separate head that is opened with its base
            (`base_of`).
        readme: text of README.md; None for none. The format of `peft` has one of its own.
        family: the family of the model, if its shape fits several.

    Raises:
        CheckpointError: a value is not finite.
        OutputError, StoppedError, StorageError: the folder cannot be written, or the disk is full.
    """
    model, state = adapter.model, adapter.state()
    form = layout.of_config(model.config, family)
    # `peft` only supports models of transformers, which belong to a family.
    if form.family is not None and adapter.settings.kind in peft_format.KINDS:
        config_name, weights_name = peft_format.CONFIG, peft_format.WEIGHTS
        config, tensors = peft_format.encoded(adapter, form, base)
        readme = peft_format.card(adapter.settings, base)
    else:
        config_name, weights_name = CONFIG, WEIGHTS
        tensors = {name: tensor.contiguous() for name, tensor in state.items()}
        config = {
            "base": base,
            "format": FORMAT,
            "heads": sorted({head_of(name) for name in adapter.own_names} - {""}),
            "model": fingerprint(_shape(model)),
            "settings": to_plain(adapter.settings),
        }
        if base_sha256 is not None:
            config |= {
                "base_sha256": base_sha256,
                "base_from_here": os.path.relpath(base, Path(folder).absolute()),
                "config": to_plain(model.config),
            }
    for name, tensor in (state | tensors).items():
        if not bool(tensor.isfinite().all()):
            raise CheckpointError("a value of the adapter is not finite", where=name)

    def write(staging: commit.Staging) -> None:
        staging.write_bytes(config_name, safe_read.write_json(config))
        staging.write_bytes(weights_name, files.chunks(tensors))
        if readme is not None:
            staging.write_bytes("README.md", readme.encode())

    about, num_bytes = {"kind": "adapter", "base": base}, files.num_bytes(tensors)
    return commit.commit(Path(folder), write, about=about, expected_bytes=num_bytes)


def base_named(folder: Path) -> Any:
    """Return the base that the adapter in `folder`, of either format, names."""
    if (folder / CONFIG).is_file():
        return safe_read.read_json(folder, CONFIG).get("base")
    return safe_read.read_json(folder, peft_format.CONFIG).get(peft_format.BASE)


@dataclass(frozen=True)
class BaseReference:
    """The base model of a separately saved head.

    Attributes:
        paths: possible paths of the base, in order of preference.
        sha256: the hash of its folder.
        config: the config of the base with this head instead of its own.
    """

    paths: tuple[Path, ...]
    sha256: str
    config: TransformerConfig


def base_of(folder: Path) -> BaseReference | None:
    """Return the base of the separate head in `folder`; None if it is not a separate head.

    Raises:
        CheckpointError: `adapter.json` is damaged.
    """
    if not (folder / CONFIG).exists():
        return None
    config = safe_read.read_json(folder, CONFIG)
    if "base_sha256" not in config:
        return None
    commit.verify(folder)
    texts = [config.get(name) for name in ("base", "base_from_here", "base_sha256")]
    if not all(isinstance(text, str) for text in texts):
        raise CheckpointError(
            "the base of the head is not named",
            where=folder / CONFIG,
            found=texts,
            wanted="base, base_from_here, base_sha256",
        )
    base, relative_base, sha256 = map(str, texts)
    # A base next to the head takes precedence over the recorded paths.
    folders = (folder.parent / BESIDE, Path(base), folder / relative_base)
    return BaseReference(
        folders, sha256, from_plain(TransformerConfig, config.get("config"), "config")
    )


def load(model: Transformer, folder: Path | str, *, family: str | None = None) -> Adapter:
    """Load the adapter in `folder` and attach it to its model.

    Args:
        family: the family of the model, if its shape fits several.

    Raises:
        UsageError: no such folder, no such method, or the model has an adapter.
        ConfigError: an invalid setting of the method.
        CheckpointError: a file is damaged, or its tensors do not fit the model.
        IncompatibleError: it was made for a model of another shape.
    """
    folder = safe_read.model_folder(folder)
    is_ours = (folder / CONFIG).exists()
    names = (CONFIG, WEIGHTS) if is_ours else (peft_format.CONFIG, peft_format.WEIGHTS)
    config = safe_read.read_json(folder, names[0])
    tensors = files.open_file(safe_read.regular_file(folder, names[1]))
    if (folder / commit.MANIFEST).exists():
        commit.verify(folder)
    if is_ours:
        settings, heads = _read_config(model, folder / CONFIG, config)
        values = {key: tensors.read(key) for key in tensors.entries}
    else:
        form = layout.of_config(model.config, family)
        settings, values, heads = peft_format.read(model, form, config, tensors)
    # All initial values are overwritten.
    generator = torch.Generator().manual_seed(0)
    adapter = attach(settings, model, generator, heads=heads)
    try:
        adapter.load_state(values)
    except CheckpointError:
        adapter.detach()
        raise
    return adapter


def _read_config(
    model: Transformer, path: Path, config: Mapping[str, Any]
) -> tuple[Settings, Collection[str]]:
    """Return the settings and the heads in an `adapter.json`."""
    if config.get("format") != FORMAT:
        raise CheckpointError(
            "the folder was written in another version of the format",
            where=path,
            found=config.get("format"),
            wanted=FORMAT,
            do="load it with the version that wrote it",
        )
    if config.get("model") != fingerprint(_shape(model)):
        raise IncompatibleError(
            "the adapter was made for a model of another shape",
            where=path,
            found=config.get("model"),
            wanted=fingerprint(_shape(model)),
            do=f"load it beside {config.get('base')}",
        )
    plain, heads = config.get("settings"), config.get("heads", [])
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise CheckpointError("the method is not named", where=f"{path}: settings.kind")
    if not isinstance(heads, list) or not all(isinstance(head, str) for head in heads):
        raise CheckpointError("not a list of heads", where=f"{path}: heads", found=repr(heads)[:80])
    kind = catalogue.load("adapters", plain["kind"]).SETTINGS
    return from_plain(kind, plain, "settings"), heads


def _shape(model: Transformer) -> Any:
    """Return the model's config without heads and dropout rates, which change between runs."""

    def without_dropout(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_dropout(v) for k, v in value.items() if "dropout" not in k}
        return [without_dropout(v) for v in value] if isinstance(value, list) else value

    return without_dropout(to_plain(dataclasses.replace(model.config, heads=())))
