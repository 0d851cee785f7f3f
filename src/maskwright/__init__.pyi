"""Written by tests/laws/stub.py."""

import threading
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TextIO
from typing import Any as Answer

from maskwright import api as api
from maskwright import errors as errors
from maskwright import plugins as plugins
from maskwright.api import ModelSource, RecipeSettings
from maskwright.ask.analysis.hidden_states import Pooling
from maskwright.ask.analysis.tokens import TokenView as TokenView
from maskwright.ask.doctor.doctor import Diagnosis
from maskwright.ask.estimator import TextClassifier as TextClassifier
from maskwright.ask.evaluate.against import ModelComparison as ModelComparison
from maskwright.ask.evaluate.compare_report import Comparison as Comparison
from maskwright.ask.evaluate.labelled_rows import RowEvaluation as RowEvaluation
from maskwright.ask.evaluate.minimal_pairs import PairEvaluation as PairEvaluation
from maskwright.ask.evaluate.text import TextEvaluation as TextEvaluation
from maskwright.ask.predict.language_model import LanguageModel as LanguageModel
from maskwright.ask.predict.predictor import OnBad
from maskwright.ask.predict.remote import RemoteModel as RemoteModel
from maskwright.ask.results import TrainedModel as TrainedModel
from maskwright.base.errors import Note
from maskwright.base.metrics.intervals import Estimate as Estimate
from maskwright.base.terminal import Say
from maskwright.learn.finetune.experiment import ExperimentSheet
from maskwright.learn.finetune.recipe import TuningSchedule
from maskwright.learn.pretrain.plan import PlannedRun as PlannedRun
from maskwright.learn.recipes.base.recipe import Recipe as Recipe
from maskwright.learn.recipes.base.recipe import Weights
from maskwright.learn.tasks.base.choices import Long, LongText
from maskwright.model.device.choices import Precision
from maskwright.model.inference.fill_mask import Hole as Hole
from maskwright.model.opening.folders import Model
from maskwright.ship.bench import BenchResult
from maskwright.ship.explore.notebook import NotebookPage
from maskwright.ship.export.target import Report as ExportReport
from maskwright.ship.serve.errors import Limits
from maskwright.ship.serve.process import BackgroundServer
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.engine.daft_engine import Runner
from maskwright.text.tables.reading_options import TableReadingOptions as TableReadingOptions
from maskwright.text.tokenizer.tokenizer import Tokenizer

__version__: str

def adapt(
    model: ModelSource,
    text: Any,
    out: Path | str | None = ...,
    *,
    minutes: float = ...,
    settings: RecipeSettings = ...,
    stream: TextIO | None = ...,
    rate: float | None = ...,
    batch: int | None = ...,
    length: int | None = ...,
    budget: str | None = ...,
    seed: int | None = ...,
    precision: str | None = ...,
    device: str | None = ...,
    batch_size: int | None = ...,
    max_length: int | None = ...,
    lr: float | None = ...,
    learning_rate: float | None = ...,
    set: RecipeSettings = ...,
) -> TrainedModel:
    """Continue the pretraining of a model on other text, and report the change of its loss
    on that text and on other text. An interrupted run is resumed like any other."""

def attention(
    model: Path | str,
    out: Path | str,
    *,
    text: Paths = ...,
    sentence: str | None = ...,
    tree: Path | str | None = ...,
    image: Path | str | None = ...,
    stream: TextIO | None = ...,
    device: str | None = ...,
    precision: str | None = ...,
) -> Path:
    """Report what the attention heads of a model attend to."""

def bench(
    folder: Path | str,
    *,
    data: Path | str | None = ...,
    seconds: float = ...,
    engine: str = ...,
    threads: int | None = ...,
    base: Path | str | None = ...,
    out: Path | str | None = ...,
    say: Say = ...,
) -> BenchResult:
    """Measure how fast the model in `folder` answers."""

def compare(
    recipes: Sequence[Recipe | PathLike[str] | str],
    out: Path | str | None = ...,
    *,
    budget: str,
    seeds: int = ...,
    data: Path | str | None = ...,
    text: Any = ...,
    settings: RecipeSettings = ...,
    stream: TextIO | None = ...,
    set: RecipeSettings = ...,
) -> Comparison:
    """Train each recipe with the seeds 0 … `seeds` - 1 and compare the resulting models."""

def connect(url: str, token: str | None = ..., *, model: str | None = ...) -> RemoteModel:
    """Connect to a model on a `maskwright serve` server."""

