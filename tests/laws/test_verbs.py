"""The verbs are attributes of the package: shown, explicit, and without torch until one is
called (test_imports)."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import maskwright
from maskwright import api
from maskwright.base import catalogue
from maskwright.base.errors import MaskwrightError
from maskwright.learn.finetune.recipe import FinetuneRecipe

# What the command line alone has: a page of text about a folder or a list.
PRINTED = {"list", "show", "tokens"}
# What Python alone has: a value to ask, and one that a notebook draws.
VALUES = {"connect", "load", "show"}


def test_the_package_shows_the_verbs_of_the_command_line() -> None:
    verbs = {name.replace("-", "_") for name in catalogue.names("verbs")} - PRINTED
    assert verbs | VALUES == maskwright.VERBS.keys()
    assert set(dir(maskwright)) == {*maskwright.VERBS, "__version__", "api", "errors", "plugins"}
    with pytest.raises(AttributeError, match="pretrian"):
        _ = maskwright.pretrian  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", maskwright.VERBS)
def test_a_verb_has_explicit_keywords_and_says_what_it_does(verb: str) -> None:
    function = getattr(api, maskwright.VERBS[verb])
    found = inspect.signature(getattr(maskwright, verb))
    assert found == inspect.signature(function) and callable(getattr(maskwright, verb))
    kinds = {each.kind for each in found.parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert len(function.__doc__) > 20 and found.return_annotation is not inspect.Signature.empty


def test_fine_tuning_takes_all_that_a_recipe_says(tmp_path: Path) -> None:
    taken = inspect.signature(maskwright.finetune).parameters
    assert FinetuneRecipe.__dataclass_fields__.keys() - taken.keys() == {"made_from"}
    assert taken["batch"].default == 32 and taken["adapters"].default == {}
    assert "examples per step" in (api.finetune_file.__doc__ or "")
    with pytest.raises(MaskwrightError, match="'lora'"):
        maskwright.finetune(tmp_path, tmp_path, tmp_path / "out", method="lorra")
    with pytest.raises(MaskwrightError, match="read from a file"):
        maskwright.finetune(tmp_path, [{"text": "a", "label": "b"}], tmp_path / "out")
    with pytest.raises(TypeError, match="bacth"):
        maskwright.finetune(tmp_path, tmp_path, tmp_path / "out", bacth=3)


def test_what_a_model_is_evaluated_on_is_one_thing(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError, match="two things"):
        maskwright.evaluate(tmp_path, tmp_path, text=["a"])
