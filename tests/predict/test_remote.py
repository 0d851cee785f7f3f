"""`predict --server`: the bytes that the same model writes here, from a server that may be full."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
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
import small_tasks
from maskwright.ask.predict import file as file_
from maskwright.ask.predict import remote, wire
from maskwright.ask.predict.file import write_predictions
from maskwright.base.errors import (
    DataError,
    IncompatibleError,
    StoppedError,
    UsageError,
)
from maskwright.cli.main import main
from maskwright.learn.tasks.base.task_type import task_for
from maskwright.ship.serve.host import Host
from serve.clients import TasksServer
from serve.servers import server

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.filterwarnings("ignore::maskwright.ask.predict.language_model.CutWarning"),
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


def test_the_command(
    tasks_server: TasksServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "rows.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *[[f"the cat sat {n}"] for n in range(300)]])
    folder = str(tasks_server.folders["classes"])
    for ending, options in (("csv", ["--top", "2"]), ("jsonl", ["--long", "windows"])):
        here, there = (tmp_path / f"{name}.{ending}" for name in ("here", "there"))
        ask = ["predict", folder, str(source), *options, "--out", str(here)]
        assert main(ask) == 0
        asked = ["predict", "classes", str(source), "--server", tasks_server.url, *options]
        assert main([*asked, "--out", str(there)]) == 0
        assert there.read_bytes() == here.read_bytes()
    assert b'"prediction_windows": 1' in here.read_bytes()
    capsys.readouterr()
    assert main(["predict", str(source), "--server", tasks_server.url]) != 0
    assert "classes" in capsys.readouterr().err


class Server(BaseHTTPRequestHandler):
    """Says nothing on what it does."""

    def reply(self, status: int, value: Any, headers: Any = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *given: Any) -> None:
        pass


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
    url = tasks_server.url
    for kind, word, act in (
        (UsageError, "422", lambda: maskwright.connect(url)),
        (UsageError, "404", lambda: maskwright.connect(url, model="nobody")),
        (IncompatibleError, "fine-tuned", lambda: maskwright.connect(url, model="masks")),
        (UsageError, "predict", lambda: maskwright.connect(url, model="classes").predict([])),
        (UsageError, "9", lambda: maskwright.connect("http://127.0.0.1:9")),
    ):
        with pytest.raises(kind, match=word):
            act()
    with server({"only": small_task("classification")}, token="s3cret") as guarded:
        url = "http://{}:{}".format(*guarded.address)
        for token in (None, "wrong"):
            with pytest.raises(UsageError, match="token") as caught:
                maskwright.connect(url, token)
            assert "wrong" not in str(caught.value)
        model = maskwright.connect(url, "s3cret")
        assert model.name is None and "s3cret" not in repr(model) + repr(model.server)
        monkeypatch.setenv("MASKWRIGHT_TOKEN", "s3cret")
        assert maskwright.connect(url).predict(["a cat"]) == model.predict(["a cat"])


@pytest.mark.parametrize(
    ("status", "text"),
    [(200, "<html>hello</html>"), (200, '["a"]'), (200, '{"task": "tags"}'), (404, "no")],
)
def test_another_server_is_named_as_that(status: int, text: str) -> None:
    class Other(Server):
        def do_GET(self) -> None:
            self.reply(status, text.encode())

    with running(Other) as url, pytest.raises(IncompatibleError):
        maskwright.connect(url)


def answer_of(text: str) -> dict[str, Any]:
    """What a fake server answers to a text."""
    return {"label": "ab"[len(text) % 2], "score": 1 / len(text)}


class _Busy(Server):
    """A server that is full twice, and to which more than two rows are too much."""

    asked: ClassVar[list[int]] = []
    always_full: ClassVar[bool] = False

    def do_GET(self) -> None:
        shape = task_for("classification", ("a", "b"))
        told = {"task": shape.task, "labels": ["a", "b"], "options": {}, "model": "busy"}
        told |= {"columns": {"text": ["text"]}, "length": 8, "fingerprint": "x"}
        told |= {"max_rows": 128, "max_body_bytes": 1000, "findings": []}
        self.reply(200, told)

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["content-length"])))["rows"]
        self.asked.append(len(rows))
        if self.always_full or len(self.asked) <= 2:
            self.reply(429, {"error": "full"}, {"retry-after": "0"})
        elif len(rows) > 2:
            self.reply(413, {"error": "too large", "kind": "too_large"})
        else:
            ones = [1] * len(rows)
            facts = {"model": "busy", "fingerprint": "x", "tokens": ones, "windows": ones}
            facts["truncated"] = [False] * len(rows)
            self.reply(200, wire.render(facts, rows, list(map(answer_of, rows))))


@pytest.fixture
def busy() -> Iterator[str]:
    _Busy.asked.clear()
    with running(_Busy) as url:
        yield url


@contextmanager
def running(handler: type[Server]) -> Iterator[str]:
    """The address of a server that answers by `handler`."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def test_a_full_server_is_asked_again(busy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = remote.with_server(remote.RemoteServer(busy))
    texts = ["x" * (n + 1) for n in range(7)]
    answers = list(map(answer_of, texts))
    assert model.predict(texts) == answers, "in their order, from chunks that were halved"
    assert sum(n for n in _Busy.asked if n <= 2) >= 7 and max(_Busy.asked) == 7
    monkeypatch.setattr(_Busy, "always_full", True)
    monkeypatch.setattr(remote, "PATIENCE", 0.3)
    with pytest.raises(UsageError, match="stays full"):
        model.predict(texts)


