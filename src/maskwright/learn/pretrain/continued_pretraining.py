"""Continued pretraining of a model on other text (Gururangan et al. 2020, arXiv:2004.10964).

A run continues with its own objective and rows. For any other folder these follow from the model:
an encoder predicts masked tokens, a decoder the next token, and an encoder-decoder the spans
removed from its text.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from maskwright.base.errors import Finding, IncompatibleError, MaskwrightError
from maskwright.base.metrics import metrics
from maskwright.base.report import document, page
from maskwright.base.terminal import printer
from maskwright.learn.pretrain import build, checkpoints, run
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.recipes.base.find import (
    CONTINUED_LENGTH,
    CONTINUED_RATE,
    RATE_WIDTH,
    of_model,
    of_run,
    override,
    read,
    with_text,
)
from maskwright.learn.recipes.base.recipe import Folder, Recipe
from maskwright.learn.train import state
from maskwright.model.batch import Batch
from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import CheckpointLayout
from maskwright.model.device import machine
from maskwright.model.inference import held_out_loss
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import encode, facts
from maskwright.model.objectives.base.spec import usual_for
from maskwright.model.objectives.modules.supervised import pool_texts
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.open import open_weights
from maskwright.text.corpus import embedded
from maskwright.text.corpus.files import Paths
from maskwright.text.corpus.saved import is_run
from maskwright.text.store.rows import PackedDocuments
from maskwright.text.store.store import TokenStore
from maskwright.text.store.tokenize import build_store
from maskwright.text.tokenizer.tokenizer import Tokenizer

MINUTES, HELD_OUT = 10.0, "data/held-out"
WORTH = "What training further was worth"
SENTENCE_MODEL = "modules.json"  # of sentence-transformers
GENERAL = 60_000  # bytes of text that has nothing to do with the run
SEEN_ROWS, SEEN_TEXTS = 64, 200
# A new head is first trained alone for this share of the run, and at a higher learning rate than
# the pretrained body. Both rates are for a model of width 768.
HEAD_FIRST, HEAD_RATE, BODY_RATE = 0.3, 1e-3, 1e-5


def recipe_of(folder: Path, minutes: float = MINUTES) -> Recipe:
    """Return the recipe that continues the pretraining of the model in `folder`, on the embedded
    text unless another text is set later.

    Raises:
        UsageError: the folder does not exist.
        IncompatibleError: the model has no tokenizer, or lacks mask and sentinel tokens.
    """
    if is_run(folder):
        return of_run(folder, minutes)
    path = folders.model_folder(folder)
    layout = pretrained.described(path)
    config = layout.config
    width_factor = max(1.0, RATE_WIDTH / config.width)
    model = Folder(path=str(path), architecture=_class_with_vocabulary_head(layout))
    rate = CONTINUED_RATE * width_factor
    if model.architecture is not None:
        rate = HEAD_RATE
        model = replace(
            model, head_first=HEAD_FIRST, body_rate=min(1.0, BODY_RATE * width_factor / rate)
        )
    return of_model(
        model,
        minutes,
        name=f"{folders.called(path)}-further",
        note=f"a {layout.model_type}, further",
        objective=_objective_name(path, layout),
        rate=rate,
        length=min(CONTINUED_LENGTH, config.longest or CONTINUED_LENGTH),
    )


def adapt(
    folder: Path | str,
    texts: Paths,
    out: Path | str,
    *,
    minutes: float = MINUTES,
    settings: Sequence[str] = (),
    stream: TextIO | None = None,
) -> Path:
    """Continue the pretraining of the model in `folder` on `texts`, and report the change of the
    loss on that text and on other text. Returns the last checkpoint's folder in the new folder
    `out`. An interrupted run is resumed like any other, and reports at its end.

    Raises:
        MaskwrightError: as `recipe_of` and `run.pretrain`.
    """
    folder, out, say = Path(folder), Path(out), printer(stream)
    recipe = override(with_text(recipe_of(folder, minutes), texts), settings)
    if state.join_processes().first:
        for finding in _findings(folder, recipe):
            say(finding.line())
    checkpoint = run.pretrain(recipe, out, stream=stream)
    close(out, stream=stream)
    return checkpoint


def _findings(folder: Path, recipe: Recipe) -> Iterator[Finding]:
    """Yield the warnings that are shown before the pretraining of a model is continued."""
    model = recipe.model
    assert isinstance(model, Folder)
    if (folder / SENTENCE_MODEL).is_file():
        yield Finding(
            "model-of-vectors",
            "this model was made for vectors of texts; learning to fill masks makes these worse",
            "its pooling is not taken along: what comes of it is a model to fine-tune",
            "to compare vectors, keep the model as it is, or fine-tune it: maskwright finetune "
            f"{shlex.quote(str(folder))} --data PAIRS --task embedding",
        )
    if model.architecture is not None and model.head_first:
        yield Finding(
            "head-learns-first",
            "the folder has no scores over the vocabulary",
            f"these learn alone for the first {model.head_first:.0%} of the run "
            "(model.head_first); then the model below them learns, too, "
            f"{model.body_rate:g} times as fast (model.body_rate)",
        )


def close(out: Path, *, stream: TextIO | None = None, again: bool = True) -> None:
    """Report the change of the losses in the finished run `out`, if it continued the pretraining of
    another model.

    Args:
        again: report even if the run's folder already has the table.
    """
    recipe, say = read(out / run.RECIPE), printer(stream)
    if not isinstance(recipe.model, Folder) or not state.join_processes().first:
        return
    if recipe.row_kind == "images":
        return
    if not again and any(table.get("title") == WORTH for table in document.read(out)):
        return
    if not Path(recipe.model.path).is_dir():
        message = f"the model from which this run began is not there any more ({recipe.model.path})"
        consequence = "there is nothing to compare with"
        say(Finding("model-before-is-gone", message, consequence).line())
        return
    try:
        results = worth(out)
    except MaskwrightError as error:  # the trained model is saved nevertheless
        message = "what training further was worth cannot be measured"
        say(Finding("worth-unknown", message, f"{error.what} ({error.where})").line())
        return
    document.add(out, results)
    for table in results:
        say(document.for_terminal(table))
    if worsened := [row[0] for row in results[0]["rows"][1:] if row[-1].startswith("+")]:
        message = f"something was lost on {worsened[0]}"
        remedy = "fine-tune both models on a task of yours to see whether the gain is worth it"
        finding = Finding("worse-on-other-text", message, remedy=remedy, severity="warning")
        say(finding.line())
    page.write_report(out)


def worth(out: Path) -> list[document.Table]:
    """Return a table of the held-out loss before and after the run `out`, on its own text and on
    other text, and for an imported encoder a table of how its text vectors changed."""
    recipe = read(out / run.RECIPE)
    assert isinstance(recipe.model, Folder)
    path = Path(recipe.model.path)
    tokenizer = Tokenizer.load(out / "tokenizer")
    initial = build.model(recipe, build.transformer_config(recipe, tokenizer))
    has_loss_before = (
        build.load_head(out, initial, recipe.model.new) or recipe.model.architecture is None
    )
    checkpoint = folders.model_folder(out)
    models = [(initial, path)] * has_loss_before + [(open_weights(checkpoint).network, checkpoint)]
    store = TokenStore.open(out / HELD_OUT, tokenizer_fingerprint=tokenizer.fingerprint)
    # If the initial model is a checkpoint, its run's folder contains the held-out text.
    earlier_store = path.parent.parent / HELD_OUT
    has_earlier_text = path.parent.name == "checkpoints" and earlier_store.is_dir()
    losses_by_text = {"the new text": _losses(recipe, models, tokenizer, store)}
    if has_earlier_text:
        # The earlier store may lack what this objective's rows need, such as sentence boundaries.
        with contextlib.suppress(MaskwrightError):
            earlier = TokenStore.open(earlier_store, tokenizer_fingerprint=tokenizer.fingerprint)
            losses_by_text["the text before"] = _losses(recipe, models, tokenizer, earlier)
    else:
        with tempfile.TemporaryDirectory() as scratch, contextlib.suppress(MaskwrightError):
            general_store = build_store(
                embedded.documents(limit_bytes=GENERAL), tokenizer, Path(scratch) / "store"
            )
            losses_by_text["general text"] = _losses(recipe, models, tokenizer, general_store)
    table_rows = []
    for name, losses in losses_by_text.items():
        before, change = "–", "–"
        if has_loss_before:
            before, change = f"{losses[0]:.4f}", f"{losses[-1] - losses[0]:+.4f}"
        table_rows.append([name, before, f"{losses[-1]:.4f}", change])
    note = "In nats for each target, the same rows and the same questions before and after."
    if not has_loss_before:
        note = "In nats for each target; without a vocabulary head there is no loss before."
    elif recipe.model.new:
        note += " Before: the new head above the model as it was."
    if "general text" in losses_by_text:
        note += " General text: documentation in this Python installation."
    head = ["held-out loss", "before", "after", "change"]
    results: list[document.Table] = [
        {"title": WORTH, "head": head, "rows": table_rows, "note": note}
    ]
    if not has_earlier_text and initial.encoder is not None and initial.decoder is None:
        results.append(_drift(initial, models[-1][0], store, recipe.rows.length))
    return results


def _drift(
    before: Transformer, after: Transformer, store: TokenStore, length: int
) -> document.Table:
    """Return a table with the rank correlation of two models' similarities of held-out texts."""
    packed = PackedDocuments(store, length)
    row_indices = np.arange(min(len(packed), SEEN_ROWS))
    batch_rows = packed.rows(row_indices, 0)
    batch = Batch(tokens=torch.from_numpy(batch_rows.tokens), **facts(batch_rows))
    similarities = []
    for model in (before, after):
        with torch.no_grad():
            vectors = pool_texts(encode(model.eval(), batch), batch.documents, "mean")
        unit_vectors = torch.nn.functional.normalize(vectors[:SEEN_TEXTS].float(), dim=1)
        pairs = torch.triu_indices(len(unit_vectors), len(unit_vectors), 1)
        similarities.append((unit_vectors @ unit_vectors.T)[pairs[0], pairs[1]].numpy())
    correlation = (
        metrics.METRICS["spearman"](*similarities) if len(similarities[0]) > 1 else math.nan
    )
    correlation_text = f"{correlation:.3f}" if math.isfinite(correlation) else "–"
    return {
        "title": "Change of the text embeddings",
        "head": ["", "before", "after"],
        "rows": [["which texts are alike", "1.000", correlation_text]],
        "note": "Mean vectors of held-out texts: the rank correlation of their similarities with "
        "those before. Where a model was made for such vectors, what is lost here is lost to it.",
    }


