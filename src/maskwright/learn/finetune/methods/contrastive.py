"""Contrastive training for few labels, then a linear model on the new vectors (as SetFit, Tunstall
et al. 2022, arXiv:2209.11055, section 3).

The network learns that the cosine of the vectors of two texts is 1 if their labels are the same, 0
if they differ, and for several labels the share of the labels that both have. N rows make up to N²
pairs, so it learns more from few labels than from the labels alone. Unlike SetFit, which draws
pairs and reads both texts of each, a step learns from all pairs of the texts that it reads, which
takes a sixth of the time (docs/decisions/0068-methods-for-few-labels.md). The linear head is then
that of `embeddings`, fitted to the vectors of the trained network.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from maskwright.learn.finetune.method import STEP, FitInput, NetworkMethod

if TYPE_CHECKING:
    from maskwright.learn.finetune.tune import Settings


class ContrastiveFewShot(NetworkMethod):
    """Contrastive training of all layers, and logistic regression on their vectors."""

    name = "contrastive"
    seeded = True
    pooling = "mean"
    most_rows = 1_000
    least_steps = 25
    problems = ("single", "multi")
    settings = (
        *("seeds", "epochs", "batch", "gradient_checkpointing"),
        *("rate", "weight_decay", "warmup", "least_steps", "class_weights"),
    )
    selection = (
        "The penalty was selected by cross-validation within the training part, the seed on "
        "validation data."
    )

    def fit(self, fit_input: FitInput) -> list[float]:
        from maskwright.learn.finetune.methods.base.frozen_vectors import FrozenVectors
        from maskwright.learn.finetune.tune import tune
        from maskwright.model.adapters.base import freeze
        from maskwright.model.objectives.modules.supervised import Contrast

        model, examples, learner = fit_input.model, fit_input.train.examples, fit_input.learner
        (head,) = model.config.heads
        # "place" is the state of the token that represents a text.
        text_position = "lasttoken" if learner.collation.last else "cls"
        pooling = text_position if head.pooling == "place" else head.pooling
        body = [name for name, _ in model.named_parameters() if not name.startswith("heads.")]
        unfreeze = freeze.train_only(model, body)
        tuned = tune(
            Contrast(model, "labels", (pooling,)),
            examples,
            learner.collation,
            _in_one_epoch(fit_input.settings, len(examples)),
            machine=learner.machine,
            hooks=[fit_input.hook],
        )
        unfreeze()
        fit_input.fit_head(FrozenVectors(model, learner)(fit_input.train))
        return tuned.losses

    def cost(self, count: int, settings: Settings) -> float:
        texts = _in_one_epoch(settings, count).batch * self.steps(count, settings)
        return count + float(STEP * texts)

    def steps(self, count: int, settings: Settings) -> int:
        from maskwright.learn.finetune.tune import steps_of

        return steps_of(_in_one_epoch(settings, count), count)


def _in_one_epoch(settings: Settings, count: int) -> Settings:
    """Return the settings with one epoch, and batches of at least two texts, as there are no pairs
    in one and none between portions of a step, and of about equal size."""
    num_batches = -(-count // max(2, settings.batch))
    steps = max(settings.least_steps, settings.epochs * num_batches)
    batch = max(2, -(-count // num_batches))
    return replace(settings, batch=batch, accumulate=1, epochs=1, least_steps=steps)


METHOD = ContrastiveFewShot()
