"""Perplexity: a proper distribution, senseless and repeated text out of limits, held-out scores."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from curate.folders import write_rows
from curate.in_process import InProcess, batch_of, removed, run
from maskwright.ask.curate.steps.perplexity import Settings, deviations
from maskwright.base.errors import DataError, UsageError
from maskwright.text.curate.ngram_model import NgramModel, count_ngrams, train, units_of
from maskwright.text.curate.step import CurationBatch

NOUNS = [a + b for a in ("bra", "clo", "dri", "fen", "gul", "har", "mor") for b in "dklnprst"]
VERBS = ["saw", "heard", "followed", "left", "found", "liked", "forgot", "met", "drew", "sold"]
PLACES = ["by the river", "in the town", "at night", "on the hill", "near the sea", "in the snow"]


def sentences(seed: int, count: int = 12) -> str:
    pick = random.Random(seed).choice
    return " ".join(
        f"The {pick(NOUNS)} {pick(VERBS)} a {pick(NOUNS)} {pick(PLACES)}." for _ in range(count)
    )


def salad(seed: int) -> str:
    words = np.array(sentences(seed).split())
    return " ".join(np.random.default_rng(seed).permutation(words))


def noise(seed: int) -> str:
    letters = np.array(list("bcfgjkqvwxz    "))
    return "".join(letters[np.random.default_rng(seed).integers(15, size=300)])


def footer(seed: int) -> str:
    text = "Posted by our admin; all rights reserved. Click here to read more about this page. "
    return f"{text}Share it with friends, subscribe to news, accept cookies: {NOUNS[seed]}"


GOOD = [sentences(n) for n in range(300)]
ODDITIES = [*(salad(1000 + n) for n in range(5)), *(noise(n) for n in range(5))]
FOOTERS = [footer(n) for n in range(20)]


@pytest.fixture(scope="module")
def good_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [{"text": sentences(n)} for n in range(5000, 5400)]
    return str(write_rows(tmp_path_factory.mktemp("good") / "good.jsonl", rows))


def test_probabilities_of_all_that_may_follow_add_up_to_one() -> None:
    units = units_of(batch_of(GOOD[:40]))
    model = train(count_ngrams(units, 3))
    vocabulary = sorted(set(" ".join(GOOD[:40]).lower().replace(".", " .").split()))
    assert model.different == len(vocabulary)
    for context in ("the", "a brad saw", "unseen words"):
        texts = [f"{context} {word}" for word in vocabulary]
        whole = model.bits(units_of(batch_of(texts))) * units_of(batch_of(texts)).counts
        first = units_of(batch_of([context]))
        alone = float(model.bits(first)[0] * first.counts[0])
        mass = np.exp2(alone - whole).sum()
        # What is left is that of unknown words and of n-grams that the table forgot.
        assert 0.8 < mass <= 1.0 + 1e-3
    uneven = train(count_ngrams(units, 1))
    assert uneven.bits(units)[0] > model.bits(units)[0]  # the control: a longer context knows more


@pytest.mark.parametrize("by", ["good", "corpus"])
def test_senseless_texts_are_removed(by: str, good_file: str) -> None:
    step = Settings(good=(good_file,)) if by == "good" else Settings()
    texts = [*GOOD, *ODDITIES]
    gone = removed(step, [batch_of(texts)])
    wanted = {f"d{n}" for n in range(len(GOOD), len(texts))}
    assert len(set(gone.values())) == 1 and wanted <= set(gone)
    assert len(set(gone) - wanted) <= len(GOOD) * 0.05
    (outcome,) = run(step, [batch_of(texts)])
    assert 1 < float(outcome.notes["perplexity"][0] or 0) < 100


def test_boilerplate_has_a_low_perplexity() -> None:
    (outcome,) = run(Settings(), [batch_of([*GOOD, *FOOTERS])])
    (measure,) = outcome.measures
    assert measure.low is not None and (measure.values[len(GOOD) :] < measure.low).all()
    # The control: seen for the first time, it is none.
    (outcome,) = run(Settings(), [batch_of([*GOOD, FOOTERS[0]])])
    assert outcome.measures[0].values[-1] > (outcome.measures[0].low or 0)


def test_no_model_scores_what_it_read(good_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [json.loads(line)["text"] for line in Path(good_file).read_text().splitlines()]
    step = Settings(good=(good_file,), order=4)

    def scores() -> np.ndarray:
        return run(step, [batch_of([*texts, *GOOD])])[0].measures[0].values

    fair = scores()
    assert np.median(fair[:400]) == pytest.approx(np.median(fair[400:]), rel=0.03)
    # The control: by the half that has read them.
    swapped = Settings.bits

    def unfair(self: Settings, batch: CurationBatch, models: list[NgramModel]) -> np.ndarray:
        return swapped(self, batch, models[::-1])

    monkeypatch.setattr(Settings, "bits", unfair)
    read = scores()
    assert np.median(read[:400]) < 0.9 * np.median(read[400:])


def test_limits_by_number_quantile_and_spread() -> None:
    bits = np.log2(np.arange(1, 1002, dtype=float))
    limits = lambda **s: Settings(**s).limits(bits, False)  # noqa: E731
    assert limits(low=10, high=100) == (10, 100)
    assert limits(low_quantile=0.1, high_quantile=0.9) == pytest.approx((101, 901), rel=1e-3)
    assert limits(low=10, high_quantile=0.5) == pytest.approx((10, 501), rel=1e-3)
    assert limits(spread=1.0) == (None, None) == limits()
    assert Settings().limits(bits, True) == pytest.approx((2, 1000), rel=1e-2)


def test_deviations_are_robust_and_by_group() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(10, 2, 500), [99.0, np.nan]])
    away = deviations(values, [""] * 502)
    assert away[500] == pytest.approx((99 - 10) / 2, rel=0.1) and np.isnan(away[501])
    assert np.abs(away[:500]).max() < 4
    groups = ["en"] * 400 + ["de"] * 90 + ["fr"] * 12
    shifted = values + np.where(np.array(groups) == "de", 30, 0)
    away = deviations(shifted, groups)
    assert np.abs(away[:490]).max() < 4 and np.isnan(away[490:]).all()
    assert np.abs(deviations(shifted, [""] * 502)[400:490]).min() > 8  # the control


def test_a_language_of_few_documents_is_judged_by_itself() -> None:
    other = [sentences(n)[::-1] for n in range(700, 740)]
    languages = ["en"] * len(GOOD) + ["de"] * (len(other) + 1)
    batch = batch_of([*GOOD, *other, noise(1)], language=languages)
    gone = removed(Settings(spread=4.0), [batch])
    assert len(gone) <= 6 and "d340" in gone
    assert len(removed(Settings(spread=4.0, by="none"), [batch])) >= len(other)  # the control


def test_short_texts_stay() -> None:
    texts = [*GOOD, "xq zzk wrrt", "a b"]
    assert not {"d300", "d301"} & set(removed(Settings(), [batch_of(texts)]))
    strict = removed(Settings(least_characters=8), [batch_of(texts)])
    assert "d300" in strict and "d301" not in strict


def test_too_little_text_for_limits_is_refused(tmp_path: Path) -> None:
    few = batch_of(GOOD[:10])
    short = batch_of([*GOOD[:15], *"abcdefgh"])
    quantile = Settings(low_quantile=0.1)
    for step, batch in ((Settings(high=9), few), (quantile, few), (quantile, short)):
        with pytest.raises(DataError, match="perplexity") as refusal:
            step.gather(InProcess([batch]), None)
    assert "`low` and `high`" in str(refusal.value.do)
    # Distances from a median that there is not: all stay, and it is said.
    for batch in (few, few.take(np.arange(10) == 0), batch_of(GOOD[:1] * 30)):
        corpus = InProcess([batch])
        known = Settings().gather(corpus, None)
        outcome = Settings().apply(batch, None, corpus.about(known, 0))
        assert not any(measure.outside.any() for measure in outcome.measures)
        assert corpus.findings[0].name == "perplexity-limits"
    with pytest.raises(UsageError, match=r"perplexity\.good"):
        Settings(good=(str(tmp_path / "none.txt"),)).gather(InProcess([batch_of(GOOD)]), None)
