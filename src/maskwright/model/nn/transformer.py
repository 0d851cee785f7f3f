"""The Transformer: one token table, an encoder, a decoder or both, and heads.

    encode(tokens) -> hidden (B, T, D)          decode(tokens, memory=...) -> hidden (B, T, D)
    logits(hidden) -> (..., V)                  pool, head -> scores of a task

Scores are computed only for the hidden states that are passed in: a loss passes those at its
targets (`hidden.flatten(0, 1)[index]`), never all.

Heads turn hidden states into scores, over the vocabulary and over a task's labels.

The vocabulary head is split where a loss wants to fuse: `hidden -> transform -> head_hidden`, then
one projection with `weight` and `bias`. A dense transform has a bias where its norm has one.

Of a text that was read in pieces a head makes one vector from those of its pieces:

    vectors of pieces   a0 a1 a2 | b0 | c0 c1        (P, D), a text's pieces in order
    texts                0  0  0 |  1 |  2  2        (P,)
      -> the mean, or the largest of each number     (R, D)

Layers `over` the pieces let these see each other first, as a hierarchical encoder does (Pappagari
et al. 2019, arXiv:1910.10781).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from maskwright.base.errors import ConfigError, DataError, near
from maskwright.model.nn.attention import PastKeys
from maskwright.model.nn.characters import CharacterVectors, SpelledVectors
from maskwright.model.nn.config import (
    Block,
    CharacterTokens,
    ChunkPooling,
    Embeddings,
    Head,
    Patches,
    Rotary,
    Stack,
    SubwordTokens,
    TransformerConfig,
    VocabularyHead,
    uniform_stack,
)
from maskwright.model.nn.kernels.dropout import add_dropped, dropout
from maskwright.model.nn.kernels.linear import Linear, spare_rows
from maskwright.model.nn.layers import ACTIVATIONS, NormModule
from maskwright.model.nn.mask import AttentionMask, real, same_document
from maskwright.model.nn.stack import EmbeddingTable, LayerMix, StackModule, Trace
from maskwright.model.nn.subwords import SubwordVectors


# ------------------------------------------------------------------------------ heads
class VocabularyHeadModule(nn.Module):
    """The transform before the projection, the projection's own weight if untied, and its bias."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, config: VocabularyHead, model: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        tokens = model.tokens
        width = model.width if config.transform is None else tokens.width
        if config.tied and width != tokens.width:
            raise ConfigError(
                "a tied head reads vectors as wide as the token table",
                where="vocabulary_head.transform",
                found=f"hidden width {width}, token width {tokens.width}",
                do="give the head a transform, or set tied = false",
            )
        self.scale = model.width**-0.5 if config.scaled else 1.0
        self.transform: nn.Linear | None = None
        self.norm: NormModule | None = None
        if config.transform is not None:
            has_bias = config.norm is None or config.norm.bias
            self.transform = Linear(model.width, width, bias=has_bias)
        if config.norm is not None:
            self.norm = NormModule(config.norm, width)
        weight = None if config.tied else nn.Parameter(torch.empty(tokens.vocabulary, width))
        if weight is not None:
            _draw(weight)
        self.register_parameter("weight", weight)
        bias = nn.Parameter(torch.zeros(tokens.vocabulary)) if config.bias else None
        self.register_parameter("bias", bias)

    def forward(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any E"]:
        count, spare = hidden.shape[0], 0
        if self.transform is not None and self.config.transform is not None:
            if hidden.dim() == 2 and (spare := spare_rows(hidden)):
                hidden = F.pad(hidden, (0, 0, 0, spare))
            hidden = ACTIVATIONS[self.config.transform](self.transform(hidden))
        if self.norm is not None:
            hidden = self.norm(hidden)
        hidden = hidden[:count] if spare else hidden
        return hidden if self.scale == 1.0 else hidden * self.scale


class HeadModule(nn.Module):
    """Dropout, a dense layer with its activation and norm where there is one, dropout, and one
    projection to `labels` scores. Of texts in pieces it makes one vector first."""

    bias: nn.Parameter | None

    def __init__(self, config: Head, width: int, num_layers: int = 0) -> None:
        super().__init__()
        self.config = config
        width *= config.num_poolings
        self.transform: nn.Linear | None = None
        if config.transform is not None:
            has_bias = config.norm is None or config.norm.bias
            self.transform = Linear(width, config.inner or width, bias=has_bias)
        self.down = None if config.inner is None else Linear(config.inner, width)
        self.norm = None if config.norm is None else NormModule(config.norm, width)
        self.weight = nn.Parameter(torch.empty(config.labels, width))
        _draw(self.weight)
        bias = nn.Parameter(torch.zeros(config.labels)) if config.bias else None
        self.register_parameter("bias", bias)
        self.over = None if config.over is None else StackModule(config.over, width, width)
        self.mix = LayerMix(num_layers + 1) if config.layer_mix else None

    def together(
        self, vectors: Float[Tensor, "P D"], texts: Int[Tensor, " P"], pooling: ChunkPooling
    ) -> Float[Tensor, "R D"]:
        """A vector of each text from those of its pieces."""
        rows, real = in_rows(vectors, texts)
        if self.over is not None:
            rows = self.over(rows, visible=same_document(real.to(torch.int32)))
        return pooled(rows, real, pooling)

    @torch.no_grad()
    def rescale(self, centre: float, spread: float) -> None:
        """Fold a unit into the weights, in place: scores `s` become `centre + spread * s`."""
        self.weight.mul_(spread)
        if self.bias is not None:
            self.bias.mul_(spread).add_(centre)

    def forward(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any L"]:
        config, states = self.config, hidden
        hidden = dropout(hidden, config.input_dropout, self.training)
        if self.transform is not None and config.transform is not None:
            hidden = ACTIVATIONS[config.transform](self.transform(hidden))
        if self.down is not None:
            hidden = add_dropped(states, self.down(hidden), config.input_dropout, self.training)
        if self.norm is not None:
            hidden = self.norm(hidden)
        return F.linear(dropout(hidden, config.dropout, self.training), self.weight, self.bias)


def in_rows(
    vectors: Float[Tensor, "P D"], texts: Int[Tensor, " P"]
) -> tuple[Float[Tensor, "R N D"], Bool[Tensor, "R N"]]:
    """The pieces of each text as a row, and which places of the rows are pieces.

    Args:
        texts: the number of the text of each piece, 0 … R - 1, rising.
    """
    counts = torch.bincount(texts)
    slots = torch.arange(len(texts), device=texts.device) - (counts.cumsum(0) - counts)[texts]
    real = torch.arange(int(counts.max()), device=texts.device) < counts[:, None]
    rows = vectors.new_zeros(*real.shape, vectors.shape[1])
    return rows.index_put((texts, slots), vectors), real


def pooled(
    rows: Float[Tensor, "R N D"], real: Bool[Tensor, "R N"], pooling: ChunkPooling
) -> Float[Tensor, "R D"]:
    """The mean, or the largest of each number, over the places of a row that are `real`; of two
    places the squared differences of their vectors of length 1, whose sum is 2 - 2 cos, times D."""
    if pooling == "differences":
        vectors, other_vectors = F.normalize(rows.float(), dim=-1).unbind(1)
        return ((vectors - other_vectors).square() * rows.shape[-1]).to(rows.dtype)
    if pooling == "max":
        return rows.masked_fill(~real[..., None], -torch.inf).amax(1)
    total = rows.masked_fill(~real[..., None], 0.0).float().sum(1)
    return (total / real.sum(1, keepdim=True)).to(rows.dtype)


def layers_over(config: TransformerConfig) -> Stack:
    """Two layers over the pieces of a text, shaped as the last layer of the stack, in pre-norm
    order.

    Raises:
        ConfigError: the stack has no layers.
    """
    if not list(config.stacks.values())[-1].attention_blocks:
        raise ConfigError(
            "layers over the pieces of a text are shaped as those of the model",
            where="long",
            found="a model without layers of attention",
            do="choose another way for long texts: such models read texts of any length",
        )
    last_block = list(config.stacks.values())[-1].attention_blocks[-1]
    context = replace(
        last_block.attention,
        pattern="bidirectional",
        window=None,
        global_tokens=None,
        blocks=None,
        positions=Rotary(),
        scaled=True,
    )
    block = Block(
        attention=context,
        feed_forward=last_block.feed_forward,
        norm=last_block.norm,
        placement="pre",
        dropout=last_block.dropout,
    )
    return uniform_stack(block, 2, Embeddings(), final_norm=True)


def _draw(weight: Tensor) -> None:
    """Fill `weight` with normal numbers, if it has memory (`EmbeddingTable` says why)."""
    if not weight.is_meta:
        nn.init.normal_(weight, std=0.02)


# ------------------------------------------------------------------------------ the network
class PatchProjection(Linear):
    """The vectors of images: of each patch a projection, which is a convolution whose stride is its
    width; in front of them a learned vector, `cls`. In place of a hidden patch stands `mask`."""

    def __init__(self, config: Patches) -> None:
        super().__init__(config.num_values, config.width)
        self.config = config
        self.cls = EmbeddingTable(1, config.width)
        self.mask = EmbeddingTable(1, config.width) if config.mask else None

    def forward(self, images: Float[Tensor, "*any K"]) -> Float[Tensor, "*any E"]:
        """
        Args:
            images: K values of each position; of images one after the other. What stands at the
                first position of an image is not read. Values of a hidden patch are NaN.
        """
        images = images.to(self.weight.dtype)  # in training perhaps bfloat16
        rows = images.reshape(-1, self.config.length, self.config.num_values)
        if self.mask is None:
            patches = super().forward(rows[:, 1:])
        else:
            visible = super().forward(rows[:, 1:].nan_to_num())
            patches = torch.where(rows[:, 1:, :1].isnan(), self.mask.weight, visible)
        vectors = torch.cat([self.cls.weight.expand(rows.shape[0], 1, -1), patches], 1)
        return vectors.reshape(*images.shape[:-1], -1)


TokensOrVectors = Int[Tensor, "B T"] | Float[Tensor, "B T E"]


class Transformer(nn.Module):
    """A point of the configuration space as a module; names of parameters are part of its contract.

    Weights are (out, in). Build it with `initialise.build` for weights by role and from a seed.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        tokens, width = config.tokens, config.width
        self.tokens: EmbeddingTable | SpelledVectors | PatchProjection
        if isinstance(tokens, Patches):
            self.tokens = PatchProjection(tokens)
        elif isinstance(tokens, CharacterTokens):
            self.tokens = CharacterVectors(tokens)
        elif isinstance(tokens, SubwordTokens):
            self.tokens = SubwordVectors(tokens)
        else:
            self.tokens = EmbeddingTable(tokens.vocabulary, tokens.width)
        self.encoder = StackModule(config.encoder, tokens.width, width) if config.encoder else None
        self.decoder = StackModule(config.decoder, tokens.width, width) if config.decoder else None
        self.pooler = Linear(width, width) if config.pooler else None
        self.vocabulary_head: VocabularyHeadModule | None = None
        if config.vocabulary_head is not None:
            self.vocabulary_head = VocabularyHeadModule(config.vocabulary_head, config)
        self.heads = nn.ModuleDict()
        for head in config.heads:
            if hasattr(self.heads, head.name):
                raise ConfigError(
                    "a head's name is taken",
                    where="heads.name",
                    found=head.name,
                    wanted="another for each head",
                )
            stack = self.encoder if self.decoder is None else self.decoder
            assert stack is not None
            module = HeadModule(head, width, len(stack.config.blocks))
            self.heads[head.name] = module
            stack.mixed_by = () if module.mix is None else (module.mix,)

    # ------------------------------------------------------------------------------------- stacks
    def encode(
        self,
        tokens: TokensOrVectors,
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        visible: AttentionMask | None = None,
        trace: Trace | None = None,
        at: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """Hidden states of the encoder.

        Args:
            tokens: ids, or vectors in their place (as wide as the token table); of images the
                values of their patches (`PatchProjection`).
            positions: counted from 0 in each document; None: 0 … T-1.
            segments: sentence A or B; None: all A.
            visible: the batch's facts, joined with each layer's pattern; None: all is real.
            trace: filled with hidden states and attention weights, when given.
            at: flat positions (b*T + t) whose states alone are wanted, in this order (N, D); the
                last layer is not computed elsewhere. None: all of them (B, T, D).

        Raises:
            ConfigError: the model has no encoder.
            DataError: an id or a position outside its table.
        """
        if self.encoder is None:
            raise ConfigError("this model has no encoder", where="encoder", do="use decode")
        return self.encoder(
            self.token_vectors(tokens),
            positions=positions,
            segments=segments,
            visible=self.visible_words(tokens, visible),
            trace=trace,
            at=at,
            global_tokens=self.global_tokens(tokens, positions),
        )

    def visible_words(
        self, tokens: TokensOrVectors, visible: AttentionMask | None
    ) -> AttentionMask | None:
        """`visible` without the tokens that continue a word whose vector is made of its
        characters; these have the state of its first token."""
        if not isinstance(self.tokens, SpelledVectors) or tokens.is_floating_point():
            return visible
        begins = real(self.tokens.begins(tokens))
        return begins if visible is None else visible & begins

    def global_tokens(
        self, tokens: TokensOrVectors, positions: Int[Tensor, "#B T"] | None = None
    ) -> Bool[Tensor, "B T"] | None:
        """Which positions of the encoder are global tokens, by its rule; None where none are.

        Raises:
            DataError: the rule needs a separator, and a row has none, or vectors instead of ids.
        """
        rule = None if self.config.encoder is None else self.config.encoder.global_tokens
        if rule is None or rule.which == "none":
            return None
        rows, count = tokens.shape[:2]
        if rule.which == "first":
            numbers = torch.arange(count, device=tokens.device)[None]
            return ((numbers if positions is None else positions) == 0).expand(rows, -1)
        ends = torch.zeros(rows, count, dtype=torch.bool, device=tokens.device)
        if not tokens.is_floating_point():
            ends = tokens == rule.separator
        on_cpu = tokens.device.type == "cpu" and not torch.compiler.is_exporting()
        if on_cpu and not bool(ends.any(-1).all()):
            raise DataError(
                f"the tokens with global attention, the {rule.which}, cannot be told",
                where="tokens",
                found="a row without the separator",
                wanted=f"question and answer with the token {rule.separator} between them",
                do='give pairs of texts, or set global_attention = "first"',
            )
        num_ends = ends.cumsum(1) - ends.long()  # before each position
        if positions is not None:  # counted anew in each document
            num_ends = num_ends - num_ends.masked_fill(positions != 0, 0).cummax(1).values
        if rule.which == "question":
            return (num_ends == 0) & ~ends
        double_end = ends & ends.roll(1, 1) & (num_ends == 1)
        return (num_ends > 0) & ~double_end

    def decode(
        self,
        tokens: TokensOrVectors,
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        visible: AttentionMask | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_visible: AttentionMask | None = None,
        cache: PastKeys | None = None,
        trace: Trace | None = None,
        at: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """Hidden states of the decoder; as `encode`, and:

        Args:
            prefix: how many of each row's first positions a layer shows beside its pattern.
            memory: the encoder's hidden states, for a decoder with cross-attention.
            memory_visible: which of them each query sees; None: all.
            cache: of what was decoded before; `tokens` are then the positions that follow, and
                `visible` speaks of all positions, old and new.
        """
        self.require_decoder(with_memory=memory is not None)
        assert self.decoder is not None
        return self.decoder(
            self.token_vectors(tokens),
            positions=positions,
            segments=segments,
            visible=visible,
            prefix=prefix,
            memory=memory,
            memory_visible=memory_visible,
            cache=cache,
            trace=trace,
            at=at,
        )

    def require_decoder(self, *, with_memory: bool) -> None:
        """Raise a `ConfigError` unless there is a decoder, which reads a memory if it gets one."""
        if self.config.decoder is None:
            raise ConfigError("this model has no decoder", where="decoder", do="use encode")
        crosses = any(b.cross_attention is not None for b in self.config.decoder.attention_blocks)
        if crosses != with_memory:
            raise ConfigError(
                "a decoder with cross-attention needs a memory, and only such a decoder",
                where="decode(memory=...)",
                found="a memory" if with_memory else "no memory",
            )

    @torch.no_grad()
    def word_vectors(self, count: int) -> Float[Tensor, "V W"]:
        """The vectors of the first `count` tokens, each by itself as a word."""
        ids = torch.arange(count, device=self.device)
        return self.token_vectors(ids[:, None]).flatten(1)

    def token_vectors(self, tokens: TokensOrVectors) -> Float[Tensor, "B T W"]:
        """The rows of the token table; vectors stay as they are. Of images, the vectors of their
        patches.

        Raises:
            DataError: an id outside the table; ids, or values of other patches, for images.
        """
        if isinstance(self.tokens, PatchProjection):
            config = self.tokens.config
            count = 0 if torch.compiler.is_exporting() else tokens.shape[:-1].numel()
            if tokens.shape[-1] != config.num_values or count % config.length:
                raise DataError(
                    "not what the model reads, which is images",
                    where="tokens",
                    found=f"an array of the shape {tuple(tokens.shape)}",
                    wanted=f"(…, {config.length}, {config.num_values}), the values of patches",
                    do="prepare images with the folder's image processor",
                )
            return self.tokens(tokens)
        if tokens.is_floating_point():
            return tokens
        on_cpu = tokens.device.type == "cpu" and not torch.compiler.is_exporting()
        if on_cpu and tokens.numel():
            low, high = (int(t) for t in tokens.aminmax())
            if low < 0 or high >= self.config.tokens.vocabulary:
                raise DataError(
                    "a token id lies outside the vocabulary",
                    where="tokens",
                    found=low if low < 0 else high,
                    wanted=f"0 to {self.config.tokens.vocabulary - 1}",
                    do="use the tokenizer that belongs to this model",
                )
        vectors = self.tokens(tokens)
        rate = getattr(self.config.tokens, "dropout", 0.0)
        if self.training and rate:
            mask = dropout(vectors.new_ones(self.config.tokens.vocabulary, 1), rate, True)
            vectors = vectors * mask[tokens]
        return vectors

    # -------------------------------------------------------------------------------------- heads
    def logits(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any V"]:
        """Scores over the vocabulary."""
        return F.linear(self.head_hidden(hidden), self.head_weight, self.head_bias)

    def head_hidden(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any E"]:
        """The vocabulary head up to its projection."""
        return self._vocabulary_head(hidden)

    @property
    def head_weight(self) -> Float[Tensor, "V E"]:
        """The projection's weight: the token table's, or the head's own."""
        head_weight = self._vocabulary_head.weight
        return self.tokens.weight if head_weight is None else head_weight

    @property
    def head_bias(self) -> Float[Tensor, " V"] | None:
        return self._vocabulary_head.bias

    @property
    def _vocabulary_head(self) -> VocabularyHeadModule:
        if self.vocabulary_head is None:
            raise ConfigError("this model has no vocabulary head", where="vocabulary_head")
        return self.vocabulary_head

    def pool(self, hidden_rows: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """tanh of a dense layer over hidden states at pooled positions, usually the first ones."""
        if self.pooler is None:
            raise ConfigError("this model has no pooler", where="pooler")
        return self.pooler(hidden_rows).tanh()

    def head(
        self,
        name: str,
        hidden: Float[Tensor, "*any D"],
        *,
        texts: Int[Tensor, " P"] | None = None,
        pooling: ChunkPooling = "mean",
    ) -> Float[Tensor, "*rows L"]:
        """Scores of the head `name`.

        Args:
            hidden: hidden states, not yet pooled: a head that pools takes those at the pooled
                positions and pools them itself where the model has a pooler.
            texts: which text each of `hidden` (P, D) is a piece of, 0 … R - 1, rising; there is
                then a row of scores for each text. None: each is a text.
            pooling: one vector is made of a text's pieces.
        """
        if name not in self.heads:
            raise ConfigError(
                "no such head", where="heads", found=name, do=near(name, self.heads.keys())
            )
        head = self.heads[name]
        assert isinstance(head, HeadModule)
        if head.config.pools and head.config.reads_pooler and self.pooler is not None:
            hidden = self.pool(hidden)
        if texts is None and head.over is not None:
            texts = torch.arange(len(hidden), device=hidden.device)
        return head(hidden if texts is None else head.together(hidden, texts, pooling))

    # -------------------------------------------------------------------------------- looking in
    def hidden_states(self, tokens: TokensOrVectors, **facts: Any) -> list[Float[Tensor, "B T D"]]:
        """The embeddings' output and each layer's, the last after the final norm; of the decoder
        where there is a `memory` or no encoder, else of the encoder. `facts` are further arguments
        of `decode` or `encode`."""
        trace = Trace()
        reads_memory = facts.get("memory") is not None
        states_of = self.decode if reads_memory or self.encoder is None else self.encode
        states_of(tokens, trace=trace, **facts)
        return trace.hidden

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.tokens.weight.device

    def num_parameters(self) -> int:
        """Every weight, whether it trains or not, a shared one counted once."""
        return sum(parameter.numel() for parameter in self.parameters())
