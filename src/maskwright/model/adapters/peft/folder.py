"""Adapter folders in the format of the `peft` library (0.17.1 and later): LoRA and (IA)³.

    adapter_config.json          the method, and the published names of the adapted modules
    adapter_model.safetensors    base_model.model.<module>.lora_A.weight (rank, in), .lora_B.weight
                                 (out, rank); .ia3_l (out, 1) or (1, in); heads by their names
    README.md                    a model card, and MANIFEST.json, written last

Names are those of the published model. Heads are saved even if not trained, since the base may have
none, or another. Prefixes and prompts are not supported: `peft` counts positions after
them and pools the first state of the prompt, so that its model would be a different one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.base.storage import commit
from maskwright.model.adapters.base.adapter import Adapter, attach, head_of
from maskwright.model.adapters.base.settings import Settings
from maskwright.model.adapters.ia3 import IA3
from maskwright.model.adapters.lora import LoRA
from maskwright.model.adapters.modules.ia3 import Scale
from maskwright.model.adapters.peft import lora as peft_lora
from maskwright.model.adapters.peft.names import (
    CONFIG,
    WEIGHTS,
    endings,
    modules_of,
    names_in,
    published,
    require_some,
    require_targeted,
)
from maskwright.model.checkpoint import files, layout, safe_read
from maskwright.model.checkpoint.layout import CheckpointLayout
from maskwright.model.nn.transformer import Transformer

ROOT = "base_model.model."
KINDS = ("lora", "ia3")
"""The methods that this format supports."""
TASKS = {"sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}


# --------------------------------------------------------------------------------------- saving
def save(
    adapter: Adapter,
    folder: Path | str,
    *,
    base: str,
    family: str | None = None,
    replace: bool = False,
) -> commit.Manifest:
    """Write the adapter and the heads of the model.

    Args:
        base: folder or name of the model it belongs to, which is recorded.
        family: the family of the model, if its shape fits several.

    Raises:
        IncompatibleError: the format does not support the method, or some trained parameter.
        CheckpointError: a value is not finite.
        OutputError, StoppedError, StorageError: the folder cannot be written, or the disk is full.
    """
    model = adapter.model
    form = layout.of_config(model.config, family)
    arrays = {name: tensor.contiguous() for name, tensor in adapter.state().items()}
    for name in adapter.own_names:
        if not head_of(name):
            raise IncompatibleError(
                "the folder has no place for what the adapter trains", where=name
            )
    for name, parameter in model.named_parameters():
        if name.startswith("heads."):
            arrays.setdefault(name, parameter.detach())
    for name, array in arrays.items():
        if not bool(array.isfinite().all()):
            raise CheckpointError("a value of the adapter is not finite", where=name)
    tensors, heads = _heads(form, arrays)
    config = {
        "auto_mapping": None,
        "base_model_name_or_path": base,
        "inference_mode": True,
        "modules_to_save": heads or None,
        "peft_type": adapter.settings.kind.upper(),
        "revision": None,
        "task_type": _task(model),
    }
    if isinstance(adapter.settings, LoRA):
        tensors |= peft_lora.tensors_of(form, arrays)
        config |= peft_lora.config_of(form, adapter.settings, tensors)
    elif isinstance(adapter.settings, IA3):
        tensors |= _ia3_tensors(form, adapter, arrays)
        config |= _ia3_config(form, tensors)
    else:
        raise IncompatibleError(
            "this method has no form that others read",
            where="kind",
            found=adapter.settings.kind,
            wanted="lora or ia3",
        )
    tensors = {ROOT + name: tensor for name, tensor in tensors.items()}

    def write(staging: commit.Staging) -> None:
        staging.write_bytes(CONFIG, safe_read.write_json(config))
        staging.write_bytes(WEIGHTS, files.chunks(tensors))
        staging.write_bytes("README.md", _card(adapter.settings, base).encode())

    return commit.commit(
        Path(folder),
        write,
        about={"kind": "adapter", "base": base},
        expected_bytes=files.num_bytes(tensors),
        replace=replace,
    )


def _heads(
    form: CheckpointLayout, arrays: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors of heads by published names, and the modules that contain only these."""
    saved: dict[str, Tensor] = {}
    for rule in form.carriers():
        if all(name_of_ours in arrays for name_of_ours in rule.parts()) and head_of(
            rule.parts()[0]
        ):
            saved |= rule.save(arrays, torch.cat)
    unsaved = [name for rule in form.carriers() for name in rule.names() if name not in saved]
    modules: set[str] = set()
    for name in saved:
        module = name.rpartition(".")[0]
        while (parent := module.rpartition(".")[0]) and not any(
            saved_elsewhere.startswith(f"{parent}.") for saved_elsewhere in unsaved
        ):
            module = parent
        modules.add(module)
    return saved, sorted(modules)


