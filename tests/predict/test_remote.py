"""`predict --server`: the bytes that the same model writes here, from a server that may be full."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

import maskwright
from maskwright.cli.main import main
from maskwright.errors import DataError, IncompatibleError, MaskwrightError, UsageError
from maskwright.predict import remote
from maskwright.predict.file import predict_file
from maskwright.predict.remote import Server, with_server
from maskwright.tasks.parts.find import task_for
from serve.clients import TasksServer
from serve.servers import server

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.filterwarnings("ignore::maskwright.predict.language_model.CutWarning"),
]
LONG = "the cat sat on the mat and then one big red dog ran under a tall old tree . " * 4
ROWS: dict[str, list[dict[str, Any]]] = {
    "classes": [{"text": "the cat sat"}, {"text": LONG}, {"text": "a\tdog  \u00e9"}],
    "labels": [{"text": "the cat sat"}, {"text": LONG}],
    "number": [{"text": "the cat sat", "id": 7}],
    "entailment": [{"text": "a cat", "text_pair": "a dog"}, {"text": "x", "text_pair": LONG}],
    "vectors": [{"text": "the cat sat"}, {"text": LONG}],
    "choices": [{"question": "who", "choices": ["a cat", "a dog"]}],
    "tags": [{"tokens": ["the", "cat", "in", "Rome"]}, {"tokens": "the cat\r\n in Rome."}],
    "answers": [{"question": "who sat", "context": "the cat sat on a rug"}],
    "rewrites": [{"source": "the cat sat"}],
}


@pytest.mark.parametrize("long", ["as_trained", "windows"])
@pytest.mark.parametrize("name", ROWS)
def test_a_file_is_answered_as_here(
    tasks_server: TasksServer, tmp_path: Path, name: str, long: str
) -> None:
    task_type = tasks_server.opened(name).predictor.task_type
    rows = [dict(zip(task_type.roles, row.values(), strict=False)) for row in ROWS[name]]
    if name == "vectors":
        rows = ROWS[name]
    if name == "rewrites" and long == "windows":
        rows = [{"source": "the cat sat"}]
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    columns = {"text": "text"} if name == "vectors" else None
    options: dict[str, Any] = {"long": long, "columns": columns}
    here, there = io.StringIO(), io.StringIO()
    predict_file(tasks_server.folders[name], source, here, **options)
    asked = Server(tasks_server.url, model=name)
    predict_file(Path("-"), source, there, server=asked, **options)
    assert there.getvalue() == here.getvalue() and here.getvalue()
    lines = [json.loads(line) for line in here.getvalue().splitlines()]
    assert all(line["prediction"] is not None for line in lines)
    assert ("prediction_windows" in lines[0]) is (long == "windows")


def test_the_command(
    tasks_server: TasksServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "rows.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *[[f"the cat sat {n}"] for n in range(300)]])
    ask = ["predict", "classes", str(source), "--server", tasks_server.url, "--top", "2"]
    assert main([*ask, "--out", str(tmp_path / "there.csv")]) == 0
    folder = str(tasks_server.folders["classes"])
    assert (
        main(["predict", folder, str(source), "--top", "2", "--out", str(tmp_path / "a.csv")]) == 0
    )
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()
    assert main(["predict", str(source), "--server", tasks_server.url]) != 0
    assert "several models are served" in capsys.readouterr().err
    assert main(["predict", "nobody", str(source), "--server", tasks_server.url]) != 0
    assert "no model of that name" in capsys.readouterr().err
    assert main([*ask, "--also", folder]) != 0
    assert "no effect here" in capsys.readouterr().err
    assert main(["predict", "masks", str(source), "--server", tasks_server.url]) != 0
    assert "fine-tuned" in capsys.readouterr().err
    assert main(["predict"]) != 0
    assert "no model to predict with" in capsys.readouterr().err


@pytest.mark.parametrize("name", ROWS)
def test_examples_travel(tasks_server: TasksServer, name: str) -> None:
    """What is sent means the same example."""
    task_type = tasks_server.opened(name).predictor.task_type
    for row in ROWS[name]:
        values = list(row.values())[: max(1, len(task_type.roles))]
        example = task_type.of_value(values[0] if len(values) == 1 else values, "here")
        sent = json.loads(json.dumps(task_type.value_of(example)))
        assert task_type.of_value(sent, "here") == example


@pytest.mark.parametrize("name", ROWS)
def test_a_model_on_a_server_is_asked_as_one_here(tasks_server: TasksServer, name: str) -> None:
    own, there = tasks_server.opened(name), maskwright.connect(tasks_server.url, model=name)
    roles = own.predictor.task_type.roles
    rows = [dict(zip(roles, row.values(), strict=False)) for row in ROWS[name]]
    given: list[Any] = [row["text"] for row in ROWS[name]] if name == "vectors" else rows
    assert there.task == own.predictor.task_type.task
    assert there.labels == own.predictor.task_type.labels
    assert there.fingerprint == own.model.fingerprint
    for long in ("as_trained", "windows")[: 1 if name == "rewrites" else 2]:
        answers = there.predict(given, long=long)  # type: ignore[arg-type]
        here = own.predict(given, long=long)  # type: ignore[arg-type]
        assert answers == json.loads(json.dumps(here)), (answers, here)
    if name != "rewrites":
        assert there.windows(given) == own.windows(given)
    if name == "classes":
        assert there.predict(given, top=2) == own.predict(given, top=2) != there.predict(given)
        bad = ["the cat", ""]
        assert there.predict(bad, on_bad="skip") == own.predict(bad, on_bad="skip")
        others = tasks_server.opened("classes").predict(["a dog", "the cat sat", "the mat"])
        assert there.predict(given) != others, "the control"


def test_what_keeps_from_connecting_is_named(
    tasks_server: TasksServer, small_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASKWRIGHT_TOKEN", raising=False)
    with pytest.raises(UsageError, match="several models are served"):
        maskwright.connect(tasks_server.url)
    with pytest.raises(UsageError, match="no model of that name"):
        maskwright.connect(tasks_server.url, model="nobody")
    with pytest.raises(IncompatibleError, match="fine-tuned"):
        maskwright.connect(tasks_server.url, model="masks")
    with pytest.raises(UsageError, match="nothing to answer"):
        maskwright.connect(tasks_server.url, model="classes").predict([])
    with pytest.raises(UsageError, match="cannot be reached"):
        maskwright.connect("http://127.0.0.1:9")
    with server({"only": small_task("classification")}, token="s3cret") as guarded:
        url = "http://{}:{}".format(*guarded.address)
        for token in (None, "wrong"):
            with pytest.raises(UsageError, match="token") as caught:
                maskwright.connect(url, token)
            assert "wrong" not in str(caught.value)
        model = maskwright.connect(url, "s3cret")
        assert model.name is None and "s3cret" not in repr(model) + repr(model._predictor)
        monkeypatch.setenv("MASKWRIGHT_TOKEN", "s3cret")
        assert maskwright.connect(url).predict(["a cat"]) == model.predict(["a cat"])


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, "<html>hello</html>"),
        (200, '["a"]'),
        (200, '{"task": "classification"}'),
        (404, "<html>nothing here</html>"),
        (404, '{"detail": "Not Found"}'),
        (405, ""),
    ],
)
def test_another_server_is_named_as_that(status: int, text: str) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *given: Any) -> None:
            pass

    with running(Other) as url, pytest.raises(IncompatibleError) as caught:
        maskwright.connect(url)
    assert "no server of maskwright" in str(caught.value) or "not known here" in str(caught.value)


class _Busy(BaseHTTPRequestHandler):
    """A server that is full twice, and to which more than two rows are too much."""

    asked: ClassVar[list[int]] = []
    always_full: ClassVar[bool] = False

    def do_GET(self) -> None:
        shape = task_for("classification", ("a", "b"))
        told = {"task": shape.task, "labels": ["a", "b"], "options": {}, "columns": {}}
        told |= {"fingerprint": "x", "max_rows": 128, "max_body_bytes": 1000, "findings": []}
        self._answer(200, told)

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["content-length"])))["rows"]
        self.asked.append(len(rows))
        if self.always_full or len(self.asked) <= 2:
            self._answer(429, {"error": "full"}, {"retry-after": "0"})
        elif len(rows) > 2:
            self._answer(413, {"error": "too large", "kind": "too_large"})
        else:
            ones = [1] * len(rows)
            self._answer(
                200,
                {
                    "answers": rows,
                    "tokens": ones,
                    "windows": ones,
                    "truncated": [False] * len(rows),
                },
            )

    def _answer(self, status: int, value: Any, headers: Any = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, each in {**(headers or {}), "content-length": str(len(data))}.items():
            self.send_header(name, each)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def busy() -> Iterator[str]:
    _Busy.asked.clear()
    with running(_Busy) as url:
        yield url


@contextmanager
def running(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers by `handler`."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def test_a_full_server_is_asked_again(busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_server(Server(busy))
    texts = [f"text {n}" for n in range(7)]
    assert model.predict(texts) == texts, "in their order, from chunks that were halved"
    assert sum(n for n in _Busy.asked if n <= 2) >= 7 and max(_Busy.asked) == 7
    monkeypatch.setattr(_Busy, "always_full", True)
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    with pytest.raises(UsageError, match="stays full"):
        model.predict(texts)


def test_a_server_that_is_started_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are not lost for a moment without an answer; a server that stays away is named."""
    away = iter([True, False, True, True])

    class Restarted(_Busy):
        def do_POST(self) -> None:
            if not next(away, False):
                super().do_POST()  # else it closes without an answer

    monkeypatch.setattr(_Busy, "asked", [0, 0])
    with running(Restarted) as url:
        model = with_server(Server(url))
        assert model.predict(["a", "b"]) == ["a", "b"]
        monkeypatch.setattr(remote, "AWAY", 0.0)
        with pytest.raises(UsageError, match="cannot be reached"):
            model.predict(["a", "b"])


