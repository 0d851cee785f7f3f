"""Masks, corruption and training in a browser, as a person uses them. It needs Playwright."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from explore.test_pages import PAYLOADS, Visit, chromium, pytestmark, without_fault
from maskwright.model.opening.open import open_model
from maskwright.ship.explore.corruption import CorruptionRequest, QueryableModel, prepare_row
from maskwright.ship.explore.notebook import single_file
from maskwright.ship.explore.server import serving
from maskwright.ship.explore.site import Site

__all__ = ["chromium", "pytestmark"]
TEXT = "The big cat sat on the red mat.\n\nA tall old cat saw the dog."
SHOWN = {"masks": "figure svg", "corruption": "main ul.tokens", "training": "figure svg"}


@pytest.fixture(scope="module")
def address(model: Path, models: dict[str, Path]) -> Iterator[str]:
    with serving(Site.of([model, *models.values()], sample=TEXT, live=True)) as at:
        yield at


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1280, False)])
def test_the_pages_are_without_fault(width: int, dark: bool, chromium: Any, address: str) -> None:
    with Visit(chromium, address, width=width, dark=dark) as visit:
        for name in SHOWN:
            page = visit.open(page=name, model=0)
            page.wait_for_selector(SHOWN[name])
            without_fault(page)
        assert visit.wrong == []


def test_a_leak_is_shown_with_its_reason(chromium: Any, address: str) -> None:
    with Visit(chromium, address) as visit:
        page = visit.open(page="masks", masks_of="gpt2", objective="causal", position=3)
        page.wait_for_selector("figure svg")
        assert "sees 0–3" in page.inner_text("main") and page.locator(".leaking").count() == 0
        cell = page.get_by_role("button", name="causal, bert: would see its target")
        cell.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".notice strong")
        assert "see its own target" in page.inner_text(".notice:has(strong)")
        assert page.locator(".leaking").count() > 10
        page.get_by_label("documents packed in one row").check()
        page.get_by_role("slider", name="Position").fill("8")
        assert "Position 8" in page.inner_text("main")
        link = page.url
        page.goto("about:blank")
        page.goto(link)
        page.wait_for_selector(".notice strong")
        assert "Position 8" in page.inner_text("main")
        assert visit.wrong == []


def test_a_text_of_ones_own_is_corrupted(chromium: Any, address: str, model: Path) -> None:
    opened = QueryableModel.of(open_model(model))
    with Visit(chromium, address) as visit:
        page = visit.open(page="corruption", model=0, objective="masked", seed=3)
        page.wait_for_selector("main ul.tokens")
        wanted = prepare_row(opened, CorruptionRequest(TEXT, "masked", seed=3))
        after = page.get_by_label("After", exact=True).locator("li")
        assert after.count() == len(wanted["case"]["tokens"]) - wanted["documents"].count(0)
        assert page.locator("[aria-label=After] .aimed").count() == len(wanted["case"]["read"])
        page.locator("summary").first.click()
        page.get_by_role("slider", name="rate").first.fill("0.5")
        page.wait_for_function(
            "(n) => document.querySelectorAll('[aria-label=After] .aimed').length > n",
            arg=len(wanted["case"]["read"]),
        )
        page.get_by_label("Text").fill("red dog")
        page.wait_for_function(
            "() => document.querySelectorAll('[aria-label=Before] li').length < 9"
        )
        page.get_by_label("Text").fill("   ")
        page.wait_for_selector(".notice strong")
        assert "there is no text" in page.inner_text(".notice:has(strong)")
        for payload in PAYLOADS:
            page.get_by_label("Text").fill(payload)
            page.wait_for_timeout(400)
            assert page.evaluate("window.ran") is None
        assert visit.wrong == []


def test_a_run_is_drawn_as_it_trains(chromium: Any, tmp_path: Path) -> None:
    """Before its first checkpoint; its journal grows under the page, and its texts stay texts."""
    run = tmp_path / "<img src=x onerror='window.ran = true'>"
    run.mkdir()
    (run / "recipe.toml").write_text("name = 'mine'\n")
    plain = {"steps": 40, "objective": PAYLOADS[0], "token_parts": ["masked"]}
    references = {"uniform_loss": 4.0, "unigram_loss": 3.0}
    (run / "run.json").write_text(json.dumps({**plain, "references": references}))

    def line(step: int) -> str:
        train = {"kind": "train", "step": step, "loss": 4 - step / 20, "tokens": 32 * step}
        sample = {"kind": "sample", "step": step, "prompt": PAYLOADS[1], "text": PAYLOADS[2]}
        shown = {"kind": "evaluation", "step": step, "loss": 4 - step / 20, "decides": PAYLOADS[0]}
        return "".join(json.dumps(each) + "\n" for each in (train, shown, sample))

    journal = run / "metrics.jsonl"
    with serving(Site.of([run], live=True)) as at, Visit(chromium, at) as visit:
        page = visit.open(page="training")
        assert "No step is written down yet" in page.inner_text("main")
        for steps in (range(1, 11), range(11, 41)):
            with journal.open("a") as file:
                file.write("".join(map(line, steps)))
            page.wait_for_selector(f"main:has-text('step {steps[-1]} of 40')")
        assert page.locator("figure svg").count() >= 1
        assert "held-out loss 2.000" in page.inner_text("main")
        assert PAYLOADS[1] in page.inner_text(".written")
        assert page.evaluate("window.ran") is None
        assert visit.wrong == []


def test_the_pages_without_python(chromium: Any, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.html"
    file.write_bytes(single_file(Site.of([model], sample=TEXT)))
    with Visit(chromium, file.as_uri()) as visit:
        for name in SHOWN:
            page = visit.open(page=name, model=0)
            page.wait_for_selector(SHOWN[name])
        page = visit.open(page="corruption", model=0, objective="masked")
        page.wait_for_selector("main ul.tokens")
        before = page.locator("[aria-label=After]").inner_text()
        page.get_by_label("Seed").fill("7")
        page.wait_for_function(
            "(was) => document.querySelector('[aria-label=After]').innerText !== was", arg=before
        )
        assert "stand without Python" in page.inner_text("main")
        assert visit.wrong == []
