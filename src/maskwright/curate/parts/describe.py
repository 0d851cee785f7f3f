"""The settings of steps in words: for lists, the card and the page."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from maskwright import config
from maskwright.curate.parts.recipe import settings_of, step_names, summary_of
from maskwright.curate.parts.step import Step


@functools.cache
def descriptions(kind: type[Step]) -> Mapping[str, str]:
    """What the string under each setting of a step says, on one line."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not (dataclasses.is_dataclass(owner) and issubclass(owner, Step)):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        name = ""
        for line in body.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                name = line.target.id
            elif name and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
                found[name] = " ".join(str(line.value.value).split())
                name = ""
            else:
                name = ""
    return {field.name: found.get(field.name, "") for field in dataclasses.fields(kind)}


def defaults_of(name: str) -> dict[str, Any]:
    """The settings of the step `name`, as plain values."""
    return dict(config.to_plain(settings_of(name)()))


def setting_of(step: Step, rule: str, side: str, limit: float | None) -> str | None:
    """The setting of a step that is the limit of a rule: it has the limit's value, and the name of
    the rule or of the side (`low`, `high`), or it names the rule in the string under it."""
    for name, words in descriptions(type(step)).items():
        value = getattr(step, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and value == limit and (name in (rule, side) or f"`{rule}`" in words):
            return name
    return None


def step_lines() -> Iterator[str]:
    """Every step with its summary, and below it its settings with their defaults."""
    for name in step_names():
        yield f"{name}: {summary_of(name)}"
        words = descriptions(settings_of(name))
        for setting, value in defaults_of(name).items():
            shown = json.dumps(value, ensure_ascii=False)
            yield f"    {setting} = {shown}" + (f"  # {words[setting]}" if words[setting] else "")
