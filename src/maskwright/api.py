"""What the command line does, as functions (docs/python.md shows each of them).

    from maskwright import api

    recipe = api.with_text(api.find("bert-mini"), ["my-documents/"])
    api.pretrain(recipe, Path("runs/mine"))

This brings torch with it. The verbs are attributes of `maskwright`, too, which waits until one is
called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, Unpack

from maskwright.ask.analysis.attention import attention
from maskwright.ask.analysis.neighbours import neighbours
from maskwright.ask.analysis.probe import probe
from maskwright.ask.analysis.tokens import see, show_tokens, tokenizer_of
from maskwright.ask.doctor.doctor import doctor
from maskwright.ask.evaluate.against import ModelComparison, evaluate_against
from maskwright.ask.evaluate.compare import compare
from maskwright.ask.evaluate.kind import PAIRS, RETRIEVAL, kind_of
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.evaluate.minimal_pairs import PairEvaluation, evaluate_pairs
from maskwright.ask.evaluate.retrieval import evaluate_retrieval
from maskwright.ask.evaluate.text import TextEvaluation, evaluate_text
from maskwright.ask.predict.file import predict_file, write_whole
from maskwright.ask.predict.language_model import LanguageModel, load
from maskwright.ask.predict.predictor import Answer, OnBad
from maskwright.ask.predict.remote import RemoteModel, connect
from maskwright.ask.predict.write import write_predictions
from maskwright.base.errors import Note, UsageError, ignore
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.terminal import printer
from maskwright.learn import quickstart_task
from maskwright.learn.finetune.command import finetune_file, finetune_recipe
from maskwright.learn.finetune.experiment import experiment
from maskwright.learn.finetune.recipe import read as read_finetuning
from maskwright.learn.pretrain import continued_pretraining, run
from maskwright.learn.pretrain.continued_pretraining import adapt
from maskwright.learn.pretrain.prepare import train_and_report
from maskwright.learn.recipes.base.find import find, override, run_of, with_text
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.tasks.base.choices import LongText
from maskwright.model.checkpoint.pretrained import load as load_pretrained
from maskwright.model.checkpoint.pretrained import save as save_pretrained
from maskwright.model.device.choices import Precision
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
from maskwright.ship.serve.command import serve
from maskwright.text.corpus.files import Paths
from maskwright.text.curate.curation import curate_files
from maskwright.text.curate.why import why
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions, how_read
from maskwright.text.tokenizer.splits import encode_sampled

__all__ = [
    "LanguageModel",
    "RemoteModel",
    "adapt",
    "attention",
    "bench",
    "compare",
    "connect",
    "curate_files",
    "doctor",
    "encode_sampled",
    "evaluate",
    "evaluate_against",
    "evaluate_file",
    "evaluate_pairs",
    "evaluate_retrieval",
    "evaluate_text",
    "experiment",
    "explore",
    "export_model",
    "fill_mask",
    "find",
    "finetune_file",
    "finetune_recipe",
    "generate_text",
    "how_read",
    "import_vectors",
    "load",
    "load_pretrained",
    "merge_adapter",
    "neighbours",
    "override",
    "predict",
    "predict_file",
    "pretrain",
    "probe",
    "quickstart",
    "read_finetuning",
    "resume",
    "save_pretrained",
    "see",
    "serve",
    "show",
    "show_tokens",
    "tokenizer_of",
    "train_and_report",
    "why",
    "with_text",
    "write_predictions",
    "write_whole",
]


def pretrain(
    recipe: Recipe | Path | str,
    out: Path | str,
    *,
    text: Paths = (),
    settings: Sequence[str] = (),
    origin: Path | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Pretrain a model in the new folder `out`; returns its newest checkpoint.

    Args:
        recipe: one that `find` gives, or its name: a built-in recipe, a .toml file, a run's folder.
        text: files or folders in place of the recipe's.
        settings: changes such as "training.batch=32" (docs/settings.md), as `--set`.
        origin: the folder of the run whose recipe it is, if it is one's.
        stream: takes what is said; None: standard output.

    Raises:
        UsageError: no such recipe.
        ConfigError: a setting that there is not, or a value that it does not take.
        DataError: text that cannot be read, or too little of it.
        OutputError: `out` holds something else.
    """
    if not isinstance(recipe, Recipe):
        recipe, origin = find(str(recipe)), origin or run_of(str(recipe))
    recipe = override(with_text(recipe, text) if text else recipe, settings)
    newest = run.pretrain(recipe, out, origin=origin, stream=stream)
    continued_pretraining.close(Path(out), stream=stream)
    return newest


def quickstart(out: Path | str, *, minutes: float = 4.0) -> dict[str, Any]:
    """As `maskwright.ask.quickstart.quickstart`, which imports scikit-learn."""
    from maskwright.ask import quickstart as first_run

    return first_run.quickstart(Path(out), minutes=minutes)


