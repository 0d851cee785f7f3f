"""All weights, in one function, by role.

    role                                  truncated, normal      fan_in               uniform
    token, position, segment table        deviation              1                    1, normal
    query of unscaled attention           deviation              (inputs · W)^-0.5    ±inputs^-0.5
    other matrices                        deviation              inputs^-0.5          ±inputs^-0.5
    table of distances                    deviation              D^-0.5               D^-0.5, normal
    last matrix of a branch, if scaled    × (2 · layers)^-0.5    the same             the same
    biases                                0                      0                    ±inputs^-0.5
    norms                                 weight 1, bias 0

`truncated` cuts a normal at two deviations (arXiv:1810.04805), `normal` does not, `fan_in` is a
normal as in arXiv:1910.10683, `uniform` is what PyTorch gives a fresh layer. Numbers are drawn on
the CPU, so that a seed means the same weights on every device.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from maskwright.model.nn.attention import AttentionModule
from maskwright.model.nn.characters import SpelledVectors
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.recurrent import LSTMCells
from maskwright.model.nn.stack import LayerMix
from maskwright.model.nn.transformer import HeadModule, Transformer, VocabularyHeadModule

Distribution = Literal["truncated", "normal", "fan_in", "uniform"]


def build(
    config: TransformerConfig,
    generator: torch.Generator | None = None,
    *,
    distribution: Distribution = "truncated",
    deviation: float = 0.02,
    scaled_residual: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    like: Transformer | None = None,
) -> Transformer:
    """A model with initialised weights; see `initialise` for the arguments. Its words have the
    characters that those of the model `like` have."""
    with torch.device("meta"):
        model = Transformer(config)
    materialise(model, device, dtype)
    initialise(
        model,
        generator,
        distribution=distribution,
        deviation=deviation,
        scaled_residual=scaled_residual,
    )
    if like is not None and isinstance(like.tokens, SpelledVectors):
        assert isinstance(model.tokens, SpelledVectors)
        model.tokens.spelling.data.copy_(like.tokens.spelling.data)
    return model


def materialise(model: nn.Module, device: torch.device | str, dtype: torch.dtype) -> None:
    """Give the parameters of a model on the meta device memory, with whatever stands there, in
    place; what modules share they go on sharing. `torch.nn.Module.to_empty` does so, too, and loads
    a computer algebra system for it."""
    assert not list(model.buffers()), "models here have parameters alone"
    memory_of: dict[Tensor, nn.Parameter] = {}
    for module in model.modules():
        for name, old in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            if old not in memory_of:
                memory = torch.empty(old.shape, dtype=dtype, device=device)
                memory_of[old] = nn.Parameter(memory, requires_grad=old.requires_grad)
            setattr(module, name, memory_of[old])


@torch.no_grad()
def initialise(
    model: Transformer,
    generator: torch.Generator | None = None,
    *,
    distribution: Distribution = "truncated",
    deviation: float = 0.02,
    scaled_residual: bool = False,
) -> None:
    """Draw every parameter of `model` anew, in the order of their names.

    Args:
        generator: of the CPU; None draws from PyTorch's default generator.
        distribution: a column of the table in the module's first lines.
        deviation: the standard deviation, where the column has it.
        scaled_residual: divide the last matrix of each branch by the square root of the number of
            branches' halves, 2 · layers, so that the residual does not grow with depth.
    """
    draw = _Draw(distribution, deviation, generator)
    shrink = _branch_ends(model) if scaled_residual else {}
    spread = _query_widths(model)
    tables = {id(stack.relative) for stack in (model.encoder, model.decoder) if stack is not None}
    for name, module in sorted(model.named_modules()):
        if isinstance(module, SpelledVectors):
            numbers = range(module.config.vocabulary)  # until a tokenizer says what stands there
            module.spell([*map(str, numbers)], [False] * len(numbers))
        if isinstance(module, nn.Embedding):
            fan = model.config.width**-0.5 if id(module) in tables else 1.0
            draw.table(module.weight, fan)
        elif isinstance(module, nn.Linear):
            draw.matrix(module.weight, spread.get(name, 1), shrink.get(name, 1.0))
            draw.bias(module.bias, module.in_features)
        elif isinstance(module, HeadModule | VocabularyHeadModule):
            if module.weight is not None:
                draw.matrix(module.weight, 1, 1.0)
            inputs = model.config.tokens.width if module.weight is None else module.weight.shape[1]
            draw.bias(module.bias, inputs)
        elif isinstance(module, LSTMCells):
            for weight in module.matrices:
                draw.matrix(weight, 1, 1.0)
            draw.bias(module.bias, module.config.cells)
        elif isinstance(module, LayerMix):
            module.weights.zero_()
            module.scale.fill_(1.0)
        elif isinstance(module, SpelledVectors):
            pass  # its tables are drawn by themselves
        elif hasattr(module, "weight") and isinstance(module.weight, Tensor):
            module.weight.fill_(1.0)
            if isinstance(module.bias, Tensor):
                module.bias.zero_()


class _Draw:
    """A distribution, a scale and a source of randomness."""

    def __init__(
        self, distribution: Distribution, deviation: float, generator: torch.Generator | None
    ) -> None:
        self.distribution, self.deviation, self.generator = distribution, deviation, generator

    def table(self, weight: Tensor, fan: float) -> None:
        draw = self._truncated if self.distribution == "truncated" else self._normal
        draw(weight, self.deviation if self.distribution in ("truncated", "normal") else fan)

    def matrix(self, weight: Tensor, query_width: int, shrink: float) -> None:
        inputs = weight.shape[1]
        draw, scale = {
            "truncated": (self._truncated, self.deviation),
            "normal": (self._normal, self.deviation),
            "fan_in": (self._normal, (inputs * query_width) ** -0.5),
            "uniform": (self._uniform, inputs**-0.5),
        }[self.distribution]
        draw(weight, scale * shrink)

    def bias(self, bias: Tensor | None, inputs: int) -> None:
        if bias is None:
            return
        if self.distribution == "uniform":
            self._uniform(bias, inputs**-0.5)
        else:
            bias.zero_()

    def _normal(self, weight: Tensor, deviation: float) -> None:
        drawn = torch.empty(weight.shape).normal_(0.0, deviation, generator=self.generator)
        weight.copy_(drawn)

    def _uniform(self, weight: Tensor, bound: float) -> None:
        drawn = torch.empty(weight.shape).uniform_(-bound, bound, generator=self.generator)
        weight.copy_(drawn)

    def _truncated(self, weight: Tensor, deviation: float) -> None:
        """One in 22 lies beyond two deviations and is drawn again, until none does. PyTorch's
        `trunc_normal_` looks through all again each time and takes ten times as long."""
        drawn = torch.empty(weight.numel()).normal_(generator=self.generator)
        (far,) = (drawn.abs() > 2).nonzero(as_tuple=True)
        while len(far):
            again = torch.empty(len(far)).normal_(generator=self.generator)
            drawn[far] = again
            far = far[again.abs() > 2]
        weight.copy_(drawn.mul_(deviation).view(weight.shape))


def _branch_ends(model: Transformer) -> dict[str, float]:
    """Name of each branch's last matrix -> the factor that shrinks it."""
    factors = {}
    for name, config in model.config.stacks.items():
        factor = (2 * len(config.blocks)) ** -0.5
        for module, _ in model.named_modules():
            if module.startswith(f"{name}.blocks.") and module.endswith((".output", ".down")):
                factors[module] = factor
    return factors


def _query_widths(model: Transformer) -> dict[str, int]:
    """Name of each query projection whose scores are not scaled -> the width of its head."""
    return {
        f"{name}.query": module.config.head_width
        for name, module in model.named_modules()
        if isinstance(module, AttentionModule) and not module.config.scaled
    }
