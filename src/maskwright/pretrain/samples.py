"""What a model says during training: a filled hole, or how it goes on with a text.

The prompt comes from the held-out text and never changes in a run, so the samples show learning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from maskwright.generate.decode import Sampling, generate
from maskwright.generate.fill import fill
from maskwright.objectives.objective import Objective
from maskwright.pretrain.prepare import Prepared

PROMPT_TOKENS, SHOWN_TOKENS = 12, 40


def sample(objective: Objective, prepared: Prepared, step: int) -> dict[str, Any] | None:
    """A `sample` line for the journal; None where the model neither fills nor writes on."""
    model, tokenizer = objective.scorer, prepared.tokenizer
    ids = [int(i) for i in prepared.held_out.document(0)[: 2 * PROMPT_TOKENS]]
    if not ids:
        return None
    if model.config.encoder is not None and tokenizer.mask is not None:
        sign = tokenizer.tokens([tokenizer.mask])[0]
        glue = "" if tokenizer.kind == "character" else " "
        first, after = _word(ids, tokenizer.starts_word)
        left, right = tokenizer.decode(ids[:first]), tokenizer.decode(ids[after:])
        prompt = f"{left}{glue}{sign}{glue}{right}"
        found = fill(model, tokenizer, [prompt], top=5, shift=objective.shift)[0]
        text = "  ".join(f"{c.token} {c.probability:.0%}" for c in found[0].candidates)
        return {"kind": "sample", "step": step, "prompt": prompt, "text": text}
    if model.config.decoder is not None and model.config.encoder is None:
        start = ids[:PROMPT_TOKENS]
        made = generate(model, [start], SHOWN_TOKENS, Sampling(temperature=0.8))[0]
        return {
            "kind": "sample",
            "step": step,
            "prompt": tokenizer.decode(start),
            "text": tokenizer.decode(start + made)[len(tokenizer.decode(start)) :],
        }
    return None


def _word(ids: list[int], starts_word: np.ndarray) -> tuple[int, int]:
    """First position of the word nearest to the prompt's middle that is one token, and the position
    after it; some word where none is."""
    starts = [i for i in range(len(ids)) if starts_word[ids[i]]] or [0]
    ends = [*starts[1:], len(ids)]
    whole = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a == 1]
    words = whole or list(zip(starts, ends, strict=True))
    return min(words, key=lambda word: abs(word[0] - PROMPT_TOKENS))
