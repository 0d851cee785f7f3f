"""Batching of requests and the device thread, independent of HTTP and models.

    queue.submit(items, now)      queue all items of a request or none: FullError, NeverFitsError
    queue.take(now)               the next batch: the oldest item, then items of the same key that
                                  were passed over too often, then those closest in length
    share.choose(ready)           the kind of work that has used the least time

    queue (oldest first)     40  400  38  42  390  41       lengths in tokens, all of one key
    first batch              40  41  38  42                 400 and 390 would be outliers
    second batch             400  390                       400 is now the oldest

The queue is bounded by the expected waiting time, at the measured rate, and by the tokens. Before
it is a line of requests that are not parsed yet (`WaitingLine`).
At most `PATIENCE` batches with younger items of the same key overtake an item. There is no timer:
a batch is formed when the device is free, unless the queue is configured to `linger`.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# Number of batches, from the front of the queue, whose items are candidates for the next batch.
WINDOW = 8
# Maximum of n * longest^2 / sum(length^2) of a batch, a measure of the spread of lengths (>= 1).
UNLIKE = 1.5
# Maximum number of batches of the same key that may overtake an item with younger ones.
PATIENCE = 2
# Maximum estimated seconds of a batch, and the number of tokens that is always allowed: larger
# batches increase latency without much gain in throughput.
BATCH_SECONDS, LEAST = 0.1, 512
# Decay of the measured rate at which the queue empties, per batch.
DECAY = 0.9
# Weight, in seconds of measurement, of the rate that is assumed at the start.
PRIOR_SECONDS = 0.5


class FullError(Exception):
    """The queue is currently full."""


class NeverFitsError(Exception):
    """The request has more tokens than even an empty queue admits."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"{tokens} tokens, of {limit}")
        self.tokens, self.limit = tokens, limit


@dataclass(eq=False)
class QueueItem:
    """Rows of one request that are computed together.

    Attributes:
        key: items with equal keys can be batched.
        lengths: the number of tokens of each row.
        payload: the input of the computation.
        deadline: time after which the result is useless.
        arrived: time at which it was submitted.
        passed: number of batches of its key that overtook it with younger items.
        cancelled: whether the request was cancelled.
        waiter: the future that receives the result; unused by the queue.
    """

    key: Hashable
    lengths: Sequence[int]
    payload: Any = None
    deadline: float = math.inf
    arrived: float = 0.0
    passed: int = 0
    cancelled: bool = False
    waiter: Any = None
    tokens: int = field(init=False)
    longest: int = field(init=False)

    def __post_init__(self) -> None:
        self.tokens, self.longest = sum(self.lengths), max(self.lengths, default=0)


@dataclass(frozen=True)
class QueuedBatch:
    """A batch, and the items that were dropped because they were cancelled or are late."""

    items: list[QueueItem]
    dropped: list[QueueItem]

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.items)


