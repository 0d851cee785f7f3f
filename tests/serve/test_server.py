"""Rows of the fault catalogue, part G, against a server on this machine; each with its control."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from finetune.test_command import table
from maskwright.ask.predict.language_model import load
from maskwright.base import memory
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.learn.finetune.command import finetune_file
from maskwright.model.inference import fill_mask
from maskwright.model.inference.generation import Generation
from maskwright.model.opening.open import open_model
from maskwright.ship.explore.corruption import CorruptionRequest, QueryableModel, prepare_row
from maskwright.ship.serve import access, app, encoding, gate, process
from maskwright.ship.serve import host as host_module
from maskwright.ship.serve.command import serve
from maskwright.ship.serve.errors import Limits, Refusal, RequestBudget
from maskwright.ship.serve.generation import GenerationJob, GenerationScheduler, _GenerationBatch
from maskwright.ship.serve.host import Options
from maskwright.ship.serve.scheduler import FullError
from maskwright.text.tokenizer.tokenizer import Tokenizer
from serve.servers import Served, answers, request, server, until

pytestmark = pytest.mark.loopback

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def heads(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two heads on one body, and an adapter on it."""
    folder = tmp_path_factory.mktemp("heads")
    found = {}
    for name, task, method in (
        ("animals", "classification", "probe"),
        ("numbers", "regression", "probe"),
        ("turned", "classification", "lora"),
    ):
        data = table(folder / f"{task}.csv", task)
        options: dict[str, Any] = {"method": method, "seeds": 1, "epochs": 1, "batch": 16}
        finetune_file(model, data, folder / name, stream=io.StringIO(), **options)
        found[name] = folder / name
    return found


LIMITS = Limits(
    max_items=8, max_input_characters=2_000, max_body_bytes=50_000, max_queue_tokens=4_096
)


@pytest.fixture(scope="module")
def plain(model: Path, models: dict[str, Path], heads: dict[str, Path]) -> Iterator[Served]:
    """What most tests ask, and leave as it is."""
    given = {"animals": heads["animals"], "numbers": heads["numbers"], "base": model}
    given["gpt2"] = models["gpt2"]
    with server(given, {"turned": heads["turned"]}, LIMITS) as made:
        yield made


# ------------------------------------------------------------------------------------- answers
def test_answers_are_those_of_the_library(
    plain: Served, model: Path, models: dict[str, Path], heads: dict[str, Path]
) -> None:
    texts = [TEXT, "a big dog saw the old cat", "the dog"]
    own = {name: load(folder, precision="float32") for name, folder in heads.items()}
    assert plain.ask("predict", texts)["values"] == own["animals"].predict(texts)
    assert plain.ask("predict", texts, model="numbers")["values"] == own["numbers"].predict(texts)
    assert plain.ask("predict", texts, adapter="turned")["values"] == own["turned"].predict(texts)
    base = load(model, precision="float32")
    found = plain.ask("embed", texts, model="base")
    np.testing.assert_allclose(found, base.embed(texts), atol=1e-6)
    masked = [f"the [MASK] sat on {text}" for text in texts]
    wanted = [[hole.candidates[0].token for hole in holes] for holes in base.fill_mask(masked)]
    assert plain.ask("fill", masked, model="base") == wanted
    writer = load(models["gpt2"], precision="float32")
    prompts = ["the cat", "a dog saw"]
    written = writer.generate(prompts, tokens=6, temperature=0.0)
    found = plain.ask("generate", prompts, model="gpt2", tokens=6)
    assert [p + f for p, f in zip(prompts, found, strict=True)] == written
    streamed = plain.post("/ask/stream", {"inputs": prompts[0], "model": "gpt2", "tokens": 6})
    assert "".join(map(json.loads, streamed.body.splitlines())) == found[0]


