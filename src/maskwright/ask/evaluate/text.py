"""Evaluation of a pretrained model on text, by the objective of its pretraining.

A folder is a model folder of any origin, or a run, whose newest valid checkpoint is evaluated.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.ask.evaluate.kind import answers_tasks
from maskwright.base import config
from maskwright.base.errors import ConfigError, Finding, IncompatibleError, UsageError
from maskwright.base.report.page import read_run
from maskwright.base.terminal import counted
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.checkpoints import PREFIX
from maskwright.learn.pretrain.prepare import HELD_OUT, keeps_text, training_stores
from maskwright.learn.pretrain.rows import held_out_rows, weights_of
from maskwright.learn.recipes.base.find import find, read
from maskwright.learn.recipes.base.recipe import Corpus, ObjectiveChoice, Recipe, RowChoice
from maskwright.model.checkpoint.layout import CONVENTIONS_KEY
from maskwright.model.inference import held_out_loss
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.base.spec import Member, usual_for
from maskwright.model.opening import special_tokens
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.corpus.saved import RECIPE
from maskwright.text.store.loader import mixed
from maskwright.text.store.rows import PackedDocuments, RowSource, Stream
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store

LONGEST = 512


@dataclass(frozen=True)
class TextEvaluation:
    """Metrics of a language model on a text.

    Attributes:
        lines: the metrics of two baselines: uniform predictions, and token frequencies of the
            training text or, if `own_counts`, of the evaluated text.
        read: lines about the files that were read.
        findings: about what the metrics can be compared with.
    """

    figures: held_out_loss.HeldOutMetrics
    lines: held_out_loss.Baselines
    own_counts: bool
    read: Sequence[str] = ()
    findings: Sequence[Finding] = ()

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the model that are defined, by name; the loss is in nats per target."""
        values = {n: getattr(self.figures, n) for n in ("loss", "top1", "top5", "bits_per_byte")}
        return {name: value for name, value in values.items() if value is not None}

    def render(self) -> str:
        """Return the lines about the files, a table of the metrics, and the findings."""
        unigram_source = "of this text itself" if self.own_counts else "of the training text"
        figures, lines = self.figures, self.lines
        unigram = lines.unigram_loss, lines.unigram_top1, lines.unigram_top5
        table = [
            ("this model", figures.loss, figures.top1, figures.top5),
            (f"unigram ({unigram_source})", *unigram),
            ("uniform", lines.uniform_loss, lines.uniform_top1, lines.uniform_top5),
        ]
        exponential = figures.perplexity is not None
        heading = f"{'perplexity':>13}" if exponential else ""
        text = [f"{'':30}{'loss':>9}{heading}{'top-1':>9}{'top-5':>9}"]
        for name, loss, top1, top5 in table:
            perplexity = f"{math.exp(min(loss, 700.0)):13.2f}" if exponential else ""
            text.append(f"{name:30}{loss:9.4f}{perplexity}{top1:9.4f}{top5:9.4f}")
        if figures.bits_per_byte is not None:
            text.append(f"{figures.bits_per_byte:.4f} bits per byte of text")
        text.append(f"{figures.targets:,} targets")
        if figures.sorts:
            losses = (f"{name} {value:.4f}" for name, value in figures.sorts.items())
            text.append(f"loss by sort of target: {', '.join(losses)}")
        if figures.decided is not None:
            text.append(figures.decided.render())
        return "\n".join([*self.read, *text, *(finding.line() for finding in self.findings)])


