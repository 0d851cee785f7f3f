"""Negative controls: loaders, builders, divisions and random streams with one promise broken must
fail the real tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import test_randomness as real
from tests.data import test_loader, test_packing, test_store, test_tokenize
from tests.data.test_loader import Numbers
from tests.data.toy import corpus, store_of
from tests.labelled import test_splits

from maskwright.base import randomness
from maskwright.base.errors import DataError
from maskwright.text.store import rows, tokenize
from maskwright.text.store.loader import Loader
from maskwright.text.store.store import TokenStore
from maskwright.text.tables import splits


class Remembering(Loader):
    """Draws from a generator as it goes: a resumed run sees another order."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.generator = np.random.default_rng(self.seed)

    def take(self, begin: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = self.generator.integers(0, len(self.source), count)
        return numbers, np.full(count, begin // len(self.source))


class Dropping(Loader):
    """Forgets the rows that do not fill a batch, as many loaders do."""

    def take(self, begin: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        batches = max(1, len(self.source) // self.batch_rows)
        epochs, places = np.divmod(np.arange(begin, begin + count), batches * self.batch_rows)
        return places % len(self.source), epochs


def test_a_loader_with_a_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_loader, "Loader", Remembering)
    with pytest.raises(AssertionError):
        test_loader.test_samples_need_no_history()


@pytest.mark.parametrize("kind", [Dropping, Remembering])
def test_lost_and_doubled_rows_are_seen(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    monkeypatch.setattr(test_loader, "Loader", kind)
    with pytest.raises(AssertionError):
        test_loader.test_F49_nothing_is_lost_or_doubled.hypothesis.inner_test(5, 3)  # type: ignore[attr-defined]


def test_one_order_for_all_epochs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("maskwright.text.store.loader.key", lambda *_: np.uint64(1))
    with pytest.raises(AssertionError):
        test_loader.test_epochs_and_seeds_have_orders_of_their_own()
    assert len(Numbers(3)) == 3


def test_first_fit_is_not_best_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_fit(sizes: np.ndarray, capacity: int) -> np.ndarray:
        gaps: list[int] = []
        bins = []
        for size in sizes.tolist():
            fitting = [n for n, gap in enumerate(gaps) if gap >= size]
            if not fitting:
                gaps.append(capacity)
            bins.append(fitting[0] if fitting else len(gaps) - 1)
            gaps[bins[-1]] -= size
        return np.array(bins, dtype=np.int64)

    monkeypatch.setattr(test_packing, "best_fit", first_fit)
    with pytest.raises(AssertionError):
        test_packing.test_it_is_best_fit_decreasing.hypothesis.inner_test((9, [2, 6, 5, 3, 1, 7]))  # type: ignore[attr-defined]


def test_a_plan_that_loses_a_piece_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = rows._cut
    monkeypatch.setattr(rows, "_cut", lambda *a: tuple(column[1:] for column in cut(*a)))
    store = store_of(tmp_path, corpus(7, 60))
    with pytest.raises(AssertionError):
        test_packing.test_long_documents_are_cut_at_rows(store)


def test_a_store_that_is_opened_unseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, corpus(1, 50))

    def trusting(path: Path, **_: Any) -> TokenStore:
        return store

    monkeypatch.setattr(TokenStore, "open", staticmethod(trusting))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_store.test_F81_F82_files_of_the_right_size_are_compared_with_the_manifest(store)


def test_a_cast_that_wraps_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrapping(ids: np.ndarray, size: int) -> np.ndarray:
        return ids.astype(np.uint16)

    monkeypatch.setattr(tokenize, "checked_cast", wrapping)
    with pytest.raises(AssertionError, match="Regex pattern did not match"):
        test_tokenize.test_F84_an_id_outside_the_vocabulary_is_refused(tmp_path)


def test_a_builder_that_finishes_after_an_exception_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index that is written although the source broke off, as one well-known writer does."""
    whole = tokenize.shards

    def forgiving(documents: Any) -> Any:
        try:
            yield from whole(documents)
        except DataError:
            return

    monkeypatch.setattr(tokenize, "shards", forgiving)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_tokenize.test_F83_an_exception_in_the_source_leaves_no_store_and_keeps_shards(tmp_path)


def test_shards_taken_on_trust_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize._Builder, "_is_made", lambda self, path, about: path.is_dir())
    monkeypatch.setattr("maskwright.text.store.tokenize.SHARD_BYTES", 3000)
    with pytest.raises(AssertionError):
        test_tokenize.test_F82_shards_of_an_earlier_attempt_are_checked(tmp_path)


# ------------------------------------------------------------------------------ divisions
def by_shuffling(texts: Sequence[str], classes: Any, division: Any, groups: Any = None) -> Any:
    """What many scripts do: shuffle with a seed, cut. Places decide, texts do not."""
    order = list(range(len(texts)))
    random.Random(division.seed).shuffle(order)
    test, rest = int(division.test * len(order)), int(division.validation * len(order))
    return {
        "test": order[:test],
        "validation": order[test : test + rest],
        "train": order[test + rest :],
    }


def by_fresh_draws(texts: Sequence[str], classes: Any, count: int, seed: int = 0) -> list[int]:
    """A new draw for every size: the 50 are not among the 200."""
    return random.Random(1000 * seed + count).sample(range(len(texts)), count)


def test_a_division_by_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "split_rows", by_shuffling)
    with pytest.raises(AssertionError):
        test_splits.test_a_division_does_not_depend_on_the_order_of_rows()
    with pytest.raises(AssertionError):
        test_splits.test_rows_added_do_not_move_the_others()
    with pytest.raises(AssertionError):
        test_splits.test_duplicates_and_groups_stay_together()


def test_draws_that_do_not_nest_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "draw_rows", by_fresh_draws)
    with pytest.raises(AssertionError):
        test_splits.test_few_labels_are_nested()


# ------------------------------------------------------------------------------ random streams
def test_too_few_turns_of_the_shuffle_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "FEISTEL_ROUNDS", 4)
    with pytest.raises(AssertionError):
        real.test_every_place_of_a_larger_set_is_equally_likely(65)


def test_a_shuffle_that_is_no_bijection_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(key: np.uint64, size: int, index: np.ndarray) -> np.ndarray:
        return randomness.integers(randomness.key("draw", index), 1, size)[..., 0]

    monkeypatch.setattr(real, "permute", drawn)
    with pytest.raises(AssertionError):
        real.test_a_shuffle_is_a_bijection.hypothesis.inner_test(1000, 0)  # type: ignore[attr-defined]


def test_a_hash_without_avalanche_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_mix", lambda bits: bits * np.uint64(0xBF58476D1CE4E5B9))
    with pytest.raises(AssertionError):
        real.test_neighbouring_keys_are_unrelated()


def test_streams_that_forget_their_purpose_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "purpose_key", lambda purpose: np.uint64(1))
    with pytest.raises(AssertionError):
        real.test_F47_a_million_streams_share_no_first_draw()


def test_streams_that_forget_the_epoch_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = randomness.key
    monkeypatch.setattr(
        real, "key", lambda purpose, seed, epoch, row: keyed(purpose, seed, 0 * epoch, row)
    )
    with pytest.raises(AssertionError):
        real.test_F47_a_million_streams_share_no_first_draw()
