"""Subword regularisation: random splits of words (Kudo 2018).

A Unigram vocabulary gives every split of a word a probability. Instead of the best split, one is
sampled exactly, by forward filtering and backward sampling, as a function of (seed, counter).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from maskwright.base.errors import UsageError
from maskwright.base.randomness import key, uniforms
from maskwright.text.tokenizer.tokenizer import Tokenizer

BELOW_ALL = 10.0  # by which an unknown character scores below the rarest piece, as in the library


def encode_sampled(
    tokenizer: Tokenizer, text: str, *, alpha: float, seed: int, counter: int
) -> list[int]:
    """Encode ordinary text with random splits.

    Args:
        tokenizer: of kind unigram.
        alpha: exponent of the probabilities: 0 makes all splits equally likely, large values
            approach `tokenizer.encode`.
        seed: of the run.
        counter: identifies text and epoch.
    Raises:
        UsageError: another kind, or a negative `alpha`.
    """
    scores, limits = tokenizer.scores, tokenizer.score_limits
    if scores is None or limits is None or alpha < 0:
        raise UsageError(
            "splits are drawn from a unigram vocabulary, with alpha from 0 on",
            found=f"{tokenizer.kind}, alpha {alpha}",
        )
    unknown, longest, ids = limits[0] - BELOW_ALL, limits[1], list[int]()
    for number, word in enumerate(tokenizer.words(text)):
        draws = uniforms(key("sample", seed, counter, number), len(word))
        before = True
        for piece in sampled_split(word, scores, alpha, draws.tolist(), unknown, longest):
            is_piece = piece in scores
            token_id = tokenizer.id(piece) if is_piece else tokenizer.unknown
            if token_id is not None and (is_piece or before):  # one for unknown characters in a row
                ids.append(token_id)
            before = is_piece
    return ids


def sampled_split(
    word: str,
    scores: Mapping[str, float],
    alpha: float,
    draws: Sequence[float],
    unknown: float,
    longest: int,
) -> list[str]:
    """Sample a split of `word` with a probability proportional to its own to the power of `alpha`.

    Args:
        word: not empty.
        scores: piece -> log-probability.
        alpha: see `encode_sampled`.
        draws: as many numbers in [0, 1) as the word has characters.
        unknown: log-probability of a character that is no piece.
        longest: characters of the longest piece.
    """
    arriving: list[list[tuple[int, float]]] = [[]]
    forward = [0.0]
    for end in range(1, len(word) + 1):
        incoming = []
        for start in range(max(0, end - longest), end):
            score = scores.get(word[start:end], unknown if start == end - 1 else None)
            if score is not None:
                incoming.append((start, forward[start] + alpha * score))
        arriving.append(incoming)
        forward.append(float(np.logaddexp.reduce([value for _, value in incoming])))
    pieces, end = [], len(word)
    for draw in draws:
        if end == 0:
            break
        shares = np.exp(np.array([value for _, value in arriving[end]]) - forward[end])
        chosen = int(np.searchsorted(np.cumsum(shares), draw, "right"))
        start = arriving[end][min(chosen, len(shares) - 1)][0]
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]
