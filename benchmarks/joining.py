"""Rows that are written together, and rows that join while others write: tokens per second.

    python -m benchmarks.joining                     # the shape of GPT-2 small, 8 rows of 64 tokens
    python -m benchmarks.joining --quick             # a mini model
    python -m benchmarks.joining --rounds 9 --threads 2

By turns in one process: `generate` of all rows at once; `Generation` with all rows there at the
beginning; `Generation` with a row that joins every few steps; `generate` of each row after the
other. A ratio is the median over the rounds of the ratio of tokens per second to the first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from maskwright.model.families.base.family import family
from maskwright.model.inference.generation import Generation, Prompt, generate
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.prepared import prepare
from maskwright.model.nn.initialise import build

SMALL = {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
MINI = {"vocab_size": 2000, "n_embd": 128, "n_layer": 4, "n_head": 2, "n_positions": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--every", type=int, default=4, help="steps between two rows that join")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a mini model")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    keys = {**(MINI if a.quick else SMALL), "architectures": ["GPT2LMHeadModel"]}
    network = build(family("gpt2").config(keys), torch.Generator().manual_seed(0))
    ready = prepare(network, precision="float32", give_up=True)
    draw = np.random.default_rng(0)
    prompts = [draw.integers(5, 1500, size=n).tolist() for n in draw.integers(8, 40, a.rows)]

    settings = GenerationSettings(tokens=a.tokens, temperature=0.0)

    def joining(every: int) -> Callable[[], list[list[int]]]:
        def run() -> list[list[int]]:
            writing, left = Generation(ready), list(prompts)
            found: list[list[int]] = []
            steps = 0
            while left or writing.rows:
                while left and (not every or steps >= every * len(found)):
                    writing.add(Prompt(ids=left.pop(0), settings=settings))
                    found.append([])
                for piece in writing.step():
                    assert piece.id is not None
                    found[piece.row].append(piece.id)
                steps += 1
            return found

        return run

    made: dict[str, Callable[[], list[list[int]]]] = {
        "generate, all at once": lambda: generate(ready, prompts, settings),
        "Generation, all at once": joining(0),
        f"Generation, one more every {a.every} steps": joining(a.every),
        "generate, one after the other": lambda: [
            generate(ready, [prompt], settings)[0] for prompt in prompts
        ],
    }
    answers = {name: run() for name, run in made.items()}
    first = next(iter(answers.values()))
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(a.rounds):
        for name, run in made.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    base = times[next(iter(made))]
    for name in made:
        ratio = statistics.median(b / t for b, t in zip(base, times[name], strict=True))
        speed = a.rows * a.tokens / statistics.median(times[name])
        same = "the same ids" if answers[name] == first else "OTHER IDS"
        print(f"{name:36s} {speed:8.0f} tokens/s  {ratio:5.2f} x  {same}")


if __name__ == "__main__":
    main()
