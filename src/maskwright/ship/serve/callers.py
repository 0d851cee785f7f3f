"""Keys of callers with limits, from a file that can be replaced while the server runs.

    {"callers": {"search": {"key": "0cc175b9c0f1b6a8", "requests_per_minute": 600},
                 "deploy": {"key": "31c399e269772661", "admin": true}}}

JSON, since no beginning of a JSON object is one: a file that is half written is never read as a
shorter list of callers. If it cannot be read, the keys that were read before stay valid.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from pathlib import Path

from maskwright.base.config import from_plain
from maskwright.base.errors import ConfigError
from maskwright.base.storage import files, strict_json
from maskwright.ship.serve.errors import Refusal

MINUTE, LARGEST_FILE = 60.0, 16 << 20


@dataclass(frozen=True, kw_only=True)
class KeyEntry:
    """The key of a caller, and the limits of its requests.

    Attributes:
        key: 8 or more visible ASCII characters.
        requests_per_minute: None: no limit.
        tokens_per_minute: tokens of inputs and of generated texts, which count when a request ends;
            None: no limit.
        admin: whether the key may reload models.
    """

    key: str
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    admin: bool = False

    def limits(self) -> dict[str, float]:
        """Return the limits that are set, by what they limit."""
        limits = {"requests": self.requests_per_minute, "tokens": self.tokens_per_minute}
        return {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(eq=False)
class Caller:
    """A caller, and what is left of its limits; kept when its entry changes.

    Attributes:
        name: in the key file.
        entry: its key and limits.
    """

    name: str
    entry: KeyEntry
    # By what is limited: the amount that is left, at a time of `time.monotonic`. It grows up to the
    # limit of a minute, and may be overdrawn.
    _allowances: dict[str, tuple[float, float]] = field(default_factory=dict)

    async def require_allowance(self, patience: float) -> None:
        """Wait until the limits admit a request. One that would wait longer than `patience` seconds
        is refused after these: a client that asks again at once must not take the time of others.

        Raises:
            Refusal: a limit is exceeded.
        """
        for name, limit in self.entry.limits().items():
            seconds = max(0.0, (1.0 - self._remaining(name, limit)) * MINUTE / limit)
            if seconds <= patience and name == "requests":
                self.use(name, 1)  # before waiting, so that the next one waits longer
            await asyncio.sleep(min(seconds, patience))
            if seconds > patience:
                raise Refusal(
                    "overloaded",
                    f"the key {self.name} has used its {name}",
                    limit=f"{limit:g} a minute",
                    retry_after=seconds - patience,
                )

    def use(self, name: str, amount: float) -> None:
        """Subtract an amount from what is left of a limit, if there is one."""
        if (limit := self.entry.limits().get(name)) is not None:
            self._allowances[name] = self._remaining(name, limit) - amount, time.monotonic()

    def _remaining(self, name: str, limit: float) -> float:
        now = time.monotonic()
        amount, updated = self._allowances.get(name, (limit, now))
        return min(limit, amount + (now - updated) * limit / MINUTE)


class KeyFile:
    """The callers of a key file, by the digests of their keys.

    Raises:
        MaskwrightError: the file cannot be read or is invalid; likewise `read`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._callers: dict[bytes, Caller] = {}
        self._state: object = None
        self.read()

    def caller(self, key: bytes) -> Caller | None:
        """Return the caller with this key. Digests are compared, so that the time of the search
        says nothing about the key."""
        return self._callers.get(hashlib.sha256(key).digest())

    def has_changed(self) -> bool:
        """Return whether the file was replaced or changed since the last attempt to read it."""
        try:
            return files.file_state(self.path) != self._state
        except OSError:  # it is being replaced
            return False

    def read(self) -> None:
        """Read the file; if that fails, all callers stay as they were."""
        with files.os_errors_refused(self.path):
            self._state = files.file_state(self.path)
            data = self.path.read_bytes()
        plain = strict_json.parse_object(data, self.path, error=ConfigError, largest=LARGEST_FILE)
        entries = plain.get("callers")
        if not isinstance(entries, dict) or not entries or len(plain) > 1:
            expected = '{"callers": {"NAME": {"key": "…"}}}'
            raise ConfigError("no list of callers", where=self.path, wanted=expected)
        callers_by_name = {caller.name: caller for caller in self._callers.values()}
        callers: dict[bytes, Caller] = {}
        for name, value in entries.items():
            where = f"{self.path}: callers.{name}"
            entry = from_plain(KeyEntry, value, where)
            digest = hashlib.sha256(entry.key.encode()).digest()
            is_valid = is_token(entry.key) and digest not in callers
            if not is_valid or not all(limit > 0 for limit in entry.limits().values()):
                expected = "a key of its own, of 8 or more visible ASCII characters; limits above 0"
                raise ConfigError("not a caller", where=where, wanted=expected)
            callers[digest] = Caller(
                name, entry, getattr(callers_by_name.get(name), "_allowances", {})
            )
        self._callers = callers


def is_token(text: str) -> bool:
    """Return whether a text can be a token or a key."""
    return len(text) >= 8 and text.isascii() and text.isprintable() and " " not in text
