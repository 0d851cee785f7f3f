"""Configs: frozen dataclasses as plain values, as TOML, and field by field.

A config is a frozen dataclass whose fields are numbers, strings, booleans, None, tuples, further
configs, or a union of configs (`Learned | Sinusoidal | None`). The members of a union are told
apart by a `type` key, or by a field `kind` of their own; without it the first is meant. Reading is
strict: an unknown or missing key, a wrong type or a value outside a `Literal` is a `ConfigError`
with the dotted path of the field and similar names. Keys that a table leaves out have the values of
the field's default, at any depth: if `masking` masks spans by default, `masking = {rate = 0.3}`
changes the rate of masking spans. A table that names another config than the default one begins
with the defaults of that config.

Fields are replaced, parsed and compared by dotted path, as `--set a.b=value` names them. Configs
written as TOML read back to equal configs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from maskwright.base.errors import ConfigError, MaskwrightError, UsageError, near, unknown
from maskwright.base.terminal import shell_word

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
        elif usual is MISSING:
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
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


def _read(hint: Any, plain: Any, path: str, usual: Any = None) -> Any:
    """Convert one plain value to the type `hint`; `usual` is the default of the field."""
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        if plain not in typing.get_args(hint):
            choices = map(str, typing.get_args(hint))
            raise unknown("not one of the choices", plain, choices, where=path, kind=ConfigError)
        return plain
    if origin in (typing.Union, types.UnionType):
        return _read_union(hint, plain, path, usual)
    if origin is tuple:
        if isinstance(plain, str) and WORDS.fullmatch(plain):
            plain = [word.strip() for word in plain[1:-1].split(",")]
        if not isinstance(plain, list | tuple):
            entries = [word.strip() for word in plain.split(",")] if isinstance(plain, str) else []
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
            where = joined(path, tag)
            raise unknown("which kind is meant", name, configs, where=where, kind=ConfigError)
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
    """Return the only one of `configs` that has all these settings; of several the only one whose
    required settings are all there. "" if there are none or two."""
    fields = {name: dataclasses.fields(kind) for name, kind in configs.items()}
    fitting = [n for n, of_kind in fields.items() if plain.keys() <= {f.name for f in of_kind}]
    if plain and len(fitting) > 1:
        required = {n: {f.name for f in fields[n] if _default(f) is MISSING} for n in fitting}
        fitting = [name for name in fitting if required[name] <= plain.keys()]
    return fitting[0] if len(fitting) == 1 else ""


def _read_scalar(hint: Any, plain: Any, path: str) -> Any:
    if hint is Any:
        return plain
    if hint is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if type(plain) is not hint:
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        kind = names.get(hint, hint)
        raise ConfigError("wrong type of value", where=path, found=repr(plain), wanted=kind)
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
        least, most = (f"{n:,}" if isinstance(n, int) else f"{n:g}" for n in (low, high))
        raise out_of_range(where, value, f"{least} {'or more' if most == 'inf' else f'to {most}'}")


def require_choices(config: object) -> None:
    """Refuse a value outside of the `Literal` of its field, in a config that Python code made.

    Raises:
        ConfigError: naming the field.
    """
    for name, hint in hints_of(typing.cast(type, type(config))).items():
        if typing.get_origin(hint) is typing.Literal:
            _read(hint, getattr(config, name), name)


def out_of_range(where: str, value: object, expected: str) -> ConfigError:
    """Return the error for a setting whose value is not `expected`."""
    remedy = "choose a number within these limits, or leave it out for its default"
    return ConfigError(
        "a setting is out of range", where=where, found=value, wanted=expected, do=remedy
    )


# ---------------------------------------------------------------------------- fields by dotted path
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


# ------------------------------------------------------------------------------ TOML
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
        raise UsageError("no such TOML file", where=path, do=near(path.name, siblings)) from error
    except (OSError, ValueError) as error:
        raise ConfigError("the file cannot be read", where=path, found=error) from error
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
