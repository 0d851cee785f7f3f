"""The page of a corpus: closed to the world, no markup from texts, small, the same every time."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from curate.cards import card_with, example
from curate.test_card import clean  # noqa: F401
from maskwright.base.report import document
from maskwright.base.report.drawing.curves import histogram
from maskwright.base.report.drawing.svg import FlowStage, flow
from maskwright.text.curate.card import render_page

SCRIPT = (document.TEMPLATES / "curation.js").read_text(encoding="utf-8")
HOSTILE = "<script>alert(1)</script><img src=//evil.example/x onerror=a()>\" data-value='9' \x1b[2J"


class Elements(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))


def reaches_out(page: str) -> list[str]:
    """What in a page would load, send or run anything but its own script."""
    elements, names = {"script", "link", "img", "iframe", "object", "form", "base", "a"}, []
    attributes = {"src", "href", "style", "srcset", "action"}
    for tag, own in Elements(page.replace(f"<script>{SCRIPT}</script>", "")).tags:
        names += [tag] * (tag in elements)
        names += [n for n in own if n in attributes or n.startswith("on")]
    return names + re.findall(r"\w+://[^\s\"']+", page.replace("http://www.w3.org/2000/svg", ""))


def test_the_page_reaches_nothing_and_runs_its_own_script(clean: Path) -> None:  # noqa: F811
    made = (clean / "page.html").read_text(encoding="utf-8")
    assert reaches_out(made) == []
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', made)[0]
    assert f"script-src 'sha256-{digest}';" in policy and "default-src 'none'" in policy
    assert "unsafe" not in policy
    for banned in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch("):
        assert banned not in SCRIPT
    # The control: what a text would do if it were not escaped.
    assert reaches_out(made.replace("</main>", HOSTILE + "</main>"))


def test_texts_are_no_markup() -> None:
    made = render_page(card_with(HOSTILE))
    assert made.count("<script>") == 1 and "\x1b" not in made
    assert "&lt;script&gt;alert(1)" in made and reaches_out(made.replace("//evil", "evil")) == []
    borders = [a for tag, a in Elements(made).tags if tag == "article" and "data-limit" in a]
    assert [a["data-value"] for a in borders] == ["47", "49", "50", "53"], "none from a text"


def test_a_limit_has_its_setting_and_examples_on_both_sides(clean: Path) -> None:  # noqa: F811
    made = Elements((clean / "page.html").read_text(encoding="utf-8")).tags
    rules = [a for tag, a in made if tag == "details" and a.get("data-low-setting")]
    short = next(a for a in rules if a["data-low-setting"] == "min_doc_words")
    assert short["data-step"] == "gopher-quality" and short["data-low"] == "50"
    assert short["data-whole"] == "yes"
    verdicts = [a["data-verdict"] for tag, a in made if a.get("data-verdict")]
    assert verdicts.count("keep") == verdicts.count("remove") > 4
    # The control: a limit without a setting names none.
    other = Elements(render_page(card_with("x"))).tags
    unnamed = [a for tag, a in other if a.get("data-high") == "4.5"]
    assert unnamed and not any("data-high-setting" in a for a in unnamed)


def test_many_rules_stay_small() -> None:
    card: dict[str, Any] = card_with("text")
    long = [example(f"id-{n}", 0.1 * n, removed=n < 8, limit="low", at=1) for n in range(16)]
    for row in long:
        row["text"] = "word " * 60
    sample = [[f"{n:04}", n / 7] for n in range(500)]
    rule = {"documents": 1, "bytes": 9, "sources": {}, "examples": long[:3]}
    limits = {"low": 1, "high": None, "settings": {"low": "least", "high": None}}
    for n in range(40):
        card["steps"][0]["rules"][f"r{n}"] = rule
        card["steps"][0]["measures"][f"r{n}"] = {"sample": sample, "border": long, **limits}
    page = render_page(card)
    assert 250_000 < len(page.encode()) < 1_000_000
    assert page == render_page(json.loads(json.dumps(card)))


@pytest.mark.parametrize(
    "values", [[5], [0, 0, 0], [n * 1.5 for n in range(200)], [10.0**n for n in range(6)], [-1, 2]]
)
def test_a_histogram_shows_every_value_once(values: list[float]) -> None:
    low = 3
    made = str(histogram("t", values, low=low))
    shares = [float(s) for s in re.findall(r"<title>([\d.]+) % of the documents", made)]
    assert abs(sum(shares) - 100) < 0.06 * len(shares) + 1e-9
    assert ("dot two" in made) == any(v < low for v in values)
    assert "nan" not in made.lower()
    assert histogram("t", []) is None


def test_the_limit_stands_between_the_colours() -> None:
    made = str(histogram("t", [n / 10 for n in range(100)], high=5))
    limit = float(re.findall(r'd="M([\d.]+) [\d.]+V[\d.]+" class="limit"', made)[0])
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*dot (\w+)', made)
    assert all(float(x) <= limit for x, _, css in bars if css == "one")
    assert all(float(x) + float(w) >= limit for x, w, css in bars if css == "two")


def test_the_flow_narrows_with_what_goes() -> None:
    stages = [FlowStage("a", (10, 10), (80, 80)), FlowStage("b <i>", (10, 4), (80, 20))]
    drawing = str(flow("t", stages))
    widths = re.findall(r'width="([\d.]+)" height="15" class="dot one"', drawing)
    assert float(widths[1]) == pytest.approx(float(widths[0]) * 0.4)
    assert "−6 (60.0 %)" in drawing and "b &lt;i&gt;" in drawing


def disagreements(limit: float, side: str, keep: list[float], remove: list[float]) -> int:
    """With how many verdicts a limit disagrees."""

    def goes(value: float) -> bool:
        return value < limit if side == "low" else value > limit

    return sum(map(goes, keep)) + sum(not goes(value) for value in remove)


@pytest.mark.skipif(shutil.which("node") is None, reason="the script of the page needs node")
def test_the_limit_of_the_page_agrees_best_with_the_verdicts() -> None:
    draw = random.Random(3)
    cases: list[Any] = []
    for whole in [True, False] * 150:
        values = [round(draw.randint(0, 12) * (1 if whole else 0.073), 6) for _ in range(6)]
        cut = draw.randint(0, 6)
        side, now = draw.choice(["low", "high"]), draw.choice(values)
        cases.append([side, now, values[:cut], values[cut:], whole])
    call = f"console.log(JSON.stringify({json.dumps(cases)}.map((c) => propose(...c))))"
    answer = subprocess.run(
        ["node", "-e", SCRIPT + call], capture_output=True, text=True, check=True, timeout=60
    )
    improved = 0
    proposals = json.loads(answer.stdout)
    for (side, now, keep, remove, whole), proposal in zip(cases, proposals, strict=True):
        limits = [v + d for v in (*keep, *remove) for d in (-0.001, 0, 0.001)]
        best = min(disagreements(limit, side, keep, remove) for limit in limits)
        assert disagreements(proposal["value"], side, keep, remove) == best == proposal["wrong"]
        assert not whole or float(proposal["value"]).is_integer()
        before = disagreements(now, side, keep, remove)
        assert proposal["same"] == (before == best)
        assert proposal["value"] == now or not proposal["same"]
        improved += before > best
    assert improved > 50, "the control: the limit as it was agrees with fewer"
