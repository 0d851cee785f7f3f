"""Frozen dataclasses to JSON and TOML and back, with errors that name the field.

A config is a frozen dataclass whose fields are numbers, strings, booleans, None, tuples, further
configs, or one of several configs (`Learned | Sinusoidal | None`; written with a `type` key, or
told apart by a `kind` of their own, of which the first is meant where none is said). Reading is
strict: an unknown key, a missing one, a wrong type or a value outside a `Literal` is a
`ConfigError` with the dotted path of the field and the near names. What a table leaves out is that
of the field's default, to any depth: where `masking` is by default one of spans, `masking = {rate =
0.3}` changes the rate of a masking of spans. A table that names another config than the default's
begins with that config's own defaults.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from maskwright.errors import ConfigError, MaskwrightError, UsageError, near

T = TypeVar("T")
NONE = type(None)


# ------------------------------------------------------------------------------ to plain and back
def to_plain(value: Any) -> Any:
    """Config -> dicts, lists and scalars. A config says its `type` only where a union needs it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        plain = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            plain[field.name] = to_plain(item)
            if _tag(hints[field.name])[0] == "type" and dataclasses.is_dataclass(item):
                plain[field.name] = {"type": type(item).__name__, **plain[field.name]}
        return plain
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: to_plain(v) for k, v in value.items()}
    return value


def from_plain(kind: type[T], plain: Any, path: str = "", over: T | None = None) -> T:
    """The reverse of `to_plain`, checked field by field.

    A config that refuses one of its own fields by the bare name is told where it stands: `path` is
    put before it.

    Args:
        over: whose fields stand for those that are left out; None: the defaults do.

    Raises:
        ConfigError: with the dotted path of the field that is at fault.
    """
    if not isinstance(plain, dict):
        raise ConfigError("not a table", where=path or kind.__name__, found=repr(plain))
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in plain:
        if name not in fields:
            raise ConfigError("unknown setting", where=_join(path, name), wanted=near(name, fields))
    values = {}
    hints = _hints(typing.cast(type, kind))
    for name, field in fields.items():
        usual = _default(field) if over is None else getattr(over, name)
        if name in plain:
            values[name] = _read(hints[name], plain[name], _join(path, name), usual)
        elif usual is dataclasses.MISSING:
            raise ConfigError("a setting is missing", where=_join(path, name))
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
    """The value of a field that nobody sets; MISSING where it must be set."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _read(hint: Any, plain: Any, path: str, usual: Any = None) -> Any:
    """The value that `plain` says; `usual` is the field's own where nothing is said."""
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
        if not isinstance(plain, list | tuple):
            raise ConfigError("not a list", where=path, found=repr(plain))
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
        return {k: _read(arm, v, _join(path, k)) for k, v in plain.items()}
    if dataclasses.is_dataclass(hint):
        return from_plain(
            typing.cast(type, hint), plain, path, usual if type(usual) is hint else None
        )
    return _read_scalar(hint, plain, path)


def _read_union(hint: Any, plain: Any, path: str, usual: Any) -> Any:
    arms = typing.get_args(hint)
    if plain is None and NONE in arms:
        return None
    tag, configs = _tag(hint)
    if isinstance(plain, dict) and configs:
        own = next((n for n, arm in configs.items() if type(usual) is arm), None)
        first = "" if tag == "type" else next(iter(configs))  # a lone one has no tag
        name = plain.get(tag, own or first)
        if not isinstance(name, str) or name not in configs:
            raise ConfigError(
                "which kind is meant",
                where=_join(path, tag),
                found=repr(name),
                wanted=near(str(name), configs),
            )
        body = {k: v for k, v in plain.items() if k != "type"}
        return from_plain(configs[name], body, path, usual if name == own else None)
    errors = []
    for arm in arms:
        if arm is NONE or dataclasses.is_dataclass(arm):
            continue
        try:
            return _read(arm, plain, path)
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    raise ConfigError("not a fitting value", where=path, found=repr(plain))


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


# ------------------------------------------------------------------------------ overrides and diffs
def replace_at(config: T, values: dict[str, Any]) -> T:
    """`config` with the fields at dotted paths replaced by plain values, checked like a file.

    All values are put in place before anything is checked, so settings that only fit together can
    be changed together. In a field that is a free table (`dict[str, Any]`) a key may be new, and so
    may the tables on the way to it.

    Raises:
        ConfigError: no such field (with the near names), or values that do not fit.
    """
    plain = to_plain(config)
    for path, value in values.items():
        _put(plain, type(config), path, value)
    return from_plain(type(config), plain)


