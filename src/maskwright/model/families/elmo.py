"""ELMo (Peters et al. 2018): words read by characters, and LSTM cells in either direction.

Notable: the directions share the vectors of words and nothing else, and each state is one half from
the left and one from the right; layers above the first one add their input. The softmax that both
learn by belongs to the objective `bidirectional-lm`. Heads read the mean over the words, and with
`--layer-mix` all layers. The published cells clip their numbers at 3, too; these do not.
transformers has no such model, which `library` in config.json says.
"""

from __future__ import annotations

from dataclasses import replace
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
from maskwright.model.nn.config import (
    CharacterTokens,
    Embeddings,
    Recurrent,
    Stack,
    TransformerConfig,
)

PAPERS = ["https://arxiv.org/abs/1802.05365", "https://arxiv.org/abs/1602.02410"]
STYLE = "bert"

ARCHITECTURES = {
    "Elmo": Architecture(),
    "ElmoForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
    "ElmoForTokenClassification": Architecture(heads=(("classifier", "token"),)),
    "ElmoForMultipleChoice": Architecture(heads=(("classifier", "choice"),), labels=1),
    "ElmoForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
COORDINATES: dict[str, Coordinate] = {
    "vocab_size": "tokens.vocabulary",
    "projection_size": "tokens.width",
    "max_characters": "tokens.longest",
    "character_size": "tokens.character_width",
    "filter_widths": lambda c: len(getattr(c.tokens, "filters", ())),
    "filters": lambda c: list(getattr(c.tokens, "filters", ())),
    "num_highways": "tokens.highways",
    "cell_size": "encoder.blocks.0.cells",
    "num_hidden_layers": "encoder.blocks.#",
    "hidden_dropout": "encoder.blocks.0.dropout",
    "classifier_dropout": head_field("dropout", "classifier", "span"),
    "num_labels": head_field("labels", "sequence", "token"),
}
CONSTANTS: dict[str, Any] = {"library": "maskwright"}
SIZES = {
    "original": {
        **{"vocab_size": 793_471, "projection_size": 512, "max_characters": 50},
        **{"character_size": 16, "filter_widths": 7, "num_highways": 2},
        **{"filters": [32, 32, 64, 128, 256, 512, 1_024]},
        **{"cell_size": 4_096, "num_hidden_layers": 2},
    }
}


def config(fields: Fields) -> TransformerConfig:
    """A config.json -> our config."""
    fields.fixed(CONSTANTS)
    architecture, width = fields.architecture(ARCHITECTURES), fields.integer("projection_size", 512)
    count = fields.integer("num_hidden_layers", 2)
    lowest = Recurrent(
        cells=fields.integer("cell_size", 4_096),
        width=width,
        directions=2,
        dropout=fields.rate("hidden_dropout", 0.1),
    )
    top = {"dropout": fields.rate("classifier_dropout", 0.1)}
    pooled: dict[str, Any] = {**top, "pooling": "mean"}
    options = {"sequence": pooled, "choice": pooled, "token": top, "span": top}
    return TransformerConfig(
        width=2 * width,
        tokens=CharacterTokens(
            vocabulary=fields.integer("vocab_size"),
            width=width,
            longest=fields.integer("max_characters", 50),
            character_width=fields.integer("character_size", 16),
            filters=tuple(fields.integers("filters", 64, fields.integer("filter_widths", 7))),
            highways=fields.integer("num_highways", 2),
        ),
        encoder=Stack(
            embeddings=Embeddings(twice=True),
            blocks=(lowest,) + (replace(lowest, residual=True),) * (count - 1),
            weights_of=tuple(range(count)),
        ),
        heads=heads(architecture, fields, options),
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor: our name is theirs but for the part in front."""
    assert config.encoder is not None and isinstance(config.tokens, CharacterTokens)
    ends = ["weight", "bias", "spelling", "characters.weight"]
    for name, modules in (
        ("filters", len(config.tokens.filters)),
        ("highways", config.tokens.highways),
    ):
        ends += [f"{name}.{n}.{end}" for n in range(modules) for end in ("weight", "bias")]
    rules: list[Rule] = [Rename(f"words.{end}", f"tokens.{end}") for end in ends]
    for layer, block in enumerate(config.encoder.blocks):
        assert isinstance(block, Recurrent)
        names = ("input", "state", "bias") + ("project",) * (block.width < block.cells)
        for direction, side in enumerate(("forward", "backward")):
            ours = f"encoder.blocks.{layer}.directions.{direction}"
            rules += [Rename(f"{side}.{layer}.{name}", f"{ours}.{name}") for name in names]
    return [*rules, *head_rules(config, {})]
