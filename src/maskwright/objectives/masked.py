"""Masked language modelling (BERT, Devlin et al. 2018, section 3.1; RoBERTa's dynamic masks).

15 % of the positions are chosen; of these 80 % become [MASK], 10 % a random ordinary token,
10 % stay; the loss is taken at the chosen positions, all of them, and nowhere else. Dynamic masks
change with every epoch; static ones are the same draw without the epoch in its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from maskwright.data.batch import Batch
from maskwright.data.rows import Rows
from maskwright.errors import ConfigError, IncompatibleError
from maskwright.nn.transformer import Transformer
from maskwright.objectives.parts import corruption
from maskwright.objectives.parts.objective import (
    Loss,
    Objective,
    Part,
    Vocabulary,
    encode_targets,
    facts,
    token_loss,
)
from maskwright.objectives.parts.spec import Spec
from maskwright.randomness import key

SPEC = Spec(rows="documents", usual_for="encoder")


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
        for name, rate in (("rate", self.rate), ("final_rate", self.final_rate)):
            if rate is not None and not 0.0 < rate <= 1.0:
                raise ConfigError(
                    "a mask rate is out of range",
                    where=name,
                    found=rate,
                    wanted="0 < rate <= 1",
                )
        if min(self.mask_rate, self.random_rate) < 0 or self.mask_rate + self.random_rate > 1.0:
            raise ConfigError(
                "mask_rate and random_rate are shares of the chosen positions",
                where="mask_rate",
                found=f"{self.mask_rate} + {self.random_rate}",
                wanted="each >= 0, together at most 1",
            )
        if not (0.0 < self.span_stop < 1.0 and 1 <= self.span_longest <= 1000):
            raise ConfigError(
                "span lengths are out of range",
                where="span_stop",
                found=f"{self.span_stop}, {self.span_longest}",
                wanted="0 < span_stop < 1 and 1 <= span_longest <= 1000",
            )
        if not 1 <= self.ngram_longest <= 1000:
            raise ConfigError(
                "the longest n-gram is out of range",
                where="ngram_longest",
                found=self.ngram_longest,
                wanted="1 to 1000",
            )
        for name in ("with_replacement", "independent"):
            if getattr(self, name) and self.unit != "token":
                raise ConfigError(
                    "only single tokens are drawn with replacement, or independently",
                    where=name,
                    found=f'unit = "{self.unit}"',
                    wanted='unit = "token"',
                )
        if self.with_replacement and self.independent:
            raise ConfigError(
                "tokens are drawn with replacement or independently, not both",
                where="independent",
                found="with_replacement = true",
                wanted="one of them",
            )


class Masked(Objective):
    """Masked language modelling over one bidirectional encoder."""

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        if model.config.vocabulary_head is None or model.config.encoder is None:
            raise IncompatibleError(
                "`masked` needs an encoder with a vocabulary head",
                where="model",
                do="choose an encoder family such as bert, or the objective `causal`",
            )
        if vocabulary.mask is None:
            raise IncompatibleError(
                "the tokenizer has no mask token",
                where="tokenizer",
                do='train the tokenizer with style "bert", or use `causal`',
            )
        self.product = model
        self.options = options
        self.vocabulary = vocabulary
        self.ordinary = vocabulary.ordinary

    def choose(
        self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Chosen positions (B, T) bool, and the unit (B, T) that shares one 80/10/10 decision."""
        o = self.options
        rate = o.rate if o.final_rate is None else o.rate + progress * (o.final_rate - o.rate)
        keys = np.asarray(key("mask", seed, self._epochs(epochs), rows.ids))
        maskable = ~rows.special
        each = np.broadcast_to(np.arange(maskable.shape[1]), maskable.shape)
        if o.unit == "token":
            choose = corruption.draw_tokens if o.with_replacement else corruption.choose_tokens
            choose = corruption.choose_each if o.independent else choose
            return choose(maskable, rate, keys), each
        if o.unit == "word":
            return corruption.choose_words(maskable, rows.starts_word, rate, keys), each
        starts = rows.starts_word
        if o.unit == "ngram":
            lengths = corruption.inverse(o.ngram_longest)
        else:
            starts = starts if o.span_words else np.ones_like(starts)
            lengths = corruption.geometric(o.span_stop, o.span_longest)
            if o.span_lengths == "uniform":
                lengths = corruption.uniform(o.span_longest)
        chosen, span = corruption.choose_spans(maskable, starts, rate, keys, lengths=lengths)
        # SpanBERT decides span by span, ALBERT token by token.
        return chosen, span if o.unit == "span" else each

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        chosen, unit = self.choose(rows, epochs, seed, progress)
        o = self.options
        keys = np.asarray(key("replace", seed, self._epochs(epochs), rows.ids))
        assert self.vocabulary.mask is not None
        tokens = corruption.replace(
            rows.tokens,
            chosen,
            unit,
            keys,
            mask_id=self.vocabulary.mask,
            ordinary=self.ordinary,
            mask_rate=o.mask_rate,
            random_rate=o.random_rate,
        )
        index = np.flatnonzero(chosen)
        return Batch(
            tokens=torch.from_numpy(tokens),
            index=torch.from_numpy(index),
            targets=torch.from_numpy(rows.tokens.reshape(-1)[index]),
            **facts(rows),
        )

    def _epochs(self, epochs: np.ndarray) -> np.ndarray:
        """What of the epoch goes into the keys: static masks forget it."""
        return np.zeros_like(epochs) if self.options.static else epochs

    def counts(self, batch: Batch) -> dict[str, int]:
        assert batch.targets is not None
        return {"masked": batch.targets.numel()}

    def read(self, states: Tensor, batch: Batch) -> Part:
        """The masked part of a loss, from hidden states (N, D) at the targets."""
        assert batch.targets is not None
        return Part(token_loss(self.product, states, batch.targets))

    def forward(self, batch: Batch) -> Loss:
        return Loss({"masked": self.read(self.target_states(batch), batch)})

    def target_states(self, batch: Batch) -> Tensor:
        return encode_targets(self.product, batch)


def build(model: Transformer, options: Options, vocabulary: Vocabulary) -> Masked:
    return Masked(model, options, vocabulary)