class Queue:
    """A queue of items, oldest first. All times are of the same monotonic clock, in seconds.

    Args:
        max_tokens: maximum number of tokens in the queue.
        batch_tokens: maximum number of tokens of a batch, unless a single item has more.
        linger: seconds that an item waits for others while the batch is not full.
        max_seconds: maximum expected waiting time at which further requests are admitted.
    """

    def __init__(
        self,
        max_tokens: int,
        batch_tokens: int,
        linger: float = 0.0,
        max_seconds: float = float("inf"),
    ) -> None:
        self.max_tokens, self.batch_tokens, self.linger = max_tokens, batch_tokens, linger
        self.max_seconds = max_seconds
        # Decayed sums of the tokens taken while others waited, and of the seconds this took.
        self._tokens_taken, self._seconds_taken = 0.0, 0.0
        # (time, tokens) of the last batch; None if nothing waited behind it.
        self._last_batch: tuple[float, int] | None = None
        self._rates: dict[Hashable, float] = {}
        self._items: OrderedDict[int, QueueItem] = OrderedDict()
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._items)

    def submit(self, items: Sequence[QueueItem], now: float, further: bool = False) -> None:
        """Queue all items of a request or none. For `further` items of an admitted request only
        `max_tokens` applies.

        Raises:
            NeverFitsError: the items have more than `max_tokens` tokens.
            FullError: the queue is currently too full for all of them.
        """
        tokens = sum(item.tokens for item in items)
        if tokens > self.max_tokens:
            raise NeverFitsError(tokens, self.max_tokens)
        if (self.is_full() and not further) or self.tokens + tokens > self.max_tokens:
            raise FullError(f"{tokens} tokens beside {self.tokens}")
        for item in items:
            item.arrived = now
            self._items[id(item)] = item
        self.tokens += tokens

    @property
    def rate(self) -> float | None:
        """Tokens per second taken while others wait; None: not yet known."""
        return self._tokens_taken / self._seconds_taken if self._seconds_taken > 0 else None

    def expect(self, rate: float) -> None:
        """Set the assumed rate in tokens per second, unless one was measured."""
        if self.rate is None and rate < float("inf"):
            self._tokens_taken, self._seconds_taken = rate * PRIOR_SECONDS, PRIOR_SECONDS

    def seconds(self, beside: int = 0) -> float:
        """Return the estimated seconds to process the queue and `beside` additional tokens."""
        return 0.0 if self.rate is None else (self.tokens + beside) / max(self.rate, 1e-9)

    def is_full(self) -> bool:
        """Return whether further requests are refused."""
        is_late = self.tokens > 0 and self.seconds() > self.max_seconds
        return is_late or self.tokens >= self.max_tokens

    def discard(self, item: QueueItem) -> None:
        """Remove an item if it is still in the queue."""
        if self._items.pop(id(item), None) is not None:
            self.tokens -= item.tokens

    def wait(self, now: float) -> float | None:
        """Return the seconds until a batch can be taken; None if the queue is empty."""
        oldest = next(iter(self._items.values()), None)
        if oldest is None:
            return None
        if self.linger == 0 or self.tokens >= self.batch_tokens:
            return 0.0
        return max(0.0, oldest.arrived + self.linger - now)

    def take(self, now: float) -> QueuedBatch:
        """Remove and return the next batch, and the items that were cancelled or are late."""
        dropped = [i for i in self._items.values() if i.cancelled or i.deadline <= now]
        for item in dropped:
            self.discard(item)
        if not self._items:
            self._last_batch = None
            return QueuedBatch([], dropped)
        self._measure(now)
        oldest = next(iter(self._items.values()))
        same_key = self._window(oldest)
        batch_items = self._fill(oldest, same_key)
        for item in batch_items:
            self.discard(item)
        batch_set = set(batch_items)
        last_taken = max(n for n, item in enumerate([oldest, *same_key]) if item in batch_set)
        for item in same_key[:last_taken]:
            item.passed += item not in batch_set  # it was overtaken
        batch = QueuedBatch(batch_items, dropped)
        self._last_batch = (now, batch.tokens) if self._items else None
        return batch

    def _measure(self, now: float) -> None:
        """Update the rate by the time since the last batch, if items have waited since then."""
        if self._last_batch is not None:
            start, tokens = self._last_batch
            self._tokens_taken = DECAY * self._tokens_taken + tokens
            self._seconds_taken = DECAY * self._seconds_taken + max(now - start, 1e-6)

    def note(self, key: Hashable, tokens: int, seconds: float) -> None:
        """Record the time of a batch, by which later batches of its key are limited in size."""
        rate, known_rate = tokens / max(seconds, 1e-6), self._rates.get(key)
        # Small batches are dominated by constant overhead and say nothing about larger ones.
        if tokens >= LEAST or (known_rate is not None and rate > known_rate):
            self._rates[key] = rate if known_rate is None else 0.7 * known_rate + 0.3 * rate

    def _max_batch_tokens(self, key: Hashable) -> int:
        rate = self._rates.get(key)
        if rate is None:
            return self.batch_tokens
        return min(self.batch_tokens, max(LEAST, int(rate * BATCH_SECONDS)))

    def _window(self, oldest: QueueItem) -> list[QueueItem]:
        """Return the other items near the front of the queue that have the key of `oldest`."""
        same_key, tokens_left = [], WINDOW * self.batch_tokens
        for item in self._items.values():
            tokens_left -= item.tokens
            if tokens_left < 0 and item is not oldest:
                break
            if item.key == oldest.key and item is not oldest:
                same_key.append(item)
        return same_key

    def _fill(self, oldest: QueueItem, same_key: Sequence[QueueItem]) -> list[QueueItem]:
        """Return the items of the next batch: `oldest`, then items that were overtaken `PATIENCE`
        times, then those closest in length to `oldest`, as far as the token limit allows."""
        overdue = [item for item in same_key if item.passed >= PATIENCE]
        by_length = [item for item in same_key if item.passed < PATIENCE]
        by_length.sort(key=lambda item: abs(item.longest - oldest.longest))  # stable: older first
        tokens_left = self._max_batch_tokens(oldest.key) - oldest.tokens
        certain, free = [oldest], list[QueueItem]()
        for candidates, chosen in ((overdue, certain), (by_length, free)):
            for item in candidates:
                if item.tokens <= tokens_left:
                    chosen.append(item)
                    tokens_left -= item.tokens
        return certain + _similar_lengths(certain, free)


