"""Bidirectional language modelling (Peters et al. 2018, arXiv:1802.05365, section 3.1).

The half of a state that has read what stands before it predicts the next word, and the half that
has read what stands behind it the previous one, by one softmax. A word that the tokenizer spells by
several tokens is read by its characters, and predicted as the unknown word. The loss is the mean of
both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec

SPEC = Spec(rows="documents", token_parts=("bidirectional-lm",))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Bidirectional language modelling has no options."""
