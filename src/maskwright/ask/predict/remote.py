"""A model on a running server, used like one that was opened here.

    with_server("http://127.0.0.1:8000").answers(rows)

Rows are sent in chunks, several at a time, and answers keep the order of the rows. A request to a
full server is repeated after the time that it names; a chunk that is too large for it is halved.
Responses are validated: the fields of `TASK` or `PREDICTIONS`, an answer for each row that the task
can give, and the fingerprint of the model that was connected to.
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
from itertools import accumulate
from typing import Any, get_args
from urllib.parse import quote, urlsplit

import numpy as np

from maskwright.ask.predict.language_model import nothing_to_answer, warn
from maskwright.ask.predict.predictor import Answer, BasePredictor, OnBad
from maskwright.ask.predict.wire import checksum_of, to_json
from maskwright.base.counted import counted
from maskwright.base.errors import (
    DataError,
    IncompatibleError,
    MaskwrightError,
    StoppedError,
    UsageError,
    shorten,
)
from maskwright.base.findings import Finding, Note, Severity, ignore
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.tasks.base.choices import LongText, require_long_text
from maskwright.learn.tasks.base.task_type import SECOND, Extent, TaskType, task_for

CHUNK, AT_ONCE = 64, 4  # rows of a request, and requests at a time
SHARE = 4  # of the largest body, so that a chunk may take this part
PATIENCE = 300.0  # seconds that a server may be full
AWAY = 30.0  # seconds that one that has answered may be away, as one that is started again
LONGEST_WAIT = 10.0
TIMEOUT = 120.0
LARGEST, PIECE = 1 << 26, 1 << 16  # bytes of a response, and of a part that is read at once
SHOWN = 16  # hexadecimal digits of a fingerprint in messages
JSON = "application/json"
FULL, SLOW = (429, 503), 408
TOO_MUCH = (SLOW, 413)
# The form of each field of a response, as of `TaskType.answer_form`.
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
ROW = re.compile(r"rows\[([0-9]{1,9})\]")  # a place in a refusal


@dataclass(frozen=True)
class RemoteServer:
    """A server of models.

    Attributes:
        url: such as http://127.0.0.1:8000.
        token: that it wants; None: none.
        model: the name of the model there; None: the only one.
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
        """The response, whose fields have that form.

        Args:
            away: seconds that it may not be there.

        Raises:
            UsageError: it cannot be reached, or stays full, or refuses what is asked.
            DataError: so does it, because of a row.
            IncompatibleError: because of the model, or it is no server of maskwright.
        """
        begin, wait = time.monotonic(), 0.1
        while True:
            try:
                status, headers, data = self._once(method, path, body)
            except _AwayError:
                if time.monotonic() - begin > away:
                    raise
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                continue
            if status not in FULL:
                break
            if time.monotonic() - begin > PATIENCE:
                raise UsageError(
                    "the server stays full",
                    where=self.url,
                    found=f"{status} for {PATIENCE:g} seconds",
                    do="try again later, or start it with a higher --max-wait-seconds",
                )
            after = headers.get("retry-after", "")
            time.sleep(min(float(after) if after.isdecimal() else wait, LONGEST_WAIT))
            wait = min(2 * wait, LONGEST_WAIT)
        is_json = headers.get("content-type", JSON).partition(";")[0].strip().lower() == JSON
        try:
            reply = parse_object(data if is_json else b"", "", error=DataError, largest=LARGEST)
        except DataError:
            reply = {}
        if status != 200:
            raise self._refused(status, reply) or self._foreign(status, headers, data)
        if not reply:
            raise self._foreign(status, headers, data)
        for name in sorted(reply.keys() | form.keys()):
            if name not in form or name not in reply or not _fits(reply[name], form[name]):
                raise self.unknown(name, repr(reply[name]) if name in reply else "nothing")
        return reply

    def unknown(self, field: str, value: object) -> IncompatibleError:
        """The error about a field of a response that has an unknown value."""
        return IncompatibleError(
            "the server answers in a way that is not known here",
            where=f"{self.url}, {field}",
            found=value,
            do="use the same release of maskwright there and here",
        )

    def _once(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[int, dict[str, str], bytearray]:
        address = urlsplit(self.url)
        secure = address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert address.hostname is not None
        connection = kind(address.hostname, address.port or kind.default_port, timeout=TIMEOUT)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, address.path.rstrip("/") + path, body, headers)
            data, end = bytearray(), time.monotonic() + TIMEOUT
            with connection.getresponse() as response:
                while len(data) <= LARGEST and (piece := response.read1(PIECE)):
                    data += piece
                    if time.monotonic() > end:
                        raise TimeoutError("the response does not end")
                if len(data) > LARGEST:
                    raise _TooMuchError("the response is too large", where=self.url, wanted=LARGEST)
                if response.length:  # of a body that is announced, what never came
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

    def _refused(self, status: int, reply: dict[str, Any]) -> MaskwrightError | None:
        """The error that the server reports; None: it is no server of ours."""
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

    def _foreign(
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
    """Whether a value of a response has the form; offsets in it are those of `text`."""
    if isinstance(form, dict):
        if not isinstance(value, dict) or value.keys() != form.keys():
            return False
        lengths = {len(value_list) for value_list in value.values() if isinstance(value_list, list)}
        if len(lengths) > 1 or not all(_fits(value[name], form[name], text) for name in form):
            return False
        start, end = value.get("start", 0), value.get("end", 0)
        words = value.get("word", value.get("answer", "")) if "start" in form else ""
        return 0 <= start <= end <= len(text) and text[start:end] == words
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(item, form[0], text) for item in value)
    if isinstance(form, type | types.UnionType):
        return type(value) in (get_args(form) or (form,))
    if isinstance(form, range):
        return type(value) is int and value in form
    return form is None or (type(value) in (str, types.NoneType) and value in form)