@dataclass(eq=False)
class _Waiter:
    """A request in the waiting line.

    Attributes:
        tokens: its estimated number.
        ended: done when it is not in the line any more.
        is_woken: whether there was room for it.
    """

    tokens: float
    ended: asyncio.Future[None]
    is_woken: bool = False


class WaitingLine:
    """Requests that wait for room in the queue before anything of them is parsed, oldest first.
    For use on the event loop.

    Holding a request costs nothing, while a refused client that asks again at once costs the
    processor time of an answer. So nobody is refused before the time that a request may wait.

    Args:
        room: returns the number of tokens for which the queue has room; 0 or less: none.
    """

    def __init__(self, room: Callable[[], float]) -> None:
        self._room = room
        self._waiters: deque[_Waiter] = deque()
        # Tokens of requests that were woken and have not run yet, so that they do not count yet.
        self._woken_tokens = 0.0

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def tokens(self) -> float:
        """The estimated number of tokens of all requests in the line."""
        return sum(waiter.tokens for waiter in self._waiters)

    async def wait(self, tokens: float, until: float, *, at_front: bool = False) -> bool:
        """Wait behind all others, or before them (`at_front`), until the queue has room. Return
        False if the time `until` of the event loop came before."""
        loop = asyncio.get_running_loop()
        while self._room() <= 0 or (self._waiters and not at_front):
            if until <= loop.time():
                return False
            waiter = _Waiter(tokens, loop.create_future())
            (self._waiters.appendleft if at_front else self._waiters.append)(waiter)
            timer = loop.call_at(until, self._end, waiter)
            try:
                await waiter.ended
            finally:
                timer.cancel()
                self._end(waiter)
                self._woken_tokens -= tokens if waiter.is_woken else 0.0
            at_front = True
        return True

    def advance(self) -> None:
        """Wake as many requests as the queue has room for."""
        while self._waiters and self._room() - self._woken_tokens > 0:
            waiter = self._waiters[0]
            waiter.is_woken = True
            self._woken_tokens += waiter.tokens
            self._end(waiter)

    def _end(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not waiter.ended.done():  # the task that waits for it may have been cancelled
            waiter.ended.set_result(None)


class FairShare:
    """Fair sharing of one device among kinds of work, by the seconds that each has used.

    A kind of work that was idle gains no credit: its time is raised to the minimum of the others.
    """

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._ready: set[Hashable] = set()

    def choose(self, ready: Sequence[Hashable]) -> Hashable:
        """Return the kind of work, among those ready, that has used the least time."""
        used_seconds = [self._seconds[c] for c in ready if c in self._ready]
        for work in ready:
            if work not in self._ready:
                start_seconds = min(used_seconds, default=0.0)
                self._seconds[work] = max(self._seconds.get(work, 0.0), start_seconds)
        self._ready = set(ready)
        return min(ready, key=self._seconds.__getitem__)

    def spent(self, work: Hashable, seconds: float) -> None:
        """Add the seconds that a kind of work has used."""
        self._seconds[work] = self._seconds.get(work, 0.0) + seconds


def _similar_lengths(certain: Sequence[QueueItem], free: Sequence[QueueItem]) -> list[QueueItem]:
    """Return the `free` items to add to the `certain` ones so that lengths stay similar: outliers
    are removed until the spread is at most `UNLIKE`."""
    remaining = deque(sorted(free, key=lambda item: item.longest))
    longest_certain = max(item.longest for item in certain)
    lengths = [length for item in (*certain, *remaining) for length in item.lengths]
    num_rows, sum_of_squares = len(lengths), sum(length * length for length in lengths)
    while remaining:
        longest = max(longest_certain, remaining[-1].longest)
        if num_rows * longest**2 <= UNLIKE * sum_of_squares:
            break
        # Remove the longest, or the shortest if the longest item is certain.
        item = remaining.pop() if remaining[-1].longest > longest_certain else remaining.popleft()
        num_rows -= len(item.lengths)
        sum_of_squares -= sum(length * length for length in item.lengths)
    return list(remaining)


READ, WRITE = "read", "write"
# Maximum seconds for which the idle device thread sleeps.
IDLE = 1.0


@dataclass(frozen=True)
class BatchOperation:
    """The computation of items, which are batched if owner and kind are equal.

    Attributes:
        owner: identifies the weights.
        kind: the name of the computation, such as "scores", "states" or "masks".
        read: maps payloads to their results, in the same order.
    """

    owner: Hashable
    kind: str
    read: Callable[[Sequence[Any]], Sequence[Any]] = field(compare=False)


@dataclass(frozen=True)
class ItemResult:
    """The result of an item.

    Attributes:
        value, error: the output of the computation, or the exception that was raised.
        waited, computed: seconds in the queue and on the device.
        late: whether the deadline passed in the queue.
    """

    value: Any = None
    error: BaseException | None = None
    waited: float = 0.0
    computed: float = 0.0
    late: bool = False


class SteppedWork(Protocol):
    """Work that is computed in steps, such as text generation."""

    def ready(self) -> bool:
        """Return whether there is a step to compute."""

    def step(self) -> None:
        """Compute one step. Never raises."""

    def stop(self, error: BaseException) -> None:
        """Fail all jobs with an error."""


Deliver = Callable[[Sequence[tuple[QueueItem, ItemResult]]], None]


class Device:
    """The thread that runs all computations.

    Args:
        queue: items that are computed in batches.
        deliver: called on the device thread with pairs of items and results.
        stepped: work that is computed in steps, alternating with batches.
        before_turn: called before each batch or step, on the device thread.
    """

    def __init__(
        self,
        queue: Queue,
        deliver: Deliver,
        stepped: SteppedWork,
        before_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.queue, self.stepped, self._before_turn = queue, stepped, before_turn
        self.seconds = dict.fromkeys((READ, WRITE), 0.0)
        self._deliver, self._share = deliver, FairShare()
        self._changed = threading.Condition()
        self._stopping = False
        self._turn_began: float | None = None
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def turn_seconds(self) -> float:
        """Seconds since the batch or step that is being computed began; 0: none is."""
        began = self._turn_began
        return 0.0 if began is None else time.monotonic() - began

    def stop(self) -> None:
        """Stop the thread after the current batch or step."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, items: Sequence[QueueItem], further: bool = False) -> None:
        """Queue all items or none, as `Queue.submit`; does not `wake` an idle device."""
        with self._changed:
            self.queue.submit(items, time.monotonic(), further)

    def cancel(self, items: Sequence[QueueItem]) -> None:
        """Cancel items, and remove them from the queue."""
        with self._changed:
            for item in items:
                item.cancelled = True
                self.queue.discard(item)

    def wake(self) -> None:
        """Wake an idle device."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while (turn := self._turn()) is not None:
            start = self._turn_began = time.monotonic()
            self._before_turn()
            if isinstance(turn, QueuedBatch):
                self._deliver([(item, ItemResult(late=True)) for item in turn.dropped])
                if turn.items:
                    self._deliver(self._read(turn))
                kind = READ
            else:
                try:
                    self.stepped.step()
                except BaseException as error:
                    self.stepped.stop(error)
                kind = WRITE
            seconds = time.monotonic() - start
            self._turn_began = None
            self.seconds[kind] += seconds
            self._share.spent(kind, seconds)

    def _turn(self) -> QueuedBatch | str | None:
        """Wait for work. Return a batch, `WRITE` for a step, or None if the thread shall stop."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                wait = self.queue.wait(now)
                ready = [READ] if wait == 0 else []
                ready += [WRITE] if self.stepped.ready() else []
                if not ready:
                    self._changed.wait(IDLE if wait is None else min(wait, IDLE))
                    continue
                if self._share.choose(ready) == READ:
                    return self.queue.take(now)
                return WRITE
            return None

    def _read(self, batch: QueuedBatch) -> list[tuple[QueueItem, ItemResult]]:
        """Compute a batch; if it fails, compute each item by itself. Return items with results."""
        start = time.monotonic()
        operation = batch.items[0].key
        assert isinstance(operation, BatchOperation)
        outputs = _outputs(operation, batch.items)
        computed = time.monotonic() - start
        with self._changed:
            self.queue.note(operation, batch.tokens, computed)
        return [
            (item, ItemResult(value, error, start - item.arrived, computed))
            for item, (value, error) in zip(batch.items, outputs, strict=True)
        ]


def _outputs(
    operation: BatchOperation, items: Sequence[QueueItem]
) -> list[tuple[Any, BaseException | None]]:
    """Return the value or the error of each item."""
    try:
        return [(value, None) for value in operation.read([item.payload for item in items])]
    except BaseException as error:
        if len(items) == 1:
            return [(None, error)]
    return [_outputs(operation, [item])[0] for item in items]
