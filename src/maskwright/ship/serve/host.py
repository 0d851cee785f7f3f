"""The interface between the dialects and the models: one method for each kind of request.

    response = await host.predict("reviews", ["a text"], Options(deadline=2.0))
    async for piece in host.stream("gpt", "Once", GenerationOptions(tokens=20), Options()): …

Nothing here blocks the event loop: texts are tokenized on threads, networks run on the device
thread, and results are formatted on threads. Cancelling a request removes its items from the queue.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.ask.predict.engine import TASK, Engine, Head
from maskwright.ask.predict.predictor import TaskPredictor
from maskwright.base import memory
from maskwright.base.errors import CheckpointError, IncompatibleError, UsageError, near
from maskwright.learn.tasks.base.late_interaction import Role
from maskwright.learn.tasks.base.task_type import Encoded, TaskType, pipeline_answers
from maskwright.model.device.choices import TORCH, Precision
from maskwright.model.device.machine import ThreadWatch
from maskwright.model.inference.fill_mask import spelled_masks
from maskwright.model.inference.growing_text import Piece
from maskwright.ship.serve import encoding
from maskwright.ship.serve.encoding import EncodedRows, Options, TaskPayload
from maskwright.ship.serve.errors import (
    Limits,
    Refusal,
    RequestBudget,
    before,
    deadline_refusal,
    of_error,
    texts_of,
)
from maskwright.ship.serve.generation import GenerationJob, GenerationOptions, GenerationScheduler
from maskwright.ship.serve.metrics import EMBED, PREDICT, Metrics, Timings
from maskwright.ship.serve.scheduler import (
    BatchOperation,
    Device,
    FullError,
    ItemResult,
    NeverFitsError,
    Queue,
    QueueItem,
    WaitingLine,
)
from maskwright.ship.serve.served_model import ServedModel, open_one, task_head

DEFAULT_OPTIONS, DEFAULT_GENERATION = Options(), GenerationOptions()


@dataclass(frozen=True, kw_only=True)
class HostResponse:
    """The results of a request; all lists have one element per row, in the order of the rows.

    Attributes:
        values: the result of each row.
        tokens: the number of input tokens of each row.
        windows: the number of windows into which each row was split.
        truncated: whether each row was truncated.
        characters: the total number of characters of all texts.
        fingerprint: the hash of the model, for results of a task; otherwise empty.
    """

    values: list[Any]
    tokens: list[int]
    windows: list[int]
    truncated: list[bool]
    timings: Timings
    characters: int = 0
    fingerprint: str = ""

    @property
    def prompt_tokens(self) -> int:
        return sum(self.tokens)


# The budget of the current HTTP request; None if the host is called from within the process.
BUDGET: ContextVar[RequestBudget | None] = ContextVar("budget", default=None)
BYTES_A_TOKEN = 5  # estimated, of a request body
# Seconds between measurements of the event loop's lag; iterations of the loop per request.
TICK, TURNS = 0.05, 3
# Seconds of work that the queue holds, from which batches are formed; further requests wait in the
# line. Maximum seconds of `Retry-After`, which some clients do not respect beyond.
QUEUE_SECONDS, MOST_RETRY_SECONDS = 1.0, 60.0
# Up to these numbers of rows and characters, tokenization and formatting take less time than a
# round trip to a thread.
LIGHT_ROWS, LIGHT_CHARACTERS = 4, 1_000

TOKENIZER_THREADS = 2
# Warm-up: a prompt that any tokenizer accepts, and the deadline in seconds of its generation.
WARM, WARM_SECONDS = "the", 600.0

# (rows, number of the first row, options) -> rows of one item; runs on a tokenizer thread.
Encode = Callable[[Sequence[Any], int, Options], EncodedRows]
# (rows of each item, deadline) -> the result of each item.
Answer = Callable[[Sequence[EncodedRows], float], Awaitable[list[ItemResult]]]
# (payload, its result) -> a value for each row.
Finish = Callable[[Any, Any], Iterable[Any]]


class Host:
    """The served models, the request queues and the device thread.

    Args:
        limits: limits of requests and queues; None: the defaults.
        precision, engine: used for models that `swap` loads.
    """

    def __init__(
        self, limits: Limits | None = None, *, precision: Precision = "auto", engine: str = TORCH
    ) -> None:
        self.limits, self.metrics = limits or Limits(), Metrics()
        self._models: dict[str, ServedModel] = {}  # the first is the default
        self._precision, self._engine = precision, engine
        self._pool = concurrent.futures.ThreadPoolExecutor(TOKENIZER_THREADS, "tokenise")
        self._queue = Queue(
            self.limits.max_queue_tokens,
            self.limits.max_batch_tokens,
            self.limits.linger_ms / 1e3,
            self.limits.max_wait_seconds,
        )
        self._generation = GenerationScheduler(
            self.limits.max_writing_tokens, self.limits.max_queue_tokens, self._call_on_loop
        )
        self._threads = ThreadWatch(fixed=engine != TORCH)
        self._device = Device(self._queue, self._deliver, self._generation, self._threads)
        self.waiting_line = WaitingLine(self._room)
        self._loop: asyncio.AbstractEventLoop  # set by `start`
        self.incoming_tokens = 0  # estimated tokens of requests that are not in the queue yet
        self.large_request = asyncio.Lock()  # held by the one that may not fit into the queue
        self._wake_scheduled = False
        # Lag of the event loop in seconds at the last tick, and the minimum of the last two, which
        # ignores a single pause of the process.
        self._last_lag = self._lag = 0.0
        self.ready = False
        self.draining = False
        # Opens the models again and reads the key file; set by the server.
        self.reload: Callable[[], Awaitable[None]] = _no_reload
        self.metrics.gauges |= {
            "mw_queue_tokens": lambda: self._queue.tokens,
            "mw_queue_wait_seconds": self._queue.seconds,
            "mw_queue_items": lambda: len(self._queue),
            "mw_line_requests": lambda: len(self.waiting_line),
            "mw_writing_rows": lambda: self._generation.num_running,
            "mw_writing_tokens": lambda: self._generation.tokens,
            "mw_read_seconds": lambda: self._device.seconds["read"],
            "mw_write_seconds": lambda: self._device.seconds["write"],
            "mw_memory_bytes": memory.resident,
            "mw_threads": lambda: self._threads.count,
            "te_queue_size": lambda: len(self._queue) + len(self.waiting_line),
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._models)

    def model(self, name: str | None = None) -> ServedModel:
        """Return the model of that name; None: the first model.

        Raises:
            Refusal: no such model, or no model is loaded yet.
        """
        if not self._models:
            raise Refusal("unready", "the models are being loaded", retry_after=1)
        name = next(iter(self._models)) if name is None else name
        if name not in self._models:
            reason = f"no model of that name; there are: {', '.join(self.names)}"
            raise Refusal("not_found", reason, field="model")
        return self._models[name]

    def _select(self, name: str | None, options: Options) -> Engine:
        """Return the engine to use, and record its fingerprint and name with the request."""
        engine = self.model(name).engine(options.adapter)
        self.budget().facts |= {"model": engine.fingerprint[:16], "served": engine.name}
        return engine

    def _record(self, timings: Timings, tokens: int, kind: str = "", inputs: int = 0) -> None:
        """Record the times and the tokens of a part of a request, in metrics and log."""
        self.metrics.answered(timings, kind, inputs)
        facts = self.budget().facts
        for name, value in (
            ("tokens", tokens),
            ("queue", timings.queue),
            ("compute", timings.compute),
        ):
            facts[name] = facts.get(name, 0) + value

    def budget(self) -> RequestBudget:
        """Return the budget of the current request; a new one outside of HTTP requests."""
        return BUDGET.get() or RequestBudget(self.limits)

    async def predict(
        self, name: str | None, rows: Sequence[Any], options: Options = DEFAULT_OPTIONS
    ) -> HostResponse:
        """Return the predictions of the model's task; `rows` as in `LanguageModel.predict`."""

        def finish(task: TaskType, encoded: Encoded, outputs: Any) -> Iterable[Any]:
            return pipeline_answers(task, encoded, outputs, options.top)

        return await self._answer_task(name, options, TASK, rows, finish)

    async def scores(
        self, name: str | None, rows: Sequence[Any], options: Options = DEFAULT_OPTIONS
    ) -> HostResponse:
        """Return (L,) float32 for each row: the probabilities of the L labels in the order of the
        task's labels; with `options.raw` the scores of the head."""

        def finish(task: TaskType, encoded: Encoded, outputs: Any) -> Iterable[Any]:
            return task.scores(encoded, outputs, raw=options.raw)

        return await self._answer_task(name, options, TASK, rows, finish)

    async def embed(
        self, name: str | None, texts: Sequence[str], options: Options = DEFAULT_OPTIONS
    ) -> HostResponse:
        """Return a (D,) float32 embedding for each text, as `LanguageModel.embed`."""

        def finish(task: TaskType, encoded: Encoded, outputs: Any) -> Iterable[Any]:
            return np.asarray(task.merged(encoded, outputs), np.float32)

        head: Head = ("vectors", options.pooling)
        return await self._answer_task(name, options, head, texts, finish)

    async def token_states(
        self, name: str | None, texts: Sequence[str], options: Options = DEFAULT_OPTIONS
    ) -> HostResponse:
        """Return (T, D) float32 for each text: the last hidden state of each of its T tokens."""
        work = encoding.encode_states, encoding.read_states
        return await self._read(self._select(name, options), *work, texts, options, kind=EMBED)

    async def token_vectors(
        self,
        name: str | None,
        texts: Sequence[str],
        options: Options = DEFAULT_OPTIONS,
        *,
        role: Role = "document",
    ) -> HostResponse:
        """Return (T, D) float32 for each text, as `LanguageModel.embed_all`."""
        engine = self._select(name, options)
        _require(engine, "embed_all", "the model makes no vectors of tokens")
        work = partial(encoding.encode_tokens, role=role), encoding.read_token_vectors
        return await self._read(engine, *work, texts, options)

    async def fill_mask(
        self, name: str | None, texts: Sequence[str], options: Options = DEFAULT_OPTIONS
    ) -> HostResponse:
        """Return the candidates for the masks of each text, as `LanguageModel.fill_mask`."""
        engine = self._select(name, options)
        _require(engine, "fill_mask", "the model fills no masks")

        def finish(payload: Any, holes: Any) -> list[Any]:
            return [spelled_masks(engine.model, *pair) for pair in holes]

        work = encoding.encode_masked, encoding.read_masks
        return await self._read(engine, *work, texts, options, finish)

    async def prompt_scores(
        self, name: str | None, prompts: Sequence[str], options: Options = DEFAULT_OPTIONS
    ) -> HostResponse:
        """Return the `TokenLogprob`s of each prompt, and the log-probabilities of the
        `options.top` likeliest tokens at each position."""
        engine = self._select(name, options)
        _require(engine, "generate", "the model does not write")
        tokenizer = engine.model.tokenizer

        def finish(payload: Any, scores: Any) -> list[Any]:
            return [encoding.logprobs_of_prompt(tokenizer, *pair) for pair in scores]

        work = encoding.encode_prompts, encoding.read_prompts
        return await self._read(engine, *work, prompts, options, finish)

    async def generate(
        self,
        name: str | None,
        prompts: Sequence[str],
        generation: GenerationOptions | Sequence[GenerationOptions] = DEFAULT_GENERATION,
        options: Options = DEFAULT_OPTIONS,
    ) -> HostResponse:
        """Return a `GeneratedText` for each prompt; `generation` is for all or one per prompt."""
        engine = self._select(name, options)
        start, deadline = time.monotonic(), self._deadline(options)
        jobs = await self._submit_jobs(engine, prompts, generation, options)
        try:
            async with before(deadline):
                texts = [await job.text() for job in jobs]
        finally:
            self._generation.cancel(jobs)
        self.metrics.wrote(
            sum(job.prompt_tokens for job in jobs), sum(len(text.ids) for text in texts)
        )
        timings = _timings(start, jobs)
        self._record(timings, sum(job.tokens for job in jobs))
        return HostResponse(
            values=texts,
            tokens=[job.prompt_tokens for job in jobs],
            windows=[1] * len(jobs),
            truncated=[False] * len(jobs),
            timings=timings,
            characters=sum(map(len, prompts)),
        )

    async def stream(
        self,
        name: str | None,
        prompt: str,
        generation: GenerationOptions = DEFAULT_GENERATION,
        options: Options = DEFAULT_OPTIONS,
        on_prompt: Callable[[int], None] = lambda tokens: None,
    ) -> AsyncIterator[Piece]:
        """Yield the continuation of one prompt piece by piece. A refusal is raised before the first
        piece; `on_prompt` is called with the number of prompt tokens once the job is queued."""
        engine = self._select(name, options)
        start, deadline, num_written = time.monotonic(), self._deadline(options), 0
        jobs = await self._submit_jobs(engine, [prompt], generation, options, streams=True)
        on_prompt(jobs[0].prompt_tokens)
        try:
            while (pieces := await jobs[0].next(deadline)) is not None:
                for piece in pieces:
                    num_written += piece.id is not None
                    yield piece
            self._record(_timings(start, jobs), jobs[0].prompt_tokens + num_written)
        finally:
            self._generation.cancel(jobs)
            self.metrics.wrote(jobs[0].prompt_tokens, num_written)

    def load(self, models: Mapping[str, ServedModel]) -> None:
        """Set the served models. The server listens before models are loaded, so routes must read
        `names` per request, not when they are created. Models that replace others are warmed up
        before, on the current thread."""
        for model in models.values() if self.ready else ():
            model.warm()
        self._models = dict(models)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the device thread; results are delivered on the event loop `loop`."""
        self._loop = loop
        self._device.start()
        self._tick(loop.time())

    def _tick(self, due: float) -> None:
        """Measure the lag of the event loop, which is the bottleneck with tiny models."""
        now = self._loop.time()
        delay = max(0.0, now - due)
        self._lag, self._last_lag = min(self._last_lag, delay), delay
        self.waiting_line.advance()
        self._loop.call_at(now + TICK, self._tick, now + TICK)

    async def warm_up(self) -> None:
        """Run every model at common lengths, initialise the queue's rate, and set `ready`."""
        rates = []
        for model in self._models.values():
            rates.append(await self.run_on_device(model.warm))
            if "generate" in model.engine().abilities:
                generation = GenerationOptions(tokens=2, temperature=0.0)
                options = Options(deadline=WARM_SECONDS)
                try:
                    await self.generate(model.name, [WARM], generation, options)
                except Refusal as refusal:
                    raise CheckpointError(refusal.message, where=model.folder) from refusal
        self._queue.expect(min(rates))
        self.ready = True

    async def run_on_device(self, function: Callable[[], Any]) -> Any:
        """Run a function on the device thread and return its value."""
        operation = BatchOperation(function, "", lambda payloads: [call() for call in payloads])
        item = QueueItem(operation, [1], function, waiter=self._future())
        self._device.submit([item])
        self._wake()
        result: ItemResult = await item.waiter
        if result.error is not None:
            raise result.error
        return result.value

    def run_and_wait(self, function: Callable[[], Any]) -> Any:
        """Run a function on the device thread and return its value; not from the event loop.

        Raises:
            Refusal: the deadline passed, or the queue is full.
        """
        seconds = self.limits.deadline

        async def run() -> Any:
            try:
                async with before(time.monotonic() + seconds):
                    return await self.run_on_device(function)
            except FullError:
                raise self._full() from None

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result(seconds + 1)
        except concurrent.futures.TimeoutError:  # the loop has stopped
            raise deadline_refusal() from None

    def swap(self, name: str, folder: Path | str) -> None:
        """Replace the model `name` by the model in `folder`; adapters of the old model are dropped.
        Admitted requests still use the old model. Blocks while loading, so call it on a thread.

        Raises:
            UsageError: no model has that name.
            Others: as `maskwright.load`; the old model is kept.
        """
        if name not in self._models:
            raise UsageError(
                "no model of that name",
                where="swap",
                found=repr(name),
                wanted=near(str(name), self.names),
            )
        other_models = [model for model in self._models.values() if model.name != name]
        new_model = open_one(
            name, Path(folder), other_models, self._precision, runtime=self._engine
        )
        new_model.warm()
        self._models = {**self._models, name: new_model}

    def stop(self) -> None:
        """Stop the device thread and the tokenizer threads."""
        self._device.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def alive(self) -> bool:
        """Whether the thread of the device runs, and its batch or step is not stuck: none takes
        longer than the deadline of a request."""
        return self._device.alive and self._device.turn_seconds <= self.limits.deadline

    def patience(self) -> float:
        """Return the time of the event loop until which a request that arrives now may wait in the
        line."""
        return self._loop.time() + max(0.0, self.limits.max_wait_seconds - QUEUE_SECONDS)

    async def wait_for_room(self, size: int, until: float, *, at_front: bool = False) -> None:
        """Wait in the line until the queue has room for a request whose body has `size` bytes.

        Raises:
            Refusal: the time `until` came before.
        """
        if not await self.waiting_line.wait(size / BYTES_A_TOKEN, until, at_front=at_front):
            raise self._full()

    @asynccontextmanager
    async def admit(self, size: int, facts: dict[str, Any], until: float) -> AsyncIterator[None]:
        """Admit a request whose body of `size` bytes was received, as a context manager; if the
        room is taken meanwhile, it waits as the first in the line until the time `until`.

        Until its items are queued, the request counts with an estimated number of tokens. A request
        that may exceed the whole queue waits for a lock instead, since it would block all others.
        `facts` receives values for the headers of the response.

        Raises:
            Refusal: the queue is full, or the deadline passed.
        """
        await self.wait_for_room(size, until, at_front=True)
        budget, tokens = RequestBudget(self.limits, facts), size // BYTES_A_TOKEN
        BUDGET.set(budget)
        with budget.reservation as reservation:
            if tokens > self.limits.max_queue_tokens:
                async with before(budget.began + self.limits.deadline):
                    await self.large_request.acquire()
                reservation.callback(self.large_request.release)
            else:
                self._count_incoming(tokens)
                reservation.callback(self._count_incoming, -tokens)
            yield

    def _count_incoming(self, tokens: int) -> None:
        self.incoming_tokens += tokens

    def _room(self) -> float:
        """Return the number of tokens that the queue has room for: as many as are computed within
        the time that it may hold, and no more than its limit; 0 or less: none."""
        free = float(self.limits.max_queue_tokens - self._queue.tokens - self.incoming_tokens)
        is_busy = self.incoming_tokens > 0 or len(self._queue) > 0
        if not is_busy or (rate := self._queue.rate) is None:
            return free
        limit = min(QUEUE_SECONDS, self.limits.max_wait_seconds)
        wait_seconds = self._queue.seconds(self.incoming_tokens) + TURNS * self._lag
        return min(free, (limit - wait_seconds) * rate)

    def _full(self) -> Refusal:
        tokens = self.incoming_tokens + self.waiting_line.tokens
        excess = self._queue.seconds(int(tokens)) - self.limits.max_wait_seconds
        return Refusal(
            "overloaded",
            "the queue is too long to be answered in time",
            limit=f"{self.limits.max_wait_seconds:g} s of waiting",
            retry_after=min(max(1.0, excess), MOST_RETRY_SECONDS),
        )

    async def _answer_task(
        self,
        name: str | None,
        options: Options,
        head: Head,
        rows: Sequence[Any],
        finish: Callable[[TaskType, Encoded, Any], Iterable[Any]],
    ) -> HostResponse:
        """Apply a head to rows; `finish` maps encoded rows and outputs to a value for each row."""
        engine = self._select(name, options)
        predictor: TaskPredictor = engine.loaded_head(head) or await self._run(
            False, task_head, engine, head
        )
        answering = encoding.answering_as(predictor, options)
        task_type = answering.task_type

        def encode(rows: Sequence[Any], first_number: int, options: Options) -> EncodedRows:
            task_rows = rows if head == TASK else encoding.single_texts(predictor, rows)
            encoded_rows = encoding.encode(answering, task_rows, first_number, options)
            # Scores are computed by the shared predictor, whose objective exists already.
            used = answering if task_type.writes else predictor
            return replace(encoded_rows, payload=TaskPayload(used, encoded_rows.payload))

        if task_type.writes:
            answer: Answer = partial(self._generate_answers, engine)
        else:
            operation = BatchOperation(id(engine.root), "scores", encoding.read_scores)
            answer = partial(self._read_batched, engine, operation)
        response = await self._answer(
            rows,
            options,
            encode,
            answer,
            lambda payload, outputs: finish(task_type, payload.encoded, outputs),
            PREDICT if head == TASK else EMBED,
        )
        return replace(response, fingerprint=engine.fingerprint)

    async def _read(
        self,
        engine: Engine,
        encode: Callable[[Engine, Sequence[Any], int, Options], EncodedRows],
        read: Callable[[Engine, Sequence[Any]], Any],
        rows: Sequence[Any],
        options: Options,
        finish: Finish = lambda payload, values: values,
        kind: str = "",
    ) -> HostResponse:
        """Encode rows, and compute them by `read` in batches with those of the same model."""
        operation = BatchOperation(engine, read.__name__, partial(read, engine))
        answer = partial(self._read_batched, engine, operation)
        return await self._answer(rows, options, partial(encode, engine), answer, finish, kind)

    async def _answer(
        self,
        rows: Sequence[Any],
        options: Options,
        encode: Encode,
        answer: Answer,
        finish: Finish,
        kind: str = "",
    ) -> HostResponse:
        """Encode rows in chunks, compute their results by `answer` and turn them into values by
        `finish`; record the timings, also by `kind`: EMBED, PREDICT, or "" for neither."""
        self.budget().take_rows(rows, options.field)
        if kind:
            self.metrics.started(kind, len(rows))
        started_at, deadline = time.monotonic(), self._deadline(options)
        async with before(deadline):
            spans = encoding.split_rows(rows, encoding.PART_ROWS, encoding.PART_CHARACTERS)
            chunks = [(span.start, [rows[n] for n in span]) for span in spans]
            are_light = [_is_light(chunk) for _, chunk in chunks]
            encoded: list[EncodedRows] = await all_of(
                self._run(light, encode, chunk, start, options)
                for light, (start, chunk) in zip(are_light, chunks, strict=True)
            )
            self.budget().take_answer(sum(e.answer_bytes for e in encoded), options.field)
            tokenised_at = time.monotonic()
            results = await answer(encoded, deadline)
            answers = await all_of(
                self._run(light, lambda *args: list(finish(*args)), rows.payload, result.value)
                for light, rows, result in zip(are_light, encoded, results, strict=True)
            )
        timings = Timings(
            total=time.monotonic() - started_at,
            tokenise=tokenised_at - started_at,
            queue=max(result.waited for result in results),
            compute=max(result.computed for result in results),
        )
        self._record(timings, sum(sum(e.lengths) for e in encoded), kind, len(rows))
        return HostResponse(
            values=[value for chunk_answers in answers for value in chunk_answers],
            tokens=[n for e in encoded for n in e.lengths],
            windows=[n for e in encoded for n in e.windows],
            truncated=[is_cut for e in encoded for is_cut in e.truncated],
            timings=timings,
            characters=sum(len(text) for row in rows for text in texts_of(row)),
        )

    async def _read_batched(
        self,
        engine: Engine,
        operation: BatchOperation,
        encoded: Sequence[EncodedRows],
        deadline: float,
    ) -> list[ItemResult]:
        """Compute the results of rows, in batches with those of other requests."""
        items = [
            QueueItem(operation, rows.lengths, rows.payload, deadline, waiter=self._future())
            for rows in encoded
        ]
        budget = self.budget()
        budget.reservation.close()
        budget.take_tokens(sum(item.tokens for item in items))
        try:
            self._device.submit(items, budget.is_admitted)
            budget.is_admitted = True
            self._wake()
        except FullError:
            raise self._full() from None
        try:
            results = await all_of(item.waiter for item in items)
        except BaseException:
            self._device.cancel(items)
            raise
        for result in results:
            if result.late:
                raise deadline_refusal()
            if result.error is not None:
                self.metrics.count("failures")
                raise of_error(result.error, model=engine.name) from result.error
        return results

    async def _generate_answers(
        self, engine: Engine, encoded: Sequence[EncodedRows], deadline: float
    ) -> list[ItemResult]:
        """Generate the results of rows of a text-generating task."""
        jobs = []
        for rows in encoded:
            num_read, steps = sum(rows.lengths), rows.payload.steps
            size = min(2 * num_read, self.limits.max_writing_tokens)
            jobs.append(GenerationJob(engine, None, steps, num_read, size, streams=False))
        begin = time.monotonic()
        self._submit(jobs)
        try:
            for job in jobs:
                await job.finish()
        finally:
            self._generation.cancel(jobs)
        seconds = time.monotonic() - begin
        return [ItemResult(job.value, None, job.waited, seconds - job.waited) for job in jobs]

    def _wake(self) -> None:
        """Wake the device thread at the end of the current iteration of the event loop, so that
        requests of the same iteration are batched together."""
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake_device)

    def _wake_device(self) -> None:
        self._wake_scheduled = False
        self._device.wake()

    def _deliver(self, results: Sequence[tuple[QueueItem, ItemResult]]) -> None:
        """Set the results of the items' futures. Called on the device thread."""
        computed = [(item, result) for item, result in results if not result.late]
        if computed:
            lengths = [n for item, _ in computed for n in item.lengths]
            self.metrics.batch(lengths, computed[0][1].computed)

        def set_results() -> None:
            for item, result in results:
                if not item.waiter.done():
                    item.waiter.set_result(result)

        self._call_on_loop(set_results)

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        """Run a function on the event loop, from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _future(self) -> asyncio.Future[ItemResult]:
        return self._loop.create_future()

    async def _run(self, light: bool, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on a thread, or directly if it is `light`; errors become refusals."""
        try:
            if light:
                return function(*args)
            return await self._loop.run_in_executor(self._pool, function, *args)
        except Refusal:
            raise
        except Exception as error:
            refusal = of_error(error)
            if refusal.kind == "backend":
                self.metrics.count("failures")
            raise refusal from error

    async def _submit_jobs(
        self,
        engine: Engine,
        prompts: Sequence[str],
        generation: GenerationOptions | Sequence[GenerationOptions],
        options: Options,
        streams: bool = False,
    ) -> list[GenerationJob]:
        self.budget().take_rows(prompts, options.field)
        _require(engine, "generate", "the model does not write")
        if isinstance(generation, GenerationOptions):
            generation = [generation] * len(prompts)
        prepare = partial(self._generation.prepare, engine, list(prompts), generation)
        jobs: list[GenerationJob] = await self._run(False, prepare, options.field, streams)
        self._submit(jobs)
        return jobs

    def _submit(self, jobs: Sequence[GenerationJob]) -> None:
        budget = self.budget()
        budget.reservation.close()
        budget.take_tokens(sum(job.tokens for job in jobs))
        try:
            self._generation.submit(jobs)
        except FullError:
            raise self._full() from None
        except NeverFitsError as error:
            reason = f"prompt and answer have {error.tokens} tokens"
            raise Refusal("too_large", reason, limit=error.limit) from None
        self._wake()

    def _deadline(self, options: Options) -> float:
        """Return the deadline of the request on the clock of `time.monotonic`."""
        limit = self.limits.deadline
        seconds = limit if options.deadline is None else min(limit, options.deadline)
        return self.budget().began + seconds


async def _no_reload() -> None:
    raise Refusal("model", "this server cannot reload")


def _timings(begin: float, jobs: Sequence[GenerationJob]) -> Timings:
    """Return the timings of generation jobs that began at `begin`."""
    total, wait = time.monotonic() - begin, max(job.waited for job in jobs)
    return Timings(total=total, tokenise=0.0, queue=wait, compute=total - wait)


async def all_of(values: Iterable[Awaitable[Any]]) -> list[Any]:
    """Await all values; if one fails, cancel the others. A single value creates no task."""
    awaitables = list(values)
    if len(awaitables) == 1:
        return [await awaitables[0]]
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _is_light(rows: Sequence[Any]) -> bool:
    if len(rows) > LIGHT_ROWS:
        return False
    return sum(len(text) for row in rows for text in texts_of(row)) <= LIGHT_CHARACTERS


def _require(engine: Engine, ability: str, reason: str) -> None:
    if ability not in engine.abilities:
        raise of_error(IncompatibleError(reason, found=engine.describe()))
