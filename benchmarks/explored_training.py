"""Whether a run is slowed while the page of its training is open.

    python -m benchmarks.explored_training --turns 20

One run of the recipe shakespeare-gpt trains; by turns the page polls its journal once a second, in
Chromium by Playwright where it is installed and else as plain requests, and does not. Chromium
draws on the same processors. The ratio is the median over pairs of turns.

Reads $MASKWRIGHT_DATA/text/tinyshakespeare.txt.
"""

from __future__ import annotations

import argparse
import io
import shutil
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.turns import Side, Turn
from maskwright.base.budget import Budget
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import find
from maskwright.learn.train import loop
from maskwright.ship.explore.server import serving
from maskwright.ship.explore.site import Site

FOREVER, WARM_UP = 1_000_000, 2
JOURNAL = "data/runs/0/metrics.jsonl"


def worker(out: Path, steps: int) -> None:
    """Trains without end, `steps` steps to a turn."""
    turn, done = Turn(), 0
    recipe = find("shakespeare-gpt")
    recipe = replace(
        recipe,
        training=replace(recipe.training, budget=Budget(steps=FOREVER)),
        evaluation=replace(recipe.evaluation, every=0),
        checkpoints=replace(recipe.checkpoints, every=0),
    )
    step = loop.step

    def stepped(*arguments: Any) -> loop.Record:
        nonlocal done
        if not done:
            turn.begin()
        record = step(*arguments)
        done += 1
        if done % steps == 0:
            turn.tokens.append(steps)
            turn.end(0.0)
        return record

    loop.step = stepped
    run.pretrain(recipe, out, stream=io.StringIO())


@contextmanager
def browser(address: str) -> Iterator[Callable[[bool], None]]:
    """Opens the page of the training, or leaves it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = opened.new_page()

        def show(on: bool) -> None:
            page.goto(f"{address}#page=training" if on else "about:blank")
            page.wait_for_timeout(1500)  # what opening a page costs is not compared

        yield show
        opened.close()


@contextmanager
def requests(address: str) -> Iterator[Callable[[bool], None]]:
    """The requests of the page without the page."""
    polling, ended = threading.Event(), threading.Event()

    def poll() -> None:
        size = 0
        while not ended.wait(1.0):
            if not polling.is_set():
                continue
            asked = urllib.request.Request(address + JOURNAL, headers={"Range": f"bytes={size}-"})
            try:
                with urllib.request.urlopen(asked, timeout=10) as answer:
                    size += len(answer.read())
            except OSError:
                continue  # nothing new

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    yield lambda on: polling.set() if on else polling.clear()
    ended.set()
    thread.join()


def compare(turns: int, steps: int, plain: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        side = Side("training", "benchmarks.explored_training", {"out": out, "steps": steps})
        try:
            side.step()  # the folder is there after it
            page = requests if plain else browser
            with serving(Site.of([out], live=True)) as address, page(address) as show:
                for number in range(2 * (turns + WARM_UP)):
                    show(number % 2 == 1)
                    side.step()
                    seconds = side.turns[-1]["seconds"]
                    print(f"  turn {number + 1}: {seconds:.2f} s", file=sys.stderr)
        finally:
            side.close()
    times = [turn["seconds"] for turn in side.turns[1 + 2 * WARM_UP :]]
    ratios = [on / off for off, on in zip(times[::2], times[1::2], strict=True)]
    low, high = np.percentile(ratios, [25, 75])
    print(
        f"with the page open a turn takes {statistics.median(ratios):.3f} of the time without "
        f"({low:.3f} to {high:.3f}); {turns} pairs of {steps} steps, "
        f"{'requests alone' if plain else 'Chromium draws once a second'}"
    )


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("--turns", type=int, default=20)
    read.add_argument("--steps", type=int, default=200)
    read.add_argument("--plain", action="store_true", help="requests without a browser")
    read.add_argument("--side", help=argparse.SUPPRESS)
    read.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    a = read.parse_args()
    if a.side:
        worker(a.out, a.steps)
        return
    try:
        import playwright  # noqa: F401
    except ImportError:
        a.plain = True
    compare(a.turns, a.steps, a.plain)


if __name__ == "__main__":
    sys.exit(main())
