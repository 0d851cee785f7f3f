"""Fill the holes of a text: the likeliest tokens for each mask string in it.

Only here is the mask string of a tokenizer read as the mask token; everywhere else it is ordinary
text. Every hole is judged with the others still open, so the probabilities of two holes are not
those of a pair. The tokenizer is asked for through `Words`; this room knows no tokenizer by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from maskwright.errors import IncompatibleError, UsageError
from maskwright.nn import mask
from maskwright.nn.transformer import Transformer

ROWS_AT_ONCE = 16


class Words(Protocol):
    """What filling asks of a tokenizer."""

    @property
    def kind(self) -> str: ...
    @property
    def mask(self) -> int | None: ...
    @property
    def vocabulary_size(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def frame(
        self, first: list[int], second: list[int] | None = None
    ) -> tuple[list[int], list[int]]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def tokens(self, ids: Sequence[int]) -> list[str]: ...


@dataclass(frozen=True)
class Candidate:
    """One way to fill a hole; `text` is the whole text with this hole filled."""

    id: int
    token: str
    probability: float
    text: str


@dataclass(frozen=True)
class Hole:
    """One hole, at `position` among the framed ids, with its candidates, likeliest first."""

    position: int
    candidates: tuple[Candidate, ...]


def fill(
    model: Transformer, words: Words, texts: Sequence[str], *, top: int = 5, shift: int = 0
) -> list[list[Hole]]:
    """The holes of each text, in order.

    Args:
        texts: each with the tokenizer's mask string at least once.
        top: how many candidates each hole gets.
        shift: how many places before a hole it is read off (1 for a model of the hybrid objective).

    Raises:
        IncompatibleError: the model is no encoder with a vocabulary head, or the tokenizer has no
            mask token.
        UsageError: a text without a hole, or longer than the model's positions, or no candidate.
    """
    if top < 1:
        raise UsageError("no candidate to show", where="top", found=top, wanted="1 or more")
    if model.config.encoder is None or model.config.vocabulary_head is None or words.mask is None:
        raise IncompatibleError(
            "filling holes needs an encoder with a vocabulary head and a mask token",
            found="no mask token" if words.mask is None else "another kind of model",
            do="use a model trained by the masked objective",
        )
    sign = words.tokens([words.mask])[0]
    pieces = [_pieces(words, sign, text) for text in texts]
    framed = [words.frame(_joined(piece, words.mask)) for piece in pieces]
    for text, (ids, _) in zip(texts, framed, strict=True):
        _require_room(model, text, len(ids))
    was_training = model.training
    model.eval()
    try:
        found: list[list[Hole]] = []
        for first in range(0, len(texts), ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            found += _fill_rows(model, words, pieces[rows], framed[rows], top, shift)
        return found
    finally:
        model.train(was_training)


def _pieces(words: Words, sign: str, text: str) -> list[list[int]]:
    """The ids between the holes of `text`."""
    parts = text.split(sign)
    if len(parts) == 1:
        raise UsageError("the text has no hole", where=text[:60], wanted=f"{sign} where a word is",
                         do=f"write {sign} for the word to be found")  # fmt: skip
    if words.kind in ("byte-bpe", "unigram"):
        # Their tokens carry the space before a word, so the hole stands for it too.
        parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
    return [words.encode(part) if part else [] for part in parts]


def _joined(pieces: Sequence[Sequence[int]], sign: int) -> list[int]:
    ids = list(pieces[0])
    for piece in pieces[1:]:
        ids += [sign, *piece]
    return ids


def _require_room(model: Transformer, text: str, count: int) -> None:
    assert model.config.encoder is not None
    places = model.config.encoder.embeddings.positions
    if places is not None and count > places.length:
        raise UsageError("the text is longer than the model reads", where=text[:60],
                         found=f"{count} tokens", wanted=f"at most {places.length}",
                         do="shorten the text around the hole")  # fmt: skip


@torch.inference_mode()
def _fill_rows(
    model: Transformer,
    words: Words,
    pieces: Sequence[Sequence[list[int]]],
    framed: Sequence[tuple[list[int], list[int]]],
    top: int,
    shift: int,
) -> list[list[Hole]]:
    device = model.tokens.weight.device
    length = max(len(ids) for ids, _ in framed)
    tokens = torch.tensor([ids + [0] * (length - len(ids)) for ids, _ in framed])  # B, T
    segments = torch.tensor([segs + [0] * (length - len(segs)) for _, segs in framed])
    real = torch.tensor([[1] * len(ids) + [0] * (length - len(ids)) for ids, _ in framed])
    rows, places = ((tokens == words.mask) & (real == 1)).nonzero(as_tuple=True)
    hidden = model.encode(
        tokens.to(device),
        segments=segments.to(device),
        visible=None if bool(real.all()) else mask.visible_of(real.to(device)),
    )
    scores = model.logits(hidden[rows, places - shift]).float()[
        :, : words.vocabulary_size
    ]  # holes, V
    best = scores.softmax(-1).topk(min(top, scores.shape[1]))
    holes: list[list[Hole]] = [[] for _ in framed]
    for row, place, chances, ids in zip(
        rows.tolist(), places.tolist(), best.values.tolist(), best.indices.tolist(), strict=True
    ):
        number = len(holes[row])
        texts = [_filled(words, pieces[row], number, token) for token in ids]
        candidates = zip(ids, words.tokens(ids), chances, texts, strict=True)
        holes[row].append(Hole(place, tuple(Candidate(*each) for each in candidates)))
    return holes


def _filled(words: Words, pieces: Sequence[list[int]], number: int, token: int) -> str:
    """The text with hole `number` filled, the other holes still shown."""
    assert words.mask is not None
    sign = words.tokens([words.mask])[0]
    run = [*pieces[number], token, *pieces[number + 1]]
    parts = [*pieces[:number], run, *pieces[number + 2 :]]
    space = "" if words.kind == "character" else " "
    return f"{space}{sign}{space}".join(words.decode(part) for part in parts).strip()
