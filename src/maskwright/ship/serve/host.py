"""All that a route may ask, and the answers: the one thing that dialects know of the server.

    answered = await host.predict("reviews", ["a text"], Options(deadline=2.0))
    async for piece in host.stream("gpt", "Once", Writing(tokens=20), Options()): …

Nothing here blocks the event loop: texts become ids on threads, networks are read on the device's
thread, answers are formed on threads again. Whoever stops waiting (a client that left, a deadline)
takes its items out of the queue.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.ask.predict import texts as inference_texts
from maskwright.ask.predict.predictor import Predictor, answers_of
from maskwright.base import memory
from maskwright.base.errors import CheckpointError, IncompatibleError, UsageError, near
from maskwright.base.findings import Note, ignore
from maskwright.learn.tasks.base.choices import LongText
from maskwright.learn.tasks.base.task_type import Encoded
from maskwright.model.device.choices import Precision
from maskwright.model.graph.engines.base.names import TORCH
from maskwright.model.inference.stream import Piece
from maskwright.ship.serve import encoding, logprobs, served
from maskwright.ship.serve.encoding import Part
from maskwright.ship.serve.errors import Refusal, of_error
from maskwright.ship.serve.generation import Row, Writers, Writing, Written
from maskwright.ship.serve.limits import Budget, Limits, texts_of
from maskwright.ship.serve.metrics import Metrics
from maskwright.ship.serve.reading import Asked, read_masks, read_prompts, read_scores, read_states
from maskwright.ship.serve.scheduler import (
    Device,
    FullError,
    Item,
    NeverFitsError,
    Outcome,
    Queue,
    Reading,
)
from maskwright.ship.serve.served import TASK, Asking, Head, Served, vectors

__all__ = ["Answered", "Host", "Options", "Piece", "Served", "Timings", "Writing", "Written"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a request is answered.

    Attributes:
        truncate: a text that is longer than the model reads is cut, and the answer says so; else it
            is read in windows, or refused where it cannot be.
        long: what becomes of such a text, as of `LanguageModel.predict`; None: as `truncate` says.
        deadline: seconds after which nobody waits; None: the server's.
        adapter: the head or adapter that answers; None: the model itself.
        top: the best so many answers for each row.
        raw: scores as the head gives them, not as probabilities.
        pooling: of vectors, for a model without a pooling of its own.
        field: what the rows are called in the request, for refusals.
    """

    truncate: bool = False
    long: LongText | None = None
    deadline: float | None = None
    adapter: str | None = None
    top: int | None = None
    raw: bool = False
    pooling: str | None = None
    field: str = "inputs"

    @property
    def cutting(self) -> str:
        """What a request says so that a text that is too long is cut."""
        return "truncate" if self.long is None else 'long="as_trained"'

    @property
    def reading(self) -> LongText:
        """What becomes of a text that is longer than the model reads."""
        return self.long or ("as_trained" if self.truncate else "windows")


USUAL, USUAL_WRITING = Options(), Writing()


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Seconds of a request: in all, becoming ids, waiting, and on the device."""

    total: float
    tokenise: float
    queue: float
    compute: float


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Answers, in the order of the rows.

    Attributes:
        values: an answer each.
        tokens: how many tokens of each were read.
        windows: in how many windows.
        truncated: whether something was cut.
        characters: of all texts.
        fingerprint: of the model that answered for its task.
    """

    values: list[Any]
    tokens: list[int]
    windows: list[int]
    truncated: list[bool]
    timings: Timings
    characters: int = 0
    fingerprint: str = ""
    prompt_tokens: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt_tokens", sum(self.tokens))


# The request that is being answered; None where the host is asked from inside the process.
REQUEST: ContextVar[Arriving | None] = ContextVar("request", default=None)
# Bytes of a body for a token; of an answer for a figure of a vector, and around a candidate.
BYTES_A_TOKEN, BYTES_A_FIGURE, BYTES_AROUND = 5, 20, 80
# Seconds from one look at the event loop to the next; turns of the loop that a request takes.
TICK, TURNS = 0.05, 3
# Rows, characters and tokens that become ids, or answers, in less time than it takes to hand them
# to a thread and back.
LIGHT_ROWS, LIGHT_CHARACTERS, LIGHT_TOKENS = 4, 1_000, 256

