"""A text in, another text out, both given (Sutskever et al. 2014, arXiv:1409.3215).

Supervised learning of translation, summaries, or any other task of text to text (Raffel
et al. 2020, arXiv:1910.10683, 2.4). In the rows a document is a pair: its tokens of segment
0 are read by the encoder, those of segment 1 are wanted of the decoder, special tokens included.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from maskwright.data.batch import Batch
from maskwright.data.rows import Rows
from maskwright.errors import IncompatibleError
from maskwright.nn.transformer import Transformer
from maskwright.objectives.parts.encoder_decoder import EncoderDecoder, Start
from maskwright.objectives.parts.objective import Vocabulary
from maskwright.objectives.parts.sequences import documents_of
from maskwright.objectives.parts.spec import Spec

SPEC = Spec(rows="parallel")


@dataclass(frozen=True, kw_only=True)
class Options:
    """`start` is the token the decoder begins with, as the model was pretrained."""

    start: Start = "pad"


class SequenceToSequence(EncoderDecoder):
    """The loss of the given targets."""

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        if rows.segments is None:
            raise IncompatibleError(
                "the rows do not say what is read and what is to be written",
                where="rows.segments",
                wanted="segment 0 for inputs, 1 for targets",
            )
        pairs, origin = documents_of(rows)
        written = rows.segments[rows.documents != 0] == 1
        return self.batch(pairs.where(~written), pairs.where(written), origin, rows.tokens.shape)


def build(model: Transformer, options: Options, vocabulary: Vocabulary) -> SequenceToSequence:
    return SequenceToSequence("sequence-to-sequence", model, vocabulary, options.start)
