"""Causal language modelling: every position predicts the next token (GPT, Radford et al. 2018,
3.1).

Rows carry one token more than the model reads: row[:-1] is the input and row[1:] the targets. The
objective refuses a model whose masks let a position see its own target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskwright.model.objectives.base.spec import Spec

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Vocabulary
    from maskwright.model.objectives.modules.causal import Causal

SPEC = Spec(rows="stream", usual_for="decoder", token_parts=("causal",), codes=True)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Next-token prediction has no options."""


def build(model: Transformer, options: Options, vocabulary: Vocabulary) -> Causal:
    from maskwright.model.objectives.modules.causal import Causal

    return Causal(model, options, vocabulary)
