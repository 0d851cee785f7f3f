"""Escapes control characters in untrusted text before it is printed.

A terminal obeys control characters (ECMA-48: ESC, and the C1 controls from U+0080), and the
direction controls of Unicode can make a line read as another one (Boucher and Anderson 2021,
"Trojan Source"). Here they become the escapes of Python or JSON.
"""

from __future__ import annotations

import re
import shlex

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str, keep: str = "") -> str:
    r"""Escape control characters, direction controls and lone surrogates as `\x1b`, except those
    in `keep`."""
    return _HARMFUL.sub(lambda match: _escaped(match.group(), keep), text)


def harmless_lines(text: str) -> str:
    """Escape like `harmless`, but keep newlines and tabs."""
    return harmless(text, "\n\t")


def harmless_json(text: str) -> str:
    r"""Escape a line of JSON without changing its meaning, as `\u001b`."""
    return _HARMFUL.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def shell_word(value: object) -> str:
    r"""Quote `value` for a shell; characters that cannot be typed as `$'\x1b'` (bash and zsh)."""
    text = str(value)
    if not _HARMFUL.search(text):
        return shlex.quote(text)
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that is not an undecodable byte of a file name
        return shlex.quote(harmless(text))
    plain = "".join(
        chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in "'\\" else f"\\x{byte:02x}"
        for byte in raw
    )
    return f"$'{plain}'"


def _escaped(character: str, keep: str) -> str:
    return character if character in keep else character.encode("unicode_escape").decode()
