"""Threads next to busy cores, before and after they are chosen by a test: tokens a second.

    python -m benchmarks.threads [--steps 150] [--busy 0 1 2] [--data rows.csv --model FOLDER]

For each number of busy programs, each pinned to a core of its own, a pretraining of the recipe tiny
(and with --data a fine-tuning) runs as before (one spinning thread for each core), with threads
that sleep while they wait, with one thread, and by its own choice.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MODES: dict[str, tuple[dict[str, str], list[str]]] = {
    "before": ({"OMP_WAIT_POLICY": "", "GOMP_SPINCOUNT": "300000"}, ["--threads", str(CORES)]),
    "asleep": ({"OMP_WAIT_POLICY": "PASSIVE"}, ["--threads", str(CORES)]),
    "one thread": ({}, ["--threads", "1"]),
    "chosen": ({}, []),
}
COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def _command(words: list[str], mode: str) -> tuple[float, str]:
    """Run a command in a mode; return its seconds and what it prints."""
    variables, options = MODES[mode]
    environment = {name: value for name, value in os.environ.items() if name not in COUNTS}
    environment |= {name: value for name, value in variables.items() if value}
    command = [sys.executable, "-m", "maskwright.cli.main", *words, *options]
    start = time.perf_counter()
    result = subprocess.run(
        command, env=environment, check=True, capture_output=True, encoding="utf-8"
    )
    return time.perf_counter() - start, result.stdout + result.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--text", nargs="*", default=[])
    parser.add_argument("--data", help="labelled rows for a fine-tuning of --model")
    parser.add_argument("--model")
    a = parser.parse_args()
    text = ["--text", *a.text] if a.text else []
    for busy in a.busy:
        loops = [subprocess.Popen([sys.executable, "-c", _loop(n)]) for n in range(busy)]
        try:
            for mode in MODES:
                with tempfile.TemporaryDirectory() as folder:
                    words = ["pretrain", "tiny", "--steps", str(a.steps), "--out", f"{folder}/run"]
                    _, printed = _command([*words, *text], mode)
                    last = (Path(folder) / "run" / "timings.jsonl").read_text().splitlines()[-1]
                    run = json.loads((Path(folder) / "run" / "run.json").read_text())
                    speed = a.steps * 32 * 64 / json.loads(last)["seconds"]
                    line = f"{busy} busy, pretrain, {mode}: {speed:,.0f} tokens/s, "
                    line += f"{run['machine']['threads']} threads, {run['waiting_threads']}"
                    if a.data:
                        words = ["finetune", a.model, "--data", a.data, "--method", "full"]
                        words += ["--seeds", "1", "--epochs", "1", "--out", f"{folder}/result"]
                        seconds, _ = _command(words, mode)
                        line += f"; finetune {seconds:.0f} s"
                    print(line, *re.findall("note: other processes.*", printed), flush=True)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()


def _loop(number: int) -> str:
    core = sorted(os.sched_getaffinity(0))[number % CORES]
    return f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"


if __name__ == "__main__":
    main()
