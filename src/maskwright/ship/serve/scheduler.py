"""Batching of requests, and the thread of the device. Nothing here knows HTTP or models.

    queue.submit(items, now)      queue all items of a request, or none: FullError, NeverFitsError
    queue.take(now)               the next batch: the oldest item, then those of its key that were
                                  passed over too often, then those nearest in length
    share.choose(ready)           the class of work that has used the least time

    waiting (oldest first)   40  400  38  42  390  41       of one key, lengths in tokens
    first batch              40  41  38  42                 400 and 390 would be outliers
    second batch             400  390                       400 is now the oldest

A queue is bounded by the seconds that its items will take, at the rate at which it empties, and by
tokens. An item is taken after at most `PATIENCE` batches of its key with younger items. There is no
timer: a batch is formed when the device is free, unless the queue is configured to `linger`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# Items within this many batches of the front of the queue are candidates for a batch.
WINDOW = 8
# Maximum of n * longest^2 / sum(length^2) of a batch, which measures how different lengths are.
UNLIKE = 1.5
# How often younger items of the same key may go before an item.
PATIENCE = 2
# Maximum seconds of a batch, estimated from earlier ones, and the tokens that it may always have:
# larger batches increase the latency of all requests and hardly the throughput.
BATCH_SECONDS, LEAST = 0.1, 512
# Decay of the measured rate at which the queue empties, per batch.
DECAY = 0.9
# Weight in seconds of the rate that is expected before the first measurement.
PRIOR_SECONDS = 0.5


class FullError(Exception):
    """The queue has no room now."""


class NeverFitsError(Exception):
    """The request does not fit into an empty queue."""

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
        deadline: time after which the result is useless; None: never.
        arrived: time at which it was submitted.
        passed: number of batches of its key that held younger items instead.
        cancelled: whether the request was given up.
        waiter: the future of its result, which the queue does not use.
    """

    key: Hashable
    lengths: Sequence[int]
    payload: Any = None
    deadline: float | None = None
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
    """The next batch, and the items that were cancelled or are late."""

    items: list[QueueItem]
    dropped: list[QueueItem]

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.items)


