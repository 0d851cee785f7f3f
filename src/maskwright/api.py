"""What the command line does, as functions (docs/python.md shows each of them).

    from maskwright import api

    recipe = api.with_text(api.find("bert-mini"), ["my-documents/"])
    api.pretrain(recipe, Path("runs/mine"))

This brings torch with it. The verbs are attributes of `maskwright`, too, which waits until one is
called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TextIO, Unpack

from maskwright.ask.analysis.attention import attention as draw_attention
from maskwright.ask.analysis.neighbours import neighbours
from maskwright.ask.analysis.probe import probe as probe_states
from maskwright.ask.analysis.tokens import TokenView, see, show_tokens, tokenizer_of
from maskwright.ask.doctor.doctor import doctor as examine_rows
from maskwright.ask.evaluate.against import ModelComparison, evaluate_against
from maskwright.ask.evaluate.compare import compare as compare_recipes
from maskwright.ask.evaluate.compare_report import Comparison
from maskwright.ask.evaluate.kind import PAIRS, RETRIEVAL, kind_of
from maskwright.ask.evaluate.labelled_rows import RowEvaluation, evaluate_file
from maskwright.ask.evaluate.minimal_pairs import PairEvaluation, evaluate_pairs
from maskwright.ask.evaluate.retrieval import evaluate_retrieval
from maskwright.ask.evaluate.text import TextEvaluation, evaluate_text
from maskwright.ask.predict.explanation import Explanation
from maskwright.ask.predict.file import predict_file, write_predictions, write_whole
from maskwright.ask.predict.language_model import LanguageModel, load
from maskwright.ask.predict.predictor import Answer
from maskwright.ask.predict.remote import RemoteModel, connect
from maskwright.ask.results import TrainedModel, of_finetuning, of_pretraining
from maskwright.base.calls import RECIPE_SETTINGS, Function, keywords_of, takes
from maskwright.base.errors import Note, UsageError, ignore
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.storage.files import next_run_folder
from maskwright.base.terminal import printer
from maskwright.learn import quickstart_task
from maskwright.learn.finetune.command import FINETUNE_KEYWORDS, finetune_recipe
from maskwright.learn.finetune.experiment import experiment as compare_methods
from maskwright.learn.finetune.recipe import FinetuneRecipe
from maskwright.learn.finetune.recipe import override as override_finetuning
from maskwright.learn.finetune.recipe import read as read_finetuning
from maskwright.learn.finetune.result import FinetuneResult
from maskwright.learn.pretrain import continued_pretraining
from maskwright.learn.pretrain import plan as planning
from maskwright.learn.pretrain import run as pretraining
from maskwright.learn.pretrain.plan import PlannedRun
from maskwright.learn.pretrain.prepare import train_and_report
from maskwright.learn.recipes.base.find import (
    find,
    override,
    require_continued_settings,
    require_settings,
    run_of,
    with_text,
)
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.records import logging_to
from maskwright.model.checkpoint.pretrained import load as load_pretrained
from maskwright.model.checkpoint.pretrained import save as save_pretrained
from maskwright.model.device.choices import TORCH, Precision, by_default
from maskwright.model.device.machine import choose
from maskwright.model.inference.fill_mask import Hole
from maskwright.model.inference.generation_settings import (
    GenerationKeywords,
    takes_generation_settings,
)
from maskwright.model.opening.import_vectors import import_vectors
from maskwright.model.opening.open import merge_adapter
from maskwright.ship.bench import bench
from maskwright.ship.explore.notebook import show
from maskwright.ship.explore.server import explore
from maskwright.ship.export.run import export_model
from maskwright.ship.export.target import Report as ExportReport
from maskwright.ship.export.target import target_keywords
from maskwright.ship.serve.command import serve
from maskwright.text.corpus.in_memory import (
    as_files,
    is_temporary,
    names_files,
    one_path,
    row_names,
)
from maskwright.text.curate.curation import curate_files
from maskwright.text.curate.why import why
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions, how_read
from maskwright.text.tokenizer.splits import encode_sampled

__all__ = ["Explanation", "LanguageModel", "RemoteModel", "TrainedModel", "adapt", "attention"]
__all__ += ["bench", "compare", "connect", "curate", "curate_files", "doctor", "encode_sampled"]
__all__ += ["evaluate", "evaluate_against", "evaluate_file", "evaluate_pairs", "evaluate_retrieval"]
__all__ += ["evaluate_text", "experiment", "explore", "export", "export_model", "fill_mask", "find"]
__all__ += ["finetune", "finetune_file", "finetune_recipe", "generate", "generate_text", "how_read"]
__all__ += ["import_vectors", "load", "load_pretrained", "merge_adapter", "neighbours", "override"]
__all__ += ["plan", "predict", "predict_file", "pretrain", "probe", "quickstart", "read_finetuning"]
__all__ += ["resume", "save_pretrained", "see", "serve", "show", "show_tokens", "tokenizer"]
__all__ += ["tokenizer_of", "tokens", "train_and_report", "why", "with_text", "write_predictions"]
__all__ += ["write_whole"]


ModelSource = LanguageModel | PathLike[str] | str
"""A folder, the result of a training, or an opened model."""
RecipeSettings = Sequence[str] | Mapping[str, Any]
"""Changes such as ["training.batch=32"] or {"training.batch": 32}."""


def _taking_memory(**arguments: bool) -> Callable[[Function], Function]:
    """Decorator for a function that reads files, so that these arguments may be in memory; True:
    running text, False: rows. What is read for an output folder `out` is kept beside it."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters = [
            p.replace(annotation="Any") if p.name in arguments else p
            for p in signature.parameters.values()
        ]

        @functools.wraps(function)
        def call(*values: Any, **keywords: Any) -> Any:
            bound = signature.bind(*values, **keywords)
            out = bound.arguments.get("out")
            beside = None if out is None else Path(out)
            with contextlib.ExitStack() as stack:
                for name in arguments.keys() & bound.arguments.keys():
                    files = as_files(
                        bound.arguments[name], name, texts=arguments[name], kept_beside=beside
                    )
                    bound.arguments[name] = stack.enter_context(files)
                return function(*bound.args, **bound.kwargs)

        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _on_device(function: Function) -> Function:
    """Decorator that adds the keywords `device` and `precision` of what a function computes."""

    @takes(
        {name: RECIPE_SETTINGS[name]._replace(default="auto") for name in ("device", "precision")}
    )
    @functools.wraps(function)
    def call(*values: Any, device: str = "auto", precision: Any = "auto", **keywords: Any) -> Any:
        choose(precision, device)  # refuses what is not there
        with by_default(device, precision):
            return function(*values, **keywords)

    return call  # type: ignore[return-value]


