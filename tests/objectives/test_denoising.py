"""Denoising: each kind of damage against its definition, alone and mixed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import exp, factorial

import numpy as np
import pytest

from maskwright.base.errors import IncompatibleError
from maskwright.model.objectives.base.corruption import Sequences, Texts, texts_of
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.denoising import Options
from maskwright.model.objectives.modules import denoising as modules
from maskwright.model.objectives.modules.denoising import Denoising
from maskwright.text.store.rows import Rows
from objectives.by_hand import corrupted
from objectives.texts import BEGIN, END, MASK, SPECIAL, blocks, epochs, read, rows_of
from toys import bert, encoder_decoder

SIZE = 20_000
VOCABULARY = Vocabulary(size=SIZE, mask=MASK, special=SPECIAL, begin=BEGIN, end=END)
MODEL = encoder_decoder()
NOTHING = {"infilling": 0.0, "permutation": 0.0}
MIX = {"infilling": 0.3, "masking": 0.1, "deletion": 0.1, "permutation": 1.0, "rotation": 0.5}


def objective(vocabulary: Vocabulary = VOCABULARY, **options: float) -> Denoising:
    return Denoising(MODEL, Options(**{**NOTHING, **options}), vocabulary)


def damaged(clean: Rows, seed: int = 0, epoch: int = 0, **options: float) -> list[list[int]]:
    texts = texts_of(clean, epochs(clean, epoch), seed)
    text = objective(**options).damage(texts)
    return [part.tolist() for part in np.split(text.tokens, np.cumsum(text.lengths)[:-1])]


# --------------------------------------------------------------------------------- what is wanted
@pytest.mark.parametrize("options", [{name: 0.3} for name in MIX] + [MIX], ids=[*MIX, "mix"])
def test_the_whole_original_is_wanted_behind_the_end_token(options: dict[str, float]) -> None:
    texts = [[[-300, 301, 302, -303, 304], [-400, 401, 402]], [[-500, 501, -502, 503, 504, -505]]]
    clean = rows_of(texts, framed=True)
    batch = objective(**options).corrupt(clean, epochs(clean), 0)
    assert batch.tokens.shape == clean.tokens.shape
    wanted = [[BEGIN, *map(abs, text), END] for row in texts for text in row]
    found = read(batch)
    assert [targets for _, _, targets in found] == wanted
    assert [decoder for _, decoder, _ in found] == [[END, *text[:-1]] for text in wanted]
    for inputs, _, _ in found:  # the frame is never touched
        assert inputs[0] == BEGIN and inputs[-1] == END
        assert not {BEGIN, END} & set(inputs[1:-1])


# -------------------------------------------------------------------------------------- infilling
def covered_lengths(clean: list[int], after: list[int]) -> list[int]:
    """How many tokens each mask stands for, given that neighbours tell the places of all others."""
    sizes, last = [], clean[0] - 1
    for token in [*after, clean[-1] + 1]:
        if token == MASK:
            sizes.append(0)
        else:
            if token - last > 1:
                sizes[-1] += token - last - 1  # adjacent masks share a gap: counted together
            last = token
    return sizes


@pytest.mark.parametrize("length", [1, 2, 3, 5, 10, 63, 200])
@pytest.mark.parametrize("mean", [0.5, 3.0, 3.5])
def test_infilling_covers_exactly_its_budget(length: int, mean: float) -> None:
    clean = blocks(50, length)
    for row, after in zip(clean.tokens, damaged(clean, infilling=0.3, mean_span=mean), strict=True):
        kept = [token for token in after if token != MASK]
        assert kept == [t for t in row if t in kept]  # in order, and nothing new
        assert length - len(kept) == max(1, round(0.3 * length))
        assert 1 <= after.count(MASK) <= length - len(kept)
        assert sum(covered_lengths(row.tolist(), after)) == length - len(kept)


def test_span_lengths_follow_the_poisson_distribution() -> None:
    draws = np.random.default_rng(0).random(200_000)
    for mean in (0.7, 3.0, 3.5, 40.0):
        found = modules._poisson(draws, mean)
        assert found.mean() == pytest.approx(mean, abs=5 * np.sqrt(mean / len(draws)))
        assert found.var() == pytest.approx(mean, rel=0.02)
    shares = np.bincount(modules._poisson(draws, 3.0), minlength=8)[:8] / len(draws)
    wanted = [3.0**k * exp(-3.0) / factorial(k) for k in range(8)]
    assert np.abs(shares - wanted).max() < 4.5 * np.sqrt(0.25 / len(draws))


def test_every_place_is_covered_alike() -> None:
    count, length = 2000, 60
    clean = blocks(count, length)
    after = damaged(clean, infilling=0.3)
    gone = np.stack([~np.isin(row, a) for row, a in zip(clean.tokens, after, strict=True)])
    share = gone.mean(axis=0)
    assert share.mean() == pytest.approx(0.3, abs=1e-9)
    bound = 4.5 * np.sqrt(0.25 / count)
    assert np.abs(share[10:-10] - share[10:-10].mean()).max() < bound
    assert np.abs(share - share[::-1]).max() < bound * np.sqrt(2)


def test_a_golden_sample() -> None:
    clean = rows_of([[[*range(300, 320)]]])
    assert damaged(clean, infilling=0.4) == GOLDEN


GOLDEN = [[*range(300, 311), MASK, MASK, 319]]  # twelve of twenty are left


def test_infilling_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of ten tokens; lengths 0, 2 and 5 are drawn, the last is cut to 1; they are put into
    the order 2, 0, 1 and stand second, fifth and last."""
    given = {
        modules.SPAN_LENGTH: [0.0, 0.0, 0.0],
        modules.SPAN_ORDER: [0.5, 0.1, 0.9],
        modules.SPAN_PLACE: [0.9, 0.1, 0.8, 0.7, 0.0, 0.9, 0.8, 0.7, 0.9, 0.2],
    }
    monkeypatch.setattr(Texts, "draws", lambda texts, lengths, name, use: np.array(given[use]))
    monkeypatch.setattr(modules, "_poisson", lambda draws, mean: np.array([0, 2, 5]))
    clean = rows_of([[[*range(300, 310)]]])
    after = [300, MASK, 303, 304, MASK, 305, 306, 307, 308, MASK]
    assert damaged(clean, infilling=0.3) == [after]


