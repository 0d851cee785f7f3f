"""A served model: an opened folder, with the heads and adapters on it.

    open_all(["topics", "mood"], …) -> {"topics": ServedModel, "mood": ServedModel}

Folders with equal weights below the heads share them, and requests to both are batched together.
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
from maskwright.model.device.choices import Precision
from maskwright.model.graph.engines.base.names import TORCH
from maskwright.model.inference.engine import hidden
from maskwright.model.inference.prepared import finite
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.open import home_of, open_model
from maskwright.ship.serve.errors import Refusal

# Identifies a head: that of the task, or the pooling that makes vectors.
Head = tuple[str, str | None]
TASK: Head = ("task", None)

# Lengths in tokens and batch sizes of the texts with which a model is warmed up.
LENGTHS, ROWS, WORD = (8, 32, 128, 512), (1, 8), "the "


def vectors(pooling: str | None) -> Head:
    """The head that makes vectors of texts; None: the pooling of the model, or the mean."""
    return ("vectors", pooling)


@dataclass(eq=False)
class ModelVariant:
    """An opened model, alone or with an adapter.

    Attributes:
        name: in requests.
        opened: the model.
        backbone: equal for all variants on the same weights.
    """

    name: str
    opened: OpenModel
    backbone: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _heads: dict[Head, tuple[Predictor, Any]] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the model and of its adapter."""
        return self.opened.model.fingerprint

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor of the task; raises IncompatibleError if it was trained for none."""
        return self.opened.predictor

    def _vectors(self, pooling: str | None) -> Predictor:
        """The predictor that makes vectors of texts: as trained, or by pooling."""
        if "predict" in self.opened.abilities and self.predictor.task_type.alone:
            if pooling is not None:
                raise Refusal("validation", "this model has its own pooling", field="pooling")
            return self.predictor
        if "embed" not in self.opened.abilities:
            raise IncompatibleError("the model makes no vectors", found=self.opened.describe())
        return self.opened.pooled(pooling or "mean")

    def loaded_head(self, head: Head) -> tuple[Predictor, Any] | None:
        """The value of `head`, if it was called before; else None."""
        return self._heads.get(head)

    def head(self, head: Head) -> tuple[Predictor, Any]:
        """The predictor and its network with the head, created once.

        Raises:
            IncompatibleError: the model has no such head.
        """
        with self._lock:
            if head not in self._heads:
                predictor = self.predictor if head == TASK else self._vectors(head[1])
                network: Any = predictor.network()
                vocabulary = special_tokens.vocabulary(predictor.frame.tokenizer)
                objective = predictor.task_type.objective(network, vocabulary, predictor.frame.long)
                self._heads[head] = (predictor, objective.eval())
            return self._heads[head]


@dataclass(eq=False)
class ServedModel:
    """A model that is served under a name.

    Attributes:
        name: in requests.
        language_model: the opened folder.
        backbone: equal for all models on the same weights.
    """

    name: str
    language_model: LanguageModel
    backbone: int
    _variants: dict[str | None, ModelVariant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        opened = self.language_model.opened()
        self._variants[None] = ModelVariant(self.name, opened, self.backbone)

    def variant(self, adapter: str | None = None) -> ModelVariant:
        """The model, with an adapter.

        Raises:
            Refusal: it has no adapter of that name.
        """
        if adapter not in self._variants:
            names = ", ".join(self.adapters) or "none"
            raise Refusal(
                "not_found", f"no adapter of that name; there are: {names}", field="adapter"
            )
        return self._variants[adapter]

    def add_adapter(self, name: str, folder: Path) -> None:
        """Raises UsageError if the name is taken, IncompatibleError if it is for another model."""
        self.language_model.load_adapter(folder, name)
        self._variants[name] = ModelVariant(name, self.language_model.opened(name), self.backbone)
        _ = self._variants[name].fingerprint

    @property
    def adapters(self) -> tuple[str, ...]:
        return tuple(name for name in self._variants if name is not None)

    @property
    def opened(self) -> OpenModel:
        return self._variants[None].opened

    @property
    def folder(self) -> Path:
        return self.opened.model.folder

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of its abilities, as of `LanguageModel`."""
        return self.opened.abilities

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text, with special tokens; None: any number."""
        if "predict" in self.abilities:
            return self._variants[None].predictor.frame.length
        return self.opened.model.config.longest

    def warm(self) -> float:
        """Run the networks of the model and of its adapters once at common lengths, on this thread.

        Returns:
            Tokens per second of the largest batch, of the slowest network.

        Raises:
            CheckpointError: an output is not finite.
        """
        rates = [float("inf")]
        for variant in self._variants.values():
            model = variant.opened.model
            if model.words is None:
                continue
            max_tokens = model.config.longest
            max_tokens = LENGTHS[-1] if max_tokens is None else max_tokens - model.positions
            network = variant.opened.network()
            for length in sorted({min(length, max_tokens) for length in LENGTHS}):
                ids = model.tokenizer.frame(model.tokenizer.encode(WORD * length))[0][:length]
                for rows in ROWS:
                    start = time.perf_counter()
                    finite(torch.cat(hidden(network, [ids] * rows)), self.folder)
                    seconds = time.perf_counter() - start
            rates.append(ROWS[-1] * len(ids) / seconds)
        return min(rates)

    @cached_property
    def fingerprint(self) -> str:
        """The hash of config, weights and tokenizer."""
        return self._variants[None].fingerprint


def open_one(
    name: str,
    folder: Path,
    others: Sequence[ServedModel],
    precision: Precision,
    note: Note = ignore,
    engine: str = TORCH,
) -> ServedModel:
    """Open the model in `folder`, on the weights of one of the `others` if they are equal.

    Raises:
        As `maskwright.load`.
    """
    model = open_model(folder)
    for finding in model.findings:
        note(finding)
    for candidate in others:
        if (shared_model := candidate.opened.root.sharing(model)) is not None:
            served = ServedModel(name, LanguageModel.of(shared_model), candidate.backbone)
            break
    else:
        language_model = LanguageModel(model, precision, engine)
        for finding in language_model.engine_findings:
            note(finding)
        served = ServedModel(name, language_model, id(language_model.opened()))
    _ = served.fingerprint  # of the current files, before they can change
    return served


def open_all(
    models: Mapping[str, Path],
    adapters: Mapping[str, Path],
    precision: Precision,
    note: Note = ignore,
    engine: str = TORCH,
) -> dict[str, ServedModel]:
    """Open all models by name, and add each adapter to the model that it was trained on.

    Raises:
        UsageError: no model, or no such folder.
        IncompatibleError: an adapter that fits none of the models.
        And as `maskwright.load`.
    """
    if not models:
        raise UsageError("no model to serve", do="maskwright serve MODEL")
    served: dict[str, ServedModel] = {}
    for name, folder in models.items():
        served[name] = open_one(name, folder, list(served.values()), precision, note, engine)
    for name, folder in adapters.items():
        _attach_adapter(name, folder, list(served.values()))
    return served


def _attach_adapter(name: str, folder: Path, models: Sequence[ServedModel]) -> None:
    """Add an adapter to the first model that it fits, and to those on the same weights."""
    last_error: MaskwrightError | None = None
    for model in models:
        try:
            model.add_adapter(name, folder)
            for sibling in models:
                if sibling.backbone == model.backbone:
                    sibling._variants[name] = model._variants[name]
            return
        except IncompatibleError as error:
            last_error = error
    assert last_error is not None
    raise last_error


def folders_by_name(folders_given: Sequence[Path | str]) -> dict[str, Path]:
    """Names of folders that were given without one.

    Raises:
        UsageError: two folders have one name.
    """
    folder_by_name: dict[str, Path] = {}
    for folder in map(Path, folders_given):
        name = folders.called(home_of(folder)) if folder.is_dir() else folder.name
        if name in folder_by_name:
            raise UsageError(
                "two models of one name",
                where=folder,
                found=name,
                do="name one of them: --name NAME=FOLDER",
            )
        folder_by_name[name] = folder
    return folder_by_name
