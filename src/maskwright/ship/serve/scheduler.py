"""Which requests go together, and whose turn it is. Nothing here knows HTTP, threads or models.

    queue.submit(items, now)      all of a request's items or none: Full, TooLong
    queue.take(now)               the next batch: the oldest item always, then those of its key that
                                  were passed over too often, then the nearest in length
    share.choose(ready)           which class of work has had the least time

    waiting (oldest first)   40  400  38  42  390  41       of one key, lengths in tokens
    first batch              40  41  38  42                 400 and 390 would be outliers
    second batch             400  390                       400 is now the oldest

A queue is bounded by the seconds that what waits will take, at the rate at which it empties, and by
tokens. An item is taken after at most `PATIENCE` batches of its key that
held younger ones. There is no timer: a batch is what waits when the device is free, unless the
queue is made to `linger`.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

# An item is looked at for a batch if it lies within so many batches' tokens of the queue's front.
WINDOW = 8
# n * longest^2 / sum(length^2) of a batch: beyond it the lengths are too unlike.
UNLIKE = 1.5
# How often an item may see younger ones of its key go first.
PATIENCE = 2
# A batch takes no longer than this, by the rate of those before, and need not be smaller than that:
# a larger one makes everybody wait longer and reads hardly more tokens a second.
BATCH_SECONDS, LEAST = 0.1, 512
# Of what is known of the rate at which the queue empties, so much is kept at each batch.
KEPT = 0.9
# Seconds that a rate that was told before anything was measured counts for.
TOLD = 0.5


class FullError(Exception):
    """The queue has no room now."""


class NeverFitsError(Exception):
    """A request that the queue would have no room for if it were empty."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"{tokens} tokens, of {limit}")
        self.tokens, self.limit = tokens, limit