# ----------------------------------------------------------------------------- masking and deletion
def test_masked_tokens_keep_their_places_and_deleted_ones_vanish() -> None:
    clean = blocks(40, 50)
    masked, gone = damaged(clean, masking=0.2), damaged(clean, deletion=0.2)
    for row, one, two in zip(clean.tokens.tolist(), masked, gone, strict=True):
        assert [a if b != MASK else MASK for a, b in zip(row, one, strict=True)] == one
        assert one.count(MASK) == 10
        assert len(two) == 40 and two == [t for t in row if t in two]
    share = np.mean([np.array(one) == MASK for one in masked], axis=0)
    assert share.max() < 0.6 and share.min() < 0.2  # not the same places in every row


@pytest.mark.parametrize("length", [1, 2, 30])
def test_of_a_text_that_would_vanish_a_token_stays(length: int) -> None:
    clean = blocks(5, length)
    for row, after in zip(clean.tokens.tolist(), damaged(clean, deletion=0.99), strict=True):
        assert len(after) == 1 and set(after) <= set(row)
    # Where masks are left the budget is met.
    for after in damaged(clean, infilling=0.01, deletion=0.99):
        assert after == [MASK] if length == 1 else MASK in after


def test_budgets_of_a_mix_are_met_at_once_and_no_token_is_taken_twice() -> None:
    clean = blocks(40, 100)
    mixed = damaged(clean, infilling=0.3, masking=0.1, deletion=0.2)
    for row, after in zip(clean.tokens, mixed, strict=True):
        kept = [t for t in after if t != MASK]
        assert len(kept) == 40 and set(kept) <= set(row)
        assert after.count(MASK) > 10  # ten masked tokens, and a mask for each span


def test_random_tokens_take_the_place_of_some_masks() -> None:
    clean = blocks(200, 50)
    found = [t for after in damaged(clean, masking=0.4, random=0.25) for t in after]
    texts = set(clean.tokens.reshape(-1).tolist())
    masks = found.count(MASK)
    assert masks / (200 * 20) == pytest.approx(0.75, abs=4.5 * np.sqrt(0.25 * 0.75 / 4000))
    assert not set(found) & (set(SPECIAL) - {MASK})
    assert sum(t not in texts for t in found) > 0.2 * 200 * 20 * 0.4


# --------------------------------------------------------------------------- order of the sentences
SENTENCES = [-300, 301, 302, -400, 401, -500, -600, 601, 602, 603]


