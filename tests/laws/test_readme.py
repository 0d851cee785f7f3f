"""What the README and docs/commands.md tell a newcomer to type exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import maskwright
from maskwright import api
from maskwright.base.calls import ALIASES, OPTIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS_PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README + COMMANDS_PAGE, re.S)
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
LINKS = re.compile(r"\]\(([^)#:]+)\)|(?:srcset|src)=\"([^\"]+)\"")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
ALL_OF_PYTHON = "\n".join(re.findall(r"```python\n(.*?)```", PYTHON, re.S))
MADE = re.compile(r"(?:--out|>) (\S+)")
USED = re.compile(r"runs/[\w-]+|\b[\w-]+\.toml")


def test_runs_and_recipes_of_the_readme_are_made_before_they_are_used() -> None:
    made: set[str] = set()
    text = "\n".join(text for kind, text in BLOCKS if kind == "console")
    for line in (line.split("  #")[0] for line in text.splitlines()):
        if line.startswith("maskwright "):
            assert set(USED.findall(MADE.sub("", line))) <= made, line
            made |= set(MADE.findall(line))


# They take minutes, measure for seconds, wait for a person, or need a server.
LONG = {"quickstart", "bench", "plan", "explore", "serve", "connect"}


def test_the_page_on_python_calls_every_function_rightly() -> None:
    every = [node for node in ast.walk(ast.parse(ALL_OF_PYTHON)) if isinstance(node, ast.Call)]
    functions = {f"maskwright.{verb}": getattr(maskwright, verb) for verb in maskwright.VERBS}
    functions |= {f"api.{name}": getattr(api, name) for name in api.__all__}
    functions["maskwright.TextClassifier"] = maskwright.TextClassifier
    called = {ast.unparse(each.func): each for each in every if _of_ours(each)}
    assert called.keys() <= functions.keys(), "no others"
    assert {f"maskwright.{verb}" for verb in {*maskwright.VERBS} - LONG} <= called.keys()
    aliases = {a: name for name, others in {**ALIASES, **OPTIONS}.items() for a in others}
    for each in every:
        if (function := functions.get(ast.unparse(each.func))) is not None:
            signature = inspect.signature(function)
            names = [str(keyword.arg) for keyword in each.keywords]
            names = [
                name if name in signature.parameters else aliases.get(name, name) for name in names
            ]
            signature.bind(*each.args, **dict.fromkeys(names))


def _of_ours(call: ast.Call) -> bool:
    return (
        ast.unparse(call.func).partition(".")[0] in ("api", "maskwright")
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
    )


@pytest.mark.parametrize(
    "code", [*(text for kind, text in BLOCKS if kind == "python"), ALL_OF_PYTHON]
)
def test_python_in_the_readme_uses_what_exists(code: str) -> None:
    known: dict[str, Any] = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] == "maskwright":
                    module = importlib.import_module(name.name)
                    known[name.asname or "maskwright"] = module if name.asname else maskwright
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("maskwright"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
                known[name.asname or name.name] = getattr(module, name.name)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            path = ast.unparse(node).split(".")
            if path[0] in known and all(map(str.isidentifier, path)):
                found = known[path[0]]
                for name in path[1:]:
                    assert hasattr(found, name), ".".join(path)
                    found = getattr(found, name)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    others = [ROOT / "CONTRIBUTING.md", *(ROOT / ".github" / "workflows").glob("*.yml")]
    pages = [README, *(path.read_text(encoding="utf-8") for path in others)]
    targets = {target for page in pages for target in re.findall(r"make ([\w-]+)", page)}
    assert targets >= {"quickstart", "test", "check"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
)
def test_links_between_pages_lead_to_files(page: Path) -> None:
    targets = [a or b for a, b in LINKS.findall(page.read_text(encoding="utf-8"))]
    missing = [target for target in targets if not (page.parent / target).exists()]
    if page.parent.name == "docs":  # the site has these pages alone
        missing += [target for target in targets if target.startswith("../")]
    assert missing == []


def test_the_readme_is_short_and_the_index_names_every_page() -> None:
    assert len(re.sub(r"<picture>.*?</picture>", "", README, flags=re.S).split()) <= 500
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == {name for name in re.findall(r"\]\(([\w-]+\.md)\)", INDEX)}


def test_extras_of_the_readme_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = re.findall(r"pip install '\.\[([\w,]+)\]'", README)
    assert asked
    assert {extra for each in asked for extra in each.split(",")} <= set(
        project["optional-dependencies"]
    )
