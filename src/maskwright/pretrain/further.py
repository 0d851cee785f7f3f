"""A recipe for training a model further on text of another kind (Gururangan et al. 2020,
arXiv:2004.10964).

A run goes on with the objective and the rows it was trained with. Of any other folder these follow
from what the model is: an encoder fills masks, a decoder reads on, and a model of both writes what
was cut out of its text.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maskwright.checkpoint import pretrained
from maskwright.checkpoint.layout import Layout
from maskwright.errors import IncompatibleError
from maskwright.pretrain import build, checkpoints
from maskwright.recipes import recipe as recipes
from maskwright.recipes.recipe import Corpus, Folder, ObjectiveChoice, Recipe, RowChoice, Training
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.optimizer import AdamW
from maskwright.train.schedule import Budget, Schedule

MINUTES = 10.0
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
    if recipes.is_run(folder):
        run = recipes.read(folder / "recipe.toml")
        optimizer = replace(
            run.training.optimizer, learning_rate=SHARE * run.training.optimizer.learning_rate
        )
        training = replace(run.training, budget=budget, phases=(), optimizer=optimizer,
                           schedule=SCHEDULE)  # fmt: skip
        begun = replace(run, corpus=Corpus(), model=Folder(path=str(folder)), training=training)
        return replace(begun, name=f"{run.name}-further", note=f"{run.note}, further")
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
        tokenizer=recipes.TokenizerFolder(path=str(path)),
        model=Folder(path=str(path), architecture=_architecture(form)),
        objective=ObjectiveChoice(name=_objective(path, form), options={}),
        rows=RowChoice(length=min(LENGTH, longest)),
        training=Training(
            budget=budget, batch=BATCH, optimizer=AdamW(learning_rate=rate), schedule=SCHEDULE
        ),
    )


def _objective(path: Path, form: Layout) -> str:
    if form.config.encoder is None:
        return "causal"
    if form.config.decoder is None:
        return "masked"
    vocabulary = build.vocabulary(Tokenizer.load(path))
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
