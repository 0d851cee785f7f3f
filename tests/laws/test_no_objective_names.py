"""An objective is known by its Spec: outside `objectives/` and recipes its name stands nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskwright
from maskwright import catalogue

SOURCE = Path(maskwright.__file__).parent
NAMES = set(catalogue.names("objectives"))
MODULES = {name.replace("-", "_") for name in NAMES}
# Rooms that serve every objective, and so must know none.
ROOMS = (
    "nn",
    "data",
    "train",
    "checkpoint",
    "models",
    "adapters",
    "inference",
    "pretrain",
    "evaluate",
)
# "masked" and "causal" are there methods of scoring a text, whatever the model was trained by.
METHODS = {
    "inference/likelihood_prompts.py",
    "inference/pseudo_likelihood.py",
    "inference/texts.py",
    "evaluate/compare/candidate.py",
}
# "causal" is a pattern of attention there.
PATTERNS = {"nn/config.py", "nn/mask.py", "inference/prepared_writer.py"}
FILES = [
    file
    for room in ROOMS
    for file in sorted((SOURCE / room).rglob("*.py"))
    if file.relative_to(SOURCE).as_posix() not in METHODS | PATTERNS
]


def objective_names(code: str) -> Iterator[tuple[int, str]]:
    """Lines that hold the name of an objective as a value, or import its module."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Constant(value=str() as text) if text in NAMES:
                yield node.lineno, text
            case ast.ImportFrom(module="maskwright.objectives", names=names):
                yield from ((node.lineno, n.name) for n in names if n.name in MODULES)
            case ast.ImportFrom(module=str() as module) if module.startswith(
                "maskwright.objectives."
            ):
                member = module.split(".")[2]
                if member in MODULES - {"supervised"}:  # the objective of all labelled tasks
                    yield node.lineno, module


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_objective_is_named(file: Path) -> None:
    assert list(objective_names(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        'if recipe.objective.name == "hybrid": pass',
        'usual = ("masked", "causal")',
        "from maskwright.objectives import masked",
        "from maskwright.objectives.masked import Masked",
    ],
)
def test_a_named_objective_is_noticed(line: str) -> None:
    assert list(objective_names(line))


def test_every_objective_says_what_it_is() -> None:
    usual = [catalogue.load("objectives", name).SPEC.usual_for for name in NAMES]
    assert sorted(filter(None, usual)) == ["decoder", "encoder", "masks", "sentinels"]
