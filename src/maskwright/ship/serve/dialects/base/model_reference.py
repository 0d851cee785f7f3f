"""The model that a request refers to, and its abilities.

A request names a model or an adapter. If a single model is served, no name is required.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from maskwright.ask.predict.engine import Engine
from maskwright.learn.tasks.base.add_head import num_outputs
from maskwright.learn.tasks.base.task_type import UNTOLD, TaskType
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Host, Options, ServedModel
from maskwright.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class ModelReference:
    """A served model, without an adapter or with one.

    Attributes:
        name: the name of the model.
        adapter: the name of the adapter or head; None: the model itself.
    """

    host: Host
    name: str
    adapter: str | None

    @property
    def served(self) -> ServedModel:
        return self.host.model(self.name)

    @property
    def engine(self) -> Engine:
        return self.served.engine(self.adapter)

    @property
    def called(self) -> str:
        """The name of the adapter, or of the model."""
        return self.adapter or self.name

    @property
    def fingerprint(self) -> str:
        """The hash of the model's files when it was opened."""
        return self.engine.fingerprint

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; raises IncompatibleError if the folder has none."""
        return self.engine.model.tokenizer

    @property
    def task_type(self) -> TaskType | None:
        """The task that the model was trained for; None: no task."""
        if "predict" not in self.engine.abilities:
            return None
        return self.engine.predictor.task_type

    @property
    def makes_vectors(self) -> bool:
        """Whether the model was trained to embed texts, or can embed and has no other task."""
        task = self.task_type
        if task is not None and task.head == "sequence":
            return False
        if task is None or self.engine.model.writes_for_texts:
            return "embed" in self.engine.abilities
        return bool(task.alone)

    @property
    def scores_whole_texts(self) -> bool:
        """Whether the model's task scores whole texts or pairs."""
        return self.task_type is not None and self.task_type.head == "sequence"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the task; LABEL_0, … if it has none, as in transformers."""
        task = self.task_type
        assert task is not None
        return task.labels or tuple(f"LABEL_{n}" for n in range(num_outputs(task)))

    @property
    def takes_pairs(self) -> bool:
        """Whether the model's task accepts pairs of texts."""
        task = self.task_type
        return task is not None and (len(task.roles) == 2 or bool(task.options.get(UNTOLD)))

    def task(self) -> TaskType:
        """Return the task that the model was trained for.

        Raises:
            Refusal: the model was trained for no task.
        """
        if (task_type := self.task_type) is None:
            raise self.unable("a model that was fine-tuned for a task")
        return task_type

    def unable(self, requirement: str) -> Refusal:
        """Return the refusal for a missing ability; `requirement` describes a suitable model."""
        abilities = ", ".join(self.engine.abilities)
        reason = f"{self.called} cannot do this; wanted: {requirement}; abilities: {abilities}"
        return Refusal("model", reason, field="model")

    def options(self, field: str = "inputs", **settings: Any) -> Options:
        return Options(adapter=self.adapter, field=field, **settings)


def resolve(host: Host, name: str | None, adapter: str | None = None) -> ModelReference:
    """Find the model or adapter of that name.

    Raises:
        Refusal: it does not exist, or `name` is None and several models are served.
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
    host.model(name).engine(adapter)  # raises Refusal if there is none
    return ModelReference(host, name, adapter)


def all_references(host: Host) -> list[ModelReference]:
    """Return references to all models, then to all adapters; names are unique."""
    models = [ModelReference(host, name, None) for name in host.names]
    references = {reference.called: reference for reference in models}
    for reference in models:
        for adapter in reference.served.adapters:
            references.setdefault(adapter, ModelReference(host, reference.name, adapter))
    return list(references.values())
