"""A server on a thread with small models of every kind, and plain requests to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from maskwright.ask.predict.language_model import LanguageModel, load
from maskwright.ship.serve.command import serve
from maskwright.ship.serve.errors import Limits

TASKS = {
    "classes": "classification",
    "labels": "multi-label",
    "number": "regression",
    "entailment": "pair-classification",
    "alike": "similarity",
    "vectors": "embedding",
    "choices": "multiple-choice",
    "tags": "tagging",
    "answers": "question-answering",
    "rewrites": "sequence-to-sequence",
}


@dataclass
class TasksServer:
    """A server, and how it is asked.

    Attributes:
        url: of the server.
        running: the server itself, if it is needed.
        folders: of the models, by name.
    """

    url: str
    folders: dict[str, Path]
    running: Any = None

    def __post_init__(self) -> None:
        self._opened: dict[str, LanguageModel] = {}

    def opened(self, name: str) -> LanguageModel:
        """The same model, opened by itself."""
        if name not in self._opened:
            self._opened[name] = load(self.folders[name])
        return self._opened[name]

    def ask(
        self, method: str, path: str, body: Any = None, raw: bytes | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of a response; JSON as its value."""
        host, port = self.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        told = {name.lower(): value for name, value in response.getheaders()}
        kind = told.get("content-type", "")
        return response.status, told, json.loads(text) if "json" in kind else text.decode()

    def post(self, path: str, body: Any) -> Any:
        """The body of an answer, which must be one."""
        status, _, value = self.ask("POST", path, body)
        assert status == 200, value
        return value


@pytest.fixture(scope="session")
def tasks_server(
    small_task: Callable[..., Path], model: Path, models: dict[str, Path]
) -> Iterator[TasksServer]:
    folders = {name: small_task(task) for name, task in TASKS.items()}
    folders |= {"masks": model, "writer": models["gpt2"]}
    limits = Limits(max_items=128, max_body_bytes=1_048_576)
    running = serve(names=folders, port=0, limits=limits, background=True)
    assert running is not None
    with running as server:
        yield TasksServer(server.url, folders, running)
