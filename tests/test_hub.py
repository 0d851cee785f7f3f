"""Models by their names on the Hugging Face hub: found in its cache, downloaded only on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from maskwright.base import hub
from maskwright.base.errors import StorageError, UsageError
from maskwright.cli import main as cli

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with `org/model`, of which a newer revision is being downloaded."""
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    model = tmp_path / "home" / "hub" / "models--org--model"
    for folder in ("refs", f"snapshots/{REVISION}", "snapshots/newer"):
        (model / folder).mkdir(parents=True)
    (model / "refs" / "main").write_text(REVISION)
    return model


def test_a_cached_model_is_found_by_its_name(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub.local_folder("org/model") == cache / "snapshots" / REVISION
    assert hub.local_folder("org/other") == Path("org/other"), "the control"
    (cache / "refs" / "main").unlink()
    assert hub.local_folder("org/model") == Path("org/model"), "two revisions, and none is main"
    (cache / "snapshots" / REVISION).rmdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    assert hub.local_folder("org/model").name == "newer"
    Path("org").mkdir()
    assert hub.local_folder("org/model") == Path("org/model"), "a folder comes before the cache"


@pytest.mark.parametrize(
    ("name", "is_name"),
    [("bert-base-uncased", True), ("org/a.b_c-1", True), ("runs/mine", False), ("a/b/c", False)]
    + [(name, False) for name in ("../a", "a b", "", "/a", "home", "a--b", "a\nb")],
)
def test_what_may_be_a_name(name: str, is_name: bool) -> None:
    Path("runs").mkdir()
    assert hub.is_name(name) == is_name == (hub.advice(name) is not None)


def test_downloads_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tokens", "org/other", "a text"]) == 64
    assert "hf download org/other" in capsys.readouterr().err
    assert cli.main(["tokens", "org/model", "a text"]) != 0, "the cached folder is empty"
    assert REVISION in capsys.readouterr().err
    pytest.importorskip("huggingface_hub")
    assert cli.main(["tokens", "org/other", "a text", "--download"]) == 74  # HF_HUB_OFFLINE
    with pytest.raises(StorageError) as refused:
        hub.download("org/other")
    assert refused.value.where == "https://huggingface.co/org/other" and refused.value.do
    with pytest.raises(UsageError):
        hub.download("no name")
