"""Checkpoints that come and go while the pages are open. In a browser: test_pages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from maskwright.base.errors import CheckpointError
from maskwright.ship.explore.server import file_response, question_response
from maskwright.ship.explore.site import Site


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(model, tmp_path / "run")


def comes(run: Path, step: int) -> None:
    shutil.copytree(run / "checkpoints/step-00000002", run / f"checkpoints/step-{step:08}")


def listed(site: Site) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = json.loads(site.read("data/site.json"))["models"]
    return models


def test_new_checkpoints_are_listed_after_the_others(run: Path) -> None:
    site, still = Site.of([run, run], live=True), Site.of([run])
    before = listed(site)
    comes(run, 30)
    comes(run, 200)
    found = listed(site)
    assert found[: len(before)] == before  # their numbers stay
    assert [each["step"] for each in found] == [2, 2, 30, 200]
    same = {"name": "", "folder": ""}
    assert found[3] | same == found[2] | same | {"step": 200}
    assert json.loads(site.read("data/models/3/model.json"))["config"]
    assert listed(site) == found  # nothing is listed twice
    assert [each["step"] for each in listed(still)] == [2]  # a control: what is written stays


def test_a_model_names_its_own_run_or_fine_tuning(run: Path) -> None:
    """The overview shows the verdict of that one."""
    tuned, plain = run / "tuned", run.parent / "plain"
    for folder in (tuned, plain):
        shutil.copytree(run / "checkpoints/step-00000002", folder)
    (tuned / "results.json").write_text("{}")
    assert [each["run"] for each in listed(Site.of([plain, run, tuned]))] == [None, 0, 1]


def test_a_run_comes_to_its_first_checkpoint(run: Path, tmp_path: Path) -> None:
    kept = shutil.move(run / "checkpoints", tmp_path / "kept")
    site = Site.of([run], live=True)
    assert listed(site) == [] and not json.loads(site.read("data/corruption.json"))["tokenizers"]
    shutil.move(kept, run / "checkpoints")
    assert [each["step"] for each in listed(site)] == [2]
    (group,) = json.loads(site.read("data/corruption.json"))["tokenizers"]
    assert group["models"] == [0]


def test_a_deleted_checkpoint_is_said_to_be_gone(run: Path) -> None:
    comes(run, 30)
    site = Site.of([run], live=True)
    shutil.rmtree(run / "checkpoints/step-00000002")
    assert [each["gone"] for each in listed(site)] == [True, False]
    status, kind, body = file_response(site, "/data/models/0/model.json")
    assert status == 409 and "text/plain" in kind
    assert "run, step 2 was deleted" in body.decode()
    with pytest.raises(CheckpointError):
        site.opened(0)
    assert file_response(site, "/data/models/1/model.json")[0] == 200
    given = {"model": 0, "text": "big cat", "objective": "masked", "options": {}, "seed": 0}
    given["row"] = 0
    said = json.loads(question_response(site, "/ask/corruption", json.dumps(given).encode())[2])
    assert "run, step 2" in said["refused"]["what"]
