"""The module of `denoising`; for the method and its options see `../denoising.py`."""

from __future__ import annotations

import math

import numpy as np

from maskwright.base.errors import IncompatibleError
from maskwright.model.batch import Batch
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.corruption import (
    Sequences,
    Texts,
    budget_of_lengths,
    first_places,
    owners,
    ranks,
    texts_of,
)
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.denoising import Options
from maskwright.text.store.rows import Rows, spread

# Separate counters of random numbers, so that the corruptions are independent of each other.
SENTENCE_CHOICE, SENTENCE_ORDER, SPAN_LENGTH, SPAN_ORDER, SPAN_PLACE = range(5)
LOSS, OTHER, WHICH, TURN, OFFSET = range(5, 10)


class Denoising(EncoderDecoder):
    """Reconstruction of texts after any combination of five corruptions.

    Raises:
        IncompatibleError: as `EncoderDecoder`; or masks are needed and the tokenizer has none; or
            sentences are permuted and the rows do not record where they start.
    """

    def __init__(self, model: Transformer, options: Options, vocabulary: Vocabulary) -> None:
        super().__init__("denoising", model, vocabulary, options.start)
        if vocabulary.mask is None and options.infilling + options.masking > 0:
            raise IncompatibleError(
                "the tokenizer has no mask token",
                where="tokenizer",
                do="train the tokenizer with one, or set infilling and masking to 0",
            )
        self.options, self.ordinary = options, vocabulary.ordinary

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0) -> Batch:
        texts = texts_of(rows, epochs, seed)
        damaged = self.damage(texts)
        shape = len(rows), rows.tokens.shape[1]
        return self.batch(texts.frame(damaged), texts.framed, texts.origin, shape, shape[1])

    def damage(self, texts: Texts) -> Sequences:
        """Return the texts after all corruptions of the options."""
        o, text = self.options, texts.plain
        if o.permutation > 0:
            text = _permuted(texts, text, o.permutation)
        originals, masks = text.lengths, np.zeros(len(text.tokens), dtype=bool)
        if o.infilling > 0:
            text, masks = self._infilled(texts, text)
        if o.masking + o.deletion > 0:
            text, masks = self._thinned(texts, text, masks, originals)
        if o.random > 0:
            chance, draws = (texts.draws(text.lengths, "noise", use) for use in (OTHER, WHICH))
            sampled = self.ordinary[(draws * len(self.ordinary)).astype(np.int64)]
            changed = np.where(masks & (chance < o.random), sampled, text.tokens)
            text = Sequences(changed, text.lengths)
        return _rotated(texts, text, o.rotation) if o.rotation > 0 else text

    def _infilled(self, texts: Texts, text: Sequences) -> tuple[Sequences, np.ndarray]:
        """Replace random spans with Poisson lengths by one mask each, and return the texts and the
        positions (N,) bool of masks. The last sampled span is cut to meet the number of tokens."""
        covered = budget_of_lengths(text.lengths, self.options.infilling)
        sampled = _poisson(texts.draws(covered, "noise", SPAN_LENGTH), self.options.mean_span)
        # There are at most as many spans as covered tokens; the last one gets the remaining ones.
        is_last = spread(covered) == np.repeat(covered, covered) - 1
        total = np.cumsum(sampled) - sampled
        before = total - np.repeat(total[first_places(covered)[covered > 0]], covered[covered > 0])
        remaining = np.repeat(covered, covered) - before
        used = remaining > 0
        sizes = np.where(is_last, remaining, np.minimum(sampled, remaining))[used]
        spans = np.bincount(owners(covered)[used], minlength=len(covered))
        # Shuffle the spans, since the one that was cut would always be the last of its text.
        order = np.lexsort((texts.draws(spans, "noise", SPAN_ORDER), owners(spans)))

        items = text.lengths - covered + spans
        masks = ranks(texts.draws(items, "noise", SPAN_PLACE), items) < np.repeat(spans, items)
        advance = np.ones(len(masks), dtype=np.int64)
        advance[masks] = sizes[order]
        source = np.minimum(np.cumsum(advance) - advance, len(text.tokens) - 1)
        assert self.vocabulary.mask is not None
        tokens = np.where(masks, self.vocabulary.mask, text.tokens[source])
        return Sequences(tokens, items), masks

    def _thinned(
        self, texts: Texts, text: Sequences, masks: np.ndarray, originals: np.ndarray
    ) -> tuple[Sequences, np.ndarray]:
        """Mask or delete further tokens; return the texts and the positions (N,) bool of masks."""
        owner = owners(text.lengths)
        rank = ranks(texts.draws(text.lengths, "noise", LOSS) + masks, text.lengths)
        unmasked = np.bincount(owner[~masks], minlength=len(originals))
        masked = np.minimum(budget_of_lengths(originals, self.options.masking), unmasked)
        deleted = np.minimum(budget_of_lengths(originals, self.options.deletion), unmasked - masked)
        deleted = np.minimum(
            deleted, np.maximum(text.lengths - 1, 0)
        )  # the encoder reads something
        new = rank < masked[owner]
        keep = new | (rank >= (masked + deleted)[owner])
        mask = 0 if self.vocabulary.mask is None else self.vocabulary.mask
        tokens = np.where(new, mask, text.tokens)
        return Sequences(tokens, text.lengths).where(keep), (masks | new)[keep]


def _permuted(texts: Texts, text: Sequences, share: float) -> Sequences:
    """Texts in which `share` of the sentences change places with each other."""
    starts_sentence = texts.starts_sentence
    if starts_sentence is None:
        raise IncompatibleError(
            "the rows do not record where sentences start",
            where="rows.kind",
            wanted="documents or blocks of a store with sentences",
            do="--set objective.options.permutation=0 leaves sentences in place",
        )
    starts_sentence = starts_sentence | (spread(text.lengths) == 0)
    firsts = np.flatnonzero(starts_sentence)
    sizes = np.diff(firsts, append=len(starts_sentence))
    owner = owners(text.lengths)[firsts]
    counts = np.bincount(owner, minlength=len(text.lengths))
    chosen = ranks(texts.draws(counts, "noise", SENTENCE_CHOICE), counts)
    moving = np.flatnonzero(chosen < np.ceil(share * counts)[owner])
    draws = texts.draws(counts, "noise", SENTENCE_ORDER)[moving]
    order = np.arange(len(firsts))
    order[moving] = moving[np.lexsort((draws, owner[moving]))]
    source = np.repeat(firsts[order], sizes[order]) + spread(sizes[order])
    return Sequences(text.tokens[source], text.lengths)


def _rotated(texts: Texts, text: Sequences, share: float) -> Sequences:
    """Rotate a `share` of the texts, so that they begin with a random token."""
    ones = np.ones_like(text.lengths)
    is_rotated = texts.draws(ones, "noise", TURN) < share
    offset = (texts.draws(ones, "noise", OFFSET) * text.lengths * is_rotated).astype(np.int64)
    owner = owners(text.lengths)
    positions = (spread(text.lengths) + offset[owner]) % text.lengths[owner]
    return Sequences(text.tokens[first_places(text.lengths)[owner] + positions], text.lengths)


def _poisson(draws: np.ndarray, mean: float) -> np.ndarray:
    """Convert numbers in [0, 1) to Poisson counts, by the inverse of the distribution function."""
    max_count = int(mean + 12 * math.sqrt(mean) + 12)
    logs = [count * math.log(mean) - mean - math.lgamma(count + 1) for count in range(max_count)]
    return np.searchsorted(np.cumsum(np.exp(logs)), draws, side="right").astype(np.int64)


build = Denoising
