"""A recipe for training a model further on text of another kind (Gururangan et al. 2020,
arXiv:2004.10964).

A run goes on with the objective and the rows it was trained with. Of any other folder these follow
from what the model is: an encoder fills masks, a decoder reads on, and a model of both writes what
was cut out of its text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from maskwright.checkpoint import pretrained
from maskwright.checkpoint.layout import Layout
from maskwright.corpus.files import Paths
from maskwright.data.store import TokenStore
from maskwright.errors import IncompatibleError, MaskwrightError
from maskwright.evaluate import likelihood
from maskwright.pretrain import build, checkpoints, run
from maskwright.pretrain.rows import held_out_rows
from maskwright.recipes.corpus import Corpus
from maskwright.recipes.find import is_run, read
from maskwright.recipes.override import override, with_text
from maskwright.recipes.recipe import (
    Folder,
    ObjectiveChoice,
    Recipe,
    RowChoice,
    TokenizerFolder,
    Training,
)
from maskwright.report import page, tables
from maskwright.report.say import printer
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train import distribute, machine
from maskwright.train.optimizer import AdamW
from maskwright.train.phases import Ramp
from maskwright.train.schedule import Budget, Schedule

MINUTES, HELD_OUT = 10.0, "data/held-out"
# What is known is easily overwritten: of a run's own rate a part; of others a rate for a width of
# 768, and in proportion more for narrower models.
SHARE, RATE, WIDTH = 0.3, 1e-4, 768
LENGTH, BATCH = 128, 64
SCHEDULE = Schedule(kind="linear", warmup=0.1)


def recipe_of(folder: Path, minutes: float = MINUTES) -> Recipe:
    """The recipe that trains the model in `folder` further, on the embedded text until another is
    named.

    Raises:
        UsageError: no such folder.
        IncompatibleError: it has no tokenizer, or is of two stacks and has no mask to write for.
    """
    budget = Budget(minutes=minutes)
    if is_run(folder):
        own = read(folder / run.RECIPE)
        optimizer = replace(
            own.training.optimizer, learning_rate=SHARE * own.training.optimizer.learning_rate
        )
        training = replace(own.training, budget=budget, phases=(), ramp=Ramp(), optimizer=optimizer,
                           schedule=SCHEDULE)  # fmt: skip
        begun = replace(own, corpus=Corpus(), model=Folder(path=str(folder)), training=training,
                        tokenizer=TokenizerFolder(path=str(folder)))  # fmt: skip
        return replace(begun, name=f"{own.name}-further", note=f"{own.note}, further")
    path = checkpoints.model_folder(folder)
    form = pretrained.described(path)
    config = form.config
    longest = min(
        getattr(stack.embeddings.positions, "length", LENGTH) for stack in config.stacks.values()
    )
    rate = RATE * max(1.0, WIDTH / config.width)
    return Recipe(
        name=f"{checkpoints.called(path)}-further",
        note=f"a {form.model_type}, further",
        tokenizer=TokenizerFolder(path=str(path)),
        model=Folder(path=str(path), architecture=_architecture(form)),
        objective=ObjectiveChoice(name=_objective(path, form), options={}),
        rows=RowChoice(length=min(LENGTH, longest)),
        training=Training(
            budget=budget, batch=BATCH, optimizer=AdamW(learning_rate=rate), schedule=SCHEDULE
        ),
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
    """Train the model in `folder` further on `texts` in the new folder `out`, and say what was won
    there and, of a run, lost on the text it came from; the last checkpoint is returned.

    Raises:
        MaskwrightError: as `recipe_of` and `run.pretrain`.
    """
    folder, out, processes = Path(folder), Path(out), distribute.join()
    recipe = override(with_text(recipe_of(folder, minutes), texts), settings)
    before = checkpoints.model_folder(folder)  # the newest, whatever is written there meanwhile
    last = run.pretrain(recipe, out, stream=stream)
    if not processes.first:
        return last
    made = worth(before, out, old=folder / HELD_OUT)
    tables.add(out, [made])
    printer(stream)(tables.for_terminal(made))
    page.write_report(out)
    return last


def worth(before: Path, out: Path, old: Path) -> tables.Table:
    """The losses of the run `out` and of the model `before` it, on its held-out text and on that of
    the store `old`, if it is there and can be read in the rows of the run."""
    recipe = read(out / run.RECIPE)
    assert isinstance(recipe.model, Folder)
    known = recipe.model.architecture is None  # else heads were drawn
    paths = [before] * known + [checkpoints.newest(out)]
    found = {"the new text": [_loss(recipe, path, out / HELD_OUT) for path in paths]}
    if old.is_dir():
        # Rows of another kind may ask for what was not written down when that text was prepared.
        with contextlib.suppress(MaskwrightError):
            found["the text before"] = [_loss(recipe, path, old) for path in paths]
    rows = []
    for name, told in found.items():
        gap = f"{told[-1] - told[0]:+.4f}" if known else "–"
        rows.append([name, *["–"] * (not known), *(f"{loss:.4f}" for loss in told), gap])
    return {
        "title": "What training further was worth",
        "head": ["held-out loss", "before", "after", "change"],
        "rows": rows,
        "note": "In nats for each target; a model without scores over the vocabulary has no loss "
        "before."
        if not known
        else "In nats for each target, the same rows and the same questions before and after.",
    }


def _loss(recipe: Recipe, path: Path, folder: Path) -> float:
    loaded = pretrained.load(path)
    assert loaded.tokenizer is not None
    store = TokenStore.open(folder, tokenizer_fingerprint=loaded.tokenizer.fingerprint)
    objective = build.objective(recipe, loaded.model, loaded.tokenizer)
    checkpoints.take_others(objective, path)
    device = machine.choose(recipe.training.precision, recipe.training.device).device
    figures = likelihood.evaluate(
        objective.to(device),
        held_out_rows(recipe, store),
        rows=recipe.evaluation.rows,
        batch_rows=recipe.evaluation.batch,
    )
    return figures.loss


def _objective(path: Path, form: Layout) -> str:
    if form.config.encoder is None:
        return "causal"
    vocabulary = build.vocabulary(Tokenizer.load(path))
    if form.config.decoder is None:
        if vocabulary.mask is None:
            raise IncompatibleError("an encoder alone learns by filling masks", where=path,
                                    found="a tokenizer without a mask token",
                                    do="name a folder with the decoder, too")  # fmt: skip
        return "masked"
    if vocabulary.sentinels:
        return "span-corruption"
    if vocabulary.mask is None:
        raise IncompatibleError("no mark for what is cut out of a text", where=path,
                                found="a tokenizer with neither sentinels nor a mask",
                                do="write a recipe with an objective of your own")  # fmt: skip
    return "denoising"


def _architecture(form: Layout) -> str | None:
    """The class with scores over the vocabulary and nothing else, where the folder's has none."""
    if form.family is None or form.config.vocabulary_head is not None:
        return None
    for name, kit in form.family.architectures.items():
        if (
            kit.vocabulary
            and not kit.heads
            and kit.decoder in (None, form.config.decoder is not None)
        ):
            return name
    return None
