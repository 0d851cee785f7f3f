"""Recipe: every choice of a run as one frozen value, saved beside its results.

A built-in recipe is a function that returns a Recipe; a user's is a TOML file; the `recipe.toml`
in a run folder is the resolved one and runs again as it stands. `--set a.b=c` replaces one field.
Unknown keys are errors with the near name.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from maskwright import catalogue, config
from maskwright.corpus.files import Paths, listed
from maskwright.corpus.reading import Reading
from maskwright.errors import ConfigError, UsageError, near
from maskwright.nn.config import TransformerConfig
from maskwright.tokenizer.train import TokenizerChoice
from maskwright.train.adafactor import Adafactor
from maskwright.train.lamb import Lamb
from maskwright.train.machine import Precision
from maskwright.train.muon import Muon
from maskwright.train.optimizer import AdamW
from maskwright.train.phases import Phase, Ramp
from maskwright.train.schedule import Budget, Schedule

BUDGET = "training.budget."
OPTIMIZER = "training.optimizer"
FOLDERS = ("model.folder", "tokenizer.folder")
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
class CharacterRanges:
    """Parts of one text by character, [start, stop): for small studies that say it this way."""

    train: tuple[int, int]
    held_out: tuple[int, int]
    tokenizer: tuple[int, int]

    def __post_init__(self) -> None:
        for name in ("train", "held_out", "tokenizer"):
            start, stop = getattr(self, name)
            if not 0 <= start < stop:
                raise ConfigError("not a range of characters", where=name, found=[start, stop],
                                  wanted="0 <= start < stop")  # fmt: skip
        begun, ended = self.held_out
        if self.train[0] < ended and begun < self.train[1]:
            raise ConfigError("what is held out would be trained on", where="train",
                              found=list(self.train), wanted=f"nothing of {[begun, ended]}",
                              do="choose ranges apart")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Corpus(Reading):
    """Where the text comes from, and how files are read. No `text` means the embedded corpus;
    `$NAME` stands for an environment variable. `held_out` is the share of documents (of a few
    documents: of their text) that only evaluation sees, unless `held_out_text` names files for it.
    Of the text no more is taken than the documents that begin within `limit_bytes`. `weights`, one
    for each file or folder of `text`, say which share of the rows comes from each; without them
    every text is read equally often."""

    text: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    held_out: float = 0.02
    held_out_text: tuple[str, ...] = ()
    characters: CharacterRanges | None = None
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ConfigError as error:
            raise error.under("corpus.") from None
        if self.limit_bytes is not None:
            config.require("corpus.limit_bytes", self.limit_bytes, 1)
        if self.weights:
            self._check_weights()
        if twice := set(self.text) & set(self.held_out_text):
            raise ConfigError("the same file would be trained on and held out",
                              where="corpus.held_out_text", found=", ".join(sorted(twice)),
                              wanted="other files than corpus.text")  # fmt: skip
        if not 0.0 < self.held_out < 1.0:
            raise ConfigError(
                "a share is out of range",
                where="corpus.held_out",
                found=self.held_out,
                wanted="0 < held_out < 1",
            )

    def _check_weights(self) -> None:
        where = "corpus.weights"
        if len(self.weights) != len(self.text) or len(self.text) < 2:
            raise ConfigError(
                "there is not a weight for each text",
                where=where,
                found=f"{len(self.weights)} weights, {len(self.text)} texts",
                wanted="one for each of two or more files or folders",
                do="name them: --text ONE TWO --set corpus.weights=[3,1]",
            )
        for weight in self.weights:
            config.require(where, weight, 1e-6, 1e6)
        if len(set(self.text)) < len(self.text):
            raise ConfigError("a text has two weights", where=where, found=", ".join(self.text))
        for other in ("characters", "limit_bytes"):
            if getattr(self, other) is not None:
                raise ConfigError(f"weights do not go with corpus.{other}", where=where,
                                  wanted="one or the other")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FamilyModel:
    """A published family and one of its architectures (class names of the reference library);
    `settings` are its own config.json keys, over those of `size` if given."""

    family: str
    architecture: str
    size: str | None = None
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Point:
    """Any point of the configuration space, written out."""

    config: TransformerConfig


@dataclass(frozen=True, kw_only=True)
class Folder:
    """What a model folder of any origin holds, or a run: its weights and its tokenizer are trained
    further. With an `architecture` of its family the heads are that one's; those that the folder
    lacks are drawn. `sha256`, of its files, is filled in when the run begins."""

    path: str
    architecture: str | None = None
    sha256: str | None = None


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
    options: dict[str, Any]


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
                "a row length is out of range",
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
    number: the run stops, or the step is skipped, told and counted.
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
        if min(*batches, self.microbatches) < 1 or math.gcd(*batches) % self.microbatches:
            raise ConfigError(
                "the batch does not split into equal microbatches",
                where="training.microbatches",
                found=self.microbatches,
                wanted=f"a divisor of training.batch = {', '.join(map(str, batches))}",
            )
        ends = [0.0, *(phase.until for phase in self.phases), 1.0]
        if any(one >= next for one, next in itertools.pairwise(ends)):
            raise ConfigError(
                "phases do not end one after the other",
                where="training.phases",
                found=ends[1:-1],
                wanted="rising shares between 0 and 1",
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
                "at least one checkpoint must stay",
                where="checkpoints.keep",
                found=self.keep,
                wanted="1 or more",
            )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A whole pretraining run."""

    name: str
    note: str = ""
    corpus: Corpus = Corpus()
    tokenizer: TokenizerChoice | TokenizerFolder
    model: FamilyModel | Point | Folder
    initialisation: Initialisation = Initialisation()
    objective: ObjectiveChoice
    rows: RowChoice
    training: Training
    evaluation: Evaluation = Evaluation()
    checkpoints: Checkpoints = Checkpoints()

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
    return plain


