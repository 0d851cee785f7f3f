"""A text in, another text out, both given (Sutskever et al. 2014, arXiv:1409.3215).

Supervised learning of translation, summaries, or any other task of text to text (Raffel
et al. 2020, arXiv:1910.10683, 2.4). In the rows a document is a pair: its tokens of segment
0 are read by the encoder, those of segment 1 are wanted of the decoder, special tokens included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskwright.model.objectives.base.spec import Spec, Start

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Vocabulary
    from maskwright.model.objectives.modules.sequence_to_sequence import SequenceToSequence

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


def build(model: Transformer, options: Options, vocabulary: Vocabulary) -> SequenceToSequence:
    from maskwright.model.objectives.modules.sequence_to_sequence import SequenceToSequence

    return SequenceToSequence("sequence-to-sequence", model, vocabulary, options.start)