def curate(
    texts: Any,
    out: Path | str,
    *,
    recipe: Path | str | None = ...,
    steps: Sequence[str] | None = ...,
    without: Sequence[str] = ...,
    settings: Sequence[str] = ...,
    engine: Runner = ...,
    address: str | None = ...,
    workers: int | None = ...,
    tokenizer: Path | str | None = ...,
    update: bool = ...,
    skip_unreadable: bool = ...,
    read: Sequence[str] = ...,
    note: Note = ...,
    max_steps: Sequence[str] | None = ...,
    set: Sequence[str] = ...,
) -> dict[str, Any]:
    """Make a curated corpus of files of raw text, as `maskwright curate` does, but without
    a first look: documents of all languages are kept unless `language.keep` is set."""

def doctor(
    data: Any,
    model: Path | str | None = ...,
    *,
    task: str | None = ...,
    columns: Mapping[str, str | Sequence[str]] | None = ...,
    read: TableReadingOptions = ...,
    out: Path | str | None = ...,
    stream: TextIO | None = ...,
    device: str | None = ...,
    precision: str | None = ...,
    column: Mapping[str, str | Sequence[str]] | None = ...,
) -> Diagnosis:
    """Examine labelled rows and print a report that begins with a verdict."""

def evaluate(
    model: ModelSource,
    data: Any = ...,
    *,
    text: Any = ...,
    out: Path | str | None = ...,
    how: str | None = ...,
    part: str | None = ...,
    columns: Mapping[str, str | Sequence[str]] | None = ...,
    read: TableReadingOptions | Sequence[str] = ...,
    base: Path | str | None = ...,
    dimensions: Sequence[int] = ...,
    by: str | None = ...,
    generalisation: bool = ...,
    against: ModelSource | None = ...,
    other_data: Sequence[Path | str] = ...,
    stream: TextIO | None = ...,
    device: str | None = ...,
    precision: str | None = ...,
    column: Mapping[str, str | Sequence[str]] | None = ...,
) -> TextEvaluation | PairEvaluation | ModelComparison | RowEvaluation | dict[str, Estimate]:
    """Evaluate a model: without `data` on text, with it on retrieval if it is a folder in
    BEIR's format, on labelled rows if the model answers a task, else on minimal
    pairs (`evaluate_text`, `evaluate_retrieval`, `evaluate_file`,
    `evaluate_pairs`)."""

def experiment(
    models: Sequence[Path | str],
    data: Any,
    out: Path | str,
    *,
    methods: Sequence[str] = ...,
    seeds: int = ...,
    settings: Mapping[str, Any] | None = ...,
    stream: TextIO | None = ...,
    set: Mapping[str, Any] | None = ...,
) -> ExperimentSheet:
    """Fine-tune every model by every method, and compare the results on the same rows of
    `data`."""

def explore(
    models: Path | str | Sequence[Path | str],
    *,
    port: int | None = ...,
    text: str | None = ...,
    browser: bool = ...,
    say: Callable[[str], None] = ...,
    until: threading.Event | None = ...,
) -> None:
    """Serve the pages for models and runs until interrupted."""

def export(
    model: ModelSource,
    out: Path | str,
    *,
    to: str = ...,
    base: Path | str | None = ...,
    stream: TextIO | None = ...,
    half: bool | None = ...,
    window: int | None | None = ...,
    block: int | None | None = ...,
    length: int | None = ...,
    global_attention: Literal["auto", "none", "first", "question", "answer"] | None = ...,
    weights: Weights | None = ...,
    int8: bool | None = ...,
    max_loss: float | None = ...,
    data: str | None | None = ...,
    int32: bool | None = ...,
    opset: int | None = ...,
    pooling: Pooling | None = ...,
    text_length: int | None = ...,
    query_prompt: str | None = ...,
    document_prompt: str | None = ...,
    single_file: bool | None = ...,
    bfloat16: bool | None = ...,
    checkpoints: int | None = ...,
    sample: str | None | None = ...,
    max_length: int | None = ...,
) -> ExportReport:
    """Write a model in a form that other programs load, into the new folder `out`. What
    was written is read again and compared with the model before success is
    reported."""

def fill_mask(
    model: ModelSource,
    text: str,
    *,
    top: int = ...,
    device: str = ...,
    note: Note = ...,
    top_k: int = ...,
) -> list[Hole]:
    """As `LanguageModel.fill_mask` of one text; a folder is opened for it."""