def _task(model: Transformer) -> str | None:
    for head in model.config.heads:
        if head.kind == "span" and model.config.has_segments:
            return None  # the question answering class of `peft` does not pass on segments
        if head.kind in TASKS:
            return TASKS[head.kind]
    if model.config.decoder is not None and model.config.vocabulary_head is not None:
        return "CAUSAL_LM" if model.config.encoder is None else "SEQ_2_SEQ_LM"
    bare = model.config.vocabulary_head is None and not model.config.heads
    return "FEATURE_EXTRACTION" if bare else None


def _card(settings: Settings, base: str) -> str:
    return "\n".join(
        [
            "---",
            f"base_model: {json.dumps(base)}",
            "library_name: peft",
            "tags:",
            f"- {json.dumps('base_model:adapter:' + base)}",
            f"- {settings.kind}",
            "---",
            "",
            f"An adapter ({settings.kind}) of `{base}`, written by maskwright.",
            "",
        ]
    )


# --------------------------------------------------------------------------------------- loading
def load(
    model: Transformer, folder: Path | str, *, name: str = "default", family: str | None = None
) -> Adapter:
    """Load the adapter in `folder`, attach it to its model and activate it.

    Raises:
        UsageError: no such folder, or the name is taken.
        CheckpointError: a file is damaged, or its tensors do not fit the model.
        IncompatibleError: an unsupported method or setting.
    """
    folder = safe_read.model_folder(folder)
    config = safe_read.read_json(folder, CONFIG)
    form = layout.of_config(model.config, family)
    tensors = files.open_file(safe_read.regular_file(folder, WEIGHTS))
    if (folder / commit.MANIFEST).exists():
        commit.verify(folder)
    for key, entry in tensors.entries.items():
        if not entry.dtype.is_floating_point:
            raise CheckpointError(
                "a tensor of the adapter has no floating point",
                where=f"{folder / WEIGHTS}: {key}",
                found=str(entry.dtype).removeprefix("torch."),
                do="take an intact copy of the folder",
            )
    foreign = {key.removeprefix(ROOT): tensors.read(key) for key in tensors.entries}
    heads = {name for rule in form.carriers() for name in rule.names() if name in foreign}
    values: dict[str, Tensor] = {}
    for rule in form.carriers():
        if rule.reads(foreign) in foreign:
            values |= rule.load(foreign[rule.reads(foreign)])
    trained = {head_of(parameter_name) for parameter_name in values} - {""}
    values |= _left_as_they_were(model, form, config, foreign, trained)
    kind = config.get("peft_type")
    adapter_read: tuple[Settings, dict[str, Tensor], set[str]]
    if kind == "LORA":
        adapter_read = peft_lora.read(form, config, foreign)
    elif kind == "IA3":
        adapter_read = _read_ia3(form, config, foreign)
    else:
        raise _other_kind(kind, folder / CONFIG)
    settings, branch_values, names_read = adapter_read
    if unread := sorted(foreign.keys() - names_read - heads):
        raise CheckpointError(
            "the folder has tensors that this model has no place for",
            where=folder / WEIGHTS,
            found=unread[:10],
            do="load it beside the model it was made for",
        )
    # All initial values are overwritten.
    generator = torch.Generator().manual_seed(0)
    adapter = attach(settings, model, generator, name=name, heads=trained)
    try:
        adapter.load_state(values | branch_values)
    except CheckpointError:
        adapter.detach()
        raise
    return adapter


def require_kind(config: Mapping[str, Any], where: object) -> None:
    """Check that the method of an adapter_config.json is supported.

    Raises:
        IncompatibleError: it is not.
    """
    if str(config.get("peft_type")).lower() not in KINDS:
        raise _other_kind(config.get("peft_type"), where)


def _other_kind(kind: object, where: object) -> IncompatibleError:
    return IncompatibleError(
        "a kind of adapter that is not read here",
        where=where,
        found=kind,
        wanted="LORA or IA3",
        do="answer with peft, or merge it into its model there "
        "(merge_and_unload) where its method can be",
    )


