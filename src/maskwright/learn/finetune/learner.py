"""A pretrained model with a head for a kind of task, ready to learn it any number of times."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch

from maskwright.base.config import fingerprint, to_plain
from maskwright.base.errors import Finding, IncompatibleError, MaskwrightError
from maskwright.base.randomness import key, torch_seed
from maskwright.base.report.document import duration
from maskwright.base.terminal import decimals
from maskwright.learn.finetune.conclusion import AS_IT_IS
from maskwright.learn.finetune.finished_seeds import FinishedSeeds
from maskwright.learn.finetune.method import (
    GRADUAL,
    LAST,
    REINIT,
    FitInput,
    Method,
    NetworklessMethod,
    NetworkMethod,
)
from maskwright.learn.finetune.methods.base.frozen_vectors import FrozenVectors, prepare_on
from maskwright.learn.finetune.tune import (
    Settings,
    TrainingResult,
    Watch,
    defined,
    steps_of,
    tune,
    unseen,
)
from maskwright.learn.pretrain import checkpoints
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.add_head import add_head, reading_texts
from maskwright.learn.tasks.base.choices import APART, HIERARCHICAL, Long
from maskwright.learn.tasks.base.encode import Frame, collation_of, frame_of, room
from maskwright.learn.tasks.base.task_type import (
    TEMPERATURE,
    Answers,
    Encoded,
    Outputs,
    Scores,
    TaskType,
    task_for,
    task_for_vectors,
)
from maskwright.learn.train.loop import Hook
from maskwright.learn.train.optimizers import RateFactors
from maskwright.model.adapters.base import freeze
from maskwright.model.adapters.base.adapter import Adapter
from maskwright.model.adapters.base.adapter import attach as attach_adapter
from maskwright.model.checkpoint import layout, pretrained
from maskwright.model.checkpoint.matching import Transfer, load_matching, transfer
from maskwright.model.checkpoint.safe_read import around, modules_of
from maskwright.model.device.machine import Machine, choose
from maskwright.model.families.base.family import family as family_named
from maskwright.model.inference.beam import finished
from maskwright.model.inference.encoded import Collation
from maskwright.model.inference.prepared import prepare
from maskwright.model.nn import initialise
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.modules.supervised import Standardised, Supervised
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_weights
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TRAIN, VALIDATION

# The share of the run after which all layers are trained.
UNFROZEN_AT = 0.5
# The minimum number of validation rows by which an epoch or a seed is selected: of fewer,
# the metric of two epochs differs by one or two rows.
SELECTABLE = 20
# Names of the parameters of a head's last layer.
PROJECTION = re.compile(r"heads\.[^.]+\.(weight|bias)")
Result = TypeVar("Result", bound=TrainingResult)


@dataclass(frozen=True)
class SeedResult:
    """The result of one seed.

    Attributes:
        outputs, answers: for the part that is evaluated at the end.
        one_sided: a warning that all answers to the validation part are the same, or None.
    """

    seed: int
    tuned: TrainingResult
    adapter: Adapter | None
    task_type: TaskType
    outputs: Outputs
    answers: Answers
    one_sided: Finding | None = None

    @property
    def validation(self) -> float:
        """The validation metric of the chosen epoch; -inf if none was computed or is defined."""
        return max(self.tuned.figures, default=-math.inf)


@dataclass(frozen=True)
class BaseLearner(ABC):
    """What a fine-tuning needs to know of a model; the values here are those without a network.

    Attributes:
        path: the folder of the model that was named.
        family: the name of the model family of the result; None if it belongs to none.
        frame: how texts are encoded as ids; None: the model reads texts.
    """

    path: Path
    task_type: TaskType
    method: Method
    family: str | None = None
    frame: Frame | None = None

    @property
    def in_transformers(self) -> bool:
        """Whether a class of transformers is such a model."""
        return self.family is not None and family_named(self.family).in_transformers

    @property
    def base(self) -> str:
        """The displayed name of the pretrained model; "": none is used."""
        return ""

    @property
    def hashes(self) -> dict[str, str]:
        """Hashes of the pretrained model and its head, by name."""
        return {"model": "", "head": ""}

    @property
    def num_parameters(self) -> int:
        """The number of parameters of the network."""
        return 0

    @property
    def reads_more(self) -> bool:
        """Whether the model could read longer texts than it does."""
        return False

    @property
    def head_factor(self) -> float:
        """The factor on the learning rate of the head's last layer; 1 unless it is new."""
        return 1.0

    @abstractmethod
    def encode(self, rows: Sequence[Any]) -> Encoded:
        """Encode rows for the model; errors as in `TaskType.encode`."""

    @abstractmethod
    def learn(self, *args: Any, **kwargs: Any) -> SeedResult:
        """Learn and predict, with the arguments of `Learner.learn`."""

    def own_answers(self, data: Dataset, encoded: Encoded) -> list[tuple[str, Answers]]:
        """Return (name, answers) of the pretrained model itself for encoded rows, where it has
        some."""
        return []

    @abstractmethod
    def save(self, result: SeedResult, folder: Path, readme: str, more: Mapping[str, str]) -> None:
        """Write the model of `result` to the new `folder`, with a card and `more` files by name."""

    def _validate(self, validation: Encoded, outputs: Outputs) -> tuple[float, str]:
        """Return the validation metric, which may be undefined, and a phrase that shows it. As in
        prediction, options such as a threshold are calibrated."""
        measure = self.task_type.measure
        calibrated = self.task_type.calibrate(validation, lambda _: outputs)
        answers = calibrated.answers(validation, outputs)
        value = calibrated.metrics(validation.rows, answers).values[measure]
        shown = decimals(value) if math.isfinite(value) else "not defined"
        return value, f"validation {measure} {shown}"

    def _validate_fit(
        self,
        tuned: Result,
        encoded_parts: Mapping[str, Encoded],
        read: Callable[[Encoded], Outputs],
        say: Callable[[str], None],
    ) -> Result:
        """Print how long a fit took, and add its metric on validation data, if there are any."""
        shown = f"fitted in {duration(tuned.seconds)}"
        if (validation := encoded_parts.get(VALIDATION)) is not None:
            value, phrase = self._validate(validation, read(validation))
            shown = f"{shown} · {phrase}"
            if len(validation.rows) >= SELECTABLE:  # else no seed is selected
                tuned = replace(tuned, figures=[defined(value)])
        say(shown)
        return tuned

    def _predict(
        self,
        tuned: Result,
        adapter: Adapter | None,
        seed: int,
        encoded_parts: Mapping[str, Encoded],
        eval_part: str,
        reader_of: Callable[[Result, TaskType], Callable[[Encoded], Outputs]],
    ) -> SeedResult:
        """Return the predictions for `eval_part`, with the options that the validation part
        chooses. `reader_of` returns the function from rows to outputs for a task type, whose
        options may change them."""
        task_type, one_sided = self.task_type, None
        if (validation := encoded_parts.get(VALIDATION)) is not None:
            read_uncalibrated = reader_of(tuned, self.task_type)
            # Computed once at most, for `calibrate` and for the warning about equal answers.
            uncalibrated_outputs = functools.cache(lambda: read_uncalibrated(validation))

            def read(changed: TaskType) -> Outputs:
                if changed is self.task_type:
                    return uncalibrated_outputs()
                return reader_of(tuned, changed)(validation)

            task_type = self.task_type.calibrate(validation, read, final=True)
            temperature = task_type.options.get(TEMPERATURE, 1.0)
            if not task_type.writes:  # generated texts are rarely all the same
                scores = uncalibrated_outputs() / temperature
                answers = task_type.answers(validation, scores)
                one_sided = task_type.report(validation, scores, answers).one_sided
            tuned = tuned.divided(temperature)
        encoded = encoded_parts[eval_part]
        outputs = reader_of(tuned, task_type)(encoded)
        answers = task_type.answers(encoded, outputs)
        return SeedResult(seed, tuned, adapter, task_type, outputs, answers, one_sided)