def finetune(
    model: ModelSource,
    data: Any,
    out: Path | str | None = ...,
    *,
    read: TableReadingOptions | Sequence[str] = ...,
    settings: Sequence[str] = ...,
    dry_run: bool = ...,
    log: str | None = ...,
    stream: TextIO | None = ...,
    method: str = ...,
    search: int | None = ...,
    budget: float | None = ...,
    adapters: dict[str, dict[str, Any]] = ...,
    task: str | None = ...,
    columns: Mapping[str, str | Sequence[str]] = ...,
    seeds: int | None = ...,
    folds: int | None = ...,
    seed: int | None = ...,
    epochs: int | None = ...,
    batch: int = ...,
    accumulate: int = ...,
    gradient_checkpointing: bool = ...,
    rate: float | None = ...,
    length: int | None = ...,
    long: Long = ...,
    layer_decay: float | None = ...,
    head_rate: float | None = ...,
    weight_decay: float = ...,
    warmup: float = ...,
    schedule: TuningSchedule | None = ...,
    patience: int | None = ...,
    least_steps: int | None = ...,
    threads: int | None = ...,
    precision: Precision = ...,
    device: str = ...,
    prompt: str | None = ...,
    pooling: str | None = ...,
    layer_mix: bool | None = ...,
    global_attention: str | None = ...,
    dimensions: tuple[int, ...] | None = ...,
    hard_negatives: int | None = ...,
    measure: str | None = ...,
    class_weights: str | None = ...,
    label_smoothing: float = ...,
    teacher: str | None = ...,
    teacher_temperature: float = ...,
    within_words: bool | None = ...,
    curve: tuple[int, ...] = ...,
    batch_size: int = ...,
    num_epochs: int | None = ...,
    max_length: int | None = ...,
    metric: str | None = ...,
    lr: float | None = ...,
    learning_rate: float | None = ...,
    column: Mapping[str, str | Sequence[str]] = ...,
    set: Sequence[str] = ...,
) -> TrainedModel:
    """Fine-tune a model on labelled rows and write the result to the new folder `out`.
    Prints how the data was read before training."""

def generate(
    model: ModelSource,
    prompt: str,
    *,
    precision: Precision = ...,
    device: str = ...,
    tokens: int = ...,
    temperature: float | None = ...,
    top_k: int = ...,
    top_p: float = ...,
    typical_p: float = ...,
    repetition_penalty: float = ...,
    frequency_penalty: float = ...,
    presence_penalty: float = ...,
    seed: int = ...,
    stop: Sequence[str] = ...,
    num_beams: int = ...,
    max_tokens: int = ...,
    max_new_tokens: int = ...,
) -> str:
    """As `LanguageModel.generate` of one prompt; a folder is opened for it."""

def import_vectors(file: Path | str, out: Path | str, note: Note = ...) -> Path:
    """Write the word vectors of a `file` in word2vec's text format as a model into the new
    folder `out`; returns it. Texts are split at blanks and punctuation, and lowered
    if all words are."""

def load(
    folder: PathLike[str] | str,
    *,
    base: Path | str | None = ...,
    precision: Precision = ...,
    device: str = ...,
    engine: str = ...,
) -> LanguageModel:
    """Open the model in `folder`: a run, a checkpoint, a result of `finetune`, a Hugging
    Face or sentence-transformers folder, or an adapter."""

def neighbours(
    model: Model | Path | str,
    words: Sequence[str],
    *,
    minus: Sequence[str] = ...,
    top: int = ...,
    top_k: int = ...,
) -> list[tuple[str, float]]:
    """Return the `top` words nearest to the sum of the unit vectors of `words` without
    those of `minus`, each with its cosine, the nearest first; the words themselves
    are left out."""

def plan(
    recipe: Recipe | PathLike[str] | str = ...,
    *,
    text: Any = ...,
    time: str | None = ...,
    memory: float = ...,
    disk: float = ...,
    write_recipe: Path | str | None = ...,
    settings: RecipeSettings = ...,
    stream: TextIO | None = ...,
    rate: float | None = ...,
    batch: int | None = ...,
    length: int | None = ...,
    budget: str | None = ...,
    steps: int | None = ...,
    minutes: float | None = ...,
    seed: int | None = ...,
    precision: str | None = ...,
    device: str | None = ...,
    batch_size: int | None = ...,
    max_length: int | None = ...,
    lr: float | None = ...,
    learning_rate: float | None = ...,
    max_steps: int | None = ...,
    set: RecipeSettings = ...,
) -> list[PlannedRun]:
    """Plan a pretraining: the model and the number of tokens for a text and a time, from
    some seconds of measurement on this machine (docs/plan.md)."""

