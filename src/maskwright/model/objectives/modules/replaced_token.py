"""The module of `replaced-token`; for the method and its options see `../replaced_token.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from maskwright.base.errors import IncompatibleError
from maskwright.base.randomness import key, uniforms
from maskwright.model.batch import Batch
from maskwright.model.nn import initialise
from maskwright.model.nn.config import Block, TransformerConfig, VocabularyHead
from maskwright.model.nn.kernels.vocabulary_loss import vocabulary_sample
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import (
    Loss,
    Network,
    NetworkWork,
    Objective,
    Part,
    Vocabulary,
    encode,
    encode_targets,
)
from maskwright.model.objectives.modules.masked import Masked
from maskwright.model.objectives.replaced_token import Options
from maskwright.text.store.rows import Rows


class ReplacedToken(Objective):
    """A generator, and a discriminator with one score per position, which is the product."""

    decides = "replaced tokens"

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__()
        detectors = [h.name for h in model.config.heads if h.kind == "token" and h.labels == 1]
        encoder = model.config.encoder
        if encoder is None or not encoder.attention_blocks or len(detectors) != 1:
            raise IncompatibleError(
                "`replaced-token` needs layers and one token head with a single score",
                where="model.heads",
                found=[h.name for h in model.config.heads],
                do="choose a family with a discriminator, such as electra",
            )
        self.product = model
        (self.head,) = detectors
        self.options = options
        config = generator_config(model.config, options.generator_size, options.generator_layers)
        generator = initialise.build(config).to(model.device)
        self.generator = share_embeddings(generator, model)
        self.masked = Masked(self.generator, options.masking, vocabulary)

    @property
    def scorer(self) -> Network:
        return self.generator

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        batch = self.masked.corrupt(rows, epochs, seed, progress)
        assert batch.index is not None
        draws = uniforms(key("sample", seed, epochs, rows.ids), rows.tokens.shape[1])
        return replace(batch, uniforms=torch.from_numpy(draws.reshape(-1))[batch.index])

    def counts(self, batch: Batch) -> dict[str, int]:
        count = batch.tokens.numel()
        if batch.documents is not None:
            count = int(batch.documents.count_nonzero())
        return {**self.masked.counts(batch), "replaced": count}

    def decisions(self, batch: Batch) -> tuple[Tensor, Tensor]:
        _, filled, labels = self.fill(batch)
        real = slice(None) if batch.documents is None else batch.documents != 0
        return self.judge(filled)[real].flatten(), labels[real].flatten() > 0

    def judge(self, filled: Batch) -> Tensor:
        """Return (B, T) float32 logits of "replaced"."""
        return self.product.head(self.head, encode(self.product, filled))[..., 0].float()

    def forward(self, batch: Batch) -> Loss:
        total, filled, labels = self.fill(batch)
        scores = self.judge(filled)
        losses = functional.binary_cross_entropy_with_logits(scores, labels, reduction="none")
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
        """Return the generator's loss, the batch with sampled tokens at the masked positions, and
        (B, T) float32 labels: 1 where the token differs from the original."""
        assert batch.index is not None and batch.targets is not None
        assert batch.uniforms is not None
        network = self.generator
        states = network.head_hidden(encode_targets(network, batch))
        total, _, sampled = vocabulary_sample(
            states, network.head_weight, network.head_bias, batch.targets, batch.uniforms
        )
        tokens = batch.tokens.reshape(-1).scatter(0, batch.index, sampled)
        differs = (sampled != batch.targets).float()
        labels = torch.zeros_like(tokens, dtype=torch.float32).scatter(0, batch.index, differs)
        shape = batch.tokens.shape
        return total, replace(batch, tokens=tokens.view(shape)), labels.view(shape)

    def work(self, batch: Batch) -> list[NetworkWork]:
        (masked,) = super().work(batch)
        return [replace(masked, network=self.generator), NetworkWork(self.product)]

    def target_states(self, batch: Batch) -> Tensor:
        return self.masked.target_states(batch)


def generator_config(
    config: TransformerConfig, size: float, layers: float = 1.0
) -> TransformerConfig:
    """Return the generator's config: that of the discriminator with a share of about `size` of the
    attention heads, and of both widths accordingly, and with the first `layers` (share) of layers.

    The widths of attention heads and token embeddings are kept, so that embeddings can be shared;
    its only head is the vocabulary head.
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

    first_block = stack.attention_blocks[0]
    activation = first_block.feed_forward.activation
    return replace(
        config,
        width=round(config.width * share(first_block)),
        encoder=replace(
            stack,
            blocks=tuple(reduced(block) for block in stack.attention_blocks[:count]),
            weights_of=stack.weights_of[:count],
        ),
        vocabulary_head=VocabularyHead(transform=activation, norm=first_block.norm, bias=True),
        pooler=False,
        heads=(),
    )


def share_embeddings(generator: Transformer, model: Transformer) -> Transformer:
    """Let `generator` use the embeddings of `model`, and the norm after them; return it."""
    assert generator.encoder is not None and model.encoder is not None
    generator.tokens = model.tokens
    for name in ("position", "segment", "norm"):
        setattr(generator.encoder.embeddings, name, getattr(model.encoder.embeddings, name))
    return generator


build = ReplacedToken
