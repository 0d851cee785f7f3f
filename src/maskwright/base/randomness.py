"""Stateless random numbers: functions of keys, so that no generator state has to be saved.

    keys = key("mask", seed, epoch, rows)         one 64-bit key per row
    u    = uniforms(keys, 128)                    (rows, 128) numbers in [0, 1)
    i    = integers(keys, 128, vocabulary_size)   (rows, 128) whole numbers
    row  = permute(key("shuffle", seed, epoch), num_rows, n)

A key is a hash of its purpose and of whole-number counters (seed, epoch or step, sample or
microbatch). Equal counters give equal numbers on every machine, in every process, at every batch
size; different purposes never share a stream. The hash is the finaliser of SplitMix64 (Steele, Lea
and Flood 2014, doi 10.1145/2660193.2660195, constants of Stafford's variant 13), chained over the
counters; it is fast and even, and not meant to keep secrets. `permute` is a Feistel network walked
along its cycles (Black and Rogaway 2002, doi 10.1007/3-540-45760-7_9).

`PURPOSES` holds a version per purpose, to be raised whenever the use of a stream changes, so that
runs before and after the change differ. Golden values in the tests freeze all of it.
"""

from __future__ import annotations

import functools
import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import UsageError, near

PURPOSES = {
    "bootstrap": 1,
    "crop": 1,
    "curate": 1,
    "draw": 1,
    "fold": 1,
    "dropout": 2,
    "init": 1,
    "mask": 1,
    "mixture": 1,
    "negative": 1,
    "noise": 1,
    "pack": 1,
    "pair": 1,
    "prefix": 1,
    "replace": 1,
    "sample": 1,
    "schedule": 1,
    "shuffle": 1,
    "span": 1,
    "split": 1,
    "subwords": 1,
}

Keys = np.uint64 | NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
STRIDE = np.uint64(0xD1342543DE82EF95)
FEISTEL_ROUNDS = 8
SMALL = 64  # smaller sets, on which the network is uneven, are ranked by random numbers


def key(purpose: str, *counters: int | NDArray[np.integer]) -> Keys:
    """Return one key per element of the broadcast counters; a scalar if all are scalars.

    Args:
        purpose: a name in `PURPOSES`; streams of different purposes are unrelated.
        counters: whole numbers from 0 to 2**64-1, or arrays of them. Their order matters.

    Raises:
        UsageError: an unknown purpose, or a counter that is negative or not whole.
    """
    state: Keys = purpose_key(purpose)
    with np.errstate(over="ignore"):
        for counter in counters:
            state = _mix((state ^ _mix(_counter(counter) + GOLDEN)) + GOLDEN)
    return state


def uniforms(keys: Keys, count: int) -> NDArray[np.float64]:
    """Return (..., count) numbers in [0, 1), multiples of 2**-53, from keys of shape (...)."""
    return _to_uniform(ranks(keys, count))


def uniforms_at(keys: Keys, positions: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return only the numbers of `uniforms` at `positions`, from 0; `keys` broadcasts against
    `positions`."""
    with np.errstate(over="ignore"):
        steps = (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN
        bits = np.asarray(_mix(np.asarray(keys, np.uint64) + steps))
    return _to_uniform(bits)


def ranks(keys: Keys, count: int) -> NDArray[np.uint64]:
    """Return (..., count) integers in the order of `uniforms`, to shuffle by."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
        return np.asarray(_mix(np.asarray(keys, np.uint64)[..., None] + steps))


def integers(keys: Keys, count: int, high: int | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return (..., count) integers in [0, high) from keys of shape (...).

    `high` (at least 1, at most 2**53) may be an array that broadcasts against (..., count). Each
    value's probability differs from 1/high by less than 2**-53.
    """
    if np.any(np.less(high, 1)) or np.any(np.greater(high, 2**53)):
        raise UsageError("no whole number to draw", found=f"high = {high}", wanted="1 to 2**53")
    return (uniforms(keys, count) * high).astype(np.int64)


def permute(key: Keys, size: int, index: int | NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the position of `index` (...) after a shuffle of 0 … size-1 by `key`.

    This is a bijection of range(size) for every key and every size from 1 to 2**62. It is computed
    per index, so the order of 1e12 samples takes no memory. `key` may be an array that broadcasts
    against `index`.

    Raises:
        UsageError: a size below 1, or an index outside range(size).
    """
    positions = np.asarray(index)
    if not 1 <= size <= 2**62:
        raise UsageError("nothing to shuffle", found=f"size = {size}", wanted="1 to 2**62")
    if positions.size and (positions.min() < 0 or positions.max() >= size):
        raise UsageError(
            "an index outside the set to shuffle",
            wanted=f"0 to {size - 1}",
            found=f"{positions.min()} to {positions.max()}",
        )
    keys, positions = np.broadcast_arrays(np.asarray(key, np.uint64), positions.astype(np.uint64))
    shape, keys, positions = positions.shape, keys.ravel(), positions.ravel()
    if size <= SMALL:
        draws = ranks(keys, size)
        own_draws = np.take_along_axis(draws, positions[:, None].astype(np.int64), axis=1)
        return np.asarray((draws < own_draws).sum(axis=1), np.int64).reshape(shape)
    positions = _feistel(keys, positions, size)
    outside = np.flatnonzero(positions >= size)
    while outside.size:  # the network permutes a larger set: repeat until inside
        positions[outside] = _feistel(keys[outside], positions[outside], size)
        outside = outside[positions[outside] >= size]
    return positions.astype(np.int64).reshape(shape)


def torch_seed(key: Keys) -> int:
    """Return a seed for `torch.Generator.manual_seed`, below 2**63."""
    return int(key) >> 1


# ------------------------------------------------------------------------------ the arithmetic
def _feistel(
    keys: NDArray[np.uint64], positions: NDArray[np.uint64], size: int
) -> NDArray[np.uint64]:
    """Permute a rectangle of at least `size` cells: row and column move in turn by an amount that
    depends on the other. The rectangle is nearly square, so few cells are outside."""
    width = math.isqrt(size - 1) + 1
    height = -(-size // width)
    moved, fixed = positions // np.uint64(width), positions % np.uint64(width)
    sides = (np.uint64(height), np.uint64(width))
    for turn in range(FEISTEL_ROUNDS):
        side = sides[turn % 2]
        with np.errstate(over="ignore"):
            drawn = _mix(keys + GOLDEN * np.uint64(turn + 1) + fixed * STRIDE) >> np.uint64(32)
        moved = moved + (drawn * side >> np.uint64(32))
        moved = moved - side * (moved >= side)
        moved, fixed = fixed, moved
    return moved * np.uint64(width) + fixed


def _to_uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(bits: Keys) -> Keys:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _counter(counter: int | NDArray[np.integer]) -> Keys:
    if isinstance(counter, int) and 0 <= counter < 2**64:
        return np.uint64(counter)
    values = np.asarray(counter)
    if values.dtype.kind == "u" or (values.dtype.kind == "i" and not (values < 0).any()):
        return values.astype(np.uint64)
    raise UsageError(
        "a counter of a random stream is not a whole number from 0 to 2**64-1", found=repr(counter)
    )


@functools.cache
def purpose_key(purpose: str) -> np.uint64:
    """Return the initial state of the keys of a purpose.

    Raises:
        UsageError: an unknown purpose.
    """
    if purpose not in PURPOSES:
        raise UsageError(
            "an unknown purpose of randomness", found=repr(purpose), do=near(purpose, PURPOSES)
        )
    text = f"maskwright {purpose} {PURPOSES[purpose]}"
    return np.uint64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))
