"""Fine-tuning methods: which parameters of a model are trained, by name.

    full         all parameters
    last-N       the head, the pooler below it, and the last N layers
    reinit-N     all parameters; the last N layers and the pooler start from newly initialised
                 weights, as these are the most specific to the pretraining task (Zhang et al.
                 2021, arXiv:2006.05987, section 5)
    gradual      head, pooler and last layer at first, then one more layer at a time, and all from
                 half of the run on (Howard & Ruder 2018, section 3.3)
    lora, …      an adapter of `adapters/` on a frozen model; among them `probe` is only a linear
                 head, and `head` the head of the family with its pooler
    embeddings … a fitted method, whose parameters are the solution of a fit to the rows: a member
                 of `methods/`, which has an instance of its class in `METHOD`

`auto` in a recipe is no method, but the selection of one (`method_selection.py`).

`layer_decay` below 1 lowers the learning rate of lower layers, with any method. The last layer of a
newly initialised head has `head_rate` times the learning rate of pretrained weights.

This module does not import torch, so that invalid settings are reported quickly. `learner.py`
applies a method to a model: `Learner.learn` calls `fit` of a fitted method in place of the training
of one seed; everything before and after it is the same for all methods.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from maskwright.base import catalogue
from maskwright.base.config import from_plain, to_plain
from maskwright.base.errors import ConfigError, UsageError, unknown
from maskwright.learn.tasks.base.choices import PROMPT, Long
from maskwright.model.adapters.base.settings import Settings as AdapterSettings
from maskwright.model.nn.config import TransformerConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from maskwright.learn.finetune.methods.base.frozen_vectors import TextReader
    from maskwright.learn.finetune.tune import Settings
    from maskwright.learn.tasks.base.task_type import Encoded, TaskType
    from maskwright.learn.train.loop import Hook
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.supervised import Problem

FITTED = "finetune.methods"
LEAST_STEPS = 100
AUTO, FULL, GRADUAL = "auto", "full", "gradual"
LAST, REINIT = re.compile(r"last-(\d+)"), re.compile(r"reinit-([1-9]\d*)")
# The published learning rate is for a width of 768; narrower models need a higher one (by the
# square of the ratio), few trained parameters the highest. HEAD_RATE is the factor of a new head:
# docs/decisions/0019-fine-tuning-learning-rate.md.
RATE, WIDTH, RATE_OF_FEW = 5e-5, 768, 1e-3
HEAD_RATE = 10.0


def names() -> list[str]:
    """Return the names of all methods; `last-1` and `reinit-1` stand for any number."""
    trained = [FULL, "last-1", "reinit-1", GRADUAL, *catalogue.names("adapters")]
    return [*trained, *catalogue.names(FITTED)]


@dataclass(frozen=True)
class Method:
    """A fine-tuning method and its settings.

    Attributes:
        layer_decay: what the learning rate is multiplied by from each layer to the one below it.
        head_rate: how many times as fast the scores of a head learn; None: HEAD_RATE where layers
            train, else 1.
        adapter: the settings of the adapter of that name; None: its defaults, or the method is no
            adapter.

    Raises:
        UsageError: no such method, or a number out of range.
    """

    name: str
    layer_decay: float = 1.0
    head_rate: float | None = None
    adapter: AdapterSettings | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.layer_decay <= 1.0:
            raise out_of_range("--layer-decay", self.layer_decay, "above 0, at most 1")
        if self.head_rate is not None and not 0.0 < self.head_rate < math.inf:
            raise out_of_range("--head-rate", self.head_rate, "above 0")
        numbered = LAST.fullmatch(self.name) or REINIT.fullmatch(self.name)
        if self.name not in names() and not numbered:
            raise unknown("no such method", self.name, names(), where="--method")
        adapter = self.name if self.fitted is None else self.fitted.adapter
        if self.adapter is None and _is_adapter(adapter):
            object.__setattr__(self, "adapter", adapter_settings(adapter))

    @property
    def fitted(self) -> FittedMethod | None:
        """The fitted method of this name, if it is one."""
        if self.name not in catalogue.names(FITTED):
            return None
        method: FittedMethod = catalogue.load(FITTED, self.name).METHOD
        return method

    @property
    def opens_network(self) -> bool:
        """Whether the method needs a network."""
        return self.fitted is None or self.fitted.opens_network

    @property
    def seeded(self) -> bool:
        """Whether another seed gives another result."""
        return self.fitted is None or self.fitted.seeded

    @property
    def baseline(self) -> str:
        """The name of the baseline that is this method; "": none is."""
        return "" if self.fitted is None else self.fitted.baseline

    @property
    def prompt_option(self) -> str:
        """The option of a task type that a prompt sets."""
        return PROMPT if self.fitted is None else self.fitted.chosen_by or PROMPT

    @property
    def trains_layers(self) -> bool:
        """Whether layers of the model itself are trained, as the published rates assume."""
        match = LAST.fullmatch(self.name)
        return self.trains_all or (match is not None and int(match[1]) > 0)

    @property
    def trains_all(self) -> bool:
        """Whether every parameter of the model is trained at some time of the run."""
        if self.fitted is not None:
            return self.adapter is None and self.prompt_option == PROMPT
        return self.name in (FULL, GRADUAL) or REINIT.fullmatch(self.name) is not None

    def rate(self, width: int) -> float:
        """Return the default learning rate for a model of the given width."""
        if not self.trains_layers:
            return RATE_OF_FEW
        return min(RATE_OF_FEW, RATE * max(1.0, WIDTH / width) ** 2)

    @property
    def head_factor(self) -> float:
        """`head_rate`, or its default."""
        if self.head_rate is not None:
            return self.head_rate
        return HEAD_RATE if self.trains_layers else 1.0

    @property
    def positions(self) -> int:
        """Number of positions that the adapter occupies in each input."""
        return 0 if self.adapter is None else self.adapter.positions

    @property
    def least_steps(self) -> int:
        """The default of `FinetuneRecipe.least_steps`."""
        return LEAST_STEPS if self.fitted is None else self.fitted.least_steps

    @property
    def head_alone(self) -> bool:
        """Whether only the head is trained."""
        return self.adapter is not None and self.adapter.head_alone

    def with_heads(self, config: TransformerConfig) -> TransformerConfig:
        """Return `config` with the heads that the method trains: linear ones for `probe` and
        fitted methods."""
        if self.fitted is None and (self.adapter is None or not self.adapter.linear):
            return config
        trained = self.fitted is None  # what is fitted on the states has no mix of them to learn
        linear: dict[str, Any] = {"transform": None, "norm": None, "bias": True}
        heads = tuple(replace(h, **linear, layer_mix=h.layer_mix and trained) for h in config.heads)
        return replace(config, pooler=False, heads=heads)

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings of the adapter that differ from its defaults, as plain values."""
        if self.adapter is None:
            return {}
        usual = to_plain(adapter_settings(self.adapter.kind))
        return {k: v for k, v in to_plain(self.adapter).items() if v != usual[k]}


