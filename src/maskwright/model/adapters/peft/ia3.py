"""(IA)³ in the form of the `peft` library, both ways.

Where a published module holds several of ours (a fused projection), the factors of those that are
not scaled are ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.model.adapters.base.adapter import Adapter
from maskwright.model.adapters.ia3 import IA3
from maskwright.model.adapters.modules.ia3 import Scale
from maskwright.model.adapters.peft.names import (
    WEIGHTS,
    endings,
    modules_of,
    published,
    require_some,
    require_targeted,
)
from maskwright.model.checkpoint.layout import Layout


def tensors_of(form: Layout, adapter: Adapter, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The factors of an adapter, whose state is in `arrays`, by published names.

    Raises:
        IncompatibleError: one part of a fused projection is scaled at its input.
    """
    sides = {path: b.side for path, b in adapter.places() if isinstance(b, Scale)}
    tensors: dict[str, Tensor] = {}
    for theirs, parts in modules_of(form).items():
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


def config_of(form: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The keys of adapter_config.json that are (IA)³'s; `tensors` as from `tensors_of`."""
    scaled = {n.removesuffix(".ia3_l"): t for n, t in tensors.items() if n.endswith(".ia3_l")}
    modules = modules_of(form)
    inputs = [name for name, tensor in scaled.items() if tensor.shape[0] == 1]
    return {
        "fan_in_fan_out": any(p.transposed for p in published(form).values() if p.theirs in scaled),
        "feedforward_modules": endings(inputs, modules),
        "init_ia3_weights": True,
        "target_modules": endings(list(scaled), modules),
    }


def read(
    form: Layout, config: Mapping[str, Any], foreign: Mapping[str, Tensor]
) -> tuple[IA3, dict[str, Tensor], set[str]]:
    """Settings, values by the names of `Adapter.state`, and the names that were read.

    Raises:
        CheckpointError: factors that fit no module, or are no vector.
    """
    values: dict[str, Tensor] = {}
    seen: set[str] = set()
    outputs: list[str] = []
    inputs: list[str] = []
    for theirs, parts in modules_of(form).items():
        name = f"{theirs}.ia3_l"
        if name not in foreign:
            continue
        seen.add(name)
        factors = foreign[name]
        of_inputs = factors.dim() == 2 and len(factors) == 1
        of_outputs = factors.dim() == 2 and factors.shape[1] == 1
        if not of_inputs and not (of_outputs and len(factors) % len(parts) == 0):
            raise CheckpointError(
                "the factors of a module are no vector",
                where=f"{WEIGHTS}: {name}",
                found=tuple(factors.shape),
                wanted="(out, 1) or (1, in)",
            )
        if of_inputs:
            inputs += parts
            values |= {f"{our}.factors": factors[0] for our in parts}
            continue
        pieces = dict(zip(parts, factors[:, 0].chunk(len(parts)), strict=True))
        scaled = {our: piece for our, piece in pieces.items() if bool((piece != 1).any())}
        for our, piece in (scaled or pieces).items():
            outputs.append(our)
            values[f"{our}.factors"] = piece
    require_some([*outputs, *inputs])
    require_targeted(config, [name.removesuffix(".ia3_l") for name in seen])
    known = published(form)
    settings = IA3(outputs=tuple(endings(outputs, known)), inputs=tuple(endings(inputs, known)))
    return settings, values, seen
