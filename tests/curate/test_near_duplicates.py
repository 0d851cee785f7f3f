"""Near-duplicates against the truth: what is found, what is removed, and what that depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from curate.in_process import InProcess, batch_of, run, survivors
from curate.planted import Planted, planted, within_band
from maskwright.base.errors import DataError
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import near_duplicates
from maskwright.text.curate.steps.near_duplicates import Settings

BINS = np.arange(0.3, 1.0, 0.1)
REASON = r"t(\d+)(?: through t(\d+))?, Jaccard ([\d.]+)"
SIZE = (1200, 1200)


@pytest.fixture(params=[SIZE, pytest.param((8000, 6000), marks=pytest.mark.proof)])
def truth(request: pytest.FixtureRequest) -> Planted:
    return planted(*request.param)


def agreement(truth: Planted, step: Settings) -> NDArray[np.bool_]:
    """(bands, P) whether the two texts of each true pair agree in each band."""
    batch = truth.batches()[0]
    table = step.signatures(batch, None)
    hashes = np.stack([table.column(f"band_{n}").to_numpy() for n in range(step.bands)])
    return hashes[:, truth.pairs[:, 0]] == hashes[:, truth.pairs[:, 1]]


def faults(truth: Planted, step: Settings) -> Iterator[str]:
    """Where the share of pairs found leaves the middle 99.9 % of what theory says."""
    likely = truth.similarities >= BINS[0]
    agree, s = agreement(truth, step)[:, likely], truth.similarities[likely]
    one_band = s**step.rows
    for band in range(step.bands):
        if not within_band(int(agree[band].sum()), one_band):
            yield f"band {band}: {agree[band].sum()} pairs, not about {one_band.sum():.0f}"
    found = agree.any(axis=0)
    curve = 1 - (1 - one_band) ** step.bands
    for low in BINS:
        own = (s >= low) & (s < low + 0.1)
        if not within_band(int(found[own].sum()), curve[own]):
            yield f"{low:.1f}: {found[own].sum()} of {own.sum()}, not {curve[own].sum():.0f}"
    if not within_band(int(found.sum()), curve):
        yield f"all: {found.sum()}, not {curve.sum():.0f}"


def candidates_found(truth: Planted, step: Settings) -> set[tuple[int, int]]:
    """The pairs that `gather` compares, whatever their similarity."""
    corpus = InProcess(truth.batches())
    tables = corpus.map("signatures", step.signatures)
    documents = tables.read(["document"]).column("document").to_numpy()
    pairs = step._candidates(tables, documents, np.arange(len(documents)))
    return set(map(tuple, pairs.tolist()))


def test_pairs_are_found_as_often_as_theory_says(truth: Planted) -> None:
    step = Settings()
    assert list(faults(truth, step)) == []
    agree = agreement(truth, step).any(axis=0)
    # What agrees in a band is compared, and nothing else of what shares a shingle.
    known = set(map(tuple, truth.pairs.tolist()))
    assert candidates_found(truth, step) & known == set(map(tuple, truth.pairs[agree].tolist()))


def test_a_broken_band_or_seed_is_noticed(truth: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    right = near_duplicates.band_hashes

    def one_band_broken(minima: NDArray[np.uint32], bands: int, rows: int) -> NDArray[np.uint64]:
        hashes = right(minima, bands, rows)
        hashes[3] = np.arange(hashes.shape[1])
        return hashes

    kept = near_duplicates.multipliers(112).copy()
    kept[17:20] = kept[16]  # four permutations of band 2 are one

    faulty = {"band_hashes": one_band_broken, "multipliers": lambda count: kept}
    for name, broken in faulty.items():
        with monkeypatch.context() as patched:
            patched.setattr(near_duplicates, name, broken)
            assert list(faults(truth, Settings())), f"{name} was broken and nothing noticed"


def test_clusters_do_not_depend_on_order_or_shards(truth: Planted) -> None:
    step = Settings()
    passed = agreement(truth, step).any(axis=0) & (truth.similarities >= step.threshold)
    clusters = near_duplicates.components(truth.pairs[passed], len(truth.texts))
    left = survivors(step, truth.batches())
    own = clusters[[int(name[1:]) for name in left]]
    assert len(np.unique(own)) == len(own) == clusters.max() + 1  # one of each cluster
    shuffled = np.random.default_rng(3).permutation(len(truth.texts)).tolist()
    for batches in (truth.batches(7), truth.batches(3, shuffled)):
        assert set(survivors(step, batches)) == set(left)


def test_every_removal_has_a_true_reason(truth: Planted) -> None:
    exact = dict(zip(map(frozenset, truth.pairs.tolist()), truth.similarities, strict=True))
    step, seen = Settings(), 0
    for outcome in run(step, truth.batches()):
        for removal in outcome.removals:
            match = re.fullmatch(REASON, str(removal.value))
            assert match
            similarity = exact[frozenset((removal.index, int(match[2] or match[1])))]
            assert similarity >= step.threshold
            assert float(match[3]) == pytest.approx(similarity, abs=0.0006)
            seen += 1
    assert seen


def test_a_dropped_merge_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = near_duplicates.components
    monkeypatch.setattr(near_duplicates, "components", lambda pairs, count: right(pairs[1:], count))
    with pytest.raises(AssertionError):
        test_clusters_do_not_depend_on_order_or_shards(planted(*SIZE))


def test_without_comparison_precision_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_duplicates, "jaccards", lambda pairs, sets: np.ones(len(pairs)))
    with pytest.raises((AssertionError, KeyError)):
        test_every_removal_has_a_true_reason(planted(*SIZE))


# ------------------------------------------------------------------------------ behaviour


def test_short_texts_are_one_shingle_and_texts_without_words_or_copies_stay() -> None:
    texts = ["yes", "Yes!", "yes yes", "...", "!!!", "one two three four", "One, two three: four"]
    left = survivors(Settings(), [batch_of(texts)])
    assert left == ["d1", "d2", "d3", "d4", "d6"]  # of each cluster the longer
    assert survivors(Settings(), [batch_of(["...", "!!!"])]) == ["d0", "d1"]
    apart = [CurationBatch(np.arange(1), [name], [name * 3]) for name in ("a", "b", "?")]
    assert survivors(Settings(), apart) == ["a", "b", "?"]


def test_what_is_kept_follows_the_order() -> None:
    base = " ".join(f"word{number}" for number in range(12)) + " again" * 40
    texts = [base, base + " x", base + " x y"]
    assert survivors(Settings(), [batch_of(texts)]) == ["d2"]  # the longest
    sources = batch_of(texts, source=["good", "poor", "poor"])
    assert survivors(Settings(priority=("good",)), [sources]) == ["d0"]
    quality = batch_of(texts, quality=["0.5", "0.9", None])
    assert survivors(Settings(), [quality]) == ["d1"]
    assert survivors(Settings(quality=""), [quality]) == ["d2"]


@pytest.mark.parametrize("small", [8, 1000])
def test_a_crowd_in_one_bucket_is_no_square(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """Texts that differ from each other in two words of 100."""
    random, texts = np.random.default_rng(0), []
    for number in range(150):
        words = [f"w{n}" for n in range(100)]
        words[int(random.integers(100))] = f"own{number}"
        texts.append(" ".join(words))
    right, compared = near_duplicates.jaccards, []

    def counting(pairs: NDArray[np.int64], sets: object) -> NDArray[np.float64]:
        compared.append(len(pairs))
        return right(pairs, sets)

    monkeypatch.setattr(near_duplicates, "jaccards", counting)
    for name, value in (("SMALL", small), ("HUBS", 2), ("NEXT", 2)):
        monkeypatch.setattr(near_duplicates, name, value)
    assert len(survivors(Settings(), [batch_of(texts)])) == 1
    # Where no bucket is large every pair is compared, 11,175: the control.
    assert (sum(compared) <= 150 * (2 + 2) * 14) == (small == 8)


def test_comparison_in_portions_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = planted(300, 300).batches()
    left = survivors(Settings(), batches)
    monkeypatch.setattr(near_duplicates, "COMPARED_AT_ONCE", 5000)
    assert survivors(Settings(), batches) == left
    monkeypatch.setattr(near_duplicates, "portions", lambda pairs, sizes, limit: [pairs[:20]])
    assert survivors(Settings(), batches) != left  # the control


def test_a_named_quality_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="'high'"):
        run(Settings(quality="score"), [batch_of(["some text of words"], score=["high"])])
    # A column that only happens to have the name of ours is none.
    texts = ["the same words once more"] * 3
    batch = batch_of(texts, quality=["high", "0.1", "nan"])
    assert survivors(Settings(), [batch]) == ["d1"]
