"""Batches of labelled texts: everything is there once, in its place, beside its label."""

from __future__ import annotations

import numpy as np
import pytest

from maskwright.base.errors import DataError
from maskwright.model.inference import batches
from maskwright.model.inference.batches import by_length
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed

FIRST, LAST = Collation(pad=0, last=False), Collation(pad=0, last=True)


def examples(count: int = 50, longest: int = 40, choices: int = 1) -> EncodedExamples:
    draw = np.random.default_rng(0)
    texts = [draw.integers(5, 60, draw.integers(1, longest)).tolist() for _ in range(count)]
    labels = np.arange(count // choices)
    return EncodedExamples(framed(texts), labels, np.arange(sum(map(len, texts))) % 2, choices)


def text(given: EncodedExamples, number: int) -> list[int]:
    end = given.texts.lengths[: number + 1].sum()
    return given.texts.tokens[end - given.texts.lengths[number] : end].tolist()


@pytest.mark.parametrize("collation", [FIRST, LAST, Collation(pad=0, last=True, decoder_start=2)])
@pytest.mark.parametrize("longest", [4, 40, 300])
def test_every_text_is_there_beside_its_label(collation: Collation, longest: int) -> None:
    given = examples(longest=longest)
    numbers = np.array([3, 49, 0, 17, 18, 30, 8, 9])
    batch, which = given.batch(numbers, collation)
    assert sorted(which.tolist()) == sorted(numbers.tolist())
    assert batch.labels.tolist() == which.tolist()
    width = batch.tokens.shape[1]
    assert width % 32 == 0
    for label, place in zip(batch.labels.tolist(), batch.pooled.tolist(), strict=True):
        wanted = text(given, label)
        begin = place - (len(wanted) - 1) * collation.last
        here = slice(begin, begin + len(wanted))
        assert batch.tokens.view(-1)[here].tolist() == wanted
        if batch.positions is not None and batch.documents is not None:
            assert batch.positions.view(-1)[here].tolist() == list(range(len(wanted)))
            assert len(set(batch.documents.view(-1)[here].tolist())) == 1
        if batch.decoder_tokens is not None:
            read = batch.decoder_tokens.view(-1)[here].tolist()
            assert read == [collation.decoder_start, *wanted[:-1]]
    assert int((batch.documents != 0).sum()) == given.texts.lengths[numbers].sum()


def test_short_texts_share_rows() -> None:
    given = examples(longest=10)
    batch, _ = given.batch(np.arange(50), FIRST)
    tokens = given.texts.lengths.sum()
    assert batch.tokens.numel() < tokens + 128, "next to nothing is padded"
    assert batch.tokens.shape[1] == 128


def test_choices_stay_together_and_in_order() -> None:
    given = examples(count=48, longest=20, choices=4)
    numbers = np.array([5, 0, 11, 7])
    batch, which = given.batch(numbers, FIRST)
    assert len(batch.pooled) == 16 and batch.labels.tolist() == which.tolist()
    for place, question in enumerate(batch.labels.tolist()):
        for choice in range(4):
            begin = int(batch.pooled[4 * place + choice])
            wanted = text(given, 4 * question + choice)
            assert batch.tokens.view(-1)[begin : begin + len(wanted)].tolist() == wanted


def test_portions_by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PACKED", 256)
    lengths = np.random.default_rng(1).integers(1, 100, 200)
    portions = list(by_length(lengths))
    assert sorted(np.concatenate(portions).tolist()) == list(range(200))
    assert all(lengths[p].sum() <= 256 for p in portions)
    longest = [lengths[p].max() for p in portions]
    assert longest == sorted(longest, reverse=True)
    assert [p.tolist() for p in by_length(np.array([300, 5]))] == [[0], [1]]


@pytest.mark.parametrize(("texts", "labels"), [([[1], [2]], 3), ([[1], []], 2)])
def test_texts_are_as_many_as_labels_and_none_is_empty(texts: list[list[int]], labels: int) -> None:
    with pytest.raises(DataError):
        EncodedExamples(framed(texts), np.arange(labels))