@takes(RECIPE_SETTINGS)
def pretrain(
    recipe: Recipe | PathLike[str] | str,
    out: Path | str | None = None,
    *,
    text: Any = (),
    settings: RecipeSettings = (),
    origin: Path | None = None,
    log: str | None = None,
    stream: TextIO | None = None,
    **keywords: Any,
) -> TrainedModel:
    """Pretrain a model in the new folder `out`.

    Args:
        recipe: one that `find` gives, or its name: a built-in recipe, a .toml file, a run's folder.
        out: None: the next free folder under runs/.
        text: files or folders in place of the recipe's; or the texts: a column of a table, a table
            with the column "text" (another: settings=["corpus.column=body"]), mappings or a
            generator. They are kept beside `out` as OUT-text.jsonl, which the recipe names.
        settings: changes such as {"training.batch": 32} (docs/settings.md), as `--set`.
        origin: the folder of the run whose recipe it is, if it is one's.
        log: "tensorboard" writes the figures for that program, too (docs/metrics.md).
        stream: receives the messages; None: standard output.
        keywords: of `RECIPE_SETTINGS`.

    Returns:
        The newest checkpoint, with the metrics on the held-out text.

    Raises:
        UsageError: no such recipe.
        ConfigError: a setting that there is not, or a value that it does not take.
        DataError: text that cannot be read, or too little of it.
        OutputError: `out` holds something else.
    """
    if not isinstance(recipe, Recipe):
        name = os.fspath(recipe)
        recipe, origin = find(name), origin or run_of(name)
    assignments = _assignments(settings, keywords)
    if not names_files(text):
        require_settings(override(recipe, assignments))  # before the text is written
    out = next_run_folder(recipe.name) if out is None else Path(out)
    with logging_to(log), as_files(text, "text", texts=True, kept_beside=out) as paths:
        recipe = override(with_text(recipe, paths) if paths else recipe, assignments)
        newest = pretraining.pretrain(recipe, out, origin=origin, stream=stream)
        continued_pretraining.close(out, stream=stream)
    return of_pretraining(newest, out)


