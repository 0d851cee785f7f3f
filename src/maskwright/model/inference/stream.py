"""Text as it is written: pieces that are never taken back, and strings that end it.

    for piece in stream(network, prompts, 100, sampling, decode=tokenizer.decode, stop=["\\n\\n"]):
        print(piece.text, end="")              of one row; `piece.row` says which

The pieces of a row, one after the other, are its text: what decoding all of its ids gives, up to
where it was stopped. So a piece holds back what later tokens may change: bytes of a character that
is not complete, and the beginning of a string that may become one of `stop`. A string of `stop`
counts wherever it appears in the new text, across tokens or within one; the text ends before it.

Nothing here knows a model's conventions; `texts.py` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from maskwright.base.errors import UsageError
from maskwright.model.inference.decode import GREEDY, Sampling, steps
from maskwright.model.inference.prepared import Prepared
from maskwright.model.nn.transformer import Transformer

Decode = Callable[[Sequence[int]], str]
# Why a row ended: its end token, a string of `stop`, or its number of tokens.
Reason = Literal["end", "stop", "length"]

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that are no character, or not yet
BYTE = re.compile(r"<0x[0-9A-F]{2}>", re.ASCII)


@dataclass(frozen=True)
class Piece:
    """What one step adds to a row.

    Attributes:
        row: which prompt it belongs to.
        id: the new token; None where it was the end token.
        text: what can be shown of it by now, and of the tokens before.
        finished: why the row ends here; None where it goes on.
        logprob: of the new token, the end token included, in nats, as the model gave it: before
            temperature and filters. None where it was not asked for.
        top_logprobs: ids and log-probabilities of the likeliest so many tokens, the best first.
    """

    row: int
    id: int | None
    text: str
    finished: Reason | None
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


class GrowingText:
    """The text of growing ids, emitted piece by piece.

    Args:
        decode: the text of ids.
        prefix: ids in front of the new ones, whose text is not given out.
        stop: strings that end the text.
        is_byte: whether an id stands for a byte alone. What a run of such ids spells is known only
            when it has ended: one byte that fits nowhere spoils all of it.
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
        """The text that can be shown after `token`."""
        self._ids.append(token)
        count = len(self._ids)
        while count > self._first and self._is_byte(self._ids[count - 1]):
            count -= 1
        return self._show(self._text(count).rstrip(UNFINISHED), more=True)

    def end(self) -> str:
        """The text that was held back, at the end."""
        return "" if self.stopped else self._show(self._text(len(self._ids)), more=False)

    def _text(self, count: int) -> str:
        return self._decode(self._ids[:count])[self._skipped :]

    def _show(self, text: str, more: bool) -> str:
        # What was shown is no part of such a string: it would have been held back.
        stop_positions = [
            stop_position for s in self._stop if (stop_position := text.find(s, self._shown)) >= 0
        ]
        if stop_positions:
            self.stopped, text = True, text[: min(stop_positions)]
        elif more:
            text = text[: len(text) - max((_overlap(text, s) for s in self._stop), default=0)]
        shown, self._shown = self._shown, max(self._shown, len(text))
        return text[shown:]


def stream(
    model: Transformer | Prepared,
    prompts: Sequence[Sequence[int]],
    count: int | Sequence[int],
    sampling: Sampling = GREEDY,
    *,
    decode: Decode | Sequence[Decode],
    prefixes: Sequence[Sequence[int]] | None = None,
    stop: Sequence[str] = (),
    is_byte: Callable[[int], bool] = lambda token: False,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    context: int | None = None,
    bidirectional_prefix: bool = False,
    one_way: bool = False,
    cached: bool = True,
) -> Iterator[Piece]:
    """What each step adds to each row; see `decode.steps` and `GrowingText`.

    Args:
        decode: the text of ids; one for all rows, or one for each.
        prefixes: of each row the ids in front of the new ones when it is decoded; a word is spelled
            otherwise at the beginning of a text. None: none.
        stop: strings that end a row, none of them empty.

    Raises:
        UsageError: an empty string in `stop`.  Others: as `decode.steps`.
    """
    require_stop(stop)
    decodes = [decode] * len(prompts) if callable(decode) else list(decode)
    texts = [
        GrowingText(decodes[row], prefixes[row] if prefixes else (), stop, is_byte)
        for row in range(len(prompts))
    ]
    counts = [count] * len(prompts) if isinstance(count, int) else count
    stopped: set[int] = set()
    generated = steps(
        model,
        prompts,
        count,
        sampling,
        sources=sources,
        end=end,
        context=context,
        bidirectional_prefix=bidirectional_prefix,
        one_way=one_way,
        cached=cached,
        stopped=stopped,
    )
    written = [0] * len(prompts)
    with closing(generated):  # a stream that is closed early gives the model back at once
        for step in generated:
            for row, token in zip(step.rows, step.tokens, strict=True):
                written[row] += 1
                id_shown = None if token == end else token
                new, finished = shown(texts[row], id_shown, written[row] == counts[row])
                if finished == "stop":
                    stopped.add(row)
                yield Piece(row, id_shown, new, finished)


def shown(text: GrowingText, token: int | None, is_last: bool) -> tuple[str, Reason | None]:
    """What can be shown of a row now that `token` follows, None of its end; and why it ends here,
    if it does. `is_last`: no more tokens may follow."""
    new = "" if token is None else text.add(token)
    if text.stopped:
        return new, "stop"
    if token is not None and not is_last:
        return new, None
    new += text.end()
    # What was held back may hold a string that ends the text, too.
    return new, "stop" if text.stopped else "end" if token is None else "length"


def require_stop(stop: Sequence[str]) -> None:
    """Refuse stop strings that are no list of non-empty strings.

    Raises:
        UsageError: one is empty.
    """
    if isinstance(stop, str) or not all(stop):
        raise UsageError(
            "a string that ends the text is empty",
            where="stop",
            found=repr(stop),
            wanted="a list of strings, each of at least one character",
        )


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
