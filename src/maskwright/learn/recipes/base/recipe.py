"""Recipe: every choice of a run as one frozen value, saved with its results.

Built-in recipes and those of users are TOML files; a plug-in's is a function that returns a Recipe;
the `recipe.toml` in a run folder is the resolved one and can be run again (`find`). `--set a.b=c`
replaces one field (`override`). Unknown keys are errors with the near name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.base import config
from maskwright.base.budget import Budget
from maskwright.base.errors import ConfigError
from maskwright.learn.train.settings import (
    Adafactor,
    AdaGrad,
    AdamW,
    Lamb,
    Muon,
    Phase,
    Ramp,
    Schedule,
)
from maskwright.model.device.choices import Precision, require_device
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.objectives.base.spec import Member, Spec, TextRows, member_of
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer.splits import SubwordSampling
from maskwright.text.tokenizer.training.train import TokenizerChoice

Weights = tuple[float, ...] | dict[str, float]
OTHERS = "*"
MOST_VALUES = 64
LEAST, LARGEST = 1e-6, 1e6
PAIRS = ("pairs", "swapped-pairs")


def shares(corpus: Corpus, sizes: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The shares (K,) at the beginning and at the end of a run.

    Args:
        sizes: how much text there is of each part, in the order of the texts or of the values.
    """
    if corpus.temperature is not None:
        natural = np.array(sizes, np.float64) / max(1, sum(sizes))
        begin = natural**corpus.temperature
    else:
        begin = _in_order(corpus.weights)
    end = _in_order(corpus.weights_end) if corpus.weights_end else begin
    return begin / begin.sum(), end / end.sum()


def _in_order(weights: Weights) -> NDArray[np.float64]:
    """The weights in the order of their stores: as listed, of a table by name."""
    values = [weights[name] for name in sorted(weights)] if isinstance(weights, dict) else weights
    return np.array(values, np.float64)


def _contradictions(corpus: Corpus) -> Iterator[tuple[str, object, str]]:
    """Yield (setting, its value, what is expected) for mixtures that the settings do not define."""
    weights, weights_end, mix_by = corpus.weights, corpus.weights_end, corpus.mix_by
    setting = "weights" if weights else "temperature"
    if mix_by is not None:
        if mix_by in ("", OTHERS, corpus.column):
            yield "mix_by", repr(mix_by), "a column besides that of the text"
        if not corpus.mixed or corpus.characters is not None:
            yield "mix_by", mix_by, "corpus.weights or corpus.temperature; no corpus.characters"
        if weights and not isinstance(weights, dict):
            yield "weights", list(weights), f"a table with a weight for each value of {mix_by!r}"
        if len(weights) > MOST_VALUES:
            expected = f"at most {MOST_VALUES}; one weight for all other values: {OTHERS!r}"
            yield "weights", len(weights), expected
    elif isinstance(weights, dict) or isinstance(weights_end, dict):
        yield "mix_by", "no column", "the column of the files that has the values with weights"
    elif corpus.mixed:
        if len(corpus.text) < 2 or len(weights) not in (0, len(corpus.text)):
            counts = f"{len(weights) or 'no'} weights, {len(corpus.text)} texts"
            yield setting, counts, "two or more files or folders, a weight for each; or a column"
        if len(set(corpus.text)) < len(corpus.text):
            yield setting, ", ".join(corpus.text), "each text once"
        if corpus.characters is not None or corpus.limit_bytes is not None:
            yield setting, "shares of texts", "no corpus.characters and no corpus.limit_bytes"
    if corpus.temperature is not None and weights:
        yield "temperature", f"{corpus.temperature:g}", "either weights or a temperature"
    if weights_end:
        if type(weights) is not type(weights_end) or _names(weights) != _names(weights_end):
            yield (
                "weights_end",
                _names(weights_end),
                f"the same as corpus.weights: {_names(weights)}",
            )
        elif not (_in_order(weights) + _in_order(weights_end) > 0).all():
            yield (
                "weights_end",
                str(weights_end),
                "for each text a weight above 0 at one of the ends",
            )
    for name, values in (("weights", weights), ("weights_end", weights_end)):
        if values and not _in_order(values).any():
            yield name, str(values), "a weight above 0"


def _names(weights: Weights) -> list[Any]:
    """The names of the weights in a table; the indices of those in a list."""
    return sorted(weights) if isinstance(weights, dict) else list(range(len(weights)))


