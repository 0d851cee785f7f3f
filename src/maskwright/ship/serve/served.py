"""A model that is served: an opened folder, the heads and adapters on it, and how each is asked.

    open_all(["topics", "mood"], …) -> {"topics": Served, "mood": Served}

Folders whose weights below the heads are equal share them: the second is laid out as the first, and
requests to both go together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from maskwright.ask.predict.language_model import LanguageModel
from maskwright.ask.predict.open_model import OpenModel
from maskwright.ask.predict.predictor import Predictor
from maskwright.base.errors import IncompatibleError, MaskwrightError, UsageError
from maskwright.base.findings import Note, ignore
from maskwright.learn.tasks.base.task_type import TaskType
from maskwright.model.device.choices import Precision
from maskwright.model.graph.engines.base.names import TORCH
from maskwright.model.inference.engine import hidden
from maskwright.model.inference.prepared import finite
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.open import home_of, open_model
from maskwright.ship.serve.errors import Refusal

# What a model is asked with: the head of its task, or what makes vectors, by its pooling.
Head = tuple[str, str | None]
TASK: Head = ("task", None)

# Tokens of the texts, and how many at once, that a model is asked before anybody asks.
LENGTHS, ROWS, WORD = (8, 32, 128, 512), (1, 8), "the "


def vectors(pooling: str | None) -> Head:
    """What makes vectors of texts; None: the model's own pooling, or the mean."""
    return ("vectors", pooling)