# A prompt that any tokenizer takes, and seconds that a first answer may take.
WARM, WARM_SECONDS = "the", 600.0

# Makes the payload of rows, with their lengths.
Encode = Callable[[Sequence[Any], int], tuple[Any, Part]]
Answer = Callable[[Sequence[tuple[Any, Part]], float], Awaitable[list[Outcome]]]
Finish = Callable[[Part, Any], list[Any]]


class Host:
    """The models of a process and the device that answers for them.

    Args:
        models: by name; the first answers where a request names none.
        limits: what is taken at most.
        precision, engine: what models are computed in, and read by, that are swapped in.
        threads: how many make ids of texts.
    """

    def __init__(
        self,
        models: Mapping[str, Served],
        limits: Limits | None = None,
        *,
        precision: Precision = "auto",
        engine: str = TORCH,
        threads: int = 2,
        metrics: Metrics | None = None,
        note: Note = ignore,
    ) -> None:
        self.limits = limits or Limits()
        self.metrics = metrics or Metrics()
        self._models, self._precision, self._note = dict(models), precision, note
        self._engine = engine
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "tokenise")
        self._queue = Queue(
            self.limits.max_queue_tokens,
            self.limits.max_batch_tokens,
            self.limits.linger_ms / 1e3,
            self.limits.max_wait_seconds,
        )
        self._writers = Writers(
            self.limits.max_writing_tokens, self.limits.max_queue_tokens, self._call
        )
        self._device = Device(self._queue, self._settle, self._writers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.arriving_tokens = 0  # as estimated, of requests on their way into the queue
        self.large = asyncio.Lock()  # held by the one of them that may never fit into it
        self._waking = False
        # Seconds that the event loop is late, at its last tick and at the last two: a pause of the
        # whole process is no load.
        self._last_lag = self._lag = 0.0
        self.ready = False
        self.draining = False
        self.metrics.gauges |= {
            "mw_queue_tokens": lambda: self._queue.tokens,
            "mw_queue_wait_seconds": self._queue.seconds,
            "mw_queue_items": lambda: len(self._queue),
            "mw_writing_rows": lambda: self._writers.rows,
            "mw_writing_tokens": lambda: self._writers.tokens,
            "mw_read_seconds": lambda: self._device.seconds["read"],
            "mw_write_seconds": lambda: self._device.seconds["write"],
            "mw_memory_bytes": memory.resident,
            "te_queue_size": lambda: len(self._queue),
        }

    # ------------------------------------------------------------------------------- what there is
    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._models)

    def model(self, name: str | None = None) -> Served:
        """The model of that name; None: the first.

        Raises:
            Refusal: there is none.
        """
        if not self._models:
            raise Refusal("unready", "the models are being loaded", retry_after=1)
        name = next(iter(self._models)) if name is None else name
        if name not in self._models:
            known = ", ".join(self.names)
            raise Refusal("not_found", f"no model of that name; there are: {known}", field="model")
        return self._models[name]

    def _asking(self, name: str | None, options: Options) -> Asking:
        """What answers; the answer's headers say which model it is."""
        found = self.model(name).asking(options.adapter)
        self.budget().facts["model"] = found.fingerprint[:16]
        return found

    def budget(self) -> Budget:
        """Of the request that is being answered."""
        return REQUEST.get() or Budget(self.limits)

    # ------------------------------------------------------------------------------------ answers
    async def predict(
        self, name: str | None, rows: Sequence[Any], options: Options = USUAL
    ) -> Answered:
        """Answers of the model's task; rows as `LanguageModel.predict` takes them."""

        def finish(predictor: Predictor) -> Finish:
            return lambda part, outputs: list(
                answers_of(predictor.task_type, _encoded(part), outputs, options.top)
            )

        asking = self._asking(name, options)
        return await self._of_task(asking, TASK, rows, options, finish)

    async def scores(
        self, name: str | None, rows: Sequence[Any], options: Options = USUAL
    ) -> Answered:
        """(L,) float32 for each row: the probability of every label, in the order of
        `Served.labels`; with `raw` the scores before that."""

        def finish(predictor: Predictor) -> Finish:
            return lambda part, outputs: list(
                predictor.task_type.scores(_encoded(part), outputs, raw=options.raw)
            )

        asking = self._asking(name, options)
        return await self._of_task(asking, TASK, rows, options, finish)

    async def embed(
        self, name: str | None, texts: Sequence[str], options: Options = USUAL
    ) -> Answered:
        """(D,) float32 for each text, as `LanguageModel.embed`."""

        def finish(predictor: Predictor) -> Finish:
            return lambda part, outputs: list(
                np.asarray(predictor.task_type.merged(_encoded(part), outputs), np.float32)
            )

        asking = self._asking(name, options)
        head = vectors(options.pooling)
        return await self._of_task(asking, head, texts, options, finish, alone=True)

    async def token_states(
        self, name: str | None, texts: Sequence[str], options: Options = USUAL
    ) -> Answered:
        """(T, D) float32 for each text: the states of its tokens in the last layer."""
        asking, budget = self._asking(name, options), self.budget()

        def work(rows: Sequence[Any], first: int) -> tuple[Any, Part]:
            predictor = asking.opened.pooled("mean")
            part = encoding.encode(predictor, _alone(predictor, rows), first, options.reading)
            size = sum(part.lengths) * asking.opened.model.config.width * BYTES_A_FIGURE
            budget.take_answer(size, options.field)
            return _encoded(part).examples, part

        answer = partial(self._read, asking, "states", read_states)
        return await self._ask(texts, options, answer, work, lambda part, found: list(found))

    async def fill_mask(
        self, name: str | None, texts: Sequence[str], options: Options = USUAL
    ) -> Answered:
        """The holes of each text with their candidates, as `LanguageModel.fill_mask`."""
        asking = self._asking(name, options)
        _require(asking, "fill_mask", "the model fills no masks")
        top = options.top or 5
        model, budget = asking.opened.model, self.budget()

        def work(rows: Sequence[Any], first: int) -> tuple[Any, Part]:
            found, part = encoding.encode_masked(model, rows, first, options.field)
            size = sum(each.num_masks * (len(each.text) + BYTES_AROUND) for each in found)
            budget.take_answer(top * size, options.field)
            return (found, top), part

        def finish(part: Part, found: Any) -> list[Any]:
            return [inference_texts.spelled_masks(model, *each) for each in found]

        answer = partial(self._read, asking, "masks", read_masks)
        return await self._ask(texts, options, answer, work, finish)

    async def prompt_scores(
        self, name: str | None, prompts: Sequence[str], options: Options = USUAL
    ) -> Answered:
        """How likely each token of each prompt was to a decoder, with `options.top` of the
        likeliest in its place: `Logprobs` each."""
        asking = self._asking(name, options)
        _require(asking, "generate", "the model does not write")
        model, top = asking.opened.model, options.top or 0

        def work(rows: Sequence[Any], first: int) -> tuple[Any, Part]:
            found, part = encoding.encode_prompts(model, rows, first, options.field)
            return (found, top), part

        def finish(part: Part, found: Any) -> list[Any]:
            return [logprobs.of_prompt(model.tokenizer, *each) for each in found]

        answer = partial(self._read, asking, "prompts", read_prompts)
        return await self._ask(prompts, options, answer, work, finish)

    async def generate(
        self,
        name: str | None,
        prompts: Sequence[str],
        writing: Writing | Sequence[Writing] = USUAL_WRITING,
        options: Options = USUAL,
    ) -> Answered:
        """What the model writes after each prompt, all in the same way or each in its own: a
        `Written` each."""
        asking = self._asking(name, options)
        begin, until = time.monotonic(), self._until(options)
        rows = await self._rows(asking, prompts, writing, options)
        try:
            async with _Until(until):
                written = [await row.written() for row in rows]
        finally:
            self._writers.cancel(rows)
        self.metrics.wrote(
            sum(row.prompt_tokens for row in rows), sum(len(each.ids) for each in written)
        )
        timings = _timings(begin, rows)
        self.metrics.answered(timings)
        return Answered(
            values=written,
            tokens=[row.prompt_tokens for row in rows],
            windows=[1] * len(rows),
            truncated=[False] * len(rows),
            timings=timings,
            characters=sum(map(len, prompts)),
        )

    async def stream(
        self,
        name: str | None,
        prompt: str,
        writing: Writing = USUAL_WRITING,
        options: Options = USUAL,
        counted: Callable[[int], None] = lambda tokens: None,
    ) -> AsyncIterator[Piece]:
        """The same of one prompt, piece by piece. The request is admitted, or refused, before the
        first piece is waited for; before it comes, `counted` is told the tokens of the prompt."""
        asking = self._asking(name, options)
        begin, until, count = time.monotonic(), self._until(options), 0
        rows = await self._rows(asking, [prompt], writing, options, streams=True)
        counted(rows[0].prompt_tokens)
        try:
            while (pieces := await rows[0].next(until)) is not None:
                for piece in pieces:
                    count += piece.id is not None
                    yield piece
            self.metrics.answered(_timings(begin, rows))
        finally:
            self._writers.cancel(rows)
            self.metrics.wrote(rows[0].prompt_tokens, count)

    # ---------------------------------------------------------------------------------- life
    def load(self, models: Mapping[str, Served]) -> None:
        """Answer for these models. A process listens before they are there, so routes look at
        `names` when they are asked and not when they are made."""
        self._models = dict(models)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to answer, on this loop."""
        self._loop = loop
        self._device.start()
        self._tick(loop.time())

    def _tick(self, due: float) -> None:
        """Note how late the event loop is, which has more to do than there is time for when models
        are tiny and requests many."""
        assert self._loop is not None
        now = self._loop.time()
        late = max(0.0, now - due)
        self._lag, self._last_lag = min(self._last_lag, late), late
        self._loop.call_at(now + TICK, self._tick, now + TICK)

    async def warm_up(self) -> None:
        """Ask every model once at each length that is common; `ready` from then on."""
        rates = []
        for each in self._models.values():
            rates.append(await self.run_on_device(each.warm))
            if "generate" in each.abilities:
                writing = Writing(tokens=2, temperature=0.0)
                try:
                    await self.generate(each.name, [WARM], writing, Options(deadline=WARM_SECONDS))
                except Refusal as refusal:
                    raise CheckpointError(refusal.message, where=each.folder) from refusal
        self._queue.expect(min(rates))
        self.ready = True

    async def run_on_device(self, function: Callable[[], Any]) -> Any:
        """What a function gives that runs where networks are asked, after what is before it."""
        assert self._loop is not None
        reading = Reading(0, "function", lambda payloads: [each() for each in payloads])
        item = Item(reading, [1], function, waiter=self._future())
        self._device.submit([item])
        self._wake()
        outcome: Outcome = await item.waiter
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def waited_for(self, function: Callable[[], Any]) -> Any:
        """The same, waited for on a thread that is not the event loop's.

        Raises:
            Refusal: the deadline passed, or no more is taken.
        """
        assert self._loop is not None
        seconds = self.limits.deadline

        async def found() -> Any:
            try:
                async with _Until(time.monotonic() + seconds):
                    return await self.run_on_device(function)
            except FullError:
                raise self._full() from None

        waiting = asyncio.run_coroutine_threadsafe(found(), self._loop)
        try:
            return waiting.result(seconds + 1)
        except concurrent.futures.TimeoutError:  # the loop has stopped
            raise _late() from None

    def swap(self, name: str, folder: Path | str) -> None:
        """Answer for `name` with the model in `folder` from now on, without the adapters of the one
        before. Requests that were admitted before are answered by that one; call it on a thread,
        since it reads the folder.

        Raises:
            UsageError: no model has that name.
            And as `maskwright.load`; the model before then stays.
        """
        if name not in self._models:
            raise UsageError(
                "no model of that name",
                where="swap",
                found=repr(name),
                wanted=near(str(name), self.names),
            )
        others = [each for each in self._models.values() if each.name != name]
        made = served.open_one(
            name, Path(folder), others, self._precision, self._note, self._engine
        )
        made.warm()
        self._models = {**self._models, name: made}

    def stop(self) -> None:
        """Answer no more."""
        self._device.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def alive(self) -> bool:
        """Whether the device's thread lives."""
        return self._device.alive

    @asynccontextmanager
    async def arriving(self, size: int, facts: dict[str, str]) -> AsyncIterator[None]:
        """A request whose body has come. Until its items are in the queue, or it is refused, it
        counts as so many tokens as its bytes may be. One that may have more than the queue has room
        for waits for its turn instead: it would keep out all others while its tokens are counted.

        Raises:
            Refusal: there is no room.
        """
        self.require_room()
        arriving = Arriving(self, size // BYTES_A_TOKEN, facts)
        REQUEST.set(arriving)
        if arriving.is_large:
            async with _Until(arriving.began + self.limits.deadline):
                await self.large.acquire()
        try:
            yield
        finally:
            arriving.end()

    def require_room(self) -> None:
        """Raises Refusal where nothing more is taken in now."""
        arriving = self.arriving_tokens
        busy = arriving > 0 or len(self._queue) > 0
        waits = self._queue.seconds(arriving) + TURNS * self._lag
        late = busy and waits > self.limits.max_wait_seconds
        if late or self._queue.is_full(arriving):
            raise self._full()

    def _full(self) -> Refusal:
        beyond = self._queue.seconds(self.arriving_tokens) - self.limits.max_wait_seconds
        return Refusal(
            "overloaded",
            "more waits than is computed in time",
            limit=f"{self.limits.max_wait_seconds:g} s of waiting",
            retry_after=max(1.0, beyond),
        )

    # ---------------------------------------------------------------------------------- within
    async def _of_task(
        self,
        asking: Asking,
        head: Head,
        rows: Sequence[Any],
        options: Options,
        finish: Callable[[Predictor], Finish],
        alone: bool = False,
    ) -> Answered:
        """What the head of a task gives for rows."""
        found = asking.known(head) or await self._in_thread(asking.made, head)
        predictor, objective = found

        def work(chosen: Sequence[Any], first: int) -> tuple[Any, Part]:
            given = _alone(predictor, chosen) if alone else chosen
            part = encoding.encode(
                predictor, given, first, options.reading, options.field, options.cutting
            )
            return Asked(objective, _encoded(part), predictor.collation, predictor.task_type), part

        if predictor.task_type.writes:
            answer = partial(self._written, asking)
        else:
            answer = partial(self._read, asking, "scores", read_scores)
        answered = await self._ask(rows, options, answer, work, finish(predictor))
        return replace(answered, fingerprint=asking.fingerprint)

    def _reading(self, asking: Asking, what: str, read: Callable[..., Sequence[Any]]) -> Reading:
        """Scores of one backbone go together; what else is asked only of the very same model."""
        if what == "scores":
            return Reading(asking.backbone, what, read)

        def of_model(payloads: Sequence[Any]) -> Sequence[Any]:
            return read(asking.opened, payloads)

        made: Reading = asking.__dict__.setdefault(what, Reading(id(asking), what, of_model))
        return made

    async def _ask(
        self,
        rows: Sequence[Any],
        options: Options,
        answer: Answer,
        work: Encode,
        finish: Finish,
    ) -> Answered:
        self.budget().take_rows(rows, options.field)
        begin, until = time.monotonic(), self._until(options)
        async with _Until(until):
            ranges = list(encoding.parts_of(rows))
            encoded = await all_of(
                self._light_or_in_thread(_is_light(chosen), work, chosen, each.start)
                for each in ranges
                for chosen in ([rows[n] for n in each],)
            )
            tokenised = time.monotonic()
            outcomes = await answer(encoded, until)
            answers = await all_of(
                self._light_or_in_thread(_is_short(part), finish, part, outcome.value)
                for (_, part), outcome in zip(encoded, outcomes, strict=True)
            )
        parts = [part for _, part in encoded]
        timings = Timings(
            total=time.monotonic() - begin,
            tokenise=tokenised - begin,
            queue=max(outcome.waited for outcome in outcomes),
            compute=max(outcome.computed for outcome in outcomes),
        )
        self.metrics.answered(timings)
        return Answered(
            values=[value for each in answers for value in each],
            tokens=[n for part in parts for n in part.lengths],
            windows=[n for part in parts for n in part.windows],
            truncated=[cut for part in parts for cut in part.truncated],
            timings=timings,
            characters=sum(len(text) for row in rows for text in texts_of(row)),
        )

    async def _read(
        self,
        asking: Asking,
        what: str,
        read: Callable[..., Sequence[Any]],
        encoded: Sequence[tuple[Any, Part]],
        until: float,
    ) -> list[Outcome]:
        """What is read of the payloads, beside those of other requests."""
        reading = self._reading(asking, what, read)
        items = [
            Item(reading, part.lengths, payload, until, waiter=self._future())
            for payload, part in encoded
        ]
        _arrived()
        budget = self.budget()
        budget.take_tokens(sum(item.tokens for item in items))
        try:
            self._device.submit(items, budget.is_admitted)
            budget.is_admitted = True
            self._wake()
        except FullError:
            raise self._full() from None
        try:
            outcomes = await all_of(item.waiter for item in items)
        except BaseException:
            self._device.cancel(items)
            raise
        for outcome in outcomes:
            if outcome.late:
                raise _late()
            if outcome.error is not None:
                self.metrics.failed(outcome.error)
                raise of_error(outcome.error, model=asking.name) from outcome.error
        return outcomes

    async def _written(
        self, asking: Asking, encoded: Sequence[tuple[Asked, Part]], until: float
    ) -> list[Outcome]:
        """What a task writes of the payloads, in turns with what else is written."""
        rows = []
        for payload, part in encoded:
            read = sum(part.lengths)
            size = min(2 * read, self.limits.max_writing_tokens)
            rows.append(Row(asking, None, payload.written, read, size, streams=False))
        begin = time.monotonic()
        self._submit(rows)
        try:
            for row in rows:
                await row.over()
        finally:
            self._writers.cancel(rows)
        seconds = time.monotonic() - begin
        return [Outcome(row.value, None, row.waited, seconds - row.waited) for row in rows]

    def _wake(self) -> None:
        """Wake the device at the end of the loop's turn, so that it finds at once all that the turn
        brings: requests that came together are read together."""
        if not self._waking:
            assert self._loop is not None
            self._waking = True
            self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._waking = False
        self._device.wake()

    def _settle(self, settled: Sequence[tuple[Item, Outcome]]) -> None:
        """On the device's thread: give what became of the items to those who wait."""
        computed = [(item, outcome) for item, outcome in settled if not outcome.late]
        if computed:
            lengths = [n for item, _ in computed for n in item.lengths]
            self.metrics.batch(lengths, computed[0][1].computed)

        def give() -> None:
            for item, outcome in settled:
                if not item.waiter.done():
                    item.waiter.set_result(outcome)

        self._call(give)

    def _call(self, function: Callable[[], None]) -> None:
        """Run a function on the event loop, from any thread."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _future(self) -> asyncio.Future[Outcome]:
        assert self._loop is not None
        return self._loop.create_future()

    async def _in_thread(self, function: Callable[..., Any], *given: Any) -> Any:
        """The value of a function that runs beside the loop; what it raises as a refusal."""
        return await self._light_or_in_thread(False, function, *given)

    async def _light_or_in_thread(
        self, light: bool, function: Callable[..., Any], *given: Any
    ) -> Any:
        """The same; of what takes less time than to hand it to a thread, on the loop."""
        assert self._loop is not None
        try:
            if light:
                return function(*given)
            return await self._loop.run_in_executor(self._pool, function, *given)
        except Refusal:
            raise
        except Exception as error:
            refusal = of_error(error)
            if refusal.kind == "backend":
                self.metrics.failed(error)
            raise refusal from error

    async def _rows(
        self,
        asking: Asking,
        prompts: Sequence[str],
        writing: Writing | Sequence[Writing],
        options: Options,
        streams: bool = False,
    ) -> list[Row]:
        self.budget().take_rows(prompts, options.field)
        _require(asking, "generate", "the model does not write")
        writings = [writing] * len(prompts) if isinstance(writing, Writing) else list(writing)
        rows: list[Row] = await self._in_thread(
            self._writers.prepare, asking, list(prompts), writings, options.field, streams
        )
        self._submit(rows)
        return rows

    def _submit(self, rows: Sequence[Row]) -> None:
        """Let rows be written.

        Raises:
            Refusal: there is no room for them.
        """
        _arrived()
        self.budget().take_tokens(sum(row.tokens for row in rows))
        try:
            self._writers.submit(rows)
        except FullError:
            raise self._full() from None
        except NeverFitsError as error:
            what = f"prompt and answer have {error.tokens} tokens"
            raise Refusal("too_large", what, limit=error.limit) from None
        self._wake()

    def _until(self, options: Options) -> float:
        """The deadline of the request."""
        usual = self.limits.deadline
        seconds = usual if options.deadline is None else min(usual, options.deadline)
        return self.budget().began + seconds


class Arriving(Budget):
    """A request that came from outside, and what it still counts for among those on their way into
    the queue."""

    def __init__(self, host: Host, tokens: int, facts: dict[str, str]) -> None:
        super().__init__(host.limits, facts)
        self.is_large = tokens > host.limits.max_queue_tokens
        self._host, self._tokens = host, 0 if self.is_large else tokens
        host.arriving_tokens += self._tokens
        self._has_ended = False

    def end(self) -> None:
        """From here on it counts by itself, or is refused."""
        if not self._has_ended:
            self._has_ended = True
            self._host.arriving_tokens -= self._tokens
            if self.is_large:
                self._host.large.release()


def _timings(begin: float, rows: Sequence[Row]) -> Timings:
    """Of texts that were written."""
    total, wait = time.monotonic() - begin, max(row.waited for row in rows)
    return Timings(total=total, tokenise=0.0, queue=wait, compute=total - wait)


def _arrived() -> None:
    """From here on the request counts by itself."""
    if (arriving := REQUEST.get()) is not None:
        arriving.end()


async def all_of(awaited: Iterable[Awaitable[Any]]) -> list[Any]:
    """The values of all; of one without a task of its own. Where one fails, the others end."""
    values = list(awaited)
    if len(values) == 1:
        return [await values[0]]
    tasks = [asyncio.ensure_future(each) for each in values]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _is_light(rows: Sequence[Any]) -> bool:
    if len(rows) > LIGHT_ROWS:
        return False
    return sum(len(text) for row in rows for text in texts_of(row)) <= LIGHT_CHARACTERS


def _is_short(part: Part) -> bool:
    return len(part.lengths) <= LIGHT_ROWS and sum(part.lengths) <= LIGHT_TOKENS


def _encoded(part: Part) -> Encoded:
    assert part.encoded is not None
    return part.encoded


def _alone(predictor: Predictor, rows: Sequence[Any]) -> list[Any]:
    """Texts as a task that makes vectors takes them one by one."""
    return [{predictor.task_type.alone: row} for row in rows]


def _require(asking: Asking, ability: str, what: str) -> None:
    if ability not in asking.opened.abilities:
        raise of_error(IncompatibleError(what, found=asking.opened.describe()))


class _Until:
    """A block that ends at a time of `time.monotonic`, as a refusal."""

    def __init__(self, until: float) -> None:
        self._timeout = asyncio.timeout(until - time.monotonic())

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *given: Any) -> None:
        try:
            await self._timeout.__aexit__(*given)
        except TimeoutError:
            raise _late() from None


def _late() -> Refusal:
    return Refusal("timeout", "the deadline passed before the answer was there")
