"""The page on the house names every room in the order of the import law, and files that exist."""

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
ROOMS = sorted(p.name for p in SOURCE.iterdir() if (p / "__init__.py").is_file())


def named() -> list[list[str]]:
    """The rooms of each line of the map."""
    assert MAP is not None
    heads = [re.split(r"\s{2,}", line)[0] for line in MAP[1].splitlines()]
    return [[name.strip().rstrip("/") for name in head.split(",")] for head in heads]


def test_every_room_is_on_the_map() -> None:
    assert sorted(set(ROOMS) - {name for line in named() for name in line}) == []


def test_the_map_is_in_the_order_of_the_law() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (law,) = (c for c in contracts["contracts"] if c["type"] == "layers")
    floors = [re.findall(r"\w+", layer) for layer in law["layers"]]
    floor = {name: number for number, names in enumerate(floors) for name in names}
    order = [floor[name] for line in named()[:-1] for name in line if name in floor]
    assert order == sorted(order) and len(order) > 20


def test_files_that_are_named_exist() -> None:
    pictures = re.findall(r"\((pictures/[^)]+)\)", PAGE)
    assert len(pictures) == 3 and all((ROOT / "docs" / p).is_file() for p in pictures)
    drawn = "".join((ROOT / "docs" / p).read_text(encoding="utf-8") for p in pictures)
    paths = re.findall(r"\b([a-z]+(?:/[a-z_]+)*/[a-z_]+\.py)\b", PAGE + drawn)
    assert len(paths) > 15
    missing = [p for p in paths if not (SOURCE / p).is_file() and not (ROOT / p).is_file()]
    assert missing == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is(room: str) -> None:
    """And in which order to read it, where it has more than a few files."""
    code = (SOURCE / room / "__init__.py").read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(code))
    assert said
    files = {p.stem for p in (SOURCE / room).iterdir() if not p.name.startswith("_")}
    cited = {name.split("/")[0] for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)?)", said)}
    cited |= {name for name in re.findall(r"^ +([a-z_]+)/", said, re.M)}
    assert cited <= files | set(ROOMS) | {"build", "recipe", "maskwright", "peft", "batch"}, (
        cited - files
    )
