"""Held-out figures by hand: ties, reference lines, equal questions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from maskwright.errors import DataError
from maskwright.evaluate import likelihood
from maskwright.objectives import causal, masked
from toys import VOCABULARY, FixedRows, bert, gpt2


def test_ties_count_their_fair_share() -> None:
    constant = torch.zeros(3, 10)
    wanted = torch.tensor([0, 4, 9])
    assert likelihood.top_hits(constant, wanted, 1).tolist() == pytest.approx([0.1] * 3)
    assert likelihood.top_hits(constant, wanted, 5).tolist() == pytest.approx([0.5] * 3)
    scores = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    shares = [float(likelihood.top_hits(scores, torch.tensor([1]), k)) for k in (1, 2, 3)]
    assert shares == pytest.approx([0.0, 0.5, 1.0])


def objective() -> masked.Masked:
    return masked.build(bert(), masked.Options(), VOCABULARY)


def test_an_untrained_model_stands_near_the_uniform_line() -> None:
    figures = likelihood.evaluate(objective(), FixedRows())
    assert figures.loss == pytest.approx(math.log(VOCABULARY.size), abs=0.05)
    assert figures.perplexity == pytest.approx(math.exp(figures.loss))
    assert figures.bits_per_byte is None


def test_the_questions_do_not_depend_on_batches_or_mode() -> None:
    trained = objective().train()
    first = likelihood.evaluate(trained, FixedRows(), batch_rows=8)
    second = likelihood.evaluate(trained, FixedRows(), batch_rows=64)
    assert trained.training
    assert first.targets == second.targets
    assert first.loss == pytest.approx(second.loss, rel=1e-6)


def test_bits_per_byte_by_hand() -> None:
    model = causal.build(gpt2(), causal.Options(), VOCABULARY)
    figures = likelihood.evaluate(model, FixedRows(length=17), bytes_per_token=4.0)
    assert figures.bits_per_byte == pytest.approx(figures.loss / math.log(2) / 4)


def test_an_empty_source_is_refused() -> None:
    class Empty(FixedRows):
        def __len__(self) -> int:
            return 0

    with pytest.raises(DataError, match="held_out"):
        likelihood.evaluate(objective(), Empty())


class Counted:
    """A store of which only the token counts matter."""

    vocabulary_size = VOCABULARY.size
    tokens = np.repeat(np.arange(5, 50), np.arange(1, 46))
    num_tokens = len(tokens)


def test_reference_lines_by_hand() -> None:
    source = FixedRows()
    made = objective()
    lines = likelihood.reference_lines(made, Counted(), source)  # type: ignore[arg-type]
    wanted = np.concatenate(
        [b.targets.numpy() for b in likelihood.questions(made, source, 1024, 32)]
    )  # type: ignore[union-attr]
    counts = np.bincount(Counted.tokens, minlength=50) + 1
    share = counts / counts.sum()
    assert lines.unigram_loss == pytest.approx(-np.log(share[wanted]).mean())
    assert lines.unigram_top1 == pytest.approx((wanted == 49).mean())
    assert lines.unigram_top5 == pytest.approx((wanted >= 45).mean())
    assert lines.uniform_loss == pytest.approx(math.log(50))
