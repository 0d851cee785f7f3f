"""perplexity: remove texts with a very high or very low perplexity under a language model.

The model is a word n-gram model of the files `good` or of the corpus itself, or a model of
Maskwright. The training texts are divided into halves by their content, and each text is scored by
the model of the half without it. Senseless text has a high perplexity, boilerplate and repeated
text a low one (Wenzek et al. 2019, CCNet, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.ask.curate.scores import bits_per_token, model_files, open_model
from maskwright.base.config import require
from maskwright.base.errors import ConfigError, DataError, Finding, MaskwrightError
from maskwright.text.corpus.read import Reader
from maskwright.text.curate.arrays.segmentation import word_counts
from maskwright.text.curate.arrays.selection import PERPLEXITY, check_seed, draws
from maskwright.text.curate.ngram_model import (
    NgramCounts,
    NgramModel,
    Units,
    concatenate,
    count_ngrams,
    models_of,
    table_of,
    train,
    units_of,
)
from maskwright.text.curate.step import (
    DOCUMENT,
    NO_NEAR_COPIES,
    ArrowTable,
    CorpusHandle,
    CorpusStep,
    CurationBatch,
    Outcome,
    Pass,
    RuleMeasure,
    arrow_table,
    strings,
)
from maskwright.text.store import BoolArray, FloatArray

SUMMARY = "removes texts that a language model finds far too surprising, or far too predictable"
QUANTILES, SPREAD = (0.001, 0.999), 2.5  # limits if none are set
SIZE = 1000


@dataclass(frozen=True, kw_only=True)
class Settings(CorpusStep):
    good: tuple[str, ...] = ()
    """Files of good text that the n-gram model learns from; none: it learns from the corpus."""
    model: str = ""
    """The folder of a Maskwright model, in place of the n-gram model."""
    low: float | None = None
    """The least perplexity per word (with `model`: per token)."""
    high: float | None = None
    """The largest perplexity."""
    low_quantile: float | None = None
    """The least perplexity as a quantile of the good part (without one: of the corpus)."""
    high_quantile: float | None = None
    """The largest perplexity as a quantile."""
    spread: float | None = None
    """How many robust standard deviations of its logarithm a perplexity may be from the median of
    the good part (`perplexity_deviation`); without one, from that of the corpus' documents in the
    same language. Limits
    where nothing is set: the quantiles 0.001 and 0.999 of the good part; without a good part 2.5
    deviations."""
    by: str = "language"
    """The column whose values have medians of their own, as the step `language` notes it; of fewer
    than 20 documents none is taken, and they stay."""
    order: int = 2
    """The most words of an n-gram."""
    train_words: int = 5_000_000
    """How many words the n-gram model learns from, drawn by content where there are more."""
    least_characters: int = 100
    """Shorter texts have no perplexity and stay."""
    seed: int = 0
    """Another seed halves the training texts differently."""

    def check(self) -> None:
        self.refuse_both("good", "model")
        for side in ("low", "high"):
            self.refuse_both(side, f"{side}_quantile")
            number = getattr(self, side)
            if number is not None and not 1 <= number < math.inf:
                raise ConfigError(
                    "not a perplexity", where=side, found=number, wanted="1 or more", do="raise it"
                )
        self.check_shares("low_quantile", "high_quantile")
        for low, high in (("low", "high"), ("low_quantile", "high_quantile")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least >= most:
                raise ConfigError(
                    "the low limit is not below the high one",
                    where=low,
                    found=f"{low} = {least}, {high} = {most}",
                    do="exchange them",
                )
        if self.spread is not None and not 0 < self.spread < math.inf:
            raise ConfigError(
                "not a number of deviations",
                where="spread",
                found=self.spread,
                wanted="more than 0",
                do=f"use {SPREAD}",
            )
        if self.spread is not None and self._set("low") and self._set("high"):
            raise self.without_effect("spread", "where both limits are set")
        require("order", self.order, 1, 5)
        require("train_words", self.train_words, 1000)
        require("least_characters", self.least_characters, 1)
        check_seed(self.seed)

    def _set(self, side: str) -> bool:
        return getattr(self, side) is not None or getattr(self, f"{side}_quantile") is not None

    def files(self) -> Sequence[Path]:
        return [*map(Path, self.good), *(model_files(self.model) if self.model else ())]

    def require(self) -> None:
        if self.model:
            open_model(self.model).log_likelihood("a text")  # an error if it cannot
        if self.good:
            next(reference_batches(self.good, "perplexity.good", 1), None)

    def needs_before(self) -> Mapping[str, str]:
        if self.model or self.good:
            return {}
        why = (
            "the model learns from the corpus itself, so that a text with near copies there is too "
            "predictable, and an odd one among them is not seen"
        )
        return {NO_NEAR_COPIES: why}

    # -------------------------------------------------------------------------- passes
    def halves(self, texts: Sequence[str]) -> BoolArray:
        """Return (B,) whether each text is in the second half."""
        return np.asarray(draws(texts, PERPLEXITY, self.seed) >= 0.5)

    def first_pass(self) -> tuple[str, Pass] | None:
        return None if self.model or self.good else ("size", self.size_pass)

    def size_pass(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the words of each document, and a random number to select training texts."""
        words = word_counts(batch.texts)
        draw = draws(batch.texts, PERPLEXITY, self.seed + 1)
        return arrow_table(row=batch.rows, words=words, draw=draw)

    def units_pass(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the units, half and group of each training document in `side_input`, and
        whether it is long enough to have a perplexity (`long`)."""
        import pyarrow as pa

        batch = batch.mentioned_in(side_input)
        units = units_of(batch)
        return arrow_table(
            row=batch.rows,
            units=pa.LargeListArray.from_arrays(units.starts, units.hashes),
            half=self.halves(batch.texts),
            long=batch.lengths >= self.least_characters,
            group=self._groups(batch),
        )

    def score_pass(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the bits per word and the group of each document, by two n-gram models."""
        return self._scores(batch, self.bits(batch, models_of(side_input)))

    def model_pass(self, batch: CurationBatch, side_input: ArrowTable) -> ArrowTable:
        """Pass: return the bits per token of each document, by `model`, and its group."""
        return self._scores(batch, self._long(batch, bits_per_token(self.model, batch.texts)))

    def _scores(self, batch: CurationBatch, bits: FloatArray) -> ArrowTable:
        return arrow_table(row=batch.rows, bits=bits, group=self._groups(batch))

    def _groups(self, batch: CurationBatch) -> Any:
        return strings([value or "" for value in batch.note(self.by)])

    def bits(self, batch: CurationBatch, models: Sequence[NgramModel]) -> FloatArray:
        """Return (B,) the bits per word by the model of the other half; NaN for short texts."""
        halves = self.halves(batch.texts)
        return self._long(batch, crossed_bits(divide(units_of(batch), halves), halves, models))

    def _long(self, batch: CurationBatch, bits: FloatArray) -> FloatArray:
        return np.where(batch.lengths >= self.least_characters, bits, np.nan)

    def gather(self, corpus: CorpusHandle, opened: Any) -> ArrowTable:
        """Return for each document its bits, its deviation and the limits of the perplexity.

        Raises:
            DataError: there is too little text to train on, or to compute limits from.
            UsageError, IncompatibleError, CheckpointError: the model cannot be used.
        """
        reference: FloatArray | None = None
        if self.model:
            scores = corpus.map("model", self.model_pass).read()
        elif self.good:
            models, reference = self._of_good()
            scores = corpus.map("score", self.score_pass, table_of(models)).read()
        else:
            scores = self._of_corpus(corpus)
        bits = scores.column("bits").to_numpy()
        groups = scores.column("group").to_pylist()
        deviation = deviations(bits, groups, reference)
        limits = self.limits(bits if reference is None else reference, reference is not None)
        corpus.say(self._finding(bits, deviation, limits))
        low, high = (np.full(len(bits), np.nan if x is None else x) for x in limits)
        return arrow_table(
            document=scores.column(DOCUMENT), bits=bits, deviation=deviation, low=low, high=high
        )

    def _of_good(self) -> tuple[list[NgramModel], FloatArray]:
        """Return the two models of the good part, and (G,) the bits of its texts, each crossed."""
        batches = list(reference_batches(self.good, "perplexity.good", self.train_words))
        halves = np.concatenate([self.halves(batch.texts) for batch in batches])
        by_half = divide(concatenate([units_of(batch) for batch in batches]), halves)
        models = train_all([count_ngrams(units, self.order) for units in by_half])
        bits = crossed_bits(by_half, halves, models)
        long = np.concatenate([batch.lengths >= self.least_characters for batch in batches])
        return models, np.where(long, bits, np.nan)

    def _of_corpus(self, corpus: CorpusHandle) -> ArrowTable:
        """Return the scores of the documents by models of the corpus. The models are trained twice,
        the second time without documents of a very high perplexity."""
        sizes = corpus.map("size", self.size_pass).read()
        words = sizes.column("words").to_numpy()
        share = min(1.0, self.train_words / max(1, int(words.sum())))
        chosen = sizes.column("draw").to_numpy() < share
        documents = sizes.column(DOCUMENT).to_numpy()[chosen]
        if not documents.size or len(words) < FEWEST:
            return self._unscored(sizes)
        table = corpus.map("units", self.units_pass, arrow_table(document=documents)).read()
        lists = table.column("units").combine_chunks()
        units = Units(lists.flatten().to_numpy(), lists.offsets.to_numpy())
        halves = table.column("half").to_numpy()
        if halves.all() or not halves.any():
            return self._unscored(sizes)
        by_half = divide(units, halves)
        counts = [count_ngrams(units, self.order) for units in by_half]
        # The first scores only select the training texts of the second models.
        bits = crossed_bits(by_half, halves, train_all(counts))
        bits = np.where(table.column("long").to_numpy(), bits, np.nan)
        is_odd = deviations(bits, table.column("group").to_pylist()) > SPREAD
        odd = [units.of(is_odd[halves == half]) for half, units in enumerate(by_half)]
        counts = [
            all_counts.without(count_ngrams(units, self.order))
            for all_counts, units in zip(counts, odd, strict=True)
        ]
        return corpus.map("score", self.score_pass, table_of(train_all(counts))).read()

    def _unscored(self, sizes: ArrowTable) -> ArrowTable:
        """Return scores of NaN for the documents in `sizes`."""
        if self._set("low") or self._set("high"):
            raise _too_little()
        unknown = np.full(sizes.num_rows, np.nan)
        groups = strings([""] * sizes.num_rows)
        return arrow_table(document=sizes.column(DOCUMENT), bits=unknown, group=groups)

    def limits(self, bits: FloatArray, good: bool) -> tuple[float | None, float | None]:
        """Return the least and the largest perplexity; None for a side limited by deviations.

        Args:
            bits: of the good part if `good`, or else of all documents.

        Raises:
            DataError: there are fewer than 20 texts to compute a quantile of.
        """
        sorted_bits = np.sort(bits[~np.isnan(bits)])
        bounds: list[float | None] = []
        for side, default in zip(("low", "high"), QUANTILES, strict=True):
            number, quantile = getattr(self, side), getattr(self, f"{side}_quantile")
            if quantile is None and self.spread is None and good:
                quantile = default
            if number is not None or (quantile is None and not good):
                bounds.append(number)  # or by deviations, which too few texts do not have
                continue
            if len(sorted_bits) < FEWEST:
                raise DataError(
                    "too few texts to take limits of perplexity from",
                    where="perplexity.good" if good else "perplexity",
                    found=f"{len(sorted_bits)} of at least {self.least_characters} characters",
                    wanted=f"{FEWEST} or more",
                    do="set `low` and `high` to numbers, or name more files in `good`; "
                    "or leave the step out (--without perplexity)",
                )
            if quantile is None:
                bounds.append(None)
            else:
                value = 2 ** float(np.quantile(sorted_bits, quantile)) * 1000
                bounds.append((math.floor if side == "low" else math.ceil)(value) / 1000)
        return bounds[0], bounds[1]

    def _finding(
        self, bits: FloatArray, away: FloatArray, limits: tuple[float | None, float | None]
    ) -> Finding:
        """Return a finding about the limits; `away`: the deviations of the documents."""
        usable = bits[~np.isnan(bits)]
        if not len(usable) and None in limits:
            message = "too few texts for a perplexity; all of them stay"
            return Finding("perplexity-limits", message, "", "")
        bounds = [
            f"{self._spread:g} deviations {side} the median" if limit is None else f"{limit:,.1f}"
            for side, limit in zip(("below", "above"), limits, strict=True)
        ]
        evidence = f"median {2 ** float(np.median(usable)):,.1f}" if len(usable) else ""
        unlimited = int((np.isnan(away) & ~np.isnan(bits)).sum())
        if unlimited and None in limits:
            evidence += f"; {unlimited:,} documents have no limit, as their group is too small"
        message = f"perplexity is allowed from {bounds[0]} to {bounds[1]}"
        return Finding("perplexity-limits", message, evidence)

    @property
    def _spread(self) -> float:
        return SPREAD if self.spread is None else self.spread

    def apply(self, batch: CurationBatch, opened: Any, gathered: ArrowTable = None) -> Outcome:
        # Rounded: the last bits of a power depend on how many are computed at once.
        values = np.exp2(gathered.column("bits").to_numpy()).round(3)
        limits = [float(gathered.column(name)[0].as_py()) for name in ("low", "high")]
        low, high = (None if math.isnan(limit) else limit for limit in limits)
        measures = []
        if low is not None or high is not None:
            measures.append(RuleMeasure("perplexity", values, low, high))
        if low is None or high is None:
            deviation = gathered.column("deviation").to_numpy()
            least, most = -self._spread, self._spread
            bounds = (None if low is not None else least, None if high is not None else most)
            measures.append(RuleMeasure("perplexity_deviation", deviation, *bounds))
        notes = [None if math.isnan(v) else f"{v:.2f}" for v in values.tolist()]
        return Outcome(measures=measures, notes={"perplexity": notes})


def reference_batches(paths: Sequence[str], where: str, most_words: int) -> Iterator[CurationBatch]:
    """Yield batches of the documents of files, in order, until `most_words` words were read.

    Raises:
        UsageError, DataError: from the reader, with `where` as a prefix of the place.
    """
    words, texts, ids = 0, list[str](), list[str]()
    try:
        for document in Reader(list(paths)):
            texts.append(document.text)
            ids.append(document.id)
            if len(texts) == SIZE:
                batch = CurationBatch(np.arange(SIZE), ids, texts)
                words += int(batch.words.counts.sum())
                yield batch
                texts, ids = [], []
                if words >= most_words:
                    return
    except MaskwrightError as error:
        raise error.under(f"{where}: ") from None
    if texts:
        yield CurationBatch(np.arange(len(texts)), ids, texts)


MAD = 1.4826  # the standard deviation of a normal distribution, in median absolute deviations
FEWEST = 20  # fewest values of a group that has a median
NARROWEST = 0.1  # least standard deviation, as many equal texts would make all others outliers


def deviations(
    values: FloatArray, groups: Sequence[str], reference: FloatArray | None = None
) -> FloatArray:
    """Return (N,) the distance of each value from the median of its group, or of `reference` if it
    is not None, in robust standard deviations; NaN in groups of fewer than 20 values."""
    scaled = np.full(len(values), np.nan)
    group_names = np.array(groups if reference is None else [""] * len(values), object).astype(str)
    numbers = np.unique(group_names, return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        usable = values[members] if reference is None else reference
        usable = usable[~np.isnan(usable)]
        if len(usable) >= FEWEST:
            median = float(np.median(usable))
            scale = max(NARROWEST, MAD * float(np.median(np.abs(usable - median))))
            scaled[members] = (values[members] - median) / scale
    return scaled.round(6)


def _too_little() -> DataError:
    return DataError(
        "too little text for a model of perplexity",
        where="perplexity",
        found="no text in one of its two halves",
        wanted="some thousand words of different texts",
        do="name more files in `good`, or leave the step out",
    )


def divide(units: Units, halves: BoolArray) -> tuple[Units, Units]:
    """Return the units of the texts of both halves."""
    return units.of(~halves), units.of(halves)


def train_all(counts: Sequence[NgramCounts]) -> list[NgramModel]:
    """Train a model for each half; raise a DataError if one of them has no text."""
    if not all(len(half.grams[0]) for half in counts):
        raise _too_little()
    return [train(half) for half in counts]


def crossed_bits(
    by_half: tuple[Units, Units], halves: BoolArray, models: Sequence[NgramModel]
) -> FloatArray:
    """Return (B,) the bits per unit of texts, by the model of the other half.

    Args:
        by_half: the units of the texts of each half.
        halves: (B,) whether each text is in the second half.
    """
    bits = np.empty(len(halves))
    for half, units in enumerate(by_half):
        bits[halves == bool(half)] = models[1 - half].bits(units)
    return bits
