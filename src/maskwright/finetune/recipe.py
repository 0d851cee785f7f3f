"""All that a fine-tuning is made from, as one frozen value: `finetune.toml` in the folder of a
result is one, and `maskwright finetune FOLDER/finetune.toml` makes that result again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from maskwright.errors import UsageError
from maskwright.finetune.method import FULL
from maskwright.labelled.columns.columns import as_names
from maskwright.labelled.formats.options import AS_IT_COMES, HowRead
from maskwright.tasks.parts.reading import Long
from maskwright.toml import read_toml, to_toml

NAME = "finetune.toml"
HEADER = (
    "# Made again by: maskwright finetune THIS_FILE --out DIR (paths are as they were typed)\n\n"
)
EPOCHS, LEAST_STEPS = 3, 100


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained on what, and how. Where None is the usual, the method, the width of the model
    and the task decide.

    Attributes:
        model: the folder of a model or a run.
        data: a labelled file, or a folder of parts.
        method: one name, or for a curve several with commas between.
        columns: role -> names of columns, where they must not be guessed.
        accumulate: in how many portions a step is computed, one after the other: less memory and
            the same step.
        rate: the learning rate.
        length: the most tokens of a text.
        long: how longer texts are read.
        layer_decay: a factor on the rate from each layer to the one below it.
        head_rate: how many times as fast the scores of the head learn; None: the usual, but 1 where
            a `rate` is given.
        weight_decay: of the matrices, as AdamW has it; biases and norms have none.
        warmup: the share of the run in which the rate rises; then it falls to 0.
        patience: how many epochs without a better figure end a seed; None: none do.
        epochs: None: three, each of several passes where these would be fewer than `least_steps`
            steps. A number of epochs is as many passes.
        least_steps: fewer steps than these are made up for by several passes in an epoch; None: 100
            where no number of epochs is given, else 0.
        threads: of the processor; None: as many as PyTorch chooses.
        prompt: what a model that writes its answers reads, with holes for what a row has: {source},
            or {text}, {first} and {second}, {question} and {context}, of which it then writes the
            label or the answer; or the name of one in `labelled/windows/text_to_text.py`.
        pooling: what is read of a text: cls, mean or max; None: cls, and for vectors what the
            folder was made with, or mean.
        measure: the figure that chooses the epoch and the seed.
        within_words: whether an answer to a question may begin or end within a word; None: where
            answers to learn from often do.
        curve: numbers of labels, 0 for all: no model is made, but told how good each method is with
            so many.
        read: the encoding and separator of the files, what becomes of bad rows, and so on.
        made_from: SHA-256 of the "model", the "data" (rows) and the "files" of a result.
    """

    model: str
    data: str
    method: str = FULL
    task: str | None = None
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: int = 3
    epochs: int | None = None
    batch: int = 32
    accumulate: int = 1
    rate: float | None = None
    length: int | None = None
    long: Long = "head"
    layer_decay: float = 1.0
    head_rate: float | None = None
    weight_decay: float = 0.01
    warmup: float = 0.1
    patience: int | None = None
    least_steps: int | None = None
    threads: int | None = None
    prompt: str | None = None
    pooling: str | None = None
    measure: str | None = None
    within_words: bool | None = None
    curve: tuple[int, ...] = ()
    read: HowRead = AS_IT_COMES
    made_from: dict[str, str] = field(default_factory=dict)

    @property
    def passes(self) -> tuple[int, int]:
        """The number of epochs, and the steps that they are at the least."""
        usual = LEAST_STEPS if self.epochs is None else 0
        return self.epochs or EPOCHS, usual if self.least_steps is None else self.least_steps

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", as_names(self.columns))
        if self.seeds < 1:
            raise UsageError(
                "no seed to try", where="--seeds", found=self.seeds, wanted="1 or more"
            )
        for option, share in (("--weight-decay", self.weight_decay), ("--warmup", self.warmup)):
            if not 0.0 <= share < 1.0:
                raise UsageError(
                    "a share is out of range", where=option, found=share, wanted="0 to below 1"
                )
        if "," in self.method and not self.curve:
            raise UsageError(
                "several methods make no model",
                where="--method",
                found=self.method,
                wanted="one",
                do="compare them with --curve",
            )
        if self.length is not None and self.length < 4:
            raise UsageError(
                "no room for a text", where="--length", found=self.length, wanted="4 or more"
            )
        if self.rate is not None and not 0.0 < self.rate <= 1e3:
            raise UsageError(
                "no such learning rate",
                where="--rate",
                found=self.rate,
                wanted="above 0, such as 2e-5",
            )
        for option, count in (
            ("--batch", self.batch),
            ("--epochs", self.epochs),
            ("--patience", self.patience),
            ("--threads", self.threads),
        ):
            if count is not None and count < 1:
                raise UsageError(
                    "too small a number", where=option, found=count, wanted="1 or more"
                )
        if not 1 <= self.accumulate <= self.batch:
            raise UsageError(
                "a step cannot be cut into so many portions",
                where="--accumulate",
                found=self.accumulate,
                wanted=f"1 to {self.batch}",
            )


def read(path: Path | str) -> Recipe:
    """The recipe in a file.

    Raises:
        UsageError: no such file, or a value out of range.  ConfigError: no recipe.
    """
    return read_toml(Recipe, Path(path))


def changed(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """`recipe` with other `values` by field; other data are not those that it was made from."""
    other = {*values, *(("files",) if "data" in values else ())}
    made_from = {name: told for name, told in recipe.made_from.items() if name not in other}
    return replace(recipe, made_from=made_from, **values)


def render(recipe: Recipe) -> str:
    """The text of its file."""
    return HEADER + to_toml(recipe)
