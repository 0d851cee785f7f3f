"""The process of one side: it opens the model, says so, and then answers turn by turn.

    python -m maskwright.ship.bench.worker --side onnxruntime --place FOLDER --threads 2
    -> {"precision": "float32", "answers": […]}                       open, and the first answers
    <- {"seconds": 1.0, "together": 128}
    -> {"single": […], "together": […], "items": 128, "peak_bytes": …, "answers": …}

A turn asks single items, one after another, for half of the seconds, then many at once for the
other half, once at least. The first ones wake the threads and are not timed. All sides are held on
the same cores before a library is imported.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from maskwright.base import privacy
from maskwright.base.catalogue import missing_packages

LIBRARIES = ("torch", "transformers", "onnxruntime", "openvino", "ctranslate2")
INSTRUCTIONS = """
    amx_tile amx_bf16 amx_int8 avx512_bf16 avx512_vnni avx_vnni avx512f avx2 fma
    """.split()  # noqa: SIM905


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def instructions() -> str:
    """The vector and matrix instructions that the system lists, separated by blanks."""
    flags = _cpuinfo().get("flags", "").split()
    return " ".join(name for name in INSTRUCTIONS if name in flags)


def facts(threads: int, cores: Sequence[int] = ()) -> dict[str, str]:
    """The machine, the budget and the versions, in words."""
    from maskwright.model.device.machine import matrix_units

    versions = [
        f"{p} {importlib.metadata.version(p)}" for p in LIBRARIES if not missing_packages([p])
    ]
    return {
        "processor": f"{_cpuinfo().get('model name', 'unknown')}, {os.cpu_count()} cores",
        "instructions": instructions(),
        "matrix units": matrix_units("cpu"),
        "threads": f"{threads}" + (f" on cores {', '.join(map(str, cores))}" if cores else ""),
        "versions": ", ".join(versions),
    }


def hold(threads: int) -> list[int]:
    """Keep this process and its children on `threads` cores, no two of them the halves of one, and
    give libraries that read the environment the same budget: to be called before they are imported.

    Returns:
        The cores; empty where the system has no such call, or too few of them.
    """
    os.environ |= {n: str(threads) for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ |= {"RAYON_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"TOKENIZERS_PARALLELISM": "true", **privacy.OFFLINE}
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


def _seconds(ask: Callable[[list[Any]], Any], items: list[Any]) -> float:
    begin = time.perf_counter()
    ask(items)
    return time.perf_counter() - begin


def turn(ask: Callable[[list[Any]], Any], items: list[Any], request: dict[str, Any]) -> Any:
    """The times of one turn."""
    half, many = request["seconds"] / 2, items[: request["together"]]
    ask(items[:1])
    single: list[float] = []
    end = time.perf_counter() + half
    while not single or time.perf_counter() < end:
        item = items[(request["start"] + len(single)) % len(items)]
        single.append(_seconds(ask, [item]))
    together: list[float] = []
    end = time.perf_counter() + half
    while not together or time.perf_counter() < end:
        together.append(_seconds(ask, many))
    return {"single": single, "together": together, "items": len(many)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", required=True)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    a = parser.parse_args()
    hold(a.threads)
    answers_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    from maskwright.base.memory import peak_resident
    from maskwright.ship.bench.work import SIDES, Work

    def say(content: dict[str, Any]) -> None:
        print(json.dumps({**content, "peak_bytes": peak_resident()}), file=answers_to, flush=True)

    work, items = Work.read(a.place)
    side = SIDES[a.side].open(work, a.threads)
    side.ask(items[:1])
    say({"precision": side.precision})
    for line in sys.stdin:
        request = json.loads(line)
        if "answers" in request:
            say({"answers": side.ask(items[: request["answers"]])})
        else:
            say(turn(side.ask, items, request))


if __name__ == "__main__":
    main()
