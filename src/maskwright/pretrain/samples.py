"""What a model says during training: a filled hole, or how it goes on with a text.

The prompt comes from the held-out text and never changes in a run, so the samples show learning.
"""

from __future__ import annotations

from typing import Any

from maskwright.generate.decode import Sampling, generate
from maskwright.generate.fill import fill
from maskwright.objectives.objective import Objective
from maskwright.pretrain.prepare import Prepared

PROMPT_TOKENS, SHOWN_TOKENS = 12, 40


def sample(objective: Objective, prepared: Prepared, step: int) -> dict[str, Any] | None:
    """A `sample` line for the journal; None where the model neither fills nor writes on."""
    model, tokenizer = objective.product, prepared.tokenizer
    ids = [int(i) for i in prepared.held_out.document(0)[: 2 * PROMPT_TOKENS]]
    if not ids:
        return None
    if model.config.encoder is not None and tokenizer.mask is not None:
        sign = tokenizer.tokens([tokenizer.mask])[0]
        hole = min(PROMPT_TOKENS, len(ids) - 1)
        glue = "" if tokenizer.kind == "character" else " "
        left, right = tokenizer.decode(ids[:hole]), tokenizer.decode(ids[hole + 1 :])
        prompt = f"{left}{glue}{sign}{glue}{right}"
        found = fill(model, tokenizer, [prompt], top=5)[0]
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
