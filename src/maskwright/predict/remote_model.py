"""The public object for a model that a running server answers for.

    reviews = maskwright.connect("http://127.0.0.1:8000", model="reviews")
    reviews.predict(["What a film!"])

It is asked as a model that was opened here is, and gives the same answers. Nothing is loaded here
but what the task is.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from maskwright.errors import UsageError
from maskwright.findings import Finding
from maskwright.predict.language_model import CutWarning
from maskwright.predict.predictor import Answer, OnBad
from maskwright.predict.remote import RemotePredictor, Server, with_server
from maskwright.tasks.parts.choices import LongText

TOKEN = "MASKWRIGHT_TOKEN"


class RemoteModel:
    """A model of a task on a server, as `connect` gives it."""

    def __init__(self, predictor: RemotePredictor) -> None:
        self._predictor = predictor

    @property
    def url(self) -> str:
        """Of the server."""
        return self._predictor.server.url

    @property
    def name(self) -> str | None:
        """Of the model there; None: it is the only one."""
        return self._predictor.server.model

    @property
    def task(self) -> str:
        """What it was trained for, such as "classification"."""
        return self._predictor.task_type.task

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its classes; () where it has none."""
        return self._predictor.task_type.labels

    @property
    def fingerprint(self) -> str:
        """The hash of its config, weights and tokenizer, as when it was connected to."""
        return self._predictor.fingerprint

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What to know of its answers."""
        return tuple(self._predictor.findings)

    def predict(
        self,
        given: Iterable[Any],
        *,
        top: int | None = None,
        on_bad: OnBad = "strict",
        long: LongText = "as_trained",
    ) -> list[Answer]:
        """An answer of the task for each example, as `LanguageModel.predict` of the same model.

        Args:
            given: examples, as there; they are sent in chunks, again where the server is full.
            top: give a list of the best so many answers for each, the best first.
            on_bad: with "skip" the answer to an example that cannot be read is None.
            long: what becomes of a text that is longer than the model reads: "as_trained",
                "windows" or "refuse", as there.

        Raises:
            UsageError: an empty list, an argument that is none of these, or a server that cannot be
                reached, stays full or refuses the token.
            DataError: an example of another shape than the model was trained on.
        """
        if isinstance(given, Sequence) and len(given) == 0:
            raise UsageError(
                "nothing to answer",
                where="predict",
                found="an empty list",
                wanted="one text or more",
            )
        return self._predictor.reading(long).predict(given, top=top, on_bad=on_bad, note=_warn)

    def windows(self, given: Iterable[Any]) -> list[int]:
        """In how many windows `predict` with long="windows" reads each example; 1: at once. It
        takes as long as `predict`.

        Raises:
            As `predict`.
        """
        return self._predictor.reading("windows").windows(given)

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r} "
        return f"<maskwright model {name}at {self.url}: {self.task}>"


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
    return RemoteModel(with_server(Server(url, token or None, model)))


def _warn(found: Finding) -> None:
    warnings.warn(str(found), CutWarning, stacklevel=4)
