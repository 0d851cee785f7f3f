"""Do the loops learn alike? `shakespeare-bert` over several seeds, three ways.

    python -m benchmarks.equal_learning --seeds 5 --steps 600

    ours       our loop, float32
    ours-bf16  our loop, bfloat16 with float32 masters
    trainer    the transformers Trainer in float32 on the textbook's model, masks drawn per batch

Each side has its own initial weights, masks and order, so the question is whether the held-out
losses lie within each other's spread, all scored on the same fixed questions. That equal batches
give equal losses step by step is a test of its own (tests/train/test_against_trainer.py).
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import textbook
from maskwright.base.budget import Budget
from maskwright.learn.pretrain import build, checkpoints, run
from maskwright.learn.pretrain.prepare import prepare
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.pretrain.text import resolve
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.model.inference import held_out_loss

SIDES = ("ours", "ours-bf16", "trainer")


def recipe_for(seed: int, steps: int, precision: str) -> Recipe:
    made = find("shakespeare-bert")
    training = replace(
        made.training,
        seed=seed,
        budget=Budget(steps=steps),
        precision=precision,  # type: ignore[arg-type]
    )
    evaluation = replace(made.evaluation, every=0, rows=4_000)
    checkpoints = replace(made.checkpoints, every=0)
    return replace(made, training=training, evaluation=evaluation, checkpoints=checkpoints)


def ours(seed: int, steps: int, precision: str) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        run.pretrain(recipe_for(seed, steps, precision), out, stream=io.StringIO())
        return float(
            [r for r in checkpoints.read_journal(out) if r["kind"] == "evaluation"][-1]["loss"]
        )


def trainer(seed: int, steps: int) -> float:
    """The reference Trainer on the textbook's twin, scored by our questions."""
    import transformers

    text = textbook.Text.of(resolve("$MASKWRIGHT_DATA/text/tinyshakespeare.txt").read_text("utf-8"))
    torch.manual_seed(seed)
    twin = textbook.Twin(text.vocabulary, causal=False)

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twin = twin

        def forward(self, input_ids: Any, labels: Any) -> dict[str, Any]:
            scores = self.twin(input_ids).flatten(0, 1)
            return {"loss": F.cross_entropy(scores, labels.flatten(), ignore_index=-100)}

    def collate(_: Any) -> dict[str, Any]:
        ids, labels = textbook.masked_batch(text)
        return {"input_ids": ids, "labels": labels}

    with tempfile.TemporaryDirectory() as scratch:
        arguments = transformers.TrainingArguments(
            output_dir=scratch,
            per_device_train_batch_size=1,
            max_steps=steps,
            seed=seed,
            learning_rate=textbook.RATE,
            weight_decay=0.0,
            lr_scheduler_type="cosine",
            max_grad_norm=1.0,
            save_strategy="no",
            report_to=[],
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
        )
        transformers.Trainer(
            model=WithLoss(), args=arguments, train_dataset=[{}] * steps, data_collator=collate
        ).train()
        return _score(twin.eval(), Path(scratch) / "data")


@torch.no_grad()
def _score(twin: textbook.Twin, folder: Path) -> float:
    recipe = recipe_for(0, 1, "float32")
    folder.mkdir()
    prepared = prepare(recipe, folder, lambda text: None)
    point = build.transformer_config(recipe, prepared.tokenizer)
    objective = build.objective(recipe, build.model(recipe, point), prepared.tokenizer)
    # Our tokenizer has [MASK] first and the characters after it, the textbook has it last.
    to_theirs = torch.arange(62) - 1
    to_theirs[0] = 61
    total, count = 0.0, 0
    source = held_out_rows(recipe, prepared.held_out)
    for batch in held_out_loss.evaluation_batches(objective, source, 4_000, 256):
        assert batch.index is not None and batch.targets is not None
        scores = twin(to_theirs[batch.tokens]).flatten(0, 1)[batch.index]
        total += float(F.cross_entropy(scores, to_theirs[batch.targets], reduction="sum"))
        count += batch.targets.numel()
    return total / count


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--seeds", type=int, default=5)
    read.add_argument("--steps", type=int, default=600)
    read.add_argument("--sides", nargs="*", default=list(SIDES), choices=SIDES)
    a = read.parse_args()
    for side in a.sides:
        losses = []
        for seed in range(a.seeds):
            if side == "trainer":
                losses.append(trainer(seed, a.steps))
            else:
                precision = "bfloat16" if side == "ours-bf16" else "float32"
                losses.append(ours(seed, a.steps, precision))
        spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
        print(
            json.dumps(
                {"side": side, "mean": statistics.mean(losses), "stdev": spread, "losses": losses}
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
