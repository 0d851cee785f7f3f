"""Modules by the names under which a model is published, and ours that lie in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from maskwright.adapters.places import ends_in
from maskwright.checkpoint.layout import Layout
from maskwright.errors import CheckpointError

# The files of such a folder.
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


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


def require_some(modules: Collection[str]) -> None:
    if not modules:
        raise CheckpointError(
            "the folder has nothing that stands beside a module of this model",
            where=WEIGHTS,
            do="load it beside the model it was made for",
        )
