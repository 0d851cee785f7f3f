"""Rows of the fault catalogue, part G, against a server on this machine; each with its control."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from finetune.test_command import table
from maskwright.ask.predict.language_model import load
from maskwright.base import memory
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.model.inference import fill_mask
from maskwright.model.inference.generation import Generation
from maskwright.ship.serve import access, app, encoding, gate, process
from maskwright.ship.serve import host as host_module
from maskwright.ship.serve.command import serve
from maskwright.ship.serve.encoding import Options
from maskwright.ship.serve.errors import Limits, Refusal, RequestBudget
from maskwright.ship.serve.generation import GenerationJob, GenerationScheduler, _GenerationBatch
from maskwright.ship.serve.process import bind_socket
from maskwright.ship.serve.scheduler import FullError
from maskwright.ship.serve.served_model import open_all
from maskwright.text.tokenizer.tokenizer import Tokenizer
from serve.servers import Served, answers, request, server, until
from small_tasks import finetuned

pytestmark = pytest.mark.loopback

TEXT = "the cat sat on the mat"
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "big", "old", "dog", "saw", "it"]


@pytest.fixture(scope="module")
def heads(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two heads on one body."""
    folder = tmp_path_factory.mktemp("heads")
    options: dict[str, Any] = {"method": "probe", "epochs": 1, "batch": 16, "least_steps": 0}
    return {
        name: finetuned(model, table(folder / f"{task}.csv", task), folder / name, **options)
        for name, task in (("animals", "classification"), ("numbers", "regression"))
    }


LIMITS = Limits(
    max_items=8,
    max_input_characters=2_000,
    max_body_bytes=50_000,
    max_queue_tokens=4_096,
    max_wait_seconds=1.0,  # all of it in the queue: nobody waits in the line
)


@pytest.fixture(scope="module")
def plain(model: Path, models: dict[str, Path], heads: dict[str, Path]) -> Iterator[Served]:
    """What most tests ask, and leave as it is."""
    with server({**heads, "base": model, "gpt2": models["gpt2"]}, limits=LIMITS) as served:
        yield served


@pytest.fixture(scope="module")
def whole(plain: Served) -> bytes:
    """A request that is answered."""
    return request(plain.address, "/ask/predict", {"inputs": TEXT})


# ------------------------------------------------------------------------------------- answers
def test_the_device_makes_no_ids_and_no_text_of_masks(
    plain: Served, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {"encode": set(), "decode": set(), "likeliest": set()}

    def watched(name: str, function: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            threads[name].add(threading.current_thread().name)
            return function(*given, **named)

        return call

    for where, name in ((Tokenizer, "encode"), (Tokenizer, "decode"), (fill_mask, "likeliest")):
        monkeypatch.setattr(where, name, watched(name, getattr(where, name)))
    masked = ["the [MASK] sat on the mat", f"{TEXT} " * 20 + "[MASK] and the [MASK] " + TEXT * 3]
    answers = plain.ask("fill", masked, model="base")
    assert threads["likeliest"] == {"device"}, "the control: that thread is seen"
    assert threads["encode"] and threads["decode"]
    assert "device" not in threads["encode"] | threads["decode"]
    wanted = load(model, precision="float32").fill_mask(masked, long="windows")
    assert answers == [[hole.candidates[0].token for hole in holes] for holes in wanted]


def test_heads_on_one_body_hold_it_once(plain: Served) -> None:
    engines = [plain.host.model(name).engine() for name in plain.host.names]
    roots = [engine.root for engine in engines]
    assert roots[0] is roots[1] is roots[2] is not roots[3]
    weights = [engine.model.network.tokens.weight for engine in engines]
    assert weights[0] is weights[1] is weights[2]


def test_F119_an_answer_does_not_depend_on_its_neighbours(plain: Served) -> None:
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, int(n))) for n in draw.integers(1, 20, 40)]

    def ask(text: str) -> tuple[dict[str, Any], Any]:
        return plain.ask("predict", [text])["values"][0], plain.ask("embed", [text])[0]

    alone = [ask(text) for text in texts]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, texts))
    for (one, vector), (other, vector_beside) in zip(alone, together, strict=True):
        assert one["label"] == other["label"] and abs(one["score"] - other["score"]) <= 1e-6
        np.testing.assert_allclose(vector_beside, vector, atol=1e-6)
    assert len({tuple(np.round(v, 6)) for _, v in alone}) > 27, "the control: texts differ"


# -------------------------------------------------------------------------------- the body
def test_F94_a_body_that_is_too_large_is_refused_unread(plain: Served) -> None:
    head = request(plain.address, "/ask/predict", headers={"Content-Length": "300000000"})
    before, sent = memory.resident(), 0
    with plain.connect() as line:
        line.sendall(head)
        answer = next(answers(line))
        assert answer.status == 413 and answer.headers["connection"] == "close"
        with contextlib.suppress(OSError):
            while sent < 300_000_000:
                line.sendall(b"x" * 1_000_000)
                sent += 1_000_000
    assert sent < 300_000_000 and memory.resident() - before < 20_000_000
    assert answer.json["limit"] == "50000 bytes"


def chunked(address: tuple[str, int], *chunks: bytes, end: bool = True) -> bytes:
    how = {"Content-Length": "", "Transfer-Encoding": "chunked"}
    head = request(address, "/ask/predict", headers=how)
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + (b"0\r\n\r\n" if end else b"")


