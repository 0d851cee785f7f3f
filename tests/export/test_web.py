"""Pages for the browser: proved against the model, whole, and refused where they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from maskwright.base.errors import CheckpointError
from maskwright.model.opening.open import open_model
from maskwright.ship.explore import bundle, corruption
from maskwright.ship.explore.site import assets
from maskwright.ship.export.run import export_model


@pytest.fixture(autouse=True)
def one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruption, "SEEDS", 1)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "bart"])
def test_folders(name: str, model: Path, models: dict[str, Path], tmp_path: Path) -> None:
    path = model if name == "bert" else models[name]
    report = export_model(path, tmp_path / "web", to="web")
    for file in assets():
        assert (tmp_path / "web" / file).read_bytes() == assets()[file]
    site = json.loads((tmp_path / "web/data/site.json").read_text())
    weights = load_file(tmp_path / "web" / site["models"][-1]["folder"] / "model.safetensors")
    assert weights.keys() == dict(open_model(path).network.named_parameters()).keys()
    assert report.about["measured"]["difference"] == 0
    if bundle.node() is not None:
        assert 0 < report.about["measured"]["browser"] < 1e-5


def test_one_file_with_weights_at_half_the_size(model: Path, tmp_path: Path) -> None:
    whole, half = (
        export_model(model, tmp_path / name, to="web", options={"single_file": True, **options})
        for name, options in (("one", {}), ("half", {"bfloat16": True}))
    )
    assert half.about["measured"]["bytes"] < whole.about["measured"]["bytes"]
    assert 0 < half.about["measured"]["difference"] < 0.05
    assert (tmp_path / "one" / "index.html").read_text().count("<script") > 3


def test_what_differs_is_taken_away(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bundle.bundle_files

    def spoiled(*given: object) -> dict[str, bytes]:
        files = made(*given)  # type: ignore[arg-type]
        data = bytearray(files["model.safetensors"])
        data[-2] ^= 0x40  # the exponent of the last number
        return {**files, "model.safetensors": bytes(data)}

    monkeypatch.setattr(bundle, "bundle_files", spoiled)
    with pytest.raises(CheckpointError, match="other numbers"):
        export_model(model, tmp_path / "web", to="web")
    assert list(tmp_path.iterdir()) == []
