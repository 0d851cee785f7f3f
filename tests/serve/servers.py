"""A server in this process with a plain dialect, and a client that can misbehave."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel

from maskwright.ship.serve import app as application
from maskwright.ship.serve.access import AccessPolicy
from maskwright.ship.serve.callers import KeyFile
from maskwright.ship.serve.dialects import rows
from maskwright.ship.serve.encoding import Options
from maskwright.ship.serve.errors import Limits
from maskwright.ship.serve.gate import Gate
from maskwright.ship.serve.generation import GenerationOptions
from maskwright.ship.serve.host import Host
from maskwright.ship.serve.metrics import RequestLog
from maskwright.ship.serve.process import BackgroundServer, DrainingServer, bind_socket
from maskwright.ship.serve.served_model import open_all


class Body(BaseModel):
    inputs: str | list[Any]
    model: str | None = None
    adapter: str | None = None
    truncate: bool = False
    tokens: int = 5
    deadline: float | None = None
    mood: str | None = None


def routes(host: Host) -> APIRouter:
    """Paths of the tests, as a dialect has them."""
    router = APIRouter()

    def given(body: Body) -> list[Any]:
        if body.inputs == "absent":
            raise HTTPException(404, "no such text")
        return [body.inputs] if isinstance(body.inputs, str) else body.inputs

    def options(body: Body) -> Options:
        return Options(truncate=body.truncate, adapter=body.adapter, deadline=body.deadline)

    @router.post("/ask/predict")
    async def predict(body: Body) -> dict[str, Any]:
        found = await host.predict(body.model, given(body), options(body))
        names = ("values", "tokens", "windows", "truncated")
        return {name: getattr(found, name) for name in names}

    @router.post("/ask/embed")
    async def embed(body: Body) -> list[list[float]]:
        found = await host.embed(body.model, given(body), options(body))
        return [vector.tolist() for vector in found.values]

    @router.post("/ask/fill")
    async def fill(body: Body) -> list[Any]:
        found = await host.fill_mask(body.model, given(body), options(body))
        return [[hole.candidates[0].token for hole in holes] for holes in found.values]

    @router.post("/ask/generate")
    async def generate(body: Body) -> list[str]:
        writing = GenerationOptions(tokens=body.tokens, temperature=0.0)
        found = await host.generate(body.model, given(body), writing, options(body))
        return [written.text for written in found.values]

    @router.post("/ask/stream")
    async def stream(body: Body) -> StreamingResponse:
        writing = GenerationOptions(tokens=body.tokens, temperature=0.0)
        pieces = host.stream(body.model, given(body)[0], writing, options(body))
        first = await anext(pieces)

        async def lines() -> Any:
            yield json.dumps(first.text) + "\n"
            async for piece in pieces:
                yield json.dumps(piece.text) + "\n"

        return StreamingResponse(lines(), media_type="application/jsonl")

    @router.post("/ask/fail")
    async def fail(body: Body) -> Response:
        raise RuntimeError(f"secret {Path.home()} {given(body)}")

    return router


DIALECT = SimpleNamespace(routes=routes, render=application.render)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A running server and what it logged."""

    def __init__(self, running: BackgroundServer, log: io.StringIO) -> None:
        self.running, self.log = running, log
        self.host = running.host
        self.address: tuple[str, int] = running._server.sock.getsockname()[:2]

    @property
    def protocol(self) -> Any:
        """The class of the connections, whose limits are its attributes."""
        return self.running._server.config.http_protocol_class

    def open_requests(self) -> int:
        return self.running._server.gate.open_requests

    def open_connections(self) -> int:
        return len(self.running._server.server_state.connections)

    def metrics(self) -> str:
        return self.get("/metrics").body.decode()

    def connect(self, timeout: float = 30.0) -> socket.socket:
        connection = socket.create_connection(self.address, timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def raw(self, data: bytes, timeout: float = 30.0) -> list[Answer]:
        """All answers to some bytes, until the server closes or nothing more comes."""
        with self.connect(timeout) as line:
            line.sendall(data)
            return list(answers(line))

    def first(self, data: bytes) -> Answer:
        """The first answer to some bytes."""
        with self.connect() as line:
            line.sendall(data)
            return next(answers(line))

    def post(self, path: str, body: Any = None, **how: Any) -> Answer:
        return self.first(request(self.address, path, body, **how))

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        return self.post(path, method=method, headers=headers)

    def ask(self, path: str, inputs: Any, **fields: Any) -> Any:
        answer = self.post(f"/ask/{path}", {"inputs": inputs, **fields})
        assert answer.status == 200, answer
        return answer.json


def request(
    address: tuple[str, int],
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    data: bytes | None = None,
) -> bytes:
    """The bytes of a request; headers whose value is empty are left out."""
    data = (b"" if body is None else json.dumps(body).encode()) if data is None else data
    usual = {"Host": f"{address[0]}:{address[1]}"}
    if method == "POST":
        usual |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
    usual |= {name.replace("_", "-"): value for name, value in (headers or {}).items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in usual.items() if v)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + data


def answers(line: socket.socket) -> Iterator[Answer]:
    """The answers on a connection, in order."""
    file = line.makefile("rb")
    while True:
        try:
            first = file.readline()
        except (TimeoutError, ConnectionResetError):
            return
        if not first:
            return
        headers: dict[str, str] = {}
        while (head := file.readline().strip()) != b"":
            name, _, value = head.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while (size := int(file.readline() or b"0", 16)) > 0:
                body += file.read(size)
                file.readline()
            file.readline()
        else:
            # A server that closes after HEAD sends none of the bytes it announces.
            body = file.read(int(headers.get("content-length", 0)))
        status = int(first.split()[1])
        if status != 100:
            yield Answer(status, headers, body)


@contextmanager
def server(
    models: Mapping[str, Path],
    adapters: Mapping[str, Path] | None = None,
    limits: Limits | None = None,
    *,
    token: str | None = None,
    keys: Path | None = None,
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    load: Any = None,
) -> Iterator[Served]:
    """A server of these models on a thread of this process, in float32."""
    log = io.StringIO()
    host = Host(limits, precision="float32")
    key_file = None if keys is None else KeyFile(keys)
    policy = AccessPolicy(token=token, keys=key_file, hosts=hosts, origins=origins)
    gate = Gate(application.Application(host, [DIALECT, rows]), policy, RequestLog(log))

    def usual() -> None:
        host.load(open_all(models, adapters or {}, "float32"))

    running = BackgroundServer(
        DrainingServer(gate, host, bind_socket("127.0.0.1", 0)), load or usual
    )
    try:
        if load is None:
            running.wait()
        yield Served(running, log)
    finally:
        running.stop()


def until(true: Any, seconds: float = 10.0) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return False
