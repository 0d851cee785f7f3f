"""A model that a running server answers for, asked row by row as one that was opened here.

    with_server("http://127.0.0.1:8000").answers(rows)

Rows go there in chunks, several at a time, and answers come back in the order of the rows. A server
that is full is asked again when it says; a chunk that is too much for it is halved.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from maskwright.errors import DataError, IncompatibleError, UsageError, shorten
from maskwright.findings import Finding, Note, ignore
from maskwright.predict.predictor import Answer, Answering
from maskwright.tasks.parts.choices import LongText, require_long_text
from maskwright.tasks.parts.find import task_for
from maskwright.tasks.parts.task_type import Extent, TaskType

CHUNK, AT_ONCE = 64, 4  # rows of a request, and requests at a time
SHARE = 4  # of the largest body, so that a chunk may take this part
PATIENCE = 300.0  # seconds that a server may be full
AWAY = 30.0  # seconds that one that has answered may be away, as one that is started again
LONGEST_WAIT = 10.0
TIMEOUT = 120.0
FULL, TOO_MUCH = (429, 503), (408, 413)
ROW = re.compile(r"rows\[([0-9]{1,9})\]")  # a place in a refusal


@dataclass(frozen=True)
class Server:
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

    def ask(self, method: str, path: str, body: bytes | None = None, away: float = 0.0) -> Any:
        """The value that it answers with.

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
                status, headers, text = self._once(method, path, body)
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
            time.sleep(min(float(after) if after.isdigit() else wait, LONGEST_WAIT))
            wait = min(2 * wait, LONGEST_WAIT)
        if status == 200:
            try:
                return json.loads(text)
            except ValueError as error:
                raise self._foreign(status, text) from error
        raise self._refused(status, text)

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, dict[str, str], str]:
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert parts.hostname is not None
        connection = kind(parts.hostname, parts.port or kind.default_port, timeout=TIMEOUT)
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            return response.status, {n.lower(): v for n, v in response.getheaders()}, text
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise _AwayError(
                "the server cannot be reached",
                where=self.url,
                found=f"{type(error).__name__}: {error}",
                do="start it: maskwright serve MODEL",
            ) from error
        finally:
            connection.close()

    def _refused(self, status: int, text: str) -> Exception:
        try:
            reply = json.loads(text)
            names = ("error", "kind", "field", "limit")
            what, kind, place, limit = (reply.get(name) for name in names)
        except (ValueError, AttributeError):
            what, kind, place, limit = text[:200], None, None, None
        if kind is None and status in (404, 405):
            return self._foreign(status, text)
        where = f"{self.url}{f', {place}' if place else ''}"
        wanted = None if limit is None else f"at most {limit}"
        what, found = f"the server refuses: {what}", f"status {status}"
        if status in TOO_MUCH:
            return _TooMuchError(what, where=where, found=found, wanted=wanted)
        if kind == "validation" and (row := ROW.match(str(place))):
            return _RowError(int(row[1]), what, where, found, wanted)
        classes = {"validation": DataError, "model": IncompatibleError}
        do = (
            "give the token of the server: --server-token, or MASKWRIGHT_TOKEN"
            if status == 401
            else None
        )
        made = classes.get(str(kind), UsageError)
        if place == "model" and kind == "validation":  # no example is at fault
            made, do = UsageError, "name one of them: model=NAME, or MODEL before the file"
        return made(what, where=where, found=found, wanted=wanted, do=do)

    def _foreign(self, status: int, text: str) -> IncompatibleError:
        return IncompatibleError(
            "no server of maskwright answers there",
            where=self.url,
            found=f"status {status}: {shorten(text, 80)}",
            do="start one: maskwright serve MODEL",
        )


class _AwayError(UsageError):
    """The server cannot be reached."""


class _TooMuchError(DataError):
    """A chunk is too much for the server, or takes it too long."""


class _RowError(DataError):
    """A row of a chunk is at fault.

    Args:
        row: its number in the chunk.
    """

    def __init__(self, row: int, what: str, where: str, found: str, wanted: str | None) -> None:
        super().__init__(what, where=where, found=found, wanted=wanted)
        self.row = row


def _is_address(url: object) -> bool:
    """Whether it is scheme, name and port of a server, and where its paths begin."""
    if not isinstance(url, str) or not url.isascii() or not _is_line(url) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        sound = parts.port != 0 and bool(parts.hostname) and parts.scheme in ("http", "https")
        (parts.hostname or "").encode("idna")  # no part of a name is longer than 63 letters
    except ValueError:
        return False
    return sound and not (parts.query or parts.fragment or "@" in parts.netloc)


