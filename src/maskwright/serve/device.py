"""The one thread that computes, and what it is given.

    Reading     items that are read together: a key of the queue, and what reads them
    Writers     texts that are being written, a step of all rows at a time
    Device      takes turns between the two by the seconds each has had

A batch that fails is read again item by item, so that an error stays with the request that made it.
Whatever a computation raises ends here, BaseException included: the thread goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from maskwright.serve.scheduler import FairShare, FullError, Item, Queue, Taken

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
