"""Entities from the labels of tokens, by the aggregation strategies of the token-classification
pipeline of transformers.

    none       every token by itself, with its index among the ids
    simple     adjacent tokens of one type are an entity; B- begins another
    first, average, max    first each word gets one label: that of its first token, that of the mean
                           of their probabilities, or that of its most certain token
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from maskwright.learn.tasks.base.encode import inked
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.merging import CONTINUATION

AggregationStrategy = Literal["none", "simple", "first", "average", "max"]


@dataclass(frozen=True)
class TextToken:
    """A token of a text: its id, its string, its characters, its index among the ids with special
    tokens, and whether it continues a word."""

    id: int
    string: str
    start: int
    end: int
    index: int
    is_subword: bool


def text_tokens(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], spans: NDArray[np.integer]
) -> list[TextToken]:
    """Return the tokens of a text. With WordPiece, a token that is not spelled as its characters
    continues a word; with other tokenizers, one without a space before it."""
    margin = tokenizer.frame_margins()[0]
    spans = inked(text, spans) if tokenizer.trims_offsets else spans
    tokens = []
    for number, (token_id, string, (start, end)) in enumerate(
        zip(ids, tokenizer.tokens(ids), spans.tolist(), strict=True)
    ):
        if tokenizer.kind == "wordpiece":
            is_subword = len(string) != end - start
        else:
            is_subword = start > 0 and " " not in text[start - 1 : start + 1]
        if token_id == tokenizer.unknown:
            string, is_subword = text[start:end], False
        tokens.append(TextToken(token_id, string, start, end, margin + number, is_subword))
    return tokens


def entities(
    tokens: Sequence[TextToken],
    probabilities: NDArray[np.float64],
    labels: Sequence[str],
    strategy: AggregationStrategy,
    tokenizer: Tokenizer,
) -> Iterator[dict[str, Any]]:
    """Yield the entities of a text, those of the label O included.

    Args:
        probabilities: (T, L) of the labels of each token.
    """
    if strategy in ("none", "simple"):
        units = [(n, n + 1) for n in range(len(tokens))]
    else:
        starts = [n for n, token in enumerate(tokens) if not (n and token.is_subword)]
        units = list(pairwise([*starts, len(tokens)]))
    groups: list[list[tuple[str, float, int, int]]] = []  # label, score, first token, stop
    for begin, stop in units:
        rows = probabilities[begin:stop]
        if strategy == "average":
            row = rows.mean(0)
        else:
            row = rows[rows.max(1).argmax() if strategy == "max" else 0]
        unit = (labels[int(row.argmax())], float(row.max()), begin, stop)
        (prefix, kind), last_kind = _split(unit[0]), _split(groups[-1][-1][0])[1] if groups else ""
        if strategy == "none" or not groups or prefix == "B" or kind != last_kind:
            groups.append([])
        groups[-1].append(unit)
    for group in groups:
        label, (begin, stop) = group[0][0], (group[0][2], group[-1][3])
        score = round(float(np.mean([score for _, score, _, _ in group])), 6)
        if strategy == "none":
            token = {"index": tokens[begin].index, "word": tokens[begin].string}
            named = {"entity": label, "score": score, **token}
        else:
            word = _spelled(tokens[begin:stop], tokenizer)
            named = {"entity_group": label.split("-", 1)[-1], "score": score, "word": word}
        yield {**named, "start": tokens[begin].start, "end": tokens[stop - 1].end}


def _split(label: str) -> tuple[str, str]:
    """Return a label as prefix, B or I, and type; a label without prefix continues."""
    return (label[0], label[2:]) if label[:2] in ("B-", "I-") else ("I", label)


def _spelled(tokens: Sequence[TextToken], tokenizer: Tokenizer) -> str:
    """Return the text of tokens; unknown ones are spelled as their characters."""
    if all(token.id != tokenizer.unknown for token in tokens):
        return tokenizer.decode([token.id for token in tokens], False)
    return " ".join(token.string for token in tokens).replace(f" {CONTINUATION}", "")
