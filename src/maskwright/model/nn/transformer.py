"""The Transformer: one token table, an encoder, a decoder or both, and heads.

    encode(tokens) -> hidden (B, T, D)          decode(tokens, memory=...) -> hidden (B, T, D)
    logits(hidden) -> (..., V)                  pool, head -> scores of a task

Scores are computed only for the hidden states that are passed in: a loss passes those at its
targets (`hidden.flatten(0, 1)[index]`), never all.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.base.errors import ConfigError, DataError, near
from maskwright.model.nn.cache import KVCache
from maskwright.model.nn.config import ChunkPooling, TransformerConfig
from maskwright.model.nn.heads import HeadModule, VocabularyHeadModule
from maskwright.model.nn.kernels.linear import Linear
from maskwright.model.nn.mask import AttentionMask
from maskwright.model.nn.stack import EmbeddingTable, StackModule, Trace

TokensOrVectors = Int[Tensor, "B T"] | Float[Tensor, "B T E"]


class Transformer(nn.Module):
    """A point of the configuration space as a module; names of parameters are part of its contract.

    Weights are (out, in). Build it with `initialise.build` for weights by role and from a seed.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        tokens, width = config.tokens, config.width
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
            self.heads[head.name] = HeadModule(head, width)

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
            tokens: ids, or vectors in their place (as wide as the token table).
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
            visible=visible,
            trace=trace,
            at=at,
        )

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
        cache: KVCache | None = None,
        trace: Trace | None = None,
        at: Int[Tensor, " N"] | None = None,
    ) -> Float[Tensor, "B T D"] | Float[Tensor, "N D"]:
        """Hidden states of the decoder; as `encode`, and:

        Args:
            prefix: how many of each row's first positions a layer shows beside its pattern.
            memory: the encoder's hidden states, for a decoder with cross-attention.
            memory_visible: which of them each query sees; None: all.
            cache: what was decoded before; `tokens` are then the positions that follow, and
                `visible` speaks of all positions, old and new.
        """
        if self.decoder is None or self.config.decoder is None:
            raise ConfigError("this model has no decoder", where="decoder", do="use encode")
        crosses = self.config.decoder.blocks[0].cross_attention is not None
        if crosses != (memory is not None):
            raise ConfigError(
                "a decoder with cross-attention needs a memory, and only such a decoder",
                where="decode(memory=...)",
                found="no memory" if memory is None else "a memory",
            )
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

    def token_vectors(self, tokens: TokensOrVectors) -> Float[Tensor, "B T E"]:
        """The rows of the token table; vectors stay as they are.

        Raises:
            DataError: an id outside the table.
        """
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
        return self.tokens(tokens)

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
        if head.config.pools and self.pooler is not None:
            hidden = self.pool(hidden)
        if texts is None and head.over is not None:
            texts = torch.arange(len(hidden), device=hidden.device)
        return head(hidden if texts is None else head.together(hidden, texts, pooling))

    # -------------------------------------------------------------------------------- looking in
    def hidden_states(
        self,
        tokens: TokensOrVectors,
        *,
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        visible: AttentionMask | None = None,
        memory: Float[Tensor, "B S D"] | None = None,
        memory_visible: AttentionMask | None = None,
    ) -> list[Float[Tensor, "B T D"]]:
        """The embeddings' output and each layer's, the last after the final norm; of the decoder
        where there is a memory or no encoder, else of the encoder."""
        trace = Trace()
        if memory is not None or self.encoder is None:
            self.decode(
                tokens,
                positions=positions,
                segments=segments,
                visible=visible,
                memory=memory,
                memory_visible=memory_visible,
                trace=trace,
            )
        else:
            self.encode(
                tokens, positions=positions, segments=segments, visible=visible, trace=trace
            )
        return trace.hidden

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.tokens.weight.device

    def num_parameters(self) -> int:
        """Every weight, whether it trains or not, a shared one counted once."""
        return sum(parameter.numel() for parameter in self.parameters())