@dataclass(eq=False)
class Asking:
    """An opened model, alone or with an adapter, as it is asked by `host`.

    Attributes:
        name: in requests.
        opened: the model.
        backbone: the same for all that stand on the same weights.
    """

    name: str
    opened: OpenModel
    backbone: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _made: dict[Head, tuple[Predictor, Any]] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the model, and of what was learned beside it."""
        return self.opened.model.fingerprint

    @cached_property
    def predictor(self) -> Predictor:
        """Raises IncompatibleError where it was trained for no task."""
        return self.opened.predictor

    def _vectors(self, pooling: str | None) -> Predictor:
        """What makes vectors of texts: as it was trained, or by pooling."""
        if "predict" in self.opened.abilities and self.predictor.task_type.alone:
            if pooling is not None:
                raise Refusal("validation", "this model has its own pooling", field="pooling")
            return self.predictor
        if "embed" not in self.opened.abilities:
            raise IncompatibleError("the model makes no vectors", found=self.opened.describe())
        return self.opened.pooled(pooling or "mean")

    def known(self, head: Head) -> tuple[Predictor, Any] | None:
        """What `made` gave; None: nothing yet."""
        return self._made.get(head)

    def made(self, head: Head) -> tuple[Predictor, Any]:
        """What answers, and its network with the head, made once.

        Raises:
            IncompatibleError: the model cannot do it.
        """
        with self._lock:
            if head not in self._made:
                own = self.predictor if head == TASK else self._vectors(head[1])
                network: Any = own.network()
                vocabulary = special_tokens.vocabulary(own.frame.tokenizer)
                objective = own.task_type.objective(network, vocabulary, own.frame.long)
                self._made[head] = (own, objective.eval())
            return self._made[head]


@dataclass(eq=False)
class Served:
    """What a name stands for.

    Attributes:
        name: in requests.
        language_model: the opened folder; tokenizer and config are asked of it.
        adapters: further heads and adapters on it, by name; a request chooses one.
    """

    name: str
    language_model: LanguageModel
    backbone: int
    _asking: dict[str | None, Asking] = field(default_factory=dict)

    def __post_init__(self) -> None:
        opened = self.language_model.opened()
        self._asking[None] = Asking(self.name, opened, self.backbone)

    def asking(self, adapter: str | None = None) -> Asking:
        """The model, with an adapter.

        Raises:
            Refusal: it has none of that name.
        """
        if adapter not in self._asking:
            known = ", ".join(self.adapters) or "none"
            raise Refusal(
                "not_found", f"no adapter of that name; there are: {known}", field="adapter"
            )
        return self._asking[adapter]

    def add_adapter(self, name: str, folder: Path) -> None:
        """Raises UsageError where the name is taken, IncompatibleError on another model."""
        self.language_model.load_adapter(folder, name)
        self._asking[name] = Asking(name, self.language_model.opened(name), self.backbone)
        _ = self._asking[name].fingerprint

    @property
    def adapters(self) -> tuple[str, ...]:
        return tuple(name for name in self._asking if name is not None)

    @property
    def opened(self) -> OpenModel:
        return self._asking[None].opened

    @property
    def folder(self) -> Path:
        return self.opened.model.folder

    @property
    def abilities(self) -> tuple[str, ...]:
        """Names of what it can be asked, as of `LanguageModel`."""
        return self.opened.abilities

    @cached_property
    def task_type(self) -> TaskType | None:
        """What it was trained for; None: no task."""
        return self._asking[None].predictor.task_type if "predict" in self.abilities else None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the scores; () where there are none."""
        task = self.task_type
        return () if task is None else task.labels

    @property
    def longest(self) -> int | None:
        """The most tokens of one text, special ones included; None: any number."""
        if "predict" in self.abilities:
            return self._asking[None].predictor.frame.length
        return self.opened.model.config.longest

    def warm(self) -> float:
        """Ask the networks of the model and of its adapters once at lengths that are common, on
        this thread.

        Returns:
            Tokens a second of the largest batch, the slowest of them.

        Raises:
            CheckpointError: what they compute is not finite.
        """
        rates = [float("inf")]
        for asking in self._asking.values():
            model = asking.opened.model
            if model.words is None:
                continue
            most = model.config.longest
            most = LENGTHS[-1] if most is None else most - model.positions
            network = asking.opened.network()
            for length in sorted({min(length, most) for length in LENGTHS}):
                ids = model.tokenizer.frame(model.tokenizer.encode(WORD * length))[0][:length]
                for rows in ROWS:
                    begin = time.perf_counter()
                    finite(torch.cat(hidden(network, [ids] * rows)), self.folder)
                    seconds = time.perf_counter() - begin
            rates.append(ROWS[-1] * len(ids) / seconds)
        return min(rates)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of config, weights and tokenizer."""
        return self._asking[None].fingerprint


def open_one(
    name: str,
    folder: Path,
    known: Sequence[Served],
    precision: Precision,
    note: Note = ignore,
    engine: str = TORCH,
) -> Served:
    """The model in `folder`, on the weights of one of the `known` where they are equal.

    Raises:
        As `maskwright.load`.
    """
    model = open_model(folder)
    for finding in model.findings:
        note(finding)
    for other in known:
        if (shared := other.opened.root.sharing(model)) is not None:
            found = Served(name, LanguageModel.of(shared), other.backbone)
            break
    else:
        made = LanguageModel(model, precision, engine)
        for finding in made.engine_findings:
            note(finding)
        found = Served(name, made, id(made.opened()))
    _ = found.fingerprint  # of the files as they are now, before they can change
    return found


def open_all(
    models: Mapping[str, Path],
    adapters: Mapping[str, Path],
    precision: Precision,
    note: Note = ignore,
    engine: str = TORCH,
) -> dict[str, Served]:
    """All models by name, and each adapter on the model that it was trained on.

    Raises:
        UsageError: no model, or no such folder.
        IncompatibleError: an adapter that stands on none of the models.
        And as `maskwright.load`.
    """
    if not models:
        raise UsageError("no model to serve", do="maskwright serve MODEL")
    found: dict[str, Served] = {}
    for name, folder in models.items():
        found[name] = open_one(name, folder, list(found.values()), precision, note, engine)
    for name, folder in adapters.items():
        _place(name, folder, list(found.values()))
    return found


def _place(name: str, folder: Path, models: Sequence[Served]) -> None:
    """Put an adapter on the first model that it fits."""
    refused: MaskwrightError | None = None
    for each in models:
        try:
            each.add_adapter(name, folder)
            for other in models:  # all that stand on the same weights have it
                if other.backbone == each.backbone:
                    other._asking[name] = each._asking[name]
            return
        except IncompatibleError as error:
            refused = error
    assert refused is not None
    raise refused


def names_of(folders_given: Sequence[Path | str]) -> dict[str, Path]:
    """Names for folders that were given without one: what a person calls them.

    Raises:
        UsageError: two of one name.
    """
    found: dict[str, Path] = {}
    for folder in map(Path, folders_given):
        name = folders.called(home_of(folder)) if folder.is_dir() else folder.name
        if name in found:
            raise UsageError(
                "two models of one name",
                where=folder,
                found=name,
                do="name one of them: --name NAME=FOLDER",
            )
        found[name] = folder
    return found
