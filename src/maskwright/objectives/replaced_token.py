"""Replaced-token detection (ELECTRA, Clark et al. 2020, section 3).

    rows -> masked -> generator -> drawn tokens in the holes -> discriminator: original or not?

A small generator learns masked modelling; the tokens it draws fill the holes; the discriminator,
the product, says of every position whether its token was put there. A drawn token that happens to
be the original counts as original. No gradient flows from one network to the other, but they share
the tables of tokens, positions and segments and the norm behind them; the generator's weights are
kept with the state of training.

As in the original code, chosen positions become [MASK] (85 %) or stay, the losses weigh 1 and 50,
and the discriminator judges special tokens too. That code draws positions with replacement, so that
some of the 15 % fall together; `masking.with_replacement` does so as well. What it then did beyond
that is not repeated: averaging the ids drawn for one position, and counting its loss twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright import config
from maskwright.data.batch import Batch
from maskwright.data.rows import Rows
from maskwright.errors import ConfigError, IncompatibleError
from maskwright.nn import initialise
from maskwright.nn.config import Block, TransformerConfig, VocabularyHead
from maskwright.nn.kernels.vocabulary_loss import vocabulary_sample
from maskwright.nn.transformer import Transformer
from maskwright.objectives.masked import Masked
from maskwright.objectives.masked import Options as Masking
from maskwright.objectives.parts.objective import (
    Loss,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    encode,
    encode_targets,
)
from maskwright.objectives.parts.spec import Spec
from maskwright.randomness import key, uniforms

SPEC = Spec(rows="documents")


@dataclass(frozen=True, kw_only=True)
class Options:
    """`generator_size` is the generator's share of the discriminator's width, heads and inner
    width, `generator_layers` of its layers; the weights are those of the two losses."""

    generator_size: float = 0.25
    generator_layers: float = 1.0
    generator_weight: float = 1.0
    discriminator_weight: float = 50.0
    masking: Masking = field(default_factory=lambda: Masking(mask_rate=0.85, random_rate=0.0))

    def __post_init__(self) -> None:
        for name in ("generator_weight", "discriminator_weight"):
            config.require(name, getattr(self, name), 0.0, 1e6)
        for name in ("generator_size", "generator_layers"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(
                    "a share of the discriminator is out of range",
                    where=name,
                    found=getattr(self, name),
                    wanted="0 < share <= 1",
                )


class ReplacedToken(Objective):
    """A generator and, as the product, a discriminator with one score per position."""

    decides = "replaced tokens"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        judges = [h.name for h in model.config.heads if h.kind == "token" and h.labels == 1]
        if model.config.encoder is None or len(judges) != 1:
            raise IncompatibleError(
                "`replaced-token` needs an encoder and one token head with a single score",
                where="model.heads",
                found=[h.name for h in model.config.heads],
                do="choose a family with a discriminator, such as electra",
            )
        self.product = model
        (self.head,) = judges
        self.options = options
        smaller = generator_config(model.config, options.generator_size, options.generator_layers)
        generator = initialise.build(smaller).to(model.device)
        self.generator = share_embeddings(generator, model)
        self.masked = Masked(self.generator, options.masking, vocabulary)

    @property
    def scorer(self) -> Transformer:
        return self.generator

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        batch = self.masked.corrupt(rows, epochs, seed, progress)
        assert batch.index is not None
        draws = uniforms(key("sample", seed, epochs, rows.ids), rows.tokens.shape[1])
        return replace(batch, uniforms=torch.from_numpy(draws.reshape(-1))[batch.index])

    def counts(self, batch: Batch) -> dict[str, int]:
        judged = (
            batch.tokens.numel()
            if batch.documents is None
            else int(batch.documents.count_nonzero())
        )
        return {**self.masked.counts(batch), "replaced": judged}

    def decisions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        _, filled, put = self.fill(batch)
        real = slice(None) if batch.documents is None else batch.documents != 0
        return self.judge(filled)[real].flatten(), put[real].flatten() > 0

    def judge(self, filled: Batch) -> Tensor:
        """(B, T) float32 scores, above 0 where a token was put there."""
        return self.product.head(self.head, encode(self.product, filled))[..., 0].float()

    def forward(self, batch: Batch) -> Loss:
        total, filled, put = self.fill(batch)
        scores = self.judge(filled)
        losses = functional.binary_cross_entropy_with_logits(scores, put, reduction="none")
        if batch.documents is not None:
            losses = losses * (batch.documents != 0)
        o = self.options
        return Loss(
            {
                "masked": Part(total, o.generator_weight),
                "replaced": Part(losses.sum(), o.discriminator_weight),
            }
        )

    def fill(self, batch: Batch) -> tuple[Tensor, Batch, Tensor]:
        """The generator's loss, the batch with drawn tokens at all chosen positions, and (B, T)
        float32: 1 where that made another token."""
        assert batch.index is not None and batch.targets is not None
        assert batch.uniforms is not None
        network = self.generator
        states = network.head_hidden(encode_targets(network, batch))
        total, _, drawn = vocabulary_sample(
            states, network.head_weight, network.head_bias, batch.targets, batch.uniforms
        )
        tokens = batch.tokens.reshape(-1).scatter(0, batch.index, drawn)
        other = (drawn != batch.targets).float()
        put = torch.zeros_like(tokens, dtype=torch.float32).scatter(0, batch.index, other)
        shape = batch.tokens.shape
        return total, replace(batch, tokens=tokens.view(shape)), put.view(shape)

    def work(self, batch: Batch) -> list[NetworkWork]:
        (masked,) = super().work(batch)
        return [replace(masked, network=self.generator), NetworkWork(self.product)]

    def target_states(self, batch: Batch) -> Tensor:
        return self.masked.target_states(batch)


def generator_config(
    config: TransformerConfig, size: float, layers: float = 1.0
) -> TransformerConfig:
    """The discriminator's config with its heads, and with them both widths, reduced to about
    `size`; heads keep their width, and tokens theirs, so that the tables can be shared.

    The layers are the first `layers` of them; the only head is that over the vocabulary.
    """
    assert config.encoder is not None
    stack = config.encoder
    count = max(1, round(len(stack.blocks) * layers))

    def share(block: Block) -> float:
        return max(1, round(block.attention.heads * size)) / block.attention.heads

    def reduced(block: Block) -> Block:
        attention, inner = block.attention, block.feed_forward
        return replace(
            block,
            attention=replace(attention, heads=round(attention.heads * share(block))),
            feed_forward=replace(inner, width=max(1, round(inner.width * share(block)))),
        )

    first = stack.blocks[0]
    activation = first.feed_forward.activation
    return replace(
        config,
        width=round(config.width * share(first)),
        encoder=replace(
            stack,
            blocks=tuple(reduced(block) for block in stack.blocks[:count]),
            weights_of=stack.weights_of[:count],
        ),
        vocabulary_head=VocabularyHead(transform=activation, norm=first.norm, bias=True),
        pooler=False,
        heads=(),
    )


def share_embeddings(generator: Transformer, model: Transformer) -> Transformer:
    """`generator` with the tables of `model` and the norm behind them in place of its own."""
    assert generator.encoder is not None and model.encoder is not None
    generator.tokens = model.tokens
    for part in ("position", "segment", "norm"):
        setattr(generator.encoder.embeddings, part, getattr(model.encoder.embeddings, part))
    return generator


def build(model: Transformer, options: Options, vocabulary: Vocabulary) -> ReplacedToken:
    return ReplacedToken(model, options, vocabulary)