def _left_as_they_were(
    model: Transformer,
    form: CheckpointLayout,
    config: Mapping[str, Any],
    foreign: Mapping[str, Tensor],
    heads: Collection[str],
) -> dict[str, Tensor]:
    """Return the base's values of untrained parameters of `heads`: `peft` saves only the last layer
    of a head of several layers."""
    listed = set(names_in(config, "modules_to_save"))
    return {
        parameter_name: model.get_parameter(parameter_name).detach().clone()
        for rule in form.carriers()
        if rule.reads(foreign) not in foreign
        and not any(listed.intersection(name.split(".")) for name in rule.names())
        for parameter_name in rule.parts()
        if head_of(parameter_name) in heads
    }


# ---------------------------------------------------------------------------------------- (IA)³
# Where a published module holds several of ours (a fused projection), the factors of those that
# are not scaled are ones.
def _ia3_tensors(
    form: CheckpointLayout, adapter: Adapter, arrays: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the factors of an adapter with the state `arrays`, by published names.

    Raises:
        IncompatibleError: a part of a fused projection is scaled at its input.
    """
    sides = {path: b.side for path, b in adapter.places() if isinstance(b, Scale)}
    tensors: dict[str, Tensor] = {}
    for theirs, modules in modules_of(form).items():
        present = [our for our in modules if our in sides]
        if not present:
            continue
        sample = arrays[f"{present[0]}.factors"]
        if sides[present[0]] == "inputs":
            if len(modules) > 1:
                raise IncompatibleError("a fused projection has one input", where=theirs)
            tensors[f"{theirs}.ia3_l"] = sample[None]
        else:
            ones = torch.ones_like(sample)
            factors = [arrays.get(f"{our}.factors", ones) for our in modules]
            tensors[f"{theirs}.ia3_l"] = torch.cat(factors)[:, None]
    return tensors


def _ia3_config(form: CheckpointLayout, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the keys of adapter_config.json for (IA)³; `tensors` are from `_ia3_tensors`."""
    scaled = {n.removesuffix(".ia3_l"): t for n, t in tensors.items() if n.endswith(".ia3_l")}
    modules = modules_of(form)
    inputs = [name for name, tensor in scaled.items() if tensor.shape[0] == 1]
    return {
        "fan_in_fan_out": any(p.transposed for p in published(form).values() if p.theirs in scaled),
        "feedforward_modules": endings(inputs, modules),
        "init_ia3_weights": True,
        "target_modules": endings(list(scaled), modules),
    }


def _read_ia3(
    form: CheckpointLayout, config: Mapping[str, Any], foreign: Mapping[str, Tensor]
) -> tuple[IA3, dict[str, Tensor], set[str]]:
    """Return settings, values by the names of `Adapter.state`, and the names of tensors used.

    Raises:
        CheckpointError: factors that fit no module, or are not a vector.
    """
    values: dict[str, Tensor] = {}
    names_read: set[str] = set()
    outputs: list[str] = []
    inputs: list[str] = []
    for theirs, modules in modules_of(form).items():
        name = f"{theirs}.ia3_l"
        if name not in foreign:
            continue
        names_read.add(name)
        factors = foreign[name]
        scales_inputs = factors.dim() == 2 and len(factors) == 1
        scales_outputs = factors.dim() == 2 and factors.shape[1] == 1
        if not scales_inputs and not (scales_outputs and len(factors) % len(modules) == 0):
            raise CheckpointError(
                "the factors of a module are no vector",
                where=f"{WEIGHTS}: {name}",
                found=tuple(factors.shape),
                wanted="(out, 1) or (1, in)",
            )
        if scales_inputs:
            inputs += modules
            values |= {f"{our}.factors": factors[0] for our in modules}
            continue
        pieces = dict(zip(modules, factors[:, 0].chunk(len(modules)), strict=True))
        scaled = {our: piece for our, piece in pieces.items() if bool((piece != 1).any())}
        for our, piece in (scaled or pieces).items():
            outputs.append(our)
            values[f"{our}.factors"] = piece
    require_some([*outputs, *inputs])
    require_targeted(config, [name.removesuffix(".ia3_l") for name in names_read])
    module_names = published(form)
    settings = IA3(
        outputs=tuple(endings(outputs, module_names)), inputs=tuple(endings(inputs, module_names))
    )
    return settings, values, names_read