def test_F95_chunks_are_counted_and_lengths_are_not_believed(plain: Served, whole: bytes) -> None:
    body = json.dumps({"inputs": TEXT}).encode()
    both = {"Transfer-Encoding": "chunked"}
    for data, statuses in (
        (chunked(plain.address, body[:5], body[5:]), {200}),  # the control
        (chunked(plain.address, *[b" " * 10_000] * 6), {413}),
        (request(plain.address, "/ask/predict", {"inputs": TEXT}, headers=both), {400, 422}),
        (whole.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n", 1), {400}),
        (request(plain.address, "/ask/predict", headers={"Content-Length": ""}), {400}),
    ):
        assert plain.first(data).status in statuses, data[:300]


@pytest.mark.parametrize("kind", ["silent", "headers", "next headers", "body", "short body"])
def test_F96_slow_sockets_are_closed(
    kind: str, plain: Served, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "HEADER_SECONDS", 0.4)
    monkeypatch.setattr(process, "BODY_SECONDS", 0.4)
    head, _, _body = whole.partition(b"\r\n\r\n")
    first = {
        "silent": b"",
        "headers": whole[:20],
        "next headers": whole + whole[:20],
        "body": head + b"\r\n\r\n",
        "short body": whole[:-3],
    }[kind]
    drip = {"silent": b"", "body": b" ", "short body": b""}.get(kind, b"x")
    begin, received = time.monotonic(), b""
    with plain.connect(5.0) as line, contextlib.suppress(OSError):
        line.sendall(first)
        line.settimeout(0.05)
        while time.monotonic() - begin < 5:
            try:
                if not (data := line.recv(65_536)):
                    break
                received += data
            except TimeoutError:
                line.sendall(drip)
    assert 0.3 < time.monotonic() - begin < 4.0
    assert b" 408 " in received
    assert plain.ask("predict", TEXT)["values"], "the control: others are answered"


def test_F97_headers_and_addresses_are_bounded(plain: Served) -> None:
    for path, headers, status in (
        ("/health?" + "x" * 3_000, {}, 414),
        ("/health", {f"X-{n}": "1" for n in range(100)}, 431),
        ("/health", {"X": "y" * 20_000}, 431),
        ("/health", {}, 200),
    ):
        assert plain.get(path, **headers).status == status


TRAPS = {
    "deep": b'{"inputs":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "nan": b'{"inputs":"a","tokens":NaN}',
    "huge number": b'{"inputs":"a","tokens":1e999}',
    "digits": b'{"inputs":"a","tokens":' + b"1" * 6_000 + b"}",
    "twice": b'{"inputs":"a","inputs":"b"}',
    "torn": b'{"inputs":"a',
    "empty": b"",
    "not UTF-8": b'{"inputs":"\xff"}',
}


@pytest.mark.parametrize("trap", TRAPS)
def test_F98_traps_of_json_are_refused(trap: str, plain: Served) -> None:
    answer = plain.post("/ask/predict", data=TRAPS[trap])
    assert answer.status == 400 and answer.json["field"] == "body" and len(answer.body) <= 4_096


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Encoding": "gzip"}, 415),
    ],
)
def test_F99_only_plain_json_is_read(plain: Served, headers: dict[str, str], status: int) -> None:
    assert plain.post("/ask/predict", {"inputs": TEXT}, headers=headers).status == status


# ----------------------------------------------------------------------------------- load
class Slow:
    """Readings that wait until they may go on, and fail where a text says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may, self.batches = threading.Event(), list[int]()
        self.inside = threading.Event()
        self.fails: BaseException | None = None
        self._read = encoding.read_scores
        monkeypatch.setattr(encoding, "read_scores", self.read)

    def read(self, requests: Any) -> Any:
        self.inside.set()
        self.may.wait(10)
        self.batches.append(len(requests))
        if self.fails is not None and any(self.poisoned(each) for each in requests):
            raise self.fails
        return self._read(requests)

    @staticmethod
    def poisoned(request: Any) -> bool:
        return any("poison" in row.text for row in request.encoded.rows)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(monkeypatch)
    yield made
    made.may.set()


@contextmanager
def full_queue(served: Served) -> Iterator[None]:
    """What other bodies will bring leaves no room."""
    served.host.incoming_tokens += LIMITS.max_queue_tokens
    yield
    served.host.incoming_tokens -= LIMITS.max_queue_tokens


@pytest.fixture
def full(plain: Served) -> Iterator[None]:
    with full_queue(plain):
        yield


def test_F103_a_full_queue_answers_before_the_body_is_read(plain: Served, slow: Slow) -> None:
    body = {"inputs": ["the cat sat on the mat and " * 3] * 8}
    with ThreadPoolExecutor(40) as pool:
        sent = [pool.submit(plain.post, "/ask/predict", body) for _ in range(40)]
        assert until(lambda: any(each.done() for each in sent))
        refused = next(each.result() for each in sent if each.done())
        assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1
        assert plain.host._queue.tokens <= LIMITS.max_queue_tokens
        head = request(plain.address, "/ask/predict", headers={"Content-Length": "5000"})
        with full_queue(plain), plain.connect() as line:
            begin = time.monotonic()
            line.sendall(head)  # and never the body
            assert next(answers(line)).status == 429 and time.monotonic() - begin < 2
        slow.may.set()
        statuses = {each.result().status for each in sent}
    assert statuses == {200, 429} and until(lambda: plain.host._queue.tokens == 0)
    assert plain.ask("predict", TEXT)["values"]


@pytest.mark.parametrize("waits", [True, False])
def test_F103_clients_that_ignore_429_wait_in_the_line(
    waits: bool, plain: Served, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that ask again at once are held, unparsed; the control refuses them again and again.
    Who has left is passed over, and the others are answered in their order."""
    limits = replace(LIMITS, max_wait_seconds=20.0 if waits else 1.0)
    monkeypatch.setattr(plain.host, "limits", limits)
    parsed = list[bytes]()
    monkeypatch.setattr(
        gate, "_parse", lambda body, read=gate._parse: parsed.append(body) or read(body)
    )
    statuses, stop = list[int](), threading.Event()

    def client() -> None:
        while not stop.is_set():
            statuses.append(plain.post("/ask/predict", {"inputs": TEXT}).status)

    with ThreadPoolExecutor(4) as pool, connections(plain, 1) as (left,):
        with full_queue(plain):
            left.sendall(whole)
            sent = [pool.submit(client) for _ in range(4)]
            if waits:
                assert until(lambda: len(plain.host.waiting_line) == 5)
                assert "mw_line_requests 5" in plain.metrics()
                left.close()
            is_refused = until(lambda: statuses.count(429) > 20, 0.5 if waits else 10)
            assert is_refused is not waits and not parsed
            stop.set()
        for each in sent:
            each.result()
    assert statuses == [200] * 4 or not waits
    assert until(lambda: plain.open_requests() == 0) and len(plain.host.waiting_line) == 0


