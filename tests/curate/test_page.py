"""The page of a corpus: closed to the world; the limits that it proposes agree with verdicts."""

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

from curate.test_card import clean  # noqa: F401
from maskwright.base.report import document

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
