"""Published names of modules, and our modules that they contain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.base.errors import CheckpointError
from maskwright.model.adapters.base.adapter import ends_in
from maskwright.model.checkpoint import name_pattern
from maskwright.model.checkpoint.layout import CheckpointLayout

# The files of such a folder.
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"  # the key of the base's path


@dataclass(frozen=True)
class PublishedModule:
    """The published module `theirs` that contains a projection of ours, perhaps with others, and
    whether its weight is transposed."""

    theirs: str
    transposed: bool


def published(form: CheckpointLayout) -> dict[str, PublishedModule]:
    """Return {our module with a weight: the published module that contains it}."""
    published_modules: dict[str, PublishedModule] = {}
    for rule in form.carriers():
        for parameter_name in rule.parts():
            if parameter_name.endswith(".weight"):
                theirs = rule.names()[0].removesuffix(".weight")
                published_modules[parameter_name.removesuffix(".weight")] = PublishedModule(
                    theirs, rule.transpose
                )
    return published_modules


def modules_of(form: CheckpointLayout) -> dict[str, list[str]]:
    """Return {published module with a weight: our modules that it contains, in order}."""
    modules: dict[str, list[str]] = {}
    for ours, published_module in published(form).items():
        modules.setdefault(published_module.theirs, []).append(ours)
    return modules


def endings(chosen: Collection[str], names: Iterable[str]) -> list[str]:
    """Return the shortest endings of dotted `names` that select exactly the `chosen` ones."""
    chosen, names = set(chosen), list(names)
    shortest: list[str] = []
    for name in sorted(chosen):
        if any(ends_in(name, ending) for ending in shortest):
            continue
        path = name.split(".")
        for start in reversed(range(len(path))):
            ending = ".".join(path[start:])
            if all(candidate in chosen for candidate in names if ends_in(candidate, ending)):
                shortest.append(ending)
                break
    return sorted(shortest)


def names_in(config: Mapping[str, Any], key: str) -> list[str]:
    """Return the list of names of `key`; empty if it is not set.

    Raises:
        CheckpointError: it is not a list of names.
    """
    value = config.get(key) or []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise CheckpointError(
            "not a list of names", where=f"{CONFIG}: {key}", found=repr(value)[:80]
        )
    return value


def require_targeted(config: Mapping[str, Any], modules: Collection[str]) -> None:
    """Check that the config selects all `modules` with matrices, since `peft` would ignore others.
    Unsupported patterns are not checked.

    Raises:
        CheckpointError: a module is not selected; the message names some.
    """
    targets = _chosen(config, "target_modules", modules)
    layers = config.get("layers_to_transform")
    layer_numbers = set(map(str, layers if isinstance(layers, list) else [layers]))
    unused = {
        "target_modules": set() if targets is None else set(modules) - targets,
        "exclude_modules": _chosen(config, "exclude_modules", modules) or set(),
        "layers_to_transform": {
            module
            for module in modules
            if layers not in (None, [])
            and not config.get("layers_pattern")
            and next(filter(str.isdigit, module.split(".")[2:]), "") not in layer_numbers
        },
    }
    for key, mismatched in unused.items():
        if mismatched:
            raise CheckpointError(
                "matrices beside modules that are no targets",
                where=f"{CONFIG}: {key}",
                found=sorted(mismatched)[:5],
                wanted="the modules of the matrices",
                do="take an intact copy of the folder",
            )


def _chosen(config: Mapping[str, Any], key: str, modules: Collection[str]) -> set[str] | None:
    """Return the modules that a list of names or a pattern selects; None if unknown."""
    value = config.get(key)
    if not value or value == "all-linear":
        return None
    if not isinstance(value, str):
        names = set(names_in(config, key))
        ends = ((m, m.split(".")) for m in modules)
        return {m for m, p in ends if any(".".join(p[n:]) in names for n in range(len(p)))}
    try:
        full_pattern = f"^({value.removeprefix('^').removesuffix('$')})"
        return {module for module in modules if name_pattern.fits(full_pattern, module)}
    except name_pattern.PatternError:
        return None


def require_some(modules: Collection[str]) -> None:
    if not modules:
        raise CheckpointError(
            "the folder has nothing that stands beside a module of this model",
            where=WEIGHTS,
            do="load it beside the model it was made for",
        )
