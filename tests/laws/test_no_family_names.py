"""No module asks which family it is serving.

A family's name stands in its own file, in recipes and pages that a person chooses from, and in
tests. Where `nn/`, the loop or an objective asked for one, the stack would begin to rot. Comments
and docstrings may cite a model; strings and names in code may not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest

from laws.source import Found, nodes
from maskwright.base import catalogue

# Packages that serve every family, and so must know none.
PACKAGES = (
    *("base/metrics/", "base/report/", "text/store/", "text/tables/", "learn/train/"),
    *(f"model/{name}/" for name in ("adapters", "checkpoint", "device", "inference", "nn")),
    *("model/objectives/", "model/opening/"),
)
OTHERS = ("roberta", "albert", "electra", "distilbert", "modernbert", "t5", "bart", "openai-gpt")
NAMES = {
    spelling
    for name in (*catalogue.names("families"), *OTHERS)
    for spelling in (name, name.replace("-", "_"))
}


def family_names(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, name) of each family's name in a string or identifier of code, not of prose."""
    prose = {
        id(node.value)
        for node in tree
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in tree:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in prose and node.value.lower() in NAMES:
                yield node.lineno, node.value
        elif isinstance(node, ast.Name) and node.id.lower() in NAMES:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and node.attr.lower() in NAMES:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                imported.append(node.module or "")
            for name in imported:
                if name.split(".")[-1] in NAMES:
                    yield node.lineno, name


def broken(place: str, tree: Sequence[ast.AST]) -> Found:
    """The law of test_source."""
    return list(family_names(tree)) if place.startswith(PACKAGES) else []


@pytest.mark.parametrize(
    "line",
    [
        'if config.model_type == "bert": pass',
        'rules = {"gpt2": 1}',
        "from maskwright.model.families import weights, bert",
        "from maskwright.model.families.bert import point",
        "import maskwright.model.families.bert",
        "families.bert.config(config)",
    ],
)
def test_a_named_family_is_noticed(line: str) -> None:
    assert broken("model/nn/stack.py", nodes(line))


def test_prose_may_cite_a_model() -> None:
    assert not broken("model/nn/stack.py", nodes('"""bert"""\nx = "a sentence on bert"  # bert\n'))
