"""The mask matrix as a picture, and the one in docs/pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.mask_pictures import MaskPanel, documentation_picture, draw_masks

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[3]
CAUSAL = [[key <= query for key in range(4)] for query in range(4)]


def squares(picture: str) -> list[str]:
    return [e.attrib["class"] for e in ElementTree.fromstring(picture).iter(f"{SVG}rect")]


def test_a_square_for_each_pair_in_reading_order() -> None:
    found = squares(draw_masks([MaskPanel("Causal", "", CAUSAL)]))
    assert found == ["one" if seen else "none" for row in CAUSAL for seen in row]


def test_documents_have_their_own_colours() -> None:
    block = [[key // 2 == query // 2 for key in range(4)] for query in range(4)]
    found = squares(draw_masks([MaskPanel("Packed", "", block, groups=[0, 0, 1, 1])]))
    assert found[:4] == ["one", "one", "none", "none"]
    assert found[12:] == ["none", "none", "two", "two"]


def test_panels_stand_side_by_side() -> None:
    root = ElementTree.fromstring(draw_masks([MaskPanel(t, "", CAUSAL) for t in ("A", "B")]))
    xs = [float(e.attrib["x"]) for e in root.iter(f"{SVG}rect")]
    assert max(xs[:16]) < min(xs[16:])


def test_titles_are_escaped() -> None:
    picture = draw_masks([MaskPanel("<b>", '"&', CAUSAL)])
    ElementTree.fromstring(picture)
    assert "<b>" not in picture


@pytest.mark.parametrize(
    "panels",
    [
        [],
        [MaskPanel("ragged", "", [[True], [True, False]])],
        [MaskPanel("groups", "", CAUSAL, groups=[0])],
    ],
)
def test_what_cannot_be_drawn_is_refused(panels: list[MaskPanel]) -> None:
    with pytest.raises(ValueError):
        draw_masks(panels)


def test_the_picture_in_the_documentation_is_what_the_code_draws() -> None:
    drawn = documentation_picture()
    assert (ROOT / "docs" / "pictures" / "masks.svg").read_text(encoding="utf-8") == drawn
    assert squares(drawn).count("none") == 66 + (144 - 50) + (144 - 31)