@dataclass(frozen=True, kw_only=True)
class Learner(BaseLearner):
    """The model in `path`, how texts are encoded for it, and the `machine` that it learns on.
    `config` includes the head of `task_type`; `soft_targets` are what training rows are learned
    from in place of their labels, if any."""

    frame: Frame
    loaded: folders.Model
    config: TransformerConfig
    collation: Collation
    machine: Machine
    soft_targets: Mapping[Any, Scores] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        model: folders.Model | Path,
        task_type: TaskType,
        method: Method,
        length: int | None = None,
        long: Long = "head",
        machine: Machine | None = None,
    ) -> Learner:
        """Return the learner of `model`: an opened model, its folder, or the folder of a run.

        Args:
            length: maximum number of ids of an example; None: the positions of the model, at most
                the default of the task type.
            long: how longer texts are handled.
            machine: device and precision; None: the best of this machine.

        Raises:
            UsageError: the folder does not exist.
            IncompatibleError: the model has no tokenizer.
        """
        loaded = model if isinstance(model, folders.Model) else open_weights(model)
        path, fitted = loaded.path, method.fitted
        takes_pairs, is_usual = len(task_type.roles) == 2, long == "head"
        if is_usual and takes_pairs and fitted is not None and APART in fitted.long:
            long = APART if modules_of(around(path)) else long
        config, family = add_head(loaded, task_type)
        config = method.with_heads(reading_texts(config, task_type, long))
        if long == HIERARCHICAL:  # no layer without training below those over the pieces
            config = replace(config, pooler=config.pooler and loaded.config.pooler)
        if family is not None and not family_named(family).belongs(config):
            family = None
        max_length = room(config, length or task_type.longest, method.positions)
        collation = collation_of(config, loaded.reader, loaded.extra)
        return cls(
            path,
            task_type,
            method,
            family,
            frame=frame_of(config, loaded.reader, max_length, long),
            loaded=loaded,
            config=config,
            collation=replace(collation, alone=method.positions > 0),
            machine=machine or choose(),
        )

    @property
    def base(self) -> str:
        return folders.called(self.path)

    @property
    def hashes(self) -> dict[str, str]:
        head = fingerprint([to_plain(head) for head in self.config.heads])
        return {"model": self.loaded.fingerprint, "head": head}

    @property
    def num_parameters(self) -> int:
        return layout.num_parameters(self.config)

    @property
    def reads_more(self) -> bool:
        return self.frame.length < (self.config.longest or math.inf)

    def encode(self, rows: Sequence[Any]) -> Encoded:
        return self.task_type.encode(rows, self.frame)

    @property
    def head_is_new(self) -> bool:
        """Whether the head is newly initialised, because the folder has none for these labels, or
        is a regression, into whose head the standardisation of other data is folded."""
        compared = attrgetter("name", "kind", "labels", "transform", "norm", "layer_mix")
        configs = (self.config, self.loaded.config)
        requested, saved = ((c.pooler, [*map(compared, c.heads)]) for c in configs)
        labels = self.task_type.labels
        has_other_labels = bool(labels) and tuple(self.loaded.about.labels) != labels
        if requested != saved or has_other_labels or self.task_type.problem == "number":
            return True
        # If the trained head is in an adapter, that in the model folder is only initialised.
        return folders.learned_beside(self.path)

    @property
    def head_factor(self) -> float:
        return self.method.head_factor if self.config.heads and self.head_is_new else 1.0

    def initial_network(
        self, seed: int, *, scratch: bool = False
    ) -> tuple[Transfer, torch.Generator]:
        """Return the network before training, and the generator that drew its new weights: all of
        them with `scratch`."""
        generator = torch.Generator().manual_seed(torch_seed(key("init", seed)))
        model = initialise.build(self.config, generator, like=self.loaded.network)
        every_name = [name for name, _ in model.named_parameters()]
        fresh = every_name if scratch else reinitialised(self.method, model)
        source, has_heads = self.loaded.network, not self.head_is_new
        loaded = load_matching(source, model, has_heads, fresh)
        if self.frame.long == HIERARCHICAL and not has_heads and not scratch:
            ((name, head),) = model.heads.items()
            copied = [f"heads.{name}.{n}" for n in checkpoints.load_objective(head, self.path)]
            new = tuple(n for n in loaded.new if n not in copied)
            loaded = replace(loaded, copied=(*loaded.copied, *copied), new=new)
        return loaded, generator

    def learn(
        self,
        encoded_parts: Mapping[str, Encoded],
        settings: Settings,
        eval_part: str,
        say: Callable[[str], None],
        watch: Watch = unseen,
        *,
        scratch: bool = False,
        name: str = "",
        finished_seeds: FinishedSeeds | None = None,
        announce: bool = False,
    ) -> SeedResult:
        """Train one seed, choose epoch and options on validation data, predict `eval_part`.

        Without a validation part, and with fewer than `SELECTABLE` rows in it, the number of epochs
        is fixed and the last one is kept.

        Args:
            watch: shows the progress.
            scratch: start from randomly initialised weights instead of the pretrained ones.
            name: the displayed name; "": the seed.
            finished_seeds: saves the result; a saved result of the seed is loaded, not trained.
            announce: print which weights are trained.
        """
        start, generator = self.initial_network(settings.seed, scratch=scratch)
        model, method = start.model, self.method
        if not scratch:
            method = replace(method, head_rate=self.head_factor)
        adapter, trained_share = attach(method, model, generator)
        if announce:
            reading = "; each text of a pair by itself" if self.frame.long == APART else ""
            method_line = f"method: {method.name}{reading}; {trained_share}"
            say(f"model: {self.path}: {start.render()}\n{method_line}")
        fitted = method.fitted

        def reader_of(tuned: TrainingResult, task_type: TaskType) -> Callable[[Encoded], Outputs]:
            if fitted is not None and method.head_alone:  # the vectors of the fit
                return functools.partial(self.frozen_vectors.scores, tuned.network)
            return reader(tuned.network, task_type, self.frame, self.collation)

        tuned = finished_seeds.restore(settings.seed, model) if finished_seeds else None
        if tuned is not None:
            say(f"seed {settings.seed} · finished before, epoch {tuned.epoch} of it is taken up")
        else:
            count = len(encoded_parts[TRAIN].examples.training_indices)
            steps = steps_of(settings, count) if fitted is None else fitted.steps(count, settings)
            show = watch if steps else unseen
            of_image = getattr(model.config.tokens, "per_image", 0)
            with show(name or f"seed {settings.seed}", steps, of_image) as hook:
                if not isinstance(fitted, NetworkMethod):
                    tuned = self._train(model, method, encoded_parts, settings, say, hook)
                else:
                    begin, train = time.perf_counter(), encoded_parts[TRAIN]
                    losses = fitted.fit(FitInput(self, model, train, settings, hook))
                    tuned = TrainingResult(model, [], losses, 1, time.perf_counter() - begin)
                    read = reader_of(tuned, self.task_type)
                    tuned = self._validate_fit(tuned, encoded_parts, read, say)
            if finished_seeds:
                finished_seeds.keep(settings.seed, tuned)
        return self._predict(tuned, adapter, settings.seed, encoded_parts, eval_part, reader_of)

    def own_answers(self, data: Dataset, encoded: Encoded) -> list[tuple[str, Answers]]:
        """Return (name, answers) of the pretrained model itself for the rows of a part: those of
        its head if it has one for these labels; or, for numbers of two texts and for embeddings,
        the similarities of its own vectors. Empty for other tasks.

        Similarities 0 and 1 are the least and the largest number of the training part.
        """
        task_type, frame = self.task_type, self.frame
        is_similarity = task_type.problem == "number" and len(task_type.roles) == 2
        if self.config.heads and not self.head_is_new:
            network = transfer(self.loaded.network, self.config).model
        elif task_type.alone or is_similarity:
            vectors, folder = task_for_vectors({"pooling": "mean"}), None
            with contextlib.suppress(MaskwrightError):  # with modules that are not applied here
                folder = sentence_transformers_folder.read(self.path)
            if folder is not None:
                tokenizer, width = frame.tokenizer, self.config.width
                vectors = sentence_transformers_folder.task_of_folder(folder, tokenizer, width)
                frame = replace(frame, length=room(self.config, folder.length or frame.length))
            task_type = replace(vectors, task=task_type.task) if task_type.alone else vectors
            network = transfer(self.loaded.network, replace(self.config, heads=())).model
            encoded = task_type.encode(encoded.rows, frame)
        else:
            return []
        prepared: Any = prepare_on(network, self.machine)
        outputs = reader(prepared, task_type, frame, self.collation)(encoded)
        answers = task_type.answers(encoded, outputs)
        if is_similarity and self.head_is_new:
            numbers = [row.label for row in data.parts[TRAIN]]
            answers = min(numbers) + (max(numbers) - min(numbers)) * np.asarray(answers)
        return [(AS_IT_IS, answers)]

    def save(self, result: SeedResult, folder: Path, readme: str, more: Mapping[str, str]) -> None:
        task_type, writing = self.task_type, dict[str, int]()
        if task_type.writes:  # transformers then generates the same texts
            writing["num_beams"] = int(result.task_type.options.get("beams", 1))
            if (longest := result.task_type.options.get("longest")) is not None:
                writing["max_new_tokens"] = int(longest)
        about = layout.About(
            family=self.family,
            labels=() if task_type.writes else task_type.labels,
            problem_type=PROBLEM_TYPES[task_type.problem] if task_type.head == "sequence" else None,
            readme=readme,
            decoder_start=self.collation.decoder_start,
            conventions=replace(self.loaded.conventions, measure=None),
            writing=writing,
            images=self.loaded.about.images,
        )
        width = self.config.width
        around = sentence_transformers_folder.folder_files(task_type, self.frame, width)
        pretrained.save(
            result.tuned.network,
            None if self.frame.words is None else self.frame.words.padding(),
            folder,
            about,
            more={name: text.encode() for name, text in {**around, **more}.items()},
        )

    @functools.cached_property
    def frozen_vectors(self) -> FrozenVectors:
        """What computes vectors of the pretrained network, for a linear head; it remembers those of
        every text."""
        return FrozenVectors(transfer(self.loaded.network, self.config, heads=False).model, self)

    def _train(
        self,
        model: Transformer,
        method: Method,
        encoded_parts: Mapping[str, Encoded],
        settings: Settings,
        say: Callable[[str], None],
        hook: Hook,
    ) -> TrainingResult:
        task_type, collation = self.task_type, self.collation
        train = encoded_parts[TRAIN]
        objective = task_type.objective(model, self.frame, train)
        if isinstance(objective, Supervised):
            objective.options = replace(
                objective.options,
                class_weights=settings.class_weights,
                label_smoothing=settings.label_smoothing,
                temperature=settings.temperature,
            )
        examples = train.examples
        if self.soft_targets:
            targets = np.stack([self.soft_targets[row] for row in train.rows])
            in_pieces = len(examples.labels) > len(targets)  # pieces that are examples
            targets = targets[train.way_back[0]] if in_pieces else targets
            examples = replace(examples, labels=targets)
        encoded, number = encoded_parts.get(VALIDATION), 0

        def figure(learner: Objective) -> float:
            nonlocal number
            assert encoded is not None
            number += 1
            outputs = finished(task_type.steps(learner, encoded, collation))
            value, shown = self._validate(encoded, outputs)
            say(f"seed {settings.seed} · epoch {number} of {settings.epochs} · {shown}")
            return value

        tuned = tune(
            objective,
            examples,
            collation,
            settings,
            figure=None if encoded is None or len(encoded.rows) < SELECTABLE else figure,
            rate_factors=functools.partial(learning_rate_factors, method),
            machine=self.machine,
            hooks=[hook],
        )
        if isinstance(objective, Standardised):
            objective.fold_into_head()
        return tuned


