"""A pretrained model with a head for a kind of task, ready to learn it any number of times."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from maskwright.base.counted import decimals
from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding
from maskwright.base.randomness import key, torch_seed
from maskwright.learn.finetune.finished_seeds import FinishedSeeds
from maskwright.learn.finetune.method import GRADUAL, LAST, REINIT, Method
from maskwright.learn.finetune.tune import Settings, TrainingResult, Watch, steps_of, tune, unseen
from maskwright.learn.tasks.base.add_head import add_head, reading_texts
from maskwright.learn.tasks.base.choices import Long, require_long
from maskwright.learn.tasks.base.encode import Frame, collation_of, frame_of, room
from maskwright.learn.tasks.base.task_type import Answers, Encoded, Outputs, TaskType
from maskwright.learn.train.loop import Hook
from maskwright.learn.train.parameter_rates import RateFactors
from maskwright.model.adapters.base import freeze
from maskwright.model.adapters.base.adapter import Adapter
from maskwright.model.adapters.base.adapter import attach as attach_adapter
from maskwright.model.checkpoint.transfer import load_matching
from maskwright.model.device.machine import Machine
from maskwright.model.families.base.family import family as family_named
from maskwright.model.inference.encoded import Collation
from maskwright.model.nn import initialise
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_weights
from maskwright.text.tables.split_files import TRAIN, VALIDATION

# The share of the run from which on everything trains.
UNFROZEN_AT = 0.5
# What of a head gives its scores.
PROJECTION = re.compile(r"heads\.[^.]+\.(weight|bias)")


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed.

    Attributes:
        outputs, answers: of the part that is evaluated at the end.
        one_sided: the finding that all answers to the validation part are the same, or None.
        moved: distance of the weights below the head from their initial values, relative to the
            norm of those.
    """

    seed: int
    tuned: TrainingResult
    adapter: Adapter | None
    task_type: TaskType
    outputs: Outputs
    answers: Answers
    moved: float = math.nan
    one_sided: Finding | None = None

    def without_model(self) -> SeedResult:
        """The result without its model, to free memory."""
        return replace(self, tuned=replace(self.tuned, model=None), adapter=None)

    @property
    def validation(self) -> float:
        return max(self.tuned.figures)