def evaluate_text(
    model: Model | Path | str,
    texts: Paths = (),
    *,
    rows: int = 4096,
    reading: ReadingOptions | None = None,
) -> TextEvaluation:
    """Compute language-model metrics of a model on text files, or on its run's held-out text.

    Encoders are evaluated on masked tokens and decoders on next tokens (with bits per byte); other
    architectures by the objective of their pretraining. Baselines are uniform predictions and
    unigram frequencies.

    Args:
        rows: the maximum number of rows, sampled deterministically; a finding reports sampling.
        reading: how the files are read; None: as in the pretraining.
    """
    model = model if isinstance(model, Model) else open_model(model)
    tokenizer, data = model.tokenizer, model.folder / "data"
    recipe = _stated_recipe(model)
    read_lines = [finding.line() for finding in model.findings]
    with tempfile.TemporaryDirectory() as scratch:
        if texts:
            store_folder = Path(scratch) / "store"
            sentences = model.num_stacks == 2 or (recipe is not None and recipe.needs_sentences)
            if reading is None:
                reading = ReadingOptions() if recipe is None else recipe.corpus
            reader = Reader(texts, reading)
            build_store(reader, tokenizer, store_folder, sentences=sentences)
            read_lines += [reader.counts.summary(), *(f.line() for f in reader.counts.findings)]
            store = TokenStore.open(store_folder)
        elif (data / HELD_OUT).is_dir():
            store = TokenStore.open(data / HELD_OUT, tokenizer_fingerprint=tokenizer.fingerprint)
        else:
            advice = "give labelled rows, as it was fine-tuned on such: --data FILE"
            raise UsageError(
                "there is nothing to evaluate on",
                where=model.folder,
                do=advice if answers_tasks(model.folder) else "give a text: --text PATH",
            )
        objective, rows_of, mismatch = _measure(model, recipe)
        source = rows_of(store)
        if len(source) > rows:
            message = f"measured on {rows:,} of its {counted(len(source), 'row')}, drawn evenly"
            read_lines.append(Finding("measured-on-a-sample", message).line())
        keeps_all = not objective.is_language_model or keeps_text(tokenizer, store)
        bytes_per_token = float(store.document_bytes.sum()) / max(1, store.num_tokens)
        metrics = held_out_loss.evaluate(
            objective,
            source,
            rows=rows,
            bytes_per_token=bytes_per_token if objective.is_language_model else None,
        )
        trained_on = training_stores(model.folder)
        unigram_stores = trained_on or [store]
        weights = weights_of(read(model.folder / RECIPE).corpus, trained_on) if trained_on else ()
        baselines = held_out_loss.reference_lines(
            objective,
            held_out_loss.token_counts(unigram_stores, weights),
            mixed([rows_of(trained_store) for trained_store in unigram_stores], weights),
            source,
            rows=rows,
        )
    findings = [*([mismatch] if mismatch else []), *_findings(recipe, objective, keeps_all)]
    if not texts:
        findings += _of_the_run(model, metrics, min(rows, len(source)), mismatch)
    return TextEvaluation(metrics, baselines, not trained_on, read_lines, findings)


def _stated_recipe(model: Model) -> Recipe | None:
    """Return a recipe with the objective, rows and reading options that the model's folder states
    for measuring its loss; None if it states none. Raises a `ConfigError` for invalid values."""
    measure = model.conventions.measure
    if measure is None:
        return None
    where = f"{model.path}: config.json: {CONVENTIONS_KEY}.conventions.measure"
    choice = {"name": measure.objective, "options": measure.options}
    try:
        return replace(
            find("tiny"),
            name=measure.objective,
            objective=config.from_plain(ObjectiveChoice, choice, "objective"),
            rows=config.from_plain(RowChoice, measure.rows, "rows"),
            corpus=config.from_plain(Corpus, measure.reading, "reading"),
        )
    except ConfigError as error:
        raise error.under(f"{where}, ") from None


def _of_the_run(
    model: Model, metrics: held_out_loss.HeldOutMetrics, num_rows: int, mismatch: Finding | None
) -> Iterator[Finding]:
    """Yield a finding if the run recorded another held-out loss of this checkpoint: with what is
    different, of the objective, the rows and the precision."""
    records = checkpoints.read_journal(model.folder)
    name = model.path.name.removeprefix("step-")
    recorded = [
        r for r in records if r["kind"] == "evaluation" and str(r["step"]) == name.lstrip("0")
    ]
    if not recorded or recorded[-1].get("loss") == metrics.loss:
        return
    run = read_run(model.folder).run
    precision = str((run.get("machine") or {}).get("precision", "float32"))
    run_rows = read(model.folder / RECIPE).evaluation.rows
    different = ["of its objective"] if mismatch else []
    different += (
        [f"on at most {run_rows:,} rows, here on {num_rows:,}"] if run_rows < num_rows else []
    )
    different += [f"computed in {precision}, here in float32"] if precision != "float32" else []
    yield Finding(
        "recorded-otherwise",
        f"the run recorded a held-out loss of {recorded[-1]['loss']:.4f} for this checkpoint, in "
        "its report and metrics.jsonl",
        "; ".join(different) or "the same up to rounding: the weights are arranged for inference",
    )


