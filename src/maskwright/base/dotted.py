"""Fields of a config by dotted path, as `--set a.b=value` names them: replace, parse, compare."""

from __future__ import annotations

import contextlib
import json
import tomllib
import typing
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from maskwright.base.config import from_plain, hints_of, joined, tag_of, to_plain
from maskwright.base.errors import ConfigError, UsageError, near

T = TypeVar("T")


def replace_at(config: T, values: dict[str, Any]) -> T:
    """Return `config` with the fields at dotted paths replaced by plain values.

    All values are set before the config is checked, so settings that depend on each other can be
    changed together. In a free table (`dict[str, Any]`) keys and tables are created as needed.

    Raises:
        ConfigError: no such field (with similar names), or an invalid value.
    """
    plain = to_plain(config)
    for path, value in values.items():
        _put(plain, type(config), path, value)
    return from_plain(type(config), plain)


def _put(plain: Any, kind: Any, path: str, value: Any) -> None:
    """Set the value at `path` in the plain form of a config of type `kind`."""
    names, done, root = path.split("."), 0, plain
    while True:
        name, path_so_far = names[done], ".".join(names[: done + 1])
        is_last = done == len(names) - 1
        if isinstance(plain, list):
            if not (name.isdecimal() and int(name) < len(plain)):
                raise ConfigError(
                    "no such entry", where=path_so_far, wanted=f"0 to {len(plain) - 1}"
                )
            key: Any = int(name)
        else:
            key = name
            free = isinstance(plain, dict) and (kind is Any or typing.get_origin(kind) is dict)
            table = plain if isinstance(plain, dict) else {}
            if name not in table and not free:
                suggestion = _elsewhere(names[-1], root) or near(name, table)
                raise ConfigError("no such setting", where=path_so_far, wanted=suggestion)
            if not is_last:
                table.setdefault(name, {})
        if is_last:
            plain[key] = value
            return
        plain, kind = plain[key], _kind_of(kind, name, plain[key])
        done += 1


def _elsewhere(name: str, plain: Any) -> str:
    """Return a hint with the settings of that name in other tables, or ""."""
    matches = [path for path in _paths(plain, "") if path.rsplit(".", 1)[-1] == name]
    return f"did you mean {' or '.join(map(repr, matches[:3]))}?" if matches else ""


def _paths(plain: Any, path: str) -> Iterator[str]:
    """Yield the dotted path of every setting and table in the plain form of a config."""
    for name, value in plain.items() if isinstance(plain, dict) else ():
        full_path = joined(path, name)
        yield full_path
        yield from _paths(value, full_path)


def _kind_of(owner: Any, name: str, plain: Any) -> Any:
    """Return the type of a field: of a union the member that `plain` names, in a free table Any."""
    if owner is Any:
        return Any
    if typing.get_origin(owner) is dict:
        return typing.get_args(owner)[1]
    hint = hints_of(owner).get(name) if isinstance(owner, type) else None
    tag, arms = tag_of(hint)
    named = plain.get(tag) if isinstance(plain, dict) else None
    return arms.get(str(named), next(iter(arms.values()))) if arms else hint


def assignments(settings: str | Sequence[str], example: str) -> dict[str, str]:
    """Parse settings such as `training.batch=32` into {path: text}.

    Args:
        example: shown in the error.

    Raises:
        UsageError: not path=value, or two values for one path.
    """
    texts: dict[str, str] = {}
    for setting in [settings] if isinstance(settings, str) else settings:
        path, sign, text = setting.partition("=")
        if not sign:
            raise UsageError("--set wants path=value", found=repr(setting), wanted=example)
        if texts.setdefault(path, text) != text:
            raise UsageError(
                "the setting is given twice",
                where=f"--set {path}",
                found=f"{texts[path]} and {text}",
                wanted="one of them",
            )
    return texts


def parse_value(text: str) -> Any:
    """Parse the value of `--set a.b=value`: as JSON, else as a list or table of TOML, else the text
    itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or none that can be held
        pass
    if text.startswith(("[", "{")) and "\n" not in text:
        with contextlib.suppress(ValueError, RecursionError):
            return tomllib.loads(f"value = {text}")["value"]
    return {"none": None, "None": None, "True": True, "False": False}.get(text, text)


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted path, left value, right value) where two configs or plain values differ."""
    ours, theirs = to_plain(ours), to_plain(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*ours, *theirs]):
            yield from differences(ours.get(name), theirs.get(name), joined(path, name))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, joined(path, str(index)))
    elif ours != theirs:
        yield path, ours, theirs
