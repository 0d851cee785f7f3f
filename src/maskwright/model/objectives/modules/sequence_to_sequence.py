"""What `sequence-to-sequence` computes (the account of it: `../sequence_to_sequence.py`)."""

from __future__ import annotations

import numpy as np

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.sequences import documents_of
from maskwright.text.store.rows import Rows


class SequenceToSequence(EncoderDecoder):
    """The loss of the given targets."""

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        if rows.segments is None:
            raise IncompatibleError(
                "the rows do not mark sources and targets",
                where="rows.segments",
                wanted="segment 0 for inputs, 1 for targets",
            )
        pairs, origin = documents_of(rows)
        written = rows.segments[rows.documents != 0] == 1
        return self.batch(pairs.where(~written), pairs.where(written), origin, rows.tokens.shape)
