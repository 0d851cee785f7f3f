"""F86 by chance: sound tokenizer files with random changes are read or refused, never worse."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from maskwright.base.errors import MaskwrightError
from tokenizer.odd_texts import odd_texts
from tokenizer.toy_tokenizers import KINDS, from_files, sound_files

Plain = dict[str, Any]

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**32 - 1, 2**64, 1.5, -1e300),
    *("", "a", "é", "\x00", "▁", "##", "</w>", "[UNK]"),
    *([], {}, ["a"], [["a", 1.0]], {"a": 0}),
    *({"type": "NFKC"}, {"type": "ByteLevel"}, {"Regex": "a*"}, {"String": "a"}, "x" * 5000),
]


def places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a document, long vocabularies thinned out."""
    found = [path] if path else []
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for name, value in list(items)[:12]:
            found += places(value, (*path, name))
    return found


def mutate(plain: Plain, rng: random.Random) -> bytes:
    """The document with one to three changes: a value, a key, a removal, a doubling, or bytes."""
    plain = copy.deepcopy(plain)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        path = rng.choice(places(plain))
        parent: Any = plain
        for name in path[:-1]:
            parent = parent[name]
        action = rng.random()
        if action < 0.6:
            parent[path[-1]] = copy.deepcopy(rng.choice(VALUES))
        elif action < 0.75:
            del parent[path[-1]]
        elif isinstance(parent, dict):
            parent[rng.choice(["type", "x", "vocab", "é"])] = parent[path[-1]]
        else:
            parent.append(copy.deepcopy(parent[path[-1]]))
    data = bytearray(json.dumps(plain).encode())
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def try_mutations(count: int, seed: int) -> tuple[int, int]:
    """(files read, files refused); anything else that happens is a failure."""
    sound, rng = sound_files(), random.Random(seed)
    text = " ".join(odd_texts(60))
    read = refused = 0
    for _ in range(count):
        data = mutate(sound[rng.choice(KINDS)], rng)
        try:
            tokenizer = from_files({"tokenizer.json": data})
            read += 1
            ids = tokenizer.encode(text)
            assert not set(ids) & (tokenizer.special_ids - {tokenizer.unknown})
            assert len(ids) <= 100 * len(text) and max(ids, default=0) < tokenizer.vocabulary_size
            tokenizer.decode(ids)
            tokenizer.frame(ids[:5], ids[:3])
        except MaskwrightError:
            refused += 1
    return read, refused


@pytest.mark.parametrize(
    ("count", "least"), [(600, 20), pytest.param(100_000, 3_000, marks=pytest.mark.proof)]
)
def test_F86_mutations_are_read_or_refused(count: int, least: int) -> None:
    read, refused = try_mutations(count, seed=0)
    assert read > least and refused > count / 2
