"""Charts as SVG: what is drawn, where, and what a hostile or odd series does."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.base.report.document import TEMPLATES
from maskwright.base.report.drawing.curves import COLUMNS, Chart, Line, _frame, columns, draw
from maskwright.base.report.drawing.svg import COLOURS, style, ticks

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


@pytest.mark.parametrize("name", ["unigram", "commonest by first word of a text"])
def test_the_names_of_reference_lines_have_room(name: str) -> None:
    lines = [Line("one", [(0.0, 1.0), (9.0, 2.0)], "one")]
    chart = Chart("a", lines, references=[(name, 1.5)], across="x", say="{:.2f}".format)
    (label,) = (e for e in parsed(chart).iter(f"{SVG}text") if (e.text or "").startswith(name))
    assert float(label.attrib["x"]) + 6 * len(label.text or "") < chart.width


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


@pytest.mark.parametrize("points", [[], [(0, math.nan)], [(math.nan, 1.0)]])
def test_a_chart_without_a_point_is_nothing(points: list[tuple[float, float]]) -> None:
    assert draw(Chart("empty", [Line("a", points)])) == ""


def test_one_point_is_a_number() -> None:
    lines = [Line("a", [(5, 2.0), (6, math.nan)]), Line("b", [(5, 3.0)], "two"), Line("c", [])]
    root = parsed(Chart("one", lines, across="epochs"))
    assert words(root) == ["one", "one point only; epochs: 5", "a 2", "b 3"]
    assert not list(root.iter(f"{SVG}line")) and int(root.get("viewBox").split()[3]) < 80
    # Two places, or a way between two, make a chart.
    for more in ([(6, 2.0)], [(5, 2.0), (6, 2.0)]):
        assert len(words(parsed(Chart("two", [lines[0], Line("b", more)])))) > 8


def test_the_legend_has_last_values_unless_they_say_nothing() -> None:
    chart = Chart("two", [Line("a", [(0, 1.0), (1, 2.5)])], across="x", has_last=False)
    assert "a" in words(parsed(chart)) and not any(
        word.startswith("a 2") for word in words(parsed(chart))
    )
    named = words(parsed(replace(chart, has_last=True)))
    assert "a" not in named and any(word.startswith("a 2") for word in named), "the control"


def test_one_point_beside_a_reference_stands_in_the_middle() -> None:
    root = parsed(Chart("one", [Line("a", [(5, 2.0)])], [("chance", 1.0)], across="epochs"))
    dot, _ = root.iter(f"{SVG}circle")  # and the legend
    (line, *_) = root.iter(f"{SVG}line")
    ends = float(line.get("x1")), float(line.get("x2"))
    assert float(dot.get("cx")) == pytest.approx(sum(ends) / 2, abs=0.1)
    assert words(root).count("5") == 1, "and nothing else is marked below the axis"


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ((0.0, 0.0), (0.0, 1.0)),
        ((1.0, 1.0), (0.9, 1.0)),
        ((0.02, 0.99), (0.0, 1.0)),
        ((2.0, 2.0), (1.8, 2.2)),
        ((-0.5, 0.5), (-0.56, 0.56)),
        ((0.1, 3.1), (0.0, 3.28)),
    ],
)
def test_the_axis_shows_nothing_that_no_value_can_be(
    values: tuple[float, float], ends: tuple[float, float]
) -> None:
    frame = _frame(Chart("F1", [Line("a", list(enumerate(values)), dots=True)]))
    assert frame.y == pytest.approx(ends)


def test_a_spike_does_not_set_the_scale_and_stays_visible() -> None:
    points = [(float(i), 1e6 if i == 700 else 1.0 + i % 2) for i in range(2000)]
    root = parsed(Chart("spike", [Line("a", points, band=True)]))
    assert not any("M" in label and label != "M" for label in words(root)[1:4])
    corners = root.find(f"{SVG}polygon").attrib["points"].split()
    ys = [float(c.split(",")[1]) for c in corners]
    assert min(ys) == 46.0  # the top edge of the frame


def test_a_long_series_has_few_columns_with_all_extremes() -> None:
    points = [(float(i), float(i % 7)) for i in range(10_000)]
    found = columns(points)
    assert len(found) == COLUMNS
    assert all((low, high) == (0.0, 6.0) for _, _, low, high in found)
    assert all(low <= middle <= high for _, middle, low, high in found)


def test_names_are_escaped() -> None:
    hostile = '<script>alert("x")</script>\x1b'
    text = draw(Chart(hostile, [Line(hostile, [(0, 1.0), (1, 2.0)])], [(hostile, 1.5)]))
    ElementTree.fromstring(text)
    assert "<script" not in text and "\x1b" not in text


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


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (3.9, 7.7, [4, 5, 6, 7]),
        (0.0, 0.001, [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001]),
        (-5.0, 5.0, [-4, -2, 0, 2, 4]),
        (2.0, 2.0, [2.0]),
    ],
)
def test_ticks_are_round(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high, 5) == pytest.approx(wanted)


def test_the_area_from_worst_to_best_is_drawn_whole() -> None:
    """Its ends count for the axis, though the means lie between them: none is cut off."""
    spread = [(20.0, 0.5, 0.7), (80.0, 0.4, 0.6)]
    line = Line("full", [(20.0, 0.6), (80.0, 0.5)], dots=True, spread=spread)
    drawn = draw(Chart("t", [line], across="labels"))
    (area,) = re.findall(r'<(?:path|polygon)[^>]*class="[^"]*band[^"]*"[^>]*>', drawn)
    ys = [float(y) for _, y in re.findall(r"([-\d.]+)[ ,]([-\d.]+)", area)]
    low, high = min(ys), max(ys)  # of 0.7 and of 0.4
    assert ys.count(low) == ys.count(high) == 1
    middle = sorted(ys)[1:-1]
    assert middle == pytest.approx([low + (high - low) / 3, low + (high - low) * 2 / 3], abs=0.5)


def test_more_lines_than_colours_are_told_apart() -> None:
    twice = 2 * len(COLOURS)
    assert len({style(n) for n in range(twice)}) == twice
    assert style(0) == COLOURS[0] and style(len(COLOURS)) == f"{COLOURS[0]} again"
    lines = [Line(f"way {n}", [(1.0, n), (2.0, n + 1)], style(n), dots=True) for n in range(twice)]
    drawn = draw(Chart("many", lines))
    for n in range(twice):
        assert drawn.count(f'class="{style(n)} line"') == 1
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    for name in (*COLOURS, "again.line", "again.dot"):
        assert f"svg .{name} {{" in css
