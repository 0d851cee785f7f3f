"""Time and peak memory of an encoder over the length of a text: a window with global tokens
(Longformer) or blocks (BigBird), full attention of the same size, and the same of transformers.

    python -m benchmarks.long_texts --width 256 --layers 4 --lengths 512 1024 2048 4096 8192 16384
    python -m benchmarks.long_texts --width 768 --layers 12 --lengths 4096 --repeats 1
    python -m benchmarks.long_texts --family big_bird --lengths 512 1024 2048 4096

Each case is a process of its own, one text, the first token global, float32, one thread. Seconds
are the least of the repeats, in processor time, because the machine is shared; memory is the
process's peak less its peak before the first pass.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SIDES = ("ours", "full", "transformers")


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def settings(name: str, width: int, layers: int, length: int, window: int) -> dict[str, Any]:
    keys = {
        "vocab_size": 1000,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    if name == "big_bird":
        return {**keys, "max_position_embeddings": length}
    own = {"type_vocab_size": 1, "pad_token_id": 1, "attention_window": window}
    return {**keys, **own, "max_position_embeddings": length + 2}


def runner(
    side: str, name: str, keys: dict[str, Any], length: int, train: bool
) -> Callable[[], object]:
    """One pass over a text that fills the model."""
    import torch

    torch.set_num_threads(1)
    tokens, options = torch.randint(3, 1000, (1, length)), {}
    if side == "transformers":
        import transformers

        config = transformers.CONFIG_MAPPING[name](**keys)
        model = transformers.AutoModel.from_config(config).train(train)
        if name == "longformer":
            marked = torch.zeros_like(tokens)
            marked[:, 0] = 1
            options = {"global_attention_mask": marked}

        def states() -> torch.Tensor:
            return model(tokens, **options).last_hidden_state
    else:
        from maskwright.model.families.base.family import family
        from maskwright.model.inference.prepared import prepare
        from maskwright.model.nn.initialise import build

        if side == "full" and name == "longformer":
            del keys["attention_window"]
            config = family("roberta").config(keys)
        else:
            further = {"global_attention": "first"} if name == "longformer" else {}
            further |= {"attention_type": "original_full"} if side == "full" else {}
            config = family(name).config({**keys, **further})
        network = build(config)
        ready = network.train() if train else prepare(network, precision="float32", give_up=True)

        def states() -> torch.Tensor:
            return ready.encode(tokens)

    if train:
        return lambda: states().square().mean().backward()

    def read() -> None:
        with torch.no_grad():
            states()

    return read


def measure(a: argparse.Namespace) -> None:
    keys = settings(a.family, a.width, a.layers, a.lengths[0], a.window)
    run = runner(a.side, a.family, keys, a.lengths[0], a.train)
    before, seconds = megabytes(), []
    for _ in range(a.repeats):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    print(json.dumps({"seconds": min(seconds), "mib": megabytes() - before}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=("longformer", "big_bird"), default="longformer")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--side", choices=SIDES, default=None)
    a = parser.parse_args()
    if a.side is not None:
        return measure(a)
    for length in a.lengths:
        cells = []
        for side in SIDES:
            words = [sys.executable, "-m", "benchmarks.long_texts", "--side", side]
            words += ["--lengths", str(length), "--repeats", str(a.repeats)]
            words += ["--family", a.family, "--width", str(a.width), "--layers", str(a.layers)]
            words += ["--window", str(a.window), *(["--train"] if a.train else [])]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            answer = subprocess.run(words, env=environment, capture_output=True, text=True)
            if answer.returncode:
                cells.append("–")
                continue
            result = json.loads(answer.stdout.splitlines()[-1])
            cells.append(f"{result['seconds']:.2f} s, {result['mib']:,.0f} MiB")
        print(f"| {length:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
