"""Recipe: every choice of a run as one frozen value, saved with its results.

A built-in recipe is a function that returns a Recipe; a user's is a TOML file; the `recipe.toml` in
a run folder is the resolved one and can be run again (`find`). `--set a.b=c` replaces one field
(`override`). Unknown keys are errors with the near name.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from maskwright import config
from maskwright.budget import Budget
from maskwright.corpus.reading import AUTO
from maskwright.errors import ConfigError
from maskwright.nn.config import TransformerConfig
from maskwright.objectives.parts.spec import Member, Spec, member_of
from maskwright.recipes.parts.corpus import Corpus
from maskwright.tokenizer.training.train import TokenizerChoice
from maskwright.train.machine.choices import Precision, require_device
from maskwright.train.optimizers.settings import Adafactor, AdamW, Lamb, Muon
from maskwright.train.phases import Phase, Ramp
from maskwright.train.schedule import Schedule

# Settings that may differ when a run is resumed: they do not change what is computed.
FREE = (
    "training.log_seconds",
    "training.threads",
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
    too."""

    path: str
    architecture: str | None = None
    sha256: str | None = None
    head_first: float = 0.0
    body_rate: float = 1.0
    new: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        config.require("model.head_first", self.head_first, 0.0, 1.0)
        config.require("model.body_rate", self.body_rate, 0.0, 1000.0)


@dataclass(frozen=True, kw_only=True)
class TokenizerFolder:
    """The tokenizer in a folder, as it is; `fingerprint` is filled in when the run begins."""

    path: str
    fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Initialisation:
    """How fresh weights are drawn; the columns of the table in `nn/initialise.py`."""

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
        other = replace(self, options=options)
        other.__dict__["member"] = self.member
        return other


@dataclass(frozen=True, kw_only=True)
class RowChoice:
    """How tokens become rows of `length`; `kind` "auto" is what the objective eats."""

    length: int
    kind: Literal[
        "auto", "documents", "sentences", "stream", "blocks", "windows", "pairs", "swapped-pairs"
    ] = "auto"

    def __post_init__(self) -> None:
        if not 4 <= self.length <= 1 << 20:
            raise ConfigError(
                "rows.length is out of range",
                where="rows.length",
                found=self.length,
                wanted="4 to 1048576",
            )


@dataclass(frozen=True, kw_only=True)
class Training:
    """`batch` rows per optimizer step, computed as `microbatches` equal parts.

    `phases` come before the one with the recipe's own length and batch, `ramp` lets batches grow;
    `ema` is the decay of the average of the weights that is evaluated and saved (0: the weights
    themselves are). `on_nonfinite` says what becomes of a step whose loss or gradient is no finite
    number: the run stops, or the step is skipped, reported and counted.
    """

    budget: Budget
    batch: int
    microbatches: int = 1
    phases: tuple[Phase, ...] = ()
    ramp: Ramp = field(default_factory=Ramp)
    optimizer: AdamW | Lamb | Adafactor | Muon
    schedule: Schedule = field(default_factory=Schedule)
    ema: float = 0.0
    on_nonfinite: Literal["stop", "skip"] = "stop"
    seed: int = 0
    precision: Precision = "auto"
    device: str = "auto"
    threads: int | None = None
    log_seconds: float = 10.0

    def __post_init__(self) -> None:
        batches = [phase.batch for phase in self.phases] + [self.batch]
        if min(batches) < 1:
            raise ConfigError(
                "a step needs rows",
                where="training.batch",
                found=min(batches),
                wanted="1 or more",
            )
        if self.microbatches < 1 or math.gcd(*batches) % self.microbatches:
            raise ConfigError(
                "the batch does not split into equal microbatches",
                where="training.microbatches",
                found=self.microbatches,
                wanted=f"a divisor of training.batch = {', '.join(map(str, batches))}",
            )
        ends = [0.0, *(phase.until for phase in self.phases), 1.0]
        if any(one >= next for one, next in itertools.pairwise(ends)):
            raise ConfigError(
                "the phases do not end in rising order",
                where="training.phases",
                found=ends[1:-1],
                wanted="rising shares between 0 and 1",
                do="sort training.phases by their `until`",
            )
        if not 0.0 <= self.ema < 1.0:
            raise ConfigError(
                "a share is out of range",
                where="training.ema",
                found=self.ema,
                wanted="0 <= ema < 1",
            )
        if not 0 <= self.seed < 1 << 53:
            raise ConfigError(
                "a seed is out of range",
                where="training.seed",
                found=self.seed,
                wanted="0 to 2^53 - 1",
            )
        require_device(self.device, "training.device")
        config.require("training.log_seconds", self.log_seconds, 0.0)
        if self.threads is not None:
            config.require("training.threads", self.threads, 1, 1 << 16)


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
        if self.keep < 1:
            raise ConfigError(
                "checkpoints.keep must be at least 1",
                where="checkpoints.keep",
                found=self.keep,
                wanted="1 or more",
                do="--set checkpoints.keep=1",
            )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole pretraining run."""

    name: str
    note: str = ""
    corpus: Corpus = field(default_factory=Corpus)
    tokenizer: TokenizerChoice | TokenizerFolder
    model: FamilyModel | Point | Folder
    initialisation: Initialisation = Initialisation()
    objective: ObjectiveChoice
    rows: RowChoice
    training: Training
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()

    def __post_init__(self) -> None:
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
        last = Phase(until=1.0, length=self.rows.length, batch=self.training.batch)
        return (*self.training.phases, last)

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
    for path in FREE:
        table, *rest = path.split(".")
        if rest:
            plain[table].pop(rest[0])
        else:
            plain.pop(table)
    if plain["training"]["budget"]["flops"] is None:  # releases that did not know it made the same
        plain["training"]["budget"].pop("flops")
    plain["corpus"].pop("notes")  # which a model learns nothing from
    if plain["corpus"]["encoding"] == AUTO:  # releases that knew only UTF-8 said so
        plain["corpus"]["encoding"] = "utf-8"
    for name in ("weights_end", "mix_by", "temperature"):
        if not plain["corpus"][name] and plain["corpus"][name] != 0.0:
            plain["corpus"].pop(name)
    return plain
