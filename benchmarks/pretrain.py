"""Masked-language pretraining: our loop beside the transformers Trainer, same work, same machine.

    python -m benchmarks.pretrain --model mini --dropout 0.0 --steps 12
    python -m benchmarks.pretrain --model mini --lengths natural

Same text, vocabulary, rows, batch, 15 % 80/10/10, optimizer, schedule and dropout on all sides;
`loops.py` says what they are, `turns.py` how they are compared.

`natural` feeds documents as long as they are: the Trainer pads each batch to its longest row, we
pack. Only real tokens count.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import loops
from benchmarks.turns import Side, Turn, alternate, table

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
def trainer_worker(a: argparse.Namespace) -> None:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        **SHAPES[a.model],
        hidden_dropout_prob=a.dropout,
        attention_probs_dropout_prob=a.dropout,
    )
    config._attn_implementation = loops.attention_of(a.side) or "sdpa"
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    rows = [torch.from_numpy(d) for d in documents((a.steps + 1) * a.batch, a.lengths == "natural")]
    turn = Turn()

    def collate(examples: list[Any]) -> dict[str, Any]:
        """What transformers' masked-language collator does, without a tokenizer object."""
        width = max(len(e) for e in examples)
        ids = torch.full((len(examples), width), PAD)
        for i, e in enumerate(examples):
            ids[i, : len(e)] = e
        attention = (ids != PAD).long()
        labels = ids.clone()
        special = ids < len(SPECIAL)
        chosen = torch.bernoulli(torch.full(labels.shape, 0.15).masked_fill(special, 0.0)).bool()
        labels[~chosen] = -100
        masked = torch.bernoulli(torch.full(labels.shape, 0.8)).bool() & chosen
        inputs = ids.masked_fill(masked, MASK)
        other = torch.bernoulli(torch.full(labels.shape, 0.5)).bool() & chosen & ~masked
        inputs[other] = torch.randint(VOCABULARY, labels.shape)[other]
        turn.tokens.append(int(attention.sum()))
        return {"input_ids": inputs, "attention_mask": attention, "labels": labels}

    loops.trainer(model, rows, collate, turn, a)


def our_worker(a: argparse.Namespace, turn: Turn | None = None) -> Any:
    """Trains; returns the objective."""
    import torch

    from benchmarks.rows import FixedRows, packed
    from maskwright.model.device import machine
    from maskwright.model.families.base.family import family
    from maskwright.model.nn.initialise import build
    from maskwright.model.objectives.base.objective import Vocabulary
    from maskwright.model.objectives.masked import Options
    from maskwright.model.objectives.modules.masked import Masked
    from maskwright.text.store.loader import Loader

    chosen = machine.choose(a.precision)
    torch.manual_seed(0)
    config = family("bert").config(
        {
            "vocab_size": VOCABULARY,
            **SHAPES[a.model],
            "hidden_dropout_prob": a.dropout,
            "attention_probs_dropout_prob": a.dropout,
            "architectures": ["BertForMaskedLM"],
        }
    )
    network = build(config, torch.Generator().manual_seed(0)).to(chosen.device)
    objective = Masked(network, Options(), Vocabulary(size=VOCABULARY, mask=MASK, special=SPECIAL))
    natural = a.lengths == "natural"
    parts = documents((a.steps + 1) * a.batch * (4 if natural else 1), natural)
    source: FixedRows = packed(parts, LENGTH)
    loader = Loader(source, a.batch, 0)
    turn = turn or Turn()

    def batches(step: int, number: int) -> Any:
        indices, epochs = loader.take(step * a.batch, a.batch)
        rows = loader.rows_of(indices, epochs)
        turn.tokens.append(int((rows.documents != 0).sum()))
        return objective.corrupt(rows, epochs, 0)

    loops.ours(objective, batches, chosen, turn, a)
    return objective


# ---------------------------------------------------------------------------- the comparison
def compare(a: argparse.Namespace) -> dict[str, Any]:
    from maskwright.model.device import machine

    names = ("model", "dropout", "lengths", "steps", "batch", "precision")
    options = {name: getattr(a, name) for name in names}
    sides = ["ours", *(side for side in loops.TRAINER if side in a.sides)]
    return {
        **{name: getattr(a, name) for name in ("model", "batch", "dropout", "lengths")},
        "length": LENGTH,
        "matrix_units": machine.matrix_units("cuda" if a.cuda else "cpu") or "none",
        "precision": machine.choose(a.precision).name,
        **alternate([Side(name, "benchmarks.pretrain", options) for name in sides], a.steps),
    }


def head(result: dict[str, Any]) -> str:
    return (
        f"BERT-{result['model']}, batch {result['batch']} x {result['length']}, dropout "
        f"{result['dropout']}, lengths {result['lengths']}, matrix units: "
        f"{result['matrix_units']}, "
        f"ours in {result['precision']}, medians of {result['steps']} steps in turn"
    )


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--model", choices=SHAPES, default="mini")
    read.add_argument("--dropout", type=float, default=0.0)
    read.add_argument("--lengths", choices=("full", "natural"), default="full")
    read.add_argument("--steps", type=int, default=14)
    read.add_argument("--batch", type=int, default=0)
    read.add_argument("--sides", nargs="*", default=list(loops.TRAINER))
    read.add_argument("--precision", default="auto")
    read.add_argument("--json", type=Path)
    read.add_argument("--side", help=argparse.SUPPRESS)
    a = read.parse_args()
    a.batch = a.batch or BATCH[a.model]
    import torch

    a.cuda = torch.cuda.is_available()
    if a.side:
        with tempfile.TemporaryDirectory() as a.folder:
            (our_worker if a.side == "ours" else trainer_worker)(a)
        return
    result = compare(a)
    print(table(head(result), result))
    if a.json:
        a.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