@dataclass(frozen=True, kw_only=True)
class CharacterRanges:
    """Parts of one text by character, [start, stop), as some small studies define them."""

    train: tuple[int, int]
    held_out: tuple[int, int]
    tokenizer: tuple[int, int]

    def __post_init__(self) -> None:
        for name in ("train", "held_out", "tokenizer"):
            start, stop = getattr(self, name)
            if not 0 <= start < stop:
                raise ConfigError(
                    "not a range of characters",
                    where=name,
                    found=[start, stop],
                    wanted="0 <= start < stop",
                    do="give the first and the last position, such as [0, 1000]",
                )
        start, stop = self.held_out
        if self.train[0] < stop and start < self.train[1]:
            raise ConfigError(
                "the held-out range overlaps the training range",
                where="train",
                found=list(self.train),
                wanted=f"nothing of {[start, stop]}",
                do="choose ranges apart",
            )


@dataclass(frozen=True, kw_only=True)
class Corpus(ReadingOptions):
    """Where the text comes from, and how files are read. No `text` means the embedded corpus;
    `$NAME` stands for an environment variable. `held_out` is the share of documents (of a few
    documents: of their text) that only evaluation sees, unless `held_out_text` names files for it.
    Of the text no more is taken than the documents that begin within `limit_bytes`.

    `weights`, one for each file or folder of `text`, say which share of the rows comes from each;
    without them every text is read equally often. With `mix_by`, a column of the files, they are a
    table with one for each value of it, where `*` stands for all other documents together. In
    their place `temperature` makes every share as large as its natural share to this power, made
    to sum to one. With `weights_end` the shares change evenly over the run, to these."""

    text: tuple[str, ...] = ()
    weights: Weights = ()
    weights_end: Weights = ()
    mix_by: str | None = None
    temperature: float | None = None
    held_out: float = 0.02
    held_out_text: tuple[str, ...] = ()
    characters: CharacterRanges | None = None
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ConfigError as error:
            raise error.under("corpus.") from None
        if self.notes:
            raise ConfigError(
                "a model learns from texts alone, so notes have no effect",
                where="corpus.notes",
                found=", ".join(self.notes),
                wanted="no notes",
                do="leave corpus.notes out, or mix by a column: corpus.mix_by",
            )
        if self.limit_bytes is not None:
            config.require("corpus.limit_bytes", self.limit_bytes, 1)
        if self.temperature is not None:
            config.require("corpus.temperature", self.temperature, 0.0, 10.0)
        least = 0.0 if self.weights_end else LEAST
        for name in ("weights", "weights_end"):
            for weight in _in_order(getattr(self, name)).tolist():
                config.require(f"corpus.{name}", weight, least, LARGEST)
        for setting, value, expected in _contradictions(self):
            raise ConfigError(
                "these settings do not define a mixture of texts",
                where=f"corpus.{setting}",
                found=value,
                wanted=expected,
                do="for example --text ONE TWO --set corpus.weights=[3,1], or --set "
                "corpus.mix_by=source --set corpus.weights='{web = 1, \"*\" = 3}'",
            )
        if repeated := set(self.text) & set(self.held_out_text):
            raise ConfigError(
                "a file is both training and held-out text",
                where="corpus.held_out_text",
                found=", ".join(sorted(repeated)),
                wanted="other files than corpus.text",
                do="take it out of one of the two settings",
            )
        if not 0.0 < self.held_out < 1.0:
            raise config.out_of_range("corpus.held_out", self.held_out, "0 < held_out < 1")

    @property
    def mixed(self) -> bool:
        """Whether the rows come from several stores in shares of their own."""
        return bool(self.weights) or self.temperature is not None


# Settings that may differ when a run is resumed: they do not change what is computed, except
# evaluations where these decide when the run ends or what its model is.
FREE = (
    "training.log_seconds",
    "training.threads",
    "training.gradient_checkpointing",
    "training.on_nonfinite",
    "evaluation",
    "checkpoints",
    "name",
    "note",
)
# What may change when a run goes on, which then is not the same to the bit.
INEXACT = ("training.microbatches",)


