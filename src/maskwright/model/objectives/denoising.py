"""Denoising: read a corrupted text, write the original (BART, arXiv:1910.13461, 2.2).

    permutation   sentences in another order          B. A. C.  <-  A. B. C.
    infilling     spans become one mask each; a span  a _ d _ e  <-  a b c d e
                  of length 0 is an inserted mask
    masking       tokens become masks                 a _ c d e
    deletion      tokens are removed                  a c d e
    rotation      the text begins elsewhere           d e a b c

They are applied in this order, each at its own rate. The numbers are exact: of n tokens infilling
covers, masking masks and deletion deletes max(1, round(n · rate)) each, and no token is used twice;
a text never loses its last token. The special tokens around a text stay where they are, and are
part of the target, which the decoder starts after the end token.
"""

from __future__ import annotations

from dataclasses import dataclass

from maskwright.model.objectives.base.spec import Spec, Start, require_option

SPEC = Spec(
    rows="documents",
    sentences=True,
    trains_decoder=True,
    framed_target=True,
    usual_for="masks",
    token_parts=("denoising",),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Shares: `infilling`, `masking` and `deletion` of a text's tokens, `permutation` of its
    sentences, `rotation` of the texts, `random` of the masks, which become a random token."""

    infilling: float = 0.3
    mean_span: float = 3.0
    masking: float = 0.0
    deletion: float = 0.0
    permutation: float = 1.0
    rotation: float = 0.0
    random: float = 0.0
    start: Start = "end"

    def __post_init__(self) -> None:
        for name in ("infilling", "masking", "deletion", "permutation", "rotation", "random"):
            require_option(self, name, 0.0 <= getattr(self, name) <= 1.0, "0 to 1")
        require_option(
            self,
            "infilling",
            self.infilling + self.masking + self.deletion <= 1.0,
            "infilling + masking + deletion at most 1",
            value=f"{self.infilling} + {self.masking} + {self.deletion}",
        )
        # The encoder needs something to read.
        require_option(self, "deletion", self.deletion < 1.0, "0 <= deletion < 1")
        require_option(self, "mean_span", 0.0 < self.mean_span <= 100.0, "more than 0, at most 100")
