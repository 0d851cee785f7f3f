"""A Hugging Face config read key by key, each with its type and range (reliability F87).

A config.json may come from anywhere. A family asks for what it knows, says what is allowed, and
gets a value of the right type or a `ConfigError` that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from maskwright.base.errors import ConfigError, near

T = TypeVar("T")

# Names of activations in transformers -> ours (`gelu` is the exact form).
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


class Fields:
    """The keys of a config, or of a table in it at `path`; `looked_up` are those that were looked
    at. A key that is null is as one that is not there, unless said otherwise.

    Args:
        formerly: names that architectures had once, each with today's.
    """

    def __init__(
        self, hf: Mapping[str, Any], path: str = "", formerly: Mapping[str, str] | None = None
    ) -> None:
        self._hf, self._path, self._formerly = hf, path, formerly or {}
        self.looked_up: set[str] = set()

    def integer(self, key: str, default: int | None = None, smallest: int = 1) -> int:
        """A whole number from `smallest` to 2^31-1; `default` None makes the key required."""
        value = self._value(key, default)
        if type(value) is not int or not smallest <= value < 1 << 31:
            raise self._wrong(key, value, f"a whole number, at least {smallest}")
        return value

    def positive(self, key: str, default: float) -> float:
        value = self._value(key, default)
        if type(value) not in (int, float) or not 0 < value < 1:
            raise self._wrong(key, value, "a number between 0 and 1")
        return float(value)

    def number(self, key: str, default: float) -> float:
        """A number above 0, far from where arithmetic ends."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not 0 < value < 1e30:
            raise self._wrong(key, value, "a number above 0 and below 1e30")
        return float(value)

    def rate(self, key: str, default: float | None) -> float:
        """A dropout rate."""
        value = self._value(key, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise self._wrong(key, value, "a rate, 0 <= rate < 1")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if type(value) is not bool:
            raise self._wrong(key, value, "true or false")
        return value

    def choice(self, key: str, table: Mapping[str, Any], default: str) -> Any:
        """What `table` has for the value of `key`."""
        value = self._value(key, default)
        if not isinstance(value, str) or value not in table:
            raise self._wrong(key, value, f"one of {', '.join(table)}")
        return table[value]

    def table(self, key: str) -> Fields:
        """The fields of the table that is the value of `key`; of an empty one where it is not."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, value, "a table")
        return Fields(value, f"{self._path}{key}.")

    def names(self, key: str, choices: tuple[str, ...]) -> list[str]:
        """A list of names, each one of `choices`; empty where the key is not there."""
        value = self._value(key, [])
        if not isinstance(value, list) or not all(name in choices for name in value):
            raise self._wrong(key, value, f"a list of {', '.join(choices)}")
        return value

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        self.looked_up.add(key)
        return self._hf.get(key) is not None

    def null(self, key: str) -> bool:
        """Whether the key is there and null, for the few where that has a meaning of its own."""
        self.looked_up.add(key)
        return key in self._hf and self._hf[key] is None

    def fixed(self, values: Mapping[str, Any], *, null: bool = True) -> None:
        """Refuse another value than these; null counts as absent unless `null` is false."""
        for key, expected in values.items():
            self.looked_up.add(key)
            if self._hf.get(key, expected) != expected and not (null and self._hf[key] is None):
                raise ConfigError(
                    "the model type is built here without this variation",
                    where=self._where(key),
                    found=repr(self._hf[key]),
                    wanted=repr(expected),
                )

    def architecture(self, table: Mapping[str, T]) -> T:
        """What `table` has for the first architecture named; without one, its first entry."""
        names = self._hf.get("architectures") or [next(iter(table))]
        architecture = names[0] if isinstance(names, list) else names
        if isinstance(names, list) and isinstance(architecture, str):
            today = self._formerly.get(architecture, architecture)
            if today in table:
                return table[today]
        raise self._wrong("architectures", architecture, near(str(architecture)[:64], table))

    def labels(self, default: int = 2) -> int:
        """How many labels the config declares: `id2label`, else `num_labels`, else `default`."""
        if not self.has("id2label"):
            return self.integer("num_labels", default)
        table = self._hf["id2label"]
        if not isinstance(table, dict) or sorted(table) != sorted(map(str, range(len(table)))):
            raise self._wrong("id2label", table, 'names under the keys "0", "1", …')
        if not table or not all(isinstance(name, str | int | float) for name in table.values()):
            raise self._wrong("id2label", table, "at least one name, all texts or numbers")
        return len(table)

    def _value(self, key: str, default: Any) -> Any:
        self.looked_up.add(key)
        value = self._hf.get(key)
        if value is None and default is None:
            raise ConfigError("a key is missing", where=self._where(key))
        return default if value is None else value

    def _wrong(self, key: str, value: Any, valid: str) -> ConfigError:
        return ConfigError("invalid value", where=self._where(key), found=repr(value), wanted=valid)

    def _where(self, key: str) -> str:
        return f"config.json: {self._path}{key}"


def head_width(width: int, num_heads: int, where: str) -> int:
    """How wide each of the heads is that share the `width`, which the key `where` says.

    Raises:
        ConfigError: they do not divide it.
    """
    if width % num_heads:
        raise ConfigError(
            "the heads do not divide the width",
            where=f"config.json: {where}",
            found=width,
            wanted=f"a multiple of {num_heads}",
        )
    return width // num_heads
