"""The page of settings names every setting there is, with its default."""

from __future__ import annotations

import dataclasses
import itertools
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.base import catalogue
from maskwright.base.config import alternatives, hints_of
from maskwright.cli.parser import ALIASES
from maskwright.learn.finetune import recipe as finetuning
from maskwright.learn.recipes.base.recipe import FREE, INEXACT, Recipe
from maskwright.learn.train.settings import AdamW

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([a-z_0-9]+)`", PAGE))


def settings(kind: type, path: str = "") -> dict[str, Any]:
    """Dotted path -> default of every setting of a config, those of all its alternatives."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        here, hint = f"{path}{field.name}", hints_of(kind)[field.name]
        arms = alternatives(hint) or [hint]
        configs = [arm for arm in arms if dataclasses.is_dataclass(arm)]
        inner = [arm for arm in typing.get_args(hint) if dataclasses.is_dataclass(arm)]
        found[here] = field.default
        for each in [*configs, *inner] if field.name != "config" else ():
            found |= settings(typing.cast(type, each), f"{here}.")
    return found


def test_every_setting_of_a_recipe_is_named() -> None:
    known = settings(Recipe)
    assert "training.optimizer.momentum" in known and "corpus.on_nul" in known
    assert "training.phases.until" in known
    tables = {path.rsplit(".", 1)[0] for path in known if "." in path}
    missing = {path for path in known.keys() - tables if path.rsplit(".", 1)[-1] not in NAMES}
    assert missing == set()


def _rows_of(name: str, position: Callable[[str], int] = PAGE.rindex) -> str:
    """The rows of the last table about `name` (of the first by `PAGE.index`): its own, and those
    below that name none."""
    first, *below = PAGE[position(f"| `{name}` |") :].splitlines()
    return "\n".join([first, *itertools.takewhile(lambda line: line.startswith("| |"), below)])


def test_every_setting_of_a_fine_tuning_is_named_with_its_default() -> None:
    page = PAGE[PAGE.index("# A recipe of fine-tuning") :]
    named = set(re.findall(r"`([a-z_]+)`", page))
    assert finetuning.FinetuneRecipe.__dataclass_fields__.keys() - named == set()
    for name, others in ALIASES.items():
        field = name.lstrip("-").replace("-", "_")
        if field in finetuning.FinetuneRecipe.__dataclass_fields__:
            row = next(line for line in page.splitlines() if f"`{field}`" in line)
            assert all(f"`{other}`" in row for other in others), name


def test_every_setting_of_an_adapter_is_named_with_its_default() -> None:
    for name in catalogue.names("adapters"):
        rows = _rows_of(name) if name not in ("head", "probe") else ""
        for field in dataclasses.fields(catalogue.load("adapters", name).SETTINGS):
            if field.name == "kind":
                continue
            (row,) = (line for line in rows.splitlines() if f"`{field.name}`" in line)
            usual = field.default
            told = usual if isinstance(usual, tuple) else ("none" if usual is None else usual,)
            for each in told:
                shown = f"{each:g}" if isinstance(each, float) else f"{each}"
                assert shown in row.split("|")[3], (name, field.name, row)
    assert "`rank`" not in _rows_of("ia3"), "the control"


def test_every_option_of_an_objective_is_named() -> None:
    for name in set(catalogue.names("objectives")) - {"supervised", "sequence-to-sequence"}:
        options = catalogue.load("objectives", name).Options
        named = set(re.findall(r"`([a-z_0-9]+)`", _rows_of(name, PAGE.index)))
        wanted = {field.name for field in dataclasses.fields(options)}
        assert wanted - named == set(), name


def test_what_may_change_when_a_run_is_resumed_is_named() -> None:
    told = PAGE[PAGE.index("A run may be resumed") : PAGE.index("## The recipe")]
    assert set(re.findall(r"`([a-z_.]+)`", told)) == {*FREE, *INEXACT}
    usual = AdamW(learning_rate=1.0)
    assert f"| {usual.beta1}, {usual.beta2}, 1e-6, true |" in PAGE and usual.epsilon == 1e-6
