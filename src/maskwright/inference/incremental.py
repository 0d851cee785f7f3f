"""Growing texts read by a decoder, token after token: what comes next in each.

A model is never asked about positions it has no vector for: when a text has outgrown them, reading
starts anew from its last half. Where it starts is a function of the text's length alone, so with or
without a cache the same contexts are read.

Letters: B rows, S positions of the source, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from maskwright.nn import mask
from maskwright.nn.cache import KVCache
from maskwright.nn.config import TransformerConfig
from maskwright.nn.transformer import Transformer


class Reader:
    """Scores of the next token for growing texts, with what was computed before."""

    def __init__(self, model: Transformer, limit: int | None, cached: bool) -> None:
        self.model, self.limit = model, limit
        # An encoder reads all of the text anew for every token.
        self.cached = cached and model.config.decoder is not None
        self.cache: KVCache | None = None
        self.starts: list[int] = []
        self.pads: Int[Tensor, " B"] | None = None
        self.seen: Int[Tensor, " B"] | None = None
        """How many of each text's first tokens see each other; None: none do."""
        self.memory: Float[Tensor, "B S D"] | None = None
        self.memory_keep: Bool[Tensor, "B S"] | None = None

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]] | None, copies: int = 1) -> None:
        """Read the sources, once; padded at their ends. Each is for so many rows in a run."""
        if sources is None:
            return
        device, lengths = self.model.device, [len(source) for source in sources]
        tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
        for row, source in enumerate(sources):
            tokens[row, : len(source)] = torch.tensor(source)
        keep = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
        keep = keep.to(device)
        memory = self.model.encode(tokens.to(device), visible=mask.real(keep))
        self.memory_keep = keep.repeat_interleave(copies, 0)
        self.memory = memory.repeat_interleave(copies, 0)

    @torch.inference_mode()
    def next_scores(self, texts: Sequence[Sequence[int]], left: int) -> Float[Tensor, "B V"]:
        """(B, V) for the token that follows each text; `left` is how many will still follow."""
        starts = [context_start(len(text), self.limit) for text in texts]
        cache = self.cache
        if cache is None or starts != self.starts or cache.length == cache.capacity:
            hidden = self._read(texts, starts, left)
        else:
            tokens = torch.tensor([[text[-1]] for text in texts])
            places = torch.tensor([[len(t) - s - 1] for t, s in zip(texts, starts, strict=True)])
            hidden = self._decode(tokens, places, cache)
        return self.model.logits(hidden[:, -1]).cpu()

    def keep(self, rows: list[int]) -> None:
        """Go on with these rows only."""
        self.starts = [self.starts[row] for row in rows]
        index = torch.tensor(rows, dtype=torch.int64)
        if self.pads is not None:
            self.pads = self.pads[index]
        if self.seen is not None:
            self.seen = self.seen[index]
        if self.memory is not None and self.memory_keep is not None:
            here = index.to(self.memory.device)
            self.memory, self.memory_keep = self.memory[here], self.memory_keep[here]
        if self.cache is not None:
            self.cache.reorder(index)

    def _read(self, texts: Sequence[Sequence[int]], starts: list[int], left: int) -> Tensor:
        """Read the contexts from their beginning, aligned at their ends."""
        contexts = [list(text[start:]) for text, start in zip(texts, starts, strict=True)]
        length = max(map(len, contexts))
        pads = torch.tensor([length - len(context) for context in contexts])
        tokens = torch.tensor([[0] * (length - len(c)) + c for c in contexts])  # B, T
        places = (torch.arange(length)[None] - pads[:, None]).clamp(min=0)
        self.starts, self.pads = starts, pads if bool(pads.any()) else None
        self.cache = None
        if self.cached:
            # Room until the first row starts anew: no row reads more than the limit.
            room = length + left - 1
            capacity = room if self.limit is None else min(room, length + self.limit)
            weight = self.model.tokens.weight
            self.cache = KVCache.of(
                self.model.config, len(texts), capacity, dtype=weight.dtype, device=weight.device
            )
        prefix = None
        if self.seen is not None:
            left_of_start = torch.tensor(starts)
            prefix = pads + (self.seen - left_of_start).clamp(min=0)
        return self._decode(tokens, places, self.cache, prefix)

    def _decode(
        self, tokens: Tensor, places: Tensor, cache: KVCache | None, prefix: Tensor | None = None
    ) -> Tensor:
        device = self.model.device
        visible = None
        if self.pads is not None:
            total = tokens.shape[1] + (0 if cache is None else cache.length)
            keep = torch.arange(total)[None] >= self.pads[:, None]
            visible = mask.real(keep.to(device))
        if self.model.config.decoder is None:
            order = mask.causal
            if prefix is not None:
                order = order | mask.prefix(prefix.to(device))
            return self.model.encode(
                tokens.to(device),
                positions=places.to(device),
                visible=order if visible is None else order & visible,
            )
        return self.model.decode(
            tokens.to(device),
            positions=places.to(device),
            visible=visible,
            prefix=None if prefix is None else prefix.to(device),
            memory=self.memory,
            memory_visible=None if self.memory_keep is None else mask.real(self.memory_keep),
            cache=cache,
        )


def trained_length(config: TransformerConfig) -> int | None:
    """The longest text that the stack which writes knows positions for; None where positions are
    relative."""
    stack = config.decoder or config.encoder
    return None if stack is None else stack.longest


def context_start(length: int, limit: int | None) -> int:
    """Where reading starts in a text of `length` tokens. Up to `limit` tokens all are read; then
    reading starts anew from the last half, and again whenever `limit` is exceeded."""
    if limit is None or length <= limit:
        return 0
    half = max(1, limit // 2)
    beyond = length - limit - 1
    return limit + 1 - half + beyond // (limit - half + 1) * (limit - half + 1)