def resume(
    out: Path | str, *, settings: Recipe | Sequence[str] = (), stream: TextIO | None = None
) -> Path:
    """Continue the run in the folder `out` from its last checkpoint; returns the newest one.

    Args:
        settings: changes of what does not change what is computed, as "evaluation.every=100"; or a
            whole recipe that differs in nothing else.

    Raises:
        UsageError: no such run, or one that is complete.
        ConfigError: a setting that cannot change any more.
    """
    changed: Recipe | None
    if isinstance(settings, Recipe):
        changed = settings
    else:
        changed = override(find(str(out)), settings) if settings else None
    newest, out = run.resume(out, stream=stream, settings=changed), Path(out)
    # What the command that began the run reports at its end, unless it is there already.
    continued_pretraining.close(out, stream=stream, again=False)
    if (out / quickstart_task.MARKER).is_file():
        from maskwright.ask import quickstart as first_run  # scikit-learn: a second to import

        first_run.close(out, stream=stream)
    return newest


def evaluate(
    model: Path | str,
    data: Path | str | None = None,
    *,
    text: Paths = (),
    out: Path | str | None = None,
    how: str | None = None,
    part: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    base: Path | str | None = None,
    dimensions: Sequence[int] = (),
    by: str | None = None,
    generalisation: bool = False,
    against: Path | str | None = None,
    other_data: Sequence[Path | str] = (),
    stream: TextIO | None = None,
) -> TextEvaluation | PairEvaluation | ModelComparison | dict[str, Estimate]:
    """Evaluate a model: without `data` on text, with it on retrieval if it is a folder in BEIR's
    format, on labelled rows if the model answers a task, else on minimal pairs (`evaluate_text`,
    `evaluate_retrieval`, `evaluate_file`, `evaluate_pairs`).

    Args:
        data: a retrieval folder, labelled rows, or a folder of minimal pairs.
        text: files or folders; none: what the model's run held out.
        out: where the figures of rows or pairs are written; pairs need it.
        against: of rows, another fine-tuned model: both are compared (`evaluate_against`).
        stream: takes what is said of rows and pairs; None: standard output.
        Others: as for these functions.

    Raises:
        UsageError: both `data` and `text`, pairs without `out`, or a setting without effect.
        IncompatibleError: the model cannot be asked so.
    """
    if data is not None and text:
        raise UsageError("two things to evaluate on", found="data and text", wanted="one of them")
    of_one: dict[str, Any] = {"base": base, "by": by, "other_data": other_data}
    of_one["generalisation"] = generalisation
    settings = {**of_one, "how": how, "part": part, "out": out, "against": against}
    reading = None if read == DEFAULT_OPTIONS else read.reading
    settings |= {"dimensions": dimensions, "column": columns, "read": reading}
    kind = kind_of(Path(model), None if data is None else Path(data), settings)
    if data is None:
        return evaluate_text(model, text, reading=reading)
    if kind == RETRIEVAL:
        return evaluate_retrieval(
            model, data, part=part, dimensions=dimensions, out=out, base=base, stream=stream
        )
    if kind != PAIRS:
        common: dict[str, Any] = {"part": part, "columns": columns, "read": read, "out": out}
        if against is None:
            return evaluate_file(model, data, **common, **of_one, stream=stream)
        return evaluate_against(model, against, data, **common, stream=stream)
    if out is None:
        raise UsageError("where the outcomes of pairs are written is missing", where="out")
    split, say = part or "all", printer(stream)
    return evaluate_pairs(model, data, out, how=how, part=split, say=say)


def predict(
    model: LanguageModel | Path | str,
    examples: Iterable[Any],
    *,
    top: int | None = None,
    on_bad: OnBad = "strict",
    labels: Sequence[str] | None = None,
    hypothesis: str | None = None,
    task: str | None = None,
    long: LongText = "as_trained",
) -> list[Answer]:
    """As `LanguageModel.predict`; a folder is opened for it. Of the rows of a file: `predict_file`
    and `write_predictions`."""
    return _opened(model).predict(
        examples,
        top=top,
        on_bad=on_bad,
        labels=labels,
        hypothesis=hypothesis,
        task=task,
        long=long,
    )


def fill_mask(
    model: LanguageModel | Path | str, text: str, *, top: int = 5, note: Note = ignore
) -> list[Hole]:
    """As `LanguageModel.fill_mask` of one text; a folder is opened for it."""
    return _opened(model).filled([text], top, note)[0]


@takes_generation_settings
def generate_text(
    model: LanguageModel | Path | str,
    prompt: str,
    *,
    precision: Precision = "auto",
    **settings: Unpack[GenerationKeywords],
) -> str:
    """As `LanguageModel.generate` of one prompt; a folder is opened for it."""
    written = _opened(model).generate(prompt, precision=precision, **settings)
    assert isinstance(written, str)  # of one prompt
    return written


def _opened(model: LanguageModel | Path | str) -> LanguageModel:
    return model if isinstance(model, LanguageModel) else load(model)