def _findings(recipe: Recipe | None, objective: Objective, keeps_all: bool) -> Iterator[Finding]:
    """Yield findings about what the metrics can be compared with. `keeps_all`: whether the
    tokenizer preserves all of the text."""
    if not keeps_all:
        yield Finding(
            "text-not-kept",
            "the tokenizer does not keep all of the text (capitals, blanks or unknown words), so "
            "its bits per byte are not those of another tokenizer",
        )
    if recipe is not None and objective.scorer is not objective.product:
        scorer = recipe.objective.spec.scored_by
        message = f"the predictions are those of {scorer}, which fills the masks for it"
        yield Finding("scored-by-another-network", message)


def _measure(
    model: Model, recipe: Recipe | None
) -> tuple[Objective, Callable[[TokenStore], RowSource], Finding | None]:
    """Choose the objective that measures the model: masked tokens for encoders, next tokens for
    decoders, otherwise that of the pretraining.

    Returns:
        The objective; a function from a token store to rows, as long as in the pretraining; and a
        finding if the pretraining had another objective, else None."""
    conventions, head = model.conventions, model.config.vocabulary_head
    is_standard = model.num_stacks == 1 and head is not None
    if is_standard and not (conventions.prediction_offset or conventions.bidirectional_prefix):
        # As many masked tokens as in the pretraining.
        member = usual_for("decoder" if model.config.encoder is None else "encoder")
        measurement = member.spec.measurement
        trained = None if recipe is None else recipe.objective.checked
        options = member.options() if measurement is None else measurement.options(trained)
        finding = None if recipe is None else _other_objective(member, options, recipe)
        objective = member.build(model.network, options, special_tokens.vocabulary(model.tokenizer))
        if recipe is not None and recipe.objective.spec.usual_for is not None:
            return objective, partial(held_out_rows, recipe), finding
        length = min(model.config.longest or LONGEST, LONGEST)
        if recipe is not None:  # of pieces, a row has more tokens than the model reads
            length = min(recipe.rows.length, model.config.longest or recipe.rows.length)
        if objective.is_language_model:
            return objective, lambda store: Stream(store, length), finding
        packed = partial(PackedDocuments, length=length, seed=held_out_loss.SEED)
        return objective, packed, finding
    if recipe is None:
        if head is None:
            raise IncompatibleError(
                "this model predicts no tokens, so there is no loss on a text",
                where=model.folder,
                found="no vocabulary head",
                do="give --data: minimal pairs for a discriminator, labelled rows for a "
                "fine-tuned model",
            )
        raise IncompatibleError(
            "the folder does not say how its model is to be measured",
            where=model.folder,
            found=f"config.json without {CONVENTIONS_KEY}.conventions.measure",
            wanted="what pretraining writes there",
            do="name the run or a checkpoint of it, or score minimal pairs: --data FOLDER",
        )
    objective = build.objective(recipe, model.network, model.tokenizer)
    loaded_parts = checkpoints.load_objective(objective, model.path)
    names = {name for name, _ in objective.named_parameters() if not name.startswith(PREFIX)}
    if missing_parts := sorted({name.partition(".")[0] for name in names - set(loaded_parts)}):
        raise IncompatibleError(
            f"the loss of this model needs its {', '.join(missing_parts)}, which the folder does "
            "not have",
            where=model.path / checkpoints.OBJECTIVE,
            wanted="the file that pretraining wrote beside the weights",
            do="name the run or a whole copy of its checkpoint",
        )
    return objective, partial(held_out_rows, recipe), None


def _other_objective(member: Member, options: Any, recipe: Recipe) -> Finding | None:
    """Return a finding if the run was trained with another objective or other options."""
    measurement = member.spec.measurement
    if measurement is None or measurement.at_end(recipe.objective.checked) == options:
        return None
    return Finding(
        "measured-otherwise-than-trained",
        f"measured {measurement.words(options)}",
        f"the objective of the run ({recipe.objective.name}) is another, or has other settings",
    )
