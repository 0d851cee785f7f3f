"""An objective is known by its Spec: outside `objectives/` and recipes its name stands nowhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskwright
from maskwright import catalogue

SOURCE = Path(maskwright.__file__).parent
NAMES = set(catalogue.names("objectives"))
MODULES = {name.replace("-", "_") for name in NAMES}
# Objectives, recipes that choose one, and families, whose attention has the pattern "causal".
OWN = ("objectives", "recipes", "families")
# "masked" and "causal" are there methods of scoring a text, whatever the model was trained by.
METHODS = {
    "inference/likelihood_prompts.py",
    "inference/pseudo_likelihood.py",
    "inference/texts.py",
    "evaluate/compare/candidate.py",
}
# "causal" is a pattern of attention there.
PATTERNS = {"nn/config.py", "nn/mask.py", "inference/growing_rows.py"}
# It is the name of a task type, too.
TASK = "sequence-to-sequence"
FILES = [
    file
    for file in sorted(SOURCE.rglob("*.py"))
    if (place := file.relative_to(SOURCE)).parts[0] not in OWN
    and place.as_posix() not in METHODS | PATTERNS
]


def objective_names(code: str) -> Iterator[tuple[int, str]]:
    """Lines that hold the name of an objective as a value, or import its module."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Constant(value=str() as text) if text in NAMES - {TASK}:
                yield node.lineno, text
            case ast.ImportFrom(module="maskwright.objectives", names=names):
                yield from ((node.lineno, n.name) for n in names if n.name in MODULES)
            case ast.ImportFrom(module=str() as module) if module.startswith(
                "maskwright.objectives."
            ):
                member = module.split(".")[-1]
                if member in MODULES - {"supervised"}:  # the objective of all labelled tasks
                    yield node.lineno, module
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[ast.Name(id=owner), *_]):
                if owner in ("objective", "member", "spec"):
                    yield node.lineno, f"an attribute of {owner} by name"


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_objective_is_named(file: Path) -> None:
    assert list(objective_names(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        'if recipe.objective.name == "hybrid": pass',
        'usual = ("masked", "causal")',
        "from maskwright.objectives import masked",
        "from maskwright.objectives.masked import Options",
        "from maskwright.objectives.modules.masked import Masked",
        'shift = getattr(objective, "shift", 0)',
    ],
)
def test_a_named_objective_is_noticed(line: str) -> None:
    assert list(objective_names(line))


def test_every_objective_says_what_it_is() -> None:
    usual = [catalogue.load("objectives", name).SPEC.usual_for for name in NAMES]
    assert sorted(filter(None, usual)) == ["decoder", "encoder", "masks", "parallel", "sentinels"]


def test_a_spec_needs_no_torch() -> None:
    """So that a command line checks the options of any objective before it loads torch."""
    code = (
        "import sys\n"
        "from maskwright import catalogue\n"
        "for name in catalogue.names('objectives'): catalogue.load('objectives', name).Options\n"
        "print('torch' in sys.modules)\n"
        "import maskwright.objectives.modules.masked\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]  # the control: what computes needs it
