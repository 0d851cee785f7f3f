"""A text in, another text out, both given (Sutskever et al. 2014, arXiv:1409.3215).

Supervised learning of translation, summaries, or any other task of text to text (Raffel
et al. 2020, arXiv:1910.10683, 2.4). In the rows a document is a pair: its tokens of segment
0 are read by the encoder, those of segment 1 are wanted of the decoder, special tokens included.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec, Start

SPEC = Spec(
    rows="parallel",
    trains_decoder=True,
    usual_for="parallel",
    token_parts=("sequence-to-sequence",),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """`start` is the token the decoder begins with, as the model was pretrained."""

    start: Start = "pad"
