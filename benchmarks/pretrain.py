"""Masked-language pretraining: our loop beside the transformers Trainer, same work, same machine.

    python -m benchmarks.pretrain --model mini --dropout 0.0 --steps 12
    python -m benchmarks.pretrain --model mini --lengths natural

Same text, vocabulary, rows, batch, 15 % 80/10/10, AdamW, clip 1.0, linear schedule and dropout on
all sides. The Trainer runs three ways: `default` (float32, as it comes), `bf16` (bf16=True), and
`tuned`: everything its user could set (allocator, eager attention, fused AdamW, and bf16 where
the machine has matrix units for it). Each side is a process of its own, because allocator settings
stay with a process, and they take turns step by step: a noisy minute of a shared machine falls on
all of them. A ratio is the median over the rounds of the two steps' ratio; memory is the process's
peak.

`natural` feeds documents as long as they are: the Trainer pads each batch to its longest row, we
pack. Only real tokens count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, LENGTH = 30_522, 128
SHAPES = {
    "mini": {
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
    },
    "small": {
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
    },
    "base": {
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}
BATCH = {"mini": 64, "small": 32, "base": 16}
PAD, CLS, SEP, MASK = 0, 2, 3, 4
SPECIAL = (0, 1, 2, 3, 4)
TRAINER = ("default", "bf16", "tuned")
TUNABLES = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=2147483647:glibc.malloc.top_pad=268435456"
)


# ---------------------------------------------------------------------------- the same text
def documents(count: int, natural: bool) -> list[np.ndarray]:
    """Token ids of `count` documents, framed. Ids follow a Zipf law over the vocabulary, because
    the work does not depend on which words they are; lengths are log-normal (mean 46) or always
    full."""
    generator = np.random.default_rng(0)
    if natural:
        drawn = np.exp(generator.normal(3.55, 0.75, count)).astype(int)
        lengths = np.clip(drawn, 4, LENGTH - 2)
    else:
        lengths = np.full(count, LENGTH - 2)
    ids = 5 + np.minimum(generator.zipf(1.2, int(lengths.sum())), VOCABULARY - 6)
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    return [np.concatenate([[CLS], p, [SEP]]).astype(np.int64) for p in parts]


# ---------------------------------------------------------------------------- one worker each
class Turn:
    """A worker's side of taking turns: it waits for a line, does one step, answers with a line."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.steps = 0

    def begin(self) -> None:
        if not sys.stdin.readline():
            raise SystemExit(0)
        self.started = time.perf_counter()

    def end(self) -> None:
        import torch

        from maskwright.train.machine import peak_memory

        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - self.started
        memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_memory()
        answer = {"seconds": seconds, "tokens": self.tokens[self.steps], "peak_bytes": memory}
        print(json.dumps(answer), flush=True)
        self.steps += 1
        self.begin()


