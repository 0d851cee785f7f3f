"""What the README tells a newcomer to type exists."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest

from maskwright import catalogue, cli

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
COMMANDS = [
    line.split("  #")[0].strip()
    for kind, text in BLOCKS
    if kind == "console"
    for line in text.splitlines()
    if line.startswith("maskwright ")
]


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_is_understood(command: str) -> None:
    chosen = cli.parser().parse_args(shlex.split(command)[1:])
    assert callable(chosen.do)
    if chosen.verb == "pretrain":
        assert chosen.recipe in catalogue.names("recipes")


@pytest.mark.parametrize("code", [text for kind, text in BLOCKS if kind == "python"])
def test_python_in_the_readme_imports_what_exists(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module and "maskwright" in node.module:
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"make (\w+)", README))
    assert targets >= {"quickstart", "test", "check"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_tree_names_every_room() -> None:
    rooms = {p.name for p in (Path(cli.__file__).parent).iterdir() if (p / "__init__.py").is_file()}
    tree = README[README.index("src/maskwright/\n") :]
    assert [room for room in sorted(rooms) if f"{room}/" not in tree] == []
