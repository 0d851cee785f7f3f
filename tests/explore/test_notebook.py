"""Pages as values of a notebook: what they are made of, and what is refused. How they behave in a
browser: test_pages."""

from __future__ import annotations

import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import maskwright
from maskwright.base.errors import OutputError, UsageError
from maskwright.ship.explore import corruption, notebook

HOSTILE = "\"'></iframe><script>window.ran = true</script>&lt;{{ 7 * 7 }}"


class Frames(HTMLParser):
    """The elements of a cell, and the attributes of its frame."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.frame: dict[str, str | None] = {}
        self.feed(cell)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.frame.update(attrs)


def test_a_page_is_a_frame_with_the_whole_file_in_it(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corruption, "SEEDS", 1)
    named = tmp_path / "<i>mine"
    shutil.copytree(model, named)
    shown = maskwright.show(named, "attention", text=HOSTILE, height=500)
    cell = Frames(shown._repr_html_())
    assert cell.tags == ["iframe"] and cell.frame["srcdoc"] == shown.html.decode()
    assert cell.frame["sandbox"] == "allow-scripts allow-downloads"
    assert cell.frame["height"] == "500" and cell.frame["title"] == "Attention: <i>mine, step 2"
    assert b'data-state="page=attention"' in shown.html
    assert repr(shown).startswith("<page 'Attention' for notebooks: <i>mine, step 2, ")
    assert "\n" not in repr(shown)
    saved = shown.save(tmp_path / "page.html")
    assert saved.read_bytes() == shown.html
    with pytest.raises(OutputError, match="there already"):
        shown.save(saved)
    shown.save(saved, overwrite=True)


def test_what_cannot_be_shown_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError) as refused:
        maskwright.show(model, "filling")
    assert refused.value.found == "'filling'" and "attention" in str(refused.value.wanted)
    for shown, options in ((tmp_path / "nothing", {}), ([], {}), (model, {"height": 7})):
        with pytest.raises(UsageError):
            maskwright.show(shown, **options)
    monkeypatch.setattr(notebook, "MOST_WEIGHTS", 1000)
    with pytest.raises(UsageError, match="maskwright explore"):
        maskwright.show(model)


def test_as_many_checkpoints_as_there_is_room_for(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(model, tmp_path / "run")
    for step in (10, 20):
        shutil.copytree(run / "checkpoints/step-00000002", run / f"checkpoints/step-{step:08}")
    monkeypatch.setattr(notebook, "single_file", lambda site, state: b"")
    opened = maskwright.load(model)
    weights = opened.model.network.num_parameters()
    every = tuple(f"run, step {step}" for step in (2, 10, 20))
    assert maskwright.show(run).models == every
    monkeypatch.setattr(notebook, "MOST_WEIGHTS", 2 * weights)
    assert maskwright.show(run).models == (every[0], every[2])
    assert maskwright.show([run, opened]).models == (every[2], opened.model.folder.name)
