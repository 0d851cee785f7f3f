"""The module of prompt tuning: learned vectors in front of the input of one stack."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from maskwright.base.errors import IncompatibleError
from maskwright.model.adapters.base.adapter import AdapterModule
from maskwright.model.adapters.prompt import PromptTuning
from maskwright.model.nn.config import Tokens
from maskwright.model.nn.mask import AttentionMask
from maskwright.model.nn.stack import StackModule
from maskwright.model.nn.transformer import Transformer


def branches(
    settings: PromptTuning, model: Transformer, generator: torch.Generator
) -> dict[str, SoftPrompt]:
    """Return a prompt for the first stack, initialised with vectors of random common tokens."""
    if not isinstance(model.config.tokens, Tokens):
        raise IncompatibleError(
            "a prompt of vectors stands before tokens",
            where="prompt",
            found=f"a model that reads {type(model.config.tokens).__name__.lower()}",
            wanted="a model with a table of tokens",
            do="choose another method",
        )
    table = model.tokens.weight.detach()
    count = min(settings.common, len(table))
    token_ids = torch.randint(count, (settings.length,), generator=generator)
    stack = "encoder" if model.encoder is not None else "decoder"
    if not model.config.stacks[stack].blocks:  # no layer would read it
        return {}
    return {stack: SoftPrompt(table[token_ids.to(table.device)].clone())}


class SoftPrompt(AdapterModule):
    """The vectors (P, E) in front of the input of one stack."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)

    def place(self, module: nn.Module) -> HookPair:
        assert isinstance(module, StackModule)
        return HookPair(
            module.register_forward_pre_hook(self._in_front, with_kwargs=True),
            module.register_forward_hook(self._left_out, with_kwargs=True),
        )

    def _in_front(
        self, stack: nn.Module, inputs: tuple[Any, ...], facts: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        (vectors,) = inputs  # B, T, E
        count = len(self.vectors)
        front = self.vectors.to(vectors.dtype).expand(len(vectors), -1, -1)
        positions, segments, prefix = (facts.get(n) for n in ("positions", "segments", "prefix"))
        visible = facts.get("visible")
        if positions is not None:
            prompt_positions = torch.arange(count, device=positions.device).expand(
                len(positions), -1
            )
            facts = {**facts, "positions": torch.cat([prompt_positions, positions + count], 1)}
        if facts.get("global_tokens") is not None:
            facts = {**facts, "global_tokens": F.pad(facts["global_tokens"], (count, 0))}
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


class HookPair:
    """Two hooks that are removed together."""

    def __init__(self, *hooks: RemovableHandle) -> None:
        self.hooks = hooks

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()


def _shifted(visible: AttentionMask, count: int) -> AttentionMask:
    """Return the mask of a text after a prompt: every query attends to the prompt, the prompt to
    all but padding."""

    def rule(row: Tensor, query: Tensor, key: Tensor) -> Tensor:
        query_in_text, key_in_text = ((position - count).clamp(min=0) for position in (query, key))
        text_visible = visible.rule(
            row, torch.where(query < count, key_in_text, query_in_text), key_in_text
        )
        return (key < count) | text_visible

    return AttentionMask(rule, f"prompt({count}) & {visible.name}", visible.rows)
