"""The model that a request means, and what it can be asked.

A model is named as it is served; so is an adapter, which then answers on its model. Where one model
is served, none need be named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskwright.ask.predict.opened import Opened
from maskwright.learn.tasks.base.task_type import UNTOLD, TaskType
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Host, Options, ServedModel
from maskwright.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class ModelReference:
    """A model, alone or with an adapter.

    Attributes:
        name: of the model; adapter: of what answers on it, or None.
    """

    host: Host
    name: str
    adapter: str | None

    @property
    def served(self) -> ServedModel:
        return self.host.model(self.name)

    @property
    def opened(self) -> Opened:
        return self.served.variant(self.adapter).opened

    @property
    def called(self) -> str:
        """What answers, as a request names it."""
        return self.adapter or self.name

    @property
    def fingerprint(self) -> str:
        """The hash of its files, as they were when it was opened."""
        return self.served.variant(self.adapter).fingerprint

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises IncompatibleError where the folder has none."""
        return self.opened.model.tokenizer

    @property
    def task_type(self) -> TaskType | None:
        """What it was trained for; None: no task."""
        if "predict" not in self.opened.abilities:
            return None
        return self.served.variant(self.adapter).predictor.task_type

    @property
    def makes_vectors(self) -> bool:
        """Whether it was trained to make vectors of texts, or for no task and can be pooled."""
        task = self.task_type
        if task is None or self.opened.model.writes_for_texts:
            return "embed" in self.opened.abilities
        return bool(task.alone)

    @property
    def scores_whole_texts(self) -> bool:
        """Whether it gives scores of a text, or of two."""
        return self.task_type is not None and self.task_type.head == "sequence"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the scores, as transformers calls those that have none."""
        task = self.task_type
        assert task is not None
        return task.labels or tuple(f"LABEL_{n}" for n in range(task.num_outputs))

    @property
    def takes_pairs(self) -> bool:
        """Whether it reads two texts."""
        task = self.task_type
        return task is not None and (len(task.roles) == 2 or bool(task.options.get(UNTOLD)))

    def task(self) -> TaskType:
        """What it was trained for.

        Raises:
            Refusal: nothing.
        """
        if (task_type := self.task_type) is None:
            raise self.unable("a model that was fine-tuned for a task")
        return task_type

    def require_scores(self) -> None:
        """Raises Refusal where it gives no scores of whole texts."""
        if not self.scores_whole_texts:
            raise self.unable("a model that gives classes or a number of whole texts")

    def unable(self, requirement: str) -> Refusal:
        """What refuses something that the model cannot do."""
        abilities = ", ".join(self.opened.abilities)
        reason = (
            f"{self.called} cannot do this; wanted: {requirement}; it can be asked: {abilities}"
        )
        return Refusal("model", reason, field="model")

    def options(self, field: str = "inputs", **settings: Any) -> Options:
        """How it is asked."""
        return Options(adapter=self.adapter, field=field, **settings)


def choose(host: Host, name: str | None, adapter: str | None = None) -> ModelReference:
    """The model, or the adapter, of that name.

    Raises:
        Refusal: there is none, or several are served and none is named.
    """
    if name is None:
        if len(host.names) > 1:
            served_names = ", ".join(host.names)
            reason = f"several models are served, and none is named; there are: {served_names}"
            raise Refusal("validation", reason, field="model")
        name = host.model().name
    elif name not in host.names and adapter is None:
        for served in map(host.model, host.names):
            if name in served.adapters:
                return ModelReference(host, served.name, name)
    host.model(name).variant(adapter)  # refuses what there is not
    return ModelReference(host, name, adapter)


def all_references(host: Host) -> list[ModelReference]:
    """All that can be named: models, then adapters."""
    models = [ModelReference(host, name, None) for name in host.names]
    references = {reference.called: reference for reference in models}
    for reference in models:
        for adapter in reference.served.adapters:
            references.setdefault(adapter, ModelReference(host, reference.name, adapter))
    return list(references.values())
