"""Curation beside other tools on the same texts, by turns, each on the same cores.

    python -m benchmarks.curation_texts --out TEXTS --bytes 50e6 --shard 12e6
    python -m benchmarks.curation near --texts TEXTS --peers PEERS --sides ours datatrove
    python -m benchmarks.curation whole --texts TEXTS --peers PEERS --sides ours datatrove
    python -m benchmarks.curation whole --texts LARGE --sides ours --rounds 1        growth

`near` is near-duplicates alone, `whole` our default recipe. PEERS holds a virtual environment for
each tool: `datatrove` (with spacy, tokenizers, "xxhash<4"), `text-dedup`, `data-juicer`
(py-data-juicer, aiohttp). A side is a new process bound to as many cores as it may use; its time is
from start to end, reading and writing included, its memory the largest sum of the resident memory
of its processes. Medians over the rounds; a ratio is that of two neighbours in a round. What a side
removed is held against the planted truth: a planted pair is found if not both of it are left; a
document that is gone without a planted partner is one too many.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.text.curate.recipe import DEFAULT_STEPS, make

PAGE = os.sysconf("SC_PAGE_SIZE")
BINS = (0.0, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0)


@dataclass(frozen=True)
class Turn:
    """One run of a side: seconds on the clock and of all processors, bytes of memory, its lines."""

    seconds: float
    cpu: float
    peak: int
    lines: str


def measure(command: Sequence[str], cores: int, log: Path) -> Turn:
    """Run a command on so many cores.

    Raises:
        SystemExit: it failed.
    """
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    begun, before = time.perf_counter(), os.times()
    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, preexec_fn=lambda: os.sched_setaffinity(0, chosen)
        )
        watch = Watch(process.pid)
        code = process.wait()
        watch.stop()
    seconds, after = time.perf_counter() - begun, os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    lines = log.read_text(errors="replace")
    if code:
        raise SystemExit(f"{' '.join(command)}\n{lines[-3000:]}")
    return Turn(seconds, cpu, watch.peak, lines)


class Watch:
    """The largest sum of the resident memory of a process and all that it started."""

    def __init__(self, root: int) -> None:
        self.root, self.peak, self.over = root, 0, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        while not self.over.wait(0.2):
            parents, sizes = dict[int, int](), dict[int, int]()
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    parents[int(path.name)] = int(
                        (path / "stat").read_text().rsplit(")")[1].split()[1]
                    )
                    sizes[int(path.name)] = int((path / "statm").read_text().split()[1]) * PAGE
                except (OSError, IndexError, ValueError):
                    continue
            total = 0
            for process in parents:
                above = process
                while above not in (0, 1, self.root):
                    above = parents.get(above, 0)
                total += sizes.get(process, 0) if above == self.root else 0
            self.peak = max(self.peak, total)


# ------------------------------------------------------------------------------ sides
def command_of(side: str, a: argparse.Namespace, out: Path) -> list[str]:
    if side == "ours":
        command = [sys.executable, "-m", "maskwright", "curate", str(a.texts / "texts")]
        command += ["--out", str(out / "clean"), "--workers", str(a.cores)]
        if a.task == "near":
            return [*command, "--steps", "near-duplicates"]
        # The default recipe as a file: without one a sample is looked at first.
        recipe = out.with_name("recipe.toml")
        recipe.write_text(make(list(DEFAULT_STEPS), DEFAULT_STEPS).to_toml())
        return [*command, "--recipe", str(recipe), *shlex.split(a.more)]
    python = a.peers / side / "bin" / "python"
    script = Path(__file__).with_name("curation_peers.py")
    return [str(python), str(script), side, a.task, str(a.texts / "texts"), str(out), str(a.cores)]


def left_of(side: str, out: Path) -> set[str]:
    """The ids that a side left."""
    folder = out / "clean" / "text" if side == "ours" else out / "left"
    found = set()
    for path in sorted(p for p in folder.rglob("*.jsonl*") if p.is_file()):
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
        found |= {json.loads(line)["id"] for line in lines}
    return found


def rows_of(texts: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((texts / "texts").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def agreement(texts: Path, left: set[str]) -> dict[str, Any]:
    """What was removed against the planted truth: by Jaccard similarity the share of pairs found,
    and how many documents went that have no planted partner."""
    with (texts / "truth.jsonl").open(encoding="utf-8") as lines:
        truth = [json.loads(line) for line in lines]
    paired = {row["id"] for row in truth} | {row["of"] for row in truth}
    gone = {row["id"] for row in rows_of(texts)} - left
    planted, found = Counter[str](), Counter[str]()
    for row in truth:
        name = "exact" if row["change"] == "exact" else _bin(row["jaccard"])
        planted[name] += 1
        found[name] += not (row["id"] in left and row["of"] in left)
    return {
        "removed": len(gone),
        "without a partner": len(gone - paired),
        "found": {name: [found[name], planted[name]] for name in sorted(planted)},
    }


def _bin(value: float) -> str:
    low = max(edge for edge in BINS if edge <= value)
    high = min((edge for edge in BINS if edge > value), default=1.0)
    return f"{low:.2f} to {high:.2f}" if low < 1 else "1.00"


# ------------------------------------------------------------------------------ turns
def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("task", choices=("near", "whole"))
    read.add_argument("--texts", type=Path, required=True)
    read.add_argument("--peers", type=Path)
    read.add_argument("--sides", nargs="+", default=["ours"])
    read.add_argument("--cores", type=int, default=1)
    read.add_argument("--rounds", type=int, default=3)
    read.add_argument("--scratch", type=Path, help="a folder for results, which are removed again")
    read.add_argument("--more", default="", help="options of our command")
    a = read.parse_args()
    size = json.loads((a.texts / "facts.json").read_text())["bytes"] / 1e6
    turns: dict[str, list[Turn]] = {side: [] for side in a.sides}
    facts: dict[str, Any] = {}
    if a.scratch:
        a.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=a.scratch) as scratch:
        for number in range(a.rounds):
            for side in a.sides:
                out = Path(scratch) / side
                turn = measure(command_of(side, a, out), a.cores, Path(scratch) / "log")
                turns[side].append(turn)
                load = os.getloadavg()[0]
                print(
                    f"round {number + 1}, {side}: {turn.seconds:.1f} s, {turn.cpu:.1f} s of "
                    f"processors, {turn.peak / 2**20:,.0f} MiB, load {load:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
                if side not in facts:
                    facts[side] = agreement(a.texts, left_of(side, out))
                    if side == "ours" and number == a.rounds - 1:
                        print(turn.lines, file=sys.stderr)
                shutil.rmtree(out)
    print(f"{a.task}, {size:.1f} MB, {a.cores} cores, {a.rounds} rounds\n")
    print("| side | s | MB/s | processor s | MB/s a core | peak MiB | ours is, clock | processor |")
    print("| --- " * 8 + "|")
    for side, made in turns.items():
        seconds = statistics.median(t.seconds for t in made)
        cpu = statistics.median(t.cpu for t in made)
        peak = max(t.peak for t in made) / 2**20
        ratios = ["", ""]
        if side != "ours" and "ours" in turns:
            pairs = list(zip(turns["ours"], made, strict=True))
            ratios = [
                f"{statistics.median(t.seconds / o.seconds for o, t in pairs):.1f}x",
                f"{statistics.median(t.cpu / o.cpu for o, t in pairs):.1f}x",
            ]
        print(
            f"| {side} | {seconds:.1f} | {size / seconds:.2f} | {cpu:.1f} | {size / cpu:.2f} | "
            f"{peak:,.0f} | {' | '.join(ratios)} |"
        )
    print()
    for side, found in facts.items():
        pairs = ", ".join(f"{name}: {n} of {of}" for name, (n, of) in found["found"].items())
        print(
            f"{side}: {found['removed']:,} removed, {found['without a partner']:,} of them without "
            f"a planted partner; planted pairs found {pairs}"
        )


if __name__ == "__main__":
    main()
