"""Incremental decoding of generated ids, in pieces that are final and end before a stop string.

    text = GrowingText(tokenizer.decode, prompt_ids, stop=["\\n\\n"])
    text.add(token)                              the text that is final now
    text.end()                                   the text that was held back

The concatenated pieces are the decoded text of the ids, up to the stop string. Text that later
tokens may still change is held back: bytes of an incomplete character, and a possible beginning of
a stop string. Stop strings are found anywhere in the new text, within or across tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from maskwright.base.errors import UsageError

Decode = Callable[[Sequence[int]], str]
# Why a row ended: its end token, a stop string, or the maximum number of tokens.
Reason = Literal["end", "stop", "length"]

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoded from invalid or incomplete bytes
BYTE = re.compile(r"<0x[0-9A-F]{2}>", re.ASCII)


@dataclass(frozen=True)
class Piece:
    """The output of one step for one row.

    Attributes:
        row: index of the prompt.
        id: id of the new token; None for the end token.
        text: text that became final, perhaps of earlier tokens; may be empty.
        finished: why the row ends here; None if it continues.
        logprob: log-probability in nats of the new token, before temperature and filters; None if
            not requested.
        top_logprobs: (id, log-probability) of the most likely tokens, the best first.
    """

    row: int
    id: int | None
    text: str
    finished: Reason | None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


class GrowingText:
    """Incremental decoding of a growing list of ids.

    Args:
        decode: maps token ids to text.
        prefix: ids in front of the new ones, whose text is not returned.
        stop: strings that end the text.
        is_byte: whether an id stands for a single byte. A run of such ids is decoded when it is
            complete, since one invalid byte changes the text of the whole run.
    """

    def __init__(
        self,
        decode: Decode,
        prefix: Sequence[int] = (),
        stop: Sequence[str] = (),
        is_byte: Callable[[int], bool] = lambda token: False,
    ) -> None:
        self._decode, self._is_byte = decode, is_byte
        self._stop = tuple(stop)
        self._ids = list(prefix)
        self._first = len(self._ids)
        self._skipped = len(decode(self._ids)) if self._ids else 0
        self._shown = 0
        self.stopped = False

    def add(self, token: int) -> str:
        """Add a token and return the text that is final now."""
        self._ids.append(token)
        count = len(self._ids)
        while count > self._first and self._is_byte(self._ids[count - 1]):
            count -= 1
        return self._show(self._text(count).rstrip(UNFINISHED), more=True)

    def end(self) -> str:
        """Return the text that was held back; call it after the last token."""
        return "" if self.stopped else self._show(self._text(len(self._ids)), more=False)

    def advance(self, token: int | None, is_last: bool) -> tuple[str, Reason | None]:
        """Add a token (None: the end token) and return the text that is final now, and why the row
        ends, or None; `is_last`: the maximum number of tokens is reached."""
        text = "" if token is None else self.add(token)
        if self.stopped:
            return text, "stop"
        if token is not None and not is_last:
            return text, None
        text += self.end()
        # The text that was held back may contain a stop string, too.
        return text, "stop" if self.stopped else "end" if token is None else "length"

    def _text(self, count: int) -> str:
        return self._decode(self._ids[:count])[self._skipped :]

    def _show(self, text: str, more: bool) -> str:
        # Text shown before cannot belong to a stop string: it would have been held back.
        stop_positions = [i for s in self._stop if (i := text.find(s, self._shown)) >= 0]
        if stop_positions:
            self.stopped, text = True, text[: min(stop_positions)]
        elif more:
            text = text[: len(text) - max((_overlap(text, s) for s in self._stop), default=0)]
        shown, self._shown = self._shown, max(self._shown, len(text))
        return text[shown:]


def require_stop(stop: Sequence[str]) -> None:
    """Raise a `UsageError` if the stop strings are no list, or one of them is empty."""
    if isinstance(stop, str) or not all(stop):
        raise UsageError(
            "a string that ends the text is empty",
            where="stop",
            found=repr(stop),
            wanted="a list of strings, each of at least one character",
        )


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