def trainer_worker(a: argparse.Namespace) -> None:
    import torch
    import transformers
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    transformers.logging.set_verbosity_error()
    config = BertConfig(
        vocab_size=VOCABULARY,
        **SHAPES[a.model],
        hidden_dropout_prob=a.dropout,
        attention_probs_dropout_prob=a.dropout,
    )
    tuned = a.side == "tuned"
    config._attn_implementation = "eager" if tuned and not torch.cuda.is_available() else "sdpa"
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    rows = [torch.from_numpy(d) for d in documents((a.steps + 1) * a.batch, a.lengths == "natural")]
    narrow = a.side == "bf16" or (tuned and a.matrix_units)
    turn = Turn()

    class Collator:
        """What transformers' masked-language collator does, without a tokenizer object."""

        def __call__(self, examples: list[Any]) -> dict[str, Any]:
            examples = [e["input_ids"] for e in examples]
            width = max(len(e) for e in examples)
            ids = torch.full((len(examples), width), PAD)
            for i, e in enumerate(examples):
                ids[i, : len(e)] = e
            attention = (ids != PAD).long()
            labels = ids.clone()
            special = ids < len(SPECIAL)
            chosen = torch.bernoulli(
                torch.full(labels.shape, 0.15).masked_fill(special, 0.0)
            ).bool()
            labels[~chosen] = -100
            masked = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & chosen
            inputs = ids.masked_fill(masked, MASK)
            other = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & chosen & ~masked
            inputs[other] = torch.randint(VOCABULARY, labels.shape)[other]
            turn.tokens.append(int(attention.sum()))
            return {"input_ids": inputs, "attention_mask": attention, "labels": labels}

    class Clock(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            turn.end()

    arguments = TrainingArguments(
        output_dir=a.folder,
        per_device_train_batch_size=a.batch,
        max_steps=a.steps,
        learning_rate=1e-4,
        weight_decay=0.01,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        bf16=narrow,
        use_cpu=not torch.cuda.is_available(),
        optim="adamw_torch_fused" if tuned else TrainingArguments(output_dir=a.folder).optim,
        save_strategy="no",
        report_to=[],
        logging_steps=10**9,
        disable_tqdm=True,
        seed=0,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": r} for r in rows],
        data_collator=Collator(),
        callbacks=[Clock()],
    )
    turn.begin()
    trainer.train()


def our_worker(a: argparse.Namespace) -> None:
    import torch

    from benchmarks.rows import FixedRows, packed
    from maskwright.data.loader import Loader
    from maskwright.families.family import family
    from maskwright.nn.initialise import build
    from maskwright.objectives.masked import Masked, Options
    from maskwright.objectives.objective import Vocabulary
    from maskwright.train import loop, machine
    from maskwright.train.optimizer import AdamW, AdamWState
    from maskwright.train.parameters import Parameters
    from maskwright.train.schedule import Budget, Schedule
    from maskwright.train.state import TrainState

    chosen = machine.choose(a.precision)
    torch.manual_seed(0)
    point = family("bert").point(
        {
            "vocab_size": VOCABULARY,
            **SHAPES[a.model],
            "hidden_dropout_prob": a.dropout,
            "attention_probs_dropout_prob": a.dropout,
            "architectures": ["BertForMaskedLM"],
        }
    )
    network = build(point, torch.Generator().manual_seed(0)).to(chosen.device)
    objective = Masked(network, Options(), Vocabulary(size=VOCABULARY, mask=MASK, special=SPECIAL))
    natural = a.lengths == "natural"
    parts = documents((a.steps + 1) * a.batch * (4 if natural else 1), natural)
    source: FixedRows = packed(parts, LENGTH)
    loader = Loader(source, a.batch, 0)
    steps = min(a.steps, len(source) // a.batch)
    optimizer = AdamWState(Parameters(objective, chosen.compute), AdamW(learning_rate=1e-4))
    machine.keep_memory()
    plan = loop.Plan(
        seed=0,
        microbatches=1,
        budget=Budget(steps=steps),
        schedule=Schedule(kind="linear"),
        device=chosen.device,
    )
    turn = Turn()

    def batches(step: int, number: int) -> Any:
        indices, epochs = loader.batch(step)
        rows = loader.rows_of(indices, epochs)
        turn.tokens.append(int((rows.documents != 0).sum()))
        return objective.corrupt(rows, epochs, 0)

    class Clock:
        def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
            turn.end()

        def at_end(self, state: TrainState) -> None:
            pass

    turn.begin()
    loop.train(objective, batches, optimizer, plan, TrainState(), hooks=[Clock()])


# ---------------------------------------------------------------------------- the comparison
WARM_UP = 2


class Side:
    """The parent's end of one worker."""

    def __init__(self, a: argparse.Namespace, name: str, units: bool) -> None:
        environment = dict(os.environ)
        if name == "tuned":
            environment |= {"GLIBC_TUNABLES": TUNABLES, "THP_MEM_ALLOC_ENABLE": "1"}
        options = {
            "side": name,
            "model": a.model,
            "dropout": a.dropout,
            "lengths": a.lengths,
            "steps": a.steps,
            "batch": a.batch,
            "precision": a.precision,
        }
        said = [f"--{key}={value}" for key, value in options.items()]
        command = [sys.executable, "-m", "benchmarks.pretrain", *said]
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            command + ["--matrix-units"] * units,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.turns: list[dict[str, Any]] = []

    def step(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):
            line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise SystemExit(f"{self.name} failed:\n{self.errors.read()[-3000:]}")
        self.turns.append(json.loads(line))

    def rates(self) -> list[float]:
        """Tokens per second of each step that counts."""
        return [t["tokens"] / t["seconds"] for t in self.turns[WARM_UP:]]

    def figures(self) -> dict[str, float]:
        return {
            "tokens_per_second": statistics.median(self.rates()),
            "seconds": statistics.median(t["seconds"] for t in self.turns[WARM_UP:]),
            "best_tokens_per_second": max(self.rates()),
            "peak_bytes": self.turns[-1]["peak_bytes"],
        }

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()


def compare(a: argparse.Namespace) -> dict[str, Any]:
    """All sides in turn, step by step; medians over the steps after the warm-up."""
    from maskwright.train import machine

    units = machine.matrix_units("cuda" if a.cuda else "cpu")
    sides = [Side(a, name, bool(units)) for name in ("ours", *(s for s in TRAINER if s in a.sides))]
    try:
        for number in range(a.steps):
            for side in sides:
                side.step()
            said = "  ".join(f"{s.name} {s.turns[-1]['seconds'] * 1e3:,.0f} ms" for s in sides)
            print(f"  step {number + 1}: {said}", file=sys.stderr)
    finally:
        for side in sides:
            side.close()
    ours = sides[0].rates()
    paired = {s.name: [o / t for o, t in zip(ours, s.rates(), strict=True)] for s in sides[1:]}
    return {
        "model": a.model,
        "batch": a.batch,
        "length": LENGTH,
        "dropout": a.dropout,
        "lengths": a.lengths,
        "matrix_units": units or "none",
        "precision": machine.choose(a.precision).name,
        "steps": len(ours),
        "sides": {s.name: s.figures() for s in sides},
        "ratios": {name: statistics.median(r) for name, r in paired.items()},
        "quartiles": {name: np.percentile(r, [25, 75]).tolist() for name, r in paired.items()},
    }


def table(result: dict[str, Any]) -> str:
    """The result as a small Markdown table."""
    head = (
        f"BERT-{result['model']}, batch {result['batch']} x {result['length']}, dropout "
        f"{result['dropout']}, lengths {result['lengths']}, matrix units: "
        f"{result['matrix_units']}, "
        f"ours in {result['precision']}, medians of {result['steps']} steps in turn"
    )
    lines = [
        head,
        "",
        "| side | tokens/s | best | step | peak memory | ours is |",
        "|---|---|---|---|---|---|",
    ]
    for side, m in result["sides"].items():
        ratio = ""
        if side in result["ratios"]:
            low, high = result["quartiles"][side]
            ratio = f"{result['ratios'][side]:.2f}x ({low:.2f} to {high:.2f})"
        lines.append(
            f"| {side} | {m['tokens_per_second']:,.0f} | {m['best_tokens_per_second']:,.0f} | "
            f"{m['seconds'] * 1e3:,.0f} ms | "
            f"{m['peak_bytes'] / 2**20:,.0f} MiB | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--model", choices=SHAPES, default="mini")
    read.add_argument("--dropout", type=float, default=0.0)
    read.add_argument("--lengths", choices=("full", "natural"), default="full")
    read.add_argument("--steps", type=int, default=14)
    read.add_argument("--batch", type=int, default=0)
    read.add_argument("--sides", nargs="*", default=list(TRAINER))
    read.add_argument("--precision", default="auto")
    read.add_argument("--json", type=Path)
    read.add_argument("--side", help=argparse.SUPPRESS)
    read.add_argument("--matrix-units", action="store_true", help=argparse.SUPPRESS)
    a = read.parse_args()
    a.batch = a.batch or BATCH[a.model]
    import torch

    a.cuda = torch.cuda.is_available()
    if a.side:
        with tempfile.TemporaryDirectory() as a.folder:
            (our_worker if a.side == "ours" else trainer_worker)(a)
        return
    result = compare(a)
    print(table(result))
    if a.json:
        a.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
