"""Text for the terminal: escaped, with counts in words, printed line by line.

A terminal obeys control characters (ECMA-48: ESC, and the C1 controls from U+0080), and the
direction controls of Unicode can make a line read as another one (Boucher and Anderson 2021,
"Trojan Source"). Here they become the escapes of Python or JSON.

If the reader goes away (a closed pipe), lines are dropped and the work continues.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import TextIO

_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def harmless(text: str, keep: str = "") -> str:
    r"""Escape control characters, direction controls and lone surrogates as `\x1b`, except those
    in `keep`."""
    return _HARMFUL.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode(),
        text,
    )


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


# ------------------------------------------------------------------------------ numbers
def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return the number with its noun; `plural` is needed if it is not `noun` with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def rounded(value: float) -> float:
    """Round to six decimals, numbers below 0.1 to six significant digits."""
    return float(f"{value:.6f}" if abs(value) >= 0.1 else f"{value:.6g}")


def decimals(value: float, count: int = 4) -> str:
    """Format with `count` decimals, or with three significant digits if these would be zeros."""
    return f"{value:.3g}" if 0 < abs(value) < 10.0**-count else f"{value:z.{count}f}"


# ------------------------------------------------------------------------------ output
Say = Callable[[str], None]


def printer(stream: TextIO | None) -> Say:
    """Return a function that prints lines to `stream`; None: to standard output."""
    closed = False

    def say(text: str) -> None:
        nonlocal closed
        if closed:
            return
        try:
            print(harmless_lines(text), file=stream or sys.stdout, flush=True)
        except BrokenPipeError:
            closed = True
            if stream is None:
                discard_output()

    return say


def discard_output() -> None:
    """Redirect standard output to the null device, so that flushing its buffer does not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def quiet(text: str) -> None:
    """A `Say` that prints nothing."""
