"""Distillation (DistilBERT, Sanh et al. 2019, sections 2 and 3): a student learns from a text and
from its teacher's predictions.

    masked | causal   cross-entropy with the true tokens                     2
    divergence        T² · KL(teacher || student), both softened by T = 2    5
    cosine            1 - cos(teacher's last states, student's)              1

All three are taken at the positions that have a target; the published code takes the last two at
all positions of the text (`everywhere`), which costs scores over the vocabulary at each. An encoder
as student learns masked modelling, a decoder next-token prediction. The student starts from evenly
chosen layers of its teacher (0, 2, 4, 7, 9, 11 of twelve), whose weights are never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from maskwright.base import config
from maskwright.model.objectives import masked
from maskwright.model.objectives.base.spec import Spec, require_option

SPEC = Spec(
    rows="documents",
    networks=("teacher",),
    static_option="masking.static",
    token_parts=("masked", "causal"),
    codes=True,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """`teacher` is a model folder or a run; `teacher_sha256`, of its files, is filled in when the
    run begins. `alpha_mlm` is the weight of the true tokens for an encoder, `alpha_clm` for a
    decoder, which needs `rows.kind = "stream"`; `initialise` starts a new student from its
    teacher's layers; `everywhere` compares the two at all positions of the text."""

    teacher: str
    teacher_sha256: str | None = None
    temperature: float = 2.0
    alpha_ce: float = 5.0
    alpha_mlm: float = 2.0
    alpha_clm: float = 2.0
    alpha_cos: float = 1.0
    initialise: bool = True
    everywhere: bool = False
    masking: masked.Options = field(default_factory=masked.Options)

    def __post_init__(self) -> None:
        for name in ("alpha_ce", "alpha_mlm", "alpha_clm", "alpha_cos"):
            config.require(name, getattr(self, name), 0.0, 1e6)
        fits = 0.0 < self.temperature <= 1000.0
        require_option(self, "temperature", fits, "0 < temperature <= 1000")
