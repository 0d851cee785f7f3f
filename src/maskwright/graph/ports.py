"""A graph: a module whose inputs and outputs are tensors with names, and sizes that may vary.

    input_ids [batch, length] int64        logits [batch, labels] float32

A size is a number, or a name: the same name stands for the same number in one call. `total` is
`past + length`, everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Type = Literal["int64", "int32", "float32"]
TYPES: dict[Type, torch.dtype] = {
    "int64": torch.int64,
    "int32": torch.int32,
    "float32": torch.float32,
}


@dataclass(frozen=True)
class Port:
    """A tensor that goes in or comes out.

    Attributes:
        axes: of each axis its size, or the name of a size that varies.
        below: of integers, the first number that is too large.
    """

    name: str
    axes: tuple[str | int, ...]
    dtype: Type = "float32"
    below: int = 2

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape where the sizes that vary are these."""
        known = {**sizes, "total": sizes.get("past", 0) + sizes.get("length", 0)}
        return tuple(known[axis] if isinstance(axis, str) else axis for axis in self.axes)


@dataclass(frozen=True)
class Graph:
    """What is written to one file.

    Attributes:
        name: of the file, without its ending.
        module: takes the inputs by their names and gives a tuple of the outputs.
        longest: the most positions it reads, past ones among them; None: as many as one likes.
    """

    name: str
    module: nn.Module
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    longest: int | None = None

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of the sizes that a caller chooses, in the order of their use."""
        axes = [axis for port in self.inputs for axis in port.axes if isinstance(axis, str)]
        return tuple(name for name in dict.fromkeys(axes) if name != "total")

    def example(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Tensor]:
        """Inputs of these sizes, the same for the same seed: ids and vectors by chance, masks that
        pad each row but the first at its end, and positions that go on where the past ends."""
        generator = torch.Generator().manual_seed(seed)
        made: dict[str, Tensor] = {}
        for port in self.inputs:
            shape = port.shape(sizes)
            if port.dtype == "float32":
                made[port.name] = torch.randn(shape, generator=generator)
            elif port.name.endswith(MASK):
                made[port.name] = _mask(shape, sizes.get("past", 0), generator).to(
                    TYPES[port.dtype]
                )
            elif port.name == POSITIONS:
                place = torch.arange(shape[1]) + sizes.get("past", 0)
                made[port.name] = place.expand(shape).contiguous().to(TYPES[port.dtype])
            else:
                drawn = torch.randint(0, port.below, shape, generator=generator)
                made[port.name] = drawn.to(TYPES[port.dtype])
        return made

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the module itself gives for inputs by name."""
        with torch.no_grad():
            given = self.module(**{port.name: inputs[port.name] for port in self.inputs})
        return {port.name: tensor for port, tensor in zip(self.outputs, given, strict=True)}


IDS, MASK, SEGMENTS, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"


def _mask(shape: tuple[int, ...], past: int, generator: torch.Generator) -> Tensor:
    """Ones, and zeros at the end of each row but the first; of a past nothing is padding, and of
    each row one position at least is none."""
    length = shape[-1]
    rows = int(torch.Size(shape[:-1]).numel())
    kept = torch.randint(min(past + 1, length), length + 1, (rows, 1), generator=generator)
    kept[:1] = length
    return (torch.arange(length) < kept).long().view(shape)
