"""Span corruption: the exact lengths of the reference code, random spans, and nothing lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.base.errors import IncompatibleError
from maskwright.model.nn.config import Tokens
from maskwright.model.nn.initialise import build as build_model
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives import span_corruption
from maskwright.model.objectives.base import encoder_decoder
from maskwright.model.objectives.base.corruption import Sequences, compositions
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.modules.span_corruption import SpanCorruption
from maskwright.model.objectives.span_corruption import Options
from nn.points import POINTS
from objectives.by_hand import corrupted
from objectives.texts import END, PAD, blocks, epochs, read, rows_of
from toys import bert

SENTINELS = tuple(range(199, 99, -1))  # descending, as in T5's vocabulary
SIZE = 20_000
VOCABULARY = Vocabulary(
    size=SIZE, mask=None, special=(0, 1, 2, 3, *SENTINELS), pad=PAD, end=END, sentinels=SENTINELS
)


POINT = replace(POINTS["relative encoder-decoder"], tokens=Tokens(vocabulary=SIZE, width=16))
MODEL = build_model(POINT, torch.Generator().manual_seed(0))


def objective(vocabulary: Vocabulary = VOCABULARY, **options: float) -> SpanCorruption:
    return SpanCorruption(MODEL, Options(**options), vocabulary)


def spans_of(ids: list[int]) -> dict[int, list[int]]:
    """What follows each sentinel in a text; key -1 is what precedes the first."""
    found: dict[int, list[int]] = {-1: []}
    last = -1
    for i in ids:
        if i in SENTINELS:
            assert i not in found
            last = i
            found[i] = []
        else:
            found[last].append(i)
    return found


def mended(inputs: list[int], targets: list[int]) -> list[int]:
    """The text, from the inputs and what the targets put into their gaps."""
    assert inputs[-1] == targets[-1] == END
    gaps = spans_of(targets[:-1])
    return [t for i in inputs[:-1] for t in (gaps[i] if i in SENTINELS else [i])]


def reference_lengths(inputs: int, rate: float, mean: float) -> tuple[int, int]:
    """The published rule (random_spans_helper), written out: raw tokens, targets."""

    def read_of(raw: int) -> tuple[int, int]:
        noise = round(raw * rate)
        spans = round(noise / mean)
        return raw - noise + spans + 1, noise + spans + 1

    raw = inputs
    while read_of(raw + 1)[0] <= inputs:
        raw += 1
    return raw, read_of(raw)[1]


@pytest.mark.parametrize(("rate", "mean"), [(0.15, 3.0), (0.15, 10.0), (0.1, 2.0), (0.3, 3.0)])
def test_lengths_are_those_of_the_reference_rule(rate: float, mean: float) -> None:
    options = Options(rate=rate, mean_span=mean)
    for inputs in [*range(64, 600, 7), 1024, 2048, 4096]:
        raw = span_corruption.text_length(options, inputs)
        targets = span_corruption.lengths_of(options, raw)[1]
        assert (raw, targets) == reference_lengths(inputs, rate, mean), inputs


@pytest.mark.parametrize("length", [*range(1, 40), 63, 64, 65, 127, 200, 568])
def test_every_length_gives_exactly_its_lengths_and_back_its_text(length: int) -> None:
    made, clean = objective(), blocks(3, length)
    batch = corrupted(made, clean)
    for row, (inputs, decoder, targets) in zip(clean.tokens, read(batch), strict=True):
        if length > 1:
            expected = span_corruption.lengths_of(made.options, length)
            assert (len(inputs), len(targets)) == expected
        assert mended(inputs, targets) == row.tolist()
        assert decoder == [PAD, *targets[:-1]]


def test_the_worked_example() -> None:
    """The <X> sat on the <Y> and purred loudly.  <X> cat <Y> mat"""
    words = ["The", "cat", "sat", "on", "the", "mat", "and", "purred", "loudly", "."]
    text = Sequences(np.arange(300, 300 + len(words)), np.array([len(words)]))
    hidden = np.array([word in ("cat", "mat") for word in words])
    inputs, targets = objective().gapped(text, hidden)
    names = {300 + i: word for i, word in enumerate(words)} | {199: "<X>", 198: "<Y>"}
    assert " ".join(names[i] for i in inputs.tokens) == "The <X> sat on the <Y> and purred loudly ."
    assert " ".join(names[i] for i in targets.tokens) == "<X> cat <Y> mat"


def test_gaps_at_the_edges_of_neighbouring_texts_stay_apart() -> None:
    text = Sequences(np.array([300, 301, 302, 400, 401, 402]), np.array([3, 3]))
    inputs, targets = objective().gapped(text, np.array([1, 0, 1, 1, 1, 0], dtype=bool))
    assert inputs.tokens.tolist() == [199, 301, 198, 199, 402]
    assert targets.tokens.tolist() == [199, 300, 198, 302, 199, 400, 401]
    assert inputs.lengths.tolist() == [3, 2] and targets.lengths.tolist() == [4, 3]


def test_a_golden_sample() -> None:
    """Six of twenty are hidden, in three spans."""
    made = objective(rate=0.3, mean_span=2.0)
    ((inputs, _, targets),) = read(corrupted(made, rows_of([[list(range(300, 320))]])))
    assert inputs == [*range(300, 311), 199, 314, 198, 317, 318, 197, END]
    assert targets == [199, 311, 312, 313, 198, 315, 316, 197, 319, END]


def test_every_segmentation_is_equally_likely() -> None:
    count = 30_000
    totals, parts = np.full(count, 6), np.full(count, 3)
    draws = np.random.default_rng(0).random(int(totals.sum()))
    sizes = compositions(draws, totals, parts).reshape(-1, 3)
    assert (sizes.sum(1) == 6).all() and sizes.min() == 1
    seen = Counter(map(tuple, sizes.tolist()))
    ways = list(combinations(range(1, 6), 2))
    assert len(seen) == len(ways) == 10
    bound = 4.5 * np.sqrt(0.1 * 0.9 / count)
    assert max(abs(n / count - 0.1) for n in seen.values()) < bound


def test_places_in_the_middle_are_hidden_at_the_rate() -> None:
    clean, made = blocks(400, 40), objective(rate=0.3, mean_span=2.0)
    texts = zip(clean.tokens, read(corrupted(made, clean)), strict=True)
    share = np.stack([np.isin(row, targets) for row, (_, _, targets) in texts]).mean(0)
    assert share.mean() == pytest.approx(0.3, abs=1e-9)  # an exact budget
    assert share[0] == 0 and share[-1] == 1  # a visible piece comes first, a hidden one last
    bound = 4.5 * np.sqrt(0.3 * 0.7 / 400)
    assert np.abs(share[8:-8] - 0.3).max() < bound + 0.04  # the ends lend a little to the middle


def test_a_biased_cut_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: pieces of equal sizes are no random ones."""

    def even(draws: np.ndarray, totals: np.ndarray, parts: np.ndarray) -> np.ndarray:
        return compositions(np.zeros_like(draws), totals, parts)

    monkeypatch.setattr("maskwright.model.objectives.modules.span_corruption.compositions", even)
    with pytest.raises(AssertionError):
        test_places_in_the_middle_are_hidden_at_the_rate()


