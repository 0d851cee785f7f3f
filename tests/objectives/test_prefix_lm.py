"""Prefix language modelling: what is seen, what is wanted, and how long prefixes are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskwright.base.errors import IncompatibleError
from maskwright.model.nn import stack
from maskwright.model.nn.config import Embeddings
from maskwright.model.nn.mask import prefix
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives import causal
from maskwright.model.objectives.modules.causal import Causal
from maskwright.model.objectives.modules.prefix_lm import PrefixLM
from maskwright.model.objectives.prefix_lm import Options
from maskwright.text.store.rows import Rows
from nn.points import DECODERS, ENCODERS, LOCAL, PAIRS, VOCABULARY, block, config, model_of
from nn.points import stack as stack_of
from objectives.by_hand import corrupted, of
from objectives.texts import epochs, rows_of
from toys import VOCABULARY as KNOWN


def objective(model: Transformer, **options: float) -> PrefixLM:
    return PrefixLM(model, Options(**options), KNOWN).eval()


def rows(count: int, length: int, seed: int = 0) -> Rows:
    draw = np.random.default_rng(seed)
    return rows_of(draw.integers(5, VOCABULARY, (count, 1, length)).tolist())


def test_what_follows_the_prefix_is_wanted_and_nothing_else() -> None:
    clean = rows(6, 11)
    batch = objective(model_of("pre-norm decoder")).corrupt(clean, epochs(clean), 0)
    assert batch.tokens.shape == (6, 10)
    wanted = [
        (row * 10 + place - 1, int(clean.tokens[row, place]))
        for row, begin in enumerate(batch.prefix.tolist())
        for place in range(begin, 11)
    ]
    index = torch.arange(60) if batch.index is None else batch.index
    assert list(zip(index.tolist(), batch.targets.tolist(), strict=True)) == wanted


def test_every_length_of_prefix_is_equally_likely() -> None:
    clean = rows(20_000, 9)
    made = objective(model_of("pre-norm decoder"))
    lengths = corrupted(made, clean).prefix
    shares = np.bincount(lengths.numpy(), minlength=9)[1:] / 20_000
    assert len(shares) == 8 and lengths.min() == 1
    assert np.abs(shares - 1 / 8).max() < 4.5 * np.sqrt(1 / 8 * 7 / 8 / 20_000)
    half = objective(made.product, shortest=0.5, longest=0.5).corrupt(clean, epochs(clean), 0)
    assert (half.prefix == 4).all()


def test_a_short_row_keeps_a_target() -> None:
    made = objective(model_of("pre-norm decoder"), shortest=1.0)
    batch = corrupted(made, rows_of([[[5, 6]], [[7, 8, 9, 10, 11, 12]]]))
    assert batch.prefix.tolist() == [1, 5]
    assert batch.targets.tolist() == [6, 12]


def felt(made: PrefixLM, length: int) -> torch.Tensor:
    """(output, input): which places notice that a token is changed, with half a row as prefix."""
    batch = replace(corrupted(made, rows(1, length + 1, seed=3)), index=torch.arange(length))
    assert batch.prefix.tolist() == [length // 2]
    states, columns = made.target_states(batch), []
    for place in range(length):
        tokens = batch.tokens.clone()
        tokens[:, place] = 5 + (tokens[:, place] - 4) % (VOCABULARY - 5)
        columns.append((made.target_states(replace(batch, tokens=tokens)) != states).any(-1))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("name", ENCODERS + DECODERS)
def test_no_target_is_seen_by_its_predictor_and_the_prefix_is_seen_whole(name: str) -> None:
    places = torch.arange(8)
    allowed = (places <= places[:, None]) | (places < 4)
    assert torch.equal(felt(objective(model_of(name), shortest=0.5, longest=0.5), 8), allowed)


def test_a_prefix_that_is_not_shown_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a decoder that reads its prefix one way does not see it whole."""
    monkeypatch.setattr(stack, "prefix_of", lambda lengths: prefix(lengths * 0))
    with pytest.raises(AssertionError):
        test_no_target_is_seen_by_its_predictor_and_the_prefix_is_seen_whole("pre-norm decoder")


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_prefix_opens_the_windows_of_a_decoder_and_no_others(side: str) -> None:
    """One layer that sees two places on: an encoder is saved, and read later, with its windows."""
    local = LOCAL if side == "encoder" else replace(LOCAL, pattern="causal")
    network = of(config(**{side: stack_of(block(local), embeddings=Embeddings())}))
    places = torch.arange(12)
    near = (places - places[:, None]).abs() <= 2  # of a query in each row, and a key
    past, shown = places <= places[:, None], places < 6
    allowed = near & (past | shown) if side == "encoder" else near & past | shown
    assert torch.equal(felt(objective(network, shortest=0.5, longest=0.5), 12), allowed)


def test_a_prefix_of_one_token_leaves_every_target_and_is_causal() -> None:
    clean, model = rows(3, 11), model_of("pre-norm decoder")
    made = objective(model, longest=0.0)
    batch = corrupted(made, clean)
    assert batch.index is None and made.counts(batch) == {"prefix-lm": 30}
    plain = Causal(model, causal.Options(), KNOWN)(replace(batch, prefix=None))
    torch.testing.assert_close(made(batch).parts["prefix-lm"].total, plain.parts["causal"].total)


def test_documents_of_a_row_do_not_see_each_other() -> None:
    one = rows_of([[[5, 6, 7, 8], [9, 10, 11, 12, 13]]])
    two = replace(one, tokens=np.where(one.documents == 1, 20, one.tokens))
    made = objective(model_of("pre-norm decoder"), shortest=0.7, longest=0.7)
    states = [made.target_states(corrupted(made, r)) for r in (one, two)]
    assert len(states[0]) > 1 and torch.equal(states[0], states[1])


def test_two_stacks_are_refused() -> None:
    with pytest.raises(IncompatibleError) as refused:
        PrefixLM(model_of(PAIRS[0]), Options(), KNOWN)
    assert refused.value.where == "model"
