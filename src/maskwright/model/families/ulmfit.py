"""ULMFiT's language model, the AWD-LSTM (Merity et al. 2018; Howard & Ruder 2018).

Notable: layers of LSTM cells read from left to right; the last one is as wide as the token vectors,
which are the output layer, too. Every dropout is drawn once for a row or once for a word, and the
weights between steps are dropped. Heads for whole texts read the last state, the maximum and the
mean. transformers has no such model, which `library` in config.json says.
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
    projection_rules,
    tied,
)
from maskwright.model.families.base.weights import Rename, Rule
from maskwright.model.nn.config import (
    Embeddings,
    Recurrent,
    Stack,
    Tokens,
    TransformerConfig,
    VocabularyHead,
)

PAPERS = ["https://arxiv.org/abs/1801.06146", "https://arxiv.org/abs/1708.02182"]
STYLE = "gpt2"

ARCHITECTURES = {
    "Ulmfit": Architecture(),
    "UlmfitForCausalLM": Architecture(vocabulary=True, generates=True),
    "UlmfitForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "UlmfitForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "UlmfitForMultipleChoice": Architecture(heads=(("classifier", "choice"),), labels=1),
    "UlmfitForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
POOLINGS = {"concat": "concat", "cls": "place", "mean": "mean", "max": "max"}


def _pooling(config: TransformerConfig) -> str | None:
    names = {ours: theirs for theirs, ours in POOLINGS.items()}
    return next((names[head.pooling] for head in config.heads if head.pools), None)


COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "embedding_size": "width",
    "hidden_size": "decoder.blocks.0.cells",
    "num_hidden_layers": "decoder.blocks.#",
    "word_dropout": "tokens.dropout",
    "input_dropout": "decoder.embeddings.dropout",
    "hidden_dropout": "decoder.blocks.0.dropout",
    "output_dropout": lambda c: c.decoder and getattr(c.decoder.blocks[-1], "dropout", None),
    "weight_dropout": "decoder.blocks.0.weight_dropout",
    "classifier_dropout": head_field("dropout", "classifier", "span"),
    "classifier_pooling": _pooling,
    "num_labels": head_field("labels", "sequence", "token"),
    "tie_word_embeddings": tied,
}
CONSTANTS: dict[str, Any] = {"library": "maskwright"}
SIZES = {
    "base": {
        "vocab_size": 60_002,
        "embedding_size": 400,
        "hidden_size": 1_150,
        "num_hidden_layers": 3,
        "word_dropout": 0.02,
        "input_dropout": 0.25,
        "hidden_dropout": 0.15,
        "output_dropout": 0.1,
        "weight_dropout": 0.2,
    }
}
# Section 3.2 and 3.3: rates by layer, slanted triangular rates, layers unfrozen one by one.
FINE_TUNING = {"method": "gradual", "layer_decay": 1 / 2.6, "schedule": "slanted"}


def config(fields: Fields) -> TransformerConfig:
    """A config.json -> our config."""
    fields.fixed(CONSTANTS)
    architecture, width = fields.architecture(ARCHITECTURES), fields.integer("embedding_size", 400)
    cells, count = fields.integer("hidden_size", 1_150), fields.integer("num_hidden_layers", 3)
    dropout = fields.rate("weight_dropout", 0.2)
    hidden, output = fields.rate("hidden_dropout", 0.15), fields.rate("output_dropout", 0.1)
    hidden_layer = Recurrent(cells=cells, width=cells, dropout=hidden, weight_dropout=dropout)
    output_layer = Recurrent(cells=width, width=width, dropout=output, weight_dropout=dropout)
    vocabulary = fields.integer("vocab_size")
    top = {"dropout": fields.rate("classifier_dropout", 0.1)}
    pooled = {**top, "pooling": fields.choice("classifier_pooling", POOLINGS, "concat")}
    head = VocabularyHead(tied=fields.flag("tie_word_embeddings", True), bias=True)
    return TransformerConfig(
        width=width,
        tokens=Tokens(
            vocabulary=vocabulary, width=width, dropout=fields.rate("word_dropout", 0.02)
        ),
        decoder=Stack(
            embeddings=Embeddings(dropout=fields.rate("input_dropout", 0.25), locked=True),
            blocks=(hidden_layer,) * (count - 1) + (output_layer,),
            weights_of=tuple(range(count)),
        ),
        vocabulary_head=head if architecture.vocabulary else None,
        heads=heads(
            architecture, fields, {"sequence": pooled, "choice": pooled, "token": top, "span": top}
        ),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor: cells under the names of `torch.nn.LSTM`, with one bias."""
    rules: list[Rule] = [Rename("encoder.weight", "tokens.weight")]
    assert config.decoder is not None
    for layer in range(len(config.decoder.blocks)):
        ours = f"decoder.blocks.{layer}.directions.0"
        for theirs, name in (("weight_ih", "input"), ("weight_hh", "state"), ("bias", "bias")):
            rules.append(Rename(f"rnns.{layer}.{theirs}", f"{ours}.{name}"))
    if config.vocabulary_head is not None:
        rules.append(Rename("decoder.bias", "vocabulary_head.bias"))
    return [*rules, *projection_rules(config, "decoder.weight"), *head_rules(config, {})]
