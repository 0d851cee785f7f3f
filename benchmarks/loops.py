"""The two loops that take turns: ours, and the transformers Trainer with the same settings.

Both: AdamW at 1e-4 with decay 0.01, clip 1.0, a linear schedule, one batch per step. The Trainer
runs three ways: `default` (float32, as it comes), `bf16` (bf16=True), and `tuned`: everything its
user could set (allocator, eager attention, and bf16 where the machine has matrix units for it; its
AdamW is the fused one by default).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.turns import Turn

TRAINER = ("default", "bf16", "tuned")


def ours(
    objective: Any, batches: Callable[[int, int], Any], chosen: Any, turn: Turn, a: Any
) -> None:
    """`a.steps` steps of our loop; `chosen` says where and in which type."""
    from maskwright.base.budget import Budget
    from maskwright.learn.train import loop
    from maskwright.learn.train.optimizers import Parameters, start_optimizer
    from maskwright.learn.train.settings import AdamW, Schedule
    from maskwright.learn.train.state import TrainState
    from maskwright.model.device import machine

    optimizer = start_optimizer(AdamW(learning_rate=1e-4), Parameters(objective, chosen.compute))
    machine.keep_memory()
    plan = loop.TrainingPlan(
        seed=0,
        microbatches=1,
        budget=Budget(steps=a.steps),
        schedule=Schedule(kind="linear"),
        device=chosen.device,
    )

    class Clock:
        def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
            turn.end(record["loss"])

        def at_end(self, state: TrainState) -> None:
            pass

    turn.begin()
    loop.train(objective, batches, optimizer, plan, TrainState(), hooks=[Clock()])


def attention_of(side: str) -> str | None:
    """The kernel the Trainer's model is told to take; None leaves it to the library."""
    import torch

    return "eager" if side == "tuned" and not torch.cuda.is_available() else None


def trainer(
    model: Any, rows: Sequence[Any], collate: Callable[[list[Any]], Any], turn: Turn, a: Any
) -> None:
    """`a.steps` steps of the Trainer as `a.side`, on `a.batch` of `rows` at a time."""
    import torch
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from maskwright.model.device.machine import matrix_units

    transformers.logging.set_verbosity_error()
    cuda = torch.cuda.is_available()
    units = matrix_units("cuda" if cuda else "cpu")

    class Remembering(Trainer):
        """Keeps the loss of the last step, for whoever asks whether the work is the same."""

        def training_step(self, *arguments: Any, **named: Any) -> Any:
            self.loss = super().training_step(*arguments, **named)
            return self.loss

    class Clock(TrainerCallback):
        def on_step_end(self, *arguments: Any, **named: Any) -> None:
            turn.end(float(built.loss))

    arguments = TrainingArguments(
        output_dir=a.folder,
        per_device_train_batch_size=a.batch,
        max_steps=a.steps,
        learning_rate=1e-4,
        weight_decay=0.01,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        bf16=a.side == "bf16" or (a.side == "tuned" and bool(units)),
        use_cpu=not cuda,
        save_strategy="no",
        report_to=[],
        logging_steps=10**9,
        disable_tqdm=True,
        seed=0,
        dataloader_pin_memory=cuda,
        remove_unused_columns=False,
    )
    built = Remembering(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=collate,
        callbacks=[Clock()],
    )
    turn.begin()
    built.train()