def test_a_row_that_comes_too_late_is_not_at_fault() -> None:
    class Slow(_Busy):
        def do_POST(self) -> None:
            self.reply(408, {"error": "its deadline passed", "kind": "timeout"})

    with running(Slow) as url, pytest.raises(StoppedError):
        remote.with_server(remote.RemoteServer(url)).predict(["a", "bc"])


def test_a_server_that_is_started_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are not lost for a moment without an answer; a server that stays away is named."""
    away = iter([True, False, True, True])

    class Restarted(_Busy):
        def do_POST(self) -> None:
            if not next(away, False):
                super().do_POST()  # else it closes without an answer

    monkeypatch.setattr(_Busy, "asked", [0, 0])
    with running(Restarted) as url:
        model = remote.with_server(remote.RemoteServer(url))
        assert model.predict(["a", "bc"]) == [answer_of("a"), answer_of("bc")]
        monkeypatch.setattr(remote, "AWAY", 0.0)
        with pytest.raises(UsageError):
            model.predict(["a", "b"])


def test_a_row_that_the_server_refuses_is_named_as_here(
    tasks_server: TasksServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CHUNK", 2)
    rows = ["the cat sat", "a dog", "the cat", LONG, "a\0dog"]
    folder = tasks_server.folders["classes"]
    here, there = maskwright.load(folder), maskwright.connect(tasks_server.url, model="classes")
    assert here.predict(rows) == there.predict(rows)
    (tmp_path / "rows.txt").write_text("\n".join(rows[:4]))
    server = remote.RemoteServer(tasks_server.url, None, "classes")
    for given in ({}, {"server": server}):
        with pytest.raises(DataError) as caught:
            file_.predict_file(folder, tmp_path / "rows.txt", io.StringIO(), long="refuse", **given)
        assert caught.value.where == f"{tmp_path / 'rows.txt'}, line 4"
        assert "32 tokens" in str(caught.value)
    with pytest.raises(DataError, match=r"where: +example 1\n(.|\n)*at most 200000"):
        there.predict("x" * 300_000)
    odd = remote._RowError(99, "no such row", "there", "status 422", None)
    monkeypatch.setattr(remote.RemoteServer, "ask", Mock(side_effect=odd))
    with pytest.raises(DataError, match="there"):  # of a server that counts otherwise
        there.predict("a")


NO_ADDRESSES = (
    *("127.0.0.1:8000", "ftp://a", "http://", "http://a:99999", "http://[::1", "http://a/b c", 5),
    *("http://b\u00fccher.example", "http://user:secret@a", "http://a?b=c", "http://a\n"),
    f"http://{'a' * 64}.example",
)


@pytest.mark.parametrize("url", NO_ADDRESSES)
def test_no_address(url: Any) -> None:
    with pytest.raises(UsageError, match="no address"):
        remote.RemoteServer(url)


@pytest.mark.parametrize(("field", "value"), [("token", "a\nb"), ("token", "ü"), ("model", "")])
def test_what_no_header_holds_is_refused(field: str, value: str) -> None:
    with pytest.raises(UsageError):
        remote.RemoteServer("http://127.0.0.1:8000", **{field: value})


# ------------------------------------------------------------------------------ nothing is trusted
Change = Callable[[Any], Any]


def _set(name: str, value: Any) -> Change:
    return lambda reply: {**reply, name: value}


def _answer(**parts: Any) -> Change:
    """The first answer with other parts, under the checksum that belongs to it."""

    def change(reply: Any) -> Any:
        answers = [{**reply["answers"][0], **parts}, *reply["answers"][1:]]
        sum_ = wire.checksum_of(["the cat sat", "a dog"], wire.to_json(answers))
        return {**reply, "answers": answers, "checksum": sum_}

    return change


def _longer(reply: Any) -> Any:
    return {name: [*v, v[-1]] if name in remote.LISTS else v for name, v in reply.items()}


def _shorter(reply: Any) -> Any:
    return {name: v[:-1] if name in remote.LISTS else v for name, v in reply.items()}


def _without(name: str) -> Change:
    return lambda reply: {key: value for key, value in reply.items() if key != name}


class _Tampering(Server):
    """Passes on what a server answers, but for what `change` makes of one path."""

    upstream: ClassVar[TasksServer]
    path_: ClassVar[str] = "/v1/predict"
    change: ClassVar[Change] = staticmethod(lambda reply: reply)
    status: ClassVar[int | None] = None
    headers_: ClassVar[dict[str, str]] = {}

    def _pass(self) -> None:
        size = int(self.headers.get("content-length", 0))
        raw = self.rfile.read(size) if size else None
        status, _, reply = self.upstream.ask(self.command, self.path, raw=raw)
        here = self.path == self.path_
        reply = type(self).change(reply) if here else reply
        more = {"content-type": "application/json", **(self.headers_ if here else {})}
        self.reply(self.status or status if here else status, reply, more)

    do_GET = do_POST = _pass  # noqa: N815 - what the base class calls


@contextmanager
def tampering(server: TasksServer, **how: Any) -> Iterator[str]:
    with running(type("Tampering", (_Tampering,), {"upstream": server, **how})) as url:
        yield url


TAMPERED: dict[str, tuple[str, dict[str, Any]]] = {
    "one more": ("answers", {"change": _longer}),
    "one fewer": ("answers", {"change": _shorter}),
    "more tokens": ("tokens", {"change": _set("tokens", [1, 2, 3])}),
    "reordered": ("checksum", {"change": lambda r: {**r, "answers": r["answers"][::-1]}}),
    "no fingerprint": ("fingerprint", {"change": _without("fingerprint")}),
    "no windows": ("windows", {"change": _without("windows")}),
    "unknown field": ("more", {"change": _set("more", 1)}),
    "answers by name": ("answers", {"change": _set("answers", {"a": 1})}),
    "truncated as numbers": ("truncated", {"change": _set("truncated", [0, 0])}),
    "below none": ("tokens", {"change": _set("tokens", [1, -1])}),
    "beyond any": ("windows", {"change": _set("windows", [1, 10**30])}),
    "unknown label": ("answers[0]", {"change": _answer(label="purr")}),
    "label by number": ("answers[0]", {"change": _answer(label=1)}),
    "no score": ("answers[0]", {"change": _answer(score=None)}),
    "score in words": ("answers[0]", {"change": _answer(score="0.5")}),
    "unknown part": ("answers[0]", {"change": _answer(more=1)}),
}
FOREIGN: dict[str, dict[str, Any]] = {
    "a list": {"change": lambda r: [r]},
    "no JSON": {"change": lambda r: b"<html>"},
    "empty": {"change": lambda r: b""},
    "NaN": {"change": lambda r: json.dumps(r).replace("[", "[NaN, ", 1).encode()},
    "deep": {"change": lambda r: b"[" * 100_000},
    "deep and whole": {"change": lambda r: b'{"a":' * 5_000 + b"1" + b"}" * 5_000},
    "twice": {"change": lambda r: json.dumps(r).replace("{", '{"model": "x", ', 1).encode()},
    "other bytes": {"change": lambda r: json.dumps(r).encode().replace(b"}", b"\xff}", 1)},
    "half a character": {"change": _set("model", "\ud800")},
    "a page": {"headers_": {"content-type": "text/html; charset=utf-8"}},
    "moved": {"status": 302, "headers_": {"location": "http://127.0.0.1:9/"}},
    "gateway": {"status": 502, "change": lambda r: b"<html>bad gateway</html>"},
    "created": {"status": 201},
}


@pytest.mark.parametrize("name", [*TAMPERED, *FOREIGN])
def test_a_response_that_does_not_fit_is_refused(tasks_server: TasksServer, name: str) -> None:
    field, how = TAMPERED.get(name, ("", FOREIGN.get(name, {})))
    with tampering(tasks_server, **how) as url:
        model = maskwright.connect(url, model="classes")
        with pytest.raises(IncompatibleError) as caught:
            model.predict(["the cat sat", "a dog"])
        assert caught.value.where == (f"{url}, {field}" if field else url)


def test_a_response_that_is_passed_on_is_taken(tasks_server: TasksServer) -> None:
    """The control: the same way without a change, and with one that changes nothing."""
    own = tasks_server.opened("classes").predict(["the cat sat", "a dog"])
    for how in ({}, {"change": _answer()}, {"headers_": {"content-type": "application/json;a=b"}}):
        with tampering(tasks_server, **how) as url:
            model = maskwright.connect(url, model="classes")
            assert model.predict(["the cat sat", "a dog"]) == own


def test_answers_to_another_request_are_refused(tasks_server: TasksServer) -> None:
    first: list[Any] = []

    def change(reply: Any) -> Any:
        first.append(reply)
        return first[0]

    with tampering(tasks_server, change=change) as url:
        model = maskwright.connect(url, model="classes")
        assert model.predict(["the cat sat"]) == model.predict(["the cat sat"])
        with pytest.raises(IncompatibleError) as caught:
            model.predict(["a dog"])
        assert caught.value.where == f"{url}, checksum"


@pytest.mark.parametrize("size", [10, 5000])
def test_a_response_that_breaks_off_or_has_no_end(
    tasks_server: TasksServer, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(remote, "AWAY", 0.0)
    with tampering(tasks_server, headers_={"content-length": "100000"}) as url:
        model = maskwright.connect(url, model="classes")
        with pytest.raises(UsageError, match="IncompleteRead"):
            model.predict(["a dog"])
    monkeypatch.setattr(remote, "LARGEST", 4000)
    with tampering(tasks_server, change=lambda reply: b" " * size) as url:
        model = maskwright.connect(url, model="classes")
        with pytest.raises(DataError if size > 4000 else IncompatibleError) as caught:
            model.predict(["a dog", "the cat"])
        assert caught.value.where == ("example 1" if size > 4000 else url)


DESCRIBED: dict[str, Change] = {
    "fingerprint": _without("fingerprint"),
    "more": _set("more", 1),
    "labels": _set("labels", ["a", 5]),
    "max_rows": _set("max_rows", 0),
    "max_body_bytes": _set("max_body_bytes", True),
    "length": _set("length", None),
    "columns": _set("columns", {}),
    "columns ": _set("columns", {"text": []}),
    "columns  ": _set("columns", {"text": ["text"], "moods": ["mood"]}),
    "findings": _set("findings", [{"name": "x"}]),
    "options": _set("options", []),
    "task": _set("task", "astrology"),
    "task ": _set("findings", [{**dict.fromkeys(remote.FINDING, ""), "severity": "note"}]),
}


@pytest.mark.parametrize("field", DESCRIBED)
def test_a_description_that_does_not_fit_is_refused(tasks_server: TasksServer, field: str) -> None:
    path = "/v1/models/classes/task"
    with (
        tampering(tasks_server, path_=path, change=staticmethod(DESCRIBED[field])) as url,
        pytest.raises(IncompatibleError) as caught,
    ):
        maskwright.connect(url, model="classes")
    assert caught.value.where == f"{url}, {field.strip()}"


@pytest.mark.parametrize("name", ROWS)
def test_the_form_of_answers(tasks_server: TasksServer, name: str) -> None:
    """Each answer fits, and none with a part fewer, or of another type or place."""
    task_type = tasks_server.opened(name).predictor.task_type
    for row in ROWS[name]:
        values = list(row.values())[: max(1, len(task_type.roles))]
        example = task_type.of_value(values[0] if len(values) == 1 else values, "here")
        (answer,) = tasks_server.opened(name).predictor.answer([example])[0]
        text = getattr(example, "context", None) or getattr(example, "text", "")
        form = task_type.answer_form(example)
        assert remote._fits(answer, form, text)
        parts = answer[0] if isinstance(answer, list) else answer
        others = [{n: v for n, v in parts.items() if n != name} for name in parts]
        wrong: tuple[Any, ...] = (["a"], [1.0, 2], None, True, -7, {})
        others += [{**parts, name: value} for name in parts for value in wrong]
        others += [{**parts, "end": 10**9}] if "end" in parts else []
        for other in others:
            assert not remote._fits([other] if isinstance(answer, list) else other, form, text)
        assert remote._fits(answer, None) and not remote._fits([[answer]], form, text)


# ------------------------------------------------------------------------------ another model
@pytest.fixture(scope="module")
def two(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Models of one task with other labels."""
    folder = tmp_path_factory.mktemp("two")
    made = []
    for labels in (("meow", "woof"), ("north", "south")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(small_tasks.LABELS, "classification", labels)
            made.append(small_tasks.made(model, folder / labels[0], "classification"))
    return made[0], made[1]


@contextmanager
def swapping(two: tuple[Path, Path], after: int) -> Iterator[str]:
    """A server that answers by the second model from so many requests for answers on."""
    running_ = maskwright.serve(names={"m": two[0]}, port=0, background=True)
    assert running_ is not None
    with running_ as server, pytest.MonkeyPatch.context() as patch:
        answer, seen = Host.predict, itertools.count(1)

        async def predict(self: Host, *given: Any) -> Any:
            if next(seen) == after:
                await asyncio.to_thread(self.swap, "m", two[1])
            return await answer(self, *given)

        patch.setattr(Host, "predict", predict)
        yield server.url


def test_a_model_that_is_swapped_ends_the_file(
    two: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(file_, "PORTION", 4)
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("text\n" + "".join(f"the cat sat {n}\n" for n in range(20)))
    assert main(["predict", str(two[0]), str(rows), "--out", str(tmp_path / "all.csv")]) == 0
    every = (tmp_path / "all.csv").read_text().splitlines()
    with swapping(two, 4) as url:  # one request is for the names of the columns
        ask = ["predict", "m", str(rows), "--server", url, "--out", str(out)]
        assert main(ask) == 75
        part = tmp_path / "out.partial-1.csv"
        assert part.read_text().splitlines() == every[: 1 + 8]
        assert not out.exists() and part.name in capsys.readouterr().err
        assert main(ask) == 0  # by the other model alone
        assert all(line.split(",")[1] in ("north", "south") for line in _rows(out))
    out.unlink()
    with swapping(two, 0) as url:  # the first model is served again
        ask[4] = url
        with swapping(two, 4) as other:
            assert main([*ask[:4], other, *ask[5:]]) == 75
        assert (tmp_path / "out.partial-2.csv").read_text() == part.read_text()
        assert main(ask) == 0
        assert out.read_text().splitlines() == every
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def _rows(file: Path) -> list[str]:
    return file.read_text().splitlines()[1:]


def test_a_model_that_is_swapped_is_noticed_in_memory_and_in_a_pipe(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_, "PORTION", 2)
    monkeypatch.setattr(remote, "CHUNK", 2)
    monkeypatch.setattr(remote, "AT_ONCE", 1)
    texts = [f"the cat sat {n}" for n in range(10)]
    rows, written = tmp_path / "rows.txt", io.StringIO()
    rows.write_text("\n".join(texts))
    with swapping(two, 3) as url:
        with pytest.raises(StoppedError) as caught:
            file_.predict_file(Path("-"), rows, written, server=remote.RemoteServer(url, model="m"))
        assert caught.value.where == f"{url}, m"
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [line["text"] for line in lines] == texts[:4]
    assert {line["prediction"]["label"] for line in lines} <= {"meow", "woof"}
    with swapping(two, 3) as url, pytest.raises(StoppedError):
        maskwright.connect(url, model="m").predict(texts)


def test_rows_are_kept_where_the_server_goes_away(
    two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command goes on after them; of a row that is at fault nothing is kept."""
    monkeypatch.setattr(remote, "AWAY", 0.0)
    monkeypatch.setattr(file_, "PORTION", 4)
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("text\n" + "".join(f"the cat sat {n}\n" for n in range(12)))
    first = remote.RemoteServer.ask
    with swapping(two, 0) as url:
        asked: list[str] = []

        def ask(self: remote.RemoteServer, form: Any, method: str, *given: Any) -> Any:
            asked.append(method)
            if asked.count("POST") == 4:
                raise remote._AwayError("the server cannot be reached", do="start it")
            return first(self, form, method, *given)

        monkeypatch.setattr(remote.RemoteServer, "ask", ask)
        server = remote.RemoteServer(url, model="m")
        with pytest.raises(UsageError, match=r"start it; then give .* 8 rows"):
            write_predictions("-", rows, out, server=server)
        del asked[:]
        assert write_predictions("-", rows, out, server=server) == 12
        assert asked.count("POST") == 2, "the names, and the last portion"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