@takes({name: k for name, k in RECIPE_SETTINGS.items() if name != "steps"})
def adapt(
    model: ModelSource,
    text: Any,
    out: Path | str | None = None,
    *,
    minutes: float = continued_pretraining.MINUTES,
    settings: RecipeSettings = (),
    stream: TextIO | None = None,
    **keywords: Any,
) -> TrainedModel:
    """Continue the pretraining of a model on other text, and report the change of its loss on that
    text and on other text. An interrupted run is resumed like any other.

    Args:
        text, out, settings, stream: as in `pretrain`.
        minutes: how long.
        keywords: of `RECIPE_SETTINGS`.

    Raises:
        IncompatibleError: the model has no tokenizer, or lacks mask and sentinel tokens.
        Others: as `pretrain`.
    """
    out, assignments = _folder(out, "adapted"), _assignments(settings, keywords)
    require_continued_settings(Path(model), minutes, assignments)
    with as_files(text, "text", texts=True, kept_beside=out) as paths:
        newest = continued_pretraining.adapt(
            os.fspath(model), paths, out, minutes=minutes, settings=assignments, stream=stream
        )
    return of_pretraining(newest, out)


@takes(RECIPE_SETTINGS)
def plan(
    recipe: Recipe | PathLike[str] | str = "bert-mini",
    *,
    text: Any = (),
    time: str | None = None,
    memory: float = math.inf,
    disk: float = math.inf,
    write_recipe: Path | str | None = None,
    settings: RecipeSettings = (),
    stream: TextIO | None = None,
    **keywords: Any,
) -> list[PlannedRun]:
    """Plan a pretraining: the model and the number of tokens for a text and a time, from some
    seconds of measurement on this machine (docs/plan.md).

    Args:
        recipe: its family and objective are planned; without a `time` what it costs as it is.
        text, settings, keywords: as of `pretrain`; texts in memory are kept beside `write_recipe`.
        time: for the training, as "45min" or "2h".
        memory, disk: at most so many bytes.
        write_recipe: a new .toml file for the planned recipe, which `pretrain` runs.
        stream: receives the table; None: standard output.

    Returns:
        The plan, then alternatives.

    Raises:
        ConfigError: not a time, or the model of the recipe has no size to choose.
        ResourceError: nothing can be trained within the limits; the error says what can.
        DataError: text that cannot be read.
    """
    if not isinstance(recipe, Recipe):
        recipe = find(os.fspath(recipe))
    target = None if write_recipe is None else Path(write_recipe)
    assignments, say = _assignments(settings, keywords), printer(stream)
    with as_files(text, "text", texts=True, kept_beside=target) as paths:
        recipe = override(with_text(recipe, paths) if paths else recipe, assignments)
        limits: dict[str, Any] = {"time": time, "memory": memory, "disk": disk}
        return planning.plan(recipe, **limits, write_recipe=target, say=say)


def quickstart(out: Path | str | None = None, *, minutes: float = 4.0) -> dict[str, Any]:
    """As `maskwright.ask.quickstart.quickstart`, which imports scikit-learn."""
    from maskwright.ask import quickstart as first_run

    return first_run.quickstart(_folder(out, "quickstart"), minutes=minutes)