def _is_line(text: str) -> bool:
    return bool(text) and text.isprintable()


@dataclass(frozen=True)
class RemotePredictor(Answering):
    """A model of a task on a server.

    Attributes:
        task_type, columns: as the server says; no network is here.
        fingerprint: of the model there.
        long: what becomes of a text that is longer than it reads.
    """

    server: Server
    task_type: TaskType
    columns: Mapping[str, Sequence[str]]
    fingerprint: str
    max_rows: int
    max_bytes: int
    long: LongText = "as_trained"
    known: Sequence[Finding] = field(default_factory=tuple)

    @property
    def findings(self) -> list[Finding]:
        return list(self.known)

    def reading(self, long: LongText) -> RemotePredictor:
        require_long_text(long)
        return replace(self, long=long)

    def with_columns(self, columns: Mapping[str, Sequence[str]]) -> RemotePredictor:
        return replace(self, columns=columns)

    def extent(self, rows: Sequence[Any]) -> Extent:
        return self.answered(rows)[1]

    def answered(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        if top is not None and top < 1:
            raise UsageError("no answer to give", where="--top", found=top, wanted="1 or more")
        chunks = self._chunks([self.task_type.value_of(row) for row in rows])
        firsts = [0, *accumulate(map(len, chunks))][:-1]

        def part(first: int, values: list[Any]) -> dict[str, list[Any]]:
            return self._part(values, rows[first : first + len(values)], top)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            parts = list(pool.map(part, firsts, chunks))
        found: dict[str, list[Any]] = {
            name: [each for part in parts for each in part[name]]
            for name in ("answers", "tokens", "windows", "truncated")
        }
        if cut := sum(found["truncated"]):
            note(Finding("truncated", f"{cut:,} of {len(rows):,} rows truncated by the server"))
        numbers = (np.array(found[name], np.int64) for name in ("tokens", "windows", "truncated"))
        return found["answers"], Extent(*numbers)

    def _chunks(self, values: Sequence[Any]) -> list[list[Any]]:
        """Rows by as many as go into a request."""
        most, largest = min(CHUNK, self.max_rows), self.max_bytes // SHARE
        found: list[list[Any]] = []
        size = 0
        for value in values:
            own = len(json.dumps(value))
            if not found or len(found[-1]) == most or size + own > largest:
                found.append([])
                size = 0
            found[-1].append(value)
            size += own
        return found

    def _part(
        self, values: list[Any], rows: Sequence[Any], top: int | None
    ) -> dict[str, list[Any]]:
        """The answers to the values of some rows."""
        body = {"model": self.server.model, "rows": values, "top": top, "long": self.long}
        try:
            made: dict[str, list[Any]] = self.server.ask(
                "POST", "/v1/predict", json.dumps(body).encode(), AWAY
            )
            return made
        except _RowError as error:
            if error.row >= len(rows):  # no server of ours
                raise
            raise _at(rows[error.row], error) from error
        except _TooMuchError as error:
            if len(values) == 1:
                raise _at(rows[0], error) from error
        half = len(values) // 2
        one = self._part(values[:half], rows[:half], top)
        other = self._part(values[half:], rows[half:], top)
        return {
            name: one[name] + other[name] for name in ("answers", "tokens", "windows", "truncated")
        }


def _at(row: Any, error: DataError) -> DataError:
    """What the server says of a row, by the place that the row has here."""
    return DataError(error.what, where=row.where, found=error.found, wanted=error.wanted)


def with_server(server: Server) -> RemotePredictor:
    """The model of a task that a server answers for.

    Raises:
        IncompatibleError: the model there was trained for no task, or for one that this release
            does not know.
        UsageError: it cannot be reached; no such model, or several and none is named; or a token
            is wanted.
    """
    name = server.model
    path = "/v1/task" if name is None else f"/v1/models/{quote(name, safe='')}/task"
    described = server.ask("GET", path)
    try:
        task_type = task_for(described["task"], described["labels"], described["options"])
        columns = {role: tuple(names) for role, names in described["columns"].items()}
        known = tuple(Finding(**each) for each in described["findings"])
        made = (
            str(described["fingerprint"]),
            int(described["max_rows"]),
            int(described["max_body_bytes"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise IncompatibleError(
            "the server describes its model in a way that is not known here",
            where=server.url,
            found=str(error)[:200],
            do="use the same release of maskwright there and here",
        ) from error
    return RemotePredictor(server, task_type, columns, *made, known=known)
