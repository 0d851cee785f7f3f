"""A model with its adapter merged into the weights (in float32, then cast), or with a head that was
saved without its base; and the changes of the base's weights by merging."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from maskwright.base.errors import Finding, Note, UsageError

if TYPE_CHECKING:
    from maskwright.model.opening.folders import Model
    from maskwright.ship.export.target import Report

SUMMARY = "an adapter merged into the weights of its base, and how far that moves them"
Weights = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the merged weights are written.

    Attributes:
        weights: float32 or bfloat16
    """

    weights: Weights = "float32"


def export(model: Model, out: Path, options: Options, note: Note) -> Report:
    """Write the merged model into the new folder `out`.

    Raises:
        UsageError: the folder has no adapter.
        Others: as `folder.write`.
    """
    import torch

    from maskwright.model.checkpoint.fine_tuned import ADAPTER
    from maskwright.ship.export import folder

    if not (model.is_adapter or (model.home / ADAPTER).is_dir()):
        raise UsageError(
            "there is no adapter to merge",
            where=model.folder,
            found="a model with all its weights",
            wanted="an adapter on its base, or a fine-tuning with one",
            do="export the model as it is, to another target",
        )
    base = model.path if model.is_adapter else model.base or _base_of(model.home / ADAPTER)
    changes = {}
    if base is None:
        message = "the base of the adapter was not found, so it is unknown how far weights moved"
        note(Finding("base-not-there", message))
    else:
        changes = _weight_changes(model, base)
        message = f"merging moved a weight by at most {changes['largest']:.3g}"
        note(Finding("weights-moved", message, f"{changes['count']} of {changes['of']} tensors"))
    content = folder.content_of(model, getattr(torch, options.weights))
    about = {"base": None if base is None else str(base), "merged": changes}
    return folder.write(content, out, target="merged", source=model, note=note, about=about)


def _base_of(adapter: Path) -> Path | None:
    """Return the folder of the base of an adapter; None if it is unknown or does not exist."""
    from maskwright.model.adapters.base.folder import base_named

    base_name = base_named(adapter)
    return Path(base_name) if isinstance(base_name, str) and Path(base_name).is_dir() else None


def _weight_changes(model: Model, base: Path) -> dict[str, float]:
    """Return the maximum change of a weight ("largest"), and the number of tensors that changed
    ("count") among those that model and base have in common ("of")."""
    from maskwright.model.opening.open import open_weights

    before = open_weights(base).network.state_dict()
    after = model.network.state_dict()
    common_names = [n for n in after if n in before and before[n].shape == after[n].shape]
    differences = [float((after[n] - before[n].float()).abs().max()) for n in common_names]
    return {
        "largest": max(differences, default=0.0),
        "count": sum(difference > 0 for difference in differences),
        "of": len(common_names),
    }