def resume(
    run: PathLike[str] | str,
    *,
    settings: Recipe | RecipeSettings = (),
    stream: TextIO | None = None,
) -> TrainedModel:
    """Continue the run in a folder from its last checkpoint.

    Args:
        settings: changes of what does not change what is computed, as "evaluation.every=100"; or a
            whole recipe that differs in nothing else.

    Raises:
        UsageError: no such run, or one that is complete.
        ConfigError: a setting that cannot change any more.
    """
    out = Path(run)
    changed: Recipe | None
    if isinstance(settings, Recipe):
        changed = settings
    else:
        changed = override(find(str(out)), _assignments(settings, {})) if settings else None
    newest = pretraining.resume(out, stream=stream, settings=changed)
    # What the command that began the run reports at its end, unless it is there already.
    continued_pretraining.close(out, stream=stream, again=False)
    if (out / quickstart_task.MARKER).is_file():
        from maskwright.ask import quickstart as first_run  # scikit-learn: a second to import

        first_run.close(out, stream=stream)
    return of_pretraining(newest, out)


@takes(FINETUNE_KEYWORDS)
def finetune(
    model: ModelSource,
    data: Any,
    out: Path | str | None = None,
    *,
    read: TableReadingOptions | Sequence[str] = DEFAULT_OPTIONS,
    settings: Sequence[str] = (),
    dry_run: bool = False,
    log: str | None = None,
    stream: TextIO | None = None,
    **keywords: Any,
) -> TrainedModel:
    """Fine-tune a model on labelled rows and write the result to the new folder `out`. Prints how
    the data was read before training.

    Args:
        model: the folder of a model or a run, the result of a training, or an opened model.
        data: a labelled file or a folder of parts; or the rows: a table of pandas, polars, pyarrow
            or datasets, columns by name, mappings, a generator of these; or a table for each of
            "train", "validation" and "test". They are kept beside `out` as OUT-data.jsonl, which
            finetune.toml names.
        out: None: the next free folder under runs/.
        read: the encoding and separator of the files, what becomes of bad rows, and so on: words
            such as "on_bad=skip", or what `how_read` returns.
        settings: any of these, or of the method, as words such as "lora.rank=16".
        dry_run: only print how the data is understood and what the training would cost.
        log: as in `pretrain`.
        stream: receives the messages; None: standard output.
        keywords: the fields of a `FinetuneRecipe`.

    Returns:
        The model, with the metrics, the verdict and the mistakes on rows that were held out.

    Raises:
        UsageError: a setting has an invalid value, or a folder or file does not exist.
        ConfigError: an adapter does not know a setting, or not that value of it.
        DataError: no task can be trained on the rows, or they are no rows.
        OutputError: `out` has other content.
    """
    recipe = FinetuneRecipe(model=os.fspath(model), data="", read=_reading(read), **keywords)
    recipe, out = override_finetuning(recipe, settings), _folder(out, "finetune")
    results: list[FinetuneResult] = []
    with logging_to(log), as_files(data, "data", kept_beside=None if dry_run else out) as path:
        recipe = dataclasses.replace(recipe, data=one_path(path, "data"))
        folder = finetune_recipe(recipe, out, stream=stream, dry=dry_run, on_result=results.append)
    return of_finetuning(folder, out, results[0] if results else None)


finetune_file = finetune


