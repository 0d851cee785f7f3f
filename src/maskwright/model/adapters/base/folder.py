"""Save and load folders with an adapter of any method, without the model.

Methods that `peft` supports are saved in its format (`peft_form`), all others in ours:

    adapter.json             settings of the method, heads trained as well, and the base; for a
                             separate head also the hash of the base, and the config with the head
    adapter.safetensors      values by the names of `Adapter.state`
    MANIFEST.json            written last

The format is detected on loading; the model must have the shape that the adapter was made for.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from maskwright.base import catalogue
from maskwright.base.config import fingerprint, from_plain, to_plain
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.storage import commit
from maskwright.model.adapters.base.adapter import Adapter, attach, head_of
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.adapters.peft import folder as peft_form
from maskwright.model.adapters.peft import names as peft_names
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
    replace: bool = False,
    base_sha256: str | None = None,
    readme: str | None = None,
) -> commit.Manifest:
    """Write the adapter, in the format of `peft` if it supports the method.

    Args:
        base: folder or name of the model it belongs to, which is recorded.
        base_sha256: hash of that folder, for a separate head that is opened with its base
            (`base_of`).
        readme: text of README.md; None for none.
        family: the family of the model, if its shape fits several.

    Raises:
        CheckpointError: a value is not finite.
        OutputError, StoppedError, StorageError: the folder cannot be written, or the disk is full.
    """
    # `peft` only supports models of transformers, which belong to a family.
    of_a_family = layout.of_config(adapter.model.config, family).family is not None
    if of_a_family and adapter.settings.kind in peft_form.KINDS:
        return peft_form.save(adapter, folder, base=base, family=family, replace=replace)
    model = adapter.model
    state = {name: tensor.contiguous() for name, tensor in adapter.state().items()}
    non_finite = [name for name, tensor in state.items() if not bool(tensor.isfinite().all())]
    if non_finite:
        raise CheckpointError("a value of the adapter is not finite", where=non_finite[0])
    config = {
        "base": base,
        "format": FORMAT,
        "heads": sorted({head_of(name) for name in adapter.own_names} - {""}),
        "model": fingerprint(_shape(model)),
        "settings": to_plain(adapter.settings),
    }
    if base_sha256 is not None:
        relative_base = os.path.relpath(base, Path(folder).absolute())
        config |= {
            "base_sha256": base_sha256,
            "base_from_here": relative_base,
            "config": to_plain(model.config),
        }

    def write(staging: commit.Staging) -> None:
        staging.write_bytes(CONFIG, safe_read.write_json(config))
        staging.write_bytes(WEIGHTS, files.chunks(state))
        if readme is not None:
            staging.write_bytes("README.md", readme.encode())

    return commit.commit(
        Path(folder),
        write,
        about={"kind": "adapter", "base": base},
        expected_bytes=files.num_bytes(state),
        replace=replace,
    )


def base_named(folder: Path) -> Any:
    """Return the base that the adapter in `folder`, of either format, names."""
    name, key = (
        (CONFIG, "base") if (folder / CONFIG).is_file() else (peft_names.CONFIG, peft_names.BASE)
    )
    return safe_read.read_json(folder, name).get(key)


@dataclass(frozen=True)
class BaseReference:
    """The base model of a separately saved head.

    Attributes:
        places: possible paths of the base, in order of preference.
        sha256: the hash of its folder.
        config: the config of the base with this head instead of its own.
    """

    places: tuple[Path, ...]
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


def load(
    model: Transformer, folder: Path | str, *, name: str = "default", family: str | None = None
) -> Adapter:
    """Load the adapter in `folder`, attach it to its model and activate it.

    Args:
        family: the family of the model, if its shape fits several.

    Raises:
        UsageError: no such folder, no such method, or the name is taken.
        ConfigError: an invalid setting of the method.
        CheckpointError: a file is damaged, or its tensors do not fit the model.
        IncompatibleError: it was made for a model of another shape.
    """
    folder = safe_read.model_folder(folder)
    if not (folder / CONFIG).exists():
        return peft_form.load(model, folder, name=name, family=family)
    config = safe_read.read_json(folder, CONFIG)
    tensors = files.open_file(safe_read.regular_file(folder, WEIGHTS))
    if (folder / commit.MANIFEST).exists():
        commit.verify(folder)
    if config.get("format") != FORMAT:
        raise CheckpointError(
            "the folder was written in another version of the format",
            where=folder / CONFIG,
            found=config.get("format"),
            wanted=FORMAT,
            do="load it with the version that wrote it",
        )
    if config.get("model") != fingerprint(_shape(model)):
        raise IncompatibleError(
            "the adapter was made for a model of another shape",
            where=folder / CONFIG,
            found=config.get("model"),
            wanted=fingerprint(_shape(model)),
            do=f"load it beside {config.get('base')}",
        )
    settings = _settings(config.get("settings"))
    heads = config.get("heads", [])
    if not isinstance(heads, list) or not all(isinstance(head, str) for head in heads):
        raise CheckpointError(
            "not a list of heads", where=f"{folder / CONFIG}: heads", found=repr(heads)[:80]
        )
    # All initial values are overwritten.
    generator = torch.Generator().manual_seed(0)
    adapter = attach(settings, model, generator, name=name, heads=heads)
    try:
        adapter.load_state({key: tensors.read(key) for key in tensors.entries})
    except CheckpointError:
        adapter.detach()
        raise
    return adapter


def _settings(plain: Any) -> Settings:
    if not isinstance(plain, dict) or not isinstance(plain.get("kind"), str):
        raise CheckpointError(
            "the folder does not say which method it is of", where=f"{CONFIG}: settings.kind"
        )
    return from_plain(catalogue.load("adapters", plain["kind"]).SETTINGS, plain, "settings")


def _shape(model: Transformer) -> Any:
    """Return the model's config without heads and dropout rates, which change between runs."""

    def without_dropout(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_dropout(v) for k, v in value.items() if "dropout" not in k}
        return [without_dropout(v) for v in value] if isinstance(value, list) else value

    return without_dropout(to_plain(dataclasses.replace(model.config, heads=())))
