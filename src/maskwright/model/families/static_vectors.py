"""Static vectors: a vector per word and no layers (word2vec, Mikolov et al. 2013; GloVe,
Pennington et al. 2014; fastText, Bojanowski et al. 2017).

Notable: the encoder has no layers, so that a word's state is its vector whatever stands around it.
Heads for whole texts read the mean over the words. transformers has no such model, which
`library` in config.json says. The one tensor is `embedding.weight`; with `subword_buckets` there
are also the vectors of n-grams and the bytes of the tokens (`nn/subwords.py`).
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base.family import (
    Architecture,
    Coordinate,
    Fields,
    head_field,
    head_rules,
    heads,
)
from maskwright.model.families.base.weights import Rename, Rule
from maskwright.model.nn.config import Embeddings, Stack, SubwordTokens, Tokens, TransformerConfig

PAPERS = [
    "https://arxiv.org/abs/1301.3781",
    "https://arxiv.org/abs/1310.4546",
    "https://aclanthology.org/D14-1162",
    "https://arxiv.org/abs/1607.04606",
]
STYLE = "gpt2"

ARCHITECTURES = {
    "StaticVectors": Architecture(),
    "StaticVectorsForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "StaticVectorsForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "StaticVectorsForMultipleChoice": Architecture(heads=(("classifier", "choice"),), labels=1),
    "StaticVectorsForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
POOLING: dict[str, dict[str, Any]] = {
    "sequence": {"pooling": "mean"},
    "choice": {"pooling": "mean"},
}

COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "hidden_size": "width",
    "subword_buckets": lambda c: getattr(c.tokens, "buckets", None),
    "shortest_subword": lambda c: getattr(c.tokens, "shortest_ngram", None),
    "longest_subword": lambda c: getattr(c.tokens, "longest_ngram", None),
    "max_characters": lambda c: getattr(c.tokens, "longest", None),
    "num_labels": head_field("labels", "sequence", "token"),
}
CONSTANTS: dict[str, Any] = {"library": "maskwright"}
# The vectors that were published with the papers.
SIZES = {
    "google-news": {"vocab_size": 3_000_000, "hidden_size": 300},
    "glove-6b": {"vocab_size": 400_000, "hidden_size": 300},
}


def config(fields: Fields) -> TransformerConfig:
    """A config.json -> our config."""
    fields.fixed(CONSTANTS)
    architecture, width = fields.architecture(ARCHITECTURES), fields.integer("hidden_size", 100)
    tokens: Tokens | SubwordTokens = Tokens(vocabulary=fields.integer("vocab_size"), width=width)
    options = {
        "buckets": fields.integer("subword_buckets", 0, smallest=0),
        "shortest_ngram": fields.integer("shortest_subword", 3),
        "longest_ngram": fields.integer("longest_subword", 6),
        "longest": fields.integer("max_characters", 50),
    }
    if options["buckets"]:
        tokens = SubwordTokens(vocabulary=tokens.vocabulary, width=width, **options)
    return TransformerConfig(
        width=width,
        tokens=tokens,
        encoder=Stack(embeddings=Embeddings(), blocks=(), weights_of=()),
        heads=heads(architecture, fields, POOLING),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """The tables, and what stands on them."""
    rules: list[Rule] = [Rename("embedding.weight", "tokens.weight")]
    if isinstance(config.tokens, SubwordTokens):
        rules = [Rename("embedding.weight", "tokens.table.weight")]
        rules += [Rename(name, f"tokens.{name}") for name in ("subwords.weight", "spelling")]
    return [*rules, *head_rules(config, {})]
