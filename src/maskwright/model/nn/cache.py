"""Keys and values that were computed before, in buffers of a fixed capacity.

`KVCache.of(config, rows, capacity)` allocates once; each `decode(..., cache=cache)` writes the new
positions behind the old ones and reads all of them as a view, without copying. What the encoder's
memory gives to cross-attention is computed on the first step and kept. Rows leave, or take each
other's places, within the same buffers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.base.errors import ConfigError, DataError
from maskwright.model.nn.config import Stack, TransformerConfig

Pair = tuple[Float[Tensor, "B H K W"], Float[Tensor, "B H K W"]]


class KVCache:
    """One buffer (2, B, H, capacity, W) of keys and values per layer.

    Attributes:
        length: how many positions are filled.
        capacity: how many there is room for.
    """

    def __init__(self, layers: list[Float[Tensor, "2 B H C W"]]) -> None:
        self.layers = self._storage = layers
        self.capacity = layers[0].shape[3]
        self.length = 0
        self._memory: dict[int, Pair] = {}

    @classmethod
    def of(
        cls,
        config: TransformerConfig,
        rows: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """Empty buffers for `config.decoder`."""
        if config.decoder is None:
            raise ConfigError("only a decoder has a cache", where="decoder", found=None)
        return cls.of_stack(config.decoder, rows, capacity, dtype=dtype, device=device)

    @classmethod
    def of_stack(
        cls,
        stack: Stack,
        rows: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """Empty buffers for a stack that is read from left to right, be it an encoder."""
        # Zeros, not empty memory: a masked position is multiplied by weight 0, and 0 * NaN is NaN.
        return cls(
            [
                torch.zeros(
                    (2, rows, block.attention.heads, capacity, block.attention.head_width),
                    dtype=dtype,
                    device=device,
                )
                for block in stack.blocks
            ]
        )

    @property
    def rows(self) -> int:
        return self.layers[0].shape[1]

    @property
    def keys(self) -> list[Float[Tensor, "B H C W"]]:
        return [layer[0] for layer in self.layers]

    @property
    def values(self) -> list[Float[Tensor, "B H C W"]]:
        return [layer[1] for layer in self.layers]

    def extend(
        self, layer: int, keys: Float[Tensor, "B H T W"], values: Float[Tensor, "B H T W"]
    ) -> Pair:
        """Write behind what is there and return all of the layer's keys and values.

        Raises:
            DataError: there is no room left, or another number of rows.
        """
        end = self.length + keys.shape[2]
        if end > self.capacity or keys.shape[0] != self.rows:
            raise DataError(
                "the cache has no room for these positions",
                where="KVCache",
                found=f"{keys.shape[0]} rows, {end} positions",
                wanted=f"{self.rows} rows, at most {self.capacity} positions",
            )
        buffer = self.layers[layer]
        buffer[0, :, :, self.length : end] = keys
        buffer[1, :, :, self.length : end] = values
        return buffer[0, :, :, :end], buffer[1, :, :, :end]

    def memory(self, layer: int, make: Callable[[], Pair]) -> Pair:
        """The layer's keys and values of the encoder's memory, made once."""
        if layer not in self._memory:
            self._memory[layer] = make()
        return self._memory[layer]

    def advance(self, count: int) -> None:
        """All layers have written `count` positions."""
        self.length += count

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Let row i continue row `rows[i]` (beam search). Only rows that change are copied."""
        sources = rows.tolist()
        self._memory = {
            layer: (
                keys.index_select(0, rows.to(keys.device)),
                values.index_select(0, rows.to(values.device)),
            )
            for layer, (keys, values) in self._memory.items()
        }
        if len(sources) > self.rows:
            self.layers = [self._grown(buffer, rows.to(buffer.device)) for buffer in self.layers]
            self._storage = self.layers
            return
        moved = [(to, source) for to, source in enumerate(sources) if to != source]
        if moved:
            device = self.layers[0].device
            to, source = torch.tensor(moved, device=device).T
            for buffer in self.layers:
                filled = buffer[:, :, :, : self.length]
                filled[:, to] = filled[:, source]
        self.layers = [buffer[:, : len(sources)] for buffer in self.layers]

    def move(self, by: int, *, front: int, capacity: int, rows: int) -> None:
        """Copy to new buffers with this capacity; positions behind the first `front` move by `by`,
        and those that would overlap the front are dropped."""
        begin = front + max(0, -by)
        moved = []
        for old in self.layers:
            shape = (2, max(rows, self.rows), *old.shape[2:3], capacity, *old.shape[4:])
            fresh = old.new_zeros(shape)
            fresh[:, : self.rows, :, :front] = old[:, :, :, :front]
            filled = old[:, :, :, begin : self.length]
            fresh[:, : self.rows, :, begin + by : self.length + by] = filled
            moved.append(fresh)
        count = self.rows
        self._storage, self.layers = moved, [buffer[:, :count] for buffer in moved]
        self.length, self.capacity = self.length + by, capacity

    def join(self, other: KVCache, *, front: int = 0) -> None:
        """Append the rows of `other`; all rows end together, and begin with their `front`
        positions."""
        shift, count, before = max(0, other.length - self.length), self.rows + other.rows, self.rows
        spare = self._storage[0].shape[1]
        if shift or count > spare:
            rows = spare if count <= spare else max(count, 2 * before)
            self.move(
                shift, front=front, capacity=max(self.capacity, self.length + shift), rows=rows
            )
        begin = front + self.length - other.length
        for buffer, theirs in zip(self._storage, other.layers, strict=True):
            buffer[:, before:count, :, :front] = theirs[:, :, :, :front]
            filled = theirs[:, :, :, front : other.length]
            buffer[:, before:count, :, begin : self.length] = filled
        self.layers = [buffer[:, :count] for buffer in self._storage]

    def _grown(self, buffer: Tensor, rows: Tensor) -> Tensor:
        shape = (2, len(rows), *buffer.shape[2:])
        fresh = buffer.new_zeros(shape)
        fresh[:, :, :, : self.length] = buffer[:, :, :, : self.length].index_select(1, rows)
        return fresh
