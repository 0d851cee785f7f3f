"""A folder with an adapter alone, opened as a model: its base is found, given the head that the
adapter brings, and the adapter is folded in.

    adapter_config.json   base_model_name_or_path    a folder, seen from here or from the adapter's
                          task_type, and the names of the saved heads     which class it was

The names of the classes lie in neither folder, unless the base has a head of as many.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from maskwright.adapters.peft import folder as peft_form
from maskwright.adapters.peft.names import BASE, CONFIG, WEIGHTS
from maskwright.checkpoint import files, matching, pretrained, safe_read
from maskwright.checkpoint.transfer import transfer
from maskwright.errors import IncompatibleError, UsageError
from maskwright.families.parts.family import Family
from maskwright.families.parts.weights import carriers
from maskwright.nn.config import TransformerConfig


@dataclass(frozen=True)
class Opened:
    """The model with its adapter in it, and where its base lies."""

    loaded: pretrained.Pretrained
    base: Path


def is_adapter(folder: Path) -> bool:
    """Whether the folder has an adapter in the form of `peft`, and no model."""
    return (folder / CONFIG).is_file() and not (folder / pretrained.CONFIG).exists()


def open_adapter(folder: Path | str, base: Path | str | None = None) -> Opened:
    """The model that the adapter in `folder` makes of its base.

    Args:
        base: the folder of the base; None: the one that the adapter names.

    Raises:
        UsageError: the base is not where the adapter says, or in two places.
        IncompatibleError: the adapter is of a kind that is not read here, or a part of its head
            lies in neither folder.
        CheckpointError and others: as of `pretrained.load` and `peft_form.load`.
    """
    folder = safe_read.model_folder(folder)
    config = safe_read.read_json(folder, CONFIG)
    peft_form.require_kind(config, folder / CONFIG)
    place = _base(folder, config) if base is None else safe_read.model_folder(base)
    loaded = pretrained.load(place)
    opened = files.open_file(safe_read.regular_file(folder, WEIGHTS))
    names = {
        name.removeprefix(peft_form.ROOT): entry.shape for name, entry in opened.entries.items()
    }
    member = pretrained.described(place).family
    heads = None if member is None else _headed(place, member, loaded.config, names, config)
    model, about = loaded.model, loaded.about
    if heads is not None and member is not None:
        made = transfer(loaded.model, heads, torch.Generator().manual_seed(0))
        rules = carriers(member.weights(heads))
        brought = {
            part
            for rule in rules
            for part in rule.parts()
            if any(name in names for name in rule.names())
        }
        if lacking := [name for name in made.new if name not in brought]:
            raise IncompatibleError(
                "a part of the head lies neither in the base nor beside the adapter",
                where=folder / WEIGHTS,
                found=f"missing: {', '.join(lacking)}",
                wanted="the whole head that was trained",
                do="save the adapter with modules_to_save naming that part too; what was drawn "
                "for it in training is lost otherwise",
            )
        model = made.model
        classes = next((h.labels for h in heads.heads if h.name == "classifier"), 0)
        kept = about.labels if len(about.labels) == classes else ()
        about = replace(about, labels=kept, problem_type=about.problem_type if kept else None)
    adapter = peft_form.load(model, folder, family=about.family)
    adapter.merge()
    for name, parameter in model.named_parameters():
        matching.require_finite(parameter, f"{folder}, merged: {name}", "use another adapter")
    whole = replace(loaded, model=model.eval(), config=model.config, about=about)
    return Opened(whole, place)


def merge_adapter(folder: Path | str, out: Path | str, *, base: Path | str | None = None) -> Path:
    """Write the model that the adapter in `folder` makes of its base as a model folder of its own.

    Raises:
        As `open_adapter` and `pretrained.save`.
    """
    found = open_adapter(folder, base).loaded
    pretrained.save(found.model, found.tokenizer, out, found.about)
    return Path(out)


def _base(folder: Path, config: Mapping[str, Any]) -> Path:
    named = config.get(BASE)
    option = "name the folder of its base: --base FOLDER"
    if not isinstance(named, str) or not named or "\0" in named:
        raise UsageError(
            "the adapter does not say what its base is",
            where=folder / CONFIG,
            found=f"{BASE}: {named!r}"[:200],
            wanted="a folder",
            do=option,
        )
    # `Path.is_dir` raises what the system says of a path that is too long.
    places = {p.resolve() for p in (Path(named), folder / named) if os.path.isdir(p)}
    if len(places) == 1:
        return places.pop()
    raise UsageError(
        "two folders may be the base of the adapter"
        if places
        else "the base of the adapter is not there",
        where=folder / CONFIG,
        found=" and ".join(sorted(map(str, places))) or f"{BASE}: {named!r}"[:200],
        wanted="one folder, seen from here or from the adapter's own; nothing is downloaded",
        do=option,
    )


def _headed(
    place: Path,
    member: Family,
    config: TransformerConfig,
    names: Mapping[str, tuple[int, ...]],
    peft_config: Mapping[str, Any],
) -> TransformerConfig | None:
    """The base's config with the head that the adapter brings; None where it brings none."""
    known = {rule_name for rule in carriers(member.weights(config)) for rule_name in rule.names()}
    heads = {name for name in names if ".lora_" not in name and ".ia3_" not in name}
    task = peft_config.get("task_type")
    wanted = next((kind for kind, called in peft_form.TASKS.items() if called == task), None)
    if not heads - known and (wanted is None or any(h.kind == wanted for h in config.heads)):
        return None
    for name, architecture in member.architectures.items():
        kinds = [kind for _, kind in architecture.heads]
        if architecture.vocabulary or len(kinds) != 1 or (wanted is not None and kinds != [wanted]):
            continue
        made = pretrained.described(place, name).config
        ours = {n for rule in carriers(member.weights(made)) for n in rule.names()}
        if not heads <= ours:
            continue
        labels = _labels(member, made, names)
        if labels is None:
            continue
        return replace(made, heads=(replace(made.heads[0], labels=labels),))
    raise IncompatibleError(
        "the adapter brings a head that no class of its base's family has",
        where=place,
        found=", ".join(sorted(heads - known)[:5]) or str(task),
        wanted=", ".join(member.architectures),
    )


def _labels(
    member: Family, config: TransformerConfig, names: Mapping[str, tuple[int, ...]]
) -> int | None:
    """How many labels the adapter's head has: the rows of its last weight."""
    last = f"heads.{config.heads[0].name}.weight"
    for rule in carriers(member.weights(config)):
        if last in rule.parts():
            found = next((names[n] for n in rule.names() if n in names), None)
            return None if found is None or len(found) != 2 else found[0]
    return None
