"""The folder of a run, told by its recipe. No torch."""

from __future__ import annotations

from pathlib import Path

RECIPE = "recipe.toml"


def is_run(folder: Path) -> bool:
    """Whether `folder` is that of a run: it holds the recipe of one."""
    return (folder / RECIPE).is_file()
