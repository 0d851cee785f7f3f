"""The page on labelled data: every task has an example there that is read as that task."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build
from maskwright.text.tables.shapes import COMMON, roles, shapes

PAGE = (Path(__file__).parents[2] / "docs" / "labelled-data.md").read_text(encoding="utf-8")
EXAMPLES = {
    kind: (ending, text)
    for kind, ending, text in re.findall(r"### ([\w-]+)\n[^#]*?```(\w+)\n(.*?)```", PAGE, re.S)
}


def test_every_task_and_role_is_there() -> None:
    assert {*EXAMPLES, "embedding", "ranking"} == shapes().keys()  # two are never inferred
    assert "--task embedding" in PAGE and "--task ranking" in PAGE
    told = PAGE.partition("## Roles")[2]
    assert set(re.findall(r"`(\w+)`", told)) == {
        *roles(),
        *roles(lambda layout: layout.optional),
        *COMMON,
    }


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_is_understood(kind: str, tmp_path: Path) -> None:
    ending, text = EXAMPLES[kind]
    path = tmp_path / f"data.{ending}"
    path.write_text(text, encoding="utf-8")
    table = load(path)
    task = infer(table)
    assert task.name == kind
    assert not task.columns.left_out
    assert len(build(table, task).parts["all"]) == text.strip().count("\n") + (ending == "jsonl")
