"""Negative controls: weak streams must fail the tests that the real ones pass."""

from __future__ import annotations

import numpy as np
import pytest
from tests import test_randomness as real

from maskwright.base import randomness


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
