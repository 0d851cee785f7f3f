"""Options of a verb from the fields of a dataclass: one for each field, with its line of the
docstring as help."""

from __future__ import annotations

import argparse
import dataclasses
import types
import typing
from collections.abc import Collection
from typing import Any

from maskwright.config import NONE, hints_of, lines_of


def add_fields(
    parser: argparse.ArgumentParser, config: type, *, without: Collection[str] = ()
) -> None:
    """Add an option for each field of `config` that is a number, a text or a flag. Its default is
    None, so that options that were given can be distinguished from those that were not."""
    help_lines = lines_of(config)
    for field in dataclasses.fields(config):
        if field.name in without:
            continue
        option, hint = f"--{field.name.replace('_', '-')}", _lone(hints_of(config)[field.name])
        text = help_lines.get(field.name, "").rstrip(".")
        usual = field.default
        if usual is not dataclasses.MISSING and not (
            usual is None or usual is False or usual == ""
        ):
            text += f" (default {usual:g})" if isinstance(usual, float) else f" (default {usual})"
        if hint is bool:
            parser.add_argument(option, action="store_true", default=None, help=text)
            continue
        number = {int: "N", float: "X"}.get(hint)
        parser.add_argument(
            option,
            type=hint if number else str,
            default=None,
            metavar=number or field.name.upper(),
            help=text.replace("%", "%%"),
        )


def given(
    arguments: argparse.Namespace, config: type, *, without: Collection[str] = ()
) -> dict[str, Any]:
    """The fields of `config` that an option was given for, by name."""
    names = (field.name for field in dataclasses.fields(config) if field.name not in without)
    values = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _lone(hint: Any) -> Any:
    """`T` of `T | None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not NONE)
    return hint