@dataclass(frozen=True)
class Learner:
    """The model in `path` and how texts are encoded for it; `config` has the head of `task_type`,
    `family` is the name of the family that such a model belongs to."""

    path: Path
    loaded: Model
    task_type: TaskType
    config: TransformerConfig
    family: str | None
    frame: Frame
    collation: Collation

    @classmethod
    def of(
        cls,
        model: Model | Path,
        task_type: TaskType,
        method: Method,
        length: int | None = None,
        long: Long = "head",
    ) -> Learner:
        """The learner of `model`: an opened model, its folder, or the folder of a run.

        Args:
            length: maximum number of ids of an example; None: the positions of the model, at most
                512.
            long: how longer texts are read.

        Raises:
            UsageError: no such folder, or a way with long texts that is none of this task.
            IncompatibleError: a model without a tokenizer.
        """
        require_long(long)
        if long != "head" and task_type.head != "sequence":
            raise UsageError(
                "the handling of long texts does not fit this task",
                where="--long",
                found=long,
                wanted="head: this task reads long texts in windows"
                if task_type.head in ("token", "span")
                else "head: of longer texts the end is cut",
            )
        if task_type.head is None and method.head_alone:
            raise UsageError(
                "there is no head that could be trained alone",
                where="--method",
                found=method.name,
                do="choose another method",
            )
        loaded = model if isinstance(model, Model) else open_weights(model)
        path = loaded.path
        config, family = add_head(loaded, task_type)
        config = method.with_heads(reading_texts(config, task_type, long))
        if family is not None and not family_named(family).belongs(config):
            family = None
        most = room(config, length or task_type.longest, method.positions)
        collation = collation_of(config, loaded.tokenizer, loaded.extra)
        return cls(
            path,
            loaded,
            task_type,
            config,
            family,
            frame_of(config, loaded.tokenizer, most, long),
            replace(collation, alone=method.positions > 0),
        )

    @property
    def head_is_new(self) -> bool:
        """Whether the head is newly initialised, as the folder has none for these labels."""
        ours, theirs = (
            [(head.name, head.kind, head.labels) for head in config.heads]
            for config in (self.config, self.loaded.config)
        )
        below = [
            (model.pooler, [(head.transform, head.norm) for head in model.heads])
            for model in (self.config, self.loaded.config)
        ]
        if (
            ours != theirs
            or below[0] != below[1]
            or not self.task_type.continues(self.loaded.about.labels)
        ):
            return True
        # The head that was learned is in the adapter; the model has a drawn one.
        return folders.learned_beside(self.path)

    def head_factor(self, method: Method) -> float:
        """Factor on the learning rate of the last layer of the head."""
        return method.head_factor if self.config.heads and self.head_is_new else 1.0

    def learn(
        self,
        encoded_parts: Mapping[str, Encoded],
        method: Method,
        settings: Settings,
        eval_part: str,
        say: Callable[[str], None],
        watch: Watch = unseen,
        *,
        scratch: bool = False,
        name: str = "",
        finished_seeds: FinishedSeeds | None = None,
        machine: Machine | None = None,
        announce: bool = False,
    ) -> SeedResult:
        """Train one seed on the training part, choose on validation data, predict `eval_part`.

        Args:
            watch: shows the progress.
            scratch: begin with new weights, as if there had been no pretraining.
            name: the name that is shown; else the seed.
            finished_seeds: saves the result; if it has one for the seed, nothing is trained.
            machine: device and precision; None: the best of this machine.
            announce: print which weights are trained.
        """
        generator = torch.Generator().manual_seed(torch_seed(key("init", settings.seed)))
        if scratch:
            model, loaded = initialise.build(self.config, generator), "drawn, nothing is loaded"
        else:
            model = initialise.build(self.config, generator)
            transfer = load_matching(
                self.loaded.network,
                model,
                not self.head_is_new,
                reinitialised(method, model),
            )
            loaded = transfer.render()
            method = replace(method, head_rate=self.head_factor(method))
        adapter, share = attach(method, model, generator)
        initial = _body(model)
        if announce:
            say(f"model: {self.path}: {loaded}\nmethod: {method.name}; {share}")
        tuned = finished_seeds.restore(settings.seed, model) if finished_seeds else None
        if tuned is not None:
            say(f"seed {settings.seed} · finished before, epoch {tuned.epoch} of it is taken up")
        else:
            steps = steps_of(settings, len(encoded_parts[TRAIN].examples.training_indices))
            with watch(name or f"seed {settings.seed}", steps) as hook:
                tuned = self._tuned(model, method, encoded_parts, settings, say, hook, machine)
            self.task_type.after_training(tuned.network, encoded_parts[TRAIN])
            if finished_seeds:
                finished_seeds.keep(settings.seed, tuned)
        read = reader(tuned.network, self.task_type, self.frame, self.collation)
        chosen_by = encoded_parts[VALIDATION]
        scored = functools.cache(lambda: read(chosen_by))
        calibrated = self.task_type.calibrate(chosen_by, scored)
        calibrated = calibrated.decoded(
            chosen_by,
            lambda task_type: reader(tuned.network, task_type, self.frame, self.collation)(
                chosen_by
            ),
        )
        last_read = reader(tuned.network, calibrated, self.frame, self.collation)
        outputs = last_read(encoded_parts[eval_part])
        answers = calibrated.answers(encoded_parts[eval_part], outputs)
        moved = _distance(initial, _body(tuned.network))
        one_sided = None
        if not calibrated.writes:  # written answers are many tokens, and seldom the same
            one_sided = calibrated.one_sided(
                chosen_by.rows, calibrated.answers(chosen_by, scored())
            )
        return SeedResult(
            settings.seed, tuned, adapter, calibrated, outputs, answers, moved, one_sided
        )

    def _tuned(
        self,
        model: Transformer,
        method: Method,
        encoded_parts: Mapping[str, Encoded],
        settings: Settings,
        say: Callable[[str], None],
        hook: Hook,
        machine: Machine | None,
    ) -> TrainingResult:
        task_type, collation = self.task_type, self.collation
        vocabulary = special_tokens.vocabulary(self.frame.tokenizer)
        objective = task_type.training_objective(
            model, vocabulary, self.frame.long, encoded_parts[TRAIN]
        )
        encoded, measure, number = encoded_parts[VALIDATION], task_type.measure, 0

        def figure(learner: Objective) -> float:
            nonlocal number
            number += 1
            outputs = task_type.outputs(learner, encoded, collation)
            # As it will be asked: where there may be no answer, with the best threshold for one.
            calibrated = task_type.calibrate(encoded, lambda: outputs)
            value = calibrated.measured(encoded.rows, calibrated.answers(encoded, outputs))[measure]
            shown = decimals(value) if math.isfinite(value) else "not defined"
            say(
                f"seed {settings.seed} · epoch {number} of {settings.epochs} · "
                f"validation {measure} {shown}"
            )
            return value

        return tune(
            objective,
            encoded_parts[TRAIN].examples,
            collation,
            settings,
            figure=figure,
            rate_factors=functools.partial(learning_rate_factors, method),
            machine=machine,
            hooks=[hook],
        )