def test_the_device_makes_no_ids_and_no_text_of_masks(
    plain: Served, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[str]] = {"encode": [], "decode": [], "likeliest": []}

    def watched(where: Any, name: str) -> None:
        own = getattr(where, name)

        def call(*given: Any, **named: Any) -> Any:
            seen[name].append(threading.current_thread().name)
            return own(*given, **named)

        monkeypatch.setattr(where, name, call)

    watched(Tokenizer, "encode")
    watched(Tokenizer, "decode")
    watched(fill_mask, "likeliest")
    masked = ["the [MASK] sat on the mat", f"{TEXT} " * 20 + "[MASK] and the [MASK] " + TEXT * 3]
    found = plain.ask("fill", masked, model="base")
    assert set(seen["likeliest"]) == {"device"}, "the control: that thread is seen"
    assert seen["encode"] and seen["decode"]
    assert "device" not in {*seen["encode"], *seen["decode"]}
    wanted = load(model, precision="float32").fill_mask(masked, long="windows")
    assert found == [[hole.candidates[0].token for hole in holes] for holes in wanted]


def test_heads_on_one_body_hold_it_once(plain: Served) -> None:
    made = [plain.host.model(name) for name in plain.host.names]
    roots = [each.engine().root for each in made]
    assert roots[0] is roots[1] is roots[2] is not roots[3]
    weights = [each.engine().model.network.tokens.weight for each in made]
    assert weights[0] is weights[1] is weights[2]


def test_F119_an_answer_does_not_depend_on_its_neighbours(plain: Served) -> None:
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "big", "old", "dog", "saw", "it"]
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(words, int(n))) for n in draw.integers(1, 20, 60)]
    alone = [plain.ask("predict", [text])["values"][0] for text in texts]
    vectors = [plain.ask("embed", [text])[0] for text in texts]
    with ThreadPoolExecutor(16) as pool:
        mixed = list(pool.map(lambda text: plain.ask("predict", [text])["values"][0], texts))
        beside = list(pool.map(lambda text: plain.ask("embed", [text])[0], texts))
    for one, other in zip(alone, mixed, strict=True):
        assert one["label"] == other["label"] and abs(one["score"] - other["score"]) <= 1e-6
    np.testing.assert_allclose(beside, vectors, atol=1e-6)
    assert len({tuple(np.round(v, 6)) for v in vectors}) > 40, "the control: texts differ"


# -------------------------------------------------------------------------------- the body
def test_F94_a_body_that_is_too_large_is_refused_unread(plain: Served) -> None:
    head = request(plain.address, "/ask/predict", headers={"Content-Length": "300000000"})
    before = memory.resident()
    with plain.connect() as line:
        line.sendall(head)
        answer = next(answers(line))
        assert answer.status == 413 and answer.headers["connection"] == "close"
        sent = 0
        try:
            while sent < 300_000_000:
                line.sendall(b"x" * 1_000_000)
                sent += 1_000_000
        except OSError:
            pass
    assert sent < 300_000_000 and memory.resident() - before < 20_000_000
    assert answer.json["limit"] == "50000 bytes"


def chunked(address: tuple[str, int], *chunks: bytes, end: bool = True) -> bytes:
    how = {"Content-Length": "", "Transfer-Encoding": "chunked"}
    head = request(address, "/ask/predict", headers=how)
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + (b"0\r\n\r\n" if end else b"")


def test_F95_chunks_are_counted_and_lengths_are_not_believed(plain: Served) -> None:
    body = json.dumps({"inputs": TEXT}).encode()
    (found,) = plain.raw(chunked(plain.address, body[:5], body[5:]), 1.0)
    assert found.status == 200  # the control
    (found,) = plain.raw(chunked(plain.address, *[b" " * 10_000] * 6), 3.0)
    assert found.status == 413
    how = {"Transfer-Encoding": "chunked"}
    both = request(plain.address, "/ask/predict", {"inputs": TEXT}, headers=how)
    assert plain.raw(both, 1.0)[0].status in (400, 422)
    twice = request(plain.address, "/ask/predict", {"inputs": TEXT}).replace(
        b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n", 1
    )
    assert plain.raw(twice, 1.0)[0].status == 400
    none = request(plain.address, "/ask/predict", headers={"Content-Length": ""})
    assert plain.raw(none, 1.0)[0].status == 400  # an empty body is no JSON


