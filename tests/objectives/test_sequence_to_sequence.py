"""Given pairs: who reads what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from maskwright.base.errors import IncompatibleError
from maskwright.model.objectives.modules.sequence_to_sequence import SequenceToSequenceObjective
from maskwright.model.objectives.sequence_to_sequence import Options
from maskwright.text.store.rows import Rows
from objectives.texts import END, PAD, epochs, read, rows_of
from toys import VOCABULARY, encoder_decoder


def objective() -> SequenceToSequenceObjective:
    return SequenceToSequenceObjective(encoder_decoder(), Options(), VOCABULARY)


def pairs(questions: list[list[tuple[list[int], list[int]]]]) -> Rows:
    clean = rows_of([[[*a, *b] for a, b in row] for row in questions])
    segments = np.zeros_like(clean.tokens)
    for line, row in enumerate(questions):
        flat = [s for a, b in row for s in [0] * len(a) + [1] * len(b)]
        segments[line, : len(flat)] = flat
    return replace(clean, segments=segments)


PAIRS = [[([5, 6, 7, END], [8, END]), ([9, END], [10, 11, END])], [([12, END], [13, 14, 15, END])]]


def test_inputs_are_read_and_targets_are_wanted() -> None:
    clean = pairs(PAIRS)
    batch = objective().corrupt(clean, epochs(clean), 0)
    assert batch.tokens.shape == clean.tokens.shape
    assert read(batch) == [(a, [PAD, *b[:-1]], b) for row in PAIRS for a, b in row]


def test_rows_without_segments_are_refused() -> None:
    clean = replace(pairs(PAIRS), segments=None)
    with pytest.raises(IncompatibleError) as refused:
        objective().corrupt(clean, epochs(clean), 0)
    assert refused.value.where == "rows.segments"
