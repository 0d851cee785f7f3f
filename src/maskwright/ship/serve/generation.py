"""Text generation with continuous batching: each step adds a token to every job of a batch, which
jobs join and leave between steps.

The text of a job does not depend on the other jobs. Streaming jobs deliver their pieces at once,
others when they are complete.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from maskwright.ask.predict.engine import Engine
from maskwright.model.inference.beam import Steps
from maskwright.model.inference.generation import Generation, Prompt
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_text import Piece
from maskwright.model.inference.text_generation import generation_of, prompts_of, search
from maskwright.ship.serve.errors import Refusal, before, of_error
from maskwright.ship.serve.scheduler import FullError, NeverFitsError


@dataclass(frozen=True, kw_only=True)
class GenerationOptions(GenerationSettings):
    """Options of text generation.

    Attributes:
        logprobs: the number of likeliest tokens whose log-probabilities are returned at each
            position, besides that of the chosen token; None: no log-probabilities.
    """

    logprobs: int | None = None


@dataclass(frozen=True)
class GeneratedText:
    """A generated text, token by token."""

    pieces: Sequence[Piece] = ()

    @property
    def text(self) -> str:
        """The new text, without the stop string."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def ids(self) -> list[int]:
        """The ids of the new tokens, without the end token."""
        return [piece.id for piece in self.pieces if piece.id is not None]

    @property
    def finished(self) -> str:
        """The reason for the end: "end", "stop" or "length"."""
        return next((p.finished for p in self.pieces if p.finished is not None), "length")


@dataclass(eq=False)
class GenerationJob:
    """A text to generate, by sampling (`prompt`) or by a `search`; the other of the two is None.

    Attributes:
        engine: the engine of the model.
        prompt: the prompt with its sampling options.
        search: starts the steps that compute `value`: beam search, or predictions of a task.
        prompt_tokens: the number of tokens of the prompt.
        tokens: the maximum number of positions, including the prompt.
        streams: whether each piece is delivered at once.
        num_pieces: the number of pieces generated so far.
        skipped: the number of pieces still to be skipped after a restart.
    """

    engine: Engine
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
    num_pieces: int = 0
    skipped: int = 0
    value: Any = None
    _pieces: deque[Piece] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, piece: Piece) -> None:
        """Add a piece (on the device thread); skip those that were added before a restart."""
        if self.skipped:
            self.skipped -= 1
        else:
            self.num_pieces += 1
            self._pieces.append(piece)
        self.ended = self.ended or piece.finished is not None

    async def finish(self) -> None:
        """Wait until the job has ended; raise a Refusal if it failed."""
        while not self.ended:
            await self._changed.wait()
            self._changed.clear()
        self._raise()

    async def text(self) -> GeneratedText:
        """Wait for the whole text and return it; raise a Refusal if the job failed."""
        await self.finish()
        return GeneratedText(list(self._pieces))

    async def next(self, deadline: float) -> list[Piece] | None:
        """Wait for the next pieces. Return at least one, or None after the last.

        Raises:
            Refusal: the job failed, or the deadline passed.
        """
        while not self._pieces and not self.ended:
            async with before(deadline):
                await self._changed.wait()
            self._changed.clear()
        pieces = []
        while self._pieces:
            pieces.append(self._pieces.popleft())
        if not pieces:
            self._raise()
        return pieces or None

    def _raise(self) -> None:
        if self.error is not None:
            raise of_error(self.error, model=self.engine.name) from self.error


