"""A folder with an adapter and nothing else of the model: save one, load one, of any method.

What others have a form for is written in that form (`peft_form`). All else is written in ours:

    adapter.json             the method's settings, the heads that trained along, and the base; of
                             a head alone also the base's hash, and the config with the head
    adapter.safetensors      values by the names of `Adapter.state`
    MANIFEST.json            last

A folder is read by what stands in it, and only beside a model of the shape it was made for.
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
BESIDE = "base"  # a folder or a link beside that of a head, which may hold its base


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
    """Write the adapter, in the form of `peft` where there is one.

    Args:
        base: the folder or name of the model it belongs to, for those who load it.
        base_sha256: of that folder; what is saved then says all that is needed to open it above
            the base (`base_of`).
        readme: a card for the folder.
        family: whose names that model has, where its shape is that of several families.

    Raises:
        CheckpointError: a value is not finite.
        OutputError, StoppedError, StorageError: the place cannot be written, is full, or fails.
    """
    # Others read a model of a family alone; beside any other they would look for names in vain.
    of_a_family = layout.of_config(adapter.model.config, family).family is not None
    if of_a_family and adapter.settings.kind in peft_form.KINDS:
        return peft_form.save(adapter, folder, base=base, family=family, replace=replace)
    model = adapter.model
    state = {name: tensor.contiguous() for name, tensor in adapter.state().items()}
    wild = [name for name, tensor in state.items() if not bool(tensor.isfinite().all())]
    if wild:
        raise CheckpointError("a value of the adapter is not finite", where=wild[0])
    config = {
        "base": base,
        "format": FORMAT,
        "heads": sorted({head_of(name) for name in adapter.own_names} - {""}),
        "model": fingerprint(_shape(model)),
        "settings": to_plain(adapter.settings),
    }
    if base_sha256 is not None:
        beside = os.path.relpath(base, Path(folder).absolute())
        config |= {
            "base_sha256": base_sha256,
            "base_from_here": beside,
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
    """The base that the adapter in `folder`, of either form, names."""
    name, key = (
        (CONFIG, "base") if (folder / CONFIG).is_file() else (peft_names.CONFIG, peft_names.BASE)
    )
    return safe_read.read_json(folder, name).get(key)


@dataclass(frozen=True)
class BaseReference:
    """The base model of a separately saved head.

    Attributes:
        places: where the base may lie, the likeliest first.
        sha256: the hash of its folder.
        config: of the base with the head in place of its own.
    """

    places: tuple[Path, ...]
    sha256: str
    config: TransformerConfig


def base_of(folder: Path) -> BaseReference | None:
    """The base of the adapter in `folder`; None if it was saved with a whole model.

    Raises:
        CheckpointError: the file that says it is damaged.
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
    base, beside, sha256 = map(str, texts)
    # One that the user lays beside the head is meant; else where it lay when the head was made.
    folders = (folder.parent / BESIDE, Path(base), folder / beside)
    return BaseReference(
        folders, sha256, from_plain(TransformerConfig, config.get("config"), "config")
    )


def load(
    model: Transformer, folder: Path | str, *, name: str = "default", family: str | None = None
) -> Adapter:
    """Attach the adapter in `folder` to its model, active.

    Args:
        family: whose names the model has, where its shape is that of several families.

    Raises:
        UsageError: no such folder, no such method, or the name is taken.
        ConfigError: a setting of the method is wrong.
        CheckpointError: a file is torn or damaged, or its tensors do not fit the model.
        IncompatibleError: it was made for a model of another shape.
    """
    folder = safe_read.model_folder(folder)
    if not (folder / CONFIG).exists():
        return peft_form.load(model, folder, name=name, family=family)
    config = safe_read.read_json(folder, CONFIG)
    opened = files.open_file(safe_read.regular_file(folder, WEIGHTS))
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
    # Every value is replaced by one that is read.
    generator = torch.Generator().manual_seed(0)
    adapter = attach(settings, model, generator, name=name, heads=heads)
    try:
        adapter.load_state({key: opened.read(key) for key in opened.entries})
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
    """The model's config without rates of dropout, which change between runs."""

    def still(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: still(v) for k, v in value.items() if "dropout" not in k}
        return [still(v) for v in value] if isinstance(value, list) else value

    return still(to_plain(dataclasses.replace(model.config, heads=())))
