"""Held-out figures by hand: ties, reference lines, equal questions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from maskwright.base.errors import DataError
from maskwright.model.inference import held_out_loss
from maskwright.model.objectives import causal, masked, sentence_pair
from maskwright.model.objectives.modules.causal import Causal
from maskwright.model.objectives.modules.masked import Masked
from maskwright.model.objectives.modules.sentence_pair import SentencePair
from toys import SEP, VOCABULARY, FixedRows, bert, gpt2


def test_ties_count_their_fair_share() -> None:
    one, five = held_out_loss.top_hits(torch.zeros(1, 10), torch.tensor([4]), (1, 5))
    assert float(one) == pytest.approx(0.1) and float(five) == pytest.approx(0.5)
    scores = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    shares = [float(each) for each in held_out_loss.top_hits(scores, torch.tensor([1]), (1, 2, 3))]
    assert shares == pytest.approx([0.0, 0.5, 1.0])


def objective() -> Masked:
    return Masked(bert(), masked.Options(), VOCABULARY)


def test_an_untrained_model_stands_near_the_uniform_line() -> None:
    figures = held_out_loss.evaluate(objective(), FixedRows())
    assert figures.loss == pytest.approx(math.log(VOCABULARY.size), abs=0.05)
    assert figures.perplexity is None and figures.bits_per_byte is None


def test_the_questions_do_not_depend_on_batches_or_mode() -> None:
    trained = objective().train()
    first = held_out_loss.evaluate(trained, FixedRows(), batch_rows=8)
    second = held_out_loss.evaluate(trained, FixedRows(), batch_rows=64)
    assert trained.training
    assert first.targets == second.targets
    assert first.loss == pytest.approx(second.loss, rel=1e-6)


def test_bits_per_byte_by_hand() -> None:
    model = Causal(gpt2(), causal.Options(), VOCABULARY)
    source = FixedRows(length=17)
    figures = held_out_loss.evaluate(model, source, bytes_per_token=4.0)
    # Of 16 wanted tokens 1 is padding and 1 opens a text after the end of another: no questions.
    # The two that close a text cost nats and are no bytes.
    assert figures.targets == 64 * 14
    assert figures.perplexity == pytest.approx(math.exp(figures.loss))
    nats, text = figures.loss * figures.targets, 64 * 12
    assert figures.bits_per_byte == pytest.approx(nats / math.log(2) / (text * 4))


def test_an_empty_source_is_refused() -> None:
    class Empty(FixedRows):
        def __len__(self) -> int:
            return 0

    with pytest.raises(DataError, match="held_out"):
        held_out_loss.evaluate(objective(), Empty())


COUNTS = np.bincount(np.repeat(np.arange(5, 50), np.arange(1, 46)), minlength=50)


def test_the_unigram_line_knows_how_often_a_text_ends() -> None:
    """No store holds the tokens that frame a text; they come as often as in rows of training."""
    made = Causal(gpt2(), causal.Options(), VOCABULARY)
    source = FixedRows(length=17)
    lines = held_out_loss.reference_lines(made, COUNTS, source, source)
    counts = COUNTS.astype(float)
    counts[SEP] = counts.sum() * 2 / 12  # two ends for twelve tokens of text
    share = (counts + 1) / (counts.sum() + 50)
    batches = held_out_loss.evaluation_batches(made, source, 1024, 32)
    wanted = np.concatenate([made.targets(batch).numpy() for batch in batches])
    assert (wanted == SEP).sum() == 64 * 2
    assert lines.unigram_loss == pytest.approx(-np.log(share[wanted]).mean())
    # The control: as if it never came.
    never = COUNTS + 1
    assert lines.unigram_loss < -np.log((never / never.sum())[wanted]).mean() - 0.3


def test_pairs_alone_are_measured_as_what_they_are() -> None:
    model = bert("BertForPreTraining")
    made = SentencePair(model, sentence_pair.Options(masked=False), VOCABULARY)
    source = FixedRows(pairs=True)
    figures = held_out_loss.evaluate(made, source)
    assert figures.targets == 64 and figures.top5 == 1.0
    lines = held_out_loss.reference_lines(made, COUNTS, source, source)
    ones = int(source.all.pair_label.sum())
    assert lines.uniform_loss == pytest.approx(math.log(2))
    assert lines.unigram_top1 == pytest.approx(max(ones, 64 - ones) / 64)


def test_reference_lines_by_hand() -> None:
    source = FixedRows()
    made = objective()
    lines = held_out_loss.reference_lines(made, COUNTS, source, source)
    batches = held_out_loss.evaluation_batches(made, source, 1024, 32)
    wanted = np.concatenate([made.targets(batch).numpy() for batch in batches])
    counts = COUNTS + 1
    share = counts / counts.sum()
    assert lines.unigram_loss == pytest.approx(-np.log(share[wanted]).mean())
    assert lines.unigram_top1 == pytest.approx((wanted == 49).mean())
    assert lines.unigram_top5 == pytest.approx((wanted >= 45).mean())
    assert lines.uniform_loss == pytest.approx(math.log(50))


def test_yes_and_no_told_apart_by_hand() -> None:
    scores, truth = np.array([0.5, -1.0, 2.0, 0.5]), np.array([True, False, True, False])
    found = held_out_loss.BinaryMetrics.of("pairs", scores, truth)
    # 0.5 beats -1 and ties with 0.5; 2 beats both: 3.5 of 4.
    assert found.told_apart == 3.5 / 4
    assert found.decided_right == 3 / 4 and found.decided_usual == 0.5
    rng = np.random.default_rng(0)
    scores, truth = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.2
    pairs = scores[truth][:, None] - scores[~truth][None]
    slow = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    assert held_out_loss.BinaryMetrics.of("pairs", scores, truth).told_apart == pytest.approx(slow)
    # Where all is one answer nothing can be told apart, and no file holds a number for it.
    alone = held_out_loss.BinaryMetrics.of("pairs", scores, np.ones(200, bool))
    assert math.isnan(alone.told_apart) and alone.decided_usual == 1.0
    figures = held_out_loss.HeldOutMetrics(1.0, 2.0, None, 0.1, 0.2, 3, alone)
    assert "told_apart" not in figures.to_json() and figures.to_json()["decides"] == "pairs"


def test_pairs_are_decided_beside_masked_tokens() -> None:
    beside = SentencePair(bert("BertForPreTraining"), sentence_pair.Options(), VOCABULARY)
    decided = held_out_loss.evaluate(beside, FixedRows(pairs=True)).decided
    assert 0.5 <= decided.decided_usual < 0.7 and 0.0 <= decided.told_apart <= 1.0
    # The control: an objective that decides nothing.
    assert held_out_loss.evaluate(objective(), FixedRows(8), rows=8).decided is None
