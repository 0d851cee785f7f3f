"""Adapter folders as the `peft` library has them: LoRA and (IA)³.

    adapter_config.json          what it is, and the foreign names of the modules it stands beside
    adapter_model.safetensors    base_model.model.<module>.lora_A.weight (rank, in), .lora_B.weight
                                 (out, rank); .ia3_l (out, 1) or (1, in); heads by their names
    README.md                    a model card, and MANIFEST.json last

Names are those under which the model itself is published. Where a published module holds several of
ours (a fused projection), pairs are put on a block diagonal, of that many times the rank and alpha,
and come back as they were. A head is saved whether it was trained or not: the base has none, or
another.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from maskwright import commit
from maskwright.adapters.adapter import Adapter, Settings, ends_in
from maskwright.adapters.ia3 import IA3
from maskwright.adapters.lora import LoRA
from maskwright.checkpoint import files, guarded, layout
from maskwright.checkpoint.layout import Layout
from maskwright.errors import CheckpointError, IncompatibleError
from maskwright.nn.transformer import Transformer

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
ROOT = "base_model.model."
LIBRARY = "0.17.1"
"""The oldest release of the library whose form this is."""
TASKS = {"sequence": "SEQ_CLS", "token": "TOKEN_CLS", "span": "QUESTION_ANS"}


@dataclass(frozen=True)
class Place:
    """Where a projection of ours is published: number `index` of `count` in the module `theirs`."""

    theirs: str
    index: int
    count: int
    transposed: bool


# --------------------------------------------------------------------------------------- saving
def save(
    adapter: Adapter,
    folder: Path | str,
    *,
    base: str,
    family: str | None = None,
    replace: bool = False,
) -> commit.Manifest:
    """Write the adapter, and nothing of the model but its heads.

    Args:
        base: the folder or name of the model it belongs to, for those who load it.
        family: whose names the model is published under, where it lies in several families.

    Raises:
        IncompatibleError: the method has no such form; or part of the model trains that the form
            has no place for.
        CheckpointError: a value is not finite.
        OutputError, StoppedError, StorageError: the place cannot be written, is full, or fails.
    """
    model = adapter._model
    form = layout.of_config(model.config, family)
    arrays = {name: tensor.contiguous() for name, tensor in adapter.state().items()}
    for name in adapter.own_names:
        if not _of_a_head(name):
            raise IncompatibleError("the folder has no place for what the adapter trains",
                                    where=name)  # fmt: skip
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
        tensors |= _lora_tensors(form, arrays)
        config |= _lora_config(form, adapter.settings, tensors)
    elif isinstance(adapter.settings, IA3):
        tensors |= _ia3_tensors(form, adapter, arrays)
        config |= _ia3_config(form, tensors)
    else:
        raise IncompatibleError("this method has no form that others read", where="kind",
                                found=adapter.settings.kind, wanted="lora or ia3")  # fmt: skip
    tensors = {ROOT + name: tensor for name, tensor in tensors.items()}

    def write(staging: commit.Staging) -> None:
        staging.write_bytes(CONFIG, guarded.write_json(config))
        staging.write_bytes(WEIGHTS, files.chunks(tensors))
        staging.write_bytes("README.md", _card(adapter.settings, base).encode())

    return commit.commit(Path(folder), write, about={"kind": "adapter", "base": base},
                         expected_bytes=files.num_bytes(tensors), replace=replace)  # fmt: skip


def _heads(form: Layout, arrays: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of heads under their published names, and the modules that hold nothing else."""
    saved: dict[str, Tensor] = {}
    for rule in form.carriers():
        if all(part in arrays for part in rule.parts()) and _of_a_head(rule.parts()[0]):
            saved |= rule.save(arrays, torch.cat)
    others = [name for rule in form.carriers() for name in rule.names() if name not in saved]
    modules: set[str] = set()
    for name in saved:
        module = name.rpartition(".")[0]
        while (above := module.rpartition(".")[0]) and not any(
            other.startswith(f"{above}.") for other in others
        ):
            module = above
        modules.add(module)
    return saved, sorted(modules)


