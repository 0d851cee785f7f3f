"""The module of `sequence-to-sequence`; for the method see `../sequence_to_sequence.py`."""

from __future__ import annotations

import numpy as np

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.corruption import documents_of
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.sequence_to_sequence import Options
from maskwright.text.store.rows import Rows


class SequenceToSequenceObjective(EncoderDecoder):
    """Prediction of the targets in the data from their sources."""

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__("sequence-to-sequence", model, vocabulary, options.start)

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        if rows.segments is None:
            raise IncompatibleError(
                "the rows do not mark sources and targets",
                where="rows.segments",
                wanted="segment 0 for inputs, 1 for targets",
            )
        pairs, origin = documents_of(rows)
        is_target = rows.segments[rows.documents != 0] == 1
        return self.batch(
            pairs.where(~is_target), pairs.where(is_target), origin, rows.tokens.shape
        )


build = SequenceToSequenceObjective
