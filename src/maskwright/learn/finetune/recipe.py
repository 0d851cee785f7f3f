"""All that a fine-tuning is made from, as one frozen value: `finetune.toml` in the folder of a
result is one, and `maskwright finetune FOLDER/finetune.toml` makes that result again. No torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from maskwright.base import catalogue, config
from maskwright.base.config import hints_of, read_toml, to_plain, to_toml
from maskwright.base.errors import ConfigError, DataError, UsageError, near
from maskwright.base.storage.manifest import hash_file
from maskwright.base.storage.strict_json import parse_object
from maskwright.learn.finetune.method import (
    AUTO,
    FULL,
    Method,
    adapter_settings,
    methods_of,
    out_of_range,
)
from maskwright.learn.tasks.base.choices import (
    GLOBAL_RULES,
    LABEL_PROMPT,
    LONG,
    POOLINGS,
    Long,
    require_choice,
)
from maskwright.model.device.choices import Precision, require_device
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.shapes import as_names, require_selectable, shape_of

if TYPE_CHECKING:
    from maskwright.text.tables.layout import Dataset

NAME = "finetune.toml"
HEADER = (
    "# Made again by: maskwright finetune THIS_FILE --out DIR (paths are as they were typed)\n\n"
)
SEEDS, EPOCHS = 3, 3
TuningSchedule = Literal["linear", "slanted"]
SLANTED_FLOOR = 1 / 32  # the lowest rate of `slanted`, as a share of the highest (ULMFiT)
# Settings of step-by-step training.
TRAINING = (
    *("epochs", "batch", "accumulate", "gradient_checkpointing", "rate", "layer_decay"),
    *("head_rate", "weight_decay", "warmup", "schedule", "patience", "least_steps"),
    *("class_weights", "label_smoothing", "teacher", "search", "layer_mix"),
)
# Settings of how a network reads and computes.
READING = ("length", "pooling", "global_attention", "precision", "device")
BALANCED = "balanced"  # weights of classes that make up for their frequencies
LARGEST_WEIGHTS = 16 << 20  # bytes of a file of weights
WEIGHTS_ADVICE = 'write a weight for each label, such as {"rare": 5, "frequent": 1}'


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    """What is trained on what, and how. The command line has an option for each of these, and its
    help says the line below.

    Attributes:
        model: the folder of a model or a run.
        data: a labelled file, or a folder of parts.
        method: auto (the best of the methods that suit the task, selected by held-out rows; with
            --curve full), or which weights are trained: full, probe (only a linear head), head (the
            model's own head with its pooler), last-N (the last N layers), reinit-N (all, the last N
            layers from new weights), gradual (unfreezing), an adapter such as lora, or a fitted
            method such as embeddings; with --curve several, separated by commas.
        search: how many other settings of learning rate, epochs and batch size are tried, too;
            what is best on held-out rows is used, as auto selects a method (default: none).
        budget: seconds that the selection of auto or a search may take (default 300; unlimited for
            a search, and where 1,000 rows or a validation and a test part make it one training of
            each method).
        adapters: settings of adapters by name, as {"lora": {"rank": 16}}.
        task: task type (maskwright list tasks; default: inferred from the data).
        columns: role -> names of columns, where they must not be inferred.
        seeds: number of seeds to try (default 3, or 1 with --seed); the best on the validation part
            is saved.
        folds: number of folds of a cross-validation, of which each seed is a repetition (default: 5
            where one file of fewer than 1,000 rows is given, or 3 if auto then has time for more
            methods, repeated as --seeds says; 0: a tenth of the rows is drawn for validation and
            one for the test part).
        seed: the first seed (default 0); without --seeds the only one.
        epochs: number of passes over the rows (default 3, each of several passes where these would
            be fewer than --least-steps).
        batch: examples per step.
        accumulate: compute each step in this many portions: less memory, the same result.
        gradient_checkpointing: compute activations of layers again in the backward pass: less
            memory for a third more time, the same result.
        rate: learning rate (default: by the method and the model's width).
        length: maximum number of tokens per text (default: the model's maximum, at most 512).
        long: how longer texts are read: cut to their head, tail or head-and-tail; or whole, in
            pieces: pieces-mean or pieces-max combines the scores of the pieces, vectors-mean or
            vectors-max their vectors, hierarchical adds layers over the vectors. Of two texts the
            longer one loses its end; apart reads each by itself, and the method embeddings scores
            how their vectors differ (its default for a sentence-transformers folder).
        layer_decay: factor on the learning rate from each layer to the one below it (default: what
            the model's family was published with, else 1).
        head_rate: factor on the learning rate of the last layer of a new head (default 10 where
            layers are trained and no --rate is given, else 1).
        weight_decay: weight decay of the matrices; biases and norms have none.
        warmup: share of the run in which the learning rate rises; after it, it falls.
        schedule: linear (from 0 and to 0) or slanted (from and to 1/32, as ULMFiT has it; default:
            what the model's family was published with, else linear).
        patience: stop a seed after this many epochs without improvement (default: never).
        least_steps: minimum number of steps of a seed; fewer are made up for by several passes in
            an epoch (default 100, of contrastive 25; or 0 with --epochs).
        threads: number of processor threads (default: one for each core).
        precision: float32, bfloat16, float16 (on a GPU), or auto: bfloat16 where the machine has
            matrix units for it.
        device: cpu, cuda, one of several as cuda:1, or auto: a GPU if there is one.
        prompt: input template of a model that writes its answer: "summarize: {source}"; with "sst2
            sentence: {text}" or "{first} and {second}" it writes the label instead of using a head;
            with the method prompted it compares the labels behind "{text} It was".
        pooling: how token vectors become one vector per text: cls, mean or max (default: the one a
            sentence-transformers folder was made with; else mean for embedding tasks and the method
            embeddings, and cls).
        layer_mix: the head reads a mix of all layers whose weights are learned, in place of the
            last layer.
        global_attention: tokens of a model with windows that see all and are seen by all: none,
            first, question or answer (default: what the head needs, else those of the model).
        dimensions: numbers of leading dimensions of an embedding that become vectors by themselves,
            beside all (Matryoshka), such as 256,128,64.
        hard_negatives: how many similar but wrong texts are mined for each pair of matching texts,
            before training and with the model as it is.
        measure: validation metric that selects epoch and seed, such as macro_f1 or matthews
            (default: the usual one of the task).
        class_weights: factor on the loss of each class: balanced (rare ones weigh more), or a JSON
            file of label and weight, 1 where a label is not named (default: 1 for all).
        label_smoothing: share of each label that is distributed over all classes, such as 0.1.
        teacher: the result of another fine-tuning for this task, whose answers to the training rows
            are learned in place of their labels (distillation).
        teacher_temperature: by which scores are divided for it: above 1, more is learned of labels
            that the teacher finds unlikely.
        within_words: answers to questions may begin and end within words (default: where those to
            learn from often do).
        curve: numbers of labels, 0 for all: no model is saved; each method is measured with so
            many.
        read: the encoding and separator of the files, what becomes of bad rows, and so on.
        made_from: SHA-256 of the "model", the "data" (rows) and the "files" of a result.
    """

    model: str
    data: str
    method: str = AUTO
    search: int | None = None
    budget: float | None = None
    adapters: dict[str, dict[str, Any]] = field(default_factory=dict)
    task: str | None = None
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seeds: int | None = None
    folds: int | None = None
    seed: int | None = None
    epochs: int | None = None
    batch: int = 32
    accumulate: int = 1
    gradient_checkpointing: bool = False
    rate: float | None = None
    length: int | None = None
    long: Long = "head"
    layer_decay: float | None = None
    head_rate: float | None = None
    weight_decay: float = 0.01
    warmup: float = 0.1
    schedule: TuningSchedule | None = None
    patience: int | None = None
    least_steps: int | None = None
    threads: int | None = None
    precision: Precision = "auto"
    device: str = "auto"
    prompt: str | None = None
    pooling: str | None = None
    layer_mix: bool | None = None
    global_attention: str | None = None
    dimensions: tuple[int, ...] | None = None
    hard_negatives: int | None = None
    measure: str | None = None
    class_weights: str | None = None
    label_smoothing: float = 0.0
    teacher: str | None = None
    teacher_temperature: float = 2.0
    within_words: bool | None = None
    curve: tuple[int, ...] = ()
    read: TableReadingOptions = DEFAULT_OPTIONS
    made_from: dict[str, str] = field(default_factory=dict)

    def passes(self, method: Method) -> tuple[int, int]:
        """The number of epochs of a method, and the steps that they are at the least."""
        usual = method.least_steps if self.epochs is None else 0
        return self.epochs or EPOCHS, usual if self.least_steps is None else self.least_steps

    @property
    def seed_numbers(self) -> range:
        """The seeds that are tried: one where they make no difference, unless each also draws the
        labels of a curve."""
        varies = self.seed is None and (self.curve or all(m.seeded for m in self.methods))
        count = self.seeds or (SEEDS if varies else 1)
        first_seed = self.seed or 0
        return range(first_seed, first_seed + count)

    @property
    def methods(self) -> list[Method]:
        """The methods with their settings; of `auto` the most general. A rate that is asked for is
        that of all weights, a new head's too, unless `head_rate` says otherwise."""
        names = FULL if self.method == AUTO else self.method
        head = 1.0 if self.head_rate is None and self.rate is not None else self.head_rate
        decay = 1.0 if self.layer_decay is None else self.layer_decay
        return methods_of(names, decay, head, self.adapters)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", as_names(self.columns))
        if "," in self.method and not self.curve:
            raise UsageError(
                "several methods make no model",
                where="--method",
                found=self.method,
                wanted="one",
                do="compare them with --curve",
            )
        adapters = dict[str, dict[str, Any]]()
        for name, values in self.adapters.items():  # each setting of its own type
            typed = to_plain(adapter_settings(name, values))
            adapters[name] = {key: typed[key] for key in values}
        object.__setattr__(self, "adapters", adapters)
        _ = self.methods  # refuses what is no method, or no setting of one
        self._require_effect()
        self._require_choices()
        self._require_numbers()

    def _require_effect(self) -> None:
        """Refuse settings of training that have no effect on a method that is fitted."""
        for method in () if self.curve else self.methods:
            for name in without_effect(method):
                value = getattr(self, name)
                if value != FinetuneRecipe.__dataclass_fields__[name].default:
                    raise _without_effect(name, value, method)
        for name in ("search", "budget"):
            is_selection = name == "search" or self.search is not None or self.method == AUTO
            value = getattr(self, name)
            if value is not None and (self.curve or not is_selection):
                raise UsageError(
                    "nothing is selected",
                    where=f"--{name}",
                    found=f"{value:g}, and {'--curve' if self.curve else self.method}",
                    wanted="--method auto or --search, to make a model",
                    do="leave it out",
                )

    def with_method(self, method: Method, is_repeated: bool) -> FinetuneRecipe:
        """Return the recipe of the method that was selected, without settings that do not apply to
        it, and without a number of seeds that give the same result unless each is a repetition."""
        unused = without_effect(method)
        unused += [] if method.seeded or is_repeated else ["seeds"]
        values: dict[str, Any] = {name: self.__dataclass_fields__[name].default for name in unused}
        values |= {"method": method.name, "search": None, "budget": None}
        return replace(self, **values)

    def with_published(self, settings: Mapping[str, Any]) -> FinetuneRecipe:
        """Return the recipe with the `settings` that a family was published with, where it names no
        others and trains weights."""
        if any(method.fitted is not None for method in self.methods):
            return self
        names = ("layer_decay", "schedule")
        unnamed = {n: settings[n] for n in names if n in settings and getattr(self, n) is None}
        return replace(self, **unnamed)

    def require_seeds(self) -> None:
        """Check that several seeds have an effect, for data that is not cross-validated: else each
        is a repetition with other folds.

        Raises:
            UsageError: the method is fitted and gives the same result for each seed.
        """
        for method in self.methods:
            if self.curve and not method.opens_network:
                raise UsageError(
                    "every label curve has this method as a baseline",
                    where="--curve",
                    found=method.name,
                    wanted="methods that train or read the model",
                    do="leave the method out",
                )
            if not self.curve and not method.seeded and (self.seeds or 1) > 1:
                raise _without_effect("seeds", self.seeds, method)

    def _require_choices(self) -> None:
        """Refuse what is none of the choices."""
        require_choice(self.long, LONG, "--long")
        options = {method.prompt_option for method in self.methods}
        if LABEL_PROMPT in options and (self.prompt is None or len(options) > 1):
            raise UsageError(
                "the method needs a prompt, and no other method beside it",
                where="--prompt",
                found=f"{self.prompt or 'none'}, and the method {self.method}",
                wanted="one method, and a template of a row",
                do='such as --prompt "{text} This text is about"',
            )
        if self.pooling is not None:
            require_choice(self.pooling, POOLINGS, "--pooling")
        if self.schedule is not None:
            require_choice(self.schedule, get_args(TuningSchedule), "--schedule")
        if self.global_attention is not None:
            require_choice(self.global_attention, GLOBAL_RULES, "--global-attention")
        if self.task is not None:
            shape_of(self.task)
        if self.measure is not None:
            require_selectable(self.measure, self.task)
        require_choice(self.precision, get_args(Precision), "--precision")
        require_device(self.device, "--device")

    def _require_numbers(self) -> None:
        """Refuse numbers that are out of range."""
        for option, number, low, high in (
            ("--seeds", self.seeds, 1, math.inf),
            ("--seed", self.seed, 0, (1 << 31) - 1),
            ("--folds", self.folds or None, 2, 100),
            ("--search", self.search, 1, 1000),
            ("--budget", self.budget, 1, math.inf),
            ("--length", self.length, 4, math.inf),
            ("--batch", self.batch, 1, math.inf),
            ("--epochs", self.epochs, 1, math.inf),
            ("--patience", self.patience, 1, math.inf),
            ("--threads", self.threads, 1, math.inf),
            ("--least-steps", self.least_steps, 0, math.inf),
            ("--dimensions", min(self.dimensions or (), default=None), 1, math.inf),
            ("--hard-negatives", self.hard_negatives, 1, 100),
            ("--curve", min(self.curve, default=None), 0, math.inf),
            ("--accumulate", self.accumulate, 1, self.batch),
        ):
            if number is not None and not low <= number <= high:
                limits = f"{low} or more" if high == math.inf else f"{low} to {high}"
                raise out_of_range(option, number, limits)
        for option, share in (
            ("--weight-decay", self.weight_decay),
            ("--warmup", self.warmup),
            ("--label-smoothing", self.label_smoothing),
        ):
            if not 0.0 <= share < 1.0:
                raise out_of_range(option, share, "0 to below 1")
        for option, rate in (
            ("--rate", self.rate),
            ("--teacher-temperature", self.teacher_temperature),
        ):
            if rate is not None and not 0.0 < rate <= 1e3:
                raise out_of_range(option, rate, "above 0, such as 2e-5")


def without_effect(method: Method) -> list[str]:
    """Return the settings that have no effect on a fitted method, by name."""
    fitted = method.fitted
    names = [] if fitted is None else [*TRAINING]
    names += [] if method.opens_network else [*READING]
    return [name for name in names if fitted is None or name not in fitted.settings]


def _without_effect(name: str, value: Any, method: Method) -> UsageError:
    settings = () if method.fitted is None else method.fitted.settings
    return UsageError(
        "the setting has no effect on a model that is fitted, not trained",
        where=f"--{name.replace('_', '-')}",
        found=f"{value}, and the method {method.name}",
        wanted=", ".join(settings) or "no setting of training",
        do="leave it out, or choose another --method",
    )


def read_class_weights(path: Path | str) -> dict[str, float]:
    """Return the weights of a JSON file by label.

    Raises:
        UsageError: no such file.  DataError: no table of labels and weights.
    """
    if not Path(path).is_file():
        raise UsageError(
            "no such file of weights",
            where="--class-weights",
            found=path,
            wanted=f"{BALANCED}, or a JSON file",
            do=WEIGHTS_ADVICE,
        )
    error = partial(DataError, do=WEIGHTS_ADVICE)
    weights = parse_object(Path(path).read_bytes(), path, error=error, largest=LARGEST_WEIGHTS)
    invalid = {
        label: weight
        for label, weight in weights.items()
        if isinstance(weight, bool)
        or not (isinstance(weight, int | float) and 0 <= weight < math.inf)
    }
    if invalid or not any(weights.values()):
        raise error(
            "the weights of classes are not valid",
            where=f"{path}: {', '.join(invalid)}" if invalid else path,
            found=invalid or weights,
            wanted="numbers, 0 or more, and one above 0",
        )
    return {label: float(weight) for label, weight in weights.items()}


def read(path: Path | str) -> FinetuneRecipe:
    """The recipe in a file.

    Raises:
        UsageError: no such file, or a value out of range.  ConfigError: no recipe.
    """
    return read_toml(FinetuneRecipe, Path(path))


def read_examples(recipe: FinetuneRecipe, rejects: Path | None = None) -> Dataset:
    """Read the rows of a recipe in the parts of its files; bad rows are listed in `rejects`."""
    from maskwright.text.tables.prepare import prepare

    return prepare(
        Path(recipe.data),
        columns=recipe.columns,
        task=recipe.task,
        read=recipe.read,
        division=None,
        rejects=rejects,
    )


def changed(recipe: FinetuneRecipe, values: Mapping[str, Any]) -> FinetuneRecipe:
    """`recipe` with other `values` by field or dotted path; all are in place before they are
    checked. Other data are not those that it was made from; settings of adapters that are no longer
    trained go; one seed is the only one."""
    values = {name: to_plain(value) for name, value in values.items()}
    names = {*values, *(("files",) if "data" in values else ())}
    made_from = {name: digest for name, digest in recipe.made_from.items() if name not in names}
    adapters = recipe.adapters
    if "method" in values:
        trained = [name.strip() for name in str(values["method"]).split(",")]
        adapters = {name: values for name, values in adapters.items() if name in trained}
    if "seed" in values:
        values.setdefault("seeds", None)
    if "epochs" in values:
        values.setdefault("least_steps", 0)
    return config.replace_at(replace(recipe, made_from=made_from, adapters=adapters), values)


def override(recipe: FinetuneRecipe, settings: Sequence[str]) -> FinetuneRecipe:
    """`recipe` with each `name=value` applied, as `changed` does it.

    A name is that of a field, or ADAPTER.SETTING: `weight_decay=0.1`, `lora.rank=16`,
    `read.reading.encoding=latin-1`.

    Raises:
        UsageError: not name=value, or two values for one name.
        ConfigError: no such setting (with the near names), or a value that is none of it.
    """
    texts = config.assignments(settings, "for example --set lora.rank=16")
    return changed(recipe, {_path(name): config.parse_value(text) for name, text in texts.items()})


def _path(name: str) -> str:
    """The dotted path of a setting in a recipe."""
    first_word, dot, _ = name.partition(".")
    adapters, last_word = catalogue.names("adapters"), name.rpartition(".")[2]
    if dot and first_word in adapters:
        return f"adapters.{name}"
    field_names = [field.name for field in fields(FinetuneRecipe)]
    if first_word in (("adapters", "columns", "read") if dot else field_names):
        return name
    adapter_paths = [
        f"{adapter}.{last_word}"
        for adapter in adapters
        if last_word in hints_of(catalogue.load("adapters", adapter).SETTINGS)
    ]
    suggestion = f"did you mean {' or '.join(map(repr, adapter_paths))}?" if adapter_paths else ""
    raise ConfigError(
        "no such setting", where=f"--set {name}", wanted=suggestion or near(name, field_names)
    )


def render(recipe: FinetuneRecipe) -> str:
    """The text of its file: what an adapter or a number of seeds is by default, too, so that it
    stays what it was."""
    adapters = {
        method.name: {k: v for k, v in to_plain(method.adapter).items() if k != "kind"}
        for method in recipe.methods
        if method.adapter is not None
    }
    trained = {name: values for name, values in adapters.items() if values}
    return HEADER + to_toml(replace(recipe, adapters=trained, seeds=len(recipe.seed_numbers)))


# ------------------------------------------------------------------------------ hashes
def hashes(path: Path, known_hashes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the SHA-256 of the file, or of each file in the folder, by name. Temporary files
    (`.tmp-…`) are excluded.

    Args:
        known_hashes: already computed hashes of files of the folder, by name.
    """
    files = {path.name: path}
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file() and p.name[:5] != ".tmp-")
        files = {str(file.relative_to(path)): file for file in inside}
    saved_hashes = known_hashes or {}
    return {name: saved_hashes.get(name) or hash_file(file) for name, file in files.items()}


def require_as_read(data: Dataset) -> None:
    """Check that no file of `data` has changed since it was read, so that its recorded hash is that
    of the rows.

    Raises:
        DataError: with the name of the file.
    """
    for counts in data.counts.values():
        for name, digest in counts.hashes.items():
            path = Path(name)
            if path.is_file() and hash_file(path) != digest:
                do = "give the same command again"
                raise DataError("the file has changed since it was read", where=name, do=do)


def hash_rows(data: Dataset) -> str:
    """Return the SHA-256 of all rows with their labels, in hex."""
    names = () if data.labels is None else data.labels.names
    digest = hashlib.sha256(json.dumps(names).encode())
    for part_name, rows in sorted(data.parts.items()):
        for row in rows:
            digest.update(json.dumps([part_name, *values_of(row)]).encode())
    return digest.hexdigest()


def values_of(row: Any) -> list[Any]:
    """Return the type and the values of a row, without its location in a file."""
    values = [getattr(row, field.name) for field in fields(row) if field.name != "where"]
    return [type(row).__name__, *values]
