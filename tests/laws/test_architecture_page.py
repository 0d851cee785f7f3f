"""docs/architecture.md names every package, in the order of the contracts, and files that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import maskwright

ROOT = Path(__file__).parents[2]
SOURCE = Path(maskwright.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MAP = re.search(r"```text\n(.*?)```", PAGE, re.S)
assert MAP is not None
PACKAGES = sorted(
    folder.relative_to(SOURCE).as_posix()
    for pattern in ("*/__init__.py", "*/*/__init__.py")
    for folder in (file.parent for file in SOURCE.glob(pattern))
    if folder.name not in ("verbs",)
)


def named() -> list[str]:
    """The packages of the map, from top to bottom."""
    assert MAP is not None
    heads = [re.split(r"\s{2,}", line)[0] for line in MAP[1].splitlines()]
    return [name.strip().rstrip("/") for head in heads for name in head.split(",")]


def test_every_package_is_on_the_map() -> None:
    containers = {"ship", "learn", "model", "text"}
    assert sorted(set(PACKAGES) - containers - set(named())) == []


def test_the_map_is_in_the_order_of_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    orders = {
        contract["containers"][0].removeprefix("maskwright").strip("."): [
            re.findall(r"\w+", layer) for layer in contract["layers"]
        ]
        for contract in contracts["contracts"]
        if contract["type"] == "layers"
    }
    assert orders.keys() == {"", "text", "model", "learn", "ask", "ship"}
    for container, layers in orders.items():
        height = {name: number for number, names in enumerate(layers) for name in names}
        parts = [name.split("/") for name in named()]
        if container:
            parts = [p[1:] for p in parts if p[0] == container and len(p) > 1]
        order = [height[p[0]] for p in parts if p[0] in height]
        assert order == sorted(order) and len(order) > 2, container


def test_files_that_are_named_exist() -> None:
    pictures = re.findall(r"\((pictures/[^)]+)\)", PAGE)
    assert len(pictures) == 3 and all((ROOT / "docs" / p).is_file() for p in pictures)
    drawn = "".join((ROOT / "docs" / p).read_text(encoding="utf-8") for p in pictures)
    paths = re.findall(r"\b([a-z]+(?:/[a-z_]+)*/[a-z_]+\.py)\b", PAGE + drawn)
    assert len(paths) > 15
    missing = [p for p in paths if not (SOURCE / p).is_file() and not (ROOT / p).is_file()]
    assert missing == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_what_it_is(package: str) -> None:
    """And in which order to read it, where it has more than a few files."""
    code = (SOURCE / package / "__init__.py").read_text(encoding="utf-8")
    description = ast.get_docstring(ast.parse(code))
    assert description
    files = {p.stem for p in (SOURCE / package).iterdir() if not p.name.startswith("_")}
    cited = {name.split("/")[0] for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)?)", description)}
    cited |= set(re.findall(r"^ +([a-z_]+)/", description, re.M))
    others = {package.split("/")[0] for package in PACKAGES}
    assert cited <= files | others | {"build", "recipe", "maskwright", "peft", "batch"}, (
        cited - files
    )
