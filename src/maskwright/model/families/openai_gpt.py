"""GPT, the first: a causal decoder, normalised after each sub-layer, with learned positions.

Notable: what this model type calls `gelu` is the tanh form; the exact form cannot be said. The
inner width is always four times the width, there is no norm at the entry or the end, and
projections are stored as (in, out), with query, key and value as one matrix. A text is classified
by the state of its last token, which alone has seen all of it.
"""

from __future__ import annotations

from typing import Any

from maskwright.model.families.base import gpt_decoder
from maskwright.model.families.base.family import Architecture, Coordinate, Fields
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import FeedForward, TransformerConfig

PAPERS = [
    "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf"
]
STYLE = "gpt2"
PREFIX = gpt_decoder.PREFIX
# Buffers that older files carry: the causal triangle, and the numbers 0, 1, 2, …
IGNORED = (".attn.bias", "position_ids")

ARCHITECTURES = {
    "OpenAIGPTModel": Architecture(),
    "OpenAIGPTLMHeadModel": Architecture(vocabulary=True, generates=True),
    "OpenAIGPTForSequenceClassification": Architecture(heads=(("classifier", "sequence"),)),
}

ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}
THEIRS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}

COORDINATES: dict[str, Coordinate] = {
    **gpt_decoder.COORDINATES,
    "afn": lambda c: (
        c.decoder and THEIRS.get(c.decoder.attention_blocks[0].feed_forward.activation)
    ),
}
CONSTANTS = gpt_decoder.CONSTANTS

SIZES: dict[str, dict[str, Any]] = {
    "base": {
        "vocab_size": 40478,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 512,
        "afn": "gelu",
        **gpt_decoder.RATES,
    }
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `openai-gpt` config -> our config."""
    width, activation = fields.integer("n_embd", 768), fields.choice("afn", ACTIVATIONS, "gelu")
    return gpt_decoder.decoder_model(
        fields,
        architecture=fields.architecture(ARCHITECTURES),
        vocabulary=40478,
        positions=512,
        feed_forward=FeedForward(width=4 * width, activation=activation),
        placement="post",
        head_options={"classifier": {"bias": False}},
    )


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of a GPT."""
    names = {"classifier": ("score",)}
    return gpt_decoder.weights(config, "tokens_embed", "positions_embed", names)
