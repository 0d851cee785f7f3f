"""LED: a Longformer that writes, for summaries of long texts; the encoder sees a window and global
tokens, the decoder is BART's (Beltagy et al. 2020, arXiv:2004.05150, section 7).

Notable: unlike BART's, the tables of positions have no rows in front, and the encoder's is longer
than the decoder's. transformers has no global token unless each call names them, and the published
models were trained with the first token; here the first is global where config.json does not say
`global_attention` (`families/base/sliding_window.py`), and the question where answers are marked.
"""

from __future__ import annotations

from maskwright.model.families.base import post_norm_pair, sliding_window
from maskwright.model.families.base.family import Architecture, Coordinate, Fields
from maskwright.model.families.base.weights import Rule
from maskwright.model.nn.config import Learned, TransformerConfig

PAPERS = ["https://arxiv.org/abs/2004.05150"]
STYLE = "roberta"
PREFIX = "led."
TOKEN_IDS = {"decoder_start_token_id": "end", "sep_token_id": "separator"}

ARCHITECTURES = {
    "LEDModel": Architecture(),
    "LEDForConditionalGeneration": Architecture(vocabulary=True, generates=True),
    "LEDForQuestionAnswering": Architecture(heads=(("span", "span"),), labels=2),
}
COORDINATES: dict[str, Coordinate] = {
    **{key: at for key, at in post_norm_pair.COORDINATES.items() if key != "num_labels"},
    **sliding_window.coordinates("first"),
    "max_encoder_position_embeddings": "encoder.embeddings.positions.length",
    "max_decoder_position_embeddings": "decoder.embeddings.positions.length",
    "sep_token_id": "encoder.global_tokens.separator",
}
CONSTANTS = post_norm_pair.CONSTANTS
SIZES = {
    name: {
        **post_norm_pair.sized(*shape),
        "attention_window": 1024,
        "max_encoder_position_embeddings": 16384,
        "max_decoder_position_embeddings": 1024,
        "sep_token_id": 2,
    }
    for name, shape in {"base": (6, 768), "large": (12, 1024)}.items()
}


def config(fields: Fields) -> TransformerConfig:
    """Hugging Face `led` config -> our config."""
    fields.fixed({"tie_word_embeddings": True, "is_encoder_decoder": True, "is_decoder": False})
    architecture = fields.architecture(ARCHITECTURES)
    encoder, decoder = (
        post_norm_pair.stack(
            fields,
            side,
            Learned(length=fields.integer(f"max_{side}_position_embeddings", length)),
        )
        for side, length in (("encoder", 16384), ("decoder", 1024))
    )
    rule = sliding_window.global_tokens(fields, architecture, "first")
    sizes = fields.integers("attention_window", 512, len(encoder.blocks))
    encoder = sliding_window.with_windows(encoder, sizes, rule)
    return post_norm_pair.model(fields, architecture, encoder, decoder)


ENCODER_NAMES = {
    f"attention.{name}": f"self_attn.longformer_self_attn.{name}"
    for projection in ("query", "key", "value")
    for name in (projection, f"{projection}_global")
} | {"attention.output": "self_attn.output"}


def weights(config: TransformerConfig) -> list[Rule]:
    """Every tensor of an LED."""
    return post_norm_pair.weights(config, PREFIX, ENCODER_NAMES)
