"""Modules by the names under which a model is published, and ours that lie in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from maskwright.adapters.parts.places import ends_in
from maskwright.checkpoint.layout import Layout
from maskwright.errors import CheckpointError

# The files of such a folder.
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"  # the key of the base's place


@dataclass(frozen=True)
class Place:
    """The published module `theirs` that holds a projection of ours, perhaps beside others, and
    whether it has the weight transposed."""

    theirs: str
    transposed: bool


def published(form: Layout) -> dict[str, Place]:
    """Where each of our modules with a weight is published."""
    found: dict[str, Place] = {}
    for rule in form.carriers():
        for part in rule.parts():
            if part.endswith(".weight"):
                theirs = rule.names()[0].removesuffix(".weight")
                found[part.removesuffix(".weight")] = Place(theirs, rule.transpose)
    return found


def modules_of(form: Layout) -> dict[str, list[str]]:
    """Every published module with a weight, and the modules of ours that it holds, in order."""
    modules: dict[str, list[str]] = {}
    for ours, place in published(form).items():
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


def names_in(config: Mapping[str, Any], key: str) -> list[str]:
    """The names that `key` lists; none where it is not set.

    Raises:
        CheckpointError: something else than a list of names.
    """
    value = config.get(key) or []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise CheckpointError(
            "not a list of names", where=f"{CONFIG}: {key}", found=repr(value)[:80]
        )
    return value


def require_targeted(config: Mapping[str, Any], modules: Collection[str]) -> None:
    """Refuse matrices beside modules that a list of targets leaves out: others would not use them.
    A text in place of the list ("all-linear", a pattern) is not asked; the matrices say it.

    Raises:
        CheckpointError: naming some.
    """
    for key, wanted in (("target_modules", True), ("exclude_modules", False)):
        if not config.get(key) or isinstance(config[key], str):
            continue
        names = set(names_in(config, key))
        found = {m for m in modules if any(m == n or m.endswith(f".{n}") for n in names)}
        if mismatched := sorted(set(modules) - found if wanted else found):
            raise CheckpointError(
                "matrices beside modules that are no targets",
                where=f"{CONFIG}: {key}",
                found=mismatched[:5],
                wanted="the modules of the matrices",
                do="take an intact copy of the folder",
            )


def require_some(modules: Collection[str]) -> None:
    if not modules:
        raise CheckpointError(
            "the folder has nothing that stands beside a module of this model",
            where=WEIGHTS,
            do="load it beside the model it was made for",
        )