def _put(plain: Any, kind: Any, path: str, value: Any) -> None:
    """Set one value in the plain form of a `kind`."""
    names, done, whole = path.split("."), 0, plain
    while True:
        name, here = names[done], ".".join(names[: done + 1])
        last = done == len(names) - 1
        if isinstance(plain, list):
            if not (name.isdigit() and int(name) < len(plain)):
                raise ConfigError("no such entry", where=here, wanted=f"0 to {len(plain) - 1}")
            key: Any = int(name)
        else:
            key = name
            free = isinstance(plain, dict) and (kind is Any or typing.get_origin(kind) is dict)
            known = plain if isinstance(plain, dict) else {}
            if name not in known and not free:
                wanted = _elsewhere(names[-1], whole) or near(name, known)
                raise ConfigError("no such setting", where=here, wanted=wanted)
            if not last:
                known.setdefault(name, {})
        if last:
            plain[key] = value
            return
        plain, kind = plain[key], _kind_of(kind, name, plain[key])
        done += 1


def _elsewhere(name: str, plain: Any) -> str:
    """A remedy that names the settings of that name in any table; empty without one."""
    found = [path for path in _paths(plain, "") if path.rsplit(".", 1)[-1] == name]
    return f"did you mean {' or '.join(map(repr, found[:3]))}?" if found else ""


def _paths(plain: Any, path: str) -> Iterator[str]:
    """The dotted path of every setting and table in the plain form of a config."""
    for name, value in plain.items() if isinstance(plain, dict) else ():
        here = _join(path, name)
        yield here
        yield from _paths(value, here)


def _kind_of(owner: Any, name: str, plain: Any) -> Any:
    """The type of a field, the alternative that `plain` names where it is a union; what lies in a
    free table is as free."""
    if owner is Any:
        return Any
    if typing.get_origin(owner) is dict:
        return typing.get_args(owner)[1]
    hint = _hints(owner).get(name) if isinstance(owner, type) else None
    tag, arms = _tag(hint)
    named = plain.get(tag) if isinstance(plain, dict) else None
    return arms.get(str(named), next(iter(arms.values()))) if arms else hint


def parse_value(text: str) -> Any:
    """The value in `--set a.b=value`: JSON where it is JSON, else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or none that can be held
        return {"none": None, "None": None, "True": True, "False": False}.get(text, text)
    return value


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted path, left value, right value) wherever two configs or plain values differ."""
    ours, theirs = to_plain(ours), to_plain(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in dict.fromkeys([*ours, *theirs]):
            yield from differences(ours.get(name), theirs.get(name), _join(path, name))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, _join(path, str(index)))
    elif ours != theirs:
        yield path, ours, theirs


# ------------------------------------------------------------------------------ text forms
def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: the text that is hashed."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def to_toml(config: Any) -> str:
    """A TOML document that `from_plain(kind, tomllib.loads(text))` reads back to an equal config.

    TOML has no null, so None is left out; a field whose default is not None but whose value is None
    cannot be written this way and is refused.
    """
    lines: list[str] = []
    _write_table(to_plain(config), "", lines)
    return "\n".join(lines).strip() + "\n"


def read_toml(kind: type[T], path: Path) -> T:
    """The config that a TOML file says.

    Raises:
        UsageError: no such file.  ConfigError: not TOML, or not such a config; names file and
            field.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin with a byte order mark
    except FileNotFoundError as error:
        siblings = [p.name for p in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise UsageError("no such recipe file", where=path, do=near(path.name, siblings)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the recipe cannot be read", where=path, found=error) from error
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("not a TOML file", where=path, found=error) from error
    try:
        return from_plain(kind, plain)
    except ConfigError as error:
        raise error.under(f"{path}, ") from None


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


# ------------------------------------------------------------------------------ type hints
@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _alternatives(hint: Any) -> list[Any]:
    """The config types of a union (`A | B | None` -> [A, B])."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [a for a in typing.get_args(hint) if dataclasses.is_dataclass(a)]
    return []


def _tag(hint: Any) -> tuple[str, dict[str, type]]:
    """The key under which a table says which config of a union it is, and its choices; a lone
    config needs none."""
    arms = _alternatives(hint)
    kinds = [typing.get_args(_hints(a).get("kind")) for a in arms]
    if len(arms) > 1 and all(len(k) == 1 for k in kinds):
        return "kind", {k[0]: a for k, a in zip(kinds, arms, strict=True)}
    return "type" if len(arms) > 1 else "", {a.__name__: a for a in arms}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def require(where: str, found: float, low: float, high: float = math.inf) -> None:
    """Refuse a number that is not from `low` to `high`.

    Raises:
        ConfigError: naming the setting.
    """
    if not low <= found <= high:
        wanted = f"{low:g} or more" if high == math.inf else f"{low:g} to {high:g}"
        raise ConfigError("a setting is out of range", where=where, found=found, wanted=wanted)
