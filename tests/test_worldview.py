"""The tour of the twins: its pictures are those of its figures, and its task and spans are what the
page says."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from benchmarks import worldview, worldview_pages, worldview_pictures

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "worldview.md").read_text(encoding="utf-8")


def test_the_pictures_are_those_of_the_figures(tmp_path: Path) -> None:
    figures = json.loads((worldview.PICTURES / "figures.json").read_text(encoding="utf-8"))
    worldview_pictures.write(figures, tmp_path)
    for name in worldview_pictures.PICTURES:
        drawn = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        ElementTree.fromstring(drawn)
        assert drawn == (worldview.PICTURES / f"{name}.svg").read_text(encoding="utf-8"), name


def test_the_page_shows_every_picture_and_none_is_large() -> None:
    shown = re.findall(r"\]\((pictures/worldview/[\w-]+\.(?:svg|png))\)", PAGE)
    there = {p.name for p in worldview.PICTURES.iterdir() if p.suffix != ".json"}
    assert {Path(each).name for each in shown} == there
    assert all((worldview.PICTURES / name).stat().st_size <= 60_000 for name in there)


def test_places_in_runs_of_three() -> None:
    rows = np.asarray([[c == "x" for c in row] for row in (".xxx.x.xx", "xxx..xxx.", ".xxxx.xxx")])
    assert worldview.places_in_runs(rows).tolist() == [
        [-1, 0, 1, 2, -1, -1, -1, -1, -1],
        [-1, -1, -1, -1, -1, 0, 1, 2, -1],
        [-1] * 9,
    ]


def test_sentences_of_speeches() -> None:
    text = (
        "KING:\nWho speaks here now? I do not know him.\nWho speaks here\nnow? Oh!\n\nNo heading?"
    )
    found = worldview.sentences(text, set(text))
    assert sorted(found) == [
        ("I do not know him", "statement"),
        ("Who speaks here now", "question"),
    ]


@pytest.mark.parametrize("kind", range(5))
def test_a_picture_with_few_colours_is_the_same(kind: int) -> None:
    """Each way of PNG to write a line as differences, on a picture of few colours."""
    image = np.random.default_rng(0).choice([10, 200], (4, 5, 3)).astype(np.int64)
    lines, before = [], np.zeros(15, np.int64)
    for row in image.reshape(4, 15):
        left = np.concatenate([[0, 0, 0], row[:-3]])
        corner = np.concatenate([[0, 0, 0], before[:-3]])
        near = np.abs(np.stack([before - corner, left - corner, left + before - 2 * corner]))
        paeth = np.choose(near.argmin(0), [left, before, corner])
        guess = [0 * row, left, before, (left + before) // 2, paeth][kind]
        lines.append(bytes([kind]) + ((row - guess) % 256).astype(np.uint8).tobytes())
        before = row
    head = struct.pack(">IIBBBBB", 5, 4, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", head), (b"IDAT", zlib.compress(b"".join(lines)))):
        png += struct.pack(">I", len(data)) + name + data + bytes(4)
    assert (worldview_pages.pixels(png) == image).all()
    assert b"PLTE" in worldview_pages.with_few_colours(png)
