"""The contract of a fitted method: a model whose parameters are the solution of a fit to the rows.

`Learner.learn` calls `fit` in place of the training of one seed. Everything before and after it
(encoding, calibration, evaluation, files) is the same for all methods. A member module of
`learn/finetune/methods/` has an instance of its class in `METHOD`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import UsageError
from maskwright.learn.tasks.base.choices import Long

if TYPE_CHECKING:
    from maskwright.learn.finetune.methods.base.frozen_vectors import FrozenVectors
    from maskwright.learn.finetune.tune import Settings
    from maskwright.learn.tasks.base.encode import Frame
    from maskwright.learn.tasks.base.task_type import Encoded, TaskType
    from maskwright.learn.train.loop import Hook
    from maskwright.model.device.machine import Machine
    from maskwright.model.inference.encoded import Collation
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.supervised import Problem

FloatArray = NDArray[np.floating[Any]]
# Computations of a network for a text of a training step: forward, and about twice that backward.
STEP = 3
# What a task with such a head has labels of.
HEADS = {"sequence": "texts or pairs", "token": "words", None: "texts or pairs"}


class TextReader(Protocol):
    """How rows are read, and vectors of the pretrained network: a `Learner`."""

    @property
    def task_type(self) -> TaskType: ...

    @property
    def frame(self) -> Frame: ...

    @property
    def collation(self) -> Collation: ...

    def frozen_vectors(self, machine: Machine | None) -> FrozenVectors: ...


@dataclass(frozen=True)
class FitInput:
    """What a method is fitted to.

    Attributes:
        learner: reads rows.
        model: the network with pretrained weights and a new linear head, in evaluation mode.
        train: the rows to fit to. Hyperparameters are selected within them.
        settings: the seed, and the settings of methods that also train the network.
        machine: device and precision; None: the best of this machine.
        hook: shows the progress of training steps.
    """

    learner: TextReader
    model: Transformer
    train: Encoded
    settings: Settings
    machine: Machine | None
    hook: Hook

    def fit_head(self, vectors: FloatArray) -> None:
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
    def learner(self, path: Path, task_type: TaskType) -> Any:
        """Return the `BaseLearner` that fits; `path`: of the model, which is not used."""
