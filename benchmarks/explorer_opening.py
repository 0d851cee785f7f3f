"""How soon a page of the explorers shows its first answer, of one server or of several by turns
(playwright, Chromium): medians of openings in a browser that knows nothing of the page.

    maskwright explore MODEL --port 8000 --no-browser
    python -m benchmarks.explorer_opening http://127.0.0.1:8000/ --page attention
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time

# What stands on a page when its first answer does.
ANSWERED = {
    "task": ".answer",
    "attention": "figure svg",
    "vectors": "figure svg",
    "generate": "figure svg",
}


def main() -> None:
    read = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    read.add_argument("address", nargs="+")
    read.add_argument("--page", choices=ANSWERED, default="attention")
    read.add_argument("--turns", type=int, default=9)
    a = read.parse_args()
    from playwright.sync_api import sync_playwright

    found: dict[str, list[tuple[float, float]]] = {address: [] for address in a.address}
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for turn in range(a.turns + 1):
            for address, times in found.items():
                context = browser.new_context()
                page = context.new_page()
                begin = time.perf_counter()
                page.goto(f"{address}#page={a.page}", wait_until="commit")
                page.wait_for_selector("main h2", state="attached")
                drawn = time.perf_counter() - begin
                page.wait_for_selector(ANSWERED[a.page], state="attached")
                if turn:  # in the first one the server opens the model
                    times.append((drawn, time.perf_counter() - begin))
                context.close()
        browser.close()
    for address, times in found.items():
        drawn, answered = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{address} {a.page}: drawn after {drawn:.2f} s, answered after {answered:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