def _body(model: Transformer) -> dict[str, torch.Tensor]:
    """A copy of all weights but those of heads and pooler, including those of an adapter."""
    return {
        n: p.detach().float().clone()
        for n, p in model.named_parameters()
        if not n.startswith(("heads.", "pooler."))
    }


def _distance(initial: Mapping[str, torch.Tensor], ended: Mapping[str, torch.Tensor]) -> float:
    apart = sum(float((ended[n].to(t.device) - t).square().sum()) for n, t in initial.items())
    return math.sqrt(apart / max(1e-30, sum(float(t.square().sum()) for t in initial.values())))


def objective_of(model: Transformer, task_type: TaskType, frame: Frame) -> Objective:
    """The objective that evaluates a trained model."""
    vocabulary = special_tokens.vocabulary(frame.tokenizer)
    objective = task_type.objective(model, vocabulary, frame.long)
    objective.eval()
    return objective


def reader(
    model: Transformer, task_type: TaskType, frame: Frame, collation: Collation
) -> Callable[[Encoded], Outputs]:
    """A function that computes the scores, or the texts, of a trained model."""
    objective = objective_of(model, task_type, frame)
    return lambda encoded: task_type.outputs(objective, encoded, collation)


def attach(
    method: Method, model: Transformer, generator: torch.Generator
) -> tuple[Adapter | None, str]:
    """Add to `model` what the method adds, and freeze what it freezes.

    Returns:
        The adapter, if the method is one, and a line on the share of trained weights.

    Raises:
        ConfigError: the model has not so many layers, or no such place for an adapter.
    """
    if method.trains_all:
        return None, freeze.share(model)
    if last_layers := LAST.fullmatch(method.name):
        return None, _train_only(model, freeze.last_layers(model, int(last_layers[1])))
    assert method.adapter is not None
    tops = [head.name for head in model.config.heads] + ["pooler"] * model.config.pooler
    adapter = attach_adapter(method.adapter, model, generator, heads=tops)
    return adapter, adapter.share()


def reinitialised(method: Method, model: Transformer) -> list[str]:
    """The names of the parameters below the heads that are newly initialised.

    Raises:
        ConfigError: the model has not so many layers of its own.
    """
    match = REINIT.fullmatch(method.name)
    return freeze.top_blocks(model, int(match[1])) if match else []


def learning_rate_factors(method: Method, model: Transformer, steps: int) -> RateFactors | None:
    """Factors on the learning rates of the parameters by step; None: all are 1."""
    factors = freeze.learning_rate_factors(model, method.layer_decay)
    for name in factors:
        if PROJECTION.fullmatch(name):
            factors[name] *= method.head_factor
    if method.name != GRADUAL:
        return None if set(factors.values()) == {1.0} else lambda step: factors

    def gradually(step: int) -> dict[str, float]:
        free = set(freeze.gradual(model, min(1.0, step / steps), until=UNFROZEN_AT))
        return {name: factor if name in free else 0.0 for name, factor in factors.items()}

    return gradually


def _train_only(model: Transformer, parameters: Iterable[str]) -> str:
    freeze.train_only(model, parameters)
    return freeze.share(model)