class ModelChangedError(StoppedError):
    """Another model answers under the name that was connected to.

    Attributes:
        answered: what the first model answered before, as of `BasePredictor.answer`.
    """

    answered: tuple[list[Answer], Extent]


class _AwayError(UsageError):
    """The server cannot be reached."""


class _TooMuchError(DataError):
    """A chunk is too much for the server, or takes it too long."""


class _RowError(DataError):
    """A row of a chunk is at fault.

    Args:
        row: its number in the chunk.
    """

    def __init__(self, row: int, what: str, where: str, status: str, limit: str | None) -> None:
        super().__init__(what, where=where, found=status, wanted=limit)
        self.row = row


def _is_address(url: object) -> bool:
    """Whether it is scheme, name and port of a server, and where its paths begin."""
    if not isinstance(url, str) or not url.isascii() or not _is_line(url) or " " in url:
        return False
    try:
        address = urlsplit(url)
        sound = address.port != 0 and bool(address.hostname) and address.scheme in ("http", "https")
        (address.hostname or "").encode("idna")  # no part of a name is longer than 63 letters
    except ValueError:
        return False
    return sound and not (address.query or address.fragment or "@" in address.netloc)


def _is_line(text: str) -> bool:
    return bool(text) and text.isprintable()


@dataclass(frozen=True, repr=False, eq=False)
class RemoteModel(BasePredictor):
    """A model of a task on a server, as `connect` gives it.

    Attributes:
        task_type, columns: as the server says; no network is here.
        fingerprint: the hash of the model's config, weights and tokenizer when it was connected to.
        findings: what to know of its answers.
        long: what becomes of a text that is longer than the model reads.
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
        """Of the server."""
        return self.server.url

    @property
    def name(self) -> str | None:
        """Of the model there; None: it is the only one."""
        return self.server.model

    @property
    def task(self) -> str:
        """What it was trained for, such as "classification"."""
        return self.task_type.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its classes; () where it has none."""
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
        """An answer of the task for each example, as `LanguageModel.predict` of the same model.

        Args:
            given: examples, as there; they are sent in chunks, again where the server is full.
            top: give a list of the best so many answers for each, the best first.
            on_bad: with "skip" the answer to an example that cannot be read is None.
            long: what becomes of a text that is longer than the model reads: "as_trained",
                "windows" or "refuse", as there.
            note: gets what was cut; the usual one warns.

        Raises:
            UsageError: an empty list, an argument that is none of these, or a server that cannot be
                reached, stays full or refuses the token.
            DataError: an example of another shape than the model was trained on.
            StoppedError: one that takes the server too long.
        """
        if isinstance(given, Sequence) and len(given) == 0:
            raise nothing_to_answer("predict")
        model = self.with_long_texts(long)
        return BasePredictor.predict(model, given, top=top, on_bad=on_bad, note=note)

    def windows(self, given: Iterable[Any]) -> list[int]:
        """In how many windows `predict` with long="windows" reads each example; 1: at once. It
        takes as long as `predict`.

        Raises:
            As `predict`.
        """
        return BasePredictor.windows(self.with_long_texts("windows"), given)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r} "
        return f"<maskwright model {name}at {self.url}: {self.task}>"

    def with_long_texts(self, long: LongText) -> RemoteModel:
        require_long_text(long)
        return replace(self, long=long)

    def with_columns(self, columns: Mapping[str, Sequence[str]]) -> RemoteModel:
        return replace(self, columns=columns)

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

        responses: list[dict[str, Any]] = []
        changed: ModelChangedError | None = None
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                for chunk_responses in pool.map(predict_chunk, starts, chunks):
                    responses += chunk_responses
            except ModelChangedError as error:
                changed = error
        lists: dict[str, list[Any]] = {
            name: [value for response in responses for value in response[name]] for name in LISTS
        }
        if cut := sum(lists["truncated"]):
            note(Finding("truncated", f"{cut:,} of {len(rows):,} rows truncated by the server"))
        numbers = (np.array(lists[name], np.int64) for name in ("tokens", "windows", "truncated"))
        answered = lists["answers"], Extent(*numbers)
        if changed is not None:
            changed.answered = answered
            raise changed
        return answered

    def _chunks(self, values: Sequence[Any]) -> list[list[Any]]:
        """The rows in lists that fit into a request."""
        most, largest = min(CHUNK, self.max_rows), self.max_bytes // SHARE
        chunks: list[list[Any]] = []
        size = 0
        for value in values:
            bytes_of_row = len(json.dumps(value))
            if not chunks or len(chunks[-1]) == most or size + bytes_of_row > largest:
                chunks.append([])
                size = 0
            chunks[-1].append(value)
            size += bytes_of_row
        return chunks

    def _responses(
        self, values: list[Any], rows: Sequence[Any], top: int | None
    ) -> list[dict[str, Any]]:
        """The responses to one request with the values of some rows, or to several smaller ones."""
        body = {"model": self.server.model, "rows": values, "top": top, "long": self.long}
        try:
            predictions = self.server.ask(
                PREDICTIONS, "POST", "/v1/predict", json.dumps(body).encode(), AWAY
            )
            self._require_fitting(predictions, values, rows, top)
            return [predictions]
        except _RowError as error:
            if error.row >= len(rows):  # no server of ours
                raise
            raise _at(rows[error.row], error) from error
        except _TooMuchError as error:
            if len(values) == 1:
                late = error.found == f"status {SLOW}"  # not the fault of the row
                raise _at(rows[0], error, StoppedError if late else DataError) from error
        half = len(values) // 2
        first_half = self._responses(values[:half], rows[:half], top)
        return [*first_half, *self._responses(values[half:], rows[half:], top)]

    def _require_fitting(
        self, predictions: dict[str, Any], values: list[Any], rows: Sequence[Any], top: int | None
    ) -> None:
        """Refuse answers of another model, or such as the task cannot give to the rows.

        Raises:
            ModelChangedError, IncompatibleError
        """
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