@_on_device
@_taking_memory(data=False, text=True)
def evaluate(
    model: ModelSource,
    data: Any = None,
    *,
    text: Any = (),
    out: Path | str | None = None,
    how: str | None = None,
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions | Sequence[str] = DEFAULT_OPTIONS,
    base: Path | str | None = None,
    dimensions: Sequence[int] = (),
    by: str | None = None,
    generalisation: bool = False,
    against: ModelSource | None = None,
    other_data: Sequence[Path | str] = (),
    stream: TextIO | None = None,
) -> TextEvaluation | PairEvaluation | ModelComparison | RowEvaluation | dict[str, Estimate]:
    """Evaluate a model: without `data` on text, with it on retrieval if it is a folder in BEIR's
    format, on labelled rows if the model answers a task, else on minimal pairs (`evaluate_text`,
    `evaluate_retrieval`, `evaluate_file`, `evaluate_pairs`).

    Args:
        data: a retrieval folder, labelled rows (a file or a table, as in `finetune`), or a folder
            of minimal pairs.
        text: files, folders or texts, as in `pretrain`; none: what the model's run held out.
        out: where the figures of rows or pairs are written; pairs need it.
        against: of rows, another fine-tuned model: both are compared (`evaluate_against`).
        other_data: of rows, more files, such as of another domain.
        stream: takes what is said of rows and pairs; None: standard output.
        Others: as for these functions.

    Raises:
        UsageError: both `data` and `text`, pairs without `out`, or a setting without effect.
        IncompatibleError: the model cannot be asked so.
    """
    if data is not None and text:
        raise UsageError("two things to evaluate on", found="data and text", wanted="one of them")
    model, read = Path(model), _reading(read)
    reading = None if read == DEFAULT_OPTIONS else read.reading
    of_one: dict[str, Any] = {"base": base, "by": by, "other_data": other_data}
    of_one["generalisation"] = generalisation
    settings = {**of_one, "how": how, "part": part, "out": out, "against": against}
    settings |= {"dimensions": dimensions, "column": columns, "read": reading}
    kind = kind_of(model, None if data is None else Path(one_path(data, "data")), settings)
    if data is None:
        return evaluate_text(model, text, reading=reading)
    if kind == RETRIEVAL:
        return evaluate_retrieval(
            model, data, part=part, dimensions=dimensions, out=out, base=base, stream=stream
        )
    if kind != PAIRS:
        common: dict[str, Any] = {"part": part, "columns": columns, "read": read, "out": out}
        if against is not None:
            return evaluate_against(model, Path(against), data, **common, stream=stream)
        evaluation = evaluate_file(model, data, **common, **of_one, stream=stream)
        for mistake in evaluation.mistakes if is_temporary(data) else ():
            mistake["where"] = row_names(mistake["where"], Path(data), "data")
        return evaluation
    if out is None:
        raise UsageError("where the outcomes of pairs are written is missing", where="out")
    split, say = part or "all", printer(stream)
    return evaluate_pairs(model, data, out, how=how, part=split, say=say)


def compare(
    recipes: Sequence[Recipe | PathLike[str] | str],
    out: Path | str | None = None,
    *,
    budget: str,
    seeds: int = 3,
    data: Path | str | None = None,
    text: Any = (),
    settings: RecipeSettings = (),
    stream: TextIO | None = None,
) -> Comparison:
    """Train each recipe with the seeds 0 … `seeds` - 1 and compare the resulting models.

    Args:
        recipes: as in `pretrain`, one or several.
        budget: "tokens=5e6", "minutes=10" or "flops=1e15", for each run.
        data: minimal pairs to score the trained models with; they compare any two models.
        text, out, settings, stream: as in `pretrain`.

    Raises:
        As `maskwright.ask.evaluate.compare.compare`.
    """
    out, assignments = _folder(out, "comparison"), _assignments(settings, {})
    loaded = [r if isinstance(r, Recipe) else find(os.fspath(r)) for r in recipes]
    with as_files(text, "text", texts=True, kept_beside=out) as paths:
        loaded = [override(with_text(r, paths) if paths else r, assignments) for r in loaded]
        return compare_recipes(loaded, out, budget=budget, seeds=seeds, data=data, stream=stream)


@takes(keywords_of(LanguageModel.predict))
def predict(
    model: ModelSource,
    examples: Any,
    *,
    base: Path | str | None = None,
    precision: Precision = "auto",
    device: str = "auto",
    engine: str = TORCH,
    **keywords: Any,
) -> list[Answer]:
    """As `LanguageModel.predict`; a folder is opened for it, with `base`, `precision`, `device` and
    `engine` as in `load`. Of the rows of a file: `predict_file` and `write_predictions`."""
    opened = _opened(model, base=base, precision=precision, device=device, engine=engine)
    return opened.predict(examples, **keywords)


