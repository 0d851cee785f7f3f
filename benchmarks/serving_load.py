"""Clients for a server: so many that ask again and again, or so many requests a second whatever
comes back; each answer is compared with the one that its text gets by itself.

    load = asyncio.run(closed(url, questions, clients=64, seconds=5))
    load.goodput, load.quantile(0.99), load.lost, load.wrong
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Question:
    """A body, and the answer to it; None: not known. Numbers of an answer that differ by no more
    than the tolerance are the same, as bfloat16 rounds otherwise in another batch."""

    path: str
    body: bytes
    answer: bytes | None = None
    tolerance: float = 0.02


@dataclass
class Load:
    """What came of a load.

    Attributes:
        answered: seconds of each request that was answered with 200.
        refused: seconds of each that got 429.
        statuses: how often each.
        lost: requests that were sent and got no answer.
        wrong: answers that are another question's.
        closed: connections that an answer announced to close.
    """

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    wrong: int = 0
    closed: int = 0
    seconds: float = 0.0

    @property
    def goodput(self) -> float:
        """Answers a second."""
        return len(self.answered) / self.seconds

    def quantile(self, share: float, which: str = "answered") -> float:
        """Of the milliseconds of `answered` or `refused`."""
        times = sorted(getattr(self, which))
        return 1e3 * times[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


class Connection:
    """One connection, opened when it is needed."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self.host, self.port = parts.hostname, parts.port or 80
        self.head = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self.head += f"Authorization: Bearer {token}\r\n" if token else ""
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, question: Question) -> tuple[int, bytes, bool]:
        """Status, body, and whether the server closes now.

        Raises:
            ConnectionRefusedError: nobody listens; nothing was sent.
            OSError, asyncio.IncompleteReadError: the request was lost.
        """
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        assert self.reader is not None
        size = len(question.body)
        head = f"POST {question.path} HTTP/1.1\r\n{self.head}Content-Length: {size}\r\n\r\n"
        self.writer.write(head.encode() + question.body)
        received = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(received.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await self.reader.readexactly(length)
        closes = b"connection: close" in received
        if closes:
            self.close()
        return int(received[9:12]), body, closes

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def end(self) -> None:
        """Close, and wait for it."""
        writer = self.writer
        self.close()
        if writer is not None:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def is_answer(question: Question, body: bytes) -> bool:
    """Whether a body is the answer to the question."""
    if question.answer is None or body == question.answer:
        return True
    pairs = [_values(json.loads(each)) for each in (body, question.answer)]
    if len(pairs[0]) != len(pairs[1]):
        return False
    return all(
        abs(a - b) <= question.tolerance
        if isinstance(a, float) and isinstance(b, float)
        else a == b
        for a, b in zip(*pairs, strict=True)
    )


def _values(found: object) -> list[object]:
    """All strings and numbers, in order."""
    if isinstance(found, dict):
        return [value for key in sorted(found) for value in _values(found[key])]
    if isinstance(found, list):
        return [value for each in found for value in _values(each)]
    return [found]


async def _one(load: Load, connection: Connection, question: Question, begin: float) -> bool:
    """Ask, and note what came; whether to go on."""
    try:
        status, body, closes = await connection.ask(question)
    except ConnectionRefusedError:
        return False
    except (OSError, asyncio.IncompleteReadError):
        load.lost += 1
        connection.close()
        return True
    seconds = time.perf_counter() - begin
    load.statuses[status] += 1
    load.closed += closes
    if status == 200:
        load.answered.append(seconds)
        load.wrong += not is_answer(question, body)
    elif status == 429:
        load.refused.append(seconds)
    return True


async def closed(
    url: str,
    questions: Sequence[Question],
    clients: int,
    seconds: float,
    *,
    token: str | None = None,
    pause: float = 0.0,
    stop: asyncio.Event | None = None,
) -> Load:
    """So many clients, each of which asks as soon as it was answered, or so long after a 429."""
    load = Load()
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        connection, draw = Connection(url, token), random.Random(number)
        while time.perf_counter() < end and not (stop is not None and stop.is_set()):
            before = len(load.refused)
            if not await _one(load, connection, draw.choice(questions), time.perf_counter()):
                break
            if pause and len(load.refused) > before:
                await asyncio.sleep(pause)
        await connection.end()

    begin = time.perf_counter()
    await asyncio.gather(*map(client, range(clients)))
    load.seconds = time.perf_counter() - begin
    return load


async def opened(
    url: str,
    questions: Sequence[Question],
    rate: float,
    seconds: float,
    *,
    connections: int = 256,
    token: str | None = None,
    from_due: bool = True,
) -> Load:
    """So many requests a second at random times, on at most so many connections. A request's time
    counts from when it was due; else from when a connection was free for it, which is the server's
    share where clients and server have too few cores for all of them."""
    load, draw = Load(), random.Random(0)
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(Connection(url, token))

    async def ask(due: float) -> None:
        connection = await free.get()
        begin = due if from_due else time.perf_counter()
        await _one(load, connection, draw.choice(questions), begin)
        free.put_nowait(connection)

    begin = due = time.perf_counter()
    sent = []
    while due < begin + seconds:
        due += draw.expovariate(rate)
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        sent.append(asyncio.ensure_future(ask(due)))
    load.seconds = time.perf_counter() - begin
    answered = len(load.answered)
    await asyncio.gather(*sent)
    while not free.empty():
        await free.get_nowait().end()
    del load.answered[answered:]  # what was answered after the time is no goodput of it
    return load


class Watcher:
    """Eight more clients in a process of their own, which ask 20 ms after each answer while others
    load the server: their times are the server's, without the waits of a crowded generator. Where
    it may, the process goes before others."""

    def __init__(self, url: str, question: Question, seconds: float) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = concurrent.futures.ProcessPoolExecutor(1, spawn, _go_before_others)
        self._load = self._pool.submit(_watched, url, question, seconds)

    def load(self) -> Load:
        """What came of its requests, once the time is over."""
        with self._pool:
            return self._load.result()


def _go_before_others() -> None:
    with contextlib.suppress(OSError):
        os.nice(-10)


def _watched(url: str, question: Question, seconds: float) -> Load:
    return asyncio.run(closed(url, [question], 8, seconds, pause=0.02))


async def questions_of(
    url: str, path: str, texts: Sequence[str], field: str, tolerance: float = 0.02
) -> list[Question]:
    """Questions with the answers that their texts get one by one."""
    connection, found = Connection(url), []
    for text in texts:
        question = Question(path, json.dumps({field: text}).encode())
        status, body, _ = await connection.ask(question)
        if status != 200:
            raise RuntimeError(f"{status}: {body[:200]!r}")
        found.append(Question(path, question.body, body, tolerance))
    await connection.end()
    return found
