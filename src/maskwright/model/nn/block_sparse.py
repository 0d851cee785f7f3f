"""Which blocks of a text see which (BigBird; Zaheer et al. 2020, arXiv:2007.14062, section 2).

Blocks are counted from the beginning of each text, so that a text sees the same whatever stands
beside it in its row or batch. `BlockSight` has it all for one forward: the `mask`, which like other
masks is the same for all heads; how often each head sees a key (`log_counts`), as random blocks
differ by head and may meet others; and the `tiles` in which attention is computed without the
matrix of all queries and keys.

    block of query    keys of a long text, by block                        short text
    first, last       all                                                  all
    others            first, one before, itself, one after, last, random   all

The reference draws by NumPy's global stream, anew with the number of the layer as seed in each
forward. The same numbers come from a generator here, and nothing else is reset.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from maskwright.model.nn.config import BlockSparse
from maskwright.model.nn.mask import AttentionMask

# Lengths for which the reference draws among the first blocks, up to EARLY_END tokens.
EARLY_LENGTHS, EARLY_END = (1024, 3072, 4096), 1024
# Tokens in the blocks of queries whose keys are gathered together.
LARGEST_TILE = 2048


@lru_cache(maxsize=256)
def reference_blocks(config: BlockSparse, heads: int, count: int, longest: int) -> Tensor:
    """The random blocks (H, count - 2, r) that transformers 5 draws in training for the inner
    blocks of a text of `count` blocks, in a model with `longest` positions."""
    draw = np.random.RandomState(config.layer)
    table = np.zeros((heads, count - 2, config.num_random), np.int64)
    if count * config.size in EARLY_LENGTHS:
        total = longest // config.size
        is_early = 2 * config.size < EARLY_END
        end_block = EARLY_END // config.size - 1 if is_early else total - 1
        middle = np.arange(1, min(end_block, total - 2) + 1, dtype=np.int32)
        for head in range(heads):
            for block in range(1, total - 1):
                candidates = middle if block >= total - 3 else middle[abs(middle - block) > 1]
                chosen = draw.permutation(candidates)[: config.num_random]
                if block < count - 1:
                    table[head, block - 1] = chosen
        return torch.from_numpy(table)
    end = config.full_blocks
    for block in range(1, count - 1):
        hidden = {block - 1, block, block + 1, 0, end - 1}
        hidden |= {end - 2} if block == 1 else {1} if block == end - 2 else set()
        for head in range(heads):
            order = draw.permutation(np.arange(end, dtype=np.int32))
            allowed = [number for number in order if number not in hidden]
            table[head, block - 1] = allowed[: config.num_random]
    return torch.from_numpy(table)


class Tile(NamedTuple):
    """Groups of blocks that are computed together; blocks are counted through the batch.

    Attributes:
        queries: the blocks of each group's queries.
        keys: those of its keys, for each head.
        bias: what is added to the scores, -inf for keys that do not count; None: nothing.
    """

    queries: Int[Tensor, "G M"]
    keys: Int[Tensor, "#H G N"]
    bias: Float[Tensor, "#H G 1 K"] | None


class BlockSight:
    """What the tokens of a batch see through blocks.

    Args:
        documents: the text of each position, 0 for padding; a text is a run of equal numbers.
        heads: how many heads draw blocks of their own.
        training: whether random blocks are those of training.
        longest: the positions of the model.
    """

    def __init__(
        self,
        config: BlockSparse,
        documents: Int[Tensor, "B T"],
        heads: int,
        training: bool,
        longest: int,
    ) -> None:
        self.config, self.heads, self.longest = config, heads, longest
        self.device, self.shape = documents.device, documents.shape
        self.is_text = documents != 0
        size, self.draws = config.size, config.draws(training)
        self.extra = config.num_random if config.random == "reference" and not self.draws else 0
        if torch.compiler.is_exporting():  # each row is a text
            offsets = torch.arange(self.shape[1], device=self.device)[None].expand(self.shape)
            self.text = torch.arange(self.shape[0], device=self.device)[:, None].expand(self.shape)
            self.lengths = self.is_text.sum(1)
            self.begins = self.text[:, 0] * self.shape[1]
        else:
            begins = torch.ones_like(self.is_text)
            begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
            self.text = begins.flatten().cumsum(0).view(self.shape) - 1
            self.begins = begins.flatten().nonzero()[:, 0]
            self.lengths = torch.bincount(self.text[self.is_text], minlength=len(self.begins))
            flat = torch.arange(self.text.numel(), device=self.device).view(self.shape)
            offsets = flat - self.begins[self.text]
        self.block, self.offset = offsets // size, offsets % size
        self.counts = (self.lengths + size - 1) // size  # blocks of each text, 0 of padding
        self.firsts = self.counts.cumsum(0) - self.counts
        self.scores: Tensor | None = None
        if self.draws and config.random == "fresh":
            sizes = heads, -(-longest // size), -(-longest // size)
            fixed = np.random.default_rng(config.layer).random(sizes, np.float32)
            self.scores = (torch.rand(sizes) if training else torch.tensor(fixed)).to(self.device)

    def _chosen(self, count: int | Tensor, longest: int) -> Int[Tensor, "*any n r"]:
        """Fresh random blocks of a text of `count` blocks, of its first `longest` ones."""
        assert self.scores is not None
        numbers = torch.arange(longest, device=self.device)
        near = (numbers[:, None] - numbers).abs() <= 1
        hidden = near | (numbers == 0) | (numbers >= count - 1)
        scores = self.scores[:, :longest, :longest].masked_fill(hidden, -1.0)
        return scores.topk(self.config.num_random, -1).indices

    def drawn(self, count: int) -> Int[Tensor, "H M r"]:
        """The random blocks of the inner blocks of a text of `count` blocks."""
        if self.scores is not None:
            return self._chosen(count, count)[:, 1:-1]
        return reference_blocks(self.config, self.heads, count, self.longest).to(self.device)

    @cached_property
    def times_seen(self) -> Int[Tensor, "N _ n n"]:
        """How often each block of each text is seen from each of its blocks, by each head that
        draws."""
        # A program that is exported knows no length.
        length = self.longest if torch.compiler.is_exporting() else self.shape[1]
        longest, full = -(-length // self.config.size), self.config.full_blocks
        numbers, count = torch.arange(longest, device=self.device), self.counts[:, None, None, None]
        query = numbers[:, None]
        inner = (count > full) & (query > 0) & (query < count - 1)
        near = (query - numbers).abs() <= 1
        times = (near | (numbers == 0) | (numbers == count - 1) | ~inner).long()
        times = (times + self.extra * (inner & (numbers == 0))) * (numbers < count)
        if not self.draws:
            return times
        times = times.repeat(1, self.heads, 1, 1)
        if self.scores is not None:
            chosen = self._chosen(count, longest)
            return times.scatter_add(-1, chosen, inner.long().expand_as(chosen))
        for text, length in enumerate(self.counts.tolist()):
            if length > full:
                chosen = self.drawn(length)
                times[text, :, 1 : length - 1].scatter_add_(-1, chosen, torch.ones_like(chosen))
        return times

    @property
    def mask(self) -> AttentionMask:
        """Whether any head sees the key."""

        def rule(row: Tensor, query: Tensor, key: Tensor) -> Tensor:
            text, blocks = self.text[row, query], (self.block[row, query], self.block[row, key])
            is_seen = (self.times_seen > 0).any(1)[text, *blocks]
            in_text = self.is_text[row, query] & (text == self.text[row, key])
            return (in_text & is_seen) | (query == key)

        name = f"blocks({self.config.size}, {self.config.num_random} {self.config.random})"
        return AttentionMask(rule, name, self.shape[0], itself=True)

    @cached_property
    def log_counts(self) -> Float[Tensor, "B _ T T"] | None:
        """What is added to the scores for how often a head sees a key; None: nothing."""
        if not self.draws and not self.extra:
            return None
        logs = torch.where((self.times_seen > 0).any(1, keepdim=True), self.times_seen.log(), 0.0)
        query, key = self.block[:, :, None], self.block[:, None, :]
        return logs[self.text[:, :, None], :, query, key].permute(0, 3, 1, 2)

    # ------------------------------------------------------------------------- in blocks
    @cached_property
    def slots(self) -> tuple[Int[Tensor, "NB S"], Bool[Tensor, "NB S"]]:
        """Where the tokens of all blocks stand in the flattened batch, and which are there."""
        texts = torch.arange(len(self.counts), device=self.device).repeat_interleave(self.counts)
        inside = (
            torch.arange(len(texts), device=self.device) - self.firsts[texts]
        ) * self.config.size
        offsets = inside[:, None] + torch.arange(self.config.size, device=self.device)
        is_there = offsets < self.lengths[texts, None]
        return torch.where(is_there, self.begins[texts, None] + offsets, 0), is_there

    @cached_property
    def tiles(self) -> list[Tile]:
        """All blocks of queries, each once."""
        return list(self._tiles())

    def _tiles(self) -> Iterator[Tile]:
        for count in sorted(set(self.counts.tolist()) - {0}):
            begins = self.firsts[self.counts == count]
            numbers = torch.arange(count, device=self.device)
            blocks = begins[:, None] + numbers
            is_long = count > self.config.full_blocks
            queries = blocks[:, [0, -1]] if is_long else blocks
            yield self._tile(queries, blocks[None], torch.zeros(1, 1, count, device=self.device))
            if not is_long:
                continue
            inner = numbers[1:-1]
            near = (0 * inner, inner - 1, inner, inner + 1, 0 * inner + count - 1)
            keys = torch.stack(near, -1)[None]  # 1, M, N
            logs = torch.zeros(keys.shape, device=self.device)
            logs[..., 0] = float(np.log1p(self.extra))
            logs[:, 0, 1] = logs[:, -1, 3] = -torch.inf  # the first and the last block once
            if self.draws:
                drawn = self.drawn(count)
                keys = torch.cat((keys.expand(len(drawn), -1, -1), drawn), -1)
                logs = F.pad(logs, (0, self.config.num_random))
            keys = (begins[:, None, None] + keys[:, None]).flatten(1, 2)
            logs = logs.repeat(1, len(begins), 1)
            queries = blocks[:, 1:-1].reshape(-1, 1)
            step = max(1, LARGEST_TILE // self.config.size)
            for begin in range(0, len(queries), step):
                at = slice(begin, begin + step)
                yield self._tile(queries[at], keys[:, at], logs[:, at])

    def _tile(self, queries: Tensor, keys: Tensor, logs: Float[Tensor, "#H G N"]) -> Tile:
        counts = torch.where(self.slots[1][keys], logs[..., None], -torch.inf).flatten(2)
        bias = counts[:, :, None] if bool(counts.any()) else None
        return Tile(queries, keys, bias)

    def split(self, x: Float[Tensor, "B H T W"]) -> Float[Tensor, "L SW"]:
        """The blocks of all heads, L = H times the number of blocks."""
        slots, flat = self.slots[0].flatten(), x.transpose(1, 2).flatten(0, 1)  # B T, H, W
        is_whole = len(slots) == len(flat) and bool(self.slots[1].all())
        flat = flat if is_whole else flat[slots]
        return flat.transpose(0, 1).reshape(-1, self.config.size * x.shape[3])

    def join(self, x: Float[Tensor, "H NB SW"]) -> Float[Tensor, "B T H W"]:
        """What was computed for the blocks of the `tiles`, in their order, at its positions; zeros
        for padding."""
        order = torch.cat([tile.queries.flatten() for tile in self.tiles]).argsort()
        blocks = (self.firsts[self.text] + self.block).clamp(max=len(order) - 1)
        at = (order[blocks] * self.config.size + self.offset).flatten()
        x = x.reshape(len(x), len(order) * self.config.size, -1).transpose(0, 1)[at]
        x = x.view(*self.shape, *x.shape[1:])
        return x if bool(self.is_text.all()) else x.masked_fill(~self.is_text[..., None, None], 0.0)
