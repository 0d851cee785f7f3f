"""Detect run folders, without importing torch."""

from __future__ import annotations

from pathlib import Path

from maskwright.text.corpus.curated import is_curated

RECIPE = "recipe.toml"


def is_run(folder: Path) -> bool:
    """Whether `folder` is that of a run: it has a recipe, and it is not that of a curation."""
    return (folder / RECIPE).is_file() and not is_curated(folder)
