"""Samples during training: a filled mask, a continued text, or a restored text.

The prompt comes from the held-out text and never changes in a run, so the samples show progress.
The weights change between two of them, so none are laid out (docs/log.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.data.rows import RowSource
from maskwright.inference.decode import Sampling, generate
from maskwright.inference.fill_mask import fill
from maskwright.inference.held_out_loss import SEED
from maskwright.inference.prepared import prepare
from maskwright.models.special_tokens import opening
from maskwright.nn.transformer import Transformer
from maskwright.objectives.parts.encoder_decoder import EncoderDecoder
from maskwright.objectives.parts.objective import Objective
from maskwright.pretrain.prepare import Prepared

PROMPT_TOKENS, SHOWN_TOKENS = 12, 40


def sample(
    objective: Objective, prepared: Prepared, rows: RowSource, step: int
) -> dict[str, Any] | None:
    """A `sample` line for the journal; None if the model neither fills masks nor writes.

    Args:
        rows: of the held-out text, for objectives over two stacks.
    """
    model, tokenizer = objective.scorer, prepared.tokenizer
    # No more than half a row, so that the model has room for it however it is written again.
    length = min(2 * PROMPT_TOKENS, rows.length // 2)
    ids = [int(i) for i in prepared.held_out.document(0)[:length]]
    if not ids:
        return None
    if isinstance(objective, EncoderDecoder):
        return {"kind": "sample", "step": step, **_rewritten(objective, prepared, rows)}
    if model.config.encoder is not None and tokenizer.mask is not None:
        sign = tokenizer.tokens([tokenizer.mask])[0]
        glue = "" if tokenizer.kind == "character" else " "
        fresh = np.arange(len(ids)) == 0
        first, after = _word(prepared.held_out.begins_word(np.array(ids), fresh))
        left, right = tokenizer.decode(ids[:first]), tokenizer.decode(ids[after:])
        prompt = f"{left}{glue}{sign}{glue}{right.removeprefix(glue)}"
        # Of two stacks this objective trains the encoder alone, and that is what is shown.
        found = fill(
            prepare(model, live=True),
            tokenizer,
            [prompt],
            top=5,
            shift=objective.prediction_offset,
            alone=True,
        )[0]
        text = "  ".join(f"{c.token} {c.probability:.0%}" for c in found[0].candidates)
        return {"kind": "sample", "step": step, "prompt": prompt, "text": text}
    if model.config.decoder is not None and model.config.encoder is None:
        start = ids[:PROMPT_TOKENS]
        sampling = _sampling(prepared, model, 0.8)
        written = generate(
            prepare(model, live=True),
            [start],
            SHOWN_TOKENS,
            sampling,
            whole=objective.bidirectional_prefix,
        )[0]
        return {
            "kind": "sample",
            "step": step,
            "prompt": tokenizer.decode(start),
            "text": tokenizer.decode(start + written)[len(tokenizer.decode(start)) :],
        }
    return None


def _rewritten(objective: EncoderDecoder, prepared: Prepared, source: RowSource) -> dict[str, str]:
    """The beginning of the first row as the encoder reads it, and what the decoder writes."""
    rows = source.rows(np.array([0]), 0)
    length = min(2 * PROMPT_TOKENS, int((rows.documents == 1).sum()))
    batch = objective.corrupt(rows.cut(0, length), np.zeros(1, dtype=np.int64), SEED)
    assert batch.decoder_tokens is not None
    read = batch.tokens[0] if batch.documents is None else batch.tokens[batch.documents != 0]
    written = generate(
        prepare(objective.product, live=True),
        [_decoder_prefix(batch.decoder_tokens[0].tolist(), opening(prepared.tokenizer))],
        SHOWN_TOKENS,
        _sampling(prepared, objective.product, 0.0),
        sources=[read.tolist()],
        end=objective.vocabulary.end,
    )[0]
    # The text is shown without its frame, but with the sentinels that say which gap is filled.
    tokenizer = prepared.tokenizer
    hidden = tokenizer.special_ids - {*tokenizer.sentinels}
    text = tokenizer.decode([token for token in written if token not in hidden], False)
    return {"prompt": tokenizer.decode(read.tolist(), False), "text": text}


def _decoder_prefix(decoded: list[int], first: list[int]) -> list[int]:
    """The decoder's tokens before the first word: the start token and, where texts are framed, the
    opening tokens."""
    count = 1 + len(first)
    return decoded[:count] if decoded[1:count] == first else decoded[:1]


def _sampling(prepared: Prepared, model: Transformer, temperature: float) -> Sampling:
    """Sampling without padding and without ids beyond the tokenizer's vocabulary."""
    known, rows = prepared.tokenizer.vocabulary_size, model.config.tokens.vocabulary
    padding = [] if prepared.tokenizer.pad is None else [prepared.tokenizer.pad]
    return Sampling(temperature=temperature, forbidden=(*padding, *range(known, rows)))


def _word(begins: NDArray[np.bool_]) -> tuple[int, int]:
    """The first position of the one-token word nearest to the prompt's middle, and the position
    after it; of any word if no word is one token.

    Args:
        begins: (T,) where a word begins.
    """
    starts = np.flatnonzero(begins).tolist() or [0]
    ends = [*starts[1:], len(begins)]
    single = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a == 1]
    words = single or list(zip(starts, ends, strict=True))
    return min(words, key=lambda word: abs(word[0] - len(begins) // 2))