class Queue:
    """Waiting items, oldest first.

    Args:
        max_tokens: of all waiting items.
        batch_tokens: of a batch, unless one item has more.
        linger: seconds that an item waits for others if the batch is not full.
        max_seconds: no item is admitted if the waiting ones take longer than this.
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
        # Tokens that left while others waited, and the time between these batches, with decay.
        self._left, self._spent = 0.0, 0.0
        self._pressed: tuple[float, int] | None = None
        self._rates: dict[Hashable, float] = {}
        self._items: OrderedDict[int, QueueItem] = OrderedDict()
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._items)

    def submit(self, items: Sequence[QueueItem], now: float, further: bool = False) -> None:
        """Queue all items of a request, or none; `further` items of an admitted request are only
        refused if they do not fit.

        Raises:
            NeverFitsError: they have more tokens than the whole queue may have.
            FullError: there is no room for all of them now.
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
        """Tokens per second that leave the queue while others wait; None: not known yet."""
        return self._left / self._spent if self._spent > 0 else None

    def expect(self, rate: float) -> None:
        """Set the rate before one is measured."""
        if self.rate is None and rate < float("inf"):
            self._left, self._spent = rate * PRIOR_SECONDS, PRIOR_SECONDS

    def seconds(self, beside: int = 0) -> float:
        """Estimated seconds for the waiting tokens and those `beside` them."""
        return 0.0 if self.rate is None else (self.tokens + beside) / max(self.rate, 1e-9)

    def is_full(self, beside: int = 0) -> bool:
        """Whether nothing more is admitted, given the waiting tokens and those `beside` them."""
        tokens = self.tokens + beside
        return tokens >= self.max_tokens or (tokens > 0 and self.seconds(beside) > self.max_seconds)

    def discard(self, item: QueueItem) -> None:
        """Remove an item, if it still waits."""
        if self._items.pop(id(item), None) is not None:
            self.tokens -= item.tokens

    def wait(self, now: float) -> float | None:
        """Seconds until a batch can be taken; None if nothing waits."""
        oldest = next(iter(self._items.values()), None)
        if oldest is None:
            return None
        if self.linger == 0 or self.tokens >= self.batch_tokens:
            return 0.0
        return max(0.0, oldest.arrived + self.linger - now)

    def take(self, now: float) -> QueuedBatch:
        """Remove and return the next batch, and the items that are cancelled or late."""
        dropped = [i for i in self._items.values() if i.cancelled or _is_late(i, now)]
        for item in dropped:
            self.discard(item)
        if not self._items:
            self._pressed = None
            return QueuedBatch([], dropped)
        self._measure(now)
        oldest = next(iter(self._items.values()))
        same_key = self._window(oldest)
        batch_items = self._fill(oldest, same_key)
        batch_ids = {id(item) for item in batch_items}
        last_taken = max(n for n, item in enumerate([oldest, *same_key]) if id(item) in batch_ids)
        for item in same_key[:last_taken]:
            item.passed += id(item) not in batch_ids
        for item in batch_items:
            self.discard(item)
        batch = QueuedBatch(batch_items, dropped)
        self._pressed = (now, batch.tokens) if self._items else None
        return batch

    def _measure(self, now: float) -> None:
        """Measure the time since the last batch, other work included, if items waited meanwhile."""
        if self._pressed is not None:
            start, tokens = self._pressed
            self._left = DECAY * self._left + tokens
            self._spent = DECAY * self._spent + max(now - start, 1e-6)

    def note(self, key: Hashable, tokens: int, seconds: float) -> None:
        """Record the time of a batch, which bounds later ones of its key by `BATCH_SECONDS`."""
        rate, known_rate = tokens / max(seconds, 1e-6), self._rates.get(key)
        # The time of a small batch is mostly constant cost, which says nothing about larger ones.
        if tokens >= LEAST or (known_rate is not None and rate > known_rate):
            self._rates[key] = rate if known_rate is None else 0.7 * known_rate + 0.3 * rate

    def _max_batch_tokens(self, key: Hashable) -> int:
        rate = self._rates.get(key)
        if rate is None:
            return self.batch_tokens
        return min(self.batch_tokens, max(LEAST, int(rate * BATCH_SECONDS)))

    def _window(self, oldest: QueueItem) -> list[QueueItem]:
        """The other items near the front with the key of the oldest."""
        same_key, tokens_left = [], WINDOW * self.batch_tokens
        for item in self._items.values():
            tokens_left -= item.tokens
            if tokens_left < 0 and item is not oldest:
                break
            if item.key == oldest.key and item is not oldest:
                same_key.append(item)
        return same_key

    def _fill(self, oldest: QueueItem, same_key: Sequence[QueueItem]) -> list[QueueItem]:
        """The oldest item, those passed over too often, then those nearest in length."""
        overdue = [item for item in same_key if item.passed >= PATIENCE]
        by_length = [item for item in same_key if item.passed < PATIENCE]
        by_length.sort(key=lambda item: abs(item.longest - oldest.longest))  # stable: older first
        tokens_left = self._max_batch_tokens(oldest.key) - oldest.tokens
        certain, free = [oldest], list[QueueItem]()
        for item in overdue:
            if item.tokens <= tokens_left:
                certain.append(item)
                tokens_left -= item.tokens
        for item in by_length:
            if item.tokens <= tokens_left:
                free.append(item)
                tokens_left -= item.tokens
        return certain + _similar_lengths(certain, free)


