"""The process of one side: it opens the model, says so, and then answers turn by turn.

    python -m maskwright.ship.bench.worker --side onnxruntime --place FOLDER --threads 2
    -> {"precision": "float32", "answers": […]}                       open, and the first answers
    <- {"seconds": 1.0, "together": 128}
    -> {"single": […], "together": […], "items": 128, "peak_bytes": …, "answers": …}

A turn asks single items, one after another, for half of the seconds, then many at once for the
other half, once at least. The first ones wake the threads and are not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maskwright.ship.bench.processor import hold

FIRST = 1
"""Items that are answered before a side is ready."""


def timed(act: Callable[[], Any]) -> float:
    """The seconds that `act` takes."""
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def turn(ask: Callable[[list[Any]], Any], items: list[Any], request: dict[str, Any]) -> Any:
    """The times of one turn."""
    half, many = request["seconds"] / 2, items[: request["together"]]
    ask(items[:1])
    single: list[float] = []
    end = time.perf_counter() + half
    while not single or time.perf_counter() < end:
        item = items[(request["start"] + len(single)) % len(items)]
        single.append(timed(lambda: ask([item])))  # noqa: B023 - called at once
    together: list[float] = []
    end = time.perf_counter() + half
    while not together or time.perf_counter() < end:
        together.append(timed(lambda: ask(many)))
    return {"single": single, "together": together, "items": len(many)}


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("--side", required=True)
    read.add_argument("--place", type=Path, required=True)
    read.add_argument("--threads", type=int, required=True)
    a = read.parse_args()
    hold(a.threads)
    answers_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    from maskwright.base.memory import peak_resident
    from maskwright.ship.bench.sides import SIDES
    from maskwright.ship.bench.work import Work

    def say(content: dict[str, Any]) -> None:
        print(json.dumps({**content, "peak_bytes": peak_resident()}), file=answers_to, flush=True)

    work, items = Work.read(a.place)
    side = SIDES[a.side].open(work, a.threads)
    side.ask(items[:FIRST])
    say({"precision": side.precision})
    for line in sys.stdin:
        request = json.loads(line)
        if "answers" in request:
            say({"answers": side.ask(items[: request["answers"]])})
        else:
            say(turn(side.ask, items, request))


if __name__ == "__main__":
    main()