@pytest.mark.parametrize("kind", ["silent", "headers", "next headers", "body", "short body"])
def test_F96_slow_sockets_are_closed(
    kind: str, plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "HEADER_SECONDS", 0.4)
    monkeypatch.setattr(process, "BODY_SECONDS", 0.4)
    whole = request(plain.address, "/ask/predict", {"inputs": TEXT})
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
    many = {f"X-{n}": "1" for n in range(100)}
    for path, headers, status in (
        ("/health?" + "x" * 3_000, {}, 414),
        ("/health", many, 431),
        ("/health", {"X": "y" * 20_000}, 431),
        ("/health", {}, 200),
    ):
        data = request(plain.address, path, method="GET", headers=headers)
        assert plain.raw(data, 0.5)[0].status == status


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


BODIES: dict[str, Any] = {
    "long value": {"inputs": TEXT, "tokens": "x" * 40_000},
    "no such model": {"inputs": TEXT, "model": "x" * 40_000},
    "no such adapter": {"inputs": TEXT, "adapter": "\x1b[31m" + "x" * 40_000},
    "many faults": {"inputs": TEXT, "tokens": "x", "truncate": "maybe", "deadline": []},
}


@pytest.mark.parametrize("body", BODIES)
def test_F100_the_answer_to_a_wrong_field_is_short(body: str, plain: Served) -> None:
    answer = plain.post("/ask/predict", BODIES[body])
    assert answer.status in (404, 422) and len(answer.body) <= 4_096, answer
    assert b"x" * 200 not in answer.body and answer.json["error"]


def test_F101_what_is_too_long_is_refused_with_the_limit(plain: Served) -> None:
    def says(**body: Any) -> tuple[int, Any, Any]:
        answer = plain.post("/ask/predict", body)
        return answer.status, answer.json.get("field"), answer.json.get("limit")

    assert says(inputs=["the"] * 8)[0] == 200
    assert says(inputs=["the"] * 9) == (422, "inputs", 8)
    assert says(inputs=["the", "x" * 2_001]) == (413, "inputs[1]", 2_000)
    longer = "the cat " * 40
    answer = plain.ask("predict", [TEXT, longer])
    assert answer["windows"][0] == 1 < answer["windows"][1] and answer["truncated"] == [False] * 2
    answer = plain.ask("predict", [TEXT, longer], truncate=True)
    assert answer["truncated"] == [False, True] and answer["windows"] == [1, 1]


@pytest.mark.parametrize("inputs", ["", "   ", "\n", [], [""], [TEXT, " "]])
def test_F102_nothing_to_read_is_refused(inputs: Any, plain: Served) -> None:
    answer = plain.post("/ask/predict", {"inputs": inputs})
    assert answer.status == 422 and answer.json["field"].startswith("inputs")


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


def test_F103_a_full_queue_answers_before_the_body_is_read(plain: Served, slow: Slow) -> None:
    body = {"inputs": ["the cat sat on the mat and " * 3] * 8}
    with ThreadPoolExecutor(40) as pool:
        sent = [pool.submit(plain.post, "/ask/predict", body) for _ in range(40)]
        assert until(lambda: any(each.done() for each in sent))
        refused = next(each.result() for each in sent if each.done())
        assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1
        held = plain.host._queue.tokens
        assert held <= LIMITS.max_queue_tokens, "the bound holds"
        plain.host.incoming_tokens += LIMITS.max_queue_tokens  # what other bodies will bring
        head = request(plain.address, "/ask/predict", headers={"Content-Length": "5000"})
        with plain.connect() as line:
            begin = time.monotonic()
            line.sendall(head)  # and never the body
            assert next(answers(line)).status == 429 and time.monotonic() - begin < 2
        plain.host.incoming_tokens -= LIMITS.max_queue_tokens
        slow.may.set()
        statuses = {each.result().status for each in sent}
    assert statuses == {200, 429} and until(lambda: plain.host._queue.tokens == 0)
    assert plain.ask("predict", TEXT)["values"]


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
        assert until(lambda: plain.running._server.gate.open_requests >= 300)
        assert plain.host.incoming_tokens == 0
        assert plain.post("/ask/predict", {"inputs": TEXT}).status == 200
    assert until(lambda: plain.running._server.gate.open_requests == 0)


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
    assert until(lambda: plain.host.incoming_tokens == 0) and not plain.host.large.locked()


