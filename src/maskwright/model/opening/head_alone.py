"""Open a head that was trained on a frozen model, together with that model.

The result of such a fine-tuning contains only the head, the path of the model and its hash
(`model/adapters/base/folder.py`). A model that has moved can be linked as `base` in the folder of
the result.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import torch

from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.model.adapters.base import folder as folder_of_adapters
from maskwright.model.adapters.base.folder import BaseReference
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.pretrained import PretrainedModel
from maskwright.model.checkpoint.transfer import load_matching
from maskwright.model.families.base import family as families
from maskwright.model.nn import initialise
from maskwright.model.opening.model import fingerprint


def is_alone(folder: Path) -> bool:
    """Whether `folder` contains a head without its model."""
    return folder.is_dir() and folder_of_adapters.base_of(folder) is not None


def opened(folder: Path) -> PretrainedModel | None:
    """Load the head in `folder` with its base model; None if `folder` is not a separate head.

    Raises:
        CheckpointError: the head is damaged, or its base does not exist.
        IncompatibleError: the model at the path of the base is a different one.
    """
    base = folder_of_adapters.base_of(folder) if folder.is_dir() else None
    if base is None:
        return None
    loaded = pretrained.load(_found(base, folder))
    generator = torch.Generator().manual_seed(0)  # all initial values are overwritten
    model = initialise.build(base.config, generator)
    load_matching(loaded.model, model, heads=False)
    folder_of_adapters.load(model, folder).merge()
    family = loaded.about.family  # some heads belong to no family
    if family is not None and not families.family(family).belongs(base.config):
        family = None
    return replace(loaded, model=model.eval(), config=base.config, about=About(family=family))


def base_folder(folder: Path) -> Path | None:
    """Return the folder of the base model of the head in `folder`; None as for `opened`.

    Raises:
        CheckpointError, IncompatibleError: as `opened`.
    """
    base = folder_of_adapters.base_of(folder) if folder.is_dir() else None
    return None if base is None else _found(base, folder)


def _found(base: BaseReference, folder: Path) -> Path:
    """Return the first of the possible folders that contains the base."""
    folders = [candidate for candidate in base.paths if os.path.isdir(candidate)]  # of any length
    matching = (candidate for candidate in folders if fingerprint(candidate) == base.sha256)
    if (folder_of_base := next(matching, None)) is not None:
        return folder_of_base
    link_path, recorded_path, _ = base.paths
    remedy = f"put it there again, or link it: ln -s FOLDER {shlex.quote(str(link_path))}"
    if folders:
        raise IncompatibleError(
            "the model under this head is not the one it was trained on",
            where=folders[0],
            found=f"sha256 {fingerprint(folders[0])}",
            wanted=f"sha256 {base.sha256}",
            do=remedy,
        )
    raise CheckpointError(
        "the model under this head is not there",
        where=recorded_path,
        found="no such folder",
        wanted=f"the model that {folder.parent} was fine-tuned from, sha256 {base.sha256}",
        do=remedy,
    )
