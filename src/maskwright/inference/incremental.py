"""Growing texts read by a network that writes, token after token: what comes next in each.

A model is never asked about positions it has no vector for: when a text has outgrown them, reading
starts anew from its last half. Where it starts is a function of the text's length alone, so with or
without a cache the same contexts are read.

With a cache a prepared network reads. Without one, and where the stack that writes cannot be
prepared (`blocks.fits`), the network itself does: the plain path, which the other is tested by.

Letters: B rows, T positions, P sources, S positions of a source, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from maskwright.inference.blocks import fits, spread
from maskwright.inference.engine import hidden
from maskwright.inference.growing_rows import Memory, Rows
from maskwright.inference.prepared import Prepared, prepared
from maskwright.nn import mask
from maskwright.nn.config import TransformerConfig
from maskwright.nn.transformer import Transformer


class Reader:
    """Scores of the next token for growing texts, with what was computed before.

    Args:
        model: a network, or one that was prepared before.
        limit: how many tokens are read at most; None: all.
        cached: keep keys and values between steps.
    """

    def __init__(self, model: Transformer | Prepared, limit: int | None, cached: bool) -> None:
        self.network = network_of(model)
        self.limit = limit
        self.writer: Prepared | None = None
        stack = self.network.decoder if self.network.decoder is not None else self.network.encoder
        assert stack is not None  # every config has one
        if cached and fits(stack):
            self.writer = prepared(model)
        self.starts: list[int] = []
        self.seen: list[int] | None = None
        """How many of each text's first tokens see each other; None: none do."""
        self.rows: Rows | None = None
        self.memory: Memory | None = None
        self.states: Float[Tensor, "B S D"] | None = None
        self.keep_states: Bool[Tensor, "B S"] | None = None

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]] | None, copies: int = 1) -> None:
        """Read the sources, once. Each is for so many rows in a run."""
        if sources is None:
            return
        device, lengths = self.network.device, [len(source) for source in sources]
        keep = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
        keep = keep.to(device)
        if self.writer is not None:
            states = torch.cat(hidden(self.writer, sources))
            flat = keep.flatten().nonzero()[:, 0]
            states = spread(states, flat, keep.numel()).unflatten(0, keep.shape)
            self.memory = Memory.of(self.writer, states, keep, copies)
            return
        tokens = torch.zeros(keep.shape, dtype=torch.int64)
        for row, source in enumerate(sources):
            tokens[row, : len(source)] = torch.tensor(source)
        states = self.network.encode(tokens.to(device), visible=mask.real(keep))
        self.keep_states = keep.repeat_interleave(copies, 0)
        self.states = states.repeat_interleave(copies, 0)

    @torch.inference_mode()
    def next_scores(self, texts: Sequence[Sequence[int]], left: int) -> Float[Tensor, "B V"]:
        """(B, V) for the token that follows each text; `left` is how many will still follow."""
        starts = [context_start(len(text), self.limit) for text in texts]
        if self.writer is None:
            self.starts = starts
            return self.network.logits(self._read_plainly(texts)).cpu()
        rows = self.rows
        if rows is None or starts != self.starts or rows.length == rows.capacity:
            self.starts = starts
            hidden = self._read(self.writer, texts, left)
        else:
            hidden = rows.step([text[-1] for text in texts])
        return self.writer.scores(hidden).cpu()

    @torch.inference_mode()
    def keep(self, rows: list[int]) -> None:
        """Row i goes on as row `rows[i]`; where several share a source, they do so afterwards."""
        self.starts = [self.starts[row] for row in rows]
        if self.seen is not None:
            self.seen = [self.seen[row] for row in rows]
        if self.states is not None and self.keep_states is not None:
            index = torch.tensor(rows, device=self.states.device)
            self.states, self.keep_states = self.states[index], self.keep_states[index]
        if self.memory is not None:
            self.memory.keep(rows)
        if self.rows is not None:
            self.rows.keep(rows)

    def _read(self, writer: Prepared, texts: Sequence[Sequence[int]], left: int) -> Tensor:
        """Read the contexts from their beginning."""
        contexts, seen = self._contexts(texts)
        length = max(map(len, contexts))
        # Room until the first row starts anew: no row reads more than the limit.
        room = length + left - 1
        capacity = room if self.limit is None else min(room, length + self.limit)
        self.rows = None  # the buffers of before are not needed beside the new ones
        self.rows = Rows(writer, contexts, capacity, seen, self.memory)
        return self.rows.read(contexts)

    def _contexts(
        self, texts: Sequence[Sequence[int]]
    ) -> tuple[list[Sequence[int]], list[int] | None]:
        contexts = [text[start:] for text, start in zip(texts, self.starts, strict=True)]
        if self.seen is None:
            return contexts, None
        pairs = zip(self.seen, self.starts, strict=True)
        return contexts, [max(0, seen - start) for seen, start in pairs]

    def _read_plainly(self, texts: Sequence[Sequence[int]]) -> Float[Tensor, "B D"]:
        """All of the contexts by the network itself, aligned at their ends."""
        contexts, seen = self._contexts(texts)
        device, length = self.network.device, max(map(len, contexts))
        pads = torch.tensor([length - len(context) for context in contexts])
        tokens = torch.tensor([[0] * (length - len(c)) + list(c) for c in contexts])  # B, T
        places = (torch.arange(length)[None] - pads[:, None]).clamp(min=0)
        prefix = None if seen is None else (pads + torch.tensor(seen)).to(device)
        visible = None
        if bool(pads.any()):
            visible = mask.real((torch.arange(length)[None] >= pads[:, None]).to(device))
        if self.network.decoder is None:
            order = mask.causal if prefix is None else mask.causal | mask.prefix(prefix)
            return self.network.encode(
                tokens.to(device),
                positions=places.to(device),
                visible=order if visible is None else order & visible,
            )[:, -1]
        keep = self.keep_states
        return self.network.decode(
            tokens.to(device),
            positions=places.to(device),
            visible=visible,
            prefix=prefix,
            memory=self.states,
            memory_visible=None if keep is None else mask.real(keep),
        )[:, -1]


def network_of(model: Transformer | Prepared) -> Transformer:
    """The network itself."""
    return model if isinstance(model, Transformer) else model.network


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
