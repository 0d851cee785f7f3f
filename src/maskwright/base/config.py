"""Converts frozen dataclasses to plain values and back, with errors that name the field.

A config is a frozen dataclass whose fields are numbers, strings, booleans, None, tuples, further
configs, or a union of configs (`Learned | Sinusoidal | None`). The members of a union are told
apart by a `type` key, or by a field `kind` of their own; without it the first is meant. Reading is
strict: an unknown or missing key, a wrong type or a value outside a `Literal` is a `ConfigError`
with the dotted path of the field and similar names. Keys that a table leaves out have the values of
the field's default, at any depth: if `masking` masks spans by default, `masking = {rate = 0.3}`
changes the rate of masking spans. A table that names another config than the default one begins
with the defaults of that config.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from maskwright.base.errors import ConfigError, MaskwrightError, near

T = TypeVar("T")
NONE = type(None)
# A list of words without quotes, which a shell removes: `--set lora.targets=[query,value]`.
WORDS = re.compile(r"\[\s*[\w./~-]+(\s*,\s*[\w./~-]+)*\s*\]")


# ------------------------------------------------------------------------------ to plain and back
def to_plain(value: Any) -> Any:
    """Convert a config to dicts, lists and scalars; members of a union get a `type` if needed."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = hints_of(type(value))
        plain = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            plain[field.name] = to_plain(item)
            if tag_of(hints[field.name])[0] == "type" and dataclasses.is_dataclass(item):
                plain[field.name] = {"type": type(item).__name__, **plain[field.name]}
        return plain
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    return value


def from_plain(kind: type[T], plain: Any, path: str = "", over: T | None = None) -> T:
    """Convert the output of `to_plain` back to a config, checking each field.

    Args:
        path: of the config, put before the names of fields in errors.
        over: a config that gives the fields that are left out; None: their defaults.

    Raises:
        ConfigError: with the dotted path of the field.
    """
    if not isinstance(plain, dict):
        raise ConfigError("not a table", where=path or kind.__name__, found=repr(plain))
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in plain:
        if name not in fields:
            raise ConfigError(
                "unknown setting", where=joined(path, name), wanted=near(name, fields)
            )
    values = {}
    hints = hints_of(typing.cast(type, kind))
    for name, field in fields.items():
        usual = _default(field) if over is None else getattr(over, name)
        if name in plain:
            values[name] = _read(hints[name], plain[name], joined(path, name), usual)
        elif usual is dataclasses.MISSING:
            raise ConfigError("a setting is missing", where=joined(path, name))
        else:
            values[name] = usual
    try:
        return kind(**values)
    except MaskwrightError as error:
        if path and error.where in fields:
            raise error.under(f"{path}.") from None
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error), where=path or kind.__name__) from error