class GenerationScheduler:
    """The running and waiting generation jobs of all models.

    Jobs of models on the same backbone form a batch. If a step fails, every job of the batch is
    restarted in a batch of its own, so that only the job that causes the error fails.

    Args:
        max_tokens: maximum number of positions of the running jobs.
        max_waiting: maximum number of positions of the waiting jobs.
        call: runs a function on the event loop.
    """

    def __init__(
        self, max_tokens: int, max_waiting: int, call: Callable[[Callable[[], None]], None]
    ) -> None:
        self.max_tokens, self.max_waiting, self._call = max_tokens, max_waiting, call
        self._waiting: deque[GenerationJob] = deque()
        self._batches: deque[_GenerationBatch] = deque()  # the next to step comes first
        self._lock = threading.Lock()

    def prepare(
        self,
        engine: Engine,
        prompts: Sequence[str],
        settings: Sequence[GenerationOptions],
        field: str,
        streams: bool,
    ) -> list[GenerationJob]:
        """Create a job for each prompt with its options. Runs on a tokenizer thread.

        Raises:
            Refusal: a prompt cannot be continued, or an option is out of range.
        """
        jobs = []
        for number, (text, options) in enumerate(zip(prompts, settings, strict=True)):
            if options.tokens < 1:
                raise Refusal("validation", "no token to write", field="tokens", limit="1 or more")
            try:
                (prompt,) = prompts_of(engine.model, [text], options, options.logprobs)
            except Exception as error:
                raise of_error(error, f"{field}[{number}]") from error
            prompt_tokens = len(prompt.source or prompt.ids)
            tokens = prompt_tokens + options.tokens * options.num_beams
            steps = None
            if options.num_beams != 1:
                steps = partial(_search, engine, prompt)
            jobs.append(
                GenerationJob(
                    engine, None if steps else prompt, steps, prompt_tokens, tokens, streams
                )
            )
        return jobs

    def submit(self, jobs: Sequence[GenerationJob]) -> None:
        """Queue all jobs or none.

        Raises:
            NeverFitsError, FullError: as in `Queue.submit`.
        """
        most_tokens = max(job.tokens for job in jobs)
        if most_tokens > self.max_tokens:
            raise NeverFitsError(most_tokens, self.max_tokens)
        tokens = sum(job.tokens for job in jobs)
        if tokens > self.max_waiting:
            raise NeverFitsError(tokens, self.max_waiting)
        with self._lock:
            waiting_tokens = sum(job.tokens for job in self._waiting)
            if waiting_tokens + tokens > self.max_waiting:
                raise FullError(f"{tokens} tokens beside {waiting_tokens}")
            now = time.monotonic()
            for job in jobs:
                job.submitted = now
            self._waiting.extend(jobs)

    def cancel(self, jobs: Sequence[GenerationJob]) -> None:
        """Cancel jobs: waiting jobs are removed now, running jobs at the next step."""
        for job in jobs:
            job.cancelled = True
        with self._lock:
            if any(job.cancelled for job in self._waiting):
                self._waiting = deque(job for job in self._waiting if not job.cancelled)

    @property
    def num_running(self) -> int:
        return sum(len(batch.jobs) for batch in list(self._batches))

    @property
    def tokens(self) -> int:
        """The number of positions reserved for the running jobs."""
        batches = list(self._batches)
        return sum(job.tokens for batch in batches for job in list(batch.jobs.values()))

    @property
    def waiting_tokens(self) -> int:
        with self._lock:
            return sum(job.tokens for job in self._waiting)

    def ready(self) -> bool:
        return bool(self._batches or self._waiting)

    def step(self) -> None:
        """Start waiting jobs, and compute one step of the batch at the front of the rotation."""
        changed = self._start_waiting()
        if self._batches:
            batch = self._batches[0]
            try:
                changed += batch.step()
            except BaseException as error:
                changed += self._restart_separately(batch, error)
            self._batches.rotate(-1)
            self._batches = deque(batch for batch in self._batches if batch.jobs)
        self._wake(job for job in changed if job.ended or job.streams)

    def stop(self, error: BaseException) -> None:
        with self._lock:
            jobs = [*(job for batch in self._batches for job in batch.jobs.values())]
            jobs += self._waiting
            self._batches.clear()
            self._waiting.clear()
        for job in jobs:
            job.error, job.ended = error, True
        self._wake(jobs)

    def _start_waiting(self) -> list[GenerationJob]:
        """Start the waiting jobs that fit. Return those that failed to start."""
        failed = []
        for job in self._startable():
            job.waited = time.monotonic() - job.submitted
            try:
                self._batch_of(job).add(job)
            except BaseException as error:
                job.error, job.ended = error, True
                failed.append(job)
        self._batches = deque(batch for batch in self._batches if batch.jobs)
        return failed

    def _startable(self) -> list[GenerationJob]:
        """Remove and return the waiting jobs, oldest first, that fit beside the running ones."""
        with self._lock:
            running_tokens, jobs = self.tokens, []
            while self._waiting:
                job = self._waiting[0]
                if not job.cancelled:
                    if running_tokens and running_tokens + job.tokens > self.max_tokens:
                        break
                    jobs.append(job)
                    running_tokens += job.tokens
                self._waiting.popleft()
            return jobs

    def _batch_of(self, job: GenerationJob) -> _GenerationBatch:
        is_single = job.prompt is None
        for batch in self._batches:
            if batch.engine.root is job.engine.root and not (batch.is_single or is_single):
                return batch
        self._batches.append(_GenerationBatch(job.engine, is_single))
        return self._batches[-1]

    def _restart_separately(
        self, batch: _GenerationBatch, error: BaseException
    ) -> list[GenerationJob]:
        """Restart each job of a failed batch in a batch of its own; the job of a single-job batch
        fails with `error`. Return the failed jobs."""
        jobs = list(batch.jobs.values())
        batch.jobs.clear()
        if batch.is_single or len(jobs) == 1:
            for job in jobs:
                job.error, job.ended = error, True
            return jobs
        failed = []
        for job in jobs:
            single, job.skipped = _GenerationBatch(job.engine, is_single=True), job.num_pieces
            try:
                single.add(job)
                self._batches.append(single)
            except BaseException as start_error:
                job.error, job.ended = start_error, True
                failed.append(job)
        return failed

    def _wake(self, jobs: Iterable[GenerationJob]) -> None:
        changed_jobs = list(jobs)

        def wake() -> None:
            for job in changed_jobs:
                job._changed.set()

        if changed_jobs:
            self._call(wake)