def out_of_range(option: str, number: float, limits: str) -> UsageError:
    """Return the error for a number outside of its limits."""
    return UsageError("the number is out of range", where=option, found=number, wanted=limits)


def adapter_settings(name: str, values: Mapping[str, Any] | None = None) -> AdapterSettings:
    """Return the settings of the adapter `name` from plain `values` by field.

    Raises:
        UsageError: there is no such adapter.
        ConfigError: there is no such setting (with similar names), or its value is invalid.
    """
    settings_type = catalogue.load("adapters", name).SETTINGS
    settings: AdapterSettings = from_plain(settings_type, dict(values or {}), name)
    return settings


def methods_of(
    names: str,
    layer_decay: float = 1.0,
    head_rate: float | None = None,
    adapters: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Method]:
    """Return the methods of a name, or of several names separated by commas.

    Args:
        adapters: settings that differ from the defaults, by name of the adapter.

    Raises:
        UsageError: there is no such method, or a number is out of range.
        ConfigError: a setting of an adapter is invalid, or the adapter is not among the methods.
    """
    requested = [name.strip() for name in names.split(",")]
    settings = {name: adapter_settings(name, values) for name, values in (adapters or {}).items()}
    for adapter in settings:
        if adapter not in requested:
            raise ConfigError(
                "settings of an adapter that is not trained",
                where=f"adapters.{adapter}",
                found=f"the method is {names}",
                wanted=f"settings of {' or '.join(filter(_is_adapter, requested)) or 'none'}",
                do=f"--method {adapter}, or leave its settings out",
            )
    return [Method(name, layer_decay, head_rate, settings.get(name)) for name in requested]


def _is_adapter(name: str) -> bool:
    return name in catalogue.names("adapters")


# ------------------------------------------------------------------------------ fitted methods
# Computations of a network for a text of a training step: forward, and about twice that backward.
STEP = 3
# What a task with such a head has labels of.
HEADS = {"sequence": "texts or pairs", "token": "words", None: "texts or pairs"}


