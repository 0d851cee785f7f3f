"""Equal learning: the same weights, batches and masks through our loop and through the reference
library's own Trainer, step by step in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.base.budget import Budget
from maskwright.learn.train import loop
from maskwright.learn.train.optimizers import AdamWState, Parameters
from maskwright.learn.train.settings import AdamW, Schedule
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.batch import Batch
from maskwright.model.checkpoint import pretrained
from maskwright.model.objectives import masked
from maskwright.model.objectives.modules.masked import Masked
from toys import VOCABULARY, FixedRows, bert

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="its Trainer needs accelerate")

STEPS, BATCH, RATE = 50, 8, 5e-3


def batches() -> list[Batch]:
    """Every position of a row is in one document: nothing is packed on their side."""
    source = FixedRows(count=STEPS * BATCH)
    objective = Masked(bert(), masked.Options(), VOCABULARY)
    made = []
    for step in range(STEPS):
        rows = source.rows(np.arange(step * BATCH, (step + 1) * BATCH), 0)
        rows.documents[rows.documents > 0] = 1
        rows.positions[:] = np.arange(rows.positions.shape[1])
        made.append(objective.corrupt(rows, np.full(BATCH, step), 0))
    return made


def theirs(folder: Path, made: list[Batch], *, rate: float = RATE) -> list[float]:
    def as_dictionary(batch: Batch) -> dict[str, torch.Tensor]:
        labels = torch.full(batch.tokens.shape, -100)
        labels.view(-1)[batch.index] = batch.targets
        seen = (batch.documents > 0).long()
        return {"input_ids": batch.tokens, "attention_mask": seen, "labels": labels}

    losses: list[float] = []

    class Sequential(transformers.Trainer):
        def _get_train_sampler(self, *arguments: Any) -> Any:
            return torch.utils.data.SequentialSampler(made)

        def training_step(self, *arguments: Any, **options: Any) -> Any:
            loss = super().training_step(*arguments, **options)
            losses.append(float(loss))
            return loss

    quiet = {"save_strategy": "no", "report_to": [], "logging_strategy": "no", "disable_tqdm": True}
    adam = {"weight_decay": 0.01, "adam_epsilon": 1e-8, "max_grad_norm": 1.0}
    rates = {"learning_rate": rate, "lr_scheduler_type": "linear", "warmup_steps": 5}
    size = {"per_device_train_batch_size": 1, "max_steps": STEPS, "use_cpu": True}
    trainer = Sequential(
        model=transformers.BertForMaskedLM.from_pretrained(folder),
        args=transformers.TrainingArguments(str(folder / "out"), **quiet, **adam, **rates, **size),
        train_dataset=[as_dictionary(b) for b in made],
        data_collator=lambda items: items[0],
    )
    trainer.train()
    return losses


def ours(folder: Path, made: list[Batch]) -> list[float]:
    model = pretrained.load(folder).model
    objective = Masked(model, masked.Options(), VOCABULARY).train()
    settings = AdamW(learning_rate=RATE, decay=0.01, epsilon=1e-8)
    optimizer = AdamWState(Parameters(objective), settings)
    plan = loop.TrainingPlan(
        seed=0,
        microbatches=1,
        budget=Budget(steps=STEPS),
        schedule=Schedule(kind="linear", warmup=5 / STEPS),
    )
    state = TrainState()
    return [
        loop.step(objective, lambda step, number: made[step], optimizer, plan, state, Processes())[
            "loss"
        ]
        for _ in range(STEPS)
    ]


@pytest.mark.filterwarnings("ignore")
def test_fifty_steps_agree_with_the_trainer(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    pretrained.save(bert(), None, folder)
    made = batches()
    mine, reference = np.array(ours(folder, made)), np.array(theirs(folder, made))
    assert np.abs(mine / reference - 1).max() < 1e-4
    assert mine[-5:].mean() < mine[:5].mean()
    # The control: a rate one per cent off is seen.
    off = np.array(theirs(folder, made, rate=RATE * 1.01))
    assert np.abs(off / reference - 1).max() > 1e-4
