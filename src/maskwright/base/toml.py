"""Configs as TOML documents that read back to equal configs."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from maskwright.base.config import from_plain, to_plain
from maskwright.base.errors import ConfigError, UsageError, near
from maskwright.base.terminal import shell_word

T = TypeVar("T")
# Tables and values that tell what a recipe is for, and the command that takes it.
KINDS = {
    "extends": ("a recipe of pretraining", "maskwright pretrain {}"),
    "steps": ("a recipe of curation", "maskwright curate TEXT --out DIR --recipe {}"),
    "training": ("a recipe of pretraining", "maskwright pretrain {}"),
    "data": ("a recipe of fine-tuning", "maskwright finetune {} --out DIR"),
}


def to_toml(config: Any) -> str:
    """Write a config so that `from_plain(kind, tomllib.loads(text))` returns an equal config.

    TOML has no null: None is left out, so a field that is None must have the default None.
    """
    lines: list[str] = []
    _write_table(to_plain(config), "", lines)
    return "\n".join(lines).strip() + "\n"


def read_toml(kind: type[T], path: Path) -> T:
    """Read a config of type `kind` from a TOML file.

    Raises:
        UsageError: no such file.  ConfigError: not TOML, or not such a config; with file and field.
    """
    return from_table(kind, read_table(path), path)


def read_table(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        UsageError: no such file.  ConfigError: not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a byte order mark
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise UsageError("no such recipe file", where=path, do=near(path.name, siblings)) from error
    except (OSError, ValueError) as error:
        raise ConfigError("the recipe cannot be read", where=path, found=error) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("not a TOML file", where=path, found=error) from error


def from_table(kind: type[T], plain: Mapping[str, Any], path: Path) -> T:
    """The config that the content of the TOML file at `path` describes.

    Raises:
        ConfigError: not such a config; names file and field.
    """
    refuse_other_kind(plain, {field.name for field in dataclasses.fields(kind)}, path)  # type: ignore[arg-type]
    try:
        return from_plain(kind, plain)
    except ConfigError as error:
        raise error.under(f"{path}, ") from None


def refuse_other_kind(plain: Mapping[str, Any], fields: Collection[str], path: Path) -> None:
    """Refuse a recipe of another command than the one whose recipes have these `fields`.

    Raises:
        ConfigError: naming the command that takes the recipe.
    """
    for name, (description, command) in KINDS.items():
        if name in plain and name not in fields:
            raise ConfigError(
                f"this is {description}",
                where=f"{path}, {name}",
                wanted=f"one with {', '.join(sorted(KINDS.keys() & {*fields}))}",
                do=command.format(shell_word(path)),
            )


def _write_table(table: dict[str, Any], path: str, lines: list[str]) -> None:
    nested = {k: v for k, v in table.items() if isinstance(v, dict)}
    for name, value in table.items():
        if name not in nested and value is not None:
            lines.append(f"{_bare(name)} = {_toml_value(value)}")
    for name, value in nested.items():
        inner = f"{path}.{_bare(name)}" if path else _bare(name)
        lines += ["", f"[{inner}]"]
        _write_table(value, inner, lines)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if any(c in text for c in ".en") else f"{text}.0"
    if isinstance(value, dict):
        items = (f"{_bare(k)} = {_toml_value(v)}" for k, v in value.items() if v is not None)
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return _quoted(value)


def _bare(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
