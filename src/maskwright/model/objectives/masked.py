"""Masked language modelling (BERT, Devlin et al. 2018, section 3.1; RoBERTa's dynamic masks).

15 % of the positions are chosen; of these 80 % become [MASK], 10 % a random ordinary token,
10 % stay; the loss is taken at the chosen positions, all of them, and nowhere else. Dynamic masks
change with every epoch; static ones are the same draw without the epoch in its key.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from maskwright.model.objectives.base.spec import MeasurementSpec, Spec, require_option


@dataclass(frozen=True, kw_only=True)
class Options:
    """`rate` of the positions is chosen; of those `mask_rate` are masked and `random_rate`
    replaced by a random ordinary token. With a `final_rate`, the rate moves there in a straight
    line over the run. `with_replacement` draws tokens as ELECTRA's own code does: twice means once.
    `independent` chooses each position by itself with probability `rate`, so that rows have more or
    fewer. Spans are runs of whole words (`span_words`) or of tokens, their lengths geometric or, as
    GPT-BERT's, uniform."""

    rate: float = 0.15
    final_rate: float | None = None
    mask_rate: float = 0.8
    random_rate: float = 0.1
    unit: Literal["token", "word", "span", "ngram"] = "token"
    static: bool = False
    span_stop: float = 0.2
    span_longest: int = 10
    span_lengths: Literal["geometric", "uniform"] = "geometric"
    span_words: bool = True
    ngram_longest: int = 3
    with_replacement: bool = False
    independent: bool = False

    def __post_init__(self) -> None:
        for name in ("rate", "final_rate"):
            rate = getattr(self, name)
            require_option(self, name, rate is None or 0.0 < rate <= 1.0, "0 < rate <= 1")
        require_option(
            self,
            "mask_rate",
            min(self.mask_rate, self.random_rate) >= 0.0
            and self.mask_rate + self.random_rate <= 1.0,
            "shares of the chosen positions, each >= 0, together at most 1",
            value=f"{self.mask_rate} + {self.random_rate}",
        )
        require_option(
            self,
            "span_stop",
            0.0 < self.span_stop < 1.0 and 1 <= self.span_longest <= 1000,
            "0 < span_stop < 1 and 1 <= span_longest <= 1000",
            value=f"{self.span_stop}, {self.span_longest}",
        )
        require_option(self, "ngram_longest", 1 <= self.ngram_longest <= 1000, "1 to 1000")
        for name in ("with_replacement", "independent"):
            require_option(
                self,
                name,
                not getattr(self, name) or self.unit == "token",
                'unit = "token"',
                value=f'unit = "{self.unit}"',
            )
        require_option(
            self,
            "independent",
            not (self.with_replacement and self.independent),
            "`with_replacement` or `independent`, not both",
        )


SPEC = Spec(
    rows="documents",
    usual_for="encoder",
    measurement=MeasurementSpec(
        options=lambda trained: Options(
            independent=isinstance(trained, Options) and trained.independent
        ),
        at_end=lambda trained: at_end(trained) if isinstance(trained, Options) else trained,
        words=lambda options: f"as every encoder is, with {options.rate:.0%} of the tokens masked",
    ),
    static_option="static",
    token_parts=("masked",),
)


def at_end(options: Options) -> Options:
    """The options when a run ends: a moving rate has reached its end, and masks are dynamic."""
    rate = options.rate if options.final_rate is None else options.final_rate
    return replace(options, rate=rate, final_rate=None, static=False)
