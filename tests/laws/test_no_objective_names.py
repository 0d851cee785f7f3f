"""An objective is known by its Spec: outside `objectives/` and recipes its name stands nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest

from laws.source import Found, nodes
from maskwright.base import catalogue

NAMES = set(catalogue.names("objectives"))
MODULES = {name.replace("-", "_") for name in NAMES}
# Objectives, recipes that choose one, and families, whose attention has the pattern "causal".
OWN = ("model/objectives/", "learn/recipes/", "model/families/")
# "masked" and "causal" are there methods of scoring a text, whatever the model was trained by.
METHODS = {
    "model/inference/likelihood_prompts.py",
    "model/inference/likelihood.py",
    "ask/evaluate/compare_recipe.py",
}
# "causal" is a pattern of attention there.
PATTERNS = {"model/nn/config.py", "model/nn/mask.py", "model/inference/growing_rows.py"}
# It is the name of a task type, too.
TASK = "sequence-to-sequence"


def objective_names(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Lines that hold the name of an objective as a value, or import its module."""
    for node in tree:
        match node:
            case ast.Constant(value=str() as text) if text in NAMES - {TASK}:
                yield node.lineno, text
            case ast.ImportFrom(module="maskwright.model.objectives", names=names):
                yield from ((node.lineno, n.name) for n in names if n.name in MODULES)
            case ast.ImportFrom(module=str() as module) if module.startswith(
                "maskwright.model.objectives."
            ):
                member = module.split(".")[-1]
                if member in MODULES - {"supervised"}:  # the objective of all labelled tasks
                    yield node.lineno, module
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[ast.Name(id=owner), *_]):
                if owner in ("objective", "member", "spec"):
                    yield node.lineno, f"an attribute of {owner} by name"


def broken(place: str, tree: Sequence[ast.AST]) -> Found:
    """The law of test_source."""
    allowed = place.startswith(OWN) or place in METHODS | PATTERNS
    return [] if allowed else list(objective_names(tree))


@pytest.mark.parametrize(
    "line",
    [
        'if recipe.objective.name == "hybrid": pass',
        'usual = ("masked", "causal")',
        "from maskwright.model.objectives import masked",
        "from maskwright.model.objectives.masked import Options",
        "from maskwright.model.objectives.modules.masked import Masked",
        'shift = getattr(objective, "shift", 0)',
    ],
)
def test_a_named_objective_is_noticed(line: str) -> None:
    assert broken("model/opening/open.py", nodes(line))


def test_every_objective_says_what_it_is() -> None:
    usual = [catalogue.load("objectives", name).SPEC.usual_for for name in NAMES]
    assert sorted(filter(None, usual)) == ["decoder", "encoder", "masks", "parallel", "sentinels"]