class _GenerationBatch:
    """Jobs that are generated together; `is_single`: a single job, which no other may join."""

    def __init__(self, engine: Engine, is_single: bool = False) -> None:
        self.engine, self.is_single = engine, is_single
        self.jobs: dict[int, GenerationJob] = {}
        self._generation: Generation | None = None
        self._search: Steps[Any] | None = None

    def add(self, job: GenerationJob) -> None:
        if job.prompt is None:
            assert job.search is not None
            self.jobs[0], self._search = job, job.search()
            return
        root = job.engine.root
        if self._generation is None:
            self._generation = generation_of(root.model, root.network())
        adapted_network = None if job.engine is root else job.engine.network()
        self.jobs[self._generation.add(replace(job.prompt, network=adapted_network))] = job

    def step(self) -> list[GenerationJob]:
        """Compute one step. Return the jobs with a new piece or value."""
        for number in [n for n, job in self.jobs.items() if job.cancelled]:
            self.jobs.pop(number).ended = True
            if self._generation is not None:
                self._generation.cancel(number)
        if not self.jobs:
            return []
        if self._search is not None:
            (job,) = self.jobs.values()
            try:
                next(self._search)
                return []
            except StopIteration as end:
                job.value = end.value
            if isinstance(job.value, str):
                job.add(Piece(0, None, job.value, "end"))
            job.ended = True
            self.jobs.clear()
            return [job]
        assert self._generation is not None
        changed = []
        for piece in self._generation.step():
            job = self.jobs[piece.row]
            job.add(piece)
            changed.append(job)
            if job.ended:
                del self.jobs[piece.row]
        return changed


def _search(engine: Engine, prompt: Prompt) -> Steps[str]:
    (text,) = yield from search(engine.model, engine.network(), [prompt])
    return text
