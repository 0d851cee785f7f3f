"""What the list of models says of each. Checkpoints that come and go: test_pages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from maskwright.ship.explore.site import Site


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(model, tmp_path / "run")


def listed(site: Site) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = json.loads(site.read("data/site.json"))["models"]
    return models


def test_a_model_names_its_own_run_or_fine_tuning(run: Path) -> None:
    """The overview shows the verdict of that one."""
    tuned, plain = run / "tuned", run.parent / "plain"
    for folder in (tuned, plain):
        shutil.copytree(run / "checkpoints/step-00000002", folder)
    (tuned / "results.json").write_text("{}")
    assert [each["run"] for each in listed(Site.of([plain, run, tuned]))] == [None, 0, 1]
