"""A served model: an opened folder with its heads and adapters.

    open_all({"topics": …, "mood": …}, …) -> {"topics": ServedModel, "mood": ServedModel}

Models with equal weights below the heads share them, and their requests are batched together.
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

# Identifies a head: ("task", None), or ("vectors", pooling) for embeddings.
Head = tuple[str, str | None]
TASK: Head = ("task", None)

# Warm-up: lengths in tokens, batch sizes, and the word of which the texts consist.
LENGTHS, ROWS, WORD = (8, 32, 128, 512), (1, 8), "the "


def vectors(pooling: str | None) -> Head:
    """Return the embedding head; `pooling` None: the pooling of the model, or else the mean."""
    return ("vectors", pooling)


@dataclass(eq=False)
class ModelVariant:
    """An opened model, without an adapter or with one.

    Attributes:
        name: the name in requests.
        opened: the model, with the adapter applied.
        backbone: an id that is equal for all variants with the same backbone weights.
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
        """Return the predictor for embeddings: the trained one, or one that pools states."""
        if "predict" in self.opened.abilities and self.predictor.task_type.alone:
            if pooling is not None:
                raise Refusal("validation", "this model has its own pooling", field="pooling")
            return self.predictor
        if "embed" not in self.opened.abilities:
            raise IncompatibleError("the model makes no vectors", found=self.opened.describe())
        return self.opened.pooled(pooling or "mean")

    def loaded_head(self, head: Head) -> tuple[Predictor, Any] | None:
        """Return the value of `head` if it was already created; else None."""
        return self._heads.get(head)

    def head(self, head: Head) -> tuple[Predictor, Any]:
        """Return the predictor of a head and its objective (network with head), created once.

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
        name: the name in requests.
        language_model: the opened folder.
        backbone: an id that is equal for all models with the same backbone weights.
    """

    name: str
    language_model: LanguageModel
    backbone: int
    _variants: dict[str | None, ModelVariant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        opened = self.language_model.opened()
        self._variants[None] = ModelVariant(self.name, opened, self.backbone)

    def variant(self, adapter: str | None = None) -> ModelVariant:
        """Return the model with the adapter of that name; None: without an adapter.

        Raises:
            Refusal: the model has no adapter of that name.
        """
        if adapter not in self._variants:
            names = ", ".join(self.adapters) or "none"
            raise Refusal(
                "not_found", f"no adapter of that name; there are: {names}", field="adapter"
            )
        return self._variants[adapter]

    def add_adapter(self, name: str, folder: Path) -> None:
        """Add the adapter in `folder`. Raises UsageError if the name is taken, IncompatibleError if
        the adapter is for another model."""
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
        """The abilities of the model, as in `LanguageModel.abilities`."""
        return self.opened.abilities

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text, including special tokens; None: unlimited."""
        if "predict" in self.abilities:
            return self._variants[None].predictor.frame.length
        return self.opened.model.config.longest

    def warm(self) -> float:
        """Run the networks of the model and its adapters at common lengths, on the current thread.

        Returns:
            The tokens per second of the slowest network with the largest batch.

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
    """Open the model in `folder`, sharing equal backbone weights with one of the `others`.

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
        IncompatibleError: an adapter fits none of the models.
        Others: as `maskwright.load`.
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
    """Add an adapter to the first model that it fits, and to all models that share its backbone."""
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
    """Return a dictionary from default names to folders.

    Raises:
        UsageError: two folders have the same name.
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
