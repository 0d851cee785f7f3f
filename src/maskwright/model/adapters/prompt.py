"""Prompt tuning (Lester et al. 2021, arXiv:2104.08691): learned vectors before the input tokens.

    [prompt | vectors of the tokens] -> stack -> hidden states, those of the prompt left out

In an encoder with a decoder behind it, the prompt stands before the encoder alone. Positions of the
text move on by the prompt's length, so a block has that much less room. Hidden states keep the
shape of the text, so that targets stay where they are; other than in the paper, a decoder therefore
does not read the encoder's states of the prompt itself. A row should hold one document: several
would talk to each other through the prompt. Like a prefix, a prompt changes outputs from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from maskwright.model.adapters.base.settings import Settings


@dataclass(frozen=True, kw_only=True)
class PromptTuning(Settings):
    """`length` vectors, first set to random tokens among the `common` most frequent (paper:
    5,000)."""

    silent: ClassVar[bool] = False

    kind: Literal["prompt"] = "prompt"
    length: int = 20
    common: int = 5000

    def __post_init__(self) -> None:
        self.require("length", 1 <= self.length <= 1 << 16, "1 to 65,536")
        self.require("common", self.common >= 1, "at least 1")

    @property
    def positions(self) -> int:
        return self.length


SETTINGS = PromptTuning
