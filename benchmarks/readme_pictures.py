"""The picture of the README: the page that fills masks, of a pretrained model on its held-out text
(playwright, Chromium).

    python -m benchmarks.readme_pictures runs/mine --out docs/pictures [--text "…" --hide 5]
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from maskwright.ship.explore.server import serving
from maskwright.ship.explore.site import Site

WIDTH, HEIGHT = 1160, 660


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--text", help="default: the beginning of the held-out text")
    parser.add_argument(
        "--hide", type=int, help="the token that is hidden (default: in the middle)"
    )
    a = parser.parse_args()
    from playwright.sync_api import sync_playwright

    state = "page=fill" if a.hide is None else f"page=fill&hide={a.hide}"
    site = Site.of([a.model], sample=a.text, live=True)
    with serving(site) as address, sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme
            )
            page.goto(f"{address}#{state}")
            page.wait_for_selector("main:not([aria-busy]) figure svg", timeout=120_000)
            page.wait_for_timeout(2_000)
            page.screenshot(path=a.out / f"fill-masks-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
