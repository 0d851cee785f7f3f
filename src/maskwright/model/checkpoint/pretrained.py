"""Load and save model folders, in the format of Hugging Face.

    load    config.json -> config -> memory check -> header against shapes -> tensors -> tokenizer
    save    config.json, model.safetensors, tokenizer files, MANIFEST.json last

All checks precede allocation: the size of the model is compared with the free memory, the names and
shapes in the file with those of the config. A model that belongs to a family is saved with the
names of that family and loads in transformers; any other is saved with `model_type: maskwright` and
our own config. Code in a folder is never executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.base.errors import (
    CheckpointError,
    Finding,
    IncompatibleError,
    MaskwrightError,
    ResourceError,
    shorten,
)
from maskwright.base.memory import free_bytes
from maskwright.base.storage import commit
from maskwright.base.storage.files import listed
from maskwright.base.storage.manifest import require_as_saved
from maskwright.base.terminal import shell_word
from maskwright.model.checkpoint import files, layout, matching
from maskwright.model.checkpoint.fine_tuned import require_finished
from maskwright.model.checkpoint.folder_keys import read_keys
from maskwright.model.checkpoint.layout import About, CheckpointLayout
from maskwright.model.checkpoint.safe_read import model_folder, read_json, regular_file
from maskwright.model.families.base import weights
from maskwright.model.nn.config import Patches, TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.text.corpus.saved import is_curated
from maskwright.text.images.processor import FILE as PROCESSOR
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer.tokenizer import FILE_NAMES, Tokenizer, tokenizer_files

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
ADAPTER = "adapter_config.json"  # in the folder of an adapter in the format of `peft`
OWN_ADAPTER = "adapter.json"  # in that of an adapter for which `peft` has no format
SPARE_MEMORY = 0.9  # maximum share of the free memory for a model


@dataclass(frozen=True)
class PretrainedModel:
    """The content of a model folder.

    Attributes:
        model: on the CPU, in evaluation mode.
        tokenizer: None if the folder has none.
        config: the config of the model.
        model_type: the family's name, or `maskwright`.
        about: further information such as label names, in the form that `save` takes.
        extra: the keys of config.json that are not determined by the config.
        unused: names of tensors that belong to another architecture of the family.
        hashes: file name -> SHA-256, for the files that were compared with the folder's manifest.
        findings: settings of another library that are not applied.
    """

    model: Transformer
    tokenizer: Tokenizer | None
    config: TransformerConfig
    model_type: str
    about: About = field(default_factory=About)
    extra: dict[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


# ------------------------------------------------------------------------------ loading
def load(folder: Path | str) -> PretrainedModel:
    """Load the model in `folder` in float32: CPUs are slow and less exact in half precision.

    Raises:
        UsageError: no such folder.
        ConfigError, CheckpointError, TokenizerError: a file is invalid; the message says where.
        IncompatibleError: the tokenizer does not belong to the weights.
        ResourceError: the model does not fit into memory.
    """
    folder = model_folder(folder)
    hf, form = _config_and_layout(folder)
    findings = setting_findings(folder, hf, form)
    _require_memory(folder, layout.num_parameters(form.config) * torch.float32.itemsize)
    tensors = files.open_folder(folder)
    form = layout.of_hf(form.switched(hf, tensors.entries))
    file_names, unused = matching.match(form, tensors)
    if unused and not hf.get("architectures"):  # a head would be lost without a word
        message = f"config.json names no architecture, and {form.architecture} does not have "
        message += shorten(", ".join(unused), 200)
        names = form.family.architectures if form.family else ()
        remedy = f"name it in config.json as architectures: {shorten(', '.join(names), 200)}"
        findings += (Finding("unused-tensors", message, remedy=remedy),)
    hashes: dict[str, str] = {}
    manifest = _verified(folder, [path.name for path in tensors.files], hashes)
    model = matching.fill(form, tensors, file_names)
    tokenizer = None
    if tokenizer_names := tokenizer_files(folder):
        for name in tokenizer_names:
            regular_file(folder, name)
        # A different tokenizer is reported as such below, not as a damaged file.
        tokenizer = Tokenizer.load(folder, as_saved=False)
        require_room(tokenizer, form.config)
        if manifest is not None and (recorded := manifest.about.get("tokenizer")) is not None:
            require_tokenizer(recorded, tokenizer)
        for name in (name for name in FILE_NAMES if (folder / name).is_file()):
            hashes[name] = require_as_saved(folder / name, beside=FILE_NAMES)
    about = layout.about_of(hf, form)
    if isinstance(form.config.tokens, Patches):
        about = replace(about, images=image_processor(folder, form.config.tokens))
    return PretrainedModel(
        model,
        tokenizer,
        form.config,
        form.model_type,
        about,
        layout.rest_of(hf, form),
        unused,
        {name: digest for name, digest in hashes.items() if digest},
        findings,
    )


def image_processor(folder: Path, patches: Patches) -> ImageProcessor | None:
    """Return the image processor of a model that reads `patches`; None if the folder has none."""
    path = folder / PROCESSOR
    if not path.exists():
        return None
    processor = ImageProcessor.of_json(read_json(folder, PROCESSOR), str(path))
    processor.require_fit(patches.image_size, patches.channels, path)
    return processor


def described(folder: Path | str, architecture: str | None = None) -> CheckpointLayout:
    """Return the layout of the model in `folder`, as `architecture` of its family if given.

    Raises:
        UsageError: no such folder.  ConfigError, CheckpointError: a file in it is invalid.
        IncompatibleError: the model's family has no such architecture.
    """
    folder = model_folder(folder)
    hf, form = _config_and_layout(folder, architecture)
    return layout.of_hf(form.switched(hf, files.open_folder(folder).entries), architecture)


def setting_findings(
    folder: Path, hf: Mapping[str, Any], form: CheckpointLayout
) -> tuple[Finding, ...]:
    """Return findings on settings of another library that are not applied (`folder_keys.py`).

    Args:
        hf: the content of config.json in `folder`, and `form` its layout.

    Raises:
        IncompatibleError: a setting has a value that is refused.
        CheckpointError: a file of settings is invalid.
    """
    ours = layout.read_conventions(hf) is not None or (folder / commit.MANIFEST).exists()
    if ours or form.family is None:
        return ()
    keys = form.family.known_keys({**hf, "architectures": [form.architecture]})
    return tuple(read_keys(folder, hf, keys))


def _config_and_layout(
    folder: Path, architecture: str | None = None
) -> tuple[dict[str, Any], CheckpointLayout]:
    """Return the content of config.json in `folder` and its layout."""
    require_finished(folder)
    if not (folder / CONFIG).exists():
        raise _not_a_model(folder)
    if (folder / ADAPTER).is_file():
        raise IncompatibleError(
            "the folder holds a model and an adapter, and other libraries would read the adapter",
            where=folder,
            found=f"{CONFIG} and {ADAPTER}",
            wanted="one of the two",
            do="move adapter_config.json and adapter_model.safetensors into a folder of their own",
        )
    hf = read_json(folder, CONFIG)
    try:
        return hf, layout.of_hf(hf, architecture)
    except MaskwrightError as error:
        error.where = str(error.where or "").removeprefix("config.json").removeprefix(": ")
        raise error.under(f"{folder / CONFIG}: " if error.where else str(folder / CONFIG)) from None


def _not_a_model(folder: Path) -> MaskwrightError:
    """Return the error for a folder without config.json: what it holds instead of a model."""
    adapter_help = {
        ADAPTER: "use it with predict or evaluate, or merge it into a model, in Python: "
        "maskwright.api.merge_adapter(FOLDER, OUT)",
        OWN_ADAPTER: "name the result of the fine-tuning, with the model and task.json",
    }
    adapters = sorted(path.parent.name for path in folder.glob(f"*/{ADAPTER}"))
    models = sorted({path.parent.name for path in folder.glob(f"*/{CONFIG}")})
    models += sorted(path.name for path in folder.glob("*") if (path / "checkpoints").is_dir())
    error: type[MaskwrightError] = CheckpointError
    where, content = folder, ""
    if own_file := next((name for name in adapter_help if (folder / name).is_file()), None):
        error, where = IncompatibleError, folder / own_file
        problem, remedy = "the folder holds an adapter, not a model", adapter_help[own_file]
    elif adapters:
        error, problem = IncompatibleError, "the folder holds several adapters and no model"
        content, remedy = listed(adapters), f"name {folder / adapters[0]}, or another"
    elif models:
        several = "several models" if len(models) > 1 else "a model"
        problem = f"the folder is not a model, but holds {several}"
        content, remedy = listed(models), f"name one of them, such as {folder / models[0]}"
    elif is_curated(folder):
        problem = "the folder holds a corpus, not a model"
        remedy = f"pretrain on it: maskwright pretrain bert-mini --text {shell_word(folder)}"
    else:
        problem = "not the folder of a model"
        content = listed(sorted(path.name for path in folder.iterdir()))
        remedy = "name the folder of a model, a run or a fine-tuning"
    return error(
        problem,
        where=where,
        found=content or None,
        wanted=f"{CONFIG} next to the weights of a model",
        do=remedy,
    )


def require_tokenizer(fingerprint: str, tokenizer: Tokenizer) -> None:
    """Raise an `IncompatibleError`, with both fingerprints, unless the weights were trained with
    this tokenizer."""
    if tokenizer.fingerprint != fingerprint:
        raise IncompatibleError(
            "the tokenizer is not the one the model was trained with",
            where=TOKENIZER,
            found=tokenizer.fingerprint,
            wanted=fingerprint,
            do="use the tokenizer in the model's folder",
        )


def require_room(tokenizer: Tokenizer, config: TransformerConfig) -> None:
    """Raise an `IncompatibleError`, with the largest id, unless all ids of a tokenizer are in the
    model's embedding table."""
    if tokenizer.vocabulary_size > config.tokens.vocabulary:
        raise IncompatibleError(
            "the tokenizer has more tokens than the model's vocabulary",
            where="tokens.vocabulary",
            found=f"largest id {tokenizer.vocabulary_size - 1}",
            wanted=f"at most {config.tokens.vocabulary - 1}",
            do="use the tokenizer that belongs to this model",
        )


