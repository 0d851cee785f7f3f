"""Conversion of LoRA to and from the format of the `peft` library.

If a published module contains several of ours (a fused projection), our pairs of matrices become a
block diagonal, with rank and alpha multiplied by their number, which is recognised on reading.
Other pairs for a fused projection have one A for all parts, and B has the rows of each part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.model.adapters.lora import LoRA
from maskwright.model.adapters.peft.names import (
    CONFIG,
    WEIGHTS,
    endings,
    modules_of,
    published,
    require_some,
    require_targeted,
)
from maskwright.model.checkpoint import name_pattern
from maskwright.model.checkpoint.layout import CheckpointLayout

# Initialisations that change the weights of the base.
OF_THE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
# Keys of unsupported variants, with other matrices or another meaning of them.
VARIANTS = (
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "alora_invocation_tokens",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
)
# Keys that are used here, or do not affect the meaning of the matrices. The adapted modules
# (`target_modules` etc.) are determined from the names of the matrices.
KNOWN = {
    "task_type",
    "peft_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "r",
    "target_modules",
    "exclude_modules",
    "lora_alpha",
    "lora_dropout",
    "fan_in_fan_out",
    "bias",
    "use_rslora",
    "modules_to_save",
    "init_lora_weights",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "megatron_config",
    "megatron_core",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "qalora_group_size",
    "ensure_weight_tying",
    "runtime_config",
}
MOST_PATTERNS = 4096


def tensors_of(form: CheckpointLayout, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The pairs of an adapter, whose state is in `arrays`, by published names."""
    tensors: dict[str, Tensor] = {}
    for theirs, modules in modules_of(form).items():
        pairs = {
            i: (arrays[f"{our}.A"], arrays[f"{our}.B"])
            for i, our in enumerate(modules)
            if f"{our}.A" in arrays
        }
        if not pairs:
            continue
        a, b = next(iter(pairs.values()))
        blank = (torch.zeros_like(a), torch.zeros_like(b))
        all_pairs = [pairs.get(i, blank) for i in range(len(modules))]
        tensors[f"{theirs}.lora_A.weight"] = torch.cat([a for a, _ in all_pairs])
        tensors[f"{theirs}.lora_B.weight"] = torch.block_diag(*(b for _, b in all_pairs)).to(
            b.dtype
        )
    return tensors


