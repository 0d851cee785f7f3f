"""The nearest words of a word, or of a sum of words: king - man + woman (Mikolov et al. 2013,
arXiv:1301.3781, section 4), by the cosine of their vectors in the token table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import normalize

from maskwright.base.config import require
from maskwright.base.errors import UsageError, near
from maskwright.model.nn.stack import EmbeddingTable
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_model
from maskwright.text.tokenizer.tokenizer import Tokenizer

MOST_WORDS = 20_000  # among which similar ones are looked for


@torch.no_grad()
def neighbours(
    model: Model | Path | str, words: Sequence[str], *, minus: Sequence[str] = (), top: int = 10
) -> list[tuple[str, float]]:
    """Return the `top` words nearest to the sum of the unit vectors of `words` without those of
    `minus`, each with its cosine, the nearest first; the words themselves are left out.

    Layers are not used: for a model with layers these are its input vectors.

    Raises:
        UsageError: a word is not in the vocabulary.
    """
    require("top", top, 1, 1000)
    opened = model if isinstance(model, Model) else open_model(model)
    tokenizer = opened.tokenizer
    tokens, ids = opened.network.tokens, torch.arange(tokenizer.vocabulary_size)
    # One word in each row, as some vectors are made of all tokens of a word.
    vectors = tokens.weight[ids] if isinstance(tokens, EmbeddingTable) else tokens(ids[:, None])
    table = normalize(vectors.float().flatten(1))
    added, taken = ([_number(tokenizer, word) for word in group] for group in (words, minus))
    cosines = table @ normalize(table[added].sum(0) - table[taken].sum(0), dim=0)
    cosines[[*added, *taken, *tokenizer.special_ids]] = -torch.inf
    best = cosines.topk(min(top, len(cosines)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(tokenizer.vocabulary[n], cosine) for n, cosine in pairs if cosine > -1.5]


def _number(tokenizer: Tokenizer, word: str) -> int:
    """Return the id of the word in the vocabulary, or of the one token that it is read as."""
    try:
        return tokenizer.vocabulary.index(word)
    except ValueError:
        ids = tokenizer.encode(word)
    if len(ids) == 1 and ids[0] not in tokenizer.special_ids:
        return ids[0]
    alike = [known for known in tokenizer.vocabulary if known[:1].casefold() == word[:1].casefold()]
    raise UsageError(
        "the word is not in the vocabulary",
        where=repr(word),
        found=" ".join(tokenizer.tokens(ids)) or "no token",
        wanted=near(word, alike[:MOST_WORDS]) if alike else "one of its words",
        do="choose another word, or train on more text",
    )
