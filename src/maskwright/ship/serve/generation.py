"""Texts that are being written: rows that join and leave, a token for each at every step.

What a row writes does not depend on who writes beside it. A row that streams gives its pieces as
they come; others are collected on the device's thread and given once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from maskwright.ask.predict import texts as inference_texts
from maskwright.model.inference.generation import Generation, Prompt
from maskwright.model.inference.steps import Steps
from maskwright.model.inference.stream import Piece
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.scheduler import FullError, NeverFitsError
from maskwright.ship.serve.served import Asking


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
        asking: the model that writes it.
        prompt: what it is written from; None where it is searched.
        search: finds `value` in steps, where it is searched, with beams or as a task's answers.
        prompt_tokens: of its prompt.
        tokens: positions that it may need, its prompt included.
        streams: whether somebody waits for each piece.
        given: how many pieces it has given.
    """

    asking: Asking
    prompt: Prompt | None
    search: Callable[[], Steps[Any]] | None
    prompt_tokens: int
    tokens: int
    streams: bool
    submitted: float = 0.0
    waited: float = 0.0
    cancelled: bool = False
    error: BaseException | None = None
    ended: bool = False
    given: int = 0
    skipped: int = 0
    value: Any = None
    _found: deque[Piece] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, piece: Piece) -> None:
        """A further piece, on the device's thread; a row that was begun again gives none twice."""
        if self.skipped:
            self.skipped -= 1
        else:
            self.given += 1
            self._found.append(piece)
        self.ended = self.ended or piece.finished is not None

    async def over(self) -> None:
        """Until nothing more comes.

        Raises:
            Refusal: it failed.
        """
        while not self.ended:
            await self._changed.wait()
            self._changed.clear()
        self._raise()

    async def written(self) -> Written:
        """All of it.

        Raises:
            Refusal: it failed.
        """
        await self.over()
        found = Written(prompt_tokens=self.prompt_tokens)
        for piece in self._found:
            found.add(piece)
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
            raise of_error(self.error, model=self.asking.name) from self.error