def config_of(
    form: CheckpointLayout, settings: LoRA, tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The keys of adapter_config.json that are LoRA's; `tensors` as from `tensors_of`."""
    targets = [name.removesuffix(".lora_A.weight") for name in tensors if ".lora_A." in name]
    modules = modules_of(form)
    fused = {size for module in targets if (size := len(modules[module])) > 1}
    patterns: dict[str, dict[str, float]] = {"rank_pattern": {}, "alpha_pattern": {}}
    for size in sorted(fused):
        those = [module for module in targets if len(modules[module]) == size]
        for name in endings(those, modules):
            patterns["rank_pattern"][name] = settings.rank * size
            patterns["alpha_pattern"][name] = settings.alpha * size
    return {
        "bias": "none",
        "fan_in_fan_out": any(
            p.transposed for p in published(form).values() if p.theirs in targets
        ),
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


def read(
    form: CheckpointLayout,
    config: Mapping[str, Any],
    foreign: Mapping[str, Tensor],
) -> tuple[LoRA, dict[str, Tensor], set[str]]:
    """Return settings, values by the names of `Adapter.state`, and the names of tensors used.

    Raises:
        CheckpointError: tensors that fit no module or not each other, or an invalid number.
        IncompatibleError: an unsupported setting.
    """
    _require_usual(config)
    for key in ("use_rslora", "fan_in_fan_out"):
        if not isinstance(config.get(key, False), bool | None):
            raise CheckpointError(
                "not true or false", where=f"{CONFIG}: {key}", found=repr(config[key])[:80]
            )
    if str(config.get("init_lora_weights")).lower().startswith(OF_THE_BASE):
        raise IncompatibleError(
            "the adapter changes the weights of its base",
            where=f"{CONFIG}: init_lora_weights",
            found=config["init_lora_weights"],
            wanted="true, false or gaussian",
            do="save it as an ordinary LoRA first (peft can convert it)",
        )
    values: dict[str, Tensor] = {}
    names_read: set[str] = set()
    chosen: list[str] = []
    scales: set[tuple[int, float]] = set()
    for theirs, modules in modules_of(form).items():
        names = [f"{theirs}.lora_{side}.weight" for side in "AB"]
        if not all(name in foreign for name in names):
            continue
        names_read |= set(names)
        a, b = (foreign[name] for name in names)
        fits = a.dim() == b.dim() == 2 and 0 < len(a) == b.shape[1] and not len(b) % len(modules)
        if not fits:
            raise CheckpointError(
                "the two matrices of a pair do not fit each other",
                where=f"{WEIGHTS}: {theirs}",
                found=f"{tuple(a.shape)} and {tuple(b.shape)}",
                wanted="(rank, in) and (out, rank)",
            )
        _require_rank(config, theirs, len(a))
        alpha = _of_module(config, "alpha_pattern", "lora_alpha", theirs)
        for i, pair in _parted(a, b, len(modules)).items():
            chosen.append(modules[i])
            values |= {f"{modules[i]}.{side}": t for side, t in zip("AB", pair, strict=True)}
            scales.add((len(pair[0]), alpha * len(pair[0]) / _divisor(config, len(a))))
    require_some(chosen)
    require_targeted(
        config, [name.removesuffix(".lora_A.weight") for name in names_read if "_A." in name]
    )
    if len(scales) != 1:
        raise IncompatibleError(
            "the adapter's modules have no rank and scale in common",
            where=CONFIG,
            found=sorted(scales),
            wanted="one of each",
        )
    ((rank, alpha),) = scales
    rate = _number(config.get("lora_dropout") or 0.0, "lora_dropout")
    if not 0.0 < alpha < math.inf or not 0.0 <= rate < 1.0:
        raise CheckpointError(
            "a number out of range",
            where=CONFIG,
            found=f"lora_alpha {config.get('lora_alpha')}, dropout {rate:g}",
            wanted="an alpha above 0, and a dropout from 0 to less than 1",
            do="take an intact copy of the folder",
        )
    targets = tuple(endings(chosen, published(form)))
    return LoRA(rank=rank, alpha=alpha, dropout=rate, targets=targets), values, names_read


def _parted(a: Tensor, b: Tensor, count: int) -> dict[int, tuple[Tensor, Tensor]]:
    """Split the matrices of a fused module of `count` parts; return {index of part: (A, B)}: the
    non-zero blocks if B is block diagonal, else the whole A and the rows of B for each part."""
    rows, rank = b.shape[0] // count, a.shape[0] // count
    row_blocks = [b[i * rows : (i + 1) * rows] for i in range(count)]
    if count > 1 and a.shape[0] % count == 0:
        blocks = [
            row_block[:, i * rank : (i + 1) * rank].contiguous()
            for i, row_block in enumerate(row_blocks)
        ]
        if torch.equal(torch.block_diag(*blocks).to(b.dtype), b):
            pairs = {i: (a[i * rank : (i + 1) * rank], blocks[i]) for i in range(count)}
            return {i: (a, b) for i, (a, b) in pairs.items() if bool(a.any()) or bool(b.any())}
    return {i: (a, row_block) for i, row_block in enumerate(row_blocks)}


def _divisor(config: Mapping[str, Any], rank: int) -> float:
    """Return the divisor of alpha: the rank, or its root (Kalajdzievski 2023, arXiv:2312.03732)."""
    return math.sqrt(rank) if config.get("use_rslora") else rank


def _of_module(config: Mapping[str, Any], patterns: str, usual: str, module: str) -> float:
    """Return a number for one module: of the first matching pattern, else the general one."""
    table = config.get(patterns) or {}
    if not isinstance(table, dict) or len(table) > MOST_PATTERNS:
        raise CheckpointError(
            "not a table of patterns", where=f"{CONFIG}: {patterns}", found=repr(table)[:80]
        )
    for pattern, value in table.items():
        try:
            fits = name_pattern.fits(pattern, module)
        except name_pattern.PatternError as error:
            raise CheckpointError(
                "not a pattern of module names that is read here",
                where=f"{CONFIG}: {patterns}",
                found=f"{pattern[:80]!r}: {error}",
                wanted="names, or their ends, with '.*', digits and groups of alternatives",
                do="write the modules out, each with its number",
            ) from error
        if fits:
            return _number(value, f"{patterns}: {pattern}")
    return _number(config.get(usual), usual)


def _require_rank(config: Mapping[str, Any], module: str, rank: int) -> None:
    """Check that the configured rank, if there is one, is that of the matrices."""
    if config.get("r") is None and not config.get("rank_pattern"):
        return
    configured = _of_module(config, "rank_pattern", "r", module)
    if configured != rank:
        raise CheckpointError(
            "the rank is not that of the matrices",
            where=f"{CONFIG}: r",
            found=f"{configured:g}",
            wanted=f"{rank}, as {module} has it",
            do="take an intact copy of the folder",
        )


def _require_usual(config: Mapping[str, Any]) -> None:
    """Check that unsupported and unknown settings, which may change the meaning, are not set."""
    for key in sorted(config.keys() - KNOWN | ({"bias"} & config.keys())):
        if config[key] not in (None, False, "", [], {}, "none" if key == "bias" else None):
            built = "built" if key in (*VARIANTS, "bias") else "known"
            raise IncompatibleError(
                f"a setting of the adapter that is not {built} here",
                where=f"{CONFIG}: {key[:64]}",
                found=repr(config[key])[:80],
                wanted="none" if key == "bias" else "not set",
            )


def _number(value: Any, key: str) -> float:
    where, problem = f"{CONFIG}: {key}"[:200], "not a number"
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            problem = "a number out of range"
    raise CheckpointError(problem, where=where, found=repr(value)[:80])
