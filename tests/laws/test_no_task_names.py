"""A task is known by its shape and its type: outside `tasks/` its name stands nowhere.

Names of roles, heads and forms of labels are other words, even where they sound alike: "tags" is a
role, "number" a form of the label. Task modules load without torch, since settings and columns are
checked before it is there (test_imports).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest

from laws.source import Found, nodes
from maskwright.base import catalogue
from maskwright.text.tables.shapes import shapes

NAMES = set(shapes())
MODULES = {name.replace("-", "_") for name in catalogue.names("tasks")}
# What is another word there: a column (spellings), the loss of vectors that are alike, what a
# config.json calls a head for one number, and how a model of two stacks scores a text.
OTHERS = {
    "text/tables/role_search.py": {"similarity"},
    "model/objectives/base/contrastive.py": {"similarity"},
    "model/objectives/supervised.py": {"regression"},
    "model/checkpoint/layout.py": {"regression"},
    # What other programs' protocols call a thing on the wire.
    "ship/serve/dialects/hugging_face.py": {"question-answering"},
    "ship/serve/dialects/openai.py": {"embedding"},
    "ship/serve/dialects/tei.py": {"embedding"},
    "model/inference/likelihood_prompts.py": {"sequence-to-sequence"},
    "model/inference/likelihood.py": {"sequence-to-sequence"},
}
OWN = ("learn/tasks/", "learn/recipes/", "model/objectives/")


def task_names(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, what) of each name of a task as a value, and each import of a task's module."""
    for node in tree:
        match node:
            case ast.Constant(value=str() as text) if text in NAMES:
                yield node.lineno, text
            case ast.ImportFrom(module="maskwright.learn.tasks", names=names):
                yield from ((node.lineno, n.name) for n in names if n.name in MODULES)
            case ast.ImportFrom(module=str() as module) if module.startswith(
                "maskwright.learn.tasks."
            ):
                if module.split(".")[3] in MODULES:
                    yield node.lineno, module


def broken(place: str, tree: Sequence[ast.AST]) -> Found:
    """The law of test_source."""
    if place.startswith(OWN) and place not in OTHERS:
        return []
    return [each for each in task_names(tree) if each[1] not in OTHERS.get(place, ())]


@pytest.mark.parametrize(
    "line",
    [
        'if task.name == "tagging": pass',
        'KINDS = {"pair-classification": 1}',
        "from maskwright.learn.tasks import embeddings",
        "from maskwright.learn.tasks.classification import PAIRS",
    ],
)
def test_a_named_task_is_noticed(line: str) -> None:
    assert broken("model/opening/open.py", nodes(line))
