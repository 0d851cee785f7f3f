"""A model with its adapter merged, as a folder, beside the base that it stands on."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding, Note
from maskwright.model.adapters.base.folder import base_named
from maskwright.model.checkpoint.fine_tuned import ADAPTER
from maskwright.model.opening import head_alone
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_weights
from maskwright.ship.export import model_folder
from maskwright.ship.export.target import Report


def write_merged(model: Model, out: Path, dtype: str, note: Note) -> Report:
    """Write the model with its adapter in its weights, merged in float32,
    or with the head that was saved alone above the model that it stands on.

    Raises:
        UsageError: the folder has no adapter.
        Others: as `model_folder.write`.
    """
    if not (model.is_adapter or (model.home / ADAPTER).is_dir()):
        raise UsageError(
            "there is no adapter to merge",
            where=model.folder,
            found="a model with all its weights",
            wanted="an adapter on its base, or a fine-tuning with one",
            do="export the model as it is, to another target",
        )
    base = _base(model)
    far = {}
    if base is None:
        what = "the base of the adapter is not there, so it is not known how far weights moved"
        note(Finding("base-not-there", what))
    else:
        far = _moved(model, base)
        what = f"merging moved a weight by at most {far['largest']:.3g}"
        note(Finding("weights-moved", what, f"{far['count']} of {far['of']} tensors"))
    content = model_folder.content_of(model, getattr(torch, dtype))
    about = {"base": None if base is None else str(base), "merged": far}
    return model_folder.write(content, out, target="merged", source=model, note=note, about=about)


def _base(model: Model) -> Path | None:
    """The folder of the model that the adapter was trained on."""
    if model.is_adapter:
        return model.path
    if (below := head_alone.base_folder(model.home / ADAPTER)) is not None:
        return below
    named = base_named(model.home / ADAPTER)
    if not isinstance(named, str) or not os.path.isdir(named):
        return None
    return Path(named)


def _moved(model: Model, base: Path) -> dict[str, float]:
    """The largest difference of a weight to that of the base, and in how many tensors there is
    one. A head that the base has not is none of them."""
    before = open_weights(base).network.state_dict()
    after = model.network.state_dict()
    common = [n for n in after if n in before and before[n].shape == after[n].shape]
    each = [float((after[n] - before[n].float()).abs().max()) for n in common]
    return {
        "largest": max(each, default=0.0),
        "count": sum(difference > 0 for difference in each),
        "of": len(common),
    }
