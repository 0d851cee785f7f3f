"""Causal language modelling: every position predicts the next token (Radford et al. 2018, 3.1).

Rows carry one token more than the model reads: row[:-1] is the input and row[1:] the targets. The
objective refuses a model whose masks let a position see its own target.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec

SPEC = Spec(rows="stream", usual_for="decoder", token_parts=("causal",), codes=True)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Next-token prediction has no options."""