@contextmanager
def connections(served: Served, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(served.connect(5.0)) for _ in range(count)]


@pytest.mark.parametrize("kind", ["announced", "begun", "chunked"])
def test_F96_bodies_that_do_not_come_take_no_room(kind: str, plain: Served) -> None:
    """300 of them. The control is a body that has come, which counts."""
    size = {"Content-Length": str(LIMITS.max_body_bytes)}
    first = {
        "announced": request(plain.address, "/ask/predict", headers=size),
        "begun": request(plain.address, "/ask/predict", headers=size, data=b" " * 30_000),
        "chunked": chunked(plain.address, b" " * 30_000, end=False),
    }[kind]
    with connections(plain, 300) as lines:
        for line in lines:
            line.sendall(first)
        assert until(lambda: plain.open_requests() >= 300)
        assert plain.host.incoming_tokens == 0
        assert plain.post("/ask/predict", {"inputs": TEXT}).status == 200
    assert until(lambda: plain.open_requests() == 0)


@pytest.mark.parametrize(("tokens", "status"), [(4_000, 429), (8_000, 200)])
def test_a_large_body_keeps_nobody_out_while_it_is_read(
    tokens: int, status: int, plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that may never fit into the queue waits for its turn; the control is one that fits."""
    read, inside, may = gate._parse, threading.Semaphore(0), threading.Event()

    def parse(body: bytes) -> Any:
        if len(body) > 10_000:
            inside.release()
            may.wait(10)
        return read(body)

    monkeypatch.setattr(gate, "_parse", parse)
    monkeypatch.setattr(gate, "LARGE_JSON", 10_000)
    assert 4_000 < LIMITS.max_queue_tokens < 8_000
    body = b'{"inputs": ""' + b" " * 5 * tokens + b"}"
    large = request(plain.address, "/ask/predict", data=body)
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(plain.raw, large, 1.0) for _ in range(2)]
        assert inside.acquire(timeout=5)
        both = inside.acquire(timeout=0.2)
        found = plain.post("/ask/predict", {"inputs": TEXT}).status
        may.set()
        assert {each.result()[0].status for each in sent} <= {422, 429}
    assert found == status and not (both and status == 200)
    assert until(lambda: plain.host.incoming_tokens == 0) and not plain.host.large_request.locked()


@pytest.mark.parametrize("makes_room", [True, False])
def test_F96_connections_that_are_waited_for_make_room(
    makes_room: bool, plain: Served, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight that send nothing, a part of a head, and a part of a body; the control keeps them."""
    assert until(lambda: plain.open_connections() == 0)
    monkeypatch.setattr(plain.protocol, "max_connections", 8)
    monkeypatch.setattr(process, "HOLD_SECONDS", 0.2)
    if not makes_room:
        monkeypatch.setattr(plain.protocol, "_make_room", lambda self, waiting: False)
    with connections(plain, 8) as lines:
        for number, line in enumerate(lines):
            line.sendall([b"", whole[:20], whole[:-5]][number % 3])
        assert until(lambda: plain.open_connections() == 8)
        time.sleep(0.05)
        begin = time.monotonic()
        answer = plain.post("/ask/predict", {"inputs": TEXT})
        assert answer.status == (200 if makes_room else 503)
        assert makes_room or time.monotonic() - begin > 0.15, "who connects again at once waits"
        if makes_room:
            assert next(answers(lines[0])).status == 503, "the one that was waited for longest"
            lines[2].sendall(whole[-5:])
            assert next(answers(lines[2])).status == 200, "the control: the others stay"


def test_F96_unfinished_bodies_hold_a_bounded_number_of_bytes(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "COMING_BYTES", 100_000)
    body = json.dumps({"inputs": TEXT}).encode() + b" " * 44_000
    padded = request(plain.address, "/ask/predict", data=body)
    with connections(plain, 3) as lines:
        for line in lines:
            line.sendall(padded[:-1_000])
            time.sleep(0.05)
        assert next(answers(lines[0])).status == 503
        for line in lines[1:]:
            line.sendall(padded[-1_000:])
            assert next(answers(line)).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "elsewhere.example"}, 421),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Length": "300000000"}, 413),
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Transfer-Encoding": "chunked", "Content-Length": ""}, 429),
        ({"Connection": "close"}, 429),
        ({"Bad header": "x"}, 400),
    ],
)
def test_F103_what_else_is_wrong_is_said_as_ever(
    headers: dict[str, str], status: int, plain: Served, full: None
) -> None:
    assert plain.post("/ask/predict", {"inputs": TEXT}, headers=headers).status == status


def test_F103_a_connection_that_was_refused_asks_again(plain: Served, whole: bytes) -> None:
    with plain.connect() as line:
        received = answers(line)
        with full_queue(plain):
            line.sendall(whole[:-4])
            assert next(received).status == 429
        for data in (whole[-4:] + whole, whole):
            line.sendall(data)
            assert next(received).status == 200


