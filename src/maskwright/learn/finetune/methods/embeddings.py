"""A linear model on fixed vectors: each text is computed once by the frozen network, and a logistic
or ridge regression is fitted to its vectors.

The fitted coefficients are the weights of the linear head of `probe`, and the result is of the same
kind. Of a pair a sentence-transformers folder reads each text by itself, as it was trained to, and
the regression is fitted to how the two vectors differ; other models read both together. Words to
be tagged have a vector each.
"""

from __future__ import annotations

from maskwright.learn.finetune.method import FitInput, NetworkMethod


class FrozenEmbeddings(NetworkMethod):
    """Logistic or ridge regression on frozen vectors."""

    name = "embeddings"
    adapter = "probe"
    pooling = "mean"
    takes_images = True
    settings = ("class_weights",)
    heads = ("sequence", "token")
    long = ("head", "tail", "head-and-tail", "vectors-mean", "vectors-max", "apart")

    def fit(self, fit_input: FitInput) -> list[float]:
        fit_input.fit_head(fit_input.learner.frozen_vectors(fit_input.train))
        fit_input.model.eval()
        return []


METHOD = FrozenEmbeddings()