class FairShare:
    """Fair sharing of one device among classes of work, by the seconds that each has used.

    A class that was idle gains no credit: it continues where the others are.
    """

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._ready: set[Hashable] = set()

    def choose(self, ready: Sequence[Hashable]) -> Hashable:
        """The class of work that is next, of those that are ready."""
        used_seconds = [self._seconds[c] for c in ready if c in self._ready]
        for work in ready:
            if work not in self._ready:
                start_seconds = min(used_seconds, default=0.0)
                self._seconds[work] = max(self._seconds.get(work, 0.0), start_seconds)
        self._ready = set(ready)
        return min(ready, key=self._seconds.__getitem__)

    def spent(self, work: Hashable, seconds: float) -> None:
        """Record the time of a turn."""
        self._seconds[work] = self._seconds.get(work, 0.0) + seconds


def _is_late(item: QueueItem, now: float) -> bool:
    return item.deadline is not None and item.deadline <= now


def _similar_lengths(certain: Sequence[QueueItem], free: Sequence[QueueItem]) -> list[QueueItem]:
    """The `free` items that keep the lengths of the batch similar."""
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
# Seconds that the thread sleeps at most when there is nothing to do.
IDLE = 1.0


@dataclass(frozen=True)
class BatchOperation:
    """The computation of items, and the key by which they are batched.

    Attributes:
        backbone: identifies the weights.
        kind: scores, states, masks.
        read: computes the results of payloads, in their order.
    """

    backbone: int
    kind: str
    read: Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class ItemResult:
    """The result of an item.

    Attributes:
        value: of the computation.
        error: the exception that was raised instead.
        waited, computed: seconds in the queue and on the device.
        late: its deadline passed while it waited.
        together: the number of tokens of its batch.
    """

    value: Any = None
    error: BaseException | None = None
    waited: float = 0.0
    computed: float = 0.0
    late: bool = False
    together: int = 0


class SteppedWork(Protocol):
    """Work in steps, such as text generation."""

    def ready(self) -> bool:
        """Whether there is a step to compute."""

    def step(self) -> None:
        """Compute one step. Never raises."""

    def stop(self, error: BaseException) -> None:
        """End all work with an error."""


Deliver = Callable[[Sequence[tuple[QueueItem, ItemResult]]], None]


class Device:
    """The thread that computes.

    Args:
        queue: items to compute in batches.
        deliver: receives items with their results, on the thread of the device.
        stepped: work in steps, in turns with the queue.
    """

    def __init__(self, queue: Queue, deliver: Deliver, stepped: SteppedWork) -> None:
        self.queue, self.stepped = queue, stepped
        self.seconds = dict.fromkeys((READ, WRITE), 0.0)
        self._deliver, self._share = deliver, FairShare()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop after the current batch or step."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, items: Sequence[QueueItem], further: bool = False) -> None:
        """Queue all items or none, as `Queue.submit`; an idle device starts after `wake`."""
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
            start = time.monotonic()
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
            self.seconds[kind] += seconds
            self._share.spent(kind, seconds)

    def _turn(self) -> QueuedBatch | str | None:
        """Wait for the next batch or step; None if the thread is to stop."""
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
        items, start = batch.items, time.monotonic()
        operation = items[0].key
        assert isinstance(operation, BatchOperation)
        values: list[Any]
        try:
            values = list(operation.read([item.payload for item in items]))
            errors: list[BaseException | None] = [None] * len(items)
        except BaseException as error:
            if len(items) == 1:
                values, errors = [None], [error]
            else:
                separate = [_read_separately(operation, item) for item in items]
                values, errors = [value for value, _ in separate], [error for _, error in separate]
        computed = time.monotonic() - start
        with self._changed:
            self.queue.note(operation, batch.tokens, computed)
        return [
            (item, ItemResult(value, error, start - item.arrived, computed, False, batch.tokens))
            for item, value, error in zip(items, values, errors, strict=True)
        ]


def _read_separately(
    operation: BatchOperation, item: QueueItem
) -> tuple[Any, BaseException | None]:
    try:
        (value,) = operation.read([item.payload])
        return value, None
    except BaseException as error:
        return None, error


__all__ = ["BatchOperation", "Device", "FullError", "ItemResult", "SteppedWork"]