def learner_of(
    model: folders.Model | Path,
    task_type: TaskType,
    method: Method,
    length: int | None,
    long: Long,
    machine: Machine | None,
) -> BaseLearner:
    """Return what learns by `method`; args and errors as in `Learner.of`."""
    if not isinstance(method.fitted, NetworklessMethod):
        return Learner.of(model, task_type, method, length, long, machine)
    path = model if isinstance(model, Path) else model.path
    return cast(BaseLearner, method.fitted.learner(path, task_type, method))


def objective_of(model: Transformer, task_type: TaskType, frame: Frame) -> Objective:
    """Return the objective, in evaluation mode, that computes a trained model's outputs."""
    objective = task_type.objective(model, frame)
    objective.eval()
    return objective


def reader(
    model: Transformer, task_type: TaskType, frame: Frame, collation: Collation
) -> Callable[[Encoded], Outputs]:
    """Return a function from encoded rows to the scores, or texts, of a trained model."""
    objective = objective_of(model, task_type, frame)
    return lambda encoded: finished(task_type.steps(objective, encoded, collation))


def soft_targets(
    teacher: folders.Model,
    task_type: TaskType,
    rows: Sequence[Any],
    temperature: float,
    machine: Machine | None,
) -> dict[Any, Scores]:
    """Return the answer of another fine-tuned model to each row: the probabilities (L,) of the
    labels of `task_type`, from scores divided by the temperature; or its number (1,).

    Raises:
        IncompatibleError: the teacher was fine-tuned for another task, or for other labels.
    """
    record, config, labels = teacher.task, teacher.config, task_type.labels
    answered = "no head" if record is None or not config.heads else record.kind
    if record is None or (answered, set(record.labels)) != (task_type.task, set(labels)):
        raise IncompatibleError(
            "the teacher was not fine-tuned for this task with these labels",
            where=f"--teacher {teacher.folder}",
            found=f"{answered}: {', '.join(record.labels if record else ())}",
            wanted=f"{task_type.task}: {', '.join(labels)}",
        )
    own_type, long = task_for(record.kind, record.labels), cast(Long, record.long)
    length = room(config, record.length or own_type.longest, teacher.positions)
    frame = frame_of(config, teacher.reader, length, long)
    collation = collation_of(config, teacher.reader, teacher.extra)
    encoded = own_type.encode(rows, frame)
    network: Any = prepare(teacher.network, device=str((machine or choose()).device))
    read = reader(network, own_type, frame, replace(collation, alone=teacher.positions > 0))
    order = [record.labels.index(label) for label in labels] or [0]
    targets = own_type.scores(encoded, read(encoded) / temperature)[:, order]
    return dict(zip(rows, targets, strict=True))


