"""How well contextual vectors of a word separate its meanings, by layer.

Static embeddings have one vector for "bank". In a Transformer it depends on the context:

    apart      mean cosine of two occurrences with the same meaning, minus that of different ones
    neighbour  the share of occurrences whose nearest neighbour has the same meaning

The embedding layer serves as the static baseline: it depends on word and position only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.analysis.hidden_states import (
    ProbedModel,
    at_places,
    distance_steps,
    layer_states,
)
from maskwright.base.errors import DataError
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.row_metrics import means
from maskwright.model.inference.encoded import EncodedExamples, framed
from maskwright.model.inference.prepared import Prepared
from maskwright.model.objectives.base.corruption import Sequences

WORD = "bank"
SENTENCES = {
    "river": (
        "the children sat on the bank of the river and threw stones into the water",
        "a small boat was tied to a tree on the left bank of the stream",
        "they walked along the muddy bank until they came to the bridge",
        "wild flowers grew on the grassy bank beside the water",
        "the fisherman slept on the bank with his feet in the stream",
        "after the rain the river rose over its bank and flooded the fields",
        "the swans built a nest near the bank of the lake",
        "he swam across the river and climbed up the steep bank",
    ),
    "money": (
        "she went to the bank to borrow money for a house",
        "the bank lent him a large sum at a low rate of interest",
        "he put all of his savings into the bank every month",
        "the manager of the bank refused to cash the check",
        "thieves broke into the bank and stole the gold",
        "the bank closed its doors when it could no longer pay its debts",
        "her wages are paid into an account at the bank",
        "the company owes the bank more money than it can pay back",
    ),
}


@dataclass(frozen=True)
class WordSenses:
    """How well vectors separate the meanings of a word, by layer from the embeddings up.

    Attributes:
        apart, neighbour: see the module's docstring; `untrained` is `apart` of an untrained model,
            `chance` the expected `neighbour` of random vectors.
        picture: (N, 2), the occurrences in the first two principal directions of the layer `best`,
            which separates the meanings best.
    """

    word: str
    layers: list[str]
    senses: list[str]
    texts: list[str]
    apart: list[float]
    untrained: list[float]
    neighbour: list[Estimate]
    chance: float
    picture: NDArray[np.float64]
    best: int


def tell_senses(
    subject: ProbedModel,
    word: str,
    texts: Sequence[str],
    senses: Sequence[str],
    *,
    shorten: bool = False,
) -> WordSenses:
    """Compare the vectors of `word` in `texts`, where it has the meanings `senses`.
    With `shorten`, texts that exceed the model's context are cropped around the word.

    Raises:
        DataError: a text lacks the word or is too long, or there are fewer than two meanings with
            two texts each.
    """
    counts = {sense: list(senses).count(sense) for sense in senses}
    if len(counts) < 2 or min(counts.values()) < 2:
        raise DataError(
            "two meanings with two texts each are needed",
            where="label",
            found=", ".join(f"{n} of {s!r}" for s, n in counts.items()),
        )
    distinct_senses = list(counts)
    truth = np.array([distinct_senses.index(sense) for sense in senses])
    examples = _examples(subject, word, texts, shorten)
    vectors, untrained_vectors = (
        _vectors(model, subject, examples) for model in (subject.model, subject.untrained())
    )
    same_sense = np.stack([_neighbours(layer, truth) for layer in vectors], axis=1)
    apart = [_apart(layer, truth) for layer in vectors]
    best = int(np.argmax(apart))
    centred = vectors[best] - vectors[best].mean(0)
    left_vectors, singular_values, _ = np.linalg.svd(centred, full_matrices=False)
    shares = np.array([counts[name] for name in distinct_senses]) / len(senses)
    return WordSenses(
        word,
        subject.layers,
        list(senses),
        list(texts),
        apart,
        [_apart(layer, truth) for layer in untrained_vectors],
        [share.estimate() for share in means(list(map(str, subject.layers)), same_sense).values()],
        float(shares @ ((shares * len(senses) - 1) / (len(senses) - 1))),
        left_vectors[:, :2] * singular_values[:2],
        best,
    )


def _around(tokens: list[int], positions: list[int], room: int) -> tuple[list[int], list[int]]:
    """Crop `tokens` to at most `room` around `positions`; returns them and the new positions."""
    spare = room - (positions[-1] - positions[0] + 1)
    if len(tokens) <= room or spare < 0:
        return tokens, positions
    begin = min(max(0, positions[0] - spare // 2), len(tokens) - room)
    return tokens[begin : begin + room], [position - begin for position in positions]


def _examples(
    subject: ProbedModel, word: str, texts: Sequence[str], shorten: bool
) -> EncodedExamples:
    """Encode the texts, with the positions of the word's tokens as `places`."""
    tokenizer, before = subject.tokenizer, subject.tokenizer.frame_margins()[0]
    margins = sum(tokenizer.frame_margins())
    ids, positions = [], []
    for number, (tokens, spans) in enumerate(tokenizer.encode_batch(texts, offsets=True), start=1):
        # As a whole word if it is one anywhere; scripts without blanks have no word boundaries.
        patterns = (rf"(?<!\w){re.escape(word)}(?!\w)", re.escape(word))
        matches = (re.search(pattern, texts[number - 1], re.IGNORECASE) for pattern in patterns)
        match = next(filter(None, matches), None)
        word_positions: list[int] = []
        if match is not None:
            begins, ends = spans[:, 0], spans[:, 1]
            overlaps = (begins < match.end()) & (ends > match.start()) & (ends > begins)
            word_positions = np.flatnonzero(overlaps).tolist()
        if not word_positions:
            raise DataError(
                "the word is not in the text",
                where=f"text {number}",
                found=texts[number - 1][:80],
                wanted=word,
            )
        context = tokens.tolist()
        if shorten:
            room = subject.frame.length - margins
            context, word_positions = _around(context, word_positions, room)
        framed_ids, _ = tokenizer.frame(context)
        if len(framed_ids) > subject.frame.length:
            raise DataError(
                "a text is longer than the model reads",
                where=f"text {number}",
                found=f"{len(framed_ids)} tokens",
                wanted=f"at most {subject.frame.length}",
                do="shorten the text, or take a model with more positions",
            )
        ids.append(framed_ids)
        positions.append([before + position for position in word_positions])
    word_places: Sequences = framed(positions)
    return EncodedExamples(
        framed(ids), np.zeros(len(word_places.tokens), np.int64), places=word_places
    )