def _at(row: Any, error: DataError, kind: type[MaskwrightError] = DataError) -> MaskwrightError:
    """The server's error about a row, with the place of the row here."""
    return kind(error.what, where=row.where, found=error.found, wanted=error.wanted)


def with_server(server: RemoteServer) -> RemoteModel:
    """The model of a task on a server.

    Raises:
        IncompatibleError: the model there was trained for no task, or for one that this release
            does not know.
        UsageError: it cannot be reached; no such model, or several and none is named; or a token
            is wanted.
    """
    name = server.model
    path = "/v1/task" if name is None else f"/v1/models/{quote(name, safe='')}/task"
    described = server.ask(TASK, "GET", path)
    try:
        task_type = task_for(described["task"], described["labels"], described["options"])
        findings = tuple(Finding(**finding) for finding in described["findings"])
    except (UsageError, ValueError) as error:
        raise server.unknown("task", error) from error
    columns = described["columns"]
    allowed, needed = {*task_type.roles, *task_type.beside, SECOND}, {*task_type.roles}
    fitting = allowed >= columns.keys() >= needed or columns.keys() == {task_type.alone}
    if not fitting or not all(names and _fits(names, [str]) for names in columns.values()):
        raise server.unknown("columns", columns)
    numbers = described["max_rows"], described["max_body_bytes"]
    return RemoteModel(server, task_type, columns, described["fingerprint"], *numbers, findings)


TOKEN = "MASKWRIGHT_TOKEN"


def connect(url: str, token: str | None = None, *, model: str | None = None) -> RemoteModel:
    """The model of a task that `maskwright serve` answers for at `url`.

    Args:
        url: of the server, such as "http://127.0.0.1:8000".
        token: that the server wants; None: the variable MASKWRIGHT_TOKEN, if it is set.
        model: the name of the model, or of an adapter, there; None: the only one.

    Raises:
        UsageError: no address, nobody answers at it, a token that is not the server's, no model of
            that name, or several and none is named.
        IncompatibleError: no server of maskwright, one of another release, or a model that was
            trained for no task.
    """
    token = os.environ.get(TOKEN) if token is None else token
    return with_server(RemoteServer(url, token or None, model))
