"""Prefix language modelling: read the beginning of a text in both directions, predict the rest
(Liu et al. 2018, arXiv:1801.10198; Dong et al. 2019, arXiv:1905.03197; T5, arXiv:1910.10683, 3.2).

    sees      ■ ■ ■ · · ·      a prefix of 3: its tokens see each other,
              ■ ■ ■ · · ·      what follows sees it and its own past
              ■ ■ ■ · · ·
              ■ ■ ■ ■ · ·      The first token after the prefix is wanted of the prefix's last
              ■ ■ ■ ■ ■ ·      position, and so on to the row's end; documents that share a row
              ■ ■ ■ ■ ■ ■      do not see each other.

One stack does it, an encoder or a decoder: the mask decides. A layer with a window sees the prefix
whole in a decoder; in an encoder no further than its window, as in the model that is saved.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec, require_option

SPEC = Spec(rows="stream", bidirectional_prefix=True, writes=True, token_parts=("prefix-lm",))


@dataclass(frozen=True, kw_only=True)
class Options:
    """A prefix has from `shortest` to `longest` of its row's tokens, every length equally likely;
    it has at least one token, and leaves at least one target."""

    shortest: float = 0.0
    longest: float = 1.0

    def __post_init__(self) -> None:
        require_option(
            self,
            "shortest",
            0.0 <= self.shortest <= self.longest <= 1.0,
            "0 <= shortest <= longest <= 1",
            value=f"{self.shortest} to {self.longest}",
        )