def _require_memory(folder: Path, needed: int) -> None:
    limit = int(free_bytes() * SPARE_MEMORY)
    if needed > limit:
        raise ResourceError(
            "the model is larger than the memory allows",
            where=folder / CONFIG,
            found=f"{needed:,} bytes of parameters",
            wanted=f"at most {limit:,}",
            do="use a smaller model or a machine with more memory",
        )


def _verified(folder: Path, names: list[str], hashes: dict[str, str]) -> commit.Manifest | None:
    """Return the folder's manifest, or None; check the weights and add their hashes to `hashes`."""
    if not (folder / commit.MANIFEST).exists():
        return None
    manifest = commit.read_manifest(folder)
    weights = [name for name in manifest.files if name.endswith(".safetensors") and "/" not in name]
    for name in names:
        hashes[name] = require_as_saved(folder / name, beside=weights)
    return manifest  # config.json is checked by `read_json`


# ------------------------------------------------------------------------------ saving
def save_files(
    model: Transformer,
    tokenizer: Tokenizer | None,
    about: About | None = None,
    *,
    state: Mapping[str, Tensor] | None = None,
) -> dict[str, files.Content]:
    """Return the files of a model folder: name -> bytes, or a function that yields them in chunks.

    Args:
        about: the family, labels, model card and other information.
        state: weights to save instead of the model's, by parameter name (float32 masters).

    Raises:
        IncompatibleError: the tokenizer has more ids than the embedding table has rows, or other
            special tokens than the family needs; or the config does not fit `about.family`.
        CheckpointError: a weight is not finite, or `state` lacks some.
    """
    about = about or About()
    if tokenizer is not None:
        require_room(tokenizer, model.config)
    form = layout.of_config(model.config, about.family)
    arrays = model.state_dict() if state is None else dict(state)
    for name, array in arrays.items():
        matching.require_finite(array, name, "resume from an earlier checkpoint")
    saved = weights.save(form.rules(), arrays, torch.cat)
    content: dict[str, files.Content] = dict(layout.documents(form, tokenizer, about, saved))
    content |= files.weight_files(saved, about.largest_shard)
    if tokenizer is not None:
        # The mask string is parsed as a special token only for models that predict masks.
        reads_texts_only = model.config.vocabulary_head is None
        content |= tokenizer.files(
            model.config.longest, plain=reads_texts_only, segments=model.config.has_segments
        )
    return content


def save(
    model: Transformer,
    tokenizer: Tokenizer | None,
    folder: Path | str,
    about: About | None = None,
    *,
    more: Mapping[str, bytes] | None = None,
) -> commit.Manifest:
    """Write the model folder atomically.

    Args:
        more: contents of further files of the folder, by name.

    Raises:
        IncompatibleError: as `save_files`.
        CheckpointError: a weight is not finite.
        OutputError, StoppedError, StorageError: the folder cannot be written, or the disk is full.
    """
    content = {**save_files(model, tokenizer, about), **(more or {})}
    facts = {"kind": "model", "tokenizer": None if tokenizer is None else tokenizer.fingerprint}

    def write(staging: commit.Staging) -> None:
        for name, data in content.items():
            staging.write_bytes(name, data() if callable(data) else data)

    expected = files.num_bytes(dict(model.named_parameters()))
    return commit.commit(Path(folder), write, about=facts, expected_bytes=expected)
