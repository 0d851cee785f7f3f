"""Several heads, or adapters, on one backbone beside as many models, in time and in memory.

    python -m benchmarks.heads                       # BERT-base's shape, 7 of each
    python -m benchmarks.heads --quick               # a small shape, seconds
    python -m benchmarks.heads --rounds 9 --threads 2 --json heads.json

One process answers the same texts by turns: one head alone; all heads read together
(`model/inference/together.py`); all on a network of their own each. The same for adapters of LoRA,
which a network of its own has folded in. A ratio is the median over the rounds of the ratio to one
head alone. Memory is what the process has more when a side is made and has answered once. Weights
are random; what is compared is checked to be equal.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.base import catalogue
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.families.base.family import family
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.scores import scores
from maskwright.model.inference.together import ScoreRequest, scores_of_all
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options

BASE = {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072}
QUICK = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 4, "intermediate_size": 512}
VOCABULARY = Vocabulary(size=1000, mask=4, special=(0, 1, 2, 3, 4))


def network_of(shape: dict[str, int], seed: int) -> Transformer:
    keys = {
        **shape,
        "num_attention_heads": shape["hidden_size"] // 64,
        "architectures": ["BertForSequenceClassification"],
        "num_labels": 3,
        "id2label": {"0": "a", "1": "b", "2": "c"},
    }
    return build(family("bert").config(keys), torch.Generator().manual_seed(seed)).eval()


def head_of(base: Transformer, seed: int) -> Transformer:
    """The same parameters below a head of its own."""
    made = copy.deepcopy(base, {id(p): p for p in base.parameters()})
    draw = torch.Generator().manual_seed(seed)
    for parameter in [*made.heads.parameters()]:
        path = next(n for n, p in made.named_parameters() if p is parameter)
        owner, _, name = path.rpartition(".")
        fresh = torch.nn.Parameter(torch.randn(parameter.shape, generator=draw) * 0.1)
        made.get_submodule(owner)._parameters[name] = fresh
    return made


@torch.no_grad()
def adapt(network: Transformer, seed: int) -> Any:
    settings = catalogue.load("adapters", "lora").SETTINGS(rank=8, alpha=16.0)
    adapter = attach(settings, network, torch.Generator().manual_seed(seed))
    draw = torch.Generator().manual_seed(seed)
    for parameter in adapter.parameters():
        parameter += 0.02 * torch.randn(parameter.shape, generator=draw)
    return adapter


def resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def sides(a: argparse.Namespace) -> dict[str, tuple[Callable[[], Any], int]]:
    """What is timed, and the bytes that the process has more with it."""
    shape, draw = QUICK if a.quick else BASE, np.random.default_rng(0)
    lengths = draw.integers(8, 72, a.texts)
    rows = framed([draw.integers(5, 900, size=n).tolist() for n in lengths])
    examples = EncodedExamples(rows, np.zeros(a.texts, np.int64))

    def request(network: Prepared) -> ScoreRequest:
        asked: Any = network
        objective = Supervised(asked, Options(), VOCABULARY).eval()
        return ScoreRequest(objective, examples, Collation(0, last=False))

    def each(requests: list[ScoreRequest]) -> Callable[[], Any]:
        return lambda: [scores(r.objective, r.examples, r.collation) for r in requests]

    made: dict[str, tuple[Callable[[], Any], int]] = {}
    held: list[Any] = []

    def add(name: str, requests: Callable[[], list[ScoreRequest]], together: bool) -> None:
        before, some = resident(), requests()
        run = (lambda: scores_of_all(some)) if together else each(some)
        run()
        made[name] = run, resident() - before
        held.append(some)

    bases: list[Transformer] = []

    def one() -> list[ScoreRequest]:
        bases.append(network_of(shape, 0))
        body = prepare(bases[0], precision="float32", give_up=True)
        held.append(body)
        return [request(body)]

    def heads() -> list[ScoreRequest]:
        body = held[0]
        return [
            request(prepare(head_of(bases[0], n), precision="float32", like=body))
            for n in range(a.count)
        ]

    def adapters() -> list[ScoreRequest]:
        body, found = held[0], []
        for n in range(a.count):
            with body.products.whole(bases[0]):  # its weights, which were freed, meanwhile
                network = head_of(bases[0], n)
                adapt(network, n)
            found.append(request(prepare(network.eval(), precision="float32", like=body)))
        return found

    def models(folded: bool) -> Callable[[], list[ScoreRequest]]:
        def make() -> list[ScoreRequest]:
            found = []
            for n in range(a.count):
                network = copy.deepcopy(network_of(shape, 0))
                network.heads.load_state_dict(head_of(network_of(shape, 0), n).heads.state_dict())
                if folded:
                    adapt(network, n).merge()
                found.append(request(prepare(network, precision="float32", give_up=True)))
            return found

        return make

    add("one head", one, together=False)
    add(f"{a.count} heads, one backbone", heads, together=True)
    add(f"{a.count} models", models(False), together=False)
    add(f"{a.count} LoRA adapters, one backbone", adapters, together=True)
    add(f"{a.count} models with LoRA folded in", models(True), together=False)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=7, help="heads, and adapters")
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a small shape")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    made = sides(a)
    names = list(made)
    answers = {name: run() for name, (run, _) in made.items()}
    for one, other in ((names[1], names[2]), (names[3], names[4])):
        gap = max(
            float(np.abs(x - y).max()) for x, y in zip(answers[one], answers[other], strict=True)
        )
        print(f"{one} beside {other}: answers differ by {gap:.1e} at most")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(a.rounds):
        for name, (run, _) in made.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    rows = []
    for name, (_, extra) in made.items():
        ratios = [t / one for t, one in zip(times[name], times[names[0]], strict=True)]
        rows.append(
            {
                "side": name,
                "seconds": statistics.median(times[name]),
                "times one head": statistics.median(ratios),
                "bytes more": extra,
            }
        )
        print(
            f"{name:36s} {rows[-1]['seconds']:8.3f} s  {rows[-1]['times one head']:6.2f} x"
            f"  {extra / 2**20:8.0f} MiB more"
        )
    if a.json is not None:
        a.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