def test_F96_a_body_that_nobody_wants_has_a_deadline(
    plain: Served, whole: bytes, full: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "BODY_SECONDS", 0.3)
    begin = time.monotonic()
    assert [each.status for each in plain.raw(whole[:-4], 10.0)] == [429]
    assert 0.2 < time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "fault", [RuntimeError("boom"), MemoryError(), SystemExit(3), KeyboardInterrupt()]
)
def test_F104_F106_one_poisonous_request_touches_no_other(
    fault: BaseException, plain: Served, slow: Slow
) -> None:
    slow.fails = fault
    texts = [TEXT] * 31 + ["the poison"]
    with ThreadPoolExecutor(33) as pool:
        first = pool.submit(plain.post, "/ask/predict", {"inputs": TEXT})
        assert slow.inside.wait(10)
        sent = [pool.submit(plain.post, "/ask/predict", {"inputs": text}) for text in texts]
        assert until(lambda: len(plain.host._queue) == 32), "all wait while the first is computed"
        slow.may.set()
        statuses = [each.result().status for each in sent]
    assert statuses == [200] * 31 + [500] and first.result().status == 200
    assert max(slow.batches) > 8, "they were in one batch"
    assert b"boom" not in sent[-1].result().body and plain.host.alive


def test_F104_a_prompt_that_fails_ends_no_other(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are written together are begun again alone; each text is as it would have been."""
    prompts = ["the cat", "a dog saw the", "the old cat sat", "on the mat"]
    wanted = [plain.ask("generate", [p], model="gpt2", tokens=8)[0] for p in prompts]
    step, add, together = Generation.step, Generation.add, list[int]()
    poisoned = set[int]()

    def added(self: Generation, prompt: Any) -> int:
        if prompt.settings.tokens == 7:
            poisoned.add(id(self))
        return add(self, prompt)

    def fails(self: Generation) -> Any:
        together.append(self.rows)
        time.sleep(0.02)
        if id(self) in poisoned:
            raise SystemExit(1)
        return step(self)

    monkeypatch.setattr(Generation, "step", fails)
    monkeypatch.setattr(Generation, "add", added)

    def ask(prompt: str, tokens: int) -> Any:
        body = {"inputs": prompt, "model": "gpt2", "tokens": tokens}
        return plain.post("/ask/generate", body)

    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(ask, prompt, 8) for prompt in prompts]
        bad = pool.submit(ask, "the dog", 7)
        found = [each.result() for each in sent]
    assert bad.result().status == 500 and max(together) > 1
    assert [each.json[0] for each in found] == wanted


@pytest.mark.parametrize("stays", [True, False])
def test_F105_a_client_that_closes_its_side_gets_its_answer(
    stays: bool, plain: Served, whole: bytes, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 that send nothing more, two requests each, answered after the interim answer. The control
    closes with the client, as uvicorn does."""
    if not stays:
        monkeypatch.setattr(process.HttpConnection, "eof_received", lambda self: None)
    with connections(plain, 20) as lines:
        for line in lines:
            line.sendall(whole * 2)
            line.shutdown(socket.SHUT_WR)
        assert slow.inside.wait(10 if stays else 1) or not stays
        time.sleep(2.5 * process.READER_SECONDS)
        slow.may.set()
        statuses = [[each.status for each in answers(line)] for line in lines]
    assert statuses == [[200, 200] if stays else []] * 20
    assert until(lambda: plain.open_connections() == 0)


@pytest.mark.parametrize(("cut", "status"), [(-3, [400]), (20, [400]), (0, [])])
def test_F105_a_part_of_a_request_is_not_answered(
    cut: int, status: list[int], plain: Served, whole: bytes
) -> None:
    with plain.connect(5.0) as line:
        line.sendall(whole[:cut])
        line.shutdown(socket.SHUT_WR)
        assert [each.status for each in answers(line)] == status


def test_F105_a_client_that_leaves_is_not_computed_for(
    plain: Served, whole: bytes, slow: Slow
) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(plain.first, whole)
        assert slow.inside.wait(10)
        with connections(plain, 30) as lines:
            for line in lines:
                line.sendall(whole)
            assert until(lambda: len(plain.host._queue) == 30)
        assert until(lambda: len(plain.host._queue) == 0), "they are taken out of the queue"
        slow.may.set()
        assert first.result().status == 200
    assert until(lambda: plain.open_requests() == 0)
    assert sum(slow.batches) == 1, "nothing was computed for them"
    metrics = plain.metrics()
    assert re.search(r"^mw_disconnects_total [1-9]", metrics, re.M) and 'status="0"' not in metrics


def test_F105_a_reader_who_leaves_ends_what_is_written(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = Generation.step, list[int]()

    def slowly(self: Generation) -> Any:
        time.sleep(0.1)
        steps.append(self.rows)
        return step(self)

    monkeypatch.setattr(Generation, "step", slowly)
    body = {"inputs": "the cat", "model": "gpt2", "tokens": 50}
    with plain.connect() as line:
        line.sendall(request(plain.address, "/ask/stream", body))
        assert until(lambda: plain.host._generation.num_running == 1)
        line.recv(10)
    assert until(lambda: not plain.host._generation.ready()) and len(steps) < 50
    assert until(lambda: plain.open_requests() == 0)


@pytest.fixture(scope="module")
def writes(small_task: Callable[..., Path], models: dict[str, Path]) -> Iterator[Served]:
    """A task whose answers are written, beside a model that writes; few of its rows fit at once."""
    folders = {"rewrites": small_task("sequence-to-sequence", longest=12), "gpt2": models["gpt2"]}
    with server(folders, limits=Limits(max_writing_tokens=64)) as served:
        yield served


@pytest.mark.parametrize("how", ["leaves", "deadline", "control"])
def test_F105_a_task_that_writes_ends_when_nobody_waits(
    writes: Served, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    rewritten = {"model": "rewrites", "rows": [TEXT]}
    whole = writes.post("/v1/predict", rewritten).json["answers"]
    alone = writes.ask("generate", "a dog", model="gpt2", tokens=6)
    step, steps, task = _GenerationBatch.step, list[bool](), writes.host.model("rewrites").engine()

    def slowly(self: _GenerationBatch) -> Any:
        time.sleep(0.03)
        steps.append(self.engine is task)
        return step(self)

    monkeypatch.setattr(_GenerationBatch, "step", slowly)
    if how == "control":
        monkeypatch.setattr(GenerationScheduler, "cancel", lambda self, rows: None)
    # Several parts, so that some rows wait while others are written.
    rows = [f"{TEXT} {'and then ' * n}" for n in range(1, 5)]
    body = {"inputs": rows, "model": "rewrites", "deadline": 0.4 if how == "deadline" else None}
    writers, line = writes.host._generation, writes.connect()
    monkeypatch.setattr(encoding, "PART_ROWS", 1)
    with line, ThreadPoolExecutor(1) as pool:
        line.sendall(request(writes.address, "/ask/predict", body))
        assert until(lambda: writers.num_running > 0 and writers.waiting_tokens > 0)
        other = pool.submit(writes.ask, "generate", "a dog", model="gpt2", tokens=6)
        assert until(lambda: writes.open_requests() == 2)
        assert until(lambda: sum(steps) > 2), "it is in the middle of its answers"
        if how == "deadline":
            assert next(answers(line)).status == 408
        else:
            line.close()
        assert until(lambda: writes.open_requests() < 2)
        begun = len(steps)
        assert other.result() == alone, "who writes beside it goes on"
    assert until(lambda: not writers.ready())
    after = sum(steps[begun:])
    assert (after > 8) if how == "control" else (after <= 3), (after, sum(steps), len(steps))
    assert writers.num_running == writers.tokens == writers.waiting_tokens == 0
    assert until(lambda: writes.open_requests() == 0)
    monkeypatch.setattr(_GenerationBatch, "step", step)
    answer = writes.post("/v1/predict", rewritten)
    assert answer.json["answers"] == whole, "the server goes on"


def test_rows_that_wait_hold_no_room_once_they_are_given_up(writes: Served) -> None:
    """Even behind a row that cannot begin yet."""
    asking = writes.host.model("gpt2").engine()
    first, second, *later = (
        GenerationJob(asking, None, None, 5, n, streams=False) for n in (10, 50, 45, 45)
    )
    writers = GenerationScheduler(50, 100, lambda function: function())
    writers.submit([first, second])
    with pytest.raises(FullError):
        writers.submit(later)
    writers.cancel([second])
    assert writers.waiting_tokens == first.tokens == 10
    writers.submit(later)
    writers.cancel([first, *later])
    assert not writers.ready()


def test_a_deadline_ends_what_nobody_waits_for(plain: Served, slow: Slow) -> None:
    answer = plain.post("/ask/predict", {"inputs": TEXT, "deadline": 0.2})
    assert answer.status == 408
    slow.may.set()
    assert until(lambda: len(plain.host._queue) == 0)


# ------------------------------------------------------------------------------------ life
@pytest.mark.parametrize(
    ("seconds", "refused"),
    [(0.0, False), (LIMITS.deadline - 1, False), (LIMITS.deadline + 1, True)],
)
def test_a_deadline_is_that_of_the_whole_request(
    seconds: float, refused: bool, plain: Served
) -> None:
    async def ask() -> Any:
        budget = RequestBudget(LIMITS)
        budget.began -= seconds
        host_module.BUDGET.set(budget)
        return (await plain.host.predict("animals", [TEXT], Options())).values

    asked = asyncio.run_coroutine_threadsafe(ask(), plain.host._loop)
    with pytest.raises(Refusal) if refused else nullcontext() as refusal:
        assert asked.result()
    assert refusal is None or refusal.value.kind == "timeout"


def test_F107_a_server_is_ready_when_its_models_have_answered(heads: dict[str, Path]) -> None:
    may = threading.Event()

    def load_late() -> None:
        may.wait(20)
        served.host.load(open_all({"animals": heads["animals"]}, {}, "float32"))

    with server({}, load=load_late) as served:
        assert until(lambda: served.get("/health").status == 200)
        assert served.get("/ready").status == 503
        refused = served.post("/ask/predict", {"inputs": TEXT})
        assert refused.status == 503 and "retry-after" in refused.headers
        may.set()
        assert until(lambda: served.get("/ready").status == 200)
        assert served.ask("predict", TEXT)["values"]


def test_F107_a_device_that_is_stuck_is_not_ready(
    plain: Served, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(plain.post, "/ask/predict", {"inputs": TEXT})
        assert slow.inside.wait(10) and plain.get("/ready").status == 200
        with monkeypatch.context() as patch:
            patch.setattr(plain.host, "limits", replace(LIMITS, deadline=0.001))
            assert until(lambda: plain.get("/ready").status == 503)
            assert plain.get("/health").status == 200
        slow.may.set()
        assert answer.result().status == 200 and plain.get("/ready").status == 200


def test_F107_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError), server({"none": tmp_path}):
        pass


def test_F108_a_stop_loses_no_request(heads: dict[str, Path]) -> None:
    """Clients that ask again and again, while the server is stopped: each gets an answer to what
    it asked, or the connection was closed after an answer that said so."""
    lost, answered, stop = list[str](), list[int](), threading.Event()

    def client(served: Served, whole: bytes) -> None:
        with contextlib.suppress(ConnectionRefusedError), served.connect() as line:
            received = answers(line)
            while not stop.is_set():
                try:
                    line.sendall(whole)
                    answer = next(received)
                except (OSError, StopIteration) as error:
                    lost.append(repr(error))
                    return
                answered.append(answer.status)
                if answer.headers.get("connection") == "close":
                    return

    with server({"animals": heads["animals"]}) as served:
        asked = served, request(served.address, "/ask/predict", {"inputs": TEXT})
        threads = [threading.Thread(target=client, args=asked) for _ in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
    for thread in threads:
        thread.join(10)
    stop.set()
    assert lost == [] and answered.count(200) > 16
    with pytest.raises(OSError):
        served.connect(1.0)


def test_F109_a_port_in_use_names_the_process() -> None:
    with bind_socket("127.0.0.1", 0) as first, pytest.raises(UsageError) as caught:
        bind_socket("127.0.0.1", first.getsockname()[1])
    assert str(os.getpid()) in str(caught.value.found)
    with pytest.raises(UsageError, match="--host"):
        bind_socket("192.0.2.1", 0)


def test_F110_no_label_is_a_clients_and_names_are_bounded(plain: Served) -> None:
    plain.ask("predict", TEXT)
    before = {line.split(" ")[0] for line in plain.metrics().splitlines()}
    for n in range(20):
        plain.post(f"/ask/none{n}", {"inputs": TEXT})
        plain.post("/ask/predict", {"inputs": f"unheard{n}", "model": f"unheard{n}"})
        plain.get(f"/health?unheard{n}", X_Name=f"unheard{n}")
    text = plain.metrics()
    after = {line.split(" ")[0] for line in text.splitlines()}
    assert "unheard" not in text and len(after - before) < 20
    for name in ("mw_queue_tokens", "mw_batch_tokens_bucket", "mw_batch_fill", "te_request_count"):
        assert re.search(rf"^{name}\S* \d", text, re.M), name
    # A reader of the format refuses all of it where two families have one name.
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    assert len(dict(families)) == len(families)
    parts = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
    names = {name + part for name, kind in families for part in parts[kind]}
    sample = r'([a-z_]+)(\{([a-z]+="[^"\\\n]*",?)+\})? (\d\S*)'
    samples = [re.fullmatch(sample, line) for line in text.splitlines() if line[0] != "#"]
    counted_later = {"mw_ignored_fields"}  # families that have no samples yet
    assert names - counted_later <= {each and each[1] for each in samples} <= names


# ------------------------------------------------------------------------------- other sites
def test_F111_pages_have_no_sink_and_a_policy(plain: Served) -> None:
    answer = plain.get("/docs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "script" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    page = answer.body.decode()
    assert not re.search(r"<script|\son\w+=|(src|href)=.https?:", page)
    assert re.findall("<strong>(.*)</strong>", page) == plain.get("/ready").json["models"]
    assert "<code>/ask/predict</code>" in page and "-d '{&#34;inputs&#34;: &#34;a text" in page
    assert plain.get("/docs/docs.css").headers["content-type"].startswith("text/css")
    error = plain.post("/ask/predict", {"inputs": TEXT, "model": "<script>alert(1)</script>"})
    assert error.headers["content-type"] == "application/json"


def test_a_browser_gets_the_pages_of_the_models(plain: Served) -> None:
    sent_on = plain.get("/", accept="text/html,application/xhtml+xml")
    assert (sent_on.status, sent_on.headers["location"]) == (307, "/explore/")
    assert "location" not in plain.get("/", accept="*/*").headers  # what a dialect has there
    page = plain.get("/explore/")
    assert page.status == 200 and b"app.js" in page.body
    assert "script-src 'self'" in page.headers["content-security-policy"]
    site = plain.get("/explore/data/site.json").json
    base = next(each for each in site["models"] if each["name"].startswith("base"))
    facts = plain.get(f"/explore/{base['folder']}/model.json").json
    assert facts["config"]["tokens"]["vocabulary"] > 0
    for path in ("../app.py", "%2e%2e/app.py", "data/models/99/model.json"):
        assert plain.get(f"/explore/{path}").status == 404


def test_F117_a_page_is_not_told_where_a_model_lies(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = plain.host.model("base").folder
    told = (409, "text/plain", f"no such folder\n  where: {folder}/config.json".encode())
    monkeypatch.setattr(app, "file_response", lambda site, path: told)
    assert plain.get("/explore/index.html").body == b"no such folder\n  where: base/config.json"
    # A folder may be called as any word of an answer: only what is refused, and whole paths.
    places = property(lambda served: Path("e" if served.name == "base" else "f"))
    monkeypatch.setattr(type(plain.host.model("base")), "folder", places)
    refused = {"what": "no e", "where": f"{Path('e').absolute()}/config.json", "found": None}
    for made, wanted in (
        ({"tokens": ["e"], "case": str(Path("e").absolute())}, None),
        ({"refused": refused}, {"refused": {**refused, "where": "base/config.json"}}),
    ):
        found = (200, "application/json", json.dumps(made).encode())
        monkeypatch.setattr(app, "question_response", lambda *_, found=found: found)
        assert plain.post("/explore/ask/corruption", {}).json == (wanted or made)


def test_the_server_answers_while_a_page_waits(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, free = threading.Event(), threading.Event()

    def slow(*_: object) -> tuple[int, str, bytes]:
        held.set()
        free.wait(20)
        return 200, "application/json", b"{}"

    monkeypatch.setattr(app, "question_response", slow)
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(plain.post, "/explore/ask/corruption", {}) for _ in range(2)]
        assert held.wait(20)
        assert plain.get("/health").status == 200
        assert plain.post("/ask/predict", {"inputs": TEXT}).status == 200
        assert not any(each.done() for each in waits)
        free.set()
        assert [each.result(20).json for each in waits] == [{}, {}]


def test_F112_F113_pages_of_other_sites_may_not_ask(heads: dict[str, Path], plain: Served) -> None:
    def status(served: Served, **headers: str) -> int:
        answer = served.post("/ask/predict", {"inputs": TEXT}, headers=headers)
        assert "access-control-allow-credentials" not in answer.headers
        return answer.status

    own = f"http://{plain.address[0]}:{plain.address[1]}"
    assert status(plain, Origin=own) == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", own + ".evil.example"):
        assert status(plain, Origin=origin) == 403
    assert status(plain, Sec_Fetch_Site="cross-site") == 403
    assert status(plain, Sec_Fetch_Site="same-origin") == 200
    assert plain.get("/ask/predict", "OPTIONS", Origin="http://evil.example").status == 403
    good = "https://good.example"
    with server({"animals": heads["animals"]}, origins=(good,)) as served:
        answer = served.post("/ask/predict", {"inputs": TEXT}, headers={"Origin": good})
        asks = {"Origin": good, "Access_Control_Request_Method": "POST"}
        before = served.get("/ask/predict", "OPTIONS", **asks)
        assert (answer.status, before.status) == (200, 204)
        for each in (answer, before):
            assert each.headers["access-control-allow-origin"] == good
        assert "*" in before.headers["access-control-allow-headers"]  # clients have their own
        assert before.headers["vary"] == "Origin"
        assert status(served, Origin="https://evil.example") == 403


@pytest.mark.parametrize(
    ("status", "hosts"),
    [
        (200, ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[0:0::1]"]),
        (421, ["evil.example", "localhost.", "localhost.evil.example", "0.0.0.0", "[::1"]),
        (421, ["127.0.0.1:80:80", "127.0.0.1@evil.example"]),
        (400, [""]),
    ],
)
def test_F114_only_its_own_names_are_answered(hosts: list[str], status: int, plain: Served) -> None:
    for host in hosts:
        assert plain.get("/docs", Host=host).status == status, host
        if host:  # a probe names the address of a container, or a service
            assert {plain.get(path, Host=host).status for path in OPEN_PATHS} == {200}, host


OPEN_PATHS = ("/health", "/ready", "/metrics")


@pytest.mark.parametrize(
    ("listens", "host", "allowed"),
    [
        ("0.0.0.0", "10.1.2.3:8000", True),
        ("[::]", "[fd00::5]", True),
        ("0.0.0.0", "evil.example", False),
        ("10.0.0.5", "10.1.2.3", False),
    ],
)
def test_F114_a_server_on_all_addresses_answers_to_each(
    listens: str, host: str, allowed: bool
) -> None:
    """`--host 0.0.0.0 --insecure`: an address is no name that a page could be rebound to."""
    policy = access.AccessPolicy(hosts=(access.as_host(listens),))
    with nullcontext() if allowed else pytest.raises(Refusal):
        policy.require_access({"method": "GET", "path": "/docs"}, {b"host": [host.encode()]})


HOSTS_THAT_ARE_NONE = ("http://a.example", "a.example:80", "bücher.de", "")
SITES_THAT_ARE_NONE = ("a.example", "*", "null", "https://a.example/page", "https://u@a.example")


@pytest.mark.parametrize(
    ("normalise", "text", "expected"),
    [
        (access.as_host, "Models.example.org", "models.example.org"),
        (access.as_host, "FD00:0::5", "[fd00::5]"),
        (access.as_host, "[::1]", "[::1]"),
        (access.as_host, "10.0.0.5", "10.0.0.5"),
        (access.as_host, "*", "*"),
        *((access.as_host, host, None) for host in HOSTS_THAT_ARE_NONE),
        (access.as_origin, "https://A.example/", "https://a.example"),
        (access.as_origin, "http://a.example:80", "http://a.example"),
        (access.as_origin, "http://localhost:3000", "http://localhost:3000"),
        *((access.as_origin, site, None) for site in SITES_THAT_ARE_NONE),
    ],
)
def test_F112_F114_names_and_sites_are_listed_as_requests_give_them(
    normalise: Callable[[str], str], text: str, expected: str | None
) -> None:
    with nullcontext() if expected else pytest.raises(UsageError, match="--allowed"):
        assert normalise(text) == expected


def test_a_name_that_no_request_can_give_is_refused() -> None:
    for name in ("org/model", "v1", "explore", "..", "a\x1b[31m", " a", "a\udcff", "a\nb"):
        with pytest.raises(UsageError) as caught:
            serve(names={name: "folder"}, port=0)
        assert caught.value.where == "the name of a model"
        assert str(caught.value).isascii() and "\x1b" not in str(caught.value)
    for options in ({"host": "", "port": 0}, {"port": -1}, {"port": 70_000}):
        with pytest.raises(UsageError) as caught:
            serve("folder", **options)
        assert caught.value.where in ("--host", "--port")


def test_F116_without_the_token_only_probes_answer(heads: dict[str, Path]) -> None:
    with server({"animals": heads["animals"]}, token="right-token") as served:
        routers = served.running._server.gate.application.routers
        routes = [route for router, _ in routers for route in router.routes]
        assert len(routes) > 8
        for route in routes:
            for method in getattr(route, "methods", ()):
                path = getattr(route, "path", "").replace("{name}", "x")
                for header in ("", "Bearer wrong-token", "Basic right-token", "Bearer "):
                    how = {"Authorization": header}
                    answer = served.post(path, {"inputs": TEXT}, method=method, headers=how)
                    is_probe = path in OPEN_PATHS and method == "GET"
                    assert answer.status == (200 if is_probe else 401), (path, header)
        right = {"Authorization": "Bearer right-token"}
        assert served.post("/ask/predict", {"inputs": TEXT}, headers=right).status == 200
        assert served.get("/nowhere").status == 401, "not even which paths there are"
        assert "right-token" not in served.log.getvalue()


@pytest.mark.parametrize("path", ["/ask/fail", "/ask/embed"])  # called directly, and by the router
def test_an_http_error_of_a_route_is_rendered_by_its_dialect(plain: Served, path: str) -> None:
    answer = plain.post(path, {"inputs": "absent"})
    assert (answer.status, answer.json["kind"]) == (404, "not_found")


def test_F117_nothing_leaks_and_the_log_has_no_text(plain: Served) -> None:
    answer = plain.post("/ask/fail", {"inputs": "confidential"}, headers={"X-Request-Id": "a\x1bb"})
    assert answer.status == 500 and str(Path.home()) not in answer.body.decode()
    for text in (answer.body.decode(), plain.log.getvalue()):
        assert not re.search(r"Traceback|confidential|secret|\x1b", text)

    def lines() -> dict[str, Any]:
        """Those of this request, by event."""
        logged = map(json.loads, plain.log.getvalue().splitlines())
        own = answer.headers["x-request-id"]
        return {each["event"]: each for each in logged if each["request"] == own}

    assert until(lambda: lines().keys() == {"failure", "request"})
    assert lines()["failure"]["error"] == "RuntimeError"


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("request_id", "trace", "kept"),
    [
        ("7f3c:a/b-1", TRACE, True),
        ("x" * 129, TRACE[:-1], False),
        ("a b", TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), False),
    ],
)
def test_ids_of_the_client_are_kept_and_a_request_is_counted_by_model_and_route(
    request_id: str, trace: str, kept: bool, plain: Served
) -> None:
    def value(name: str) -> float:
        match = re.search(rf"^{re.escape(name)} (\S+)$", plain.metrics(), re.M)
        return float(match[1]) if match else 0.0

    labels = 'model="animals",route="/ask/predict"'
    names = (f'mw_requests_total{{{labels},status="200"}}', f"mw_route_seconds_count{{{labels}}}")
    before = [value(name) for name in (*names, "te_predict_count", "te_predict_success")]
    body = {"inputs": [TEXT, TEXT], "model": "animals"}
    headers = {"X-Request-Id": request_id, "Traceparent": trace}
    answer = plain.post("/ask/predict", body, headers=headers)
    own = answer.headers["x-request-id"]
    assert (own == request_id) is kept and (answer.headers.get("traceparent") == trace) is kept
    assert until(lambda: f'"request": "{own}"' in plain.log.getvalue())
    line = next(
        x for x in map(json.loads, plain.log.getvalue().splitlines()) if x["request"] == own
    )
    assert (line["model"], line["tokens"]) == ("animals", sum(answer.json["tokens"]))
    assert (
        line["queue"] >= 0
        and line["compute"] > 0
        and (line["trace"] == trace) is kept
        and line["caller"] is None
    )
    after = [value(name) for name in (*names, "te_predict_count", "te_predict_success")]
    assert np.subtract(after, before).tolist() == [1, 1, 2, 2]


def test_a_log_that_cannot_be_written_hurts_no_request(
    plain: Served, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a reader of the lines that has gone: the connection goes on."""
    log, closed = plain.running._server.gate.log, io.StringIO()
    closed.close()
    monkeypatch.setattr(log, "_stream", closed)
    with plain.connect() as line:
        received = answers(line)
        for _ in range(3):
            line.sendall(whole)
            assert next(received).status == 200
    assert until(lambda: log.lost >= 3)
    assert re.search(r"^mw_lost_log_lines [3-9]", plain.metrics(), re.M)


POST = b"POST /ask/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
LOCAL = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
RAW = {
    "no HTTP": (b"hello\r\n\r\n", 400),
    "binary": (bytes(range(256)) * 3, 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    "length with a sign": (POST + b"Content-Length: +5\r\n\r\nhello", 400),
    "bad chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    "space before the colon": (b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
    "two hosts": (GET + b"Host: 127.0.0.1\r\n\r\n", 400),
    "target of another site": (b"GET http://evil.example/health" + LOCAL, 400),
    "target without a slash": (b"GET @evil" + LOCAL, 400),
    "target with two slashes": (b"GET //health" + LOCAL, 400),
    "target of a server": (b"GET *" + LOCAL, 400),
    "target above the root": (b"GET /%2e%2e/health" + LOCAL, 404),
    "file above the pages": (b"GET /docs/%2e%2e%2fapp.py" + LOCAL, 404),
    "file above them, plainly": (b"GET /docs/../app.py" + LOCAL, 404),
    "file that is none of the pages": (b"GET /docs/x" + LOCAL, 404),
    "TRACE": (b"TRACE /health" + LOCAL, 405),
    "DELETE": (b"DELETE /ask/predict" + LOCAL, 405),
    "1.0": (b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
    "0.9": (b"GET /health\r\n\r\n", 400),
    "2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "upgrade": (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
    "HEAD": (b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
}


@pytest.mark.parametrize("name", RAW)
def test_F115_F118_F120_raw_requests_get_one_answer(name: str, plain: Served) -> None:
    data, status = RAW[name]
    (answer,) = plain.raw(data, 0.5)
    assert answer.status == status
    assert ("allow" in answer.headers) is (status == 405)


def test_F120_pipelined_requests_are_answered_in_order(plain: Served) -> None:
    bodies = [{"inputs": "the " * n} for n in (1, 3, 5, 7)]
    data = b"".join(request(plain.address, "/ask/predict", body) for body in bodies)
    found = plain.raw(data, 1.0)
    assert [answer.json["tokens"] for answer in found] == [[3], [5], [7], [9]]


def test_F121_a_model_is_swapped_under_load(heads: dict[str, Path]) -> None:
    wanted = {repr(load(each, precision="float32").predict([TEXT])[0]) for each in heads.values()}
    received, stop = list[tuple[int, str, str]](), threading.Event()

    def client() -> None:
        while not stop.is_set():
            answer = served.post("/ask/predict", {"inputs": TEXT})
            value = repr(answer.json["values"][0]) if answer.status == 200 else ""
            received.append((answer.status, value, answer.headers["x-model-id"]))

    with server({"one": heads["animals"]}) as served:
        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(6):
            served.host.swap("one", heads["numbers" if n % 2 == 0 else "animals"])
            time.sleep(0.05)
        with pytest.raises(MaskwrightError):
            served.host.swap("one", heads["animals"].parent / "none")
        with pytest.raises(UsageError):
            served.host.swap("two", heads["animals"])
        stop.set()
        for thread in threads:
            thread.join(10)
    assert {status for status, _, _ in received} == {200}
    assert len(wanted) == 2 and {value for _, value, _ in received} == wanted
    assert len({(value, model) for _, value, model in received}) == 2, "the answer names its model"
