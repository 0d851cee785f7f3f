"""Texts that are being written: rows that join and leave, a token for each at every step.

What a row writes does not depend on who writes beside it. A row that streams gives its pieces as
they come; others are collected on the device's thread and given once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from maskwright.inference import texts as inference_texts
from maskwright.serve.errors import Refusal, of_error
from maskwright.serve.scheduler import FullError, NeverFitsError
from maskwright.serve.served import Asking


@dataclass(frozen=True, kw_only=True)
class Writing:
    """How a text is written.

    Attributes:
        tokens: how many at most.
        temperature: of the scores; 0 takes the likeliest token. None: 0.8.
        top_k, top_p: draw among so many of the likeliest; 0 and 1 for all.
        seed: decides with the prompt what is drawn.
        stop: strings that end the text; it is cut before them.
        num_beams: above 1, the likeliest whole text is searched; nothing is drawn.
        logprobs: of each token its log-probability, and those of so many of the likeliest; None:
            none of that.
    """

    tokens: int = 100
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    num_beams: int = 1
    logprobs: int | None = None


@dataclass(frozen=True)
class Piece:
    """What one step adds to a text.

    Attributes:
        text: what can be shown by now; never taken back.
        id: the new token; None where it was the end token.
        finished: "end", "stop" or "length" with the last piece.
        logprob: of the token, where that was wanted.
        top_logprobs: of the likeliest tokens, by id.
    """

    text: str
    id: int | None = None
    finished: str | None = None
    logprob: float | None = None
    top_logprobs: dict[int, float] | None = None


@dataclass
class Written:
    """A text that was written.

    Attributes:
        text: the new text, up to what stopped it.
        ids: all new tokens, the end token not.
        pieces: token by token.
        finished: "end", "stop" or "length".
        prompt_tokens: how many tokens the prompt has.
    """

    text: str = ""
    ids: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    finished: str = "length"
    prompt_tokens: int = 0

    def add(self, piece: Piece) -> None:
        self.text += piece.text
        self.pieces.append(piece)
        if piece.id is not None:
            self.ids.append(piece.id)
        if piece.finished is not None:
            self.finished = piece.finished


@dataclass(eq=False)
class Row:
    """A text that is written for a request.

    Attributes:
        prompt_tokens: of its prompt.
        tokens: positions that it may need, its prompt included.
        pieces: what it adds, step by step, on the device's thread.
        streams: whether somebody waits for each piece.
    """

    prompt_tokens: int
    tokens: int
    pieces: Iterator[Piece]
    streams: bool
    submitted: float = 0.0
    waited: float = 0.0
    cancelled: bool = False
    error: BaseException | None = None
    ended: bool = False
    _found: deque[Piece] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def written(self) -> Written:
        """All of it.

        Raises:
            Refusal: it failed.
        """
        while not self.ended:
            await self._changed.wait()
            self._changed.clear()
        found = Written(prompt_tokens=self.prompt_tokens)
        for piece in self._found:
            found.add(piece)
        self._raise()
        return found

    async def next(self, until: float) -> list[Piece] | None:
        """The pieces that came since, one at least; None after the last.

        Raises:
            Refusal: it failed, or its time is over.
        """
        while not self._found and not self.ended:
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                what = "the deadline passed before the text was written"
                raise Refusal("timeout", what) from None
            self._changed.clear()
        found = []
        while self._found:
            found.append(self._found.popleft())
        if not found:
            self._raise()
        return found or None

    def _raise(self) -> None:
        if self.error is not None:
            raise of_error(self.error) from self.error


class Writers:
    """The rows of all models that write, and those that wait to.

    Args:
        max_tokens: positions of the rows that are written at the same time.
        max_waiting: positions of the rows that wait.
        call: runs a function on the event loop.
    """

    def __init__(
        self, max_tokens: int, max_waiting: int, call: Callable[[Callable[[], None]], None]
    ) -> None:
        self.max_tokens, self.max_waiting, self._call = max_tokens, max_waiting, call
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []
        self._lock = threading.Lock()

    def prepare(
        self, asking: Asking, prompts: list[str], writing: Writing, name: str, streams: bool
    ) -> list[Row]:
        """Rows for the prompts, on a thread that makes ids.

        Raises:
            Refusal: a prompt that cannot be gone on from, a setting out of range.
        """
        rows = []
        for number, prompt in enumerate(prompts):
            try:
                pieces, count = _pieces(asking, prompt, writing)
            except Exception as error:
                raise of_error(error, f"{name}[{number}]") from error
            rows.append(Row(count, count + writing.tokens, pieces, streams))
        return rows

    def submit(self, rows: Sequence[Row]) -> None:
        """All rows or none.

        Raises:
            NeverFitsError, FullError: as of a queue.
        """
        most = max(row.tokens for row in rows)
        if most > self.max_tokens:
            raise NeverFitsError(most, self.max_tokens)
        tokens = sum(row.tokens for row in rows)
        if tokens > self.max_waiting:
            raise NeverFitsError(tokens, self.max_waiting)
        with self._lock:
            waiting = sum(row.tokens for row in self._waiting)
            if waiting + tokens > self.max_waiting:
                raise FullError(tokens, waiting, self.max_waiting)
            now = time.monotonic()
            for row in rows:
                row.submitted = now
            self._waiting.extend(rows)

    def cancel(self, rows: Sequence[Row]) -> None:
        """Nobody waits for them any more."""
        for row in rows:
            row.cancelled = True

    @property
    def tokens(self) -> int:
        """Positions that are held."""
        return sum(row.tokens for row in self._rows)

    def ready(self) -> bool:
        return bool(self._rows or self._waiting)

    def step(self) -> None:
        self._join()
        changed = []
        for row in self._rows:
            if row.cancelled:
                row.ended = True
                continue
            try:
                piece = next(row.pieces, None)
            except BaseException as error:
                row.error, row.ended = error, True
            else:
                if piece is None:
                    row.ended = True
                else:
                    row._found.append(piece)
            if row.ended or row.streams:
                changed.append(row)
        self._rows = [row for row in self._rows if not row.ended]
        self._wake(changed)

    def stop(self, error: BaseException) -> None:
        with self._lock:
            rows = [*self._rows, *self._waiting]
            self._rows.clear()
            self._waiting.clear()
        for row in rows:
            row.error, row.ended = error, True
        self._wake(rows)

    def _join(self) -> None:
        with self._lock:
            held = self.tokens
            while self._waiting:
                row = self._waiting[0]
                if row.cancelled:
                    self._waiting.popleft()
                    continue
                if self._rows and held + row.tokens > self.max_tokens:
                    break
                self._rows.append(self._waiting.popleft())
                row.waited = time.monotonic() - row.submitted
                held += row.tokens

    def _wake(self, rows: Sequence[Row]) -> None:
        def wake() -> None:
            for row in rows:
                row._changed.set()

        if rows:
            self._call(wake)


def _pieces(asking: Asking, prompt: str, writing: Writing) -> tuple[Iterator[Piece], int]:
    """What is written after a prompt, piece by piece, and how many tokens the prompt has."""
    model = asking.opened.model
    count = len(model.tokenizer.encode(prompt))
    settings: dict[str, Any] = {
        "tokens": writing.tokens,
        "temperature": writing.temperature,
        "top_k": writing.top_k,
        "top_p": writing.top_p,
        "seed": writing.seed,
        "stop": writing.stop,
    }
    if writing.num_beams != 1:

        def searched() -> Iterator[Piece]:
            (text,) = inference_texts.write(
                model,
                [prompt],
                num_beams=writing.num_beams,
                writer=asking.opened.network(),
                **settings,
            )
            yield Piece(text, finished="end")

        return searched(), count
    made = inference_texts.write_stream(model, prompt, writer=asking.opened.network(), **settings)
    return (Piece(each.text, each.id, each.finished) for each in made), count