def predict(
    model: ModelSource,
    examples: Any,
    *,
    base: Path | str | None = ...,
    precision: Precision = ...,
    device: str = ...,
    engine: str = ...,
    top: int | None = ...,
    on_bad: OnBad = ...,
    adapters: Sequence[str] | None = ...,
    labels: Sequence[str] | None = ...,
    hypothesis: str | None = ...,
    several: bool = ...,
    task: str | None = ...,
    long: LongText = ...,
    threshold: float | None = ...,
    top_k: int | None = ...,
) -> list[Answer]:
    """As `LanguageModel.predict`; a folder is opened for it, with `base`, `precision`,
    `device` and `engine` as in `load`. Of the rows of a file: `predict_file` and
    `write_predictions`."""

def pretrain(
    recipe: Recipe | PathLike[str] | str,
    out: Path | str | None = ...,
    *,
    text: Any = ...,
    settings: RecipeSettings = ...,
    origin: Path | None = ...,
    log: str | None = ...,
    stream: TextIO | None = ...,
    rate: float | None = ...,
    batch: int | None = ...,
    length: int | None = ...,
    budget: str | None = ...,
    steps: int | None = ...,
    minutes: float | None = ...,
    seed: int | None = ...,
    precision: str | None = ...,
    device: str | None = ...,
    batch_size: int | None = ...,
    max_length: int | None = ...,
    lr: float | None = ...,
    learning_rate: float | None = ...,
    max_steps: int | None = ...,
    set: RecipeSettings = ...,
) -> TrainedModel:
    """Pretrain a model in the new folder `out`."""

def probe(
    model: Path | str,
    out: Path | str,
    *,
    data: Path | str | None = ...,
    word: str | None = ...,
    task: str | None = ...,
    columns: Mapping[str, Sequence[str]] | None = ...,
    items: int | None = ...,
    read: TableReadingOptions = ...,
    stream: TextIO | None = ...,
    device: str | None = ...,
    precision: str | None = ...,
    column: Mapping[str, Sequence[str]] | None = ...,
) -> Path:
    """Probe each layer of `model` for the labels in `data`, or for the meanings of a
    `word`."""

def quickstart(out: Path | str | None = ..., *, minutes: float = ...) -> dict[str, Any]:
    """As `maskwright.ask.quickstart.quickstart`, which imports scikit-learn."""

def resume(
    run: PathLike[str] | str,
    *,
    settings: Recipe | RecipeSettings = ...,
    stream: TextIO | None = ...,
    set: Recipe | RecipeSettings = ...,
) -> TrainedModel:
    """Continue the run in a folder from its last checkpoint."""

def serve(
    models: Sequence[Path | str] | Path | str = ...,
    *,
    names: Mapping[str, Path | str] | None = ...,
    adapters: Mapping[str, Path | str] | None = ...,
    host: str = ...,
    port: int = ...,
    unix_socket: Path | str | None = ...,
    token: str | None = ...,
    keys: Path | str | None = ...,
    insecure: bool = ...,
    allowed_hosts: Sequence[str] = ...,
    allowed_origins: Sequence[str] = ...,
    limits: Limits | None = ...,
    precision: Precision = ...,
    engine: str = ...,
    background: bool = ...,
    log: TextIO | None = ...,
    say: Callable[[str], None] | None = ...,
) -> BackgroundServer | None:
    """Serve models over HTTP until a signal comes, or on a thread."""

def show(
    model: ModelSource | Sequence[ModelSource],
    page: str = ...,
    *,
    text: str | None = ...,
    height: int = ...,
) -> NotebookPage:
    """Show a page of the explorers (docs/explorers.md) in a notebook."""

def tokenizer(
    texts: Any,
    out: Path | str,
    *,
    kind: str = ...,
    vocabulary: int = ...,
    lowercase: bool = ...,
    min_frequency: int | None = ...,
    reading: ReadingOptions = ...,
) -> Tokenizer:
    """Train a tokenizer on the training part of the text, save it to the new folder `out`,
    and print a report on the held-out part."""

def tokens(model: PathLike[str] | str, text: str, pair: str | None = ...) -> TokenView:
    """Tokenize a text, or a pair of texts, as the model or tokenizer in a folder reads it."""
