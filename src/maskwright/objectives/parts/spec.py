"""What an objective says of itself before anything is built: its `SPEC`.

A `Spec` decides which rows are made, what a store has to record, which further networks are opened,
and how the model that was trained so is asked and measured (`models/of_recipe.py` saves that with
the model). Outside `objectives/` and `recipes/` an objective is known by its Spec, not its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

# Rows that are made of text (`pretrain/rows.py`); of two sentences; and what labelled data gives.
Rows = Literal["documents", "stream", "blocks", "pairs", "swapped-pairs", "parallel", "labelled"]
# A model of one stack; of two, by what its tokenizer has for what is cut out of a text.
Usual = Literal["encoder", "decoder", "sentinels", "masks"]
Lengths = Callable[[Any, int], tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One objective, as far as the rest of the house has to know it.

    Attributes:
        rows: how tokens become the rows that it learns from, unless a recipe says otherwise.
        prediction_offset: how many positions before a token its scores stand where it is masked.
        bidirectional_prefix: the tokens of a prompt see each other.
        writes: an encoder learns to continue a text, too.
        framed_target: what the decoder of two stacks writes stands within its special tokens.
        sentences: the store has to record where sentences begin.
        networks: the names of options that hold the folder of a further network.
        usual_for: it is by this objective that any model of that form is measured, and trained
            further.
        text_length: (options, row length) -> tokens of text that a row is made of, where these are
            more than the row.
        lengths: (options, tokens of text) -> the most that encoder and decoder read, of two stacks.
    """

    rows: Rows
    prediction_offset: int = 0
    bidirectional_prefix: bool = False
    writes: bool = False
    framed_target: bool = False
    sentences: bool = False
    networks: tuple[str, ...] = ()
    usual_for: Usual | None = None
    text_length: Callable[[Any, int], int] | None = None
    lengths: Lengths | None = None