def test_a_row_that_the_server_refuses_is_named_as_here(
    tasks_server: TasksServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CHUNK", 2)
    rows = ["the cat sat", "a dog", "the cat", LONG, "a\0dog"]
    here, there = (
        maskwright.load(tasks_server.folders["classes"]),
        maskwright.connect(tasks_server.url, model="classes"),
    )
    assert here.predict(rows) == there.predict(rows)
    (tmp_path / "rows.txt").write_text("\n".join(rows[:4]))
    server = Server(tasks_server.url, None, "classes")
    for given in ({}, {"server": server}):
        with pytest.raises(DataError) as caught:
            predict_file(
                tasks_server.folders["classes"],
                tmp_path / "rows.txt",
                io.StringIO(),
                long="refuse",
                **given,
            )
        assert caught.value.where == f"{tmp_path / 'rows.txt'}, line 4"
        assert "32 tokens" in str(caught.value)
    with pytest.raises(DataError, match=r"where: +example 1\n(.|\n)*at most 200000"):
        there.predict("x" * 300_000)
    odd = remote._RowError(99, "no such row", "there", "status 422", None)
    monkeypatch.setattr(Server, "ask", Mock(side_effect=odd))
    with pytest.raises(DataError, match="no such row"):  # of a server that counts otherwise
        there.predict("a")


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://a:99999",
        "http://[::1",
        "http://a/b c",
        "http://a/\u00e9",
        "http://b\u00fccher.example",
        "http://user:secret@a",
        "http://a?b=c",
        "http://a\n",
        "http://\0",
        f"http://{'a' * 64}.example",
        5,
    ],
)
def test_no_address(url: Any) -> None:
    with pytest.raises(UsageError, match="no address"):
        Server(url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": "a\nb"}, "one line"),
        ({"token": "b\u00fccher"}, "ASCII"),
        ({"token": 5}, "one line"),
        ({"model": 5}, "one line"),
        ({"model": ""}, "one line"),
    ],
)
def test_what_no_header_holds_is_refused(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Server("http://127.0.0.1:8000", **given)


def test_nobody_is_there() -> None:
    with pytest.raises(MaskwrightError, match="cannot be reached"):
        with_server(Server("http://127.0.0.1:9"))