def fill_mask(
    model: ModelSource, text: str, *, top: int = 5, device: str = "auto", note: Note = ignore
) -> list[Hole]:
    """As `LanguageModel.fill_mask` of one text; a folder is opened for it."""
    return _opened(model, device=device).filled([text], top, note)[0]


@takes_generation_settings
def generate(
    model: ModelSource,
    prompt: str,
    *,
    precision: Precision = "auto",
    device: str = "auto",
    **settings: Unpack[GenerationKeywords],
) -> str:
    """As `LanguageModel.generate` of one prompt; a folder is opened for it."""
    written = _opened(model, device=device).generate(prompt, precision=precision, **settings)
    assert isinstance(written, str)  # of one prompt
    return written


generate_text = generate


def tokens(model: PathLike[str] | str, text: str, pair: str | None = None) -> TokenView:
    """Tokenize a text, or a pair of texts, as the model or tokenizer in a folder reads it.

    Raises:
        TokenizerError, CheckpointError: there is no tokenizer, or it is damaged.
        DataError: a text is not valid Unicode.
    """
    return see(tokenizer_of(Path(model)), text, pair)


@takes(target_keywords())
def export(
    model: ModelSource,
    out: Path | str,
    *,
    to: str = "onnx",
    base: Path | str | None = None,
    stream: TextIO | None = None,
    **keywords: Any,
) -> ExportReport:
    """Write a model in a form that other programs load, into the new folder `out`. What was written
    is read again and compared with the model before success is reported.

    Args:
        to: the target: `maskwright list targets` names them.
        base: the folder of an adapter's base; None: the one that the adapter names.
        stream: receives the messages; None: standard output.
        keywords: options of the targets.

    Raises:
        As `export_model`.
    """
    options = {name: value for name, value in keywords.items() if value is not None}
    return export_model(os.fspath(model), out, to=to, options=options, base=base, stream=stream)


# ------------------------------------------------------------------------------ arguments
curate = _taking_memory(texts=True)(curate_files)
attention = _on_device(draw_attention)
probe = _on_device(probe_states)
doctor = _on_device(_taking_memory(data=False)(examine_rows))
experiment = _taking_memory(data=False)(compare_methods)
tokenizer = _taking_memory(texts=True)(train_and_report)


def _folder(out: Path | str | None, name: str) -> Path:
    return next_run_folder(name) if out is None else Path(out)


def _assignments(settings: RecipeSettings, keywords: Mapping[str, Any]) -> list[str]:
    """Return settings of a recipe as texts PATH=VALUE."""
    pairs = dict(settings) if isinstance(settings, Mapping) else {}
    texts = [] if isinstance(settings, Mapping) else list(settings)
    pairs |= {RECIPE_SETTINGS[n].path: v for n, v in keywords.items() if v is not None}
    values = ((path, v if isinstance(v, str) else json.dumps(v)) for path, v in pairs.items())
    return [*texts, *(f"{path}={value}" for path, value in values)]


def _reading(read: TableReadingOptions | Sequence[str]) -> TableReadingOptions:
    return read if isinstance(read, TableReadingOptions) else how_read(read)


def _opened(model: ModelSource, **settings: Any) -> LanguageModel:
    """Return an opened model, or open the one in a folder with the settings of `load`."""
    if isinstance(model, TrainedModel) and not _changed(settings):
        return model.model
    if not isinstance(model, LanguageModel):
        return load(model, **settings)
    if changed := _changed(settings):
        raise UsageError(
            "the model is opened already",
            where=changed[0],
            found=repr(settings[changed[0]]),
            wanted="a setting of maskwright.load, or the folder of a model",
            do=f"open it so: maskwright.load(FOLDER, {changed[0]}={settings[changed[0]]!r})",
        )
    return model


def _changed(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of settings of `load` that have other values than its defaults."""
    parameters = inspect.signature(load).parameters
    return [name for name, value in settings.items() if value != parameters[name].default]
