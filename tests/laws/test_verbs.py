"""The verbs are attributes of the package: shown, explicit, and without torch until one is
called (test_imports)."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
from tests.laws import stub

import maskwright
from laws.source import verbs
from maskwright import api
from maskwright.base import catalogue
from maskwright.base.calls import ALIASES, OPTIONS
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.learn.finetune.recipe import FinetuneRecipe

# What the command line alone has: a page of text about a folder or a list.
PRINTED = {"completion", "list", "runs", "show"}
# What Python alone has: a value to ask, and one that a notebook draws.
VALUES = {"connect", "load", "show"}


def test_the_package_shows_the_verbs_of_the_command_line() -> None:
    verbs = {name.replace("-", "_") for name in catalogue.names("verbs")} - PRINTED
    assert verbs | VALUES == set(maskwright.VERBS)
    others = {"TextClassifier", "__version__", "api", "errors", "plugins"}
    assert set(dir(maskwright)) == {*maskwright.VERBS, *others}
    with pytest.raises(AttributeError, match="pretrian"):
        _ = maskwright.pretrian  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", maskwright.VERBS)
def test_a_verb_has_explicit_keywords_and_says_what_it_does(verb: str) -> None:
    function = getattr(api, verb)
    found = inspect.signature(getattr(maskwright, verb))
    assert found == inspect.signature(function) and callable(getattr(maskwright, verb))
    kinds = {each.kind for each in found.parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert len(function.__doc__) > 20 and found.return_annotation is not inspect.Signature.empty


def test_editors_see_the_signatures_with_all_keywords() -> None:
    """The stub is up to date: python tests/laws/stub.py writes it."""

    def functions(text: str) -> set[str]:
        nodes = ast.parse(text).body
        return {ast.dump(node) for node in nodes if isinstance(node, ast.FunctionDef)}

    saved = stub.STUB.read_text(encoding="utf-8")
    assert functions(saved) == functions(stub.stub())
    assert functions(saved.replace("lr: ", "lrr: ")) != functions(stub.stub())


def test_fine_tuning_takes_all_that_a_recipe_says(tmp_path: Path) -> None:
    taken = inspect.signature(maskwright.finetune).parameters
    assert FinetuneRecipe.__dataclass_fields__.keys() - taken.keys() == {"made_from"}
    assert taken["batch"].default == 32 and taken["adapters"].default == {}
    assert "examples per step" in (maskwright.finetune.__doc__ or "")
    with pytest.raises(MaskwrightError, match="'lora'"):
        maskwright.finetune(tmp_path, tmp_path, tmp_path / "out", method="lorra")


@pytest.mark.parametrize(
    ("keywords", "wanted"),
    [
        ({"bacth": 3}, "'batch'"),
        ({"learning_rat": 3}, "'learning_rate'"),
        ({"lr": 1e-4, "rate": 1e-4}, "one of them"),
        ({"batch_size": 3, "batch": 3}, "one of them"),
    ],
)
def test_keywords_are_checked_before_any_work(keywords: dict[str, Any], wanted: str) -> None:
    for verb in (maskwright.finetune, maskwright.pretrain):
        with pytest.raises(UsageError) as caught:
            verb("no model", "no data", **keywords)
        assert wanted in (caught.value.wanted or "")


def test_the_command_line_and_python_have_the_same_keywords() -> None:
    """Options of a verb are keywords of the function; the exceptions do something else there."""
    elsewhere = {"debug", "threads", "help", "moved", "version", "download", "dry_run"}
    for verb in ("pretrain", "adapt", "finetune", "evaluate", "compare", "doctor"):
        options = {
            option.removeprefix("--").replace("-", "_")
            for action in verbs()[verb]._actions
            for option in action.option_strings
            if option.startswith("--")
        }
        keywords = inspect.signature(getattr(maskwright, verb)).parameters.keys()
        aliases = {a for name in keywords for a in (*ALIASES.get(name, ()), *OPTIONS.get(name, ()))}
        assert options - elsewhere <= keywords | aliases, verb


def test_what_a_model_is_evaluated_on_is_one_thing(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError, match="two things"):
        maskwright.evaluate(tmp_path, tmp_path, text=["a"])
