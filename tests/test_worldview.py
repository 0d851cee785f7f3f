"""The tour of the twins: its pictures are those of its figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import worldview, worldview_pictures

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