def cut(text: list[int]) -> list[tuple[int, ...]]:
    """The sentences of a text in which ids of one hundred are one sentence."""
    starts = [i for i, t in enumerate(text) if t % 100 == 0]
    return [tuple(text[a:b]) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


def test_sentences_stay_whole_and_all_orders_are_equally_likely() -> None:
    count = 6000
    clean = rows_of([[SENTENCES]] * count)
    seen = Counter(tuple(cut(after)) for after in damaged(clean, permutation=1.0))
    whole = sorted(cut([abs(t) for t in SENTENCES]))
    assert all(sorted(order) == whole for order in seen) and len(seen) == 24
    bound = 4.5 * np.sqrt(1 / 24 * 23 / 24 / count)
    assert max(abs(n / count - 1 / 24) for n in seen.values()) < bound


def test_a_share_of_the_sentences_moves_and_the_others_stay() -> None:
    clean = rows_of([[[-100 * (i + 3) for i in range(10)]]] * 300)
    after = np.array(damaged(clean, permutation=0.3))
    moved = (after != clean.tokens).sum(1).tolist()
    assert max(moved) == 3 and set(moved) == {0, 2, 3}  # three are shuffled among themselves


def test_rows_that_do_not_know_their_sentences_are_refused() -> None:
    clean = replace(blocks(2, 10), starts_sentence=None)
    with pytest.raises(IncompatibleError) as refused:
        damaged(clean, permutation=1.0)
    assert refused.value.where == "rows.kind"
    assert damaged(clean, permutation=0.0) == clean.tokens.tolist()


# --------------------------------------------------------------------------------------- rotation
def test_a_text_begins_at_an_evenly_drawn_token() -> None:
    count, length = 8000, 8
    clean = rows_of([[[*range(300, 300 + length)]]] * count)
    offsets = Counter()
    for after in damaged(clean, rotation=1.0):
        offset = after[0] - 300
        assert after == [300 + (i + offset) % length for i in range(length)]
        offsets[offset] += 1
    bound = 4.5 * np.sqrt(1 / 8 * 7 / 8 / count)
    assert max(abs(offsets[o] / count - 1 / 8) for o in range(length)) < bound


def test_rotation_turns_its_share_of_the_texts() -> None:
    clean = blocks(4000, 100)
    turned = (np.array(damaged(clean, rotation=0.4))[:, 0] != clean.tokens[:, 0]).mean()
    assert turned == pytest.approx(0.4 * 0.99, abs=4.5 * np.sqrt(0.24 / 4000))


# ------------------------------------------------------------------------------ keys and neighbours
def test_a_text_is_damaged_alike_beside_any_neighbour() -> None:
    one, other = [*range(300, 340)], [*range(500, 530)]
    alone, beside = rows_of([[one]], framed=True), rows_of([[one, other]], framed=True)
    assert damaged(alone, **MIX)[0] == damaged(beside, **MIX)[0]


# --------------------------------------------------------------------------------------- refusals
def test_what_does_not_fit_is_refused() -> None:
    without = replace(VOCABULARY, mask=None)
    assert objective(without, deletion=0.3)
    for where, build in {
        "model": lambda: Denoising(bert(), Options(), VOCABULARY),
        "tokenizer": lambda: objective(without, infilling=0.3),
        "objective.options.start": lambda: objective(replace(VOCABULARY, end=None)),
        "rows.kind": lambda: damaged(rows_of([[[300, END, 301]]], framed=True)),
    }.items():
        with pytest.raises(IncompatibleError) as refused:
            build()
        assert refused.value.where == where


def test_a_wrong_budget_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: one token too many."""
    budget = modules.budget_of_lengths
    monkeypatch.setattr(modules, "budget_of_lengths", lambda *about: budget(*about) + 1)
    with pytest.raises(AssertionError):
        test_infilling_covers_exactly_its_budget(63, 3.0)


def test_draws_that_forget_the_document_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: counters that run through the batch depend on what stands before."""

    def through(texts: object, lengths: np.ndarray, purpose: str, *counters: int) -> np.ndarray:
        return np.random.default_rng(counters).random(int(lengths.sum()))[::-1]

    monkeypatch.setattr("maskwright.model.objectives.base.corruption.Texts.draws", through)
    with pytest.raises(AssertionError):
        test_a_text_is_damaged_alike_beside_any_neighbour()


def test_an_empty_batch_of_texts_is_no_accident() -> None:
    blank = rows_of([[[300, 301]]])
    blank = replace(blank, documents=np.zeros_like(blank.documents))
    made = objective(**MIX)
    batch = corrupted(made, blank)
    assert made.counts(batch) == {"denoising": 0}
    assert isinstance(made.damage(texts_of(blank, epochs(blank), 0)), Sequences)
