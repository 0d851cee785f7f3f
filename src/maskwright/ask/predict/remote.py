"""Client of a model on a running server, with the interface of a local model.

    with_server("http://127.0.0.1:8000").answer(rows)

Rows are sent in chunks, several at a time; predictions keep the order of the rows. A request to a
busy server is repeated after the time that it names; a chunk that is too large for it is halved.
Responses are validated: the fields of `TASK` or `PREDICTIONS`, one valid prediction per row, and
the fingerprint of the model that was connected to.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import types
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Any, get_args
from urllib.parse import quote, urlsplit

import numpy as np

from maskwright.ask.predict.language_model import nothing_to_answer, warn
from maskwright.ask.predict.predictor import Answer, BasePredictor, OnBad
from maskwright.ask.predict.wire import checksum_of, to_json
from maskwright.base.errors import (
    DataError,
    Finding,
    IncompatibleError,
    MaskwrightError,
    Note,
    Severity,
    StoppedError,
    UsageError,
    ignore,
    shorten,
)
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import counted
from maskwright.learn.tasks.base.choices import LongText, require_choice
from maskwright.learn.tasks.base.task_type import SECOND, Extent, TaskType, task_for

CHUNK, AT_ONCE = 64, 4  # rows of a request, and requests at a time
SHARE = 4  # a chunk may fill 1 / SHARE of the largest allowed body
PATIENCE = 300.0  # seconds to retry while the server is busy
AWAY = 30.0  # seconds to retry while a server that has answered before is down, as at a restart
LONGEST_WAIT = 10.0
TIMEOUT = 120.0
LARGEST, PIECE = 1 << 26, 1 << 16  # largest response in bytes, and bytes per read
SHOWN = 16  # hexadecimal digits of a fingerprint in messages
JSON = "application/json"
FULL, SLOW = (429, 503), 408
TOO_MUCH = (SLOW, 413)
# The expected form of each field of a response, in the notation of `TaskType.answer_form`.
COUNT = range(1 << 31)
FINDING = {"name": str, "what": str, "evidence": str, "remedy": str, "severity": get_args(Severity)}
TASK = {
    **dict.fromkeys(("model", "fingerprint", "task"), str),
    "labels": [str],
    "options": dict,
    "columns": dict,
    **dict.fromkeys(("length", "max_rows", "max_body_bytes"), COUNT[1:]),
    "findings": [FINDING],
}
LISTS = {"answers": [None], "tokens": [COUNT], "windows": [COUNT], "truncated": [bool]}
PREDICTIONS = {**dict.fromkeys(("model", "fingerprint", "checksum"), str), **LISTS}
ROW = re.compile(r"rows\[([0-9]{1,9})\]")  # the row in an error response


@dataclass(frozen=True)
class RemoteServer:
    """The address of a `maskwright serve` server, and a model there.

    Attributes:
        url: such as http://127.0.0.1:8000.
        token: the server's access token; None: it needs none.
        model: the name of the model on the server; None: its only one.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    model: str | None = None

    def __post_init__(self) -> None:
        if not _is_address(self.url):
            raise UsageError(
                "no address of a server",
                where="the address of the server",
                found=self.url,
                wanted="http://HOST:PORT",
            )
        for value, where in ((self.token, "the token of the server"), (self.model, "the model")):
            if value is not None and (not isinstance(value, str) or not _is_line(value)):
                raise UsageError("no text of one line", where=where, found=type(value).__name__)
        if self.token is not None and not self.token.isascii():
            raise UsageError("no token of a server", where="--server-token", wanted="ASCII letters")

    def ask(
        self,
        form: Mapping[str, Any],
        method: str,
        path: str,
        body: bytes | None = None,
        away: float = 0.0,
    ) -> dict[str, Any]:
        """Send a request and return the JSON response, validated against `form`.

        Args:
            away: seconds to retry while the server cannot be reached.

        Raises:
            UsageError: the server cannot be reached, stays busy, or rejects the request.
            DataError: it rejects a row.
            IncompatibleError: it rejects the model, or is not a maskwright server.
        """
        started, wait = time.monotonic(), 0.1
        while True:
            try:
                status, headers, data = self._request(method, path, body)
            except _AwayError:
                if time.monotonic() - started > away:
                    raise
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            if status not in FULL:
                break
            if time.monotonic() - started > PATIENCE:
                raise UsageError(
                    "the server stays full",
                    where=self.url,
                    found=f"{status} for {PATIENCE:g} seconds",
                    do="try again later, or start it with a higher --max-wait-seconds",
                )
            retry_after = headers.get("retry-after", "")
            time.sleep(min(float(retry_after) if retry_after.isdecimal() else wait, LONGEST_WAIT))
            wait = min(2 * wait, LONGEST_WAIT)
        is_json = headers.get("content-type", JSON).partition(";")[0].strip().lower() == JSON
        try:
            reply = parse_object(data if is_json else b"", "", error=DataError, largest=LARGEST)
        except DataError:
            reply = {}
        if status != 200:
            raise self._reported_error(status, reply) or self._not_maskwright(status, headers, data)
        if not reply:
            raise self._not_maskwright(status, headers, data)
        for name in sorted(reply.keys() | form.keys()):
            if name not in form or name not in reply or not _fits(reply[name], form[name]):
                raise self.unknown(name, repr(reply[name]) if name in reply else "nothing")
        return reply

    def unknown(self, field: str, value: object) -> IncompatibleError:
        """Return the error about a response field with an unexpected value."""
        return IncompatibleError(
            "the server answers in a way that is not known here",
            where=f"{self.url}, {field}",
            found=value,
            do="use the same release of maskwright there and here",
        )

    def _request(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[int, dict[str, str], bytearray]:
        """Send one HTTP request; returns status, headers by lower-case name, and body."""
        address = urlsplit(self.url)
        is_https = address.scheme == "https"
        scheme = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
        assert address.hostname is not None
        connection = scheme(address.hostname, address.port or scheme.default_port, timeout=TIMEOUT)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, address.path.rstrip("/") + path, body, headers)
            data, deadline = bytearray(), time.monotonic() + TIMEOUT
            with connection.getresponse() as response:
                while len(data) <= LARGEST and (piece := response.read1(PIECE)):
                    data += piece
                    if time.monotonic() > deadline:
                        raise TimeoutError("the response does not end")
                if len(data) > LARGEST:
                    raise _TooMuchError("the response is too large", where=self.url, wanted=LARGEST)
                if response.length:  # bytes of the announced body that never arrived
                    raise http.client.IncompleteRead(bytes(data), response.length)
            return response.status, {n.lower(): v for n, v in response.getheaders()}, data
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise _AwayError(
                "the server cannot be reached",
                where=self.url,
                found=f"{type(error).__name__}: {error}",
                do="start it: maskwright serve MODEL",
            ) from error
        finally:
            connection.close()

    def _reported_error(self, status: int, reply: dict[str, Any]) -> MaskwrightError | None:
        """Return the error that the server reports; None if it is not a maskwright server."""
        error, kind, field, limit = map(reply.get, ("error", "kind", "field", "limit"))
        if not isinstance(kind, str) and status not in (*TOO_MUCH, 401):
            return None
        where = f"{self.url}{f', {field}' if field else ''}"
        limit_text = None if limit is None else f"at most {limit}"
        message, found = f"the server refuses: {error}", f"status {status}"
        if status in TOO_MUCH:
            return _TooMuchError(message, where=where, found=found, wanted=limit_text)
        if kind == "validation" and (row := ROW.match(str(field))):
            return _RowError(int(row[1]), message, where, found, limit_text)
        classes = {"validation": DataError, "model": IncompatibleError}
        error_class, remedy = classes.get(str(kind), UsageError), None
        if status == 401:
            remedy = "give the token of the server: --server-token, or MASKWRIGHT_TOKEN"
        if field == "model" and kind == "validation":  # no example is at fault
            error_class = UsageError
            remedy = "name one of them: model=NAME, or MODEL before the file"
        return error_class(message, where=where, found=found, wanted=limit_text, do=remedy)

    def _not_maskwright(
        self, status: int, headers: Mapping[str, str], data: bytearray
    ) -> IncompatibleError:
        text = headers.get("location") or data.decode("utf-8", "replace")
        return IncompatibleError(
            "no server of maskwright answers there",
            where=self.url,
            found=f"status {status}: {shorten(text, 80)}",
            do="start one: maskwright serve MODEL",
        )


