"""What a stack makes of token vectors before its first block.

    vectors (scaled) + positions + segments -> norm -> dropout -> projection to the model's width

The token table belongs to the model (two stacks share it); everything here belongs to one stack.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.base.errors import DataError
from maskwright.model.nn.config import Embeddings as EmbeddingsConfig
from maskwright.model.nn.config import Learned, Sinusoidal
from maskwright.model.nn.kernels.dropout import dropout
from maskwright.model.nn.kernels.linear import Linear
from maskwright.model.nn.meta_init import Table
from maskwright.model.nn.norm import Norm
from maskwright.model.nn.positions import sinusoids


class Embeddings(nn.Module):
    """Adds positions and segments to token vectors, then norm, dropout and projection.

    Args:
        config: the kind of positions, the number of segments, the norm, the dropout rate.
        token_width: width of the token vectors that come in.
        width: width of the model; a projection is added where it differs.
    """

    def __init__(self, config: EmbeddingsConfig, token_width: int, width: int) -> None:
        super().__init__()
        self.config = config
        places = config.positions
        self.position = None
        if isinstance(places, Learned):
            self.position = Table(places.length + places.offset, token_width)
        self.segment = Table(config.segments, token_width) if config.segments else None
        self.norm = Norm(config.norm, token_width) if config.norm is not None else None
        self.project = Linear(token_width, width) if token_width != width else None

    def forward(
        self,
        vectors: Float[Tensor, "B T E"],
        positions: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        start: int = 0,
    ) -> Float[Tensor, "B T D"]:
        """
        Args:
            vectors: rows of the token table.
            positions: counted from 0 in each document; None: start, start + 1, …
            segments: sentence A or B; None: all A.
            start: where the first position stands when `positions` is None.
        """
        x = vectors * vectors.shape[-1] ** 0.5 if self.config.scaled else vectors
        if self.config.positions is not None:
            x = x + self._places(vectors, positions, start)
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        if self.norm is not None:
            x = self.norm(x)
        x = dropout(x, self.config.dropout, self.training)
        return x if self.project is None else self.project(x)

    def _places(self, vectors: Tensor, positions: Tensor | None, start: int) -> Tensor:
        config = self.config.positions
        assert config is not None
        count = vectors.shape[1]
        if positions is None:
            last = start + count - 1
        else:
            # Elsewhere than on the CPU, reading the largest position would make the device wait;
            # while a program is exported there is none.
            on_cpu = positions.device.type == "cpu" and not torch.compiler.is_exporting()
            last = int(positions.max()) if on_cpu and positions.numel() else 0
        if last >= config.length:
            raise DataError(
                "a position lies beyond the model's table of positions",
                where=f"position {last}",
                found=f"{last + 1} positions",
                wanted=f"at most {config.length}",
                do="cut the text, or train a model with a longer block",
            )
        if isinstance(config, Sinusoidal):
            table = sinusoids(config.length, vectors.shape[2], vectors.dtype, vectors.device)
            return table[start : start + count] if positions is None else table[positions]
        assert self.position is not None and isinstance(config, Learned)
        if positions is None:
            first = start + config.offset
            return self.position.weight[first : first + count]
        return self.position(positions + config.offset if config.offset else positions)
