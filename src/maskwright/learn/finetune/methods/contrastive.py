"""Contrastive training for few labels, then a linear model on the new vectors (SetFit, Tunstall et
al. 2022, arXiv:2209.11055, section 3).

Pairs of training texts are drawn, half of them with a label in common. The network learns that the
cosine of the vectors of a pair is 1 if the labels are the same, 0 if they differ, and for several
labels the share of the labels that both have (Jaccard). N rows make up to N² pairs, so the network
learns more from few labels than from the labels alone. The linear head is then that of
`embeddings`, fitted to the vectors of the trained network.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.randomness import key, uniforms
from maskwright.learn.finetune.method import STEP, FitInput, NetworkMethod

if TYPE_CHECKING:
    from maskwright.learn.finetune.tune import Settings
    from maskwright.model.inference.encoded import EncodedExamples


class ContrastiveFewShot(NetworkMethod):
    """Contrastive training of all layers, and logistic regression on their vectors."""

    name = "contrastive"
    seeded = True
    pooling = "mean"
    most_rows = 1_000
    problems = ("single", "multi")
    settings = (
        *("seeds", "epochs", "batch", "accumulate", "gradient_checkpointing"),
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

        model, settings, examples = fit_input.model, fit_input.settings, fit_input.train.examples
        learner = fit_input.learner
        (head,) = model.config.heads
        text_position = "lasttoken" if learner.collation.last else "cls"
        pooling = text_position if head.pooling == "place" else head.pooling
        body = [name for name, _ in model.named_parameters() if not name.startswith("heads.")]
        unfreeze = freeze.train_only(model, body)
        count = self.steps(len(examples), settings) * settings.batch
        tuned = tune(
            Contrast(model, "similarity", (pooling,)),
            _pairs(examples, head.labels, count, settings.seed),
            learner.collation,
            replace(settings, epochs=1, least_steps=0),
            machine=learner.machine,
            hooks=[fit_input.hook],
        )
        unfreeze()
        fit_input.fit_head(FrozenVectors(model, learner)(fit_input.train))
        return tuned.losses

    def cost(self, count: int, settings: Settings) -> float:
        return count + 2.0 * STEP * settings.batch * self.steps(count, settings)

    def steps(self, count: int, settings: Settings) -> int:
        """Each epoch has two pairs for every row, one with the same label and one without."""
        return max(settings.least_steps, settings.epochs * -(-2 * count // settings.batch))


def _pairs(examples: EncodedExamples, labels: int, count: int, seed: int) -> EncodedExamples:
    """Draw `count` pairs of examples: of every two pairs one has a label in common. The label of a
    pair is the similarity of its labels, 0 to 1."""
    targets = examples.labels if examples.labels.ndim == 2 else np.eye(labels)[examples.labels]
    numbers = np.arange(count)
    draws = uniforms(key("pair", seed, numbers), 1)[:, 0]
    pairs = np.zeros((count, 2), np.int64)
    similarities = np.zeros(count, np.float32)
    for number, draw in zip(numbers, draws, strict=True):
        anchor = int(number // 2) % len(examples)
        similarity = _jaccard(targets, targets[anchor])
        candidates = np.flatnonzero((similarity > 0) == (number % 2 == 0))
        partners = candidates[candidates != anchor]
        candidates = partners if len(partners) else candidates
        partner = int(candidates[int(draw * len(candidates))]) if len(candidates) else anchor
        pairs[number] = anchor, partner
        similarities[number] = similarity[partner]
    return examples.chosen(pairs.ravel(), similarities, choices=2)


def _jaccard(targets: NDArray[Any], target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the similarity (N,) of sets of labels to another; two empty sets are the same."""
    shared = np.minimum(targets, target).sum(1)
    union = np.maximum(targets, target).sum(1)
    return np.where(union > 0, shared / np.maximum(union, 1), 1.0)


METHOD = ContrastiveFewShot()