def _losses(
    recipe: Recipe,
    models: Sequence[tuple[Transformer, Path]],
    tokenizer: Tokenizer,
    store: TokenStore,
) -> list[float]:
    """Return the loss of each (model, folder with weights of its objective, if any) on `store`."""
    losses = []
    device = machine.choose(recipe.training.precision, recipe.training.device).device
    for model, path in models:
        objective = build.objective(recipe, model, tokenizer)
        checkpoints.load_objective(objective, path)
        evaluation = held_out_loss.evaluate(
            objective.to(device),
            held_out_rows(recipe, store),
            rows=recipe.evaluation.rows,
            batch_rows=recipe.evaluation.batch,
        )
        losses.append(evaluation.loss)
    return losses


def _objective_name(path: Path, layout: CheckpointLayout) -> str:
    if layout.config.encoder is None:
        return usual_for("decoder").name
    vocabulary = special_tokens.vocabulary(Tokenizer.load(path))
    if layout.config.decoder is not None and vocabulary.sentinels:
        return usual_for("sentinels").name
    if vocabulary.mask is None:
        raise IncompatibleError(
            "the tokenizer has no token that stands for hidden text",
            where=path,
            found="a tokenizer without a mask token",
            wanted="a mask token, or sentinels in an encoder-decoder",
            do="name a folder with the decoder too, or write a recipe with another objective",
        )
    return usual_for("encoder" if layout.config.decoder is None else "masks").name


def _class_with_vocabulary_head(layout: CheckpointLayout) -> str | None:
    """Return the family's class whose only head is a vocabulary head; None if the folder's model
    has a vocabulary head already, or no such class exists."""
    if layout.family is None or layout.config.vocabulary_head is not None:
        return None
    for name, architecture in layout.family.architectures.items():
        if (
            architecture.vocabulary
            and not architecture.heads
            and architecture.decoder in (None, layout.config.decoder is not None)
        ):
            return name
    return None