class Writers:
    """The rows of all models that write, and those that wait to.

    Rows of one model are written together. If a step fails, each row of it is begun again by
    itself: what it writes is the same, so only the row that is at fault ends.

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
        self._groups: deque[_Group] = deque()  # whose turn is next comes first
        self._lock = threading.Lock()

    def prepare(
        self,
        asking: Asking,
        prompts: Sequence[str],
        writings: Sequence[Writing],
        field: str,
        streams: bool,
    ) -> list[Row]:
        """A row for each prompt and how it is gone on from, on a thread that makes ids.

        Raises:
            Refusal: a prompt that cannot be gone on from, a setting out of range.
        """
        rows = []
        for number, (text, writing) in enumerate(zip(prompts, writings, strict=True)):
            if writing.tokens < 1:
                raise Refusal("validation", "no token to write", field="tokens", limit="1 or more")
            prompt, search = None, None
            if writing.num_beams == 1:
                prompt = _prompt(asking, text, writing, f"{field}[{number}]")
                count = len(prompt.source or prompt.ids)
            else:
                search = _search(asking, text, writing)
                count = len(asking.opened.model.tokenizer.encode(text))
            tokens = count + writing.tokens * writing.num_beams
            rows.append(Row(asking, prompt, search, count, tokens, streams))
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
                raise FullError(f"{tokens} tokens beside {waiting}")
            now = time.monotonic()
            for row in rows:
                row.submitted = now
            self._waiting.extend(rows)

    def cancel(self, rows: Sequence[Row]) -> None:
        """Nobody waits for them any more: those that wait are taken out, others leave at their next
        step."""
        for row in rows:
            row.cancelled = True
        with self._lock:
            if any(row.cancelled for row in self._waiting):
                self._waiting = deque(row for row in self._waiting if not row.cancelled)

    @property
    def rows(self) -> int:
        """How many texts are being written."""
        return sum(len(group.rows) for group in list(self._groups))

    @property
    def tokens(self) -> int:
        """Positions that are held."""
        groups = list(self._groups)
        return sum(row.tokens for group in groups for row in list(group.rows.values()))

    @property
    def waiting_tokens(self) -> int:
        with self._lock:
            return sum(row.tokens for row in self._waiting)

    def ready(self) -> bool:
        return bool(self._groups or self._waiting)

    def step(self) -> None:
        """A token more in each row of the group whose turn it is."""
        changed = self._join()
        if self._groups:
            group = self._groups[0]
            try:
                changed += group.step()
            except BaseException as error:
                changed += self._begin_again(group, error)
            self._groups.rotate(-1)
            self._groups = deque(group for group in self._groups if group.rows)
        self._wake(row for row in changed if row.ended or row.streams)

    def stop(self, error: BaseException) -> None:
        with self._lock:
            rows = [*(row for group in self._groups for row in group.rows.values())]
            rows += self._waiting
            self._groups.clear()
            self._waiting.clear()
        for row in rows:
            row.error, row.ended = error, True
        self._wake(rows)

    def _join(self) -> list[Row]:
        """Let rows begin that there is room for; those that cannot begin."""
        failed = []
        for row in self._next():
            row.waited = time.monotonic() - row.submitted
            try:
                self._group(row).add(row)
            except BaseException as error:
                row.error, row.ended = error, True
                failed.append(row)
        self._groups = deque(group for group in self._groups if group.rows)
        return failed

    def _next(self) -> list[Row]:
        with self._lock:
            held, found = self.tokens, []
            while self._waiting:
                row = self._waiting[0]
                if not row.cancelled:
                    if held and held + row.tokens > self.max_tokens:
                        break
                    found.append(row)
                    held += row.tokens
                self._waiting.popleft()
            return found

    def _group(self, row: Row) -> _Group:
        if row.prompt is None:
            self._groups.append(_Group(row.asking, alone=True))
            return self._groups[-1]
        for group in self._groups:
            if group.asking.backbone == row.asking.backbone and not group.alone:
                return group
        self._groups.append(_Group(row.asking))
        return self._groups[-1]

    def _begin_again(self, group: _Group, error: BaseException) -> list[Row]:
        """Each row of a group whose step failed in a group of its own; the row that failed when
        it was alone already."""
        rows = list(group.rows.values())
        group.rows.clear()
        if group.alone or len(rows) == 1:
            for row in rows:
                row.error, row.ended = error, True
            return rows
        failed = []
        for row in rows:
            alone, row.skipped = _Group(row.asking, alone=True), row.given
            try:
                alone.add(row)
                self._groups.append(alone)
            except BaseException as fault:
                row.error, row.ended = fault, True
                failed.append(row)
        return failed

    def _wake(self, rows: Iterable[Row]) -> None:
        waiting = list(rows)

        def wake() -> None:
            for row in waiting:
                row._changed.set()

        if waiting:
            self._call(wake)


class _Group:
    """Rows that are written together."""

    def __init__(self, asking: Asking, alone: bool = False) -> None:
        self.asking, self.alone = asking, alone
        self.rows: dict[int, Row] = {}
        self._generation: Generation | None = None
        self._search: Steps[Any] | None = None

    def add(self, row: Row) -> None:
        if row.prompt is None:
            assert row.search is not None
            self.rows[0], self._search = row, row.search()
            return
        root = row.asking.opened.root
        if self._generation is None:
            self._generation = inference_texts.writing(root.model, root.network())
        own = None if row.asking.opened is root else row.asking.opened.network()
        self.rows[self._generation.add(replace(row.prompt, network=own))] = row

    def step(self) -> list[Row]:
        """One step; the rows that got a piece."""
        for number in [n for n, row in self.rows.items() if row.cancelled]:
            self.rows.pop(number).ended = True
            if self._generation is not None:
                self._generation.cancel(number)
        if not self.rows:
            return []
        if self._search is not None:
            (row,) = self.rows.values()
            try:
                next(self._search)
                return []
            except StopIteration as end:
                row.value = end.value
            if isinstance(row.value, str):
                row.add(Piece(0, None, row.value, "end"))
            row.ended = True
            self.rows.clear()
            return [row]
        assert self._generation is not None
        changed = []
        for piece in self._generation.step():
            row = self.rows[piece.row]
            row.add(piece)
            changed.append(row)
            if row.ended:
                del self.rows[piece.row]
        return changed


def _prompt(asking: Asking, text: str, writing: Writing, field: str) -> Prompt:
    """What a text is written from, by the settings. Each is as if it were asked by itself."""
    try:
        (prompt,) = inference_texts.prompts_of(
            asking.opened.model,
            [text],
            logprobs=writing.logprobs is not None,
            top_logprobs=writing.logprobs or 0,
            **_settings(writing),
        )
    except Exception as error:
        raise of_error(error, field) from error
    return prompt


def _search(asking: Asking, prompt: str, writing: Writing) -> Callable[[], Steps[str]]:
    def search() -> Steps[str]:
        model, network = asking.opened.model, asking.opened.network()
        (text,) = yield from inference_texts.search(
            model, prompt, num_beams=writing.num_beams, writer=network, **_settings(writing)
        )
        return text

    return search


def _settings(writing: Writing) -> dict[str, Any]:
    return {
        "tokens": writing.tokens,
        "temperature": writing.temperature,
        "top_k": writing.top_k,
        "top_p": writing.top_p,
        "seed": writing.seed,
        "stop": writing.stop,
    }