def find(name: str) -> Recipe:
    """A recipe by built-in name, by TOML file, or by run folder.

    Raises:
        UsageError: none of these; the message has the near names.
        ConfigError: the file is not a recipe.
    """
    path = Path(name)
    if is_run(path):
        return read(path / "recipe.toml")
    if path.suffix == ".toml":
        return read(path)
    known = catalogue.names("recipes")
    if name not in known:
        raise UsageError(
            "no recipe of that name",
            found=repr(name),
            wanted=near(name, known),
            do="maskwright list recipes",
        )
    recipe = catalogue.load("recipes", name).recipe()
    assert isinstance(recipe, Recipe)
    return recipe


def is_run(folder: Path) -> bool:
    """Whether `folder` is that of a run: it holds the recipe of one."""
    return (folder / "recipe.toml").is_file()


def read(path: Path) -> Recipe:
    """A recipe from a TOML file.

    Raises:
        UsageError: no such file.  ConfigError: not TOML, or not a recipe.
    """
    return config.read_toml(Recipe, path)


def with_text(recipe: Recipe, paths: Paths) -> Recipe:
    """`recipe` on the user's own files; a bound on the embedded corpus is none on them.

    Raises:
        ConfigError: the recipe weighs another number of texts.
    """
    limit = recipe.corpus.limit_bytes if recipe.corpus.text else None
    return replace(
        recipe, corpus=replace(recipe.corpus, text=tuple(listed(paths)), limit_bytes=limit)
    )


def override(recipe: Recipe, settings: list[str]) -> Recipe:
    """`recipe` with each `path=value` applied; all are in place before they are checked.

    A setting inside `model.settings` or `objective.options` may be new, to any depth; whether there
    is one of that name is asked when they are read. All others must exist. A budget given in
    another unit takes the place of the one that is there, and an optimizer of another kind brings
    its own settings, all but the learning rate. `model.folder=PATH` and `tokenizer.folder=PATH` put
    what lies there in the place of what the recipe would make; of a family's model the architecture
    stays.
    """
    values: dict[str, Any] = {}
    for setting in sorted(settings, key=lambda setting: not setting.startswith(FOLDERS)):
        path, sign, text = setting.partition("=")
        if not sign:
            raise UsageError(
                "--set wants path=value",
                found=repr(setting),
                wanted="for example --set training.batch=32",
            )
        if path == f"{OPTIMIZER}.kind" and text != recipe.training.optimizer.kind:
            rate = recipe.training.optimizer.learning_rate
            fresh = {OPTIMIZER: {"kind": text, "learning_rate": rate}}
            recipe = config.replace_at(recipe, fresh)
        elif path.startswith(BUDGET):
            given = values.setdefault(BUDGET[:-1], {})  # of two, the budget itself refuses one
            given[path.removeprefix(BUDGET)] = config.parse_value(text)
        elif path in FOLDERS:
            values |= _from_folder(recipe, path.split(".")[0], text)
        else:
            values[path] = config.parse_value(text)
    return config.replace_at(recipe, values)


def _from_folder(recipe: Recipe, table: str, path: str) -> dict[str, Any]:
    """The plain value of `table` that takes what lies at `path`."""
    made: Folder | TokenizerFolder = TokenizerFolder(path=path)
    if table == "model":
        model = recipe.model
        architecture = model.architecture if isinstance(model, FamilyModel) else None
        made = Folder(path=path, architecture=architecture)
    return {table: {"type": type(made).__name__, **config.to_plain(made)}}
