"""A task is known by its shape and its type: outside `tasks/` its name stands nowhere.

Names of roles, heads and forms of labels are other words, even where they sound alike: "tags" is a
role, "number" a form of the label. Task modules load without torch, since settings and columns are
checked before it is there.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskwright
from maskwright import catalogue
from maskwright.labelled.shapes import shapes

SOURCE = Path(maskwright.__file__).parent
NAMES = set(shapes())
MODULES = {name.replace("-", "_") for name in catalogue.names("tasks")}
# What is another word there: a column (spellings), the loss of vectors that are alike, what a
# config.json calls a head for one number, and how a model of two stacks scores a text.
OTHERS = {
    "labelled/columns/search.py": {"similarity"},
    "labelled/columns/spellings.py": {"similarity"},
    "labelled/columns/unclear_labels.py": {"similarity"},
    "objectives/parts/contrastive.py": {"similarity"},
    "objectives/supervised.py": {"regression"},
    "checkpoint/layout.py": {"regression"},
    # What other programs' protocols call a thing on the wire.
    "serve/dialects/hugging_face.py": {"question-answering"},
    "serve/dialects/openai.py": {"embedding"},
    "serve/dialects/tei.py": {"embedding"},
    "inference/likelihood_prompts.py": {"sequence-to-sequence"},
    "inference/pseudo_likelihood.py": {"sequence-to-sequence"},
}
FILES = [
    file
    for file in sorted(SOURCE.rglob("*.py"))
    if file.relative_to(SOURCE).parts[0] not in ("tasks", "recipes", "objectives")
    or file.relative_to(SOURCE).as_posix() in OTHERS
]


def task_names(code: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each name of a task as a value, and each import of a task's module."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Constant(value=str() as text) if text in NAMES:
                yield node.lineno, text
            case ast.ImportFrom(module="maskwright.tasks", names=names):
                yield from ((node.lineno, n.name) for n in names if n.name in MODULES)
            case ast.ImportFrom(module=str() as module) if module.startswith("maskwright.tasks."):
                if module.split(".")[2] in MODULES:
                    yield node.lineno, module


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-2:]))
def test_no_task_is_named(file: Path) -> None:
    others = OTHERS.get(file.relative_to(SOURCE).as_posix(), set())
    found = task_names(file.read_text(encoding="utf-8"))
    assert [each for each in found if each[1] not in others] == []


@pytest.mark.parametrize(
    "line",
    [
        'if task.name == "tagging": pass',
        'KINDS = {"pair-classification": 1}',
        "from maskwright.tasks import embeddings",
        "from maskwright.tasks.classification import PAIRS",
    ],
)
def test_a_named_task_is_noticed(line: str) -> None:
    assert list(task_names(line))


@pytest.mark.parametrize(("last", "there"), [("", "False"), ("import torch", "True")])
def test_shapes_need_no_torch(last: str, there: str) -> None:
    """The second is the control."""
    code = f"import sys\nfrom maskwright.labelled.shapes import shapes\nshapes()\n{last}\n"
    code += "print('torch' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == there