def _vectors(
    model: Prepared, subject: ProbedModel, examples: EncodedExamples
) -> NDArray[np.float64]:
    """Return the mean states of the word's tokens, (L + 1, N, D), normalised to length 1."""
    assert examples.places is not None
    states = layer_states(model, examples, subject.collation, at_places).astype(np.float64)
    lengths = examples.places.lengths
    starts = np.cumsum(lengths) - lengths
    means = np.add.reduceat(states, starts, axis=1) / lengths[None, :, None]
    return np.asarray(means / np.linalg.norm(means, axis=2, keepdims=True))


def _apart(vectors: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Return the mean cosine within meanings minus that between meanings; vectors (N, D)."""
    cosines = vectors @ vectors.T
    same_meaning = truth[:, None] == truth[None]
    not_itself = ~np.eye(len(truth), dtype=bool)
    return float(cosines[same_meaning & not_itself].mean() - cosines[~same_meaning].mean())


def _neighbours(vectors: NDArray[np.float64], truth: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (N,): the share of nearest neighbours of each occurrence that have its meaning. All
    neighbours at the minimum distance count, since at the embeddings many vectors are equal."""
    steps = np.stack([distance_steps(vector, vectors) for vector in vectors])
    np.fill_diagonal(steps, np.inf)
    nearest = steps == steps.min(1, keepdims=True)
    return np.asarray((nearest & (truth[:, None] == truth)).sum(1) / nearest.sum(1))
