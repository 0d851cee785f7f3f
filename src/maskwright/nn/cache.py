"""Keys and values that a decoder has already computed, in buffers of a fixed capacity.

`KVCache.of(config, rows, capacity)` allocates once; each `decode(..., cache=cache)` writes the new
positions behind the old ones and reads all of them as a view, without copying. What the encoder's
memory gives to cross-attention is computed on the first step and kept.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.errors import ConfigError, DataError
from maskwright.nn.config import TransformerConfig

Pair = tuple[Float[Tensor, "B H K W"], Float[Tensor, "B H K W"]]


class KVCache:
    """One pair of buffers (B, H, capacity, W) per layer of a decoder.

    Attributes:
        length: how many positions are filled.
        capacity: how many there is room for.
    """

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values
        self.capacity = keys[0].shape[2]
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
        shapes = [
            (rows, block.attention.heads, capacity, block.attention.head_width)
            for block in config.decoder.blocks
        ]
        # Zeros, not empty memory: a masked position is multiplied by weight 0, and 0 * NaN is NaN.
        keys = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]
        values = [torch.zeros(shape, dtype=dtype, device=device) for shape in shapes]
        return cls(keys, values)

    def extend(
        self, layer: int, keys: Float[Tensor, "B H T W"], values: Float[Tensor, "B H T W"]
    ) -> Pair:
        """Write behind what is there and return all of the layer's keys and values.

        Raises:
            DataError: there is no room left, or another number of rows.
        """
        end = self.length + keys.shape[2]
        if end > self.capacity or keys.shape[0] != self.keys[layer].shape[0]:
            raise DataError(
                "the cache has no room for these positions",
                where="KVCache",
                found=f"{keys.shape[0]} rows, {end} positions",
                wanted=f"{self.keys[layer].shape[0]} rows, at most {self.capacity} positions",
            )
        self.keys[layer][:, :, self.length : end] = keys
        self.values[layer][:, :, self.length : end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def memory(self, layer: int, make: Callable[[], Pair]) -> Pair:
        """The layer's keys and values of the encoder's memory, made once."""
        if layer not in self._memory:
            self._memory[layer] = make()
        return self._memory[layer]

    def advance(self, count: int) -> None:
        """All layers have written `count` positions."""
        self.length += count

    def reorder(self, rows: Int[Tensor, " B"]) -> None:
        """Row i continues row `rows[i]` (beam search); the number of rows may change."""
        rows = rows.to(self.keys[0].device)
        self.keys = [self._taken(keys, rows) for keys in self.keys]
        self.values = [self._taken(values, rows) for values in self.values]
        self._memory = {
            layer: (keys.index_select(0, rows), values.index_select(0, rows))
            for layer, (keys, values) in self._memory.items()
        }

    def _taken(self, part: Tensor, rows: Tensor) -> Tensor:
        """These rows of a buffer; what is not written yet is not copied."""
        fresh = part.new_zeros((len(rows), *part.shape[1:]))
        fresh[:, :, : self.length] = part[:, :, : self.length].index_select(0, rows)
        return fresh
