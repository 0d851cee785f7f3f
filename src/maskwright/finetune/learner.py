"""A pretrained model with a head for a kind of task, ready to learn it any number of times."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from maskwright.adapters.parts.adapter import Adapter
from maskwright.checkpoint.transfer import load_matching
from maskwright.errors import UsageError
from maskwright.families.parts.family import family as family_named
from maskwright.findings import Finding
from maskwright.finetune import trained_weights
from maskwright.finetune.finished_seeds import FinishedSeeds
from maskwright.finetune.method import Method
from maskwright.finetune.progress import Watch, unseen
from maskwright.finetune.tune import Settings, Tuned, steps_of, tune
from maskwright.inference.encoded import Collation
from maskwright.labelled.formats.parts import TRAIN, VALIDATION
from maskwright.models import folders, special_tokens
from maskwright.models.model import Model
from maskwright.models.open import open_weights
from maskwright.nn import initialise
from maskwright.nn.config import TransformerConfig
from maskwright.nn.transformer import Transformer
from maskwright.objectives.parts.objective import Objective
from maskwright.randomness import key, torch_seed
from maskwright.tasks.parts.add_head import add_head, reading_texts
from maskwright.tasks.parts.choices import Long, require_long
from maskwright.tasks.parts.reading import Frame, collation_of, frame_of, room
from maskwright.tasks.parts.task_type import Answers, Encoded, Outputs, TaskType
from maskwright.train.loop import Hook
from maskwright.train.machine.machine import Machine


@dataclass(frozen=True)
class Seed:
    """What one seed came to.

    Attributes:
        outputs, answers: of the part that is asked at the end.
        one_sided: that the answers to the validation part are all the same; or None.
        moved: how far the weights below the head are from where they began, beside their length
            there.
    """

    seed: int
    tuned: Tuned
    adapter: Adapter | None
    kind: TaskType
    outputs: Outputs
    answers: Answers
    moved: float = math.nan
    one_sided: Finding | None = None

    def without_model(self) -> Seed:
        """The same, its model given up."""
        return replace(self, tuned=replace(self.tuned, model=None), adapter=None)

    @property
    def validation(self) -> float:
        return max(self.tuned.figures)


@dataclass(frozen=True)
class Learner:
    """The model in `path`, and how it is asked; `config` has the head of `kind`, and `family` the
    name of the family that knows such a model."""

    path: Path
    loaded: Model
    kind: TaskType
    config: TransformerConfig
    family: str | None
    frame: Frame
    collation: Collation

    @classmethod
    def of(
        cls,
        model: Model | Path,
        kind: TaskType,
        method: Method,
        length: int | None = None,
        long: Long = "head",
    ) -> Learner:
        """`model`, opened or its folder, or that of a run.

        Args:
            length: the most ids of an example; None: what the model has positions for, at most 512.
            long: what becomes of a whole text that is longer.

        Raises:
            UsageError: no such folder, or a way with long texts that is none of this task.
            IncompatibleError: a model without a tokenizer.
        """
        require_long(long)
        if long != "head" and kind.head != "sequence":
            raise UsageError(
                "no such way with long texts for this task",
                where="--long",
                found=long,
                wanted="head: this task reads long texts in windows"
                if kind.head in ("token", "span")
                else "head: of longer texts the end is cut",
            )
        if kind.head is None and method.head_alone:
            raise UsageError(
                "there is no head that could be trained alone",
                where="--method",
                found=method.name,
                do="choose another method",
            )
        loaded = model if isinstance(model, Model) else open_weights(model)
        path = loaded.path
        config, family = add_head(loaded, kind)
        config = method.with_heads(reading_texts(config, kind, long))
        if family is not None and not family_named(family).belongs(config):
            family = None
        most = room(config, length or kind.longest, method.positions)
        collation = collation_of(config, loaded.tokenizer, loaded.extra)
        return cls(
            path,
            loaded,
            kind,
            config,
            family,
            frame_of(config, loaded.tokenizer, most, long),
            replace(collation, alone=method.positions > 0),
        )

    @property
    def head_is_new(self) -> bool:
        """Whether the head is drawn, because there is none in the folder for these labels."""
        ours, theirs = (
            [(head.name, head.kind, head.labels) for head in config.heads]
            for config in (self.config, self.loaded.config)
        )
        below = [
            (each.pooler, [(head.transform, head.norm) for head in each.heads])
            for each in (self.config, self.loaded.config)
        ]
        if (
            ours != theirs
            or below[0] != below[1]
            or not self.kind.continues(self.loaded.about.labels)
        ):
            return True
        # The head that was learned is in the adapter; the model has a drawn one.
        return folders.learned_beside(self.path)

    def head_factor(self, method: Method) -> float:
        """How many times as fast as the rest the scores of the head learn."""
        return method.head_factor if self.config.heads and self.head_is_new else 1.0

    def learn(
        self,
        parts: Mapping[str, Encoded],
        method: Method,
        settings: Settings,
        last: str,
        say: Callable[[str], None],
        watch: Watch = unseen,
        *,
        scratch: bool = False,
        name: str = "",
        kept: FinishedSeeds | None = None,
        machine: Machine | None = None,
        first: bool = False,
    ) -> Seed:
        """Learn the training part by one seed, choose on the validation part, answer the `last`.

        Args:
            watch: shows how it goes.
            scratch: begin with weights that are drawn, as if there had been no pretraining.
            name: what is shown of it; else its seed.
            kept: takes what the seed comes to; or has it, and nothing is trained.
            machine: where and how precisely to train; None: the best this machine has.
            first: whether it is told what trains.
        """
        generator = torch.Generator().manual_seed(torch_seed(key("init", settings.seed)))
        if scratch:
            model, loaded = initialise.build(self.config, generator), "drawn, nothing is loaded"
        else:
            model = initialise.build(self.config, generator)
            made = load_matching(
                self.loaded.network,
                model,
                not self.head_is_new,
                trained_weights.reinitialised(method, model),
            )
            loaded = made.render()
            method = replace(method, head_rate=self.head_factor(method))
        adapter, share = trained_weights.attach(method, model, generator)
        begun = _body(model)
        if first:
            say(f"model: {self.path}: {loaded}\nmethod: {method.name}; {share}")
        tuned = kept.restore(settings.seed, model) if kept else None
        if tuned is not None:
            say(f"seed {settings.seed} · finished before, epoch {tuned.epoch} of it is taken up")
        else:
            steps = steps_of(settings, len(parts[TRAIN].examples.taught))
            with watch(name or f"seed {settings.seed}", steps) as hook:
                tuned = self._tuned(model, method, parts, settings, say, hook, machine)
            self.kind.after_training(tuned.network, parts[TRAIN])
            if kept:
                kept.keep(settings.seed, tuned)
        read = reader(tuned.network, self.kind, self.frame, self.collation)
        chosen_by = parts[VALIDATION]
        scored = functools.cache(lambda: read(chosen_by))
        settled = self.kind.calibrate(chosen_by, scored)
        settled = settled.decoded(
            chosen_by,
            lambda kind: reader(tuned.network, kind, self.frame, self.collation)(chosen_by),
        )
        last_read = reader(tuned.network, settled, self.frame, self.collation)
        outputs = last_read(parts[last])
        answers = settled.answers(parts[last], outputs)
        moved = _distance(begun, _body(tuned.network))
        odd = None
        if not settled.writes:  # written answers are many tokens, and seldom the same
            odd = settled.one_sided(chosen_by.rows, settled.answers(chosen_by, scored()))
        return Seed(settings.seed, tuned, adapter, settled, outputs, answers, moved, odd)

    def _tuned(
        self,
        model: Transformer,
        method: Method,
        parts: Mapping[str, Encoded],
        settings: Settings,
        say: Callable[[str], None],
        hook: Hook,
        machine: Machine | None,
    ) -> Tuned:
        kind, collation = self.kind, self.collation
        vocabulary = special_tokens.vocabulary(self.frame.tokenizer)
        objective = kind.training_objective(model, vocabulary, self.frame.long, parts[TRAIN])
        encoded, measure, number = parts[VALIDATION], kind.measure, 0

        def figure(learner: Objective) -> float:
            nonlocal number
            number += 1
            outputs = kind.outputs(learner, encoded, collation)
            # As it will be asked: where there may be no answer, with the best threshold for one.
            settled = kind.calibrate(encoded, lambda: outputs)
            value = settled.measured(encoded.rows, settled.answers(encoded, outputs))[measure]
            shown = f"{value:.4f}" if math.isfinite(value) else "not defined"
            say(
                f"seed {settings.seed} · epoch {number} of {settings.epochs} · "
                f"validation {measure} {shown}"
            )
            return value

        return tune(
            objective,
            parts[TRAIN].examples,
            collation,
            settings,
            figure=figure,
            rate_factors=functools.partial(trained_weights.learning_rate_factors, method),
            machine=machine,
            hooks=[hook],
        )


def _body(model: Transformer) -> dict[str, torch.Tensor]:
    """A copy of all weights but those of heads and pooler; an adapter's are among them."""
    return {
        n: p.detach().float().clone()
        for n, p in model.named_parameters()
        if not n.startswith(("heads.", "pooler."))
    }


def _distance(begun: Mapping[str, torch.Tensor], ended: Mapping[str, torch.Tensor]) -> float:
    apart = sum(float((ended[n].to(t.device) - t).square().sum()) for n, t in begun.items())
    return math.sqrt(apart / max(1e-30, sum(float(t.square().sum()) for t in begun.values())))


def reader(
    model: Transformer, kind: TaskType, frame: Frame, collation: Collation
) -> Callable[[Encoded], Outputs]:
    """What gives the scores, or the texts, of a finished model."""
    objective = kind.objective(model, special_tokens.vocabulary(frame.tokenizer), frame.long)
    objective.eval()
    return lambda encoded: kind.outputs(objective, encoded, collation)
