"""Streams are frozen, even, apart from each other, and shuffles lose nobody."""

from __future__ import annotations

import collections
import hashlib
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maskwright.base import randomness
from maskwright.base.errors import UsageError
from maskwright.base.randomness import PURPOSES, integers, key, permute, torch_seed, uniforms

# The keys of all purposes in order, hashed.
GOLDEN_KEYS = "2cfdd078068e1906b9200fe788cfaecb0e2c3ae7048043a925c22970938bf226"


def test_keys_are_frozen() -> None:
    keys = " ".join(f"{purpose} {int(key(purpose, 0)):016x}" for purpose in sorted(PURPOSES))
    assert hashlib.sha256(keys.encode()).hexdigest() == GOLDEN_KEYS, keys


def test_streams_are_frozen() -> None:
    assert f"{int(key('mask', 1, 2, 3)):016x}" == "fd70537b0ff4724a"
    expected = [0.27079186, 0.92577359, 0.25039435, 0.95195346]
    np.testing.assert_allclose(uniforms(key("mask", 1, 2, 3), 4), expected, atol=5e-9)
    assert integers(key("replace", 7), 8, 1000).tolist() == GOLDEN_INTEGERS
    for size, places in GOLDEN_SHUFFLES.items():
        assert permute(key("shuffle", 5, 1), size, np.arange(6)).tolist() == places
    assert torch_seed(key("init", 0)) == 0x1A208C1614CE17AC >> 1


GOLDEN_INTEGERS = [70, 730, 774, 637, 807, 688, 116, 107]
GOLDEN_SHUFFLES = {
    6: [0, 2, 1, 3, 5, 4],
    65: [32, 42, 46, 2, 51, 9],
    1000: [462, 150, 32, 629, 828, 726],
    10**12: [435893046874, 233940568777, 812919969385, 195778160125, 323399118592, 142591063045],
}


def test_scalars_and_arrays_agree() -> None:
    rows = np.arange(5)
    keys = key("mask", 9, 4, rows)
    assert keys.shape == (5,)
    for row in rows:
        alone = key("mask", 9, 4, int(row))
        assert alone == keys[row]
        np.testing.assert_array_equal(uniforms(alone, 7), uniforms(keys, 7)[row])
        np.testing.assert_array_equal(uniforms(keys, 7)[row, :3], uniforms(alone, 3))
    assert key("mask", rows[:, None], rows[None]).shape == (5, 5)
    assert key("mask", 2**64 - 1) == key("mask", np.uint64(2**64 - 1))


def test_the_order_of_counters_matters() -> None:
    assert key("mask", 1, 2) != key("mask", 2, 1)
    assert key("mask", 0) != key("mask", 0, 0)
    assert key("mask") != key("replace")


def test_F47_a_million_streams_share_no_first_draw() -> None:
    epochs, rows = np.arange(10)[:, None], np.arange(25_000)[None]
    draws = []
    for purpose in ("mask", "replace", "shuffle", "span"):
        draws.append(randomness.ranks(key(purpose, 3, epochs, rows), 1).ravel())
    together = np.concatenate(draws)
    assert together.size == 10**6
    assert np.unique(together).size == together.size


def test_uniforms_are_even() -> None:
    draws = uniforms(key("mask", 0, np.arange(2000)), 500)
    assert draws.min() >= 0 and draws.max() < 1
    flat = draws.ravel()
    counts, _ = np.histogram(flat, 1000, (0, 1))
    assert abs(_chi_squared(counts)) < 4
    for lagged in (flat[1:], np.roll(draws, 1, axis=0).ravel()[1:]):
        assert abs(np.corrcoef(flat[:-1], lagged)[0, 1]) < 5e-3
    bits = randomness.ranks(key("mask", 0, np.arange(2000)), 100).ravel()
    ones = [((bits >> np.uint64(b)) & np.uint64(1)).mean() for b in range(64)]
    assert max(abs(np.array(ones) - 0.5)) < 0.006


def test_neighbouring_keys_are_unrelated() -> None:
    """A change of one bit of one counter moves half of the key's bits."""
    base = np.arange(4096, dtype=np.uint64)
    for bit in range(0, 64, 7):
        flipped = key("mask", 1, base) ^ key("mask", 1, base ^ np.uint64(1 << bit))
        assert abs(np.bitwise_count(flipped).mean() - 32) < 0.4


def test_integers_are_even_and_inside() -> None:
    draws = integers(key("replace", np.arange(1000)), 600, 60)
    assert draws.min() == 0 and draws.max() == 59
    assert abs(_chi_squared(np.bincount(draws.ravel()))) < 4
    per_row = integers(key("replace", np.arange(3)), 50, np.array([[1], [2], [2**53]]))
    assert per_row[0].max() == 0 and per_row[1].max() == 1 and per_row[2].max() < 2**53


@example(size=1, seed=0)
@example(size=64, seed=1)
@example(size=65, seed=2)
@example(size=100_003, seed=0)
@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_a_shuffle_is_a_bijection(size: int, seed: int) -> None:
    assert np.unique(permute(key("shuffle", seed), size, np.arange(size))).size == size


def test_a_shuffle_of_any_size_is_computed_per_index() -> None:
    size, some = 10**15, np.array([5, 10**15 - 1, 0])
    together = permute(key("shuffle", 1), size, some)
    assert together.min() >= 0 and together.max() < size
    assert [int(permute(key("shuffle", 1), size, int(i))) for i in some] == together.tolist()


def test_each_index_may_have_its_own_key() -> None:
    keys = key("shuffle", 1, np.array([0, 0, 1, 1]))
    mixed = permute(keys, 1000, np.array([3, 4, 3, 4]))
    assert mixed[:2].tolist() == permute(keys[0], 1000, np.array([3, 4])).tolist()
    assert mixed[2:].tolist() == permute(keys[2], 1000, np.array([3, 4])).tolist()


@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_order_of_a_small_set_is_equally_likely(size: int) -> None:
    keys = key("shuffle", 2, np.arange(40_000))
    orders = permute(keys[:, None], size, np.arange(size)[None])
    counts = collections.Counter(map(tuple, orders.tolist()))
    assert len(counts) == math.factorial(size)
    assert abs(_chi_squared(np.array(list(counts.values())))) < 4


@pytest.mark.parametrize("size", [65, 200, 257])
def test_every_place_of_a_larger_set_is_equally_likely(size: int) -> None:
    keys = key("shuffle", 2, np.arange(20_000))
    places = permute(keys[:, None], size, np.array([0, 1, size - 1])[None])
    for column in places.T:
        assert abs(_chi_squared(np.bincount(column, minlength=size))) < 4
    after = (places[:, 1] - places[:, 0]) % size  # neighbours are torn apart
    assert abs(_chi_squared(np.bincount(after, minlength=size)[1:])) < 4


def test_refusals_name_the_fault() -> None:
    with pytest.raises(UsageError, match="'maskk'") as refusal:
        key("maskk", 0)
    assert "'mask'" in str(refusal.value)
    for counter in (-1, 1.5, np.array([0, -3]), np.array([0.5]), 2**64):
        with pytest.raises(UsageError, match="whole number"):
            key("mask", counter)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        permute(key("shuffle"), 10, np.array([10]))
    with pytest.raises(UsageError):
        permute(key("shuffle"), 0, np.array([], dtype=np.int64))
    with pytest.raises(UsageError):
        integers(key("replace"), 3, 0)


def _chi_squared(counts: np.ndarray) -> float:
    """Standard deviations between the counts' chi-squared and what even counts would give."""
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - (counts.size - 1)) / math.sqrt(2 * (counts.size - 1))