def test_packed_documents_are_corrupted_apart() -> None:
    texts = [[[*range(300, 320)], [*range(400, 409)], [500, 501]], [[*range(600, 630)], [700]]]
    clean = rows_of(texts, framed=True)
    batch = objective().corrupt(clean, epochs(clean), 0)
    assert batch.tokens.shape == clean.tokens.shape
    found = read(batch)
    assert [mended(i, t) for i, _, t in found] == [text for row in texts for text in row]
    assert all(decoder[0] == PAD for _, decoder, _ in found)


def test_no_document_feels_another() -> None:
    one = rows_of([[[*range(300, 320)], [*range(400, 412)]]], framed=True)
    two = replace(one, tokens=np.where((one.documents == 2) & ~one.special, 900, one.tokens))
    made = objective()
    states = [made.target_states(corrupted(made, r)) for r in (one, two)]
    first = span_corruption.lengths_of(made.options, 20)[1]
    assert torch.equal(states[0][:first], states[1][:first])
    assert not torch.equal(states[0][first:], states[1][first:])


def test_a_dropped_document_mask_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a decoder that looks at all of the row's memory feels the neighbour."""
    monkeypatch.setattr(encoder_decoder, "memory_visible", lambda batch: None)
    with pytest.raises(AssertionError):
        test_no_document_feels_another()


def leaking() -> Transformer:
    """A decoder that sees its targets."""
    block = POINT.decoder.blocks[0]
    seeing = replace(block, attention=replace(block.attention, pattern="bidirectional"))
    return build_model(replace(POINT, decoder=replace(POINT.decoder, blocks=(seeing, seeing))))


@pytest.mark.parametrize(
    ("model", "where"), [(bert, "model"), (leaking, "decoder.blocks.0.attention")]
)
def test_a_model_that_does_not_fit_is_refused(model: Callable[[], Transformer], where: str) -> None:
    with pytest.raises(IncompatibleError) as refused:
        SpanCorruption(model(), Options(), VOCABULARY)
    assert refused.value.where == where


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"end": None}, None),
        ({"sentinels": ()}, "1 or more"),
        ({"sentinels": SENTINELS[:3]}, "28 or more"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(changes: Any, wanted: str | None) -> None:
    with pytest.raises(IncompatibleError) as refused:
        made = objective(replace(VOCABULARY, **changes))
        made.corrupt(blocks(1, 568), np.zeros(1, np.int64), 0)
    assert refused.value.where == "tokenizer" and wanted in (None, refused.value.wanted)


def test_a_rate_near_one_is_answered_at_once() -> None:
    options = span_corruption.Options(rate=0.999999, mean_span=3.0)
    assert span_corruption.text_length(options, 128) > 1_000_000