@dataclass(frozen=True, kw_only=True)
class FamilyModel:
    """A published family and one of its architectures (class names of transformers);
    `settings` are its own config.json keys, over those of `size` if given."""

    family: str
    architecture: str
    size: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Point:
    """Any config, written out."""

    config: TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Folder:
    """What a model folder of any origin holds, or a run: its weights and its tokenizer are trained
    further. With an `architecture` of its family the heads are that one's; those that the folder
    lacks are drawn. `sha256`, of its files, is filled in when the run begins.

    New parts are trained alone for the share `head_first` of the budget; after that the rest is
    trained at `body_rate` times the learning rate. `new`, the parts that are drawn, is filled in,
    too. `layer_decay` is the factor on the learning rate from each layer to the one below it."""

    path: str
    architecture: str | None = None
    sha256: str | None = None
    head_first: float = 0.0
    body_rate: float = 1.0
    new: tuple[str, ...] = ()
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        config.require("model.layer_decay", self.layer_decay, 1e-3, 1.0)
        config.require("model.head_first", self.head_first, 0.0, 1.0)
        config.require("model.body_rate", self.body_rate, 0.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder:
    """The tokenizer in a folder, as it is; `fingerprint` is filled in when the run begins."""

    path: str
    fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Initialisation:
    """How fresh weights are drawn; the columns of the table in `model/nn/initialise.py`."""

    distribution: Literal["truncated", "normal", "fan_in", "uniform"] = "truncated"
    deviation: float = 0.02
    scaled_residual: bool = False

    def __post_init__(self) -> None:
        config.require("initialisation.deviation", self.deviation, 0.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class ObjectiveChoice:
    """An objective by name, and its own options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def member(self) -> Member:
        """The objective of that name, resolved once.

        Raises:
            UsageError: there is none.
        """
        return member_of(self.name)

    @property
    def spec(self) -> Spec:
        return self.member.spec

    @cached_property
    def checked(self) -> Any:
        """The options as the objective takes them.

        Raises:
            ConfigError: an option that it does not take, or a value out of range.
        """
        return self.member.read(self.options)

    def with_options(self, options: dict[str, Any]) -> ObjectiveChoice:
        """The same objective by other options; what is resolved stays so."""
        choice = replace(self, options=options)
        choice.__dict__["member"] = self.member
        return choice


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """How tokens become rows of `length`; `kind` "auto" is what the objective eats. An image is a
    row, of as many positions as the model has."""

    length: int
    kind: Literal["auto", "sentences", "windows", "images", TextRows] = "auto"

    def __post_init__(self) -> None:
        config.require("rows.length", self.length, 4, 1 << 20)


@dataclass(frozen=True, kw_only=True)
class Training:
    """`batch` rows per optimizer step, computed as `microbatches` equal parts.

    `phases` come before the one with the recipe's own length and batch, `ramp` lets batches grow;
    `ema` is the decay of the average of the weights that is evaluated and saved (0: the weights
    themselves are). `on_nonfinite` says what becomes of a step whose loss or gradient is no finite
    number: the run stops, or the step is skipped, reported and counted. With
    `gradient_checkpointing`, activations of layers are computed again in the backward pass, to the
    same bits: less memory for a third more time. With `patience` the run ends after so many
    evaluations in a row whose loss is not lower by more than `min_improvement`. With `keep_best`
    (None: as with `patience`) the model is that of the evaluation with the lowest loss.
    """

    budget: Budget
    batch: int
    microbatches: int = 1
    gradient_checkpointing: bool = False
    phases: tuple[Phase, ...] = ()
    ramp: Ramp = field(default_factory=Ramp)
    optimizer: AdamW | Lamb | Adafactor | AdaGrad | Muon
    schedule: Schedule = field(default_factory=Schedule)
    ema: float = 0.0
    on_nonfinite: Literal["stop", "skip"] = "stop"
    patience: int | None = None
    min_improvement: float = 0.0
    keep_best: bool | None = None
    seed: int = 0
    precision: Precision = "auto"
    device: str = "auto"
    threads: int | None = None
    log_seconds: float = 10.0

    def __post_init__(self) -> None:
        batches = [phase.batch for phase in self.phases] + [self.batch]
        config.require("training.batch", min(batches), 1)
        if self.microbatches < 1 or math.gcd(*batches) % self.microbatches:
            raise config.out_of_range(
                "training.microbatches",
                self.microbatches,
                f"a divisor of training.batch = {', '.join(map(str, batches))}",
            )
        ends = [0.0, *(phase.until for phase in self.phases), 1.0]
        if any(end >= next_end for end, next_end in itertools.pairwise(ends)):
            raise config.out_of_range("training.phases", ends[1:-1], "rising shares from 0 to 1")
        if not 0.0 <= self.ema < 1.0:
            raise config.out_of_range("training.ema", self.ema, "0 <= ema < 1")
        if not 0 <= self.seed < 1 << 53:
            raise config.out_of_range("training.seed", self.seed, "0 to 2^53 - 1")
        require_device(self.device, "training.device")
        config.require("training.log_seconds", self.log_seconds, 0.0)
        if self.threads is not None:
            config.require("training.threads", self.threads, 1, 1 << 16)
        if self.patience is not None:
            config.require("training.patience", self.patience, 1)
        config.require("training.min_improvement", self.min_improvement, 0.0)
        if self.min_improvement and self.patience is None:
            expected = "0, as nothing is stopped without training.patience"
            raise config.out_of_range("training.min_improvement", self.min_improvement, expected)

    @property
    def keeps_best(self) -> bool:
        return self.patience is not None if self.keep_best is None else self.keep_best

    @property
    def tracks_loss(self) -> bool:
        """Whether evaluations decide when the run ends, or what its model is."""
        return self.keeps_best or self.patience is not None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Every `every` steps (0: only at the end) on at most `rows` fixed held-out rows."""

    every: int = 200
    rows: int = 512
    batch: int = 32

    def __post_init__(self) -> None:
        config.require("evaluation.every", self.every, 0)
        config.require("evaluation.rows", self.rows, 1)
        config.require("evaluation.batch", self.batch, 1)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Every `every` steps (0: only at the end); the newest `keep` stay."""

    every: int = 500
    keep: int = 2

    def __post_init__(self) -> None:
        config.require("checkpoints.every", self.every, 0)
        config.require("checkpoints.keep", self.keep, 1)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole pretraining run."""

    name: str
    note: str = ""
    corpus: Corpus = field(default_factory=Corpus)
    tokenizer: TokenizerChoice | TokenizerFolder | ImageProcessor
    subwords: SubwordSampling = field(default_factory=SubwordSampling)
    model: FamilyModel | Point | Folder
    initialisation: Initialisation = Initialisation()
    objective: ObjectiveChoice
    rows: RowChoice
    training: Training
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()

    def __post_init__(self) -> None:
        if self.training.tracks_loss and not self.evaluation.every:
            expected = "steps between the evaluations of training.patience or training.keep_best"
            raise config.out_of_range("evaluation.every", 0, expected)
        if isinstance(self.tokenizer, TokenizerChoice):
            self.subwords.require_kind(self.tokenizer.kind)
        if self.corpus.weights_end and self.training.budget.minutes is not None:
            raise ConfigError(
                "weights that change over a run need to know how many rows it has",
                where="corpus.weights_end",
                found=f"a budget of {self.training.budget}",
                wanted="a budget in steps, tokens or flops",
                do="for example --budget 1000steps",
            )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases of the run; the last has the recipe's own length and batch."""
        last_phase = Phase(until=1.0, length=self.rows.length, batch=self.training.batch)
        return (*self.training.phases, last_phase)

    @property
    def row_kind(self) -> str:
        """The kind of the rows; by default that of the objective."""
        return self.objective.spec.rows if self.rows.kind == "auto" else self.rows.kind

    @property
    def needs_sentences(self) -> bool:
        """Whether a token store has to record where sentences start."""
        return self.row_kind in ("sentences", *PAIRS) or self.objective.spec.sentences

    @property
    def free(self) -> tuple[str, ...]:
        """Settings that may differ when the run is resumed."""
        return tuple(n for n in FREE if n != "evaluation" or not self.training.tracks_loss)

    @property
    def divisors(self) -> list[int]:
        """All the numbers of microbatches that every batch can be cut into."""
        rows = math.gcd(*(phase.batch for phase in self.phases))
        return [n for n in range(1, rows + 1) if rows % n == 0]

    @property
    def fingerprint(self) -> str:
        """Identity of the run: the hash of everything that changes what is computed."""
        return config.fingerprint(frozen_part(self))


def frozen_part(recipe: Recipe) -> dict[str, Any]:
    """The plain recipe without its free settings."""
    plain = config.to_plain(recipe)
    for path in recipe.free:
        table, *rest = path.split(".")
        if rest:
            plain[table].pop(rest[0])
        else:
            plain.pop(table)
    plain["corpus"].pop("notes")  # which a model learns nothing from
    return plain
