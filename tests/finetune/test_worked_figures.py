"""Figures that were worked out by hand elsewhere, and that come out here (docs/results.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from maskwright.base.budget import Budget
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import Parameters, start_optimizer
from maskwright.learn.train.settings import AdamW, Schedule
from maskwright.learn.train.state import TrainState
from maskwright.model.batch import Batch
from maskwright.model.families.base.family import family
from maskwright.model.nn import initialise
from maskwright.model.nn.config import Head, TransformerConfig
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options
from toys import bert

WORDS = Vocabulary(size=100, mask=1, special=(0, 1))


def classifier(point: TransformerConfig, labels: int) -> Supervised:
    head = Head(name="own", kind="sequence", labels=labels)
    config = replace(point, vocabulary_head=None, pooler=False, heads=(head,))
    model = initialise.build(config, torch.Generator().manual_seed(0))
    return Supervised(model, Options(), WORDS)


def test_a_head_of_three_classes_on_768_has_2307_parameters() -> None:
    shape = {"num_hidden_layers": 1, "vocab_size": 100, "max_position_embeddings": 16}
    shape["architectures"] = ["BertModel"]
    objective = classifier(family("bert").config(shape), 3)
    assert sum(p.numel() for p in objective.product.heads.parameters()) == 2_307
    tokens, labels = torch.randint(2, 100, (32, 8)), torch.zeros(32, dtype=torch.int64)
    batch = Batch(tokens=tokens, labels=labels, pooled=torch.arange(32) * 8)
    assert objective.scores(batch).shape == (32, 3)


def test_four_times_eight_is_thirty_two() -> None:
    """Accumulation is a sum over targets, so how a step is divided does not matter."""
    draw = np.random.default_rng(0)
    tokens = torch.from_numpy(draw.integers(5, 50, (32, 9)))
    labels = torch.from_numpy(draw.integers(0, 2, 32))

    def trained(parts: int, *, losing: bool = False) -> torch.Tensor:
        objective, size = classifier(bert().config, 2), 32 // parts
        parameters = Parameters(objective)

        def batches(step: int, number: int) -> Batch:
            rows = slice(number * size, (number + 1) * size - int(losing))
            pooled = torch.arange(len(tokens[rows])) * 9
            return Batch(tokens=tokens[rows], labels=labels[rows], pooled=pooled)

        plan = loop.TrainingPlan(
            seed=0, microbatches=parts, budget=Budget(steps=3), schedule=Schedule(kind="constant")
        )
        optimizer = start_optimizer(AdamW(learning_rate=1e-3), parameters)
        loop.train(objective, batches, optimizer, plan, TrainState())
        return parameters.masters.detach().clone()

    whole = trained(1)
    torch.testing.assert_close(trained(4), whole, rtol=1e-5, atol=2e-6)
    # Negative control: with a row less in each part it is another step.
    assert (trained(4, losing=True) - whole).abs().max() > 1e-4


def test_a_rate_warms_up_for_a_tenth_and_falls_to_nothing() -> None:
    """3 epochs of 1,000 examples in batches of 32: 96 steps, the tenth step is past the warm-up."""
    steps, schedule = 3 * -(-1_000 // 32), Schedule(kind="linear", warmup=0.1)
    rates = [2e-5 * schedule.factor(step, steps) for step in range(steps + 1)]
    up_and_down = [min(step / 9.6, (96 - step) / (96 - 9.6)) for step in range(97)]
    assert rates == pytest.approx([2e-5 * factor for factor in up_and_down])
