"""Answering beside its peers on the CPU: classifiers and generation, the sides taking turns.

    pip install onnx onnxruntime openvino ctranslate2    # peers of this benchmark, no dependencies
    python -m benchmarks.inference                       # every work
    python -m benchmarks.inference bert-base-128 gpt2-8 --rounds 9 --threads 2 --json times.json
    python -m benchmarks.inference --quick               # small models, under two minutes

Each side is a process that reads the same folder and answers the same texts, from raw text to
labels with scores, or to written text; `turns.py` holds the parent's end, `inference_models.py`
says what is asked, `inference_sides.py` who answers. A single text is timed as the median of 16
different ones asked one after another, after one that wakes the threads. Thread budgets are equal,
and all processes are held on the same cores. The pause before every turn lets idle threads of the
side before go to sleep: they spin, and steal the cores of whoever comes next.

No peer is who answers wrongly (`inference_check.py`), or who computes in bfloat16 on a machine
without units for it: such a side has one turn, to be shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.inference_check import Verdict, judge
from benchmarks.inference_models import QUICK, WORKS, Work, asked_texts, read_texts, write_model
from benchmarks.inference_sides import sides_of, worker
from benchmarks.turns import Side
from maskwright.base import catalogue
from maskwright.ship.bench import machine_facts

WARM_UP = 1


def compare(name: str, work: Work, folder: Path, texts: list[str], a: Any) -> dict[str, Any]:
    """All sides in turn, and what was found."""
    peers = sides_of(work)
    absent = {n: catalogue.missing_packages(side.needs) for n, side in peers.items()}
    names = [n for n in peers if not absent[n]]
    shown = [n for n in names if peers[n].precision == "bfloat16" and not a.machine["matrix units"]]
    if a.quick or a.no_bf16:
        names, shown = [n for n in names if n not in shown], []
    (folder / "work.json").write_text(json.dumps(asdict(work)))
    (folder / "texts.json").write_text(json.dumps(texts))
    options = {"folder": folder, "threads": a.threads}
    sides = [Side(n, "benchmarks.inference", options) for n in names]
    take_turns(name, sides, shown, a)
    answers = {n: json.loads((folder / f"{n}.json").read_text()) for n in names}
    for n in names:
        (folder / f"{n}.json").unlink()
    verdicts, controls = judge(folder, work, texts, answers)
    ours = [turn["seconds"] for turn in sides[0].turns[WARM_UP:]]
    return {
        "work": name,
        **asdict(work),
        "rounds": a.rounds,
        "words": [len(text.split()) for text in texts],
        "sides": {s.name: figures(s, s.name in shown, ours, verdicts[s.name]) for s in sides},
        "absent": {n: packages for n, packages in absent.items() if packages},
        "controls": {n: verdict.mean for n, verdict in controls.items()},
    }


def take_turns(name: str, sides: Sequence[Side], shown: Sequence[str], a: Any) -> None:
    """The first turn is warming up, and the only one of those that are just shown."""
    try:
        for number in range(WARM_UP + a.rounds):
            taking = [side for side in sides if number < WARM_UP or side.name not in shown]
            for side in taking:
                time.sleep(a.pause)
                side.step()
            took = "  ".join(f"{s.name} {s.turns[-1]['seconds'] * 1e3:,.1f}" for s in taking)
            print(f"  {name}, turn {number + 1}, ms: {took}", file=sys.stderr)
    finally:
        for side in sides:
            side.close()


def figures(side: Side, shown: bool, ours: Sequence[float], verdict: Verdict) -> dict[str, Any]:
    """What is said of a side. `times` is of its time and ours, turn by turn."""
    turns = side.turns if shown else side.turns[WARM_UP:]
    seconds, precision = [turn["seconds"] for turn in turns], turns[0]["precision"]
    times = [theirs / own for theirs, own in zip(seconds, ours, strict=False)]
    right = verdict.passes(precision)
    return {
        "seconds": seconds,
        "calls": [turn["calls"] for turn in turns],
        "median": statistics.median(seconds),
        "times": statistics.median(times),
        "quartiles": np.percentile(times, [25, 75]).tolist(),
        "precision": precision,
        "shown": shown,
        "right": right,
        "peer": right and not shown and side.name != "ours",
        "equal": float(verdict.equal.mean()),
        "mean_gap": verdict.mean,
        "largest_gap": float(verdict.gaps.max()),
    }


def table(result: dict[str, Any]) -> str:
    """The result as a small Markdown table, and ours beside the best peers."""
    tokens, texts, words = result["tokens"], result["texts"], result["words"]
    said = f"{texts} texts at once" if texts > 1 else f"{len(words)} texts one by one"
    if tokens:
        said = f"{texts} prompt{'s' * (texts > 1)}, {tokens} new tokens each"
    lines = [
        f"{result['work']}: {said}; {statistics.mean(words):.0f} words ({min(words)} to "
        f"{max(words)}); medians of {result['rounds']} rounds in turn",
        "",
        f"| side | time |{' tokens/s |' * (tokens > 0)} of ours (middle half) | best | "
        "equal to float32 | gap, mean and largest |",
        f"|---|---|{'---|' * (tokens > 0)}---|---|---|---|",
    ]
    for name, s in result["sides"].items():
        rate = f" {tokens * texts / s['median']:,.0f} |" if tokens else ""
        note = "" if s["precision"] in name else f" {s['precision']}"
        note += "" if s["right"] else ", **wrong answers**"
        note += ", one turn: no units for it here" if s["shown"] else ""
        low, high = s["quartiles"]
        lines.append(
            f"| {name}{note} | {s['median'] * 1e3:,.1f} ms |{rate} {s['times']:.2f}x ({low:.2f} to "
            f"{high:.2f}) | {min(s['seconds']) * 1e3:,.1f} ms | {s['equal']:.1%} | "
            f"{s['mean_gap']:.1g}, {s['largest_gap']:.1g} |"
        )
    for name, needed in result["absent"].items():
        lines.append(f"| {name} | absent: pip install {' '.join(needed)} |")
    lines.append("")
    peers = {n: s for n, s in result["sides"].items() if s["peer"]}
    groups = {
        "best peer": peers,
        "best bfloat16 peer": {n: s for n, s in peers.items() if s["precision"] == "bfloat16"},
        "better generate": {n: s for n, s in peers.items() if n.startswith("generate")},
    }
    for group, those in groups.items():
        if those:
            name = min(those, key=lambda n: those[n]["median"])
            ratio = result["sides"]["ours"]["median"] / those[name]["median"]
            speed = f", {1 / ratio:.2f}x its speed" if tokens else ""
            lines.append(f"- {group}: {name}; ours takes {ratio:.2f}x its time{speed}")
    wrong = ", ".join(f"{n} ({gap:.2f})" for n, gap in result["controls"].items())
    lines.append(f"- wrong on purpose, and refused by their mean gap: {wrong}")
    return "\n".join(lines)


def options() -> argparse.ArgumentParser:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("works", nargs="*", metavar="WORK", help=", ".join(WORKS))
    read.add_argument("--rounds", type=int, default=5)
    read.add_argument("--threads", type=int, default=2, help="of each side")
    read.add_argument("--pause", type=float, default=0.7, help="seconds before each turn")
    read.add_argument("--tokens", type=int, default=64, help="new ones of each prompt")
    read.add_argument("--texts", type=Path, help="a file with a text a line, or .jsonl(.gz)")
    read.add_argument("--quick", action="store_true", help="two layers, few texts, one round")
    read.add_argument("--no-bf16", action="store_true", help="not even shown without units")
    read.add_argument("--json", type=Path, help="write all times here")
    read.add_argument("--side", help=argparse.SUPPRESS)
    read.add_argument("--folder", help=argparse.SUPPRESS)
    return read


def hold(threads: int) -> list[int]:
    """Keep this process and its children on `threads` cores, no two of them the halves of one, and
    give libraries that read the environment the same budget: to be called before they are imported.

    Returns:
        The cores; empty where the system has no such call, or too few of them.
    """
    os.environ |= {n: str(threads) for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ |= {"RAYON_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", "HF_HUB_OFFLINE": "1"}
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores: dict[str, int] = {}
    for number in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        cores.setdefault(path.read_text() if path.exists() else str(number), number)
    chosen = list(cores.values())[:threads]
    if len(chosen) < threads:
        return []
    os.sched_setaffinity(0, chosen)
    return chosen


def main() -> None:
    read = options()
    a = read.parse_args()
    if a.side:
        worker(a)
        return
    names = a.works or (QUICK if a.quick else list(WORKS))
    if unknown := [name for name in names if name not in WORKS]:
        read.error(f"unknown work {unknown[0]}; works are {', '.join(WORKS)}")
    if min(a.rounds, a.threads, a.tokens) < 1 or a.pause < 0:
        read.error("rounds, threads and tokens are at least 1, a pause is not below 0")
    if catalogue.missing_packages(["transformers"]):
        read.error("transformers writes the models: pip install transformers")
    if a.quick:
        a.rounds, a.tokens = 1, min(a.tokens, 8)
    works = {n: WORKS[n].limited(a.tokens, 32 if a.quick else None) for n in names}
    texts, origin = read_texts(a.texts)
    if len(texts) < (most := max(work.asked for work in works.values())):
        read.error(f"{most} texts are asked, and {origin} are {len(texts)}")
    a.machine = {**machine_facts(a.threads), "cores": str(hold(a.threads))}
    print("\n".join(f"- {key}: {value or 'none'}" for key, value in a.machine.items()))
    print(f"- texts: {origin}\n", flush=True)
    results: list[dict[str, Any]] = []
    for shape in dict.fromkeys(work.shape for work in works.values()):
        with tempfile.TemporaryDirectory() as place:
            write_model(Path(place), shape, texts, layers=2 if a.quick else None)
            for name, work in works.items():
                if work.shape == shape:
                    results.append(compare(name, work, Path(place), asked_texts(work, texts), a))
                    print(table(results[-1]) + "\n", flush=True)
        if a.json:
            told = {"machine": a.machine, "texts": origin, "works": results}
            a.json.write_text(json.dumps(told, indent=1) + "\n")
    if wrong := [result["work"] for result in results if not result["sides"]["ours"]["right"]]:
        raise SystemExit(f"our answers are wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
