"""Prompt tuning (Lester et al. 2021, arXiv:2104.08691): learned vectors in front of the tokens, at
the input and nowhere else.

    [prompt | vectors of the tokens] -> stack -> hidden states, those of the prompt left out

In an encoder with a decoder behind it, the prompt stands before the encoder alone. Positions of the
text move on by the prompt's length, so a block has that much less room. Hidden states keep the
shape of the text, so that targets stay where they are; other than in the paper, a decoder therefore
does not read the encoder's states of the prompt itself. A row should hold one document: several
would talk to each other through the prompt. Like a prefix, a prompt changes outputs from the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.adapters.parts.adapter import AdapterModule, Settings
from maskwright.errors import IncompatibleError
from maskwright.nn.mask import AttentionMask
from maskwright.nn.stack import Stack
from maskwright.nn.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Prompt(Settings):
    """`length` vectors, at first those of tokens drawn from the first `common` of the table (the
    paper's: the 5,000 most common ones)."""

    silent: ClassVar[bool] = False

    kind: Literal["prompt"] = "prompt"
    length: int = 20
    common: int = 5000

    def __post_init__(self) -> None:
        self.require("length", 1 <= self.length <= 1 << 16, "1 to 65,536")
        self.require("common", self.common >= 1, "at least 1")

    @property
    def positions(self) -> int:
        return self.length

    def branches(self, model: Transformer, generator: torch.Generator) -> dict[str, AdapterModule]:
        table = model.tokens.weight.detach()
        last = min(self.common, len(table))
        chosen = torch.randint(last, (self.length,), generator=generator)
        vectors = table[chosen.to(table.device)].clone()
        return {"encoder" if model.encoder is not None else "decoder": SoftPrompt(vectors)}


SETTINGS = Prompt


class SoftPrompt(AdapterModule):
    """The vectors (P, E) in front of what one stack reads."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)

    def place(self, module: nn.Module) -> Both:
        assert isinstance(module, Stack)
        return Both(
            module.register_forward_pre_hook(self._in_front, with_kwargs=True),
            module.register_forward_hook(self._left_out, with_kwargs=True),
        )

    def _in_front(
        self, stack: nn.Module, inputs: tuple[Any, ...], facts: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if facts.get("cache") is not None:
            raise IncompatibleError(
                "a prompt has no place in a cache",
                where="decode(cache=...)",
                do="decode without a cache, or train a prefix",
            )
        (vectors,) = inputs  # B, T, E
        count = len(self.vectors)
        front = self.vectors.to(vectors.dtype).expand(len(vectors), -1, -1)
        positions, segments, prefix = (facts.get(n) for n in ("positions", "segments", "prefix"))
        visible = facts.get("visible")
        if positions is not None:
            first = torch.arange(count, device=positions.device).expand(len(positions), -1)
            facts = {**facts, "positions": torch.cat([first, positions + count], 1)}
        if segments is not None:
            facts = {**facts, "segments": F.pad(segments, (count, 0))}
        if prefix is not None:
            facts = {**facts, "prefix": prefix + count}
        if visible is not None:
            facts = {**facts, "visible": _shifted(visible, count)}
        if facts.get("at") is not None:
            row = facts["at"] // vectors.shape[1]
            facts = {**facts, "at": facts["at"] + (row + 1) * count}
        return (torch.cat([front, vectors], 1),), facts

    def _left_out(
        self, stack: nn.Module, inputs: tuple[Any, ...], facts: dict[str, Any], out: Tensor
    ) -> Tensor:
        if facts.get("at") is not None:
            return out
        trace = facts.get("trace")
        if trace is not None:
            trace.hidden[:] = [hidden[:, len(self.vectors) :] for hidden in trace.hidden]
        return out[:, len(self.vectors) :]


class Both:
    """Two hooks that go together."""

    def __init__(self, *hooks: RemovableHandle) -> None:
        self.hooks = hooks

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()


def _shifted(visible: AttentionMask, count: int) -> AttentionMask:
    """The facts of a text that stands behind a prompt: all see the prompt, and the prompt sees
    itself and what is no padding."""

    def rule(row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        here, there = ((place - count).clamp(min=0) for place in (query, key))
        seen = visible.rule(row, torch.where(query < count, there, here), there)
        return (key < count) | seen

    return AttentionMask(rule, f"prompt({count}) & {visible.name}", visible.rows)