def _lora_tensors(form: Layout, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for theirs, parts in _modules(form).items():
        pairs = {i: (arrays[f"{our}.A"], arrays[f"{our}.B"])
                 for i, our in enumerate(parts) if f"{our}.A" in arrays}  # fmt: skip
        if not pairs:
            continue
        a, b = next(iter(pairs.values()))
        blank = (torch.zeros_like(a), torch.zeros_like(b))
        every = [pairs.get(i, blank) for i in range(len(parts))]
        tensors[f"{theirs}.lora_A.weight"] = torch.cat([a for a, _ in every])
        tensors[f"{theirs}.lora_B.weight"] = torch.block_diag(*(b for _, b in every)).to(b.dtype)
    return tensors


def _lora_config(form: Layout, settings: LoRA, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    targets = [name.removesuffix(".lora_A.weight") for name in tensors if ".lora_A." in name]
    modules = _modules(form)
    fused = {size for module in targets if (size := len(modules[module])) > 1}
    patterns: dict[str, dict[str, float]] = {"rank_pattern": {}, "alpha_pattern": {}}
    for size in sorted(fused):
        those = [module for module in targets if len(modules[module]) == size]
        for name in endings(those, modules):
            patterns["rank_pattern"][name] = settings.rank * size
            patterns["alpha_pattern"][name] = settings.alpha * size
    return {
        "bias": "none",
        "fan_in_fan_out": any(p.transposed for p in _places(form).values() if p.theirs in targets),
        "init_lora_weights": True,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "r": settings.rank,
        "target_modules": endings(targets, modules),
        "use_dora": False,
        "use_rslora": False,
        **patterns,
    }


def _ia3_tensors(form: Layout, adapter: Adapter, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    sides = {path: branch.side for path, branch in adapter.places()}
    tensors: dict[str, Tensor] = {}
    for theirs, parts in _modules(form).items():
        present = [our for our in parts if our in sides]
        if not present:
            continue
        sample = arrays[f"{present[0]}.factors"]
        if sides[present[0]] == "inputs":
            if len(parts) > 1:
                raise IncompatibleError("a fused projection has one input", where=theirs)
            tensors[f"{theirs}.ia3_l"] = sample[None]
        else:
            ones = torch.ones_like(sample)
            factors = [arrays.get(f"{our}.factors", ones) for our in parts]
            tensors[f"{theirs}.ia3_l"] = torch.cat(factors)[:, None]
    return tensors


def _ia3_config(form: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    scaled = {n.removesuffix(".ia3_l"): t for n, t in tensors.items() if n.endswith(".ia3_l")}
    modules = _modules(form)
    inputs = [name for name, tensor in scaled.items() if tensor.shape[0] == 1]
    return {
        "fan_in_fan_out": any(p.transposed for p in _places(form).values() if p.theirs in scaled),
        "feedforward_modules": endings(inputs, modules),
        "init_ia3_weights": True,
        "target_modules": endings(list(scaled), modules),
    }


def _task(model: Transformer) -> str | None:
    for head in model.config.heads:
        if head.kind in TASKS:
            return TASKS[head.kind]
    if model.config.decoder is not None and model.config.vocabulary_head is not None:
        return "CAUSAL_LM" if model.config.encoder is None else "SEQ_2_SEQ_LM"
    bare = model.config.vocabulary_head is None and not model.config.heads
    return "FEATURE_EXTRACTION" if bare else None


def _card(settings: Settings, base: str) -> str:
    return "\n".join([
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
    ])  # fmt: skip


# --------------------------------------------------------------------------------------- loading
def load(
    model: Transformer, folder: Path | str, *, name: str = "default", family: str | None = None
) -> Adapter:
    """Attach the adapter in `folder` to its model, active.

    Raises:
        UsageError: no such folder, or the name is taken.
        CheckpointError: a file is torn or damaged, or its tensors do not fit the model.
        IncompatibleError: a kind, or a setting, that is not built here.
    """
    folder = guarded.model_folder(folder)
    config = guarded.read_json(folder, CONFIG)
    form = layout.of_config(model.config, family)
    opened = files.open_file(guarded.regular_file(folder, WEIGHTS))
    foreign = {key.removeprefix(ROOT): opened.read(key) for key in opened.entries}
    read: set[str] = set()
    values: dict[str, Tensor] = {}
    for rule in form.carriers():
        found = next((theirs for theirs in rule.names() if theirs in foreign), None)
        if found is not None:
            values |= rule.load(foreign[found])
            read |= set(rule.names())
    kind = config.get("peft_type")
    if kind == "LORA":
        settings: Settings = _read_lora(form, config, foreign, values, read)
    elif kind == "IA3":
        settings = _read_ia3(form, foreign, values, read)
    else:
        raise IncompatibleError("a kind of adapter that is not read here", where=folder / CONFIG,
                                found=kind, wanted="LORA or IA3")  # fmt: skip
    if left := sorted(foreign.keys() - read):
        raise CheckpointError("the folder has tensors that this model has no place for",
                              where=folder / WEIGHTS, found=left[:10],
                              do="load it beside the model it was made for")  # fmt: skip
    heads = {_of_a_head(part) for part in values} - {""}
    # Every value is replaced by one that is read.
    adapter = settings.attach(model, torch.Generator().manual_seed(0), name=name, heads=heads)
    try:
        adapter.load_state(values)
    except CheckpointError:
        adapter.detach()
        raise
    return adapter


def _read_lora(
    form: Layout,
    config: Mapping[str, Any],
    foreign: Mapping[str, Tensor],
    values: dict[str, Tensor],
    read: set[str],
) -> LoRA:
    _plain(config, {"use_dora": False, "use_rslora": False, "bias": "none"})
    chosen: list[str] = []
    scales: set[tuple[int, float]] = set()
    for theirs, parts in _modules(form).items():
        names = [f"{theirs}.lora_{side}.weight" for side in "AB"]
        if not all(name in foreign for name in names):
            continue
        read |= set(names)
        a, b = (foreign[name] for name in names)
        if a.dim() != 2 or b.dim() != 2 or len(a) != b.shape[1] or len(b) % len(parts):
            raise CheckpointError("the two matrices of a pair do not fit each other",
                                  where=f"{WEIGHTS}: {theirs}",
                                  found=f"{tuple(a.shape)} and {tuple(b.shape)}",
                                  wanted="(rank, in) and (out, rank)")  # fmt: skip
        alpha = _pattern(config, "alpha_pattern", theirs, config.get("lora_alpha"))
        for i, pair in _parted(a, b, len(parts)).items():
            chosen.append(parts[i])
            values |= {f"{parts[i]}.{side}": t for side, t in zip("AB", pair, strict=True)}
            scales.add((len(pair[0]), alpha * len(pair[0]) / len(a)))
    _found(chosen)
    if len(scales) != 1:
        raise IncompatibleError("the adapter's modules have no rank and scale in common",
                                where=CONFIG, found=sorted(scales),
                                wanted="one of each")  # fmt: skip
    ((rank, alpha),) = scales
    return LoRA(rank=rank, alpha=alpha, dropout=float(config.get("lora_dropout", 0.0)),
                targets=tuple(endings(chosen, _places(form))))  # fmt: skip


def _parted(a: Tensor, b: Tensor, count: int) -> dict[int, tuple[Tensor, Tensor]]:
    """The pairs of a fused module: the blocks of a block diagonal, without those that are blank; or
    else A for all, each with its rows of B."""
    rows, rank = b.shape[0] // count, a.shape[0] // count
    parts = [b[i * rows : (i + 1) * rows] for i in range(count)]
    if count > 1 and a.shape[0] % count == 0:
        blocks = [part[:, i * rank : (i + 1) * rank].contiguous() for i, part in enumerate(parts)]
        if torch.equal(torch.block_diag(*blocks).to(b.dtype), b):
            pairs = {i: (a[i * rank : (i + 1) * rank], blocks[i]) for i in range(count)}
            return {i: (a, b) for i, (a, b) in pairs.items() if bool(a.any()) or bool(b.any())}
    return {i: (a, part) for i, part in enumerate(parts)}


def _read_ia3(
    form: Layout, foreign: Mapping[str, Tensor], values: dict[str, Tensor], read: set[str]
) -> IA3:
    outputs: list[str] = []
    inputs: list[str] = []
    for theirs, parts in _modules(form).items():
        name = f"{theirs}.ia3_l"
        if name not in foreign:
            continue
        read.add(name)
        factors = foreign[name]
        if factors.dim() != 2 or 1 not in factors.shape or len(factors) % len(parts) > 1:
            raise CheckpointError("the factors of a module are no vector",
                                  where=f"{WEIGHTS}: {name}", found=tuple(factors.shape),
                                  wanted="(out, 1) or (1, in)")  # fmt: skip
        if factors.shape[0] == 1:
            inputs += parts
            values |= {f"{our}.factors": factors[0] for our in parts}
            continue
        for our, part in zip(parts, factors[:, 0].chunk(len(parts)), strict=True):
            if len(parts) == 1 or bool((part != 1).any()):
                outputs.append(our)
                values[f"{our}.factors"] = part
    _found([*outputs, *inputs])
    places = _places(form)
    return IA3(outputs=tuple(endings(outputs, places)), inputs=tuple(endings(inputs, places)))


def _found(modules: Collection[str]) -> None:
    if not modules:
        raise CheckpointError("the folder has nothing that stands beside a module of this model",
                              where=WEIGHTS, do="load it beside the model it was made for")  # fmt: skip


def _pattern(config: Mapping[str, Any], field: str, module: str, usual: Any) -> float:
    """The setting of one module: the pattern's whose key its name ends in, else the usual one.

    Raises:
        CheckpointError: not a number.
    """
    patterns = config.get(field) or {}
    fitting = [value for key, value in patterns.items() if ends_in(module, key)]
    value = fitting[0] if fitting else usual
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError("not a number", where=f"{CONFIG}: {field}", found=repr(value))
    return float(value)


def _plain(config: Mapping[str, Any], wanted: Mapping[str, object]) -> None:
    for key, value in wanted.items():
        if config.get(key, value) not in (value, None):
            raise IncompatibleError("a setting of the adapter that is not built here",
                                    where=f"{CONFIG}: {key}", found=config[key],
                                    wanted=value)  # fmt: skip


# --------------------------------------------------------------------------------------- names
def _places(form: Layout) -> dict[str, Place]:
    """Where each of our modules with a weight is published."""
    places: dict[str, Place] = {}
    for rule in form.carriers():
        ours = [part for part in rule.parts() if part.endswith(".weight")]
        for index, part in enumerate(ours):
            theirs = rule.names()[0].removesuffix(".weight")
            place = Place(theirs, index, len(ours), rule.transpose)
            places[part.removesuffix(".weight")] = place
    return places


def _modules(form: Layout) -> dict[str, list[str]]:
    """Every published module with a weight, and the modules of ours that it holds, in order."""
    modules: dict[str, list[str]] = {}
    for ours, place in _places(form).items():
        modules.setdefault(place.theirs, []).append(ours)
    return modules


def endings(chosen: Collection[str], known: Iterable[str]) -> list[str]:
    """The shortest endings of dotted names that choose these among the `known` ones, and no
    others."""
    chosen, known = set(chosen), list(known)
    found: list[str] = []
    for name in sorted(chosen):
        if any(ends_in(name, ending) for ending in found):
            continue
        parts = name.split(".")
        for start in reversed(range(len(parts))):
            ending = ".".join(parts[start:])
            if all(other in chosen for other in known if ends_in(other, ending)):
                found.append(ending)
                break
    return sorted(found)


def _of_a_head(name: str) -> str:
    """What head a parameter belongs to, as `attach` calls it; empty if to none."""
    first, _, rest = name.partition(".")
    if first == "heads":
        return rest.partition(".")[0]
    return first if first in ("pooler", "vocabulary_head") else ""