@pytest.mark.parametrize("makes_room", [True, False])
def test_F96_connections_that_are_waited_for_make_room(
    makes_room: bool, plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight that send nothing, a part of a head, and a part of a body; the control keeps them."""
    connection: Any = plain.running._server.config.http_protocol_class
    assert until(lambda: not plain.running._server.server_state.connections)
    monkeypatch.setattr(connection, "max_connections", 8)
    if not makes_room:
        monkeypatch.setattr(connection, "_make_room", lambda self, waiting: False)
    whole = request(plain.address, "/ask/predict", {"inputs": TEXT})
    with connections(plain, 8) as lines:
        for number, line in enumerate(lines):
            line.sendall([b"", whole[:20], whole[:-5]][number % 3])
        assert until(lambda: len(plain.running._server.server_state.connections) == 8)
        time.sleep(0.05)
        answer = plain.post("/ask/predict", {"inputs": TEXT})
        assert answer.status == (200 if makes_room else 503)
        if makes_room:
            assert next(answers(lines[0])).status == 503, "the one that was waited for longest"
            lines[2].sendall(whole[-5:])
            assert next(answers(lines[2])).status == 200, "the control: the others stay"


def test_F96_unfinished_bodies_hold_a_bounded_number_of_bytes(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "COMING_BYTES", 100_000)
    body = json.dumps({"inputs": TEXT}).encode() + b" " * 44_000
    whole = request(plain.address, "/ask/predict", data=body)
    with connections(plain, 3) as lines:
        for line in lines:
            line.sendall(whole[:-1_000])
            time.sleep(0.05)
        assert next(answers(lines[0])).status == 503
        for line in lines[1:]:
            line.sendall(whole[-1_000:])
            assert next(answers(line)).status == 200


@pytest.fixture
def full(plain: Served) -> Iterator[None]:
    """A queue that takes nothing."""
    plain.host.incoming_tokens += LIMITS.max_queue_tokens
    yield
    plain.host.incoming_tokens -= LIMITS.max_queue_tokens


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
    made = request(plain.address, "/ask/predict", {"inputs": TEXT}, headers=headers)
    assert [each.status for each in plain.raw(made, 2.0)][:1] == [status]


def test_F103_a_connection_that_was_refused_asks_again(plain: Served) -> None:
    made = request(plain.address, "/ask/predict", {"inputs": TEXT})
    with plain.connect() as line:
        found = answers(line)
        plain.host.incoming_tokens += LIMITS.max_queue_tokens
        line.sendall(made[:-4])
        assert next(found).status == 429
        plain.host.incoming_tokens -= LIMITS.max_queue_tokens
        line.sendall(made[-4:] + made)
        assert next(found).status == 200
        line.sendall(made)
        assert next(found).status == 200


def test_F96_a_body_that_nobody_wants_has_a_deadline(
    plain: Served, full: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "BODY_SECONDS", 0.3)
    made = request(plain.address, "/ask/predict", {"inputs": TEXT})
    begin = time.monotonic()
    assert [each.status for each in plain.raw(made[:-4], 10.0)] == [429]
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
    stays: bool, plain: Served, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 that send nothing more, two requests each, answered after the interim answer. The control
    closes with the client, as uvicorn does."""
    if not stays:
        monkeypatch.setattr(process.HttpConnection, "eof_received", lambda self: None)
    whole = request(plain.address, "/ask/predict", {"inputs": TEXT})
    with connections(plain, 20) as lines:
        for line in lines:
            line.sendall(whole * 2)
            line.shutdown(socket.SHUT_WR)
        assert slow.inside.wait(10) or not stays
        time.sleep(2.5 * process.READER_SECONDS)
        slow.may.set()
        found = [[each.status for each in answers(line)] for line in lines]
    assert found == [[200, 200] if stays else []] * 20
    assert until(lambda: not plain.running._server.server_state.connections)


@pytest.mark.parametrize(("cut", "status"), [(-3, [400]), (20, [400]), (0, [])])
def test_F105_a_part_of_a_request_is_not_answered(
    cut: int, status: list[int], plain: Served
) -> None:
    whole = request(plain.address, "/ask/predict", {"inputs": TEXT})
    with plain.connect(5.0) as line:
        line.sendall(whole[:cut])
        line.shutdown(socket.SHUT_WR)
        assert [each.status for each in answers(line)] == status


def test_F105_a_client_that_leaves_is_not_computed_for(plain: Served, slow: Slow) -> None:
    body = request(plain.address, "/ask/predict", {"inputs": TEXT})
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(plain.post, "/ask/predict", {"inputs": TEXT})
        assert slow.inside.wait(10)
        lines = [plain.connect() for _ in range(30)]
        for line in lines:
            line.sendall(body)
        assert until(lambda: len(plain.host._queue) == 30)
        for line in lines:
            line.close()
        assert until(lambda: len(plain.host._queue) == 0), "they are taken out of the queue"
        slow.may.set()
        assert first.result().status == 200
    assert until(lambda: plain.running._server.gate.open_requests == 0)
    assert sum(slow.batches) == 1, "nothing was computed for them"
    metrics = plain.get("/metrics").body.decode()
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
    assert until(lambda: plain.running._server.gate.open_requests == 0)


@pytest.fixture(scope="module")
def writes(small_task: Callable[..., Path], models: dict[str, Path]) -> Iterator[Served]:
    """A task whose answers are written, beside a model that writes; few of its rows fit at once."""
    folders = {"rewrites": small_task("sequence-to-sequence", longest=12), "gpt2": models["gpt2"]}
    with server(folders, limits=Limits(max_writing_tokens=64)) as made:
        yield made


@pytest.mark.parametrize("how", ["leaves", "deadline", "control"])
def test_F105_a_task_that_writes_ends_when_nobody_waits(
    writes: Served, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    whole = writes.post("/v1/predict", {"model": "rewrites", "rows": [TEXT]}).json["answers"]
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
        assert until(lambda: writes.running._server.gate.open_requests == 2)
        assert until(lambda: sum(steps) > 2), "it is in the middle of its answers"
        if how == "deadline":
            assert next(answers(line)).status == 408
        else:
            line.close()
        assert until(lambda: writes.running._server.gate.open_requests < 2)
        begun = len(steps)
        assert other.result() == alone, "who writes beside it goes on"
    assert until(lambda: not writers.ready())
    after = sum(steps[begun:])
    assert (after > 8) if how == "control" else (after <= 3), (after, sum(steps), len(steps))
    assert writers.num_running == writers.tokens == writers.waiting_tokens == 0
    assert until(lambda: writes.running._server.gate.open_requests == 0)
    monkeypatch.setattr(_GenerationBatch, "step", step)
    answer = writes.post("/v1/predict", {"model": "rewrites", "rows": [TEXT]})
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
def test_a_deadline_is_that_of_the_whole_request(plain: Served) -> None:
    """What is asked after 29 of 30 seconds has one left, and after 31 none; the control is new."""

    async def ask(seconds: float) -> Any:
        budget = RequestBudget(LIMITS)
        budget.began -= seconds
        host_module.BUDGET.set(budget)
        return (await plain.host.predict("animals", [TEXT], Options())).values

    assert plain.host._loop is not None
    for seconds in (0.0, LIMITS.deadline - 1, LIMITS.deadline + 1):
        asked = asyncio.run_coroutine_threadsafe(ask(seconds), plain.host._loop)
        if seconds < LIMITS.deadline:
            assert asked.result()
        else:
            with pytest.raises(Refusal) as refused:
                asked.result()
            assert refused.value.kind == "timeout"


def test_F107_a_server_is_ready_when_its_models_have_answered(heads: dict[str, Path]) -> None:
    from maskwright.ship.serve.served_model import open_all

    may, holder = threading.Event(), dict[str, Any]()

    def load_late() -> None:
        may.wait(20)
        holder["host"].load(open_all({"animals": heads["animals"]}, {}, "float32"))

    with server({}, load=load_late) as made:
        holder["host"] = made.host
        assert until(lambda: made.get("/health").status == 200)
        assert made.get("/ready").status == 503
        refused = made.post("/ask/predict", {"inputs": TEXT})
        assert refused.status == 503 and "retry-after" in refused.headers
        may.set()
        assert until(lambda: made.get("/ready").status == 200)
        assert made.ask("predict", TEXT)["values"]


def test_F107_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    with pytest.raises(MaskwrightError), server({"none": tmp_path}):
        pass


def test_F108_a_stop_loses_no_request(heads: dict[str, Path]) -> None:
    """Clients that ask again and again, while the server is stopped: each gets an answer to what
    it asked, or the connection was closed after an answer that said so."""
    lost, done, stop = [], [0], threading.Event()

    def client(made: Served) -> None:
        try:
            line = made.connect()
        except OSError:
            return
        with line:
            got = answers(line)
            while not stop.is_set():
                try:
                    line.sendall(request(made.address, "/ask/predict", {"inputs": TEXT}))
                    answer = next(got)
                except (OSError, StopIteration) as error:
                    lost.append(repr(error))
                    return
                done[0] += answer.status == 200
                if answer.headers.get("connection") == "close":
                    return

    with server({"animals": heads["animals"]}) as made:
        threads = [threading.Thread(target=client, args=(made,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
    for thread in threads:
        thread.join(10)
    stop.set()
    assert lost == [] and done[0] > 16
    with pytest.raises(OSError):
        made.connect(1.0)


def test_F109_a_port_in_use_names_the_process() -> None:
    import os

    from maskwright.ship.serve.process import bind_socket

    with bind_socket("127.0.0.1", 0) as first, pytest.raises(UsageError) as caught:
        bind_socket("127.0.0.1", first.getsockname()[1])
    assert str(os.getpid()) in str(caught.value.found)
    with pytest.raises(UsageError, match="--host"):
        bind_socket("192.0.2.1", 0)


def test_F110_no_label_is_a_clients_and_names_are_bounded(plain: Served) -> None:
    before = {line.split(" ")[0] for line in plain.get("/metrics").body.decode().splitlines()}
    for n in range(20):
        plain.post(f"/ask/none{n}", {"inputs": TEXT})
        plain.post("/ask/predict", {"inputs": f"unheard{n}", "model": f"unheard{n}"})
        plain.get(f"/health?unheard{n}", X_Name=f"unheard{n}")
    text = plain.get("/metrics").body.decode()
    after = {line.split(" ")[0] for line in text.splitlines()}
    assert "unheard" not in text and len(after - before) < 12
    for name in ("mw_queue_tokens", "mw_batch_tokens_bucket", "mw_batch_fill", "te_request_count"):
        assert re.search(rf"^{name}\S* \d", text, re.M), name
    # A reader of the format refuses all of it where two families have one name.
    families = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    assert len(dict(families)) == len(families)
    parts = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
    told = {name + part for name, kind in families for part in parts[kind]}
    sample = r'([a-z_]+)(\{[a-z]+="[^"\\\n]*"\})? (\d\S*)'
    samples = [re.fullmatch(sample, line) for line in text.splitlines() if line[0] != "#"]
    assert {each and each[1] for each in samples} == told


def test_texts_that_are_written_are_counted(plain: Served) -> None:
    def counts() -> dict[str, float]:
        text = plain.get("/metrics").body.decode()
        return {name: float(n) for name, n in re.findall(r"^(\w+) (\d\S*)$", text, re.M)}

    before = counts()
    plain.ask("generate", "the cat", model="gpt2", tokens=4)
    assert plain.post("/ask/stream", {"inputs": "the cat", "model": "gpt2", "tokens": 4})
    for _ in range(3):
        plain.get("/health")
    names = ("mw_written_tokens_total", "te_request_success", "te_request_count")
    assert until(lambda: [counts()[n] - before[n] for n in names] == [8, 2, 2])


# ------------------------------------------------------------------------------- other sites
def test_F111_pages_have_no_sink_and_a_policy(plain: Served) -> None:
    answer = plain.get("/docs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("docs.html", "docs.js", "docs.css"):
        text = resources.files("maskwright.ship.serve").joinpath("assets", name).read_text("utf-8")
        sinks = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?:|\son\w+="
        assert not re.search(sinks, text), name
    script = plain.get("/docs/docs.js")
    assert script.status == 200 and "javascript" in script.headers["content-type"]
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
    for path in (
        "/explore/../app.py",
        "/explore/%2e%2e/app.py",
        "/explore/data/models/99/model.json",
    ):
        assert plain.get(path).status == 404


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


def test_a_page_asks_about_a_text_of_ones_own(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page Corruption shows is what the objective prepares, while requests are answered;
    pages of other sites may not ask, and a question has a length."""
    monkeypatch.setattr("maskwright.ship.explore.site.open_merged", None)
    site = plain.get("/explore/data/site.json").json
    assert site["live"]
    number = next(n for n, m in enumerate(site["models"]) if m["name"].startswith("base"))
    given = {"model": number, "text": TEXT, "objective": "masked", "options": {"rate": 0.5}}
    given |= {"seed": 3, "row": 0}
    path = "/explore/ask/corruption"
    found = plain.post(path, given)
    assert found.status == 200 and found.headers["content-type"] == "application/json"
    opened = QueryableModel.of(open_model(plain.host.model(site["models"][number]["name"]).folder))
    wanted = prepare_row(opened, CorruptionRequest(TEXT, "masked", {"rate": 0.5}, 3, 0))
    assert found.json == json.loads(json.dumps(wanted))
    # Holes are filled on the weights that are served; none is opened once more.
    filled = plain.post(path, given | {"objective": "replaced-token", "options": {}}).json
    wanted = prepare_row(opened, CorruptionRequest(TEXT, "replaced-token", {}, 3, 0))
    assert filled == json.loads(json.dumps(wanted)) and wanted["filled"]
    assert plain.get("/explore/data/masks.json").status == 200
    assert plain.post(path, {**given, "seed": 4}).json["case"] != found.json["case"]  # a control
    for wrong in ({"objective": "nothing"}, {"text": 7}, {"model": 99}, {"options": {"rate": 7}}):
        answer = plain.post(path, given | wrong)
        assert answer.status == 200 and answer.json["refused"]["what"]
    assert plain.post("/explore/ask/nothing", given).status == 404
    evil = {"Origin": "http://evil.example"}
    assert plain.post(path, given, headers=evil).status == 403
    monkeypatch.setattr(app, "LARGEST", 1000)
    long = plain.post(path, given | {"text": "x" * 1000})
    assert (long.status, long.json["limit"]) == (413, 1000)


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


@pytest.mark.parametrize("path", ["/docs/../app.py", "/docs/%2e%2e%2fapp.py", "/docs/x"])
def test_F118_no_file_is_reached(path: str, plain: Served) -> None:
    assert plain.get(path).status == 404


def test_F112_F113_pages_of_other_sites_may_not_ask(heads: dict[str, Path], plain: Served) -> None:
    body = {"inputs": TEXT}

    def status(made: Served, **headers: str) -> int:
        answer = made.post("/ask/predict", body, headers=headers)
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
    with server({"animals": heads["animals"]}, origins=(good,)) as made:
        answer = made.post("/ask/predict", body, headers={"Origin": good})
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == good
        assert status(made, Origin="https://evil.example") == 403
        asks = {"Access_Control_Request_Method": "POST"}
        before = made.get("/ask/predict", "OPTIONS", Origin=good, **asks)
        assert "*" in before.headers["access-control-allow-headers"]  # clients have their own
        assert before.status == 204 and before.headers["access-control-allow-origin"] == good
        assert before.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8000", 200),
        ("[0:0::1]", 200),
        ("evil.example", 421),
        ("localhost.", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1:80:80", 421),
        ("127.0.0.1@evil.example", 421),
        ("[::1", 421),
        ("0.0.0.0", 421),
        ("", 400),
    ],
)
def test_F114_only_its_own_names_are_answered(host: str, status: int, plain: Served) -> None:
    headers = {"Host": host}
    assert (
        plain.raw(request(plain.address, "/health", method="GET", headers=headers), 0.5)[0].status
        == status
    )


@pytest.mark.parametrize(
    ("normalise", "text", "expected"),
    [
        (access.as_host, "Models.example.org", "models.example.org"),
        (access.as_host, "FD00:0::5", "[fd00::5]"),
        (access.as_host, "[::1]", "[::1]"),
        (access.as_host, "10.0.0.5", "10.0.0.5"),
        (access.as_host, "*", "*"),
        *(
            (access.as_host, text, None)
            for text in ("http://a.example", "a.example:80", "bücher.de", "")
        ),
        (access.as_origin, "https://A.example/", "https://a.example"),
        (access.as_origin, "http://a.example:80", "http://a.example"),
        (access.as_origin, "http://localhost:3000", "http://localhost:3000"),
        *((access.as_origin, text, None) for text in ("a.example", "*", "null")),
        *(
            (access.as_origin, f"https://{text}", None)
            for text in ("a.example/page", "u@a.example")
        ),
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


def test_F116_without_the_token_only_health_answers(heads: dict[str, Path]) -> None:
    with server({"animals": heads["animals"]}, token="right-token") as made:
        gate = made.running._server.gate
        routes = [r for router, _ in gate.application.routers for r in router.routes]
        assert len(routes) > 8
        for route in routes:
            for method in getattr(route, "methods", ()):
                path = getattr(route, "path", "").replace("{name}", "x")
                for given in ("", "Bearer wrong-token", "Basic right-token", "Bearer "):
                    how = {"Authorization": given}
                    answer = made.post(path, {"inputs": TEXT}, method=method, headers=how)
                    assert answer.status == (200 if path == "/health" else 401), (path, given)
        right = {"Authorization": "Bearer right-token"}
        assert made.post("/ask/predict", {"inputs": TEXT}, headers=right).status == 200
        assert made.get("/nowhere").status == 401, "not even which paths there are"
        assert "right-token" not in made.log.getvalue()


def test_F117_nothing_leaks_and_the_log_has_no_text(plain: Served) -> None:
    answer = plain.post("/ask/fail", {"inputs": "confidential"}, headers={"X-Request-Id": "a\x1bb"})
    assert answer.status == 500
    for each in (answer.body.decode(), plain.log.getvalue()):
        assert not re.search(r"Traceback|confidential|secret|\x1b", each)
        assert str(Path.home()) not in answer.body.decode()

    def lines() -> list[Any]:
        found = [json.loads(line) for line in plain.log.getvalue().splitlines()]
        return [each for each in found if each["request"] == answer.headers["x-request-id"]]

    assert until(lambda: len(lines()) == 2)
    mine = lines()
    assert {each["event"] for each in mine} == {"failure", "request"}
    assert next(each for each in mine if each["event"] == "failure")["error"] == "RuntimeError"


def test_a_log_that_cannot_be_written_hurts_no_request(
    plain: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a reader of the lines that has gone: the connection goes on."""
    log, full = plain.running._server.gate.log, io.StringIO()
    full.close()
    monkeypatch.setattr(log, "_stream", full)
    one = request(plain.address, "/ask/predict", {"inputs": TEXT})
    with plain.connect() as line:
        got = answers(line)
        for _ in range(3):
            line.sendall(one)
            assert next(got).status == 200
    assert until(lambda: log.lost >= 3)
    assert re.search(r"^mw_lost_log_lines [3-9]", plain.get("/metrics").body.decode(), re.M)


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
    wanted = {
        repr(load(folder, precision="float32").predict([TEXT])[0])
        for folder in (heads["animals"], heads["numbers"])
    }
    assert len(wanted) == 2
    found, stop = list[tuple[int, str, str]](), threading.Event()

    def client() -> None:
        with made.connect() as line:
            got = answers(line)
            while not stop.is_set():
                line.sendall(request(made.address, "/ask/predict", {"inputs": TEXT}))
                each = next(got)
                value = repr(each.json["values"][0]) if each.status == 200 else ""
                found.append((each.status, value, each.headers["x-model-id"]))

    with server({"one": heads["animals"]}) as made:
        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(6):
            made.host.swap("one", heads["numbers" if n % 2 == 0 else "animals"])
            time.sleep(0.05)
        with pytest.raises(MaskwrightError):
            made.host.swap("one", heads["animals"].parent / "none")
        with pytest.raises(UsageError):
            made.host.swap("two", heads["animals"])
        stop.set()
        for thread in threads:
            thread.join(10)
    assert {status for status, _, _ in found} == {200}
    assert {value for _, value, _ in found} == wanted
    assert len({(value, model) for _, value, model in found}) == 2, "the answer names its model"
