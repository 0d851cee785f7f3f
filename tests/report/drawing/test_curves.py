"""Charts as SVG: what is drawn, where, and what a hostile or odd series does."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from maskwright.base.report.drawing.curves import COLUMNS, Chart, Line, columns, draw

SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(draw(chart))


def words(root: ElementTree.Element) -> list[str]:
    return [e.text or "" for e in root.iter(f"{SVG}text")]


def coordinates(data: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", data)]


def test_a_rising_series_rises_within_the_frame() -> None:
    root = parsed(Chart("rise", [Line("a", [(0, 1.0), (50, 2.0), (100, 3.0)])]))
    points = coordinates(root.find(f"{SVG}path").attrib["d"])
    xs, ys = zip(*points, strict=True)
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys, reverse=True)
    assert all(0 < x < 760 and 0 < y < 300 for x, y in points)


def test_reference_lines_stand_where_they_belong() -> None:
    chart = Chart("loss", [Line("a", [(0, 7.0), (9, 3.0)])], [("high", 6.0), ("low", 4.0)])
    root = parsed(chart)
    dashed = [e for e in root.iter(f"{SVG}line") if "reference" in e.get("class")]
    top, bottom = sorted(float(e.attrib["y1"]) for e in dashed)
    assert {"high 6", "low 4"} <= set(words(root))
    start, end = coordinates(root.find(f"{SVG}path").attrib["d"])
    assert start[1] < top < bottom < end[1]


def test_what_is_not_finite_breaks_the_line() -> None:
    points = [(0, 1.0), (1, math.nan), (2, 2.0), (3, math.inf), (4, 1.5)]
    data = parsed(Chart("gaps", [Line("a", points)])).find(f"{SVG}path").attrib["d"]
    assert data.count("M") == 3


def test_a_long_series_has_few_columns_with_all_extremes() -> None:
    points = [(float(i), float(i % 7)) for i in range(10_000)]
    found = columns(points)
    assert len(found) == COLUMNS
    assert all((low, high) == (0.0, 6.0) for _, _, low, high in found)
    assert all(low <= middle <= high for _, middle, low, high in found)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e12), st.floats(allow_nan=True, allow_infinity=True)), max_size=30
    ),
    st.booleans(),
    st.booleans(),
)
def test_any_numbers_make_a_picture(
    points: list[tuple[float, float]], band: bool, from_zero: bool
) -> None:
    text = draw(Chart("any", [Line("a", points, band=band)], from_zero=from_zero))
    if text:
        ElementTree.fromstring(text)
        for bad in ('"nan', '"inf', " nan", " inf", "Mnan", "Minf"):
            assert bad not in text