def attach(
    method: Method, model: Transformer, generator: torch.Generator
) -> tuple[Adapter | None, str]:
    """Add the adapter of `method`, if any, to `model` and freeze what the method does not train.

    Returns:
        The adapter or None, and a line on the share of trained weights.

    Raises:
        ConfigError: the model has too few layers, or no place for such an adapter.
    """
    if method.trains_all:
        return None, freeze.share(model)
    last_layers = LAST.fullmatch(method.name)
    if last_layers or method.adapter is None:
        trained = freeze.last_layers(model, int(last_layers[1])) if last_layers else []
        freeze.train_only(model, trained)
        return None, freeze.share(model)
    head_names = [head.name for head in model.config.heads] + ["pooler"] * model.config.pooler
    adapter = attach_adapter(method.adapter, model, generator, heads=head_names)
    return adapter, adapter.share()


def reinitialised(method: Method, model: Transformer) -> list[str]:
    """Return the names of the body's parameters that the method reinitialises.

    Raises:
        ConfigError: the model has too few layers.
    """
    match = REINIT.fullmatch(method.name)
    return freeze.top_blocks(model, int(match[1])) if match else []


def learning_rate_factors(method: Method, model: Transformer, steps: int) -> RateFactors | None:
    """Return a function from step to learning rate factors by parameter; None if all are 1."""
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