def _fits(value: Any, form: Any, text: str = "") -> bool:
    """Whether a value of a response matches `form`: a dict by keys, [form] for a list, a type or
    union, a range of int, a tuple of str, or None for anything. If a dict has "start" and "end",
    they have to delimit its word or answer in `text`."""
    if isinstance(form, dict):
        if not isinstance(value, dict) or value.keys() != form.keys():
            return False
        lengths = {len(value_list) for value_list in value.values() if isinstance(value_list, list)}
        if len(lengths) > 1 or not all(_fits(value[name], form[name], text) for name in form):
            return False
        if "start" not in form:
            return True
        start, end, words = value["start"], value["end"], value.get("word", value.get("answer"))
        return 0 <= start <= end <= len(text) and text[start:end] == words
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(item, form[0], text) for item in value)
    if isinstance(form, type | types.UnionType):
        return type(value) in (get_args(form) or (form,))
    if isinstance(form, range):
        return type(value) is int and value in form
    return form is None or (type(value) in (str, types.NoneType) and value in form)


class ModelChangedError(StoppedError):
    """The server has replaced the model that was connected to by another one."""


class _AwayError(UsageError):
    """The server cannot be reached."""


class _TooMuchError(DataError):
    """A chunk is too large for the server, or takes it too long."""