@dataclass(frozen=True)
class FitInput:
    """What a method is fitted to.

    Attributes:
        learner: reads rows.
        model: the network with pretrained weights and a new linear head, in evaluation mode.
        train: the rows to fit to. Hyperparameters are selected within them.
        settings: the seed, and the settings of methods that also train the network.
        hook: shows the progress of training steps.
    """

    learner: TextReader
    model: Transformer
    train: Encoded
    settings: Settings
    hook: Hook

    def fit_head(self, vectors: NDArray[np.floating[Any]]) -> None:
        """Fit the linear head of the network to the vectors (N, D) of the training rows."""
        import torch

        from maskwright.learn.finetune.methods.base.linear import fit_linear

        (head,) = self.model.config.heads
        labels, problem = self.train.examples.labels, self.learner.task_type.problem
        weights, seed = self.settings.class_weights, self.settings.seed
        values = fit_linear(vectors, labels, problem, head.labels, seed, weights)
        with torch.no_grad():
            for name, value in zip(("weight", "bias"), values, strict=True):
                parameter = self.model.heads[head.name].get_parameter(name)
                parameter.copy_(torch.from_numpy(value))


class FittedMethod(ABC):
    """What `NetworkMethod` and `NetworklessMethod` have in common.

    Attributes:
        name: the name of the method.
        takes_images: whether it also learns from images.
        adapter: the adapter whose parameters are fitted, such as a linear head above the frozen
            network, which is saved alone; "": the whole network is saved, with a linear head.
        opens_network: whether the result has a network.
        baseline: the name of the baseline that is this method; "": none is.
        seeded: whether another seed gives another result; otherwise one seed is enough.
        settings: the training settings of a `FinetuneRecipe` that have an effect, by field.
        pooling: the pooling of a network whose folder names none; "": that of its family.
        chosen_by: as of the task types that it supports: what `--prompt` sets; "": no prompt.
        selection: a sentence on how hyperparameters are selected.
        most_rows: with more training rows `auto` does not try the method.
        least_steps: the default of `FinetuneRecipe.least_steps`.
        heads, problems, long: the supported kinds of heads and labels of tasks, and handlings of
            long texts.
    """

    name: ClassVar[str]
    adapter: ClassVar[str] = ""
    opens_network: ClassVar[bool] = True
    baseline: ClassVar[str] = ""
    seeded: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()
    pooling: ClassVar[str] = ""
    chosen_by: ClassVar[str] = ""
    selection: ClassVar[str] = (
        "The penalty was selected by cross-validation within the training part."
    )
    most_rows: ClassVar[float] = math.inf
    least_steps: ClassVar[int] = LEAST_STEPS
    heads: ClassVar[tuple[str | None, ...]] = ("sequence",)
    problems: ClassVar[tuple[Problem, ...]] = ("single", "multi", "number")
    long: ClassVar[tuple[Long, ...]] = ("head", "tail", "head-and-tail")
    takes_images: ClassVar[bool] = False

    def require(self, task_type: TaskType, long: Long = "head") -> None:
        """Check that the method supports a task and a handling of long texts.

        Raises:
            UsageError: it does not.
        """
        supported = task_type.head in self.heads and task_type.problem in self.problems
        supported &= self.takes_images or not task_type.reads_images
        if not (supported and task_type.by_row) or task_type.chosen_by != self.chosen_by:
            labels = "classes or numbers" if "number" in self.problems else "classes"
            raise UsageError(
                "the method does not support this task",
                where="--method",
                found=f"{self.name}, and the task {task_type.task}",
                wanted=f"{labels} of {' or '.join(HEADS[head] for head in self.heads)}",
                do="choose another method, such as full or lora",
            )
        if long not in self.long:
            raise UsageError(
                "the method does not support this handling of long texts",
                where="--long",
                found=f"{long}, and the method {self.name}",
                wanted=", ".join(self.long),
                do="choose another --long or another --method",
            )

    def cost(self, count: int, settings: Settings) -> float:
        """Return how many texts the network computes, for `count` training rows; a text of a
        training step counts as `STEP`."""
        return float(count) if any(self.heads) else 0.0  # without a head nothing is fitted

    def steps(self, count: int, settings: Settings) -> int:
        """Return the number of training steps, for the display of progress; 0 if there are none."""
        return 0


class NetworkMethod(FittedMethod):
    """A method that fits parameters of a network."""

    @abstractmethod
    def fit(self, fit_input: FitInput) -> list[float]:
        """Fit the parameters of `fit_input.model` in place; return the losses of training steps, if
        there are any."""


class NetworklessMethod(FittedMethod):
    """A method whose result has no network."""

    opens_network = False

    @abstractmethod
    def learner(self, path: Path, task_type: TaskType, method: Method) -> Any:
        """Return the `BaseLearner` that fits; `path`: of the model, which is not used."""
