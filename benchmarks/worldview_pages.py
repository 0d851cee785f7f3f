"""The pictures of pages in docs/worldview.md, as a person sees them (playwright, Chromium).

maskwright explore runs/gpt runs/bert --port 8000 --no-browser
python -m benchmarks.worldview_pages http://127.0.0.1:8000/
"""

from __future__ import annotations

import argparse
import shutil
import struct
import sys
import zlib
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from benchmarks.worldview import PICTURES, PROMPT

HELD_OUT = (
    "Well, I must do't: Away, my disposition"  # of the characters that no twin was trained on
)
# Picture -> what the link says, and how much of the page is shown.
PAGES: dict[str, tuple[dict[str, str], int]] = {
    "page-masks": ({"page": "masks", "masks_of": "gpt", "objective": "causal"}, 960),
    "page-corruption": ({"page": "corruption", "objective": "masked", "text": HELD_OUT}, 1060),
    "page-fill": ({"page": "fill", "text": HELD_OUT, "hide": "9,31,32,33"}, 1090),
    "page-generate": ({"page": "generate", "prompt": PROMPT, "temperature": "1"}, 1060),
    "page-training": ({"page": "training", "axis": "step"}, 900),
}
WIDTH = 760
SHADES = 40  # colours of a picture: those of the page, and some between them at edges


def with_few_colours(png: bytes) -> bytes:
    """The same picture with a palette of its commonest colours, a third as large."""
    image = pixels(png)
    flat = image.reshape(-1, 3)
    every, which, counts = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    palette = every[np.argsort(-counts)[:SHADES]].astype(np.int64)
    apart = ((every[:, None].astype(np.int64) - palette) ** 2).sum(-1)
    rows = apart.argmin(1).astype(np.uint8)[which.reshape(-1)].reshape(image.shape[:2])
    raw = np.hstack([np.zeros((len(rows), 1), np.uint8), rows]).tobytes()  # filter 0 on every line
    head = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 3, 0, 0, 0)
    parts = [(b"IHDR", head), (b"PLTE", palette.astype(np.uint8).tobytes())]
    parts += [(b"IDAT", zlib.compress(raw, 9)), (b"IEND", b"")]
    return png[:8] + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def pixels(png: bytes) -> np.ndarray:
    """(height, width, 3) of a PNG of 8 bits a colour, as Chromium writes it."""
    at, data, head = 8, b"", b""
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        name, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        head, data = (body, data) if name == b"IHDR" else (head, data + body * (name == b"IDAT"))
        at += 12 + length
    width, height, bits, kind = struct.unpack(">IIBB", head[:10])
    depth = {2: 3, 6: 4}[kind]
    assert bits == 8
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * depth)
    before, found = np.zeros((width, depth), np.uint8), []
    for line in lines:
        row = line[1:].reshape(width, depth)
        if line[0] == 1:
            row = np.cumsum(row, 0, dtype=np.uint8)
        elif line[0] == 2:
            row = row + before
        elif line[0] in (3, 4):
            row = _from_left(row, before, mean=line[0] == 3)
        found.append(row)
        before = row
    return np.stack(found)[:, :, :3]


def _from_left(row: np.ndarray, before: np.ndarray, *, mean: bool) -> np.ndarray:
    """A line that was written as differences from a mean, or from Paeth's choice, of neighbours."""
    made = np.zeros((len(row) + 1, row.shape[1]), np.int64)
    above = np.vstack([np.zeros((1, row.shape[1])), before]).astype(np.int64)
    for x in range(1, len(made)):
        left, up, corner = made[x - 1], above[x], above[x - 1]
        if mean:
            guess = (left + up) // 2
        else:
            near = [abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)]
            guess = np.where(near[1] <= near[2], up, corner)
            guess = np.where((near[0] <= near[1]) & (near[0] <= near[2]), left, guess)
        made[x] = (row[x - 1] + guess) % 256
    return made[1:].astype(np.uint8)


def main() -> None:
    read = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    read.add_argument("address")
    read.add_argument("--pictures", type=Path, default=PICTURES)
    read.add_argument("--only", choices=PAGES)
    a = read.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, (state, height) in PAGES.items():
            if a.only not in (None, name):
                continue
            context = browser.new_context(viewport={"width": WIDTH, "height": height})
            page = context.new_page()
            page.goto(a.address)
            page.wait_for_timeout(1_500)
            # The model that can show the page: the twin whose name the picture needs.
            wanted = "gpt" if name in ("page-generate", "page-masks") else "bert"
            options = page.locator("#models option").all_text_contents()
            state = state | {
                "model": str(max(n for n, words in enumerate(options) if wanted in words))
            }
            page.goto(f"{a.address.rstrip('/')}/#{urlencode(state)}")
            page.reload()
            page.wait_for_timeout(6_000)
            file = a.pictures / f"{name}.png"
            file.write_bytes(with_few_colours(page.screenshot()))
            print(name, file.stat().st_size)
            context.close()
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