def _default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field, MISSING if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _read(hint: Any, plain: Any, path: str, usual: Any = None) -> Any:
    """Convert one plain value to the type `hint`; `usual` is the default of the field."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        if plain not in typing.get_args(hint):
            choices = [str(a) for a in typing.get_args(hint)]
            raise ConfigError(
                "not one of the choices",
                where=path,
                found=repr(plain),
                wanted=near(str(plain), choices),
            )
        return plain
    if origin in (typing.Union, types.UnionType):
        return _read_union(hint, plain, path, usual)
    if origin is tuple:
        if isinstance(plain, str) and WORDS.fullmatch(plain):
            plain = [word.strip() for word in plain[1:-1].split(",")]
        if not isinstance(plain, list | tuple):
            entries = (
                [entry.strip() for entry in plain.split(",")] if isinstance(plain, str) else []
            )
            raise ConfigError(
                "not a list",
                where=path,
                found=repr(plain),
                wanted="[…, …], in JSON or TOML",
                do=f"write {json.dumps(entries, ensure_ascii=False)}" if entries else None,
            )
        arms = typing.get_args(hint)
        if len(arms) == 2 and arms[1] is Ellipsis:
            return tuple(_read(arms[0], p, f"{path}.{i}") for i, p in enumerate(plain))
        if len(arms) != len(plain):
            raise ConfigError(
                "a list of the wrong length", where=path, found=len(plain), wanted=len(arms)
            )
        pairs = enumerate(zip(arms, plain, strict=True))
        return tuple(_read(a, p, f"{path}.{i}") for i, (a, p) in pairs)
    if origin is dict:
        if not isinstance(plain, dict):
            raise ConfigError("not a table", where=path, found=repr(plain))
        arm = typing.get_args(hint)[1]
        return {k: _read(arm, v, joined(path, k)) for k, v in plain.items()}
    if dataclasses.is_dataclass(hint):
        return from_plain(
            typing.cast(type, hint), plain, path, usual if type(usual) is hint else None
        )
    return _read_scalar(hint, plain, path)


def _read_union(hint: Any, plain: Any, path: str, usual: Any) -> Any:
    arms = typing.get_args(hint)
    if plain is None and NONE in arms:
        return None
    tag, configs = tag_of(hint)
    if isinstance(plain, dict) and configs:
        default_name = next((n for n, arm in configs.items() if type(usual) is arm), None)
        usually = _by_fields(plain, configs) if tag == "type" else next(iter(configs))
        name = plain.get(tag, default_name or usually)
        if not isinstance(name, str) or name not in configs:
            raise ConfigError(
                "which kind is meant",
                where=joined(path, tag),
                found=repr(name),
                wanted=near(str(name), configs),
            )
        body = {k: v for k, v in plain.items() if k != "type"}
        return from_plain(configs[name], body, path, usual if name == default_name else None)
    errors = []
    tables = [arm for arm in arms if typing.get_origin(arm) is dict]
    for arm in tables if tables and isinstance(plain, dict) else arms:
        if arm is NONE or dataclasses.is_dataclass(arm):
            continue
        try:
            return _read(arm, plain, path)
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    raise ConfigError("not a fitting value", where=path, found=repr(plain))


def _by_fields(plain: dict[str, Any], configs: dict[str, type]) -> str:
    """Return the only one of `configs` that has all these settings, "" if there are none or two."""
    fitting = [
        name
        for name, kind in configs.items()
        if plain.keys() <= {field.name for field in dataclasses.fields(kind)}
    ]
    return fitting[0] if len(fitting) == 1 else ""


def _read_scalar(hint: Any, plain: Any, path: str) -> Any:
    if hint is Any:
        return plain
    if hint is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if type(plain) is not hint:
        raise ConfigError(
            "wrong type of value",
            where=path,
            found=repr(plain),
            wanted={
                int: "a whole number",
                float: "a number",
                str: "a text",
                bool: "true or false",
            }.get(hint, hint),
        )
    if hint is float and not math.isfinite(plain):
        raise ConfigError("not a finite number", where=path, found=plain)
    return plain


# ------------------------------------------------------------------------------ identity
def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces, the text that is hashed."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


# ------------------------------------------------------------------------------ type hints
@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the type of each field of a config, by name."""
    return typing.get_type_hints(kind)


def lines_of(kind: type) -> Mapping[str, str]:
    """Return the descriptions in the section "Attributes" of the docstring, each on one line, by
    field; empty if docstrings are stripped (python -OO)."""
    section = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: re.sub(r"\s*\n\s*", " ", text) for name, text in entries}


def alternatives(hint: Any) -> list[Any]:
    """Return the config types of a union (`A | B | None` -> [A, B])."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [a for a in typing.get_args(hint) if dataclasses.is_dataclass(a)]
    return []


def tag_of(hint: Any) -> tuple[str, dict[str, type]]:
    """Return the key that tells the configs of a union apart, and the configs by its values; the
    key is "" if there is only one."""
    arms = alternatives(hint)
    kinds = [typing.get_args(hints_of(a).get("kind")) for a in arms]
    if len(arms) > 1 and all(len(k) == 1 for k in kinds):
        return "kind", {k[0]: a for k, a in zip(kinds, arms, strict=True)}
    return "type" if len(arms) > 1 else "", {a.__name__: a for a in arms}


def joined(path: str, name: str) -> str:
    """Return the dotted path of the field `name` of the config at `path`."""
    return f"{path}.{name}" if path else name


def require(where: str, value: float, low: float, high: float = math.inf) -> None:
    """Refuse a number outside the range from `low` to `high`.

    Raises:
        ConfigError: naming the setting.
    """
    if not low <= value <= high:
        raise out_of_range(
            where, value, f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
        )


def out_of_range(where: str, value: object, expected: str) -> ConfigError:
    """Return the error for a setting whose value is not `expected`."""
    remedy = "choose a number within these limits, or leave it out for its default"
    return ConfigError(
        "a setting is out of range", where=where, found=value, wanted=expected, do=remedy
    )