@dataclass(eq=False)
class Item:
    """Rows of one request that are read together.

    Attributes:
        key: items of one key can be read together.
        lengths: tokens of each row.
        payload: what the device is given.
        deadline: when its answer is of no use any more; None: never.
        arrived: when it was submitted.
        passed: how many batches of its key held younger items instead.
        cancelled: nobody waits for it.
        waiter: who waits for it; nothing to the queue.
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
class Taken:
    """What `take` gives: items that go together, and items that are over."""

    batch: list[Item]
    dropped: list[Item]

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.batch)


class Queue:
    """Items that wait, oldest first.

    Args:
        max_tokens: of all that wait.
        batch_tokens: of a batch, unless one item has more.
        linger: seconds that an item waits for company if the batch is not full.
        max_seconds: an item is taken in if what waits already takes no longer than this.
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
        # Tokens that left while others waited, and the seconds from each batch to the next.
        self._left, self._spent = 0.0, 0.0
        self._pressed: tuple[float, int] | None = None
        self._rates: dict[Hashable, float] = {}
        self._items: OrderedDict[int, Item] = OrderedDict()
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._items)

    def submit(self, items: Sequence[Item], now: float, further: bool = False) -> None:
        """Take in the items of a request, all or none; `further` ones of a request that was taken
        in do not wait for their own.

        Raises:
            NeverFitsError: they have more tokens than the whole queue.
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
        """Tokens a second that leave the queue while others wait; None: not known yet."""
        return self._left / self._spent if self._spent > 0 else None

    def expect(self, rate: float) -> None:
        """Tell the rate before one is measured."""
        if self.rate is None and rate < float("inf"):
            self._left, self._spent = rate * TOLD, TOLD

    def seconds(self, beside: int = 0) -> float:
        """How long what waits will take, and so many tokens beside it."""
        return 0.0 if self.rate is None else (self.tokens + beside) / max(self.rate, 1e-9)

    def is_full(self, beside: int = 0) -> bool:
        """Whether nothing more is taken in, where so many tokens come beside what waits."""
        held = self.tokens + beside
        return held >= self.max_tokens or (held > 0 and self.seconds(beside) > self.max_seconds)

    def discard(self, item: Item) -> None:
        """Take an item out, if it still waits."""
        if self._items.pop(id(item), None) is not None:
            self.tokens -= item.tokens

    def wait(self, now: float) -> float | None:
        """Seconds until a batch can be taken; 0: now; None: nothing waits."""
        oldest = next(iter(self._items.values()), None)
        if oldest is None:
            return None
        if self.linger == 0 or self.tokens >= self.batch_tokens:
            return 0.0
        return max(0.0, oldest.arrived + self.linger - now)

    def take(self, now: float) -> Taken:
        """The next batch, and the items whose deadline passed or for which nobody waits."""
        dropped = [i for i in self._items.values() if i.cancelled or _late(i, now)]
        for item in dropped:
            self.discard(item)
        if not self._items:
            self._pressed = None
            return Taken([], dropped)
        self._measure(now)
        oldest = next(iter(self._items.values()))
        others = self._window(oldest)
        batch = self._fill(oldest, others)
        chosen = {id(item) for item in batch}
        youngest = max(n for n, item in enumerate([oldest, *others]) if id(item) in chosen)
        for item in others[:youngest]:
            item.passed += id(item) not in chosen
        for item in batch:
            self.discard(item)
        taken = Taken(batch, dropped)
        self._pressed = (now, taken.tokens) if self._items else None
        return taken

    def _measure(self, now: float) -> None:
        """What the batch before took, turns of other work included, if others waited meanwhile."""
        if self._pressed is not None:
            began, tokens = self._pressed
            self._left = KEPT * self._left + tokens
            self._spent = KEPT * self._spent + max(now - began, 1e-6)

    def note(self, key: Hashable, tokens: int, seconds: float) -> None:
        """How long a batch took: later ones of its key are as large as `BATCH_SECONDS` allow."""
        rate, seen = tokens / max(seconds, 1e-6), self._rates.get(key)
        # Of a small batch most is what any batch costs, which says nothing about larger ones.
        if tokens >= LEAST or (seen is not None and rate > seen):
            self._rates[key] = rate if seen is None else 0.7 * seen + 0.3 * rate

    def _budget(self, key: Hashable) -> int:
        rate = self._rates.get(key)
        if rate is None:
            return self.batch_tokens
        return min(self.batch_tokens, max(LEAST, int(rate * BATCH_SECONDS)))

    def _window(self, oldest: Item) -> list[Item]:
        """The items of the key of the oldest that are near the front, but for itself."""
        found, left = [], WINDOW * self.batch_tokens
        for item in self._items.values():
            left -= item.tokens
            if left < 0 and item is not oldest:
                break
            if item.key == oldest.key and item is not oldest:
                found.append(item)
        return found

    def _fill(self, oldest: Item, others: Sequence[Item]) -> list[Item]:
        """The oldest, those whose patience is over, then the nearest in length."""
        due = [item for item in others if item.passed >= PATIENCE]
        rest = [item for item in others if item.passed < PATIENCE]
        rest.sort(key=lambda item: abs(item.longest - oldest.longest))  # stable: older first
        left = self._budget(oldest.key) - oldest.tokens
        certain, free = [oldest], list[Item]()
        for item in due:
            if item.tokens <= left:
                certain.append(item)
                left -= item.tokens
        for item in rest:
            if item.tokens <= left:
                free.append(item)
                left -= item.tokens
        return certain + _alike(certain, free)


class FairShare:
    """Turns of classes of work on one device, by the seconds that each has had.

    A class that had nothing to do gains no claim by that: it begins where the others are.
    """

    def __init__(self) -> None:
        self._seconds: dict[Hashable, float] = {}
        self._ready: set[Hashable] = set()

    def choose(self, ready: Sequence[Hashable]) -> Hashable:
        """The class whose turn it is, of those that have work."""
        stayed = [self._seconds[c] for c in ready if c in self._ready]
        for each in ready:
            if each not in self._ready:
                begin = min(stayed, default=0.0)
                self._seconds[each] = max(self._seconds.get(each, 0.0), begin)
        self._ready = set(ready)
        return min(ready, key=self._seconds.__getitem__)

    def spent(self, each: Hashable, seconds: float) -> None:
        """Note what a turn took."""
        self._seconds[each] = self._seconds.get(each, 0.0) + seconds


def _late(item: Item, now: float) -> bool:
    return item.deadline is not None and item.deadline <= now


def _alike(certain: Sequence[Item], free: Sequence[Item]) -> list[Item]:
    """Of the `free` items those that stay when the lengths of the batch are to be alike."""
    waits = deque(sorted(free, key=lambda item: item.longest))
    bound = max(item.longest for item in certain)
    lengths = [length for item in (*certain, *waits) for length in item.lengths]
    rows, squares = len(lengths), sum(length * length for length in lengths)
    while waits:
        longest = max(bound, waits[-1].longest)
        if rows * longest**2 <= UNLIKE * squares:
            break
        # The longest waits; where it is one that must go, the shortest does.
        item = waits.pop() if waits[-1].longest > bound else waits.popleft()
        rows -= len(item.lengths)
        squares -= sum(length * length for length in item.lengths)
    return list(waits)


READ, WRITE = "read", "write"
# Seconds that the thread sleeps at most when there is nothing to do.
IDLE = 1.0


@dataclass(frozen=True)
class Reading:
    """Items of one reading go together.

    Attributes:
        backbone: what they stand on.
        what: scores, states, masks.
        read: the answers to payloads, in their order.
    """

    backbone: int
    what: str
    read: Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Outcome:
    """What became of an item.

    Attributes:
        value: what its reading gave.
        error: what was raised instead.
        waited, computed: seconds in the queue and on the device.
        late: its deadline passed while it waited.
        together: tokens of its batch.
    """

    value: Any = None
    error: BaseException | None = None
    waited: float = 0.0
    computed: float = 0.0
    late: bool = False
    together: int = 0


class Writers(Protocol):
    """Texts that are being written."""

    def ready(self) -> bool:
        """Whether a step has something to do."""

    def step(self) -> None:
        """One step: new rows join, every row gets a token at most. Never raises."""

    def stop(self, error: BaseException) -> None:
        """End all rows with an error."""


Settle = Callable[[Sequence[tuple[Item, Outcome]]], None]


class Device:
    """Answers what is submitted, on a thread of its own.

    Args:
        queue: what waits to be read.
        settle: gets items with what became of them; called on the device's thread.
        writers: texts that are being written.
    """

    def __init__(self, queue: Queue, settle: Settle, writers: Writers) -> None:
        self.queue, self.writers = queue, writers
        self.seconds = dict.fromkeys((READ, WRITE), 0.0)
        self._settle, self._share = settle, FairShare()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after what is being computed."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, items: Sequence[Item], further: bool = False) -> None:
        """All items or none; as `Queue.submit`. Where the device has nothing to do, it looks
        at them after `wake`."""
        with self._changed:
            self.queue.submit(items, time.monotonic(), further)

    def cancel(self, items: Sequence[Item]) -> None:
        """Nobody waits for them any more."""
        with self._changed:
            for item in items:
                item.cancelled = True
                self.queue.discard(item)

    def wake(self) -> None:
        """There is something new to do."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while (turn := self._turn()) is not None:
            begin = time.monotonic()
            if isinstance(turn, Taken):
                self._settle([(item, Outcome(late=True)) for item in turn.dropped])
                if turn.batch:
                    self._settle(self._read(turn))
                kind = READ
            else:
                try:
                    self.writers.step()
                except BaseException as error:
                    self.writers.stop(error)
                kind = WRITE
            seconds = time.monotonic() - begin
            self.seconds[kind] += seconds
            self._share.spent(kind, seconds)

    def _turn(self) -> Taken | str | None:
        """What is done next; None where the thread is to end."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                wait = self.queue.wait(now)
                ready = [READ] if wait == 0 else []
                ready += [WRITE] if self.writers.ready() else []
                if not ready:
                    self._changed.wait(IDLE if wait is None else min(wait, IDLE))
                    continue
                if self._share.choose(ready) == READ:
                    return self.queue.take(now)
                return WRITE
            return None

    def _read(self, taken: Taken) -> list[tuple[Item, Outcome]]:
        batch, begin = taken.batch, time.monotonic()
        reading = batch[0].key
        assert isinstance(reading, Reading)
        found: list[Any]
        try:
            found = list(reading.read([item.payload for item in batch]))
            errors: list[BaseException | None] = [None] * len(batch)
        except BaseException as error:
            if len(batch) == 1:
                found, errors = [None], [error]
            else:
                alone = [_alone(reading, item) for item in batch]
                found, errors = [value for value, _ in alone], [error for _, error in alone]
        computed = time.monotonic() - begin
        with self._changed:
            self.queue.note(reading, taken.tokens, computed)
        return [
            (item, Outcome(value, error, begin - item.arrived, computed, False, taken.tokens))
            for item, value, error in zip(batch, found, errors, strict=True)
        ]


def _alone(reading: Reading, item: Item) -> tuple[Any, BaseException | None]:
    try:
        (value,) = reading.read([item.payload])
        return value, None
    except BaseException as error:
        return None, error


__all__ = ["Device", "FullError", "Outcome", "Reading", "Writers"]
