"""A linear model on fixed vectors: each text is computed once by the frozen network, and a logistic
or ridge regression is fitted to its vectors.

The fitted coefficients are the weights of the linear head of `probe`, and the result is of the same
kind. Of a pair the network reads both texts together, as with every other method; words to be
tagged have a vector each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from maskwright.learn.finetune.methods.base.fitted import FitInput, FittedMethod

if TYPE_CHECKING:
    from maskwright.learn.finetune.tune import TrainingResult


class FrozenEmbeddings(FittedMethod):
    """Logistic or ridge regression on frozen vectors."""

    name = "embeddings"
    adapter = "probe"
    pooling = "mean"
    settings = ("class_weights",)
    heads = ("sequence", "token")
    long = ("head", "tail", "head-and-tail", "vectors-mean", "vectors-max")

    def fit(self, fit_input: FitInput) -> TrainingResult:
        from maskwright.learn.finetune.methods.base.linear import fit_linear
        from maskwright.learn.finetune.tune import TrainingResult

        begin = time.perf_counter()
        model, labels = fit_input.model, fit_input.train.examples.labels
        (head,) = model.config.heads
        vectors = fit_input.vectors(fit_input.train)
        problem, settings = fit_input.task_type.problem, fit_input.settings
        fit_linear(
            vectors, labels, problem, head.labels, settings.seed, settings.class_weights
        ).put_into(model)
        return TrainingResult(model.eval(), [], [], 1, time.perf_counter() - begin)


METHOD = FrozenEmbeddings()
