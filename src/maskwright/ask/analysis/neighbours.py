"""The nearest words of a word, or of a sum of words: king - man + woman (Mikolov et al. 2013,
arXiv:1301.3781, section 4), by the cosine of their vectors in the token table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import normalize

from maskwright.base.config import require
from maskwright.base.errors import UsageError, near
from maskwright.model.nn.characters import SpelledVectors
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model

MOST_WORDS = 20_000  # among which similar ones are looked for


@torch.no_grad()
def neighbours(
    model: Model | Path | str, words: Sequence[str], *, minus: Sequence[str] = (), top: int = 10
) -> list[tuple[str, float]]:
    """Return the `top` words nearest to the sum of the unit vectors of `words` without those of
    `minus`, each with its cosine, the nearest first; the words themselves are left out.

    Layers are not used: for a model with layers these are its input vectors.

    Raises:
        UsageError: a word is not in the vocabulary, and the model does not read its characters.
    """
    require("top", top, 1, 1000)
    opened = model if isinstance(model, Model) else open_model(model)
    tokenizer = opened.tokenizer
    table = normalize(opened.network.word_vectors(tokenizer.vocabulary_size).float())
    ids = {word: _ids(opened, word) for word in (*words, *minus)}
    total = sum(
        sign * (table[ids[word][0]] if len(ids[word]) == 1 else _spelled(opened, ids[word]))
        for sign, group in ((1, words), (-1, minus))
        for word in group
    )
    assert isinstance(total, torch.Tensor)
    cosines = table @ normalize(total, dim=0)
    word_ids = [numbers[0] for numbers in ids.values() if len(numbers) == 1]
    cosines[[*word_ids, *tokenizer.special_ids]] = -torch.inf
    best = cosines.topk(min(top, len(cosines)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(tokenizer.vocabulary[n], cosine) for n, cosine in pairs if cosine > -1.5]


def _spelled(opened: Model, ids: list[int]) -> torch.Tensor:
    """Return the unit vector of a word outside the vocabulary, which these tokens spell."""
    return normalize(opened.network.token_vectors(torch.tensor([ids]))[0, 0].float(), dim=0)


def _ids(opened: Model, word: str) -> list[int]:
    """Return the id of the word in the vocabulary, or of the one token that it is read as; the ids
    of its tokens if the model makes one vector of them."""
    tokenizer = opened.tokenizer
    try:
        return [tokenizer.vocabulary.index(word)]
    except ValueError:
        ids = tokenizer.encode(word)
    tokens = opened.network.tokens
    one_vector = len(ids) == 1 or (
        isinstance(tokens, SpelledVectors) and int(tokens.begins(torch.tensor([ids])).sum()) == 1
    )
    if ids and one_vector and not set(ids) & set(tokenizer.special_ids):
        return ids
    alike = [token for token in tokenizer.vocabulary if token[:1].casefold() == word[:1].casefold()]
    raise UsageError(
        "the word is not in the vocabulary",
        where=repr(word),
        found=" ".join(tokenizer.tokens(ids)) or "no token",
        wanted=near(word, alike[:MOST_WORDS]) if alike else "one of its words",
        do="choose another word, or train on more text",
    )
