"""Evaluation of a pretrained model on text, by the objective of its pretraining.

A folder is a model folder of any origin, or a run, which stands for its newest valid checkpoint.
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
from maskwright.base.counted import counted
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.base.findings import Finding
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.checkpoints import OWN
from maskwright.learn.pretrain.mixing import weights_of
from maskwright.learn.pretrain.prepare import HELD_OUT, keeps_text, training_stores
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.recipes.base.find import find, read
from maskwright.learn.recipes.base.objective_rows import needs_sentences
from maskwright.learn.recipes.base.recipe import Corpus, ObjectiveChoice, Recipe, RowChoice
from maskwright.model.checkpoint.conventions import KEY
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.base.spec import Member, usual_for
from maskwright.model.opening import special_tokens
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_model
from maskwright.model.opening.run_folder import RECIPE
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.read import Reader
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.store.mixture import mixed
from maskwright.text.store.pack import PackedDocuments
from maskwright.text.store.rows import RowSource
from maskwright.text.store.store import TokenStore
from maskwright.text.store.stream import Stream
from maskwright.text.store.tokenize import build_store

LONGEST = 512


@dataclass(frozen=True)
class TextEvaluation:
    """Figures of a language model on a text.

    Attributes:
        figures: of the model.
        lines: of uniform predictions, and of the token frequencies in the training text; without
            one, in this text itself (`own_counts`).
        read: lines about the files that were read.
        findings: about what the figures can be compared with.
    """

    figures: likelihood.HeldOutMetrics
    lines: likelihood.Baselines
    own_counts: bool
    read: Sequence[str] = ()
    findings: Sequence[Finding] = ()

    def render(self) -> str:
        """The lines about the files, a table of the figures, and the findings."""
        by = "of this text itself" if self.own_counts else "of the training text"
        figures, lines = self.figures, self.lines
        table = [
            ("this model", figures.loss, figures.perplexity, figures.top1, figures.top5),
            (
                f"unigram ({by})",
                lines.unigram_loss,
                math.exp(lines.unigram_loss),
                lines.unigram_top1,
                lines.unigram_top5,
            ),
            (
                "uniform",
                lines.uniform_loss,
                math.exp(lines.uniform_loss),
                lines.uniform_top1,
                lines.uniform_top5,
            ),
        ]
        text = [f"{'':30}{'loss':>9}{'perplexity':>13}{'top-1':>9}{'top-5':>9}"]
        for name, loss, perplexity, top1, top5 in table:
            text.append(f"{name:30}{loss:9.4f}{perplexity:13.2f}{top1:9.4f}{top5:9.4f}")
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
    """Language-model figures of a model on text files, or on its run's held-out text.

    The measure is the model's own: masked accuracy for encoders, next-token loss and bits per
    byte for decoders; for what reads two stacks, one place ahead or another network's text, that
    of its pretraining. Beside it stand the uniform and, for a run, the unigram lines of its
    training text.

    Args:
        rows: the largest number of rows, drawn by their keys; a finding says if there are more.
        reading: how the files are read; None: as those of the pretraining.
    """
    model = model if isinstance(model, Model) else open_model(model)
    tokenizer, data = model.tokenizer, model.folder / "data"
    recipe = _measured_by(model)
    read_of = [finding.line() for finding in model.findings]
    with tempfile.TemporaryDirectory() as scratch:
        if texts:
            built = Path(scratch) / "store"
            sentences = model.num_stacks == 2 or (recipe is not None and needs_sentences(recipe))
            if reading is None:
                reading = ReadingOptions() if recipe is None else recipe.corpus
            reader = Reader(texts, reading)
            build_store(reader, tokenizer, built, sentences=sentences)
            read_of += [reader.counts.summary(), *(f.line() for f in reader.counts.findings)]
            store = TokenStore.open(built)
        elif (data / HELD_OUT).is_dir():
            store = TokenStore.open(data / HELD_OUT, tokenizer_fingerprint=tokenizer.fingerprint)
        else:
            labelled = "give labelled rows, as it was fine-tuned on such: --data FILE"
            raise UsageError(
                "there is nothing to evaluate on",
                where=model.folder,
                do=labelled if answers_tasks(model.folder) else "give a text: --text PATH",
            )
        objective, rows_of, otherwise = _measure(model, recipe)
        source = rows_of(store)
        if len(source) > rows:
            message = f"measured on {rows:,} of its {counted(len(source), 'row')}, drawn evenly"
            read_of.append(Finding("measured-on-a-sample", message).line())
        keeps_all = not objective.is_language_model or keeps_text(tokenizer, store)
        bytes_per_token = float(store.document_bytes.sum()) / max(1, store.num_tokens)
        figures = likelihood.evaluate(
            objective,
            source,
            rows=rows,
            bytes_per_token=bytes_per_token if objective.is_language_model else None,
        )
        trained_on = training_stores(model.folder)
        learned = trained_on or [store]
        weights = weights_of(read(model.folder / RECIPE).corpus, trained_on) if trained_on else ()
        lines = likelihood.reference_lines(
            objective,
            likelihood.token_counts(learned, weights),
            mixed([rows_of(trained_store) for trained_store in learned], weights),
            source,
            rows=rows,
        )
    findings = [*([otherwise] if otherwise else []), *_findings(recipe, objective, keeps_all)]
    return TextEvaluation(figures, lines, not trained_on, read_of, findings)


def _measured_by(model: Model) -> Recipe | None:
    """A recipe with the objective, the rows and the reading options by which the loss of the model
    is measured; None if its folder states none.

    Raises:
        ConfigError: a field has a value that it does not take; the message names the field.
    """
    measure = model.conventions.measure
    if measure is None:
        return None
    where = f"{model.path}: config.json: {KEY}.conventions.measure"
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


def _findings(recipe: Recipe | None, objective: Objective, keeps_all: bool) -> Iterator[Finding]:
    """Findings about what the figures can be compared with."""
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
    """The objective that measures the model, its rows, as long as those of its pretraining, and a
    finding where the pretraining had another objective.

    An encoder is measured by masks and a decoder by next tokens; others by the objective of their
    pretraining."""
    conventions, head = model.conventions, model.config.vocabulary_head
    simple = model.num_stacks == 1 and head is not None
    if simple and not (conventions.prediction_offset or conventions.bidirectional_prefix):
        member, options = _usual(model, recipe)
        otherwise = None if recipe is None else _other_objective(member, options, recipe)
        objective = member.build(model.network, options, special_tokens.vocabulary(model.tokenizer))
        if recipe is not None and recipe.objective.spec.usual_for is not None:
            return objective, partial(held_out_rows, recipe), otherwise
        length = _length(model) if recipe is None else recipe.rows.length
        if objective.is_language_model:
            return objective, lambda store: Stream(store, length), otherwise
        packed = partial(PackedDocuments, length=length, seed=likelihood.SEED)
        return objective, packed, otherwise
    if recipe is None:
        if head is None:
            raise IncompatibleError(
                "this model predicts no tokens, so there is no loss on a text",
                where=model.folder,
                found="no vocabulary head",
                wanted="a model with the head it was pretrained with",
                do="give --data: minimal pairs for a discriminator, labelled rows for a "
                "fine-tuned model",
            )
        raise IncompatibleError(
            "the folder does not say how its model is to be measured",
            where=model.folder,
            found=f"config.json without {KEY}.conventions.measure",
            wanted="what pretraining writes there",
            do="name the run or a checkpoint of it, or score minimal pairs: --data FOLDER",
        )
    objective = build.objective(recipe, model.network, model.tokenizer)
    loaded_parts = checkpoints.take_others(objective, model.path)
    if missing_parts := [n for n, _ in objective.named_parameters() if not n.startswith(OWN)]:
        missing_parts = sorted(
            {name.partition(".")[0] for name in missing_parts if name not in loaded_parts}
        )
    if missing_parts:
        raise IncompatibleError(
            f"the loss of this model needs its {', '.join(missing_parts)}, which the folder does "
            "not have",
            where=model.path / checkpoints.OTHERS,
            wanted="the file that pretraining wrote beside the weights",
            do="name the run or a whole copy of its checkpoint",
        )
    return objective, partial(held_out_rows, recipe), None


def _other_objective(member: Member, options: Any, recipe: Recipe) -> Finding | None:
    """A finding if the run was trained, and its held-out loss measured, by another objective or by
    other options than these; else None."""
    measurement = member.spec.measurement
    if measurement is None or measurement.at_end(recipe.objective.checked) == options:
        return None
    return Finding(
        "measured-otherwise-than-trained",
        f"measured {measurement.words(options)}",
        f"the run's own held-out loss, of its objective ({recipe.objective.name}), is in its "
        "report",
    )


def _usual(model: Model, recipe: Recipe | None) -> tuple[Member, Any]:
    """The objective that measures every model of this architecture, and its options: the number of
    masked tokens of a row is chosen as in the pretraining."""
    member = usual_for("decoder" if model.config.encoder is None else "encoder")
    measurement = member.spec.measurement
    options = None if recipe is None else recipe.objective.checked
    return member, member.options() if measurement is None else measurement.options(options)


def _length(model: Model) -> int:
    """The length of rows, where nothing says what the model was trained on."""
    return min(model.config.longest or LONGEST, LONGEST)
