"""JSON files changed in small ways: what a slip, a bad disk or a hand may make of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.base.errors import MaskwrightError

ODD: list[Any] = [None, True, -1, 0, 10**9, 1e300, 0.5, "", "x", "../x", "NaN"]
ODD += [[], {}, [1], {"a": 1}, [[]]]


def mutated(text: bytes, draws: random.Random) -> bytes:
    """Another text: a value, a name or an order changed, or bytes cut, flipped or doubled."""
    try:
        plain = json.loads(text)
    except ValueError:
        plain = None
    if plain is None or draws.random() < 0.2:
        return _bytes(text, draws)
    plain = copy.deepcopy(plain)
    places = list(_places(plain))
    if not places:
        return _bytes(text, draws)
    holder, key = draws.choice(places)
    _change(holder, key, draws)
    return json.dumps(plain, indent=1).encode()


def _places(plain: Any) -> Iterator[tuple[Any, Any]]:
    keys = (
        plain if isinstance(plain, dict) else range(len(plain)) if isinstance(plain, list) else ()
    )
    for key in list(keys)[:200]:
        yield plain, key
        yield from _places(plain[key])


def _change(holder: Any, key: Any, draws: random.Random) -> None:
    value, way = holder[key], draws.randrange(6)
    if way == 0 and isinstance(value, list) and len(value) > 1:
        holder[key] = value[::-1]  # the labels of a task, say
    elif way == 0 and isinstance(value, dict) and len(value) > 1:
        holder[key] = dict(zip(value, reversed(list(value.values())), strict=True))
    elif way == 1 and isinstance(holder, dict):
        del holder[key]
    elif way == 2 and isinstance(holder, dict):
        holder[draws.choice(["extra", f"{key}x", ""])] = holder.pop(key)
    elif way == 3 and isinstance(value, bool | int | float):
        holder[key] = not value if isinstance(value, bool) else value + draws.choice([-1, 1, 0.25])
    elif way == 3 and isinstance(value, str):
        holder[key] = draws.choice([value + "x", value[:-1], value.upper(), value[::-1]])
    else:
        holder[key] = draws.choice(ODD)


def _bytes(text: bytes, draws: random.Random) -> bytes:
    place = draws.randrange(len(text) + 1)
    return draws.choice(
        [
            text[:place],
            b"",
            text[:place] + bytes([draws.randrange(256)]) + text[place + 1 :],
            text + text,
            text[:place] + text[place + 1 :],
            b"\xff" + text,
            b"[" * 5000,
        ]
    )


@dataclass
class Outcomes:
    """Of all mutations: how many left the value as it was, how many were refused, and the rest."""

    unchanged: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def tried(self) -> int:
        return self.unchanged + self.refused + len(self.faults)

    def __str__(self) -> str:
        return (
            f"{self.tried} tried, {self.unchanged} left the value as it was, {self.refused} "
            f"refused, {len(self.faults)} faults"
        )


def attack(folder: Path, read: Callable[[], Any], count: int, seed: int = 0) -> Outcomes:
    """Change each JSON file below `folder` `count` times, and `read` after each change."""
    wanted, found = read(), Outcomes()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".jsonl")):
        draws = random.Random(f"{seed} {path.relative_to(folder)}")
        whole = path.read_bytes()
        try:
            for number in range(count):
                changed = mutated(whole, draws)
                if changed == whole:
                    continue
                path.write_bytes(changed)
                _judge(f"{path.relative_to(folder)} {number}", read, wanted, found)
        finally:
            path.write_bytes(whole)
    assert read() == wanted
    return found


def _judge(name: str, read: Callable[[], Any], wanted: Any, found: Outcomes) -> None:
    try:
        value = read()
    except MaskwrightError:
        found.refused += 1
    except Exception as error:  # a traceback, of whatever kind
        found.faults.append(f"{name}: {type(error).__name__}: {error}")
    else:
        if value == wanted:
            found.unchanged += 1
        else:
            found.faults.append(f"{name}: another value")
