"""Every family's native objective: our loop beside the transformers Trainer, on the same batches.

    python -m benchmarks.families gpt2 t5 --dropout 0.1 --steps 8 --sides bf16
    python -m benchmarks.families electra          # ours beside our own masked BERT

All sides start from the same weights and get the same token ids with the same holes and targets,
because every batch is made by our corruption and the Trainer's collator only puts it into the
library's form (which costs it less than the library's own collators). The first losses must
therefore agree, and are compared. Shapes are 4 layers (4 + 4), width 256, 4 heads, 8,192 positions
per step; `loops.py` says what the sides are, `turns.py` how they are compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import loops
from benchmarks.turns import Side, Turn, alternate, table

VOCABULARY, POSITIONS, SENTENCE = 30_522, 8192, 16
PAD, BEGIN, END, MASK, SENTINELS = 0, 2, 3, 4, 100
IDS = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}
FIRST, LAST = 5, VOCABULARY - SENTINELS - 1  # ids of ordinary text

ENCODER = {
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "max_position_embeddings": 512,
}
T5 = {"d_model": 256, "d_kv": 64, "num_layers": 4, "num_heads": 4}


@dataclass(frozen=True)
class Work:
    """What one family trains on.

    Attributes:
        keys: of config.json, without dropout rates; `rates` are those that `--dropout` sets.
        length: positions that the encoder, or the only stack, reads.
        framed: rows are texts between BEGIN and END; else runs of plain tokens.
        tuned: keys of config.json that make the library's model faster.
        rivals: what it is compared with; the Trainer, or our own work of another name.
    """

    family: str
    architecture: str
    objective: str
    keys: dict[str, Any]
    rates: tuple[str, ...]
    length: int = 128
    framed: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    tuned: dict[str, Any] = field(default_factory=dict)
    rivals: tuple[str, ...] = loops.TRAINER

    @property
    def config(self) -> dict[str, Any]:
        return {"vocab_size": VOCABULARY, "architectures": [self.architecture], **IDS, **self.keys}


HIDDEN = ("hidden_dropout_prob", "attention_probs_dropout_prob")
BERT = Work("bert", "BertForMaskedLM", "masked", ENCODER, HIDDEN)
MODERNBERT = Work(
    "modernbert",
    "ModernBertForMaskedLM",
    "masked",
    {**ENCODER, "intermediate_size": 768, "cls_token_id": BEGIN, "sep_token_id": END},
    ("attention_dropout", "embedding_dropout", "mlp_dropout"),
    options={"rate": 0.3},
    tuned={"sparse_prediction": True},
)
WORKS = {
    "bert": BERT,
    "roberta": replace(
        BERT,
        family="roberta",
        architecture="RobertaForMaskedLM",
        keys={**ENCODER, "max_position_embeddings": 513, "type_vocab_size": 1},
    ),
    "distilbert": Work(
        "distilbert",
        "DistilBertForMaskedLM",
        "masked",
        {"n_layers": 4, "dim": 256, "n_heads": 4, "hidden_dim": 1024},
        ("dropout", "attention_dropout"),
    ),
    "modernbert": MODERNBERT,
    "modernbert-512": replace(MODERNBERT, length=512),
    "gpt2": Work(
        "gpt2",
        "GPT2LMHeadModel",
        "causal",
        {"n_layer": 4, "n_embd": 256, "n_head": 4, "n_positions": 512},
        ("resid_pdrop", "attn_pdrop", "embd_pdrop"),
        length=256,
        framed=False,
    ),
    "t5": Work(
        "t5",
        "T5ForConditionalGeneration",
        "span-corruption",
        {**T5, "d_ff": 1024, "decoder_start_token_id": PAD},
        ("dropout_rate",),
        framed=False,
    ),
    "t5-v1.1": Work(
        "t5",
        "T5ForConditionalGeneration",
        "span-corruption",
        {
            **T5,
            "d_ff": 683,
            "decoder_start_token_id": PAD,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        ("dropout_rate",),
        framed=False,
    ),
    "bart": Work(
        "bart",
        "BartForConditionalGeneration",
        "denoising",
        {
            "d_model": 256,
            "max_position_embeddings": 512,
            "decoder_start_token_id": END,
            **{
                f"{side}_{key}": value
                for side in ("encoder", "decoder")
                for key, value in (("layers", 4), ("attention_heads", 4), ("ffn_dim", 1024))
            },
        },
        ("dropout", "attention_dropout", "activation_dropout"),
    ),
    "electra": replace(
        BERT,
        family="electra",
        architecture="ElectraForPreTraining",
        objective="replaced-token",
        keys={**ENCODER, "embedding_size": 256},
        rivals=("ours:bert",),
    ),
}


# ---------------------------------------------------------------------------- the same batches
def objective_of(work: Work, network: Any) -> Any:
    from maskwright.base import catalogue, config
    from maskwright.model.objectives.base.objective import Vocabulary

    member = catalogue.load("objectives", work.objective)
    options = config.from_plain(member.Options, work.options, "options")
    sentinels = tuple(range(VOCABULARY - 1, LAST, -1))
    vocabulary = Vocabulary(
        size=VOCABULARY,
        mask=MASK,
        special=(*range(FIRST), *sentinels),
        pad=PAD,
        begin=BEGIN,
        end=END,
        sentinels=sentinels,
    )
    return member.build(network, options, vocabulary)


def batches_of(work: Work, objective: Any, a: argparse.Namespace, turn: Turn) -> Any:
    """step -> batch; ids follow a Zipf law, because the work does not depend on which words they
    are, and a sentence begins every `SENTENCE` tokens."""
    from benchmarks.rows import FixedRows
    from maskwright.base import catalogue
    from maskwright.text.store.loader import Loader
    from maskwright.text.store.rows import Rows

    member = catalogue.load("objectives", work.objective)
    width = work.length + (member.ROWS == "stream")
    if member.ROWS == "blocks":
        width = member.text_length(objective.options, width)
    tokens = np.random.default_rng(0).zipf(1.2, ((a.steps + 1) * a.batch, width))
    tokens = np.minimum(FIRST - 1 + tokens, LAST)
    if work.framed:
        tokens[:, 0], tokens[:, -1] = BEGIN, END
    place = np.broadcast_to(np.arange(width), tokens.shape)
    special = (tokens == BEGIN) | (tokens == END)
    rows = Rows(
        tokens=tokens,
        positions=place,
        documents=np.ones(tokens.shape, dtype=np.int32),
        special=special,
        starts_word=~special,
        ids=np.arange(len(tokens)),
        starts_sentence=place % SENTENCE == 1,
    )
    loader = Loader(FixedRows(rows), a.batch, 0)

    def batch(step: int, number: int = 0) -> Any:
        indices, epochs = loader.take(step * a.batch, a.batch)
        made = objective.corrupt(loader.rows_of(indices, epochs), epochs, 0)
        turn.tokens.append(
            read(made.tokens, made.documents) + read(made.decoder_tokens, made.decoder_documents)
        )
        return made

    return batch


def read(tokens: Any, documents: Any) -> int:
    """How many real tokens a stack reads."""
    if documents is not None:
        return int(documents.count_nonzero())
    return 0 if tokens is None else tokens.numel()


def in_their_form(batch: Any, causal: bool) -> dict[str, Any]:
    """What the library's models take. A causal one would shift its labels itself, and lose one
    target per row; it is told that they are shifted."""
    import torch

    tokens = batch.tokens
    keep = torch.ones_like(tokens) if batch.documents is None else batch.documents != 0
    width = int(keep.any(0).nonzero()[-1]) + 1  # as a collator pads: to the longest row
    wanted = tokens if batch.decoder_tokens is None else batch.decoder_tokens
    labels = torch.full_like(wanted, -100).view(-1)
    if batch.index is None:
        labels.copy_(batch.targets)
    else:
        labels[batch.index] = batch.targets
    labels = labels.view(wanted.shape)
    shifted = {"shift_labels": labels} if causal else {}
    return {
        "input_ids": tokens[:, :width],
        "attention_mask": keep[:, :width].long(),
        "labels": labels,
        **shifted,
    }


# ---------------------------------------------------------------------------- one worker each
def trainer_worker(work: Work, a: argparse.Namespace) -> None:
    import torch
    import transformers

    from maskwright.model.families.base.family import family
    from maskwright.model.nn.transformer import Transformer

    with torch.device("meta"):  # only its corruption is wanted
        network = Transformer(family(work.family).config(work.config))
    objective = objective_of(work, network)
    options = work.tuned if a.side == "tuned" else {}
    model = getattr(transformers, work.architecture).from_pretrained(
        a.model, attn_implementation=loops.attention_of(a.side), dtype=torch.float32, **options
    )
    turn = Turn()
    batch = batches_of(work, objective, a, turn)
    made = iter(range(a.steps + 1))

    def collate(examples: list[int]) -> dict[str, Any]:
        return in_their_form(batch(next(made)), work.objective == "causal")

    loops.trainer(model, range((a.steps + 1) * a.batch), collate, turn, a)


def our_worker(work: Work, a: argparse.Namespace) -> None:
    from maskwright.model.checkpoint import pretrained
    from maskwright.model.device import machine

    chosen = machine.choose(a.precision)
    network = pretrained.load(a.model).model.to(chosen.device)
    objective = objective_of(work, network).to(chosen.device)
    turn = Turn()
    loops.ours(objective, batches_of(work, objective, a, turn), chosen, turn, a)


# ---------------------------------------------------------------------------- the comparison
def save(work: Work, folder: Path, dropout: float | None) -> Any:
    """A model folder that both libraries read, and the network in it."""
    import torch

    from maskwright.model.checkpoint import pretrained
    from maskwright.model.checkpoint.layout import About
    from maskwright.model.families.base.family import family
    from maskwright.model.nn.initialise import build

    rates = {} if dropout is None else dict.fromkeys(work.rates, dropout)
    network = build(
        family(work.family).config({**work.config, **rates}), torch.Generator().manual_seed(0)
    )
    pretrained.save(network, None, folder, About(family=work.family))
    path = folder / "config.json"
    ids = {key: value for key, value in work.config.items() if key.endswith("_id")}
    path.write_text(json.dumps({**json.loads(path.read_text()), **ids}))
    (folder / "MANIFEST.json").unlink()
    return network


def operations(work: Work, objective: Any) -> float:
    """FLOPs per position of a training step over encoders alone, by model/device/step_cost.py."""
    from maskwright.model.device.step_cost import cost

    masked = getattr(objective, "masked", objective)
    share = masked.options.rate * (work.length - 2) / work.length
    total = cost(masked.product, work.length).training("encoder", share)
    if masked is not objective:
        total += cost(objective.product, work.length).training("encoder", 0.0)
    return total


def compare(name: str, a: argparse.Namespace) -> dict[str, Any]:
    work = WORKS[name]
    batch = a.batch or POSITIONS // work.length
    rivals = [r for r in work.rivals if r in a.sides or r not in loops.TRAINER]
    sides, flops = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for side in ("ours", *rivals):
            other = side.partition(":")[2] or name
            place = Path(folder) / other
            if not place.exists():
                network = save(WORKS[other], place, a.dropout)
                if work.rivals != loops.TRAINER:
                    flops[side] = operations(WORKS[other], objective_of(WORKS[other], network))
            options = {
                "work": other,
                "model": place,
                "steps": a.steps,
                "batch": batch,
                "precision": a.precision,
            }
            sides.append(Side(side, "benchmarks.families", options))
        result = alternate(sides, a.steps)
    first = [m["first_loss"] for m in result["sides"].values()]
    if not flops and max(first) > 1.01 * min(first):
        raise SystemExit(f"not the same work: the first losses are {first}")
    return {
        "work": name,
        "batch": batch,
        "length": work.length,
        "dropout": "the family's" if a.dropout is None else a.dropout,
        **result,
        **({"flops_per_position": flops} if flops else {}),
    }


def head(result: dict[str, Any]) -> str:
    said = (
        f"{result['work']}, batch {result['batch']} x {result['length']}, dropout "
        f"{result['dropout']}, medians of {result['steps']} steps in turn"
    )
    flops = result.get("flops_per_position", {})
    if not flops:
        return said
    counted = ", ".join(f"{side} {count / 1e6:.1f} MFLOP" for side, count in flops.items())
    ours, theirs = flops.values()
    return f"{said}; per position {counted}, so {theirs / ours:.2f}x would be expected"


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("works", nargs="*", metavar="work", default=[], help=", ".join(WORKS))
    read.add_argument("--dropout", type=float, help="all rates; without it, the family's defaults")
    read.add_argument("--steps", type=int, default=8)
    read.add_argument("--batch", type=int, default=0)
    read.add_argument("--sides", nargs="*", default=list(loops.TRAINER))
    read.add_argument("--precision", default="auto")
    read.add_argument("--json", type=Path, help="a folder for the figures")
    for hidden in ("--side", "--work", "--model"):
        read.add_argument(hidden, help=argparse.SUPPRESS)
    a = read.parse_args()
    if a.side:
        worker = our_worker if a.side.startswith("ours") else trainer_worker
        with tempfile.TemporaryDirectory() as a.folder:
            worker(WORKS[a.work], a)
        return
    for name in a.works or WORKS:
        result = compare(name, a)
        print(table(head(result), result), "\n", flush=True)
        if a.json:
            a.json.mkdir(parents=True, exist_ok=True)
            (a.json / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