class _RowError(DataError):
    """The server rejects the row with the index `row` in the chunk."""

    def __init__(self, row: int, what: str, where: str, status: str, limit: str | None) -> None:
        super().__init__(what, where=where, found=status, wanted=limit)
        self.row = row


def _is_address(url: object) -> bool:
    """Whether `url` is an http(s) URL with a host, without credentials, query or fragment."""
    if not isinstance(url, str) or not url.isascii() or not _is_line(url) or " " in url:
        return False
    try:
        address = urlsplit(url)
        valid = address.port != 0 and bool(address.hostname) and address.scheme in ("http", "https")
        (address.hostname or "").encode("idna")  # fails if a label exceeds 63 characters
    except ValueError:
        return False
    return valid and not (address.query or address.fragment or "@" in address.netloc)


def _is_line(text: str) -> bool:
    return bool(text) and text.isprintable()


@dataclass(frozen=True, repr=False, eq=False)
class RemoteModel(BasePredictor):
    """A fine-tuned model on a server, as `connect` returns it.

    Attributes:
        task_type, columns: as reported by the server; there is no local network.
        fingerprint: the hash of the model's config, weights and tokenizer when connecting.
        max_rows, max_bytes: the limits of a request.
        findings: about its predictions.
        long: handling of texts beyond the model's context.
    """

    server: RemoteServer
    task_type: TaskType
    columns: Mapping[str, Sequence[str]]
    fingerprint: str
    max_rows: int
    max_bytes: int
    findings: Sequence[Finding] = ()
    long: LongText = "as_trained"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self.server.url

    @property
    def name(self) -> str | None:
        """The name of the model on the server; None: its only one."""
        return self.server.model

    @property
    def task(self) -> str:
        """The task of the model, such as "classification"."""
        return self.task_type.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its classes; empty for tasks without classes."""
        return self.task_type.labels

    def predict(
        self,
        given: Iterable[Any],
        *,
        top: int | None = None,
        on_bad: OnBad = "strict",
        long: LongText = "as_trained",
        note: Note = warn,
    ) -> list[Answer]:
        """Predict the task for each example, as `LanguageModel.predict` of the same model.

        Args:
            given: examples, as there; sent in chunks, which are repeated if the server is busy.
            top: return a list of this many best predictions per example, the best first.
            on_bad: "skip" returns None for an example that cannot be read.
            long: "as_trained", "windows" or "refuse", as there.
            note: called with findings about truncated texts; by default a warning.

        Raises:
            UsageError: the list is empty, an argument has an unknown value, or the server cannot be
                reached, stays busy or rejects the token.
            DataError: an example does not have the form that the model was trained on.
            StoppedError: an example takes the server too long.
        """
        if isinstance(given, Sequence) and len(given) == 0:
            raise nothing_to_answer("predict")
        model = self.with_long_texts(long)
        return BasePredictor.predict(model, given, top=top, on_bad=on_bad, note=note)

    def windows(self, given: Iterable[Any]) -> list[int]:
        """Return the number of windows that `predict` with long="windows" reads each example in;
        takes as long, and raises the same errors, as `predict`."""
        return BasePredictor.windows(self.with_long_texts("windows"), given)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r} "
        return f"<maskwright model {name}at {self.url}: {self.task}>"

    def with_long_texts(self, long: LongText) -> RemoteModel:
        require_choice(long, get_args(LongText), "long")
        return replace(self, long=long)

    def extent(self, rows: Sequence[Any]) -> Extent:
        return self.answer(rows)[1]

    def answer(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        if top is not None and top < 1:
            raise UsageError("no answer to give", where="--top", found=top, wanted="1 or more")
        chunks = self._chunks([self.task_type.value_of(row) for row in rows])
        starts = [0, *accumulate(map(len, chunks))][:-1]

        def predict_chunk(start: int, values: list[Any]) -> list[dict[str, Any]]:
            return self._responses(values, rows[start : start + len(values)], top)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            responses = [*chain.from_iterable(pool.map(predict_chunk, starts, chunks))]
        fields: dict[str, list[Any]] = {
            name: [value for response in responses for value in response[name]] for name in LISTS
        }
        if cut := sum(fields["truncated"]):
            note(Finding("truncated", f"{cut:,} of {len(rows):,} rows truncated by the server"))
        counts = (np.array(fields[name], np.int64) for name in ("tokens", "windows", "truncated"))
        return fields["answers"], Extent(*counts)

    def _chunks(self, values: Sequence[Any]) -> list[list[Any]]:
        """Split rows into lists that fit into a request."""
        max_rows, max_bytes = min(CHUNK, self.max_rows), self.max_bytes // SHARE
        chunks: list[list[Any]] = []
        size = 0
        for value in values:
            bytes_of_row = len(json.dumps(value))
            if not chunks or len(chunks[-1]) == max_rows or size + bytes_of_row > max_bytes:
                chunks.append([])
                size = 0
            chunks[-1].append(value)
            size += bytes_of_row
        return chunks

    def _responses(
        self, values: list[Any], rows: Sequence[Any], top: int | None
    ) -> list[dict[str, Any]]:
        """Request predictions for some rows. Returns one response, or several if the chunk was too
        large for the server and was halved."""
        body = {"model": self.server.model, "rows": values, "top": top, "long": self.long}
        try:
            predictions = self.server.ask(
                PREDICTIONS, "POST", "/v1/predict", json.dumps(body).encode(), AWAY
            )
            self._validate(predictions, values, rows, top)
            return [predictions]
        except _RowError as error:
            if error.row >= len(rows):  # no server of ours
                raise
            raise _placed(rows[error.row], error) from error
        except _TooMuchError as error:
            if len(values) == 1:
                timed_out = error.found == f"status {SLOW}"  # not the fault of the row
                raise _placed(rows[0], error, StoppedError if timed_out else DataError) from error
        half = len(values) // 2
        first_half = self._responses(values[:half], rows[:half], top)
        return [*first_half, *self._responses(values[half:], rows[half:], top)]

    def _validate(
        self, predictions: dict[str, Any], values: list[Any], rows: Sequence[Any], top: int | None
    ) -> None:
        """Validate a response. Raises a `ModelChangedError` if it comes from another model, and an
        `IncompatibleError` if its predictions do not match the rows or the task."""
        if predictions["fingerprint"] != self.fingerprint:
            raise ModelChangedError(
                "another model answers there now",
                where=f"{self.server.url}, {predictions['model']}",
                found=predictions["fingerprint"][:SHOWN],
                wanted=self.fingerprint[:SHOWN],
                do="connect to it again and ask for all rows anew, so that one model answers them",
            )
        answers = predictions["answers"]
        for name in LISTS:
            if (count := len(predictions[name])) != len(rows):
                raise self.server.unknown(name, f"{count} for {counted(len(rows), 'row')}")
        if predictions["checksum"] != checksum_of(values, to_json(answers)):
            raise self.server.unknown("checksum", "not that of these rows and answers")
        for number, (answer, row) in enumerate(zip(answers, rows, strict=True)):
            form = self.task_type.answer_form(row, top is not None)
            form = form if top is None else [form]
            text = str(getattr(row, "context", None) or getattr(row, "text", ""))
            if not _fits(answer, form, text) or (top is not None and not 1 <= len(answer) <= top):
                raise self.server.unknown(f"answers[{number}]", repr(answer))


def _placed(row: Any, error: DataError, kind: type[MaskwrightError] = DataError) -> MaskwrightError:
    """Return the server's error with the location of the row in the client's data."""
    return kind(error.what, where=row.where, found=error.found, wanted=error.wanted)


def with_server(server: RemoteServer) -> RemoteModel:
    """Connect to a model on a server.

    Raises:
        IncompatibleError: the model was not fine-tuned for a task, or for an unknown one.
        UsageError: the server cannot be reached or requires a token; it has no model of this name,
            or several and `server.model` is None.
    """
    name = server.model
    path = "/v1/task" if name is None else f"/v1/models/{quote(name, safe='')}/task"
    task = server.ask(TASK, "GET", path)
    try:
        task_type = task_for(task["task"], task["labels"], task["options"])
        findings = tuple(Finding(**finding) for finding in task["findings"])
    except (UsageError, ValueError) as error:
        raise server.unknown("task", error) from error
    columns = task["columns"]
    allowed, needed = {*task_type.roles, *task_type.optional_roles, SECOND}, {*task_type.roles}
    roles_match = allowed >= columns.keys() >= needed or columns.keys() == {task_type.alone}
    if not roles_match or not all(names and _fits(names, [str]) for names in columns.values()):
        raise server.unknown("columns", columns)
    limits = task["max_rows"], task["max_body_bytes"]
    return RemoteModel(server, task_type, columns, task["fingerprint"], *limits, findings)


TOKEN = "MASKWRIGHT_TOKEN"


def connect(url: str, token: str | None = None, *, model: str | None = None) -> RemoteModel:
    """Connect to a model on a `maskwright serve` server.

    Args:
        url: of the server, such as "http://127.0.0.1:8000".
        token: its access token; None: the environment variable MASKWRIGHT_TOKEN, if set.
        model: the name of a model or adapter on the server; None: its only one.

    Raises:
        UsageError: the address is malformed or not reachable, the token is wrong, or there is no
            model of this name, or several and none is named.
        IncompatibleError: the server is not maskwright or of another release, or the model was not
            fine-tuned for a task.
    """
    token = os.environ.get(TOKEN) if token is None else token
    return with_server(RemoteServer(url, token or None, model))
